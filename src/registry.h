/* registry.h: which filters live, and what the dead ones left behind. Makes many keys behave as one: when the last
 * value with a filter's id is gone, however it went, its shards are garbage and are removed soon after. */
#ifndef REGISTRY_H
#define REGISTRY_H

#include "descriptor.h"
#include "redismodule.h"

/* Starts the sweeper. Once, when the module is loaded. */
void registry_start(RedisModuleCtx *ctx);

/* A value with this descriptor came to life (created, loaded, restored, copied). */
void registry_born(const struct descriptor *descriptor);

/* A value died. Takes the descriptor over. May be called on a background thread. */
void registry_died(struct descriptor *descriptor);

/* An id for a filter that is restored from a dump of the filter `id`: another one every time, the same ones in the
 * same order on a primary and on its replicas. */
uint64_t registry_restored_id(uint64_t id);

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

/* Mixes a number into an id; never gives two results for the same arguments, rarely one for two. */
uint64_t registry_mix(uint64_t id, uint64_t number);

#endif
