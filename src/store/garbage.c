/* However a filter went (DEL, expiry, eviction, SET, RENAME onto it, FLUSHALL, a failed load, a
 * full resync), the server calls the type's free callback, which can't tell these apart and need
 * not. When the last value with an id is gone, its strings are put on a list.
 *
 * The sweeper is a job that UNLINKs them, on a primary that is not loading; that replicates and
 * reaches the AOF like any other command. Ids are random and never used again (law I4), so it may
 * come late, and twice. The server frees a string in place, which takes milliseconds for a large
 * one; so the sweeper works by the clock, a few names at a time, and remembers where it was. It
 * also counts: replicas execute all that one run removes as one transaction. All strings of a
 * filter are in the database in which it died. If that is not known, or nothing is found there, all
 * databases that are not empty are searched until the first string is found.
 *
 * A replica keeps its own list, forgets what the primary has removed, and starts to sweep when it
 * is promoted. If the primary never removes some strings, it may not know of them: the shards of a
 * RESTORE that came to nothing, on a server that was then made a replica. The replica removes these
 * by itself, after a while, without replicating it.
 *
 * Rejected: cascading deletes from keyspace notifications. They do not see FLUSHALL or a resync,
 * and writing from inside a notification is unsafe on some servers. */
#include "store/garbage.h"

#include <limits.h>
#include <pthread.h>

#include "core/encoding.h"
#include "store/clock.h"
#include "core/names.h"
#include "store/cluster.h"
#include "store/jobs.h"
#include "store/living.h"
#include "store/statistics.h"
#include "store/value.h"

#define RUN_US         100        /* a run of the job, unless one large string takes longer */
#define NAMES_PER_RUN  40         /* small strings: 0.1 ms here, less on a replica */
#define BYTES_PER_CALL (1u << 20) /* of strings, to be freed in one call */
#define TICKS_PER_PART 10         /* a string that has waited n times this long gets n times that */
#define PATIENCE_TICKS 50 /* how long a replica waits for the primary to remove what is dead */

/* A list of strings to remove: those that are marked as created in a descriptor. */
struct garbage {
    struct descriptor *strings;
    struct string_cursor removed; /* all before it are removed, and not marked any more */
    struct string_cursor absent;  /* a server that may only look: all before it were not there */
    uint64_t since_tick;          /* when it came */
    uint64_t looked_tick;         /* when it was last found that it has to wait; 0: never */
    int db;                       /* where the strings are, or DATABASE_UNKNOWN */
    bool db_found;                /* one of them was found there */
    bool dropped;                 /* by a filter that may live: layers that it has no more */
    uint64_t nswaps;              /* the number of SWAPDBs for which that holds */
    struct garbage *older, *newer;
    struct garbage *next; /* in the same bucket */
};

/* Guards the list and the table: the free callback may run on a background thread. What an element
 * says about its strings belongs to the main thread, which is also the only one to take elements
 * out. Held while the living are asked. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct garbage *oldest, *newest;
static uint64_t npending;

static _Atomic uint64_t nswaps;     /* of databases, SWAPDB */
static uint64_t nremoved, nlookups; /* main thread only */

static void acquire(void) {
    pthread_mutex_lock(&lock);
}

static void release(void) {
    pthread_mutex_unlock(&lock);
}

/* ---- the table, by id ----
 * In parts, each of which grows by itself: no single death takes long. Ids are random. */

#define NPARTS 256u
static struct part {
    struct garbage **buckets;
    size_t nbuckets; /* a power of two, or 0 */
    size_t nused;
} parts[NPARTS];

static struct garbage **bucket_of(const struct part *part, uint64_t id) {
    return &part->buckets[(id >> 8) & (part->nbuckets - 1)];
}

static void grow(struct part *part) {
    const struct part old = *part;
    part->nbuckets = old.nbuckets ? old.nbuckets * 2 : 4;
    part->buckets = RedisModule_Calloc(part->nbuckets, sizeof *part->buckets);
    for (size_t i = 0; i < old.nbuckets; i++) {
        for (struct garbage *garbage = old.buckets[i], *next; garbage; garbage = next) {
            next = garbage->next;
            struct garbage **bucket = bucket_of(part, garbage->strings->id);
            garbage->next = *bucket;
            *bucket = garbage;
        }
    }
    RedisModule_Free(old.buckets);
}

