/* What Redis requires of a data type. In a snapshot, a filter is only its descriptor, because its
 * shards are keys of the same snapshot. DUMP must produce a complete value, so it includes the
 * bits; RESTORE then creates a new filter with its own id (identity.h). In a cluster, slot
 * migration uses DUMP and the shards travel as keys, so there it includes only the descriptor. */
#include "store/datatype.h"

#include <string.h>

#include "core/encoding.h"
#include "core/names.h"
#include "store/admission.h"
#include "store/clock.h"
#include "store/cluster.h"
#include "store/contents.h"
#include "store/events.h"
#include "store/garbage.h"
#include "store/identity.h"
#include "store/namecache.h"
#include "store/retired.h"

#define ENCODING_VERSION 1

/* The first number of a saved value. */
enum saved_form {
    SAVED_DESCRIPTOR = 0, /* the shards are keys in the same snapshot or cluster slot */
    SAVED_WHOLE = 1,      /* the shards follow, in order; an empty one was lost */
};

/* A name may now mean another filter, so cached names are forgotten whenever a filter is born. That
 * holds even if the server removed the old value without notice. */
static void come_alive(const struct descriptor *descriptor) {
    namecache_forget();
    retired_free_some();
    garbage_born(descriptor);
}

void type_set(RedisModuleKey *key, struct filter *filter) {
    come_alive(filter->descriptor);
    RedisModule_ModuleTypeSetValue(key, FilterType, filter);
}

static void free_now(struct filter *filter) {
    const bool leaving = filter->leaving;
    const int db = filter->last_db ? filter->last_db - 1 : DATABASE_UNKNOWN;
    struct descriptor *descriptor = filter_unwrap(filter);
    if (leaving)
        garbage_left(descriptor);
    else
        garbage_died(descriptor, db);
}

/* May run on any thread. */
static void FilterFree(void *value) {
    namecache_forget();
    if (!retired_take(value)) free_now(value);
}

/* Contexts for opening keys in the type's callbacks, which get none from the server. Two, because
 * COPY works in two databases at once. */
static RedisModuleCtx *contexts[2];

static RedisModuleCtx *context_for(int db) {
    RedisModule_SelectDb(contexts[0], db);
    return contexts[0];
}

static RedisModuleCtx *second_context_for(int db) {
    RedisModule_SelectDb(contexts[1], db);
    return contexts[1];
}

/* ---- saving ---- */

static void save_descriptor(RedisModuleIO *rdb, const struct descriptor *descriptor) {
    size_t nbytes;
    char *bytes = descriptor_bytes(descriptor, &nbytes);
    RedisModule_SaveStringBuffer(rdb, bytes, nbytes);
    RedisModule_Free(bytes);
}

static void FilterRdbSave(RedisModuleIO *rdb, void *value) {
    struct filter *filter = value;
    RedisModuleCtx *ctx = context_for(RedisModule_GetDbIdFromIO(rdb));
    const int flags = RedisModule_GetContextFlags(ctx);
    const bool snapshot = events_saving() || flags & REDISMODULE_CTX_FLAGS_IS_CHILD;
    const bool whole = !snapshot && !(flags & REDISMODULE_CTX_FLAGS_CLUSTER);
    if (!snapshot && !whole && flags & REDISMODULE_CTX_FLAGS_MASTER)
        filter->packed_at = clock_tick();
    RedisModule_SaveUnsigned(rdb, whole ? SAVED_WHOLE : SAVED_DESCRIPTOR);
    save_descriptor(rdb, filter->descriptor);
    struct strings strings = strings_of(ctx, filter, REDISMODULE_READ);
    if (whole) contents_save(rdb, &strings);
}

static void FilterAofRewrite(RedisModuleIO *aof, RedisModuleString *key, void *value) {
    const struct filter *filter = value;
    size_t nbytes;
    char *bytes = descriptor_bytes(filter->descriptor, &nbytes);
    RedisModule_EmitAOF(aof, "BF.SETDESCRIPTOR", "sb", key, bytes, nbytes);
    RedisModule_Free(bytes);
}

/* ---- loading ---- */

/* A whole filter, from DUMP, becomes a new one: with the tag of the key it is restored to, and its
 * own id. */
