/* replication.h: what is sent to replicas and the AOF. Only changes are sent, each with everything
 * it depends on: a replica decides nothing itself. */
#ifndef REPLICATION_H
#define REPLICATION_H

#include "core/layer.h"
#include "core/merge.h"
#include "store/value.h"

/* Sends the complete filter state: when it is created, has got a layer or has turned. */
void replicate_descriptor(RedisModuleCtx *ctx, RedisModuleString *name,
                          const struct descriptor *descriptor);

/* Sends the items added to the old layers, then the new layer: a replica must grow at the same
 * item. */
void replicate_growth(struct strings *strings, const struct lookup *lookups, size_t n);

/* Sends those of the n items that changed something and have not been sent yet. `verbatim`: if that
 * is all of them, the running command may be replicated as it is. */
void replicate_items(struct strings *strings, const struct lookup *lookups, size_t n,
                     bool verbatim);

/* Sends lost shards that were replaced with empty ones, as pairs of layer and shard; then the
 * descriptor. */
void replicate_healed(RedisModuleCtx *ctx, RedisModuleString *name,
                      const struct descriptor *descriptor, RedisModuleString **pairs,
                      size_t npairs);

/* Sends a step of BF.MERGE. Layers are identified by the numbers in their strings' names. */
void replicate_merged(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleString *source,
                      uint32_t to, uint32_t from, const struct merge_range *range);

#endif
