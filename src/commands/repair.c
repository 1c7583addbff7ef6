#include "commands/repair.h"

#include "commands/open.h"
#include "commands/reply.h"
#include "store/cluster.h"
#include "store/filter.h"

/* BF.HEAL key */
int BFHeal_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_existing(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE, &key, &filter))
        return REDISMODULE_OK;
    if (cluster_slot_state(ctx, cluster_filter_slot(filter->descriptor)) == SLOT_MOVING) {
        RedisModule_ReplyWithError(ctx, ERROR_MIGRATING);
    } else {
        struct shards shards = {
            .ctx = ctx, .filter = filter, .mode = REDISMODULE_READ | REDISMODULE_WRITE};
        const uint64_t nhealed = filter_heal(&shards);
        if (nhealed > 0) {
            RedisModule_ReplicateVerbatim(ctx);
            RedisModule_SignalModifiedKey(ctx, argv[1]);
            RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.heal", argv[1]);
        }
        RedisModule_ReplyWithLongLong(ctx, (long long)nhealed);
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}
