/* Every value alive in memory is counted by its id. That is all the knowledge needed to tell garbage: it does not
 * matter whether a filter went by DEL, expiry, eviction, SET, RENAME onto it, FLUSHALL, a failed load or a full
 * resync, since all of these end in the type's free callback, and none of them could be told apart there anyway.
 *
 * The sweeper runs on a timer, on a primary that is not loading, and UNLINKs the shards of the dead, which replicates
 * and reaches the AOF like any other command. Ids are random and never used again, so it may come late, and twice.
 * A replica keeps its own list, forgets what the primary has removed, and starts to sweep when it is promoted. What the
 * primary does not remove it may not know of: the shards of a RESTORE that came to nothing, on a server that was then
 * made a replica. Such a replica removes them by itself, after a while and without a word to others.
 *
 * Rejected: cascading deletes from keyspace notifications. They do not see FLUSHALL or a resync, and writing from
 * inside a notification is unsafe on some servers. */
#include "store/garbage.h"

#include <pthread.h>
#include <string.h>

#include "store/cluster.h"
#include "store/identity.h"
#include "store/strings.h"
#include "store/statistics.h"

#define PERIOD_MS      100
#define NAMES_PER_RUN  4096 /* bounds the time of one run of the timer */
#define NAMES_PER_CALL 128
#define PATIENCE       50 /* periods that a replica waits for the primary to remove what is dead */

struct entry {
    uint64_t id;
    uint64_t nlive;             /* values alive with this id */
    struct descriptor *garbage; /* once nlive is 0: what is left to remove */
    unsigned nwaits;            /* periods for which a replica has waited */
    struct entry *next;         /* in the same bucket */
};

/* Guards all below: the free callback may run on a background thread. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry **buckets;
static size_t nbuckets; /* a power of two */
static size_t nentries;
static size_t npending;
static uint64_t nremoved;

static void acquire(void) {
    pthread_mutex_lock(&lock);
}

static void release(void) {
    pthread_mutex_unlock(&lock);
}

/* ---- the table ---- */

static struct entry **find(uint64_t id) {
    struct entry **at = &buckets[id & (nbuckets - 1)];
    while (*at && (*at)->id != id) at = &(*at)->next;
    return at;
}

static void resize(size_t n) {
    struct entry **old = buckets;
    const size_t nold = nbuckets;
    buckets = RedisModule_Calloc(n, sizeof *buckets);
    nbuckets = n;
    for (size_t i = 0; i < nold; i++) {
        for (struct entry *entry = old[i]; entry;) {
            struct entry *next = entry->next;
            entry->next = buckets[entry->id & (n - 1)];
            buckets[entry->id & (n - 1)] = entry;
            entry = next;
        }
    }
    RedisModule_Free(old);
}

static struct entry *find_or_add(uint64_t id) {
    if (nentries >= nbuckets) resize(nbuckets ? nbuckets * 2 : 64);
    struct entry **at = find(id);
    if (!*at) {
        *at = RedisModule_Calloc(1, sizeof **at);
        (*at)->id = id;
        nentries++;
    }
    return *at;
}

static void set_garbage(struct entry *entry, struct descriptor *garbage) {
    npending += (garbage != NULL);
    npending -= (entry->garbage != NULL);
    descriptor_free(entry->garbage);
    entry->garbage = garbage;
}

static void remove_entry(struct entry **at) {
    struct entry *entry = *at;
    set_garbage(entry, NULL);
    *at = entry->next;
    RedisModule_Free(entry);
    nentries--;
}

void registry_born(const struct descriptor *descriptor) {
    statistics_join(descriptor);
    acquire();
    struct entry *entry = find_or_add(descriptor->id);
    entry->nlive++;
    set_garbage(entry, NULL);
    release();
}

void registry_died(struct descriptor *descriptor) {
    statistics_leave(descriptor);
    acquire();
    struct entry **at = find(descriptor->id), *entry = *at;
    descriptor_disown(descriptor);
    if (entry->nlive > 1 || descriptor_nshards(descriptor) == 0) {
        if (--entry->nlive == 0) remove_entry(at);
        descriptor_free(descriptor);
    } else {
        entry->nlive = 0;
        set_garbage(entry, descriptor);
    }
    release();
}

void registry_left(struct descriptor *descriptor) {
    statistics_leave(descriptor);
    acquire();
    struct entry **at = find(descriptor->id);
    if (--(*at)->nlive == 0) remove_entry(at);
    release();
    descriptor_free(descriptor);
}

enum filter_state registry_state(uint64_t id) {
    acquire();
    const struct entry *entry = *find(id);
    const enum filter_state state = !entry             ? FILTER_UNKNOWN
                                    : entry->nlive > 0 ? FILTER_LIVE
                                                       : FILTER_DEAD;
    release();
    return state;
}

static uint64_t tick = 1;

uint64_t registry_tick(void) {
    return tick;
}

struct registry_counts registry_count(void) {
    acquire();
    const struct registry_counts counts = {nentries - npending, npending, nremoved};
    release();
    return counts;
}