static struct garbage *find(uint64_t id) {
    const struct part *part = &parts[id % NPARTS];
    struct garbage *garbage = part->nbuckets ? *bucket_of(part, id) : NULL;
    while (garbage && garbage->strings->id != id) garbage = garbage->next;
    return garbage;
}

/* The next one with the same id. */
static struct garbage *find_next(const struct garbage *garbage) {
    struct garbage *next = garbage->next;
    while (next && next->strings->id != garbage->strings->id) next = next->next;
    return next;
}

static void table_add(struct garbage *garbage) {
    const uint64_t id = garbage->strings->id;
    struct part *part = &parts[id % NPARTS];
    if (part->nused >= part->nbuckets) grow(part);
    struct garbage **bucket = bucket_of(part, id);
    garbage->next = *bucket;
    *bucket = garbage;
    part->nused++;
}

static void table_remove(const struct garbage *garbage) {
    struct part *part = &parts[garbage->strings->id % NPARTS];
    struct garbage **at = bucket_of(part, garbage->strings->id);
    while (*at != garbage) at = &(*at)->next;
    *at = garbage->next;
    if (--part->nused == 0) {
        RedisModule_Free(part->buckets);
        *part = (struct part){0};
    }
}

/* ---- the list, by age ---- */

static void append(struct garbage *garbage) {
    garbage->older = newest;
    garbage->newer = NULL;
    *(newest ? &newest->newer : &oldest) = garbage;
    newest = garbage;
}

static void unchain(const struct garbage *garbage) {
    *(garbage->older ? &garbage->older->newer : &oldest) = garbage->newer;
    *(garbage->newer ? &garbage->newer->older : &newest) = garbage->older;
}

static void add(struct descriptor *strings, int db, bool dropped) {
    struct garbage *garbage = RedisModule_Calloc(1, sizeof *garbage);
    garbage->strings = strings;
    garbage->db = db;
    garbage->dropped = dropped;
    garbage->nswaps = nswaps;
    garbage->since_tick = clock_tick();
    /* It may be saved half removed, and items without shards would be refused. */
    for (uint32_t i = 0; i < strings->nlayers; i++)
        strings->layers[i].nitems = strings->layers[i].nstored = 0;
    append(garbage);
    table_add(garbage);
    npending++;
}

static void drop(struct garbage *garbage) {
    unchain(garbage);
    table_remove(garbage);
    npending--;
    descriptor_free(garbage->strings);
    RedisModule_Free(garbage);
}

/* ---- births and deaths ---- */

/* Can these strings be the new value's own? Not if a value with its id, of which it is a later
 * state, has dropped them: their numbers never return. (An earlier state can come back in a
 * cluster, by RESTORE.) */
static bool may_belong(const struct garbage *garbage, const struct descriptor *descriptor) {
    const struct descriptor *strings = garbage->strings;
    return !garbage->dropped ||
           descriptor_number(strings, strings->nlayers) > descriptor_number(descriptor, 0);
}

void garbage_born(const struct descriptor *descriptor) {
    statistics_join(descriptor);
    acquire();
    living_add(descriptor->id);
    for (struct garbage *garbage = find(descriptor->id), *next; garbage; garbage = next) {
        next = find_next(garbage);
        if (may_belong(garbage, descriptor)) drop(garbage);
    }
    release();
}

void garbage_dropped(struct descriptor *layers, int db) {
    acquire();
    add(layers, db, true);
    release();
}

/* The last value to be freed need not be the last that was in use: a server may take all keys of a
 * slot away at once, free them much later, and have got the filter back in between. So a value that
 * was taken out of its database by itself is garbage in any case, and waits until no other value
 * has its id. */
void garbage_died(struct descriptor *descriptor, int db) {
    statistics_leave(descriptor);
    descriptor_disown(descriptor);
    acquire();
    const bool last = living_remove(descriptor->id);
    if ((last || db != DATABASE_UNKNOWN) && descriptor_nshards(descriptor) > 0) {
        add(descriptor, db, false);
        descriptor = NULL;
    }
    release();
    descriptor_free(descriptor);
}

void garbage_left(struct descriptor *descriptor) {
    statistics_leave(descriptor);
    living_remove(descriptor->id);
    descriptor_free(descriptor);
}

bool garbage_has(uint64_t id) {
    acquire();
    const bool has = find(id) != NULL;
    release();
    return has;
}

