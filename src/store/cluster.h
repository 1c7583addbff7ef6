/* cluster.h: which slots of a Redis Cluster this node may treat as its own. */
#ifndef CLUSTER_H
#define CLUSTER_H

#include <stdbool.h>

#include "redismodule.h"

enum slot_state {
    SLOT_OWNED,   /* ours and not moving; always the case outside a cluster */
    SLOT_MOVING,  /* being migrated from or imported to this node: keys may be on either */
    SLOT_FOREIGN, /* another node's; on a replica, all slots are its primary's */
};

/* The state of a slot. "Moving" may be slightly out of date, the others never are. */
enum slot_state cluster_slot_state(RedisModuleCtx *ctx, unsigned slot);

/* The same, but "foreign" may also be slightly out of date. For the sweeper, which may find
 * thousands of such filters and then only checks whether the strings it has to remove are gone. */
enum slot_state cluster_slot_state_to_sweep(RedisModuleCtx *ctx, unsigned slot);

bool cluster_enabled(RedisModuleCtx *ctx);

#endif
