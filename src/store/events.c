#include "store/events.h"

#include <pthread.h>
#include <string.h>

#include "store/contents.h"
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
    if (what == REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START) garbage_purge_child(ctx);
    saving = what != REDISMODULE_SUBEVENT_PERSISTENCE_ENDED &&
             what != REDISMODULE_SUBEVENT_PERSISTENCE_FAILED;
}

static void OnLoading(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what, void *data) {
    (void)ctx;
    (void)event;
    (void)data;
    if (what <= REDISMODULE_SUBEVENT_LOADING_REPL_START) {
        statistics_loading_starts();
    } else {
        statistics_loading_ends();
    }
}

/* ---- databases ---- */

static void OnWholeDatabase(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what,
                            void *data) {
    (void)ctx;
    (void)what;
    (void)data;
    namecache_forget();
    if (event.id == REDISMODULE_EVENT_SWAPDB) garbage_databases_swapped();
}

/* ---- atomic slot migration ----
 * A forked child sends all keys of the slots, and later changes follow as commands. Filters that
 * were deleted before the fork are not among the keys, but their shards may be. The list of those
 * shards is not sent, so the child must not send the shards either. Filters that are deleted later
 * are deleted on the other node by the same command. */

static RedisModuleCtx *detached;

/* Redis fires this event in that child. */
static void OnSlotMigration(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what,
                            void *data) {
    (void)event;
    (void)data;
    if (what == REDISMODULE_SUBEVENT_SLOT_MIGRATION_SNAPSHOT) garbage_purge_child(ctx);
}

/* Valkey fires it only in the parent, at the start and at the end. Between the two, no child needs
 * the shards of deleted filters. */
static unsigned nexports;

static void in_child(void) {
    if (nexports > 0) garbage_purge_child(detached);
}

static void OnAtomicSlotMigration(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what,
                                  void *data) {
    (void)ctx;
    (void)event;
    (void)data;
    static bool prepared;
    namecache_forget();
    if (what == VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_EXPORT_STARTED) {
        /* Registered now, so that it runs after other files' handlers have released their locks. */
        if (!prepared) pthread_atfork(NULL, NULL, in_child);
        prepared = true;
        nexports++;
    } else if ((what == VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_EXPORT_ABORTED ||
                what == VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_EXPORT_COMPLETED) &&
               nexports > 0) {
        nexports--;
    }
}

/* Older servers don't have these events, which is not an error. */
static void subscribe_to_slots(RedisModuleCtx *ctx) {
    detached = RedisModule_GetDetachedThreadSafeContext(ctx);
    const RedisModuleEvent migration = {REDISMODULE_EVENT_SLOT_MIGRATION, 1},
                           trimmed = {REDISMODULE_EVENT_SLOTS_TRIMMED, 1},
                           valkeys = {VALKEYMODULE_EVENT_ATOMIC_SLOT_MIGRATION, 1};
    if (RedisModule_ClusterPropagateForSlotMigration) { /* this is Redis */
        RedisModule_SubscribeToServerEvent(ctx, migration, OnSlotMigration);
        /* Fired before slots are removed from the keyspace without events for their keys. */
        RedisModule_SubscribeToServerEvent(ctx, trimmed, OnWholeDatabase);
    } else {
        RedisModule_SubscribeToServerEvent(ctx, valkeys, OnAtomicSlotMigration);
    }
}

/* ---- keys ---- */

static int copied_from = -1; /* until the next copy_to */

void events_copied_from(int db) {
    copied_from = db;
}

/* The database of the event. Don't ask the context: within MULTI, Valkey 9.1 returns the database
 * of the transaction. Opening a key for writing succeeds even if it is empty. */
static int database_of(RedisModuleCtx *ctx, RedisModuleString *name) {
    RedisModuleKey *key = RedisModule_OpenKey(
        ctx, name, REDISMODULE_READ | REDISMODULE_WRITE | REDISMODULE_OPEN_KEY_NOTOUCH);
    const int db = RedisModule_GetDbIdFromModuleKey(key);
    RedisModule_CloseKey(key);
    return db;
}

/* The filter was only moved or renamed, so it is not leaving. */
static void stay(struct filter *filter) {
    filter->leaving = false;
    filter->packed_at = 0;
}

/* Valkey 8.1.1 gives the context the client that runs the command, selects the event's database in
 * it, and does not switch back. After MOVE of any key, and after COPY to another database, that
 * client would continue in the wrong one, even a primary's link or the replay of an AOF. So its own
 * database is selected here. If the context has its own client, that has no effect. (For a COPY of
 * other types the database is not known.) */
static int OnGeneric(RedisModuleCtx *ctx, int type, const char *event, RedisModuleString *name) {
    (void)type;
    static int moved_from; /* move_to always follows its move_from */
    if (strcmp(event, "move_from") == 0) {
        moved_from = database_of(ctx, name);
    } else if (strcmp(event, "move_to") == 0) {
        struct filter *filter = filter_named(ctx, name);
        if (filter) contents_move(ctx, filter->descriptor, moved_from, database_of(ctx, name));
        if (filter) stay(filter);
        RedisModule_SelectDb(ctx, moved_from);
    } else if (strcmp(event, "rename_to") == 0) {
        struct filter *filter = filter_named(ctx, name);
        if (filter) stay(filter);
    } else if (strcmp(event, "copy_to") == 0) {
        identity_tell(name);
        if (copied_from >= 0) RedisModule_SelectDb(ctx, copied_from);
        copied_from = -1;
    } else if (strcmp(event, "restore") == 0) {
        identity_tell(name);
    } else if (strcmp(event, "expire") == 0) {
        if (namecache_find(ctx, name)) namecache_forget();
    }
    return REDISMODULE_OK;
}

bool events_start(RedisModuleCtx *ctx) {
    const struct {
        uint64_t id;
        RedisModuleEventCallback callback; /* one per event: a second would replace it */
    } events[] = {
        {REDISMODULE_EVENT_PERSISTENCE, OnPersistence},
        {REDISMODULE_EVENT_LOADING, OnLoading},
        {REDISMODULE_EVENT_FLUSHDB, OnWholeDatabase},
        {REDISMODULE_EVENT_SWAPDB, OnWholeDatabase},
        {REDISMODULE_EVENT_REPL_ASYNC_LOAD, OnWholeDatabase},
    };
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        const RedisModuleEvent event = {events[i].id, 1};
        if (RedisModule_SubscribeToServerEvent(ctx, event, events[i].callback) != REDISMODULE_OK)
            return false;
    }
    subscribe_to_slots(ctx);
    return RedisModule_SubscribeToKeyspaceEvents(ctx, REDISMODULE_NOTIFY_GENERIC, OnGeneric) ==
           REDISMODULE_OK;
}