struct garbage_counts garbage_count(void) {
    acquire();
    const struct garbage_counts counts = {npending, nremoved, nlookups};
    release();
    return counts;
}

/* ---- databases ---- */

void garbage_databases_swapped(void) {
    nswaps++;
}

/* The database in which to look, or DATABASE_UNKNOWN. */
static int likely_database(struct garbage *garbage) {
    if (garbage->nswaps != nswaps) {
        garbage->db = DATABASE_UNKNOWN;
        garbage->db_found = false;
        garbage->nswaps = nswaps;
    }
    return garbage->db;
}

static bool exists(RedisModuleCtx *ctx, RedisModuleString *name, int db) {
    if (RedisModule_SelectDb(ctx, db) != REDISMODULE_OK) return false;
    nlookups++;
    RedisModuleKey *key =
        RedisModule_OpenKey(ctx, name, REDISMODULE_READ | REDISMODULE_OPEN_KEY_NOTOUCH);
    RedisModule_CloseKey(key);
    return key != NULL;
}

/* Searches all databases for a string. True if one has it: then all strings of the filter are
 * there. */
static bool find_database(RedisModuleCtx *ctx, struct garbage *garbage, RedisModuleString *name) {
    for (int db = 0; RedisModule_SelectDb(ctx, db) == REDISMODULE_OK; db++) {
        if (RedisModule_DbSize(ctx) == 0 || !exists(ctx, name, db)) continue;
        garbage->db = db;
        garbage->db_found = true;
        return true;
    }
    return false;
}

/* Is the string there? If so, garbage->db tells where. */
static bool is_there(RedisModuleCtx *ctx, struct garbage *garbage, RedisModuleString *name) {
    const int db = likely_database(garbage);
    if (garbage->db_found) return exists(ctx, name, db);
    if (db != DATABASE_UNKNOWN && exists(ctx, name, db)) return garbage->db_found = true;
    return find_database(ctx, garbage, name);
}

/* ---- removing ---- */

/* UNLINKs strings in the database where they should be. Returns how many there were, or -1 if the
 * server refused, as it does while its cluster is down. */
static long long unlink_names(RedisModuleCtx *ctx, int db, RedisModuleString **names, size_t n,
                              bool replicate) {
    if (RedisModule_SelectDb(ctx, db) != REDISMODULE_OK) return 0;
    nlookups += n;
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "UNLINK", replicate ? "!v" : "v", names, n);
    const bool done = reply && RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_INTEGER;
    const long long nfound = done ? RedisModule_CallReplyInteger(reply) : -1;
    if (reply) RedisModule_FreeCallReply(reply);
    if (done) nremoved += (uint64_t)nfound;
    return nfound;
}

/* Removes strings wherever they are; false if the server refused. */
static bool remove_names(RedisModuleCtx *ctx, struct garbage *garbage, RedisModuleString **names,
                         size_t n, bool replicate) {
    const int db = likely_database(garbage);
    if (db != DATABASE_UNKNOWN) {
        const long long nfound = unlink_names(ctx, db, names, n, replicate);
        if (nfound < 0) return false;
        if (nfound > 0) garbage->db_found = true;
        if (garbage->db_found) return true; /* who is not there is nowhere */
    }
    for (size_t i = 0; i < n; i++)
        if (find_database(ctx, garbage, names[i]))
            return unlink_names(ctx, garbage->db, names + i, n - i, replicate) >= 0;
    return true;
}

/* What one run of the job may still do. */
struct run {
    int64_t deadline_us;
    uint64_t nnames;
};

/* Runs are short for the sake of clients and replicas. If strings come faster than short runs
 * remove them, the oldest of them has waited for seconds; runs grow with its age, up to the job's
 * own deadline. (Garbage that had to wait for others is old for another reason.) Where memory is
 * short, only the deadline counts: the server would evict filter after filter for memory that comes
 * too late. */
static struct run begin_run(const struct garbage *first, int64_t deadline_us) {
    if (RedisModule_GetUsedMemoryRatio() > 0.9f) return (struct run){deadline_us, UINT64_MAX};
    const uint64_t age = (clock_tick() - first->since_tick) / TICKS_PER_PART;
    const uint64_t nparts = age > 1 && first->looked_tick == 0 ? age : 1;
    const int64_t end_us = clock_monotonic_us() + (int64_t)nparts * RUN_US;
    return (struct run){end_us < deadline_us ? end_us : deadline_us, nparts * NAMES_PER_RUN};
}