static const char *renew(RedisModuleIO *rdb, struct descriptor *descriptor) {
    const char *tag = "";
    size_t length = 0, tag_length = 0;
    const RedisModuleString *key = RedisModule_GetKeyNameFromIO(rdb);
    const char *name = key ? RedisModule_StringPtrLen(key, &length) : "";
    if (!names_tag(name, length, &tag, &tag_length) && cluster_enabled(contexts[0]))
        return "in a cluster no shards can share the slot of this name";
    if (tag_length > DESCRIPTOR_MAX_TAG || !descriptor_set_tag(descriptor, tag, tag_length))
        return "the key's name is too long";
    descriptor->id = identity_for(RedisModule_GetDbIdFromIO(rdb), key);
    descriptor_own_adopted(descriptor);
    return NULL;
}

/* Both take over the descriptor. On failure they return NULL with the reason in *problem. A refused
 * filter was never alive: the keys that it names are not its own and must not be removed. */
static struct filter *load_bare(RedisModuleIO *rdb, struct descriptor *descriptor,
                                const char **problem) {
    *problem = admission_problem(context_for(RedisModule_GetDbIdFromIO(rdb)), rdb, descriptor);
    if (*problem) {
        descriptor_free(descriptor);
        return NULL;
    }
    come_alive(descriptor);
    return filter_wrap(descriptor);
}

static struct filter *load_whole(RedisModuleIO *rdb, struct descriptor *descriptor,
                                 const char **problem) {
    *problem = renew(rdb, descriptor);
    if (*problem) {
        descriptor_free(descriptor);
        return NULL;
    }
    struct filter *filter = filter_wrap(descriptor);
    come_alive(descriptor); /* from here on FilterFree cleans up, including shards */
    struct strings strings = strings_of(context_for(RedisModule_GetDbIdFromIO(rdb)), filter,
                                        REDISMODULE_READ | REDISMODULE_WRITE);
    *problem = contents_load(rdb, &strings);
    if (!*problem) return filter;
    FilterFree(filter);
    return NULL;
}

static void *FilterRdbLoad(RedisModuleIO *rdb, int version) {
    if (version > ENCODING_VERSION) {
        RedisModule_LogIOError(
            rdb, "warning", "bf: a filter was saved by a newer version of the module (encoding %d)",
            version);
        return NULL;
    }
    const uint64_t form = RedisModule_LoadUnsigned(rdb);
    size_t nbytes;
    char *bytes = RedisModule_LoadStringBuffer(rdb, &nbytes);
    if (!bytes) return NULL;
    const char *problem;
    struct filter *filter = NULL;
    struct descriptor *descriptor = descriptor_decode((uint8_t *)bytes, nbytes, &problem);
    RedisModule_Free(bytes);
    if (descriptor && form == SAVED_DESCRIPTOR) {
        filter = load_bare(rdb, descriptor, &problem);
    } else if (descriptor && form == SAVED_WHOLE) {
        filter = load_whole(rdb, descriptor, &problem);
    } else if (descriptor) {
        problem = "unknown form";
        descriptor_free(descriptor);
    }
    if (!filter) RedisModule_LogIOError(rdb, "warning", "bf: unreadable filter: %s", problem);
    return filter;
}

/* ---- leaving for another cluster node ---- */

/* MIGRATE serialises, sends and deletes a key in one command, which looks like DUMP and DEL to us.
 * At that point the shards still have to follow. They must not be swept here, neither if the
 * migration is cancelled nor by a replica that is promoted meanwhile and has seen only a DEL. So a
 * filter that is deleted in the same tick in which it was serialised counts as leaving; replicas
 * and the AOF are told in the same transaction. (If it is only renamed or moved, the notification
 * undoes that.) If somebody DUMPs and DELs a filter within a tenth of a second, in a cluster, its
 * shards are left to bforphans. Rejected: assuming this only while the slot is moving. Keys can be
 * MIGRATEd from a slot that is not marked as such, and their shards would be lost. */
static void FilterUnlink(RedisModuleKeyOptCtx *opt, const void *value) {
    struct filter *filter = (struct filter *)value;
    namecache_forget();
    filter->last_db = RedisModule_GetDbIdFromOptCtx(opt) + 1;
    if (filter->packed_at != clock_tick()) return;
    RedisModuleCtx *ctx = context_for(RedisModule_GetDbIdFromOptCtx(opt));
    const int flags = RedisModule_GetContextFlags(ctx);
    size_t length;
    const char *name = RedisModule_StringPtrLen(RedisModule_GetKeyNameFromOptCtx(opt), &length);
    filter->leaving = true;
    if (flags & REDISMODULE_CTX_FLAGS_MASTER && !(flags & REDISMODULE_CTX_FLAGS_LOADING))
        RedisModule_Replicate(ctx, "BF.LEAVES", "b", name, length);
}

