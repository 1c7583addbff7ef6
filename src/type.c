/* What Redis asks of a data type. In a snapshot a filter is its descriptor alone, since its shards are keys of the
 * same snapshot. Taken out by DUMP it must stand for itself, and carries the bits; RESTORE then makes a new filter,
 * with an id of its own. In a cluster DUMP is what slot migration uses, and the shards travel as keys: there it
 * carries the descriptor alone again. */
#include "type.h"

#include <string.h>

#include "cluster.h"
#include "recent.h"
#include "registry.h"
#include "statistics.h"

#define ENCODING_VERSION 1

/* The first number of a saved value. */
enum saved_form {
    SAVED_DESCRIPTOR = 0, /* the shards are keys in the same snapshot or cluster slot */
    SAVED_WHOLE = 1,      /* the shards follow, in order; an empty one was lost */
};

RedisModuleType *FilterType;

/* A snapshot is being written by this very process (SAVE, DEBUG RELOAD), not by a child. */
static bool saving;

static void OnPersistence(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what, void *data) {
    (void)event;
    (void)data;
    if (what == REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START) registry_purge_child(ctx);
    saving = what != REDISMODULE_SUBEVENT_PERSISTENCE_ENDED &&
             what != REDISMODULE_SUBEVENT_PERSISTENCE_FAILED;
}

/* The module's only handler for this event: a second one would take its place. What is loaded brings its own count of
 * restores, or has none. */
static void OnLoading(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what, void *data) {
    (void)ctx;
    (void)event;
    (void)data;
    if (what <= REDISMODULE_SUBEVENT_LOADING_REPL_START) {
        registry_set_nrestores(0);
        statistics_loading_starts();
    } else {
        statistics_loading_ends();
    }
}

void type_set(RedisModuleKey *key, struct filter *filter) {
    registry_born(filter->descriptor);
    RedisModule_ModuleTypeSetValue(key, FilterType, filter);
}

static void FilterFree(void *value) {
    recent_forget();
    const bool leaving = ((struct filter *)value)->leaving;
    (leaving ? registry_left : registry_died)(filter_unwrap(value));
}

/* Contexts to touch keys with where the server gives none: the type's callbacks. Two, because COPY works in two
 * databases at a time. */
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

static void save_shards(RedisModuleIO *rdb, struct shards *shards) {
    const struct descriptor *descriptor = shards->filter->descriptor;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        for (uint32_t j = 0; j < layer_nstrings(layer); j++) {
            if (!layer_shard_created(layer, j) && !layer->adoption) continue;
            const struct shard_slot *slot = shards_open(shards, i, j);
            /* Of an adopted string that is there but empty, one zero is saved, to tell it from a lost one. */
            if (slot && slot->nbytes > 0)
                RedisModule_SaveStringBuffer(rdb, (char *)slot->blocks, slot->nbytes);
            else
                RedisModule_SaveStringBuffer(rdb, "", slot ? 1 : 0);
            shards_close(shards);
        }
    }
}

static void FilterRdbSave(RedisModuleIO *rdb, void *value) {
    struct filter *filter = value;
    RedisModuleCtx *ctx = context_for(RedisModule_GetDbIdFromIO(rdb));
    const int flags = RedisModule_GetContextFlags(ctx);
    const bool snapshot = saving || flags & REDISMODULE_CTX_FLAGS_IS_CHILD;
    const bool whole = !snapshot && !(flags & REDISMODULE_CTX_FLAGS_CLUSTER);
    if (!snapshot && !whole) filter->packed_at = registry_tick();
    RedisModule_SaveUnsigned(rdb, whole ? SAVED_WHOLE : SAVED_DESCRIPTOR);
    save_descriptor(rdb, filter->descriptor);
    struct shards shards = {.ctx = ctx, .filter = filter, .mode = REDISMODULE_READ};
    if (whole) save_shards(rdb, &shards);
}

static void FilterAofRewrite(RedisModuleIO *aof, RedisModuleString *key, void *value) {
    const struct filter *filter = value;
    size_t nbytes;
    char *bytes = descriptor_bytes(filter->descriptor, &nbytes);
    RedisModule_EmitAOF(aof, "BF.DESCRIPTOR", "sbl", key, bytes, nbytes,
                        (long long)registry_nrestores());
    RedisModule_Free(bytes);
}

/* ---- loading ---- */

/* An empty string for a shard, or for nbytes of an adopted string that became the filter's own. What was there before,
 * of a RESTORE that failed, is replaced. */
