#include "store/contents.h"

#include <string.h>

void contents_save(RedisModuleIO *rdb, struct shards *shards) {
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
const char *contents_load(RedisModuleIO *rdb, struct shards *shards) {
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

void contents_copy(struct shards *from, struct shards *to) {
    const struct descriptor *descriptor = to->filter->descriptor;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        for (uint32_t j = 0; j < layer_nstrings(layer); j++) {
            const struct shard_slot *slot = shards_open(from, i, j);
            /* A lost shard stays lost in the copy. */
            if (slot)
                memcpy(make_shard(to, i, j, slot->nbytes)->blocks, slot->blocks, slot->nbytes);
            shards_close(from);
            shards_close(to);
        }
    }
}

void contents_digest(RedisModuleDigest *digest, struct shards *shards) {
    const struct descriptor *descriptor = shards->filter->descriptor;
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
            const struct shard_slot *slot = shards_open(shards, i, j);
            RedisModule_DigestAddLongLong(digest, slot ? SHARD_READY : shards->status);
            if (slot) RedisModule_DigestAddStringBuffer(digest, (char *)slot->blocks, slot->nbytes);
            shards_close(shards);
        }
    }
    RedisModule_DigestEndSequence(digest);
}

/* MOVE takes the shards along, but not adopted strings, which others use where they are. They are moved here and now,
 * on every server that runs the MOVE, replicas and replay of the AOF included, so that there is no moment at which they
 * are apart. (Writing in a notification is safe where the command is done with the keyspace when it notifies, which is
 * so for MOVE.) */
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