/* ---- the sweeper ---- */

/* Names of the first few shards of the dead filter that have not been dealt with. */
static size_t next_names(const struct descriptor *garbage, RedisModuleString **names, size_t max) {
    size_t n = 0;
    for (uint32_t i = 0; i < garbage->nlayers; i++) {
        const struct layer *layer = &garbage->layers[i];
        for (uint32_t j = 0; j < layer_nstrings(layer); j++) {
            if (!layer_shard_created(layer, j)) continue;
            if (n == max) return n;
            names[n++] = shard_name(garbage, i, j);
        }
    }
    return n;
}

/* The first n of them have been dealt with. */
static void forget_names(struct descriptor *garbage, size_t n) {
    for (uint32_t i = 0; i < garbage->nlayers; i++) {
        struct layer *layer = &garbage->layers[i];
        layer->nitems = 0; /* it may be saved like this, and without shards there can't be items */
        if (layer_is_joined(layer)) { /* gone with its home */
            if (!layer_shard_created(&garbage->layers[layer->home], 0)) layer_mark_lost(layer, 0);
            continue;
        }
        for (uint32_t j = 0; j < layer->layout.nshards && n > 0; j++) {
            if (!layer_shard_created(layer, j)) continue;
            layer_mark_lost(layer, j);
            n--;
        }
    }
}

/* False if the server refused, as it does while its cluster is down. */
static bool unlink_names(RedisModuleCtx *ctx, RedisModuleString **names, size_t n, bool primary) {
    for (int db = 0; RedisModule_SelectDb(ctx, db) == REDISMODULE_OK; db++) {
        RedisModuleCallReply *reply =
            RedisModule_Call(ctx, "UNLINK", primary ? "!v" : "v", names, n);
        const bool done = reply && RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_INTEGER;
        if (done) nremoved += (uint64_t)RedisModule_CallReplyInteger(reply);
        if (reply) RedisModule_FreeCallReply(reply);
        if (!done) return false;
    }
    return true;
}

static bool any_exists(RedisModuleCtx *ctx, const struct descriptor *garbage) {
    for (uint32_t i = 0; i < garbage->nlayers; i++) {
        for (uint32_t j = 0; j < layer_nstrings(&garbage->layers[i]); j++) {
            if (!layer_shard_created(&garbage->layers[i], j)) continue;
            RedisModuleString *name = shard_name(garbage, i, j);
            bool there = false;
            for (int db = 0; !there && RedisModule_SelectDb(ctx, db) == REDISMODULE_OK; db++) {
                RedisModuleKey *key =
                    RedisModule_OpenKey(ctx, name, REDISMODULE_READ | REDISMODULE_OPEN_KEY_NOTOUCH);
                there = key != NULL;
                RedisModule_CloseKey(key);
            }
            RedisModule_FreeString(NULL, name);
            if (there) return true;
        }
    }
    return false;
}

/* Removes shards of one dead filter, at most *budget; true when none is left. The lock is not held meanwhile. */
static bool sweep_one(RedisModuleCtx *ctx, struct descriptor *garbage, bool primary,
                      size_t *budget) {
    while (*budget > 0) {
        RedisModuleString *names[NAMES_PER_CALL];
        const size_t n = next_names(garbage, names, NAMES_PER_CALL);
        if (n == 0) return true;
        const bool done = unlink_names(ctx, names, n, primary);
        for (size_t i = 0; i < n; i++) RedisModule_FreeString(NULL, names[i]);
        if (!done) return false;
        forget_names(garbage, n);
        *budget -= n < *budget ? n : *budget;
    }
    return descriptor_nshards(garbage) == 0;
}

/* Takes any dead filter out of the table that the server may deal with now, from bucket *at on. */
static struct descriptor *take_garbage(size_t *at, bool primary, uint64_t *id, bool *overdue) {
    struct descriptor *garbage = NULL;
    acquire();
    for (; !garbage && *at < nbuckets; ++*at) {
        for (struct entry *entry = buckets[*at]; entry && !garbage; entry = entry->next) {
            if (!entry->garbage) continue;
            if (primary && cluster_slot_state_read(entry->garbage) == SLOT_MOVING) continue;
            garbage = entry->garbage;
            *id = entry->id;
            *overdue = !primary && entry->nwaits++ >= PATIENCE;
            entry->garbage = NULL; /* stays counted in npending until give_back or forget */
        }
    }
    release();
    return garbage;
}

/* Ends what take_garbage began: puts the rest back, or forgets the filter. It may have come back to life meanwhile:
 * then it is not ours any more. */
static void finish_garbage(struct descriptor *garbage, uint64_t id, bool done) {
    acquire();
    struct entry **at = find(id);
    if (*at && (*at)->nlive == 0) {
        (*at)->garbage = garbage;
        garbage = NULL;
        if (done) remove_entry(at);
    }
    release();
    descriptor_free(garbage);
}