static struct shard_slot *make_shard(struct shards *shards, uint32_t layer, uint32_t shard,
                                     size_t nbytes) {
    const struct descriptor *descriptor = shards->filter->descriptor;
    if (!descriptor->layers[layer].adoption) return shards_create(shards, layer, shard);
    RedisModuleString *name = shard_name(descriptor, layer, shard);
    RedisModuleKey *key = RedisModule_OpenKey(shards->ctx, name, shards->mode);
    if (RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_EMPTY) RedisModule_DeleteKey(key);
    RedisModule_CloseKey(key);
    RedisModule_FreeString(NULL, name);
    return shards_extend(shards, layer, shard, nbytes > 0 ? nbytes : 1);
}

/* Reads the shards that follow a descriptor, into keys of their own. */
static const char *load_shards(RedisModuleIO *rdb, struct shards *shards) {
    const struct descriptor *descriptor = shards->filter->descriptor;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        for (uint32_t j = 0; j < layer_nstrings(layer); j++) {
            if (!layer_shard_created(layer, j) && !layer->adoption) continue;
            size_t nbytes;
            char *bytes = RedisModule_LoadStringBuffer(rdb, &nbytes);
            if (!bytes) return "truncated";
            const size_t full = descriptor_string_bytes(descriptor, i);
            const bool fits = layer->adoption ? nbytes <= full : nbytes == full;
            if (fits && nbytes > 0) memcpy(make_shard(shards, i, j, nbytes)->blocks, bytes, nbytes);
            shards_close(shards);
            RedisModule_Free(bytes);
            if (!fits && nbytes != 0) return "a shard of the wrong length";
        }
    }
    return NULL;
}

/* A whole filter, from DUMP, becomes a new one: with the tag of the key it is restored to, and a new id. The id must be
 * one that no filter ever had, and the same on a replica which runs the same RESTORE: it is hashed from the dumped
 * descriptor, the tag and the number of filters restored before. (A RESTORE that fails does not count, for it does not
 * reach the replica. The next one of the same dump then gets the same id: what the first has left goes before.) */
static const char *renew(RedisModuleIO *rdb, struct descriptor *descriptor, const char *bytes,
                         size_t nbytes) {
    const char *tag = "";
    size_t length = 0, tag_length = 0;
    const RedisModuleString *key = RedisModule_GetKeyNameFromIO(rdb);
    const char *name = key ? RedisModule_StringPtrLen(key, &length) : "";
    if (!shard_tag(name, length, &tag, &tag_length) && cluster_enabled(contexts[0]))
        return "in a cluster no shards can share the slot of this name";
    if (tag_length > DESCRIPTOR_MAX_TAG || !descriptor_set_tag(descriptor, tag, tag_length))
        return "the key's name is too long";
    const uint64_t seed = layout_hash(tag, tag_length, registry_nrestores()).bits;
    descriptor->id = layout_hash(bytes, nbytes, seed).bits;
    registry_purge(contexts[0], descriptor->id);
    return NULL;
}

static const char *load_whole(RedisModuleIO *rdb, struct filter *filter) {
    struct shards shards = {.ctx = context_for(RedisModule_GetDbIdFromIO(rdb)),
                            .filter = filter,
                            .mode = REDISMODULE_READ | REDISMODULE_WRITE};
    return load_shards(rdb, &shards);
}

/* In a cluster the shards must lie in the slot of the key that names them. */
static bool slot_fits(RedisModuleIO *rdb, const struct descriptor *descriptor) {
    const RedisModuleString *key = RedisModule_GetKeyNameFromIO(rdb);
    if (!key || !cluster_enabled(RedisModule_GetContextFromIO(rdb))) return true;
    size_t length;
    const char *name = RedisModule_StringPtrLen(key, &length);
    return cluster_fits(descriptor, name, length);
}

/* A dump made in a cluster stands for the shards that are there, and a second filter with the same shards would ruin
 * both. It may take the place of the same filter, as when MIGRATE tries again. Snapshots are loaded beside older data
 * and replicas do as their primary did: not our business here. */