/* ---- the rest ---- */

static size_t FilterMemUsage(RedisModuleKeyOptCtx *ctx, const void *value, size_t sample_size) {
    (void)ctx;
    (void)sample_size;
    return filter_memory(value);
}

/* Always cheap enough for the main thread, where the sweeper hears of it at once. */
static size_t FilterFreeEffort(RedisModuleKeyOptCtx *ctx, const void *value) {
    (void)ctx;
    (void)value;
    return 1;
}

/* The copy is a filter of its own, with clones of the shards. */
static void *FilterCopy(RedisModuleKeyOptCtx *opt, const void *value) {
    struct filter *from = (struct filter *)value;
    size_t length, tag_length;
    const RedisModuleString *key = RedisModule_GetToKeyNameFromOptCtx(opt);
    const char *tag, *name = RedisModule_StringPtrLen(key, &length);
    struct descriptor *descriptor = descriptor_copy(from->descriptor);
    names_tag(name, length, &tag, &tag_length);
    /* In a cluster both names share a slot, and the original's tag is known to be in it. */
    const bool same_tag = cluster_enabled(contexts[0]);
    if (!descriptor || (!same_tag && (tag_length > DESCRIPTOR_MAX_TAG ||
                                      !descriptor_set_tag(descriptor, tag, tag_length)))) {
        descriptor_free(descriptor);
        return NULL;
    }
    descriptor->id = identity_for(RedisModule_GetToDbIdFromOptCtx(opt), key);
    descriptor_own_adopted(descriptor);
    struct filter *to = filter_wrap(descriptor);
    come_alive(descriptor);

    const int from_db = RedisModule_GetDbIdFromOptCtx(opt);
    RedisModuleCtx *from_ctx = context_for(from_db);
    RedisModuleCtx *to_ctx = second_context_for(RedisModule_GetToDbIdFromOptCtx(opt));
    struct strings source = strings_of(from_ctx, from, REDISMODULE_READ);
    struct strings target = strings_of(to_ctx, to, REDISMODULE_READ | REDISMODULE_WRITE);
    contents_copy(&source, &target);
    events_copied_from(from_db);
    return to;
}

static void FilterDigest(RedisModuleDigest *digest, void *value) {
    RedisModuleCtx *ctx = context_for(RedisModule_GetDbIdFromDigest(digest));
    struct strings strings = strings_of(ctx, value, REDISMODULE_READ);
    contents_digest(digest, &strings);
}

/* ---- data that belongs to no key ---- */

static void FilterAuxSave(RedisModuleIO *rdb, int when) {
    (void)when;
    garbage_save(rdb);
}

/* If the server allows it, saves nothing when there is nothing to remember: such a file can be
 * loaded without the module. */
static void FilterAuxSaveIfAny(RedisModuleIO *rdb, int when) {
    if (garbage_count().npending > 0) FilterAuxSave(rdb, when);
}

static int FilterAuxLoad(RedisModuleIO *rdb, int version, int when) {
    (void)when;
    return version <= ENCODING_VERSION && garbage_load(rdb) ? REDISMODULE_OK : REDISMODULE_ERR;
}

bool type_register(RedisModuleCtx *ctx) {
    RedisModuleTypeMethods methods = {
        .version = REDISMODULE_TYPE_METHODS_7_0,
        .rdb_load = FilterRdbLoad,
        .rdb_save = FilterRdbSave,
        .aof_rewrite = FilterAofRewrite,
        .digest = FilterDigest,
        .free = FilterFree,
        .aux_load = FilterAuxLoad,
        .aux_save = FilterAuxSave,
        .aux_save_triggers = REDISMODULE_AUX_AFTER_RDB,
        .mem_usage2 = FilterMemUsage,
        .free_effort2 = FilterFreeEffort,
        .unlink2 = FilterUnlink,
        .copy2 = FilterCopy,
    };
    if (RedisModule_GetServerVersion() >= 0x00070200) {
        methods.version = REDISMODULE_TYPE_METHODS_7_2;
        methods.aux_save = NULL;
        methods.aux_save2 = FilterAuxSaveIfAny;
    }
    for (int i = 0; i < 2; i++) contexts[i] = RedisModule_GetDetachedThreadSafeContext(ctx);
    identity_start(ctx);
    retired_start(free_now);
    FilterType = RedisModule_CreateDataType(ctx, "bf-shards", ENCODING_VERSION, &methods);
    return FilterType != NULL;
}
