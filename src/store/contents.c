#include "store/contents.h"

#include "core/bytes.h"
#include "core/header.h"
#include "core/young.h"
#include "store/statistics.h"

/* How a string is saved: this number and, unless the string is lost, what follows its header. */
enum saved_string {
    SAVED_LOST = 0,
    SAVED_DENSE = 1, /* or an adopted string */
    SAVED_YOUNG = 2,
};

/* May the filter have this string? Others may have created adopted ones: only the key shows. */
static bool has_string(const struct layer *layer, uint32_t number) {
    return layer_shard_created(layer, number) || layer->adoption;
}

void contents_save(RedisModuleIO *rdb, struct strings *strings) {
    const struct descriptor *descriptor = strings->access.descriptor;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        for (uint32_t j = 0; j < layer_nstrings(layer); j++) {
            if (!has_string(layer, j)) continue;
            const struct shard *shard = access_open(&strings->access, i, j);
            RedisModule_SaveUnsigned(rdb, !shard            ? SAVED_LOST
                                          : shard->capacity ? SAVED_YOUNG
                                                            : SAVED_DENSE);
            if (shard) RedisModule_SaveStringBuffer(rdb, (char *)shard->body, shard->nbytes);
            access_close(&strings->access);
        }
    }
}

/* Removes all strings from the descriptor; they are then created one by one. Returns a copy of its
 * former state, for descriptor_free. */
static struct descriptor *take_strings(struct descriptor *descriptor) {
    struct descriptor *wanted = descriptor_copy(descriptor);
    if (!wanted) return NULL;
    statistics_leave(descriptor);
    descriptor_clear_strings(descriptor);
    statistics_join(descriptor);
    return wanted;
}

/* Creates a string from its saved form. A lost one stays lost; an adopted one may not exist. */
static const char *put_string(struct access *access, const struct descriptor *wanted, uint32_t home,
                              uint32_t number, enum saved_string saved, const uint8_t *body,
                              size_t nbytes) {
    const struct layer *layer = &access->descriptor->layers[home];
    for (uint32_t i = home + 1; i < wanted->nlayers && wanted->layers[i].home == home; i++) {
        if (!layer_shard_created(&wanted->layers[i], 0)) break;
        if (saved == SAVED_LOST)
            access_mark_lost(access, i, 0);
        else
            access_fill_joined(access, i);
    }
    if (saved == SAVED_LOST) {
        if (layer_shard_created(&wanted->layers[home], number))
            access_mark_lost(access, home, number);
        return NULL;
    }
    /* An adopted string that exists but is empty differs from one that does not exist. */
    static const uint8_t zero;
    if (layer->adoption && nbytes == 0) body = &zero, nbytes = 1;
    const char *problem = access_fill(access, home, number, saved == SAVED_YOUNG, body, nbytes);
    access_close(access);
    /* What was made so far is garbage now, and may be saved: no layer may have joined nothing. */
    if (problem)
        descriptor_forget_string(access->descriptor,
                                 &(struct string_cursor){.layer = home, .shard = number});
    return problem;
}

static const char *load_string(RedisModuleIO *rdb, struct access *access,
                               const struct descriptor *wanted, uint32_t home, uint32_t number) {
    const uint64_t saved = RedisModule_LoadUnsigned(rdb);
    if (saved > SAVED_YOUNG) return "a string in an unknown form";
    if (saved == SAVED_LOST)
        return RedisModule_IsIOError(rdb)
                   ? "truncated"
                   : put_string(access, wanted, home, number, SAVED_LOST, NULL, 0);
    size_t nbytes;
    char *bytes = RedisModule_LoadStringBuffer(rdb, &nbytes);
    if (!bytes) return "truncated";
    const char *problem = put_string(access, wanted, home, number, (enum saved_string)saved,
                                     (const uint8_t *)bytes, nbytes);
    RedisModule_Free(bytes);
    return problem;
}