static bool lives_elsewhere(RedisModuleIO *rdb, const struct descriptor *descriptor) {
    RedisModuleCtx *ctx = context_for(RedisModule_GetDbIdFromIO(rdb));
    const int flags = RedisModule_GetContextFlags(ctx);
    const RedisModuleString *name = RedisModule_GetKeyNameFromIO(rdb);
    if (!(flags & REDISMODULE_CTX_FLAGS_CLUSTER) || !(flags & REDISMODULE_CTX_FLAGS_MASTER) ||
        flags & (REDISMODULE_CTX_FLAGS_LOADING | REDISMODULE_CTX_FLAGS_ASYNC_LOADING) || !name ||
        registry_state(descriptor->id) != FILTER_LIVE)
        return false;
    /* A copy: while RESTORE loads a value, the server has the name on its stack, where it can't be kept. */
    size_t length;
    const char *text = RedisModule_StringPtrLen(name, &length);
    RedisModuleString *copy = RedisModule_CreateString(NULL, text, length);
    RedisModuleKey *key = RedisModule_OpenKey(ctx, copy, REDISMODULE_READ);
    const struct filter *filter = key && RedisModule_ModuleTypeGetType(key) == FilterType
                                      ? RedisModule_ModuleTypeGetValue(key)
                                      : NULL;
    const bool same = filter && filter->descriptor->id == descriptor->id;
    RedisModule_CloseKey(key);
    RedisModule_FreeString(NULL, copy);
    return !same;
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
    struct descriptor *descriptor = descriptor_decode((uint8_t *)bytes, nbytes, &problem);
    if (descriptor && form == SAVED_WHOLE) problem = renew(rdb, descriptor, bytes, nbytes);
    RedisModule_Free(bytes);
    if (!descriptor || problem) {
        RedisModule_LogIOError(rdb, "warning", "bf: unreadable filter: %s", problem);
        descriptor_free(descriptor);
        return NULL;
    }
    if (form == SAVED_WHOLE) descriptor_own_adopted(descriptor);
    const bool second = form == SAVED_DESCRIPTOR && lives_elsewhere(rdb, descriptor);
    struct filter *filter = filter_wrap(descriptor);
    registry_born(descriptor); /* from here on FilterFree cleans up, shards included */
    if (form == SAVED_WHOLE) {
        problem = load_whole(rdb, filter);
    } else if (form != SAVED_DESCRIPTOR) {
        problem = "unknown form";
    } else if (!slot_fits(rdb, descriptor)) {
        problem = "its shards lie in another cluster slot than this key";
    } else if (second) {
        problem = "it lives, with the same shards, under another name; use COPY";
    }
    if (!problem) return filter;
    RedisModule_LogIOError(rdb, "warning", "bf: unreadable filter: %s", problem);
    FilterFree(filter);
    return NULL;
}

/* ---- leaving for another cluster node ---- */

/* MIGRATE packs a key, sends it and deletes it, all in one command, and looks to us like DUMP and DEL. Its shards have
 * still to travel then, and must not be swept here: neither when the migration is called off, nor by a replica that
 * is promoted meanwhile, which sees nothing but a DEL. So a filter that goes at the very moment it was packed is
 * leaving, and replicas and the AOF are told, in the same transaction. Somebody who DUMPs and DELs a filter within
 * a tenth of a second, in a cluster, leaves its shards to bforphans. */
static void FilterUnlink(RedisModuleKeyOptCtx *opt, const void *value) {
    struct filter *filter = (struct filter *)value;
    recent_forget();
    if (filter->packed_at != registry_tick()) return;
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

/* Always cheap enough for the main thread, where the sweeper learns of it at once. */
static size_t FilterFreeEffort(RedisModuleKeyOptCtx *ctx, const void *value) {
    (void)ctx;
    (void)value;
    return 1;
}

/* The copy is a filter of its own, with clones of the shards. Its id is derived from the original's, so that a replica
 * which runs the same COPY uses the same names. */
static void *FilterCopy(RedisModuleKeyOptCtx *opt, const void *value) {
    struct filter *from = (struct filter *)value;
    size_t nbytes, length, tag_length;
    char *bytes = descriptor_bytes(from->descriptor, &nbytes);
    const char *tag, *problem,
        *name = RedisModule_StringPtrLen(RedisModule_GetToKeyNameFromOptCtx(opt), &length);
    struct descriptor *descriptor = descriptor_decode((uint8_t *)bytes, nbytes, &problem);
    RedisModule_Free(bytes);
    shard_tag(name, length, &tag, &tag_length);
    /* In a cluster both names share a slot, and the original's tag is known to lie in it. */
    const bool same_tag = cluster_enabled(contexts[0]);
    if (!descriptor || (!same_tag && (tag_length > DESCRIPTOR_MAX_TAG ||
                                      !descriptor_set_tag(descriptor, tag, tag_length)))) {
        descriptor_free(descriptor);
        return NULL;
    }
    /* Inverted, so that it can't be an id that RESTORE derives of the same number. */
    descriptor->id = registry_mix(~from->descriptor->id, from->descriptor->ncopies++);
    descriptor->ncopies = 0;
    descriptor_own_adopted(descriptor);
    struct filter *to = filter_wrap(descriptor);
    registry_born(descriptor);

    RedisModuleCtx *from_ctx = context_for(RedisModule_GetDbIdFromOptCtx(opt));
    RedisModuleCtx *to_ctx = second_context_for(RedisModule_GetToDbIdFromOptCtx(opt));
    struct shards source = {.ctx = from_ctx, .filter = from, .mode = REDISMODULE_READ};
    struct shards target = {
        .ctx = to_ctx, .filter = to, .mode = REDISMODULE_READ | REDISMODULE_WRITE};
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        for (uint32_t j = 0; j < layer_nstrings(layer); j++) {
            const struct shard_slot *slot = shards_open(&source, i, j);
            /* A lost shard stays lost in the copy. */
            if (slot)
                memcpy(make_shard(&target, i, j, slot->nbytes)->blocks, slot->blocks, slot->nbytes);
            shards_close(&source);
            shards_close(&target);
        }
    }
    return to;
}

