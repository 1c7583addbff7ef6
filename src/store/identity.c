/* Ids are random and chosen once, by the primary. COPY and RESTORE are commands of the server,
 * which replicates them as they are, so the id that the primary chose travels ahead of them:
 * `BF.NEXTID key id`, in the same transaction. Replicas and the replay of an AOF use what they were
 * told. Nobody counts or derives anything, so there is no state that could be lost, run backwards
 * or differ between servers, and no id comes twice however the filters before were lost.
 *
 * An id that was told and never used does no harm: COPY and RESTORE that fail on a primary tell
 * nothing, and whatever succeeds is told anew. Several may wait at a time, since a node can import
 * slots from several others at once.
 *
 * Rejected: deriving ids from the source's id and a count of its copies, or from the payload and a
 * count of restores. Every count has a way to run backwards (an older descriptor restored, an
 * aborted resync, a rewritten AOF without filters, another node's count), and then a living
 * filter's id was taken again. Rejected: trying candidates until none is alive: when a value is
 * freed is not the same on all servers. */
#include "store/identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/value.h"

#define NWAITING 64u

static struct waiting {
    RedisModuleString *name; /* NULL: nothing waits here */
    int db;
    uint64_t id;
} waiting[NWAITING];
static unsigned next_place; /* of waiting: the oldest gives way */

/* The filter that identity_for was asked for last. */
static int last_db;
static uint64_t last_id;
static bool last_was_told;
static bool untold; /* its event, which follows in the same command, has not come yet */

static RedisModuleCtx *detached;

void identity_start(RedisModuleCtx *ctx) {
    detached = RedisModule_GetDetachedThreadSafeContext(ctx);
}

uint64_t identity_fresh(void) {
    uint64_t id;
    RedisModule_GetRandomBytes((unsigned char *)&id, sizeof id);
    return id;
}

static bool equal(const RedisModuleString *a, const RedisModuleString *b) {
    size_t a_length, b_length;
    const char *a_text = RedisModule_StringPtrLen(a, &a_length),
               *b_text = RedisModule_StringPtrLen(b, &b_length);
    return a_length == b_length && memcmp(a_text, b_text, a_length) == 0;
}

static struct waiting *find(int db, const RedisModuleString *name) {
    for (unsigned i = 0; name && i < NWAITING; i++)
        if (waiting[i].name && waiting[i].db == db && equal(waiting[i].name, name))
            return &waiting[i];
    return NULL;
}

static void forget(struct waiting *at) {
    if (at->name) RedisModule_FreeString(NULL, at->name);
    at->name = NULL;
}

uint64_t identity_for(int db, const RedisModuleString *name) {
    struct waiting *told = find(db, name);
    if (told) forget(told);
    untold = true;
    last_db = db;
    last_was_told = told != NULL;
    last_id = told ? told->id : identity_fresh();
    return last_id;
}

bool identity_parse(const char *digits, size_t length, uint64_t *id) {
    *id = 0;
    for (size_t i = 0; i < length; i++) {
        static const char all[] = "0123456789abcdef";
        const char *at = memchr(all, digits[i], sizeof all - 1);
        if (!at) return false;
        *id = *id << 4 | (uint64_t)(at - all);
    }
    return length == IDENTITY_DIGITS;
}

void identity_told(int db, const RedisModuleString *name, uint64_t id) {
    struct waiting *at = find(db, name);
    if (!at) at = &waiting[next_place++ % NWAITING];
    forget(at);
    size_t length;
    const char *text = RedisModule_StringPtrLen(name, &length);
    *at = (struct waiting){RedisModule_CreateString(NULL, text, length), db, id};
}

/* Is the filter that identity_for was asked for last what has this name now? */
static bool was_made(RedisModuleString *name) {
    const struct filter *filter = filter_named(detached, name);
    return filter && filter->descriptor->id == last_id;
}

/* In the database of the filter: the notification's own context may be in another one. Once: an
 * event of another key that has the same name, in another database, must not tell it again, for the
 * id would wait and come twice. */
void identity_tell(RedisModuleString *name) {
    if (!untold) return;
    untold = false;
    const int flags = RedisModule_GetContextFlags(detached);
    const bool primary = flags & REDISMODULE_CTX_FLAGS_MASTER;
    if ((last_was_told && !primary) || flags & REDISMODULE_CTX_FLAGS_LOADING) return;
    RedisModule_SelectDb(detached, last_db);
    if (!was_made(name)) return;
    char digits[IDENTITY_DIGITS + 1];
    snprintf(digits, sizeof digits, "%016" PRIx64, last_id);
    RedisModule_Replicate(detached, "BF.NEXTID", "sc", name, digits);
}
