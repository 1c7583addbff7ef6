/* garbage.h: strings that no filter needs any more, and the job that removes them. It makes many
 * keys behave as one: when the last value with a filter's id is gone, its shards are garbage and
 * are removed soon after. */
#ifndef GARBAGE_H
#define GARBAGE_H

#include "core/descriptor.h"
#include "redismodule.h"

#define DATABASE_UNKNOWN (-1)

/* Starts the sweeper. Once, when the module is loaded, after living_start. */
void garbage_start(void);

/* A value with this descriptor came to life (created, loaded, restored, copied): nothing with its
 * id is garbage. */
void garbage_born(const struct descriptor *descriptor);

/* A value died, in this database if it is known. Takes the descriptor over. May be called on any
 * thread. */
void garbage_died(struct descriptor *descriptor, int db);

/* A filter that lives has dropped these layers, in this database. Takes the descriptor of them
 * over. Main thread only. */
void garbage_dropped(struct descriptor *layers, int db);

/* A value left for another cluster node, where its shards will follow it: none of them is garbage
 * here. Takes the descriptor over. */
void garbage_left(struct descriptor *descriptor);

/* Are strings of this filter waiting to be removed? */
bool garbage_has(uint64_t id);

/* Deletes all garbage from the memory of a child that is about to rewrite the AOF, or to send slots
 * to another node: neither has room for the list. */
void garbage_purge_child(RedisModuleCtx *ctx);

/* Two databases changed their numbers. */
void garbage_databases_swapped(void);

/* The list, for RDB files: it must outlive a restart. garbage_load returns false for a list that
 * can't be read. */
void garbage_save(RedisModuleIO *rdb);
bool garbage_load(RedisModuleIO *rdb);

struct garbage_counts {
    uint64_t npending; /* dead filters and slices whose shards are not yet removed */
    uint64_t nremoved; /* shards removed since the module was loaded */
    uint64_t nlookups; /* names looked up in a database for that */
};
struct garbage_counts garbage_count(void);

#endif
