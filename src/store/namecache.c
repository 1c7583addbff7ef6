/* A name means another filter, or none, once the value that it stood for was unlinked or freed, databases were emptied or
 * exchanged, or its time to live ran out. The first two are callbacks of the type, the third are events, each of them
 * before the next command can run; filters with a time to live are never remembered, and a notification tells of one
 * that gets it. So nothing is remembered that is not true, and what is remembered is our own memory, which the server
 * does not move. (A shard is the server's: it must be opened each time.)
 *
 * All is forgotten every tenth of a second nevertheless: the server shall see that the filter is used (OBJECT IDLETIME).
 * A server that evicts must see it every time, so that there nothing is remembered at all. */
#include "store/namecache.h"

#include <stdatomic.h>
#include <string.h>

#define PLACES    64u /* a power of two */
#define PERIOD_MS 100
#define MAX_BYTES 104 /* of a name: an entry takes two cache lines */

struct entry {
    uint64_t epoch; /* valid if it is the present one */
    struct filter *filter;
    int db;
    uint32_t length;
    char name[MAX_BYTES];
};

static struct entry entries[PLACES];
static _Atomic uint64_t epoch =
    1; /* counted up to forget; a lazy free does so from another thread */

static struct entry *place_of(const char *name, size_t length) {
    return &entries[(length + 31u * (unsigned char)name[length / 2] +
                     7u * (unsigned char)name[length - 1]) %
                    PLACES];
}

struct filter *recent_find(RedisModuleCtx *ctx, const RedisModuleString *name) {
    size_t length;
    const char *text = RedisModule_StringPtrLen(name, &length);
    if (length == 0 || length > MAX_BYTES) return NULL;
    const struct entry *entry = place_of(text, length);
    return entry->epoch == atomic_load_explicit(&epoch, memory_order_acquire) &&
                   entry->length == length && memcmp(entry->name, text, length) == 0 &&
                   entry->db == RedisModule_GetSelectedDb(ctx)
               ? entry->filter
               : NULL;
}

void recent_keep(RedisModuleCtx *ctx, const RedisModuleString *name, RedisModuleKey *key,
                 struct filter *filter) {
    size_t length;
    const char *text = RedisModule_StringPtrLen(name, &length);
    if (length == 0 || length > MAX_BYTES || RedisModule_GetExpire(key) != REDISMODULE_NO_EXPIRE ||
        RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_EVICT)
        return;
    struct entry *entry = place_of(text, length);
    entry->epoch = epoch;
    entry->filter = filter;
    entry->db = RedisModule_GetSelectedDb(ctx);
    entry->length = (uint32_t)length;
    memcpy(entry->name, text, length);
}

void recent_forget(void) {
    atomic_fetch_add(&epoch, 1);
}

static void OnWholeDatabase(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what,
                            void *data) {
    (void)ctx;
    (void)event;
    (void)what;
    (void)data;
    recent_forget();
}

static void on_timer(RedisModuleCtx *ctx, void *data) {
    (void)data;
    recent_forget();
    RedisModule_CreateTimer(ctx, PERIOD_MS, on_timer, NULL);
}

bool recent_start(RedisModuleCtx *ctx) {
    const RedisModuleEvent events[] = {{REDISMODULE_EVENT_FLUSHDB, 1},
                                       {REDISMODULE_EVENT_SWAPDB, 1},
                                       {REDISMODULE_EVENT_REPL_ASYNC_LOAD, 1}};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (RedisModule_SubscribeToServerEvent(ctx, events[i], OnWholeDatabase) != REDISMODULE_OK)
            return false;
    RedisModule_CreateTimer(ctx, PERIOD_MS, on_timer, NULL);
    return true;
}