static bool is_over(const struct run *run) {
    return run->nnames == 0 || clock_monotonic_us() >= run->deadline_us;
}

enum outcome {
    DONE,        /* nothing is left */
    INTERRUPTED, /* the run is over */
    WAITS,       /* it must wait for others */
    REFUSED,     /* all must wait: the server does not let us */
};

static enum outcome remove_strings(RedisModuleCtx *ctx, struct garbage *garbage, bool replicate,
                                   struct run *run) {
    struct descriptor *strings = garbage->strings;
    for (;;) {
        RedisModuleString *names[NAMES_PER_RUN];
        struct string_cursor found[NAMES_PER_RUN], at = garbage->removed;
        /* One at a time as long as it may have to be searched for. */
        const uint64_t max = !garbage->db_found            ? 1
                             : run->nnames < NAMES_PER_RUN ? run->nnames
                                                           : NAMES_PER_RUN;
        size_t n = 0, nbytes = 0;
        while (n < max && nbytes < BYTES_PER_CALL && descriptor_next_string(strings, &at)) {
            nbytes += descriptor_string_bytes(strings, at.layer);
            names[n] = shard_name(strings, at.layer, at.shard);
            found[n++] = at;
        }
        if (n == 0) return DONE;
        const bool done = remove_names(ctx, garbage, names, n, replicate);
        for (size_t i = 0; i < n; i++) RedisModule_FreeString(NULL, names[i]);
        if (!done) return REFUSED;
        for (size_t i = 0; i < n; i++) descriptor_forget_string(strings, &found[i]);
        garbage->removed = at;
        run->nnames -= n;
        if (is_over(run)) return INTERRUPTED;
    }
}

/* For a server that may only look: nothing is left once all strings were found absent in turn. */
static enum outcome look(RedisModuleCtx *ctx, struct garbage *garbage, const struct run *run) {
    const struct descriptor *strings = garbage->strings;
    for (struct string_cursor at = garbage->absent; descriptor_next_string(strings, &at);) {
        if (is_over(run)) return INTERRUPTED;
        RedisModuleString *name = shard_name(strings, at.layer, at.shard);
        const bool there = is_there(ctx, garbage, name);
        RedisModule_FreeString(NULL, name);
        if (there) return WAITS;
        garbage->absent = at;
    }
    return DONE;
}

static bool claimed(const struct garbage *garbage) {
    return !garbage->dropped && living_has(garbage->strings->id);
}

static enum outcome sweep_one(RedisModuleCtx *ctx, struct garbage *garbage, bool primary,
                              struct run *run) {
    if (claimed(garbage)) return WAITS;
    if (!primary) {
        /* In a cluster the shards of a filter that left may still have to follow it. A replica
         * can't know. */
        const bool overdue = clock_tick() - garbage->since_tick >= PATIENCE_TICKS;
        return overdue && !cluster_enabled(ctx) ? remove_strings(ctx, garbage, false, run)
                                                : look(ctx, garbage, run);
    }
    switch (cluster_slot_state_to_sweep(ctx, names_filter_slot(garbage->strings))) {
    case SLOT_OWNED:
        return remove_strings(ctx, garbage, true, run);
    case SLOT_FOREIGN:
        return look(ctx, garbage, run);
    case SLOT_MOVING:
        break;
    }
    return WAITS;
}

/* The oldest, unless all have been looked at since the tick. */
static struct garbage *next_to_sweep(void) {
    acquire();
    struct garbage *garbage = oldest && oldest->looked_tick != clock_tick() ? oldest : NULL;
    release();
    return garbage;
}

