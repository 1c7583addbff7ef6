/* filter.h: adding to and asking a filter of several layers. */
#ifndef FILTER_H
#define FILTER_H

#include "core/layer.h"

/* What a new filter is to be like. */
struct filter_options {
    double error;
    uint64_t capacity;
    uint32_t expansion; /* 0: does not grow */
    uint64_t seed;
    uint64_t id;
    uint64_t shard_bytes;
    struct window window; /* seconds == 0: it never forgets */
    uint64_t now_ms;      /* with a window: the time */
};

/* The first layer that such a filter has, its capacity and its share of the error; false if it
 * can't be sized. */
bool filter_plan(const struct filter_options *options, struct layout *layout, uint64_t *capacity,
                 double *error);

/* The descriptor of such a filter; NULL if it can't be sized or there is no memory. */
struct descriptor *filter_new(const struct filter_options *options, const char *tag,
                              size_t tag_length);

/* Fills in the answers for all n lookups, n >= 1. False if a shard that is needed is lost
 * (access->status, bad_layer and bad_shard say which): then nothing has changed. Where a primary's
 * command is repeated, a lost shard of the newest layer leaves the item out, and one of an older
 * layer counts as not containing it. */
bool filter_check(struct access *access, struct lookup *lookups, size_t n);

/* The same, and adds what is new, or must be remembered for longer: *nchanged of them. */
bool filter_add(struct access *access, struct lookup *lookups, size_t n, size_t *nchanged);

/* The share of the filter's items that one shard's string holds, 0 … 1. */
double filter_shard_share(const struct descriptor *descriptor, uint32_t layer);

#endif
