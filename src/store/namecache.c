/* A name stops meaning a filter when its value is unlinked or freed, another value is created,
 * databases or slots are emptied or swapped, or its time to live ends. The first three are
 * callbacks of the type and the next are events, all before the next command can run. Filters with
 * a time to live are never remembered, and a notification says when one is set. The cache points to
 * our own memory, which the server does not move. (A shard belongs to the server and must be opened
 * each time.)
 *
 * A future server may remove values in another way, without a callback. Then an entry is out of
 * date for at most a tenth of a second, or until the name means another filter. But it never points
 * to freed memory: memory is freed only on the main thread (retired.h), after forgetting the names.
 * The filter's shards, which are keys too, are then gone as well, and a missing shard is an error,
 * not an answer.
 *
 * Everything is forgotten at every tick, so that the server sees that the filter is in use (OBJECT
 * IDLETIME). A server that evicts must see every use, so there nothing is cached at all. */
#include "store/namecache.h"

#include <stdatomic.h>
#include <string.h>

#include "store/jobs.h"

#define PLACES    64u /* a power of two */
#define MAX_BYTES 104 /* of a name: an entry takes two cache lines */

struct entry {
    uint64_t epoch; /* valid if it equals the current one */
    struct filter *filter;
    int db;
    uint32_t length;
    char name[MAX_BYTES];
};

static struct entry entries[PLACES];
/* Incrementing it forgets everything; a lazy free does so from another thread. */
static _Atomic uint64_t epoch = 1;

static struct entry *place_of(const char *name, size_t length) {
    return &entries[(length + 31u * (unsigned char)name[length / 2] +
                     7u * (unsigned char)name[length - 1]) %
                    PLACES];
}

struct filter *namecache_find(RedisModuleCtx *ctx, const RedisModuleString *name) {
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

void namecache_keep(RedisModuleCtx *ctx, const RedisModuleString *name, RedisModuleKey *key,
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

void namecache_forget(void) {
    atomic_fetch_add(&epoch, 1);
}

/* The job. */
static bool forget(RedisModuleCtx *ctx, int64_t deadline_us) {
    (void)ctx;
    (void)deadline_us;
    namecache_forget();
    return false;
}

void namecache_start(void) {
    jobs_add(forget);
}
