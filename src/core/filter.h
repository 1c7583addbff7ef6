/* filter.h: adding and checking items in a filter of several layers. */
#ifndef FILTER_H
#define FILTER_H

#include "core/layer.h"

/* The parameters of a new filter. */
struct filter_options {
    double error;
    uint64_t capacity;
    uint32_t expansion; /* 0: does not grow */
    uint64_t seed;
    uint64_t id;
    uint64_t shard_bytes;
    struct window window; /* seconds == 0: the filter never forgets */
    uint64_t now_ms;      /* with a window: the current time */
};

/* The first layer of such a filter: its layout, capacity and share of the error. False if it can't
 * be sized. */
bool filter_plan(const struct filter_options *options, struct layout *layout, uint64_t *capacity,
                 double *error);

/* The descriptor of such a filter; NULL if it can't be sized or memory is short. */
struct descriptor *filter_new(const struct filter_options *options, const char *tag,
                              size_t tag_length);

/* Sets the answers of all n lookups, n >= 1. False if a required shard is lost: then nothing has
 * changed, and access->status, bad_layer and bad_shard say which. When a primary's command is
 * repeated, an item is left out if its shard in the newest layer is lost; a lost shard in an older
 * layer counts as not containing it. */
bool filter_check(struct access *access, struct lookup *lookups, size_t n);

/* The same, but also adds the items that are new or must be remembered for longer. *nchanged is
 * their number. */
bool filter_add(struct access *access, struct lookup *lookups, size_t n, size_t *nchanged);

/* The share of the filter's items that one shard holds, 0 … 1. Layers before `first` do not
 * count. */
double filter_shard_share(const struct descriptor *descriptor, uint32_t first, uint32_t layer);

#endif
