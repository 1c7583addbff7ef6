/* replication.h: what replicas and the AOF are told. Only what changed something, and each thing
 * with everything that it depends on: a replica decides nothing. */
#ifndef REPLICATION_H
#define REPLICATION_H

#include "core/layer.h"
#include "core/merge.h"
#include "store/value.h"

/* The filter as it is now, whole and exact: when it is created, has got a layer or has turned. */
void replicate_descriptor(RedisModuleCtx *ctx, RedisModuleString *name,
                          const struct descriptor *descriptor);

/* First what went into the old layers, then the new layer: a replica must grow at the same item. */
void replicate_growth(struct strings *strings, const struct lookup *lookups, size_t n);

/* Those of the n items that changed something and that replicas do not know of yet. `verbatim`: the
 * running command may be replicated as it is if all of them are. */
void replicate_items(struct strings *strings, const struct lookup *lookups, size_t n,
                     bool verbatim);

/* Shards that were lost and begin anew, as pairs of layer and shard; then the descriptor. */
void replicate_healed(RedisModuleCtx *ctx, RedisModuleString *name,
                      const struct descriptor *descriptor, RedisModuleString **pairs,
                      size_t npairs);

/* A step of BF.MERGE. Layers have the numbers that name their strings. */
void replicate_merged(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleString *source,
                      uint32_t to, uint32_t from, const struct merge_range *range);

#endif
