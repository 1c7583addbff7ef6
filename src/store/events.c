#include "store/events.h"

#include <string.h>

#include "store/contents.h"
#include "store/datatype.h"
#include "store/garbage.h"
#include "store/identity.h"
#include "store/namecache.h"
#include "store/statistics.h"

/* ---- snapshots and loading ---- */

static bool saving;

bool events_saving(void) {
    return saving;
}

static void OnPersistence(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what, void *data) {
    (void)event;
    (void)data;
    if (what == REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START) registry_purge_child(ctx);
    saving = what != REDISMODULE_SUBEVENT_PERSISTENCE_ENDED &&
             what != REDISMODULE_SUBEVENT_PERSISTENCE_FAILED;
}

/* What is loaded brings its own count of
 * restores, or has none. */
static void OnLoading(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what, void *data) {
    (void)ctx;
    (void)event;
    (void)data;
    if (what <= REDISMODULE_SUBEVENT_LOADING_REPL_START) {
        identity_set_nrestores(0);
        statistics_loading_starts();
    } else {
        statistics_loading_ends();
    }
}

/* ---- keys ---- */

static int OnGeneric(RedisModuleCtx *ctx, int type, const char *event, RedisModuleString *name) {
    (void)type;
    static int moved_from; /* the event before move_to is always its move_from */
    const int db = RedisModule_GetSelectedDb(ctx);
    if (strcmp(event, "move_from") == 0) moved_from = db;
    if (strcmp(event, "expire") == 0 && recent_find(ctx, name)) recent_forget();
    const bool moved = strcmp(event, "move_to") == 0;
    if (!moved && strcmp(event, "restore") != 0) return REDISMODULE_OK;
    RedisModuleKey *key =
        RedisModule_OpenKey(ctx, name, REDISMODULE_READ | REDISMODULE_OPEN_KEY_NOTOUCH);
    const struct filter *filter = key && RedisModule_ModuleTypeGetType(key) == FilterType
                                      ? RedisModule_ModuleTypeGetValue(key)
                                      : NULL;
    RedisModule_CloseKey(key);
    if (filter && moved) contents_move(ctx, filter->descriptor, moved_from, db);
    if (filter && !moved) identity_set_nrestores(identity_nrestores() + 1);
    return REDISMODULE_OK;
}

bool events_start(RedisModuleCtx *ctx) {
    const RedisModuleEvent persistence = {REDISMODULE_EVENT_PERSISTENCE, 1},
                           loading = {REDISMODULE_EVENT_LOADING, 1};
    return RedisModule_SubscribeToServerEvent(ctx, persistence, OnPersistence) == REDISMODULE_OK &&
           RedisModule_SubscribeToServerEvent(ctx, loading, OnLoading) == REDISMODULE_OK &&
           RedisModule_SubscribeToKeyspaceEvents(ctx, REDISMODULE_NOTIFY_GENERIC, OnGeneric) ==
               REDISMODULE_OK;
}