/* Equal filters have equal digests, whatever their names and ids. */
static void FilterDigest(RedisModuleDigest *digest, void *value) {
    struct filter *filter = value;
    const struct descriptor *descriptor = filter->descriptor;
    RedisModuleCtx *ctx = context_for(RedisModule_GetDbIdFromDigest(digest));
    struct shards shards = {.ctx = ctx, .filter = filter, .mode = REDISMODULE_READ};
    RedisModule_DigestAddLongLong(digest, (long long)descriptor->seed);
    RedisModule_DigestAddStringBuffer(digest, (const char *)&descriptor->error,
                                      sizeof descriptor->error);
    RedisModule_DigestAddLongLong(digest, descriptor->expansion);
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        RedisModule_DigestAddLongLong(digest, layer->layout.block_log2);
        RedisModule_DigestAddLongLong(digest, layer->layout.nprobes);
        RedisModule_DigestAddLongLong(digest, layer->layout.nblocks);
        RedisModule_DigestAddLongLong(digest, (long long)layer->capacity);
        RedisModule_DigestAddLongLong(digest, (long long)layer->nitems);
        for (uint32_t j = 0; j < layer_nstrings(layer); j++) {
            const struct shard_slot *slot = shards_open(&shards, i, j);
            RedisModule_DigestAddLongLong(digest, slot ? SHARD_READY : shards.status);
            if (slot) RedisModule_DigestAddStringBuffer(digest, (char *)slot->blocks, slot->nbytes);
            shards_close(&shards);
        }
    }
    RedisModule_DigestEndSequence(digest);
}

/* ---- keyspace events ---- */

/* MOVE takes the shards along, but not adopted strings, which others use where they are. They are moved here and now,
 * on every server that runs the MOVE, replicas and replay of the AOF included, so that there is no moment at which they
 * are apart. (Writing in a notification is safe where the command is done with the keyspace when it notifies, which is
 * so for MOVE.) */
static void move_shards(RedisModuleCtx *ctx, const struct descriptor *descriptor, int from,
                        int to) {
    RedisModule_SelectDb(ctx, from);
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        for (uint32_t j = 0; j < layer_nstrings(&descriptor->layers[i]); j++) {
            if (!layer_owns_shards(&descriptor->layers[i]) ||
                !layer_shard_created(&descriptor->layers[i], j))
                continue;
            RedisModuleString *name = shard_name(descriptor, i, j);
            RedisModuleCallReply *reply = RedisModule_Call(ctx, "MOVE", "sl", name, (long long)to);
            if (reply) RedisModule_FreeCallReply(reply);
            RedisModule_FreeString(NULL, name);
        }
    }
}

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
    if (filter && moved) move_shards(ctx, filter->descriptor, moved_from, db);
    if (filter && !moved) registry_set_nrestores(registry_nrestores() + 1);
    return REDISMODULE_OK;
}

static void FilterAuxSave(RedisModuleIO *rdb, int when) {
    (void)when;
    registry_save(rdb);
}

/* Where the server allows it, a file without anything to remember can be loaded without the module. */
static void FilterAuxSaveIfAny(RedisModuleIO *rdb, int when) {
    (void)when;
    if (registry_has_something_to_save()) registry_save(rdb);
}

static int FilterAuxLoad(RedisModuleIO *rdb, int version, int when) {
    (void)when;
    return version <= ENCODING_VERSION && registry_load(rdb) ? REDISMODULE_OK : REDISMODULE_ERR;
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
    FilterType = RedisModule_CreateDataType(ctx, "bf-shards", ENCODING_VERSION, &methods);
    const RedisModuleEvent persistence = {REDISMODULE_EVENT_PERSISTENCE, 1},
                           loading = {REDISMODULE_EVENT_LOADING, 1};
    return FilterType &&
           RedisModule_SubscribeToServerEvent(ctx, persistence, OnPersistence) == REDISMODULE_OK &&
           RedisModule_SubscribeToServerEvent(ctx, loading, OnLoading) == REDISMODULE_OK &&
           RedisModule_SubscribeToKeyspaceEvents(ctx, REDISMODULE_NOTIFY_GENERIC, OnGeneric) ==
               REDISMODULE_OK;
}
