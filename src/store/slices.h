/* slices.h: filters with a window, and the time (core/window.h). Before a command adds items, the
 * primary starts new slices and drops expired ones. Replicas and the AOF are told and decide
 * nothing themselves. When reading, every server skips expired slices by its own clock, as it does
 * with keys that have a time to live. */
#ifndef SLICES_H
#define SLICES_H

#include "store/value.h"

enum slices_turned {
    SLICES_SAME,   /* the newest slice takes the items */
    SLICES_TURNED, /* a new slice takes them; replicas were told */
    SLICES_STUCK,  /* a new slice is due but can't be created */
};

/* Call it before adding items to a filter. */
enum slices_turned slices_turn(RedisModuleCtx *ctx, RedisModuleString *name, struct filter *filter);

/* The first layer that counts when reading now. */
uint32_t slices_first_to_ask(const struct descriptor *descriptor);

/* The items of all layers that count when reading now. */
uint64_t slices_nitems(const struct descriptor *descriptor);

/* For a filter with a window: how long ago its oldest unexpired slice began; 0 if there is none. */
uint64_t slices_age_ms(const struct descriptor *descriptor);

/* The first layer that counts when adding items. */
static inline uint32_t slices_first_to_add(const struct descriptor *descriptor) {
    return descriptor->window ? descriptor->window->nover : 0;
}

/* Replaces a filter's descriptor with a later one from the primary. Layers that it has dropped
 * become garbage. */
void slices_replace(RedisModuleCtx *ctx, struct filter *filter, struct descriptor *descriptor);

#endif
