/* A name means another filter, or none, once its value was unlinked or freed, another value was
 * made, databases or slots were emptied or swapped, or its time to live ran out. The first three
 * are callbacks of the type and the next are events, all before the next command can run. Filters
 * with a time to live are never remembered, and a notification says when one gets it. What is
 * remembered is our own memory, which the server does not move. (A shard is the server's: it must
 * be opened each time.)
 *
 * A future server may take values away in yet another way, without a callback. Then an entry is out
 * of date for a tenth of a second at most, or until the name means another filter, but it never
 * points to memory that was freed: that happens only on the main thread (retired.h), which forgets
 * first. The filter's shards, keys beside it, are gone too, and a missing shard is an error, not an
 * answer.
 *
 * Everything is forgotten at every tick anyway, so that the server sees that the filter is in use
 * (OBJECT IDLETIME). A server that evicts must see every use, so there nothing is remembered at
 * all. */
#include "store/namecache.h"

#include <stdatomic.h>
#include <string.h>

#include "store/jobs.h"

#define PLACES    64u /* a power of two */
#define MAX_BYTES 104 /* of a name: an entry takes two cache lines */

struct entry {
    uint64_t epoch; /* valid if it is the present one */
    struct filter *filter;
    int db;
    uint32_t length;
    char name[MAX_BYTES];
};

static struct entry entries[PLACES];
/* Counting it up forgets everything; a lazy free does so from another thread. */
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