static void sweep(RedisModuleCtx *ctx, bool primary) {
    size_t budget = NAMES_PER_RUN, at = 0;
    uint64_t id;
    bool overdue;
    if (primary) cluster_read_slots(ctx);
    for (struct descriptor *garbage;
         budget > 0 && (garbage = take_garbage(&at, primary, &id, &overdue));) {
        bool done;
        /* In a cluster the shards of what is gone may have still to travel, and a replica can't tell. */
        if (primary ? cluster_slot_state_read(garbage) == SLOT_OWNED
                    : overdue && !cluster_enabled(ctx))
            done = sweep_one(ctx, garbage, primary, &budget);
        else
            done = !any_exists(ctx, garbage);
        finish_garbage(garbage, id, done);
    }
}

/* Deletes them here and now, without replicating it. */
static void purge(RedisModuleCtx *ctx, struct descriptor *garbage) {
    RedisModuleString *name;
    while (next_names(garbage, &name, 1) == 1) {
        for (int db = 0; RedisModule_SelectDb(ctx, db) == REDISMODULE_OK; db++) {
            RedisModuleKey *key =
                RedisModule_OpenKey(ctx, name, REDISMODULE_READ | REDISMODULE_WRITE);
            if (key) RedisModule_DeleteKey(key);
            RedisModule_CloseKey(key);
        }
        RedisModule_FreeString(NULL, name);
        forget_names(garbage, 1);
    }
}

void registry_purge(RedisModuleCtx *ctx, uint64_t id) {
    acquire();
    const struct entry *entry = *find(id);
    struct descriptor *garbage = entry ? entry->garbage : NULL;
    release(); /* only this thread removes garbage */
    if (garbage) purge(ctx, garbage);
}

void registry_purge_child(RedisModuleCtx *ctx) {
    cluster_read_slots(ctx);
    for (size_t i = 0; i < nbuckets; i++) {
        for (struct entry *entry = buckets[i]; entry; entry = entry->next) {
            /* In a slot that moves between nodes they are not dead: they have still to travel. */
            if (entry->garbage && cluster_slot_state_read(entry->garbage) == SLOT_OWNED)
                purge(ctx, entry->garbage);
        }
    }
}

static void on_timer(RedisModuleCtx *ctx, void *data) {
    (void)data;
    tick++;
    const int flags = RedisModule_GetContextFlags(ctx);
    const bool loading =
        flags & (REDISMODULE_CTX_FLAGS_LOADING | REDISMODULE_CTX_FLAGS_ASYNC_LOADING);
    /* While clients are paused (CLIENT PAUSE, failover) the data set must stand still: a server that finds something
     * to replicate then ends itself. */
    if (!loading && !RedisModule_AvoidReplicaTraffic() && registry_count().npending > 0)
        sweep(ctx, flags & REDISMODULE_CTX_FLAGS_MASTER);
    RedisModule_CreateTimer(ctx, PERIOD_MS, on_timer, NULL);
}

void registry_start(RedisModuleCtx *ctx) {
    resize(64);
    /* A fork copies the lock in whatever state it is: hold it, so that the child finds the table whole. */
    pthread_atfork(acquire, release, release);
    RedisModule_CreateTimer(ctx, PERIOD_MS, on_timer, NULL);
}

/* ---- RDB ---- */

bool registry_has_something_to_save(void) {
    acquire();
    const bool something = identity_nrestores() > 0 || npending > 0;
    release();
    return something;
}

void registry_save(RedisModuleIO *rdb) {
    acquire();
    RedisModule_SaveUnsigned(rdb, identity_nrestores());
    RedisModule_SaveUnsigned(rdb, npending);
    for (size_t i = 0; i < nbuckets; i++) {
        for (const struct entry *entry = buckets[i]; entry; entry = entry->next) {
            if (!entry->garbage) continue;
            size_t nbytes;
            char *bytes = descriptor_bytes(entry->garbage, &nbytes);
            RedisModule_SaveStringBuffer(rdb, bytes, nbytes);
            RedisModule_Free(bytes);
        }
    }
    release();
}

bool registry_load(RedisModuleIO *rdb) {
    const uint64_t restores = RedisModule_LoadUnsigned(rdb), n = RedisModule_LoadUnsigned(rdb);
    for (uint64_t i = 0; i < n; i++) {
        size_t nbytes;
        char *bytes = RedisModule_LoadStringBuffer(rdb, &nbytes);
        if (!bytes) return false;
        const char *problem;
        struct descriptor *garbage = descriptor_decode((uint8_t *)bytes, nbytes, &problem);
        RedisModule_Free(bytes);
        if (!garbage) {
            RedisModule_LogIOError(
                rdb, "warning", "bf: a removed filter in the RDB file is unreadable: %s", problem);
            return false;
        }
        acquire();
        struct entry *entry = find_or_add(garbage->id);
        if (entry->nlive == 0) {
            set_garbage(entry, garbage);
            garbage = NULL;
        }
        release();
        descriptor_free(garbage);
    }
    if (RedisModule_IsIOError(rdb)) return false;
    identity_set_nrestores(restores);
    return true;
}
