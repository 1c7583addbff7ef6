/* registry.h: which filters live, and what the dead ones left behind. Makes many keys behave as one: when the last
 * value with a filter's id is gone, however it went, its shards are garbage and are removed soon after. */
#ifndef REGISTRY_H
#define REGISTRY_H

#include "core/descriptor.h"
#include "redismodule.h"

/* Starts the sweeper. Once, when the module is loaded. */
void registry_start(RedisModuleCtx *ctx);

/* A value with this descriptor came to life (created, loaded, restored, copied). */
void registry_born(const struct descriptor *descriptor);

/* A value died. Takes the descriptor over. May be called on a background thread. */
void registry_died(struct descriptor *descriptor);

/* Deletes what is left of a filter that died without any other server knowing of it, before its id is used again. */
void registry_purge(RedisModuleCtx *ctx, uint64_t id);

/* Deletes the shards of the dead from the memory of a child that is about to rewrite the AOF: what it writes has no
 * room for a list of them. */
void registry_purge_child(RedisModuleCtx *ctx);

/* A value left for another cluster node, where its shards will follow it: none of them is garbage here. Takes the
 * descriptor over. */
void registry_left(struct descriptor *descriptor);

/* What is known here of a filter. */
enum filter_state {
    FILTER_UNKNOWN, /* never seen, or long gone */
    FILTER_LIVE,
    FILTER_DEAD, /* its shards are about to be removed */
};
enum filter_state registry_state(uint64_t id);

/* Changes whenever the server has served other clients for a while, never during a command. Not 0. */
uint64_t registry_tick(void);

/* What must outlive a restart from an RDB file: the dead whose shards are still there, and the count of restores. */
bool registry_has_something_to_save(void);
void registry_save(RedisModuleIO *rdb);
bool registry_load(RedisModuleIO *rdb);

struct registry_counts {
    uint64_t nlive;    /* filters alive */
    uint64_t npending; /* dead filters whose shards are not yet removed */
    uint64_t nremoved; /* shards removed since the module was loaded */
};
struct registry_counts registry_count(void);

#endif
