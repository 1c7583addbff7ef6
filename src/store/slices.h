/* slices.h: filters with a window and the time (core/window.h). The primary begins new slices and
 * drops those that are over, ahead of the items that a command adds; replicas and the AOF are told,
 * and decide nothing. Reading a slice that is over is avoided everywhere, by the server's own
 * clock, as the server does with keys that have a time to live. */
#ifndef SLICES_H
#define SLICES_H

#include "store/value.h"

enum slices_turned {
    SLICES_SAME,   /* the newest slice takes what comes */
    SLICES_TURNED, /* a new one does; replicas were told */
    SLICES_STUCK,  /* there should be a new one, but there can't be */
};

/* Call it before items are added to a filter. */
enum slices_turned slices_turn(RedisModuleCtx *ctx, RedisModuleString *name, struct filter *filter);

/* The first layer that counts when something is asked now. */
uint32_t slices_first_to_ask(const struct descriptor *descriptor);

/* The items of all layers that count when something is asked now. */
uint64_t slices_nitems(const struct descriptor *descriptor);

/* Of a filter with a window: how long ago the oldest slice began that counts now. 0 if none
 * does. */
uint64_t slices_age_ms(const struct descriptor *descriptor);

/* The first layer that counts when items are added. */
static inline uint32_t slices_first_to_add(const struct descriptor *descriptor) {
    return descriptor->window ? descriptor->window->nover : 0;
}

/* Puts a later state of the same filter in its place, as the primary told; what it has dropped is
 * garbage. */
void slices_replace(RedisModuleCtx *ctx, struct filter *filter, struct descriptor *descriptor);

#endif