const char *contents_load(RedisModuleIO *rdb, struct strings *strings) {
    struct descriptor *wanted = take_strings(strings->access.descriptor);
    const char *problem = wanted ? NULL : "out of memory";
    for (uint32_t i = 0; !problem && i < wanted->nlayers; i++) {
        const struct layer *layer = &wanted->layers[i];
        for (uint32_t j = 0; !problem && j < layer_nstrings(layer); j++)
            if (has_string(layer, j)) problem = load_string(rdb, &strings->access, wanted, i, j);
    }
    descriptor_free(wanted);
    return problem;
}

void contents_copy(struct strings *from, struct strings *to) {
    struct descriptor *wanted = take_strings(to->access.descriptor);
    if (!wanted) return;
    for (uint32_t i = 0; i < wanted->nlayers; i++) {
        const struct layer *layer = &wanted->layers[i];
        for (uint32_t j = 0; j < layer_nstrings(layer); j++) {
            if (!has_string(layer, j)) continue;
            const struct shard *shard = access_open(&from->access, i, j);
            const enum saved_string saved = !shard            ? SAVED_LOST
                                            : shard->capacity ? SAVED_YOUNG
                                                              : SAVED_DENSE;
            put_string(&to->access, wanted, i, j, saved, shard ? shard->body : NULL,
                       shard ? shard->nbytes : 0);
            access_close(&from->access);
        }
    }
    descriptor_free(wanted);
}

/* Only the items of a young shard matter, not their places in the table. */
static void digest_young(RedisModuleDigest *digest, const struct shard *shard) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < shard->capacity; i++) {
        const uint8_t *entry = shard->body + young_bytes(i);
        if (bytes_u32(entry) != 0) sum += layout_hash(entry, YOUNG_ENTRY_BYTES, 0).bits;
    }
    RedisModule_DigestAddLongLong(digest, header_nitems(shard->body - HEADER_BYTES));
    RedisModule_DigestAddLongLong(digest, (long long)sum);
}

void contents_digest(RedisModuleDigest *digest, struct strings *strings) {
    const struct descriptor *descriptor = strings->access.descriptor;
    RedisModule_DigestAddLongLong(digest, (long long)descriptor->seed);
    RedisModule_DigestAddStringBuffer(digest, (const char *)&descriptor->error,
                                      sizeof descriptor->error);
    RedisModule_DigestAddLongLong(digest, descriptor->expansion);
    if (descriptor->window) {
        RedisModule_DigestAddLongLong(digest, descriptor->window->seconds);
        RedisModule_DigestAddLongLong(digest, descriptor->window->nslices);
        RedisModule_DigestAddLongLong(digest, descriptor->window->sliding);
        RedisModule_DigestAddLongLong(digest, (long long)descriptor->window->capacity);
        RedisModule_DigestAddLongLong(digest, descriptor->window->nover);
    }
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        RedisModule_DigestAddLongLong(digest, layer->layout.block_log2);
        RedisModule_DigestAddLongLong(digest, layer->layout.nprobes);
        RedisModule_DigestAddLongLong(digest, layer->layout.nblocks);
        RedisModule_DigestAddLongLong(digest, (long long)layer->capacity);
        RedisModule_DigestAddLongLong(digest, (long long)layer->nitems);
        RedisModule_DigestAddLongLong(digest, (long long)layer->began_ms);
        for (uint32_t j = 0; j < layer_nstrings(layer); j++) {
            const struct shard *shard = access_open(&strings->access, i, j);
            RedisModule_DigestAddLongLong(digest, shard ? SHARD_READY : strings->access.status);
            if (shard && shard->capacity)
                digest_young(digest, shard);
            else if (shard)
                RedisModule_DigestAddStringBuffer(digest, (char *)shard->body, shard->nbytes);
            access_close(&strings->access);
        }
    }
    RedisModule_DigestEndSequence(digest);
}

/* Moves the filter's shards, but not adopted strings: other programs use them where they are. Every
 * server that runs the MOVE does this, including replicas and the replay of an AOF, so the filter
 * and its shards are never apart. (Writing in a notification is safe if the command has finished
 * with the keyspace by then, which MOVE has.) */
void contents_move(RedisModuleCtx *ctx, const struct descriptor *descriptor, int from, int to) {
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
