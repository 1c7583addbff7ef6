/* garbage.h: strings that no filter needs any more, and the job that removes them. It makes many
 * keys behave as one: when the last value with a filter's id is gone, its shards are garbage and
 * are removed soon after. */
#ifndef GARBAGE_H
#define GARBAGE_H

#include "core/descriptor.h"
#include "redismodule.h"

#define DATABASE_UNKNOWN (-1)

/* Starts the sweeper. Called once, when the module is loaded, after living_start. */
void garbage_start(void);

/* A value with this descriptor came to life (created, loaded, restored, copied): nothing with its
 * id is garbage. */
void garbage_born(const struct descriptor *descriptor);

/* A value died, in this database or DATABASE_UNKNOWN. Takes ownership of the descriptor. May be
 * called on any thread. */
void garbage_died(struct descriptor *descriptor, int db);

/* A living filter in this database has dropped these layers. Takes ownership of their descriptor.
 * Main thread only. */
void garbage_dropped(struct descriptor *layers, int db);

/* A value moved to another cluster node. Its shards will follow, so they are not garbage here.
 * Takes ownership of the descriptor. */
void garbage_left(struct descriptor *descriptor);

/* Are strings of this filter waiting to be removed? */
bool garbage_has(uint64_t id);

/* Deletes all garbage from the memory of a child process that is about to rewrite the AOF or to
 * send slots to another node, because neither format has a place for the list. */
void garbage_purge_child(RedisModuleCtx *ctx);

/* Two databases were swapped. */
void garbage_databases_swapped(void);

/* Save the list to an RDB file and load it again, because it must survive a restart. garbage_load
 * returns false if the list can't be read. */
void garbage_save(RedisModuleIO *rdb);
bool garbage_load(RedisModuleIO *rdb);

struct garbage_counts {
    uint64_t npending; /* dead filters and slices whose shards are not yet removed */
    uint64_t nremoved; /* shards removed since the module was loaded */
    uint64_t nlookups; /* names looked up in a database to remove them */
};
struct garbage_counts garbage_count(void);

#endif
