/* Ids are random and chosen once, by the primary. The server replicates COPY and RESTORE as they
 * are, so the primary sends the id ahead of them: `BF.NEXTID key id`, in the same transaction.
 * Replicas and the replay of an AOF use that id. Nothing is counted or derived, so there is no
 * state that could be lost, go backwards or differ between servers. No id is used twice, however
 * earlier filters were lost.
 *
 * An id that was announced but not used does no harm: a COPY or RESTORE that fails on a primary
 * announces none, and each one that succeeds announces its own. Several ids may be waiting, since a
 * node can import slots from several others at once.
 *
 * Rejected: deriving ids from the source's id and a count of its copies, or from the payload and a
 * count of restores. Every count can go backwards (an older descriptor restored, an aborted resync,
 * a rewritten AOF without filters, another node's count), and then a living filter's id is reused.
 * Rejected: trying candidates until none is alive, because servers do not free values at the same
 * time. */
#include "store/identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/value.h"

#define NWAITING 64u

static struct waiting {
    RedisModuleString *name; /* NULL: the place is free */
    int db;
    uint64_t id;
} waiting[NWAITING];
static unsigned next_place; /* the oldest entry is replaced */

/* The last filter that identity_for was called for. */
static int last_db;
static uint64_t last_id;
static bool last_was_told;
static bool untold; /* its event, which follows in the same command, has not come yet */

static RedisModuleCtx *detached;

void identity_start(RedisModuleCtx *ctx) {
    detached = RedisModule_GetDetachedThreadSafeContext(ctx);
}

/* The server hashes twice for every draw, however few bytes are drawn, which was most of what
 * BF.RESERVE cost. Nobody but the main thread asks. */
uint64_t identity_fresh(void) {
    static uint64_t drawn[16];
    static size_t nleft;
    if (nleft == 0) {
        RedisModule_GetRandomBytes((unsigned char *)drawn, sizeof drawn);
        nleft = sizeof drawn / sizeof *drawn;
    }
    return drawn[--nleft];
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

/* Does this name now mean the filter that identity_for was last called for? */
static bool was_made(RedisModuleString *name) {
    const struct filter *filter = filter_named(detached, name);
    return filter && filter->descriptor->id == last_id;
}

/* Uses the filter's database, because the notification's context may be in another one. Announces
 * each id only once: an event for a key of the same name in another database must not repeat it,
 * because the id would stay waiting and be used twice. */
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
