/* filter.h: adding to and asking a filter of several layers. */
#ifndef FILTER_H
#define FILTER_H

#include "store/layer.h"

/* What a new filter shall be like. */
struct filter_options {
    double error;
    uint64_t capacity;
    uint32_t expansion; /* 0: does not grow */
    uint64_t seed;
    uint64_t id;
    uint64_t shard_bytes;
};

/* A filter for the key `name`; NULL if it can't be sized or there is no memory. */
struct filter *filter_new(const struct filter_options *options, const char *tag, size_t tag_length);

/* Fills in the answers for all n lookups, n >= 1. False if a shard that is needed is lost (shards->status, bad_layer and
 * bad_shard say which): then nothing has changed. */
bool filter_check(struct shards *shards, struct lookup *lookups, size_t n);

/* The same, and adds what is new; replicates exactly the items that changed something, and each new layer, under the
 * filter's key name. `verbatim`: the running command may be replicated as it is if all of its items are new. *nadded
 * tells how many were. */
bool filter_add(struct shards *shards, RedisModuleString *key, struct lookup *lookups, size_t n,
                bool verbatim, size_t *nadded);

/* Replaces all lost shards by empty ones; returns how many. Adopted strings that are missing count as empty again; one
 * that something else took the place of stays lost. */
uint64_t filter_heal(struct shards *shards);

/* Sends the descriptor as it is now to replicas and AOF, whole and exact. */
void filter_replicate(RedisModuleCtx *ctx, RedisModuleString *key, const struct filter *filter);

/* The share of the filter's items that one shard's string holds, 0 … 1. */
double filter_shard_share(const struct descriptor *descriptor, uint32_t layer);

#endif