/* The job. Those that wait are looked at once per tick at most, for one run. */
static bool sweep(RedisModuleCtx *ctx, int64_t deadline_us) {
    const int flags = RedisModule_GetContextFlags(ctx);
    /* While clients are paused (CLIENT PAUSE, failover) the data set must not change: a server that
     * then finds something to replicate aborts. */
    if (flags & (REDISMODULE_CTX_FLAGS_LOADING | REDISMODULE_CTX_FLAGS_ASYNC_LOADING) ||
        RedisModule_AvoidReplicaTraffic())
        return false;
    struct garbage *garbage = next_to_sweep();
    if (!garbage) return false;
    struct run run = begin_run(garbage, deadline_us);
    bool progress = false;
    for (; garbage; garbage = next_to_sweep()) {
        const enum outcome outcome =
            sweep_one(ctx, garbage, flags & REDISMODULE_CTX_FLAGS_MASTER, &run);
        if (outcome == INTERRUPTED) return true;
        if (outcome == REFUSED) return false;
        acquire();
        if (outcome == DONE) {
            drop(garbage);
            progress = true;
        } else {
            garbage->looked_tick = clock_tick();
            unchain(garbage);
            append(garbage);
        }
        release();
        if (is_over(&run)) return progress;
    }
    return false;
}

void garbage_start(void) {
    /* As for the living: the child finds the list whole. */
    pthread_atfork(acquire, release, release);
    jobs_add(sweep);
}

/* ---- removing without a word to others ---- */

static void purge(RedisModuleCtx *ctx, struct garbage *garbage) {
    for (struct string_cursor at = garbage->removed;
         descriptor_next_string(garbage->strings, &at);) {
        RedisModuleString *name = shard_name(garbage->strings, at.layer, at.shard);
        if (is_there(ctx, garbage, name)) {
            RedisModule_SelectDb(ctx, garbage->db);
            RedisModuleKey *key =
                RedisModule_OpenKey(ctx, name, REDISMODULE_READ | REDISMODULE_WRITE);
            RedisModule_DeleteKey(key);
            RedisModule_CloseKey(key);
        }
        RedisModule_FreeString(NULL, name);
    }
}

void garbage_purge_child(RedisModuleCtx *ctx) {
    for (struct garbage *garbage = oldest; garbage; garbage = garbage->newer) {
        /* In a slot that moves between nodes they are not dead: they may still have to travel. */
        const unsigned slot = names_filter_slot(garbage->strings);
        if (!claimed(garbage) && cluster_slot_state_to_sweep(ctx, slot) == SLOT_OWNED)
            purge(ctx, garbage);
    }
}

/* ---- RDB ---- */

void garbage_save(RedisModuleIO *rdb) {
    acquire();
    RedisModule_SaveUnsigned(rdb, npending);
    for (struct garbage *garbage = oldest; garbage; garbage = garbage->newer) {
        size_t nbytes;
        char *bytes = descriptor_bytes(garbage->strings, &nbytes);
        RedisModule_SaveUnsigned(rdb, garbage->dropped);
        RedisModule_SaveUnsigned(rdb, (uint64_t)(likely_database(garbage) - DATABASE_UNKNOWN));
        RedisModule_SaveStringBuffer(rdb, bytes, nbytes);
        RedisModule_Free(bytes);
    }
    release();
}

/* The list replaces what was known of these filters before. Some of them may seem to be alive:
 * while a replica loads its primary's data set, and until it has freed its own in the background,
 * that one counts too. Their strings wait, but they are on the list: a snapshot that is made
 * meanwhile must know of them. What a filter has dropped stays dropped; to hear of it twice does no
 * harm. */
static void add_loaded(struct descriptor *strings, int db, bool dropped) {
    acquire();
    for (struct garbage *old = find(strings->id), *next; !dropped && old; old = next) {
        next = find_next(old);
        if (!old->dropped) drop(old);
    }
    add(strings, db, dropped);
    release();
}

bool garbage_load(RedisModuleIO *rdb) {
    const uint64_t n = RedisModule_LoadUnsigned(rdb);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t dropped = RedisModule_LoadUnsigned(rdb), db = RedisModule_LoadUnsigned(rdb);
        size_t nbytes;
        char *bytes = RedisModule_LoadStringBuffer(rdb, &nbytes);
        if (!bytes) return false;
        const char *problem;
        struct descriptor *strings = descriptor_decode((uint8_t *)bytes, nbytes, &problem);
        RedisModule_Free(bytes);
        if (!strings) {
            RedisModule_LogIOError(
                rdb, "warning", "bf: a removed filter in the RDB file is unreadable: %s", problem);
            return false;
        }
        add_loaded(strings, db <= INT_MAX ? (int)db + DATABASE_UNKNOWN : DATABASE_UNKNOWN,
                   dropped != 0);
    }
    return !RedisModule_IsIOError(rdb);
}
