/* Loading: resolve the API, read the configuration, register the type and the commands. */
#define REDISMODULE_MAIN
#include "redismodule.h"

#include "commands/create.h"
#include "commands/info.h"
#include "commands/table.h"
#include "commands/config.h"
#include "core/descriptor.h"
#include "store/events.h"
#include "store/namecache.h"
#include "store/garbage.h"
#include "store/jobs.h"
#include "store/leftovers.h"
#include "store/living.h"
#include "store/merge_job.h"
#include "store/spare.h"
#include "store/strings.h"
#include "store/datatype.h"

#define MODULE_NAME    "bf"
#define MODULE_VERSION 10000 /* 1.0.0; scripts/version reads it, make check-version compares */

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx *ctx,
                                                              RedisModuleString **argv, int argc);

/* Announces the module. False, after logging the reason, if it can't be loaded on this server. */
static bool announce(RedisModuleCtx *ctx) {
    const char *lacking = RedisModule_Resolve(ctx);
    if (lacking && RedisModule_Log)
        RedisModule_Log(ctx, "warning", "shardbloom can't be loaded: this server has no %s",
                        lacking);
    if (lacking) return false;
    if (RedisModule_IsModuleNameBusy(MODULE_NAME)) {
        RedisModule_Log(ctx, "warning",
                        "shardbloom can't be loaded: a module called " MODULE_NAME
                        " is loaded already. If MODULE LIST shows another file for it, that is "
                        "RedisBloom, which has the same commands: remove its loadmodule line, or "
                        "use a server that comes without it, and load shardbloom instead "
                        "(docs/migrating.md explains how to move its filters)");
        return false;
    }
    RedisModule_SetModuleAttribs(ctx, MODULE_NAME, MODULE_VERSION, REDISMODULE_APIVER_1);
    return true;
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (!announce(ctx)) return REDISMODULE_ERR;
    descriptor_allocator =
        (struct allocator){RedisModule_TryAlloc, RedisModule_Realloc, RedisModule_Alloc,
                           RedisModule_Calloc, RedisModule_Free};
    if (!config_load(ctx, argv, argc) || !type_register(ctx) || !commands_register(ctx) ||
        !info_start(ctx) || !events_start(ctx))
        return REDISMODULE_ERR;
    /* Commands signal their keys themselves, and only if something changed: adding a duplicate must
     * neither abort a WATCH nor invalidate a client's cache. */
    RedisModule_SetModuleOptions(ctx, REDISMODULE_OPTIONS_HANDLE_IO_ERRORS |
                                          REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED |
                                          REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD |
                                          REDISMODULE_OPTIONS_HANDLE_ATOMIC_MIGRATION);
    create_start();
    namecache_start();
    spare_start();
    living_start();
    garbage_start();
    leftovers_start(&key_supplier);
    merge_start();
    jobs_start(ctx);
    config_warn_of_eviction(ctx);
    return REDISMODULE_OK;
}
