/* cluster.h: which slots of a Redis Cluster this node may treat as its own. */
#ifndef CLUSTER_H
#define CLUSTER_H

#include <stdbool.h>

#include "redismodule.h"

enum slot_state {
    SLOT_OWNED,   /* ours, and staying; always so outside a cluster */
    SLOT_MOVING,  /* migrating from or importing to this node: keys may be on their way */
    SLOT_FOREIGN, /* another node's; on a replica, all slots are its primary's */
};

/* The state of a slot. "On the move" may be a moment old, the others never. */
enum slot_state cluster_slot_state(RedisModuleCtx *ctx, unsigned slot);

/* The same, but "foreign" may be a moment old, too. For the sweeper, which may come upon thousands
 * of such filters, and then only looks whether the strings it has to remove are gone. */
enum slot_state cluster_slot_state_to_sweep(RedisModuleCtx *ctx, unsigned slot);

bool cluster_enabled(RedisModuleCtx *ctx);

#endif
