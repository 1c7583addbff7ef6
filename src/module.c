/* Loading: resolve the API, read the configuration, register the type and the commands. */
#define REDISMODULE_MAIN
#include "redismodule.h"

#include "commands/table.h"
#include "config.h"
#include "core/descriptor.h"
#include "store/events.h"
#include "store/namecache.h"
#include "store/garbage.h"
#include "store/statistics.h"
#include "store/datatype.h"

#define MODULE_NAME    "bf"
#define MODULE_VERSION 10000 /* 1.0.0; scripts/version reads it, make check-version compares */

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx *ctx,
                                                              RedisModuleString **argv, int argc);

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    const char *lacking = RedisModule_Init(ctx, MODULE_NAME, MODULE_VERSION);
    if (lacking) {
        if (RedisModule_Log)
            RedisModule_Log(ctx, "warning", "can't load: this server has no %s", lacking);
        return REDISMODULE_ERR;
    }
    descriptor_allocator =
        (struct allocator){RedisModule_TryAlloc, RedisModule_Realloc, RedisModule_Free};
    if (!config_load(ctx, argv, argc) || !type_register(ctx) || !commands_register(ctx) ||
        !statistics_start(ctx) || !events_start(ctx) || !recent_start(ctx))
        return REDISMODULE_ERR;
    /* Commands signal their keys themselves, and only when something changed: a duplicate must neither abort a WATCH
     * nor invalidate a client's cache. */
    RedisModule_SetModuleOptions(ctx, REDISMODULE_OPTIONS_HANDLE_IO_ERRORS |
                                          REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED |
                                          REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD);
    registry_start(ctx);
    config_warn_of_eviction(ctx);
    return REDISMODULE_OK;
}
