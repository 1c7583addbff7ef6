/* The commands that only look: how much, how full, where. */
#include "commands/inspect.h"

#include <string.h>

#include "commands/adopt.h"
#include "commands/open.h"
#include "commands/reply.h"
#include "store/filter.h"
#include "commands/words.h"

/* BF.CARD key */
int BFCard_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_filter(ctx, argv[1], REDISMODULE_READ, &key, &filter)) return REDISMODULE_OK;
    RedisModule_ReplyWithLongLong(ctx,
                                  filter ? (long long)descriptor_nitems(filter->descriptor) : 0);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

enum info_field {
    INFO_CAPACITY,
    INFO_SIZE,
    INFO_FILTERS,
    INFO_ITEMS,
    INFO_EXPANSION,
    INFO_NFIELDS
};

static const struct {
    const char *argument, *title;
} info_fields[INFO_NFIELDS] = {
    [INFO_CAPACITY] = {"CAPACITY", "Capacity"},
    [INFO_SIZE] = {"SIZE", "Size"},
    [INFO_FILTERS] = {"FILTERS", "Number of filters"},
    [INFO_ITEMS] = {"ITEMS", "Number of items inserted"},
    [INFO_EXPANSION] = {"EXPANSION", "Expansion rate"},
};

static void reply_info(RedisModuleCtx *ctx, struct filter *filter, enum info_field field) {
    const struct descriptor *descriptor = filter->descriptor;
    struct shards shards = {.ctx = ctx, .filter = filter, .mode = REDISMODULE_READ};
    switch (field) {
    case INFO_CAPACITY:
        RedisModule_ReplyWithLongLong(ctx, (long long)descriptor_capacity(descriptor));
        break;
    case INFO_SIZE: /* as stored: the same on a primary and its replicas, unlike the memory in use */
        RedisModule_ReplyWithLongLong(ctx, (long long)(descriptor_encoded_size(descriptor) +
                                                       descriptor_shard_bytes(descriptor) +
                                                       shards_adopted_bytes(&shards)));
        break;
    case INFO_FILTERS:
        RedisModule_ReplyWithLongLong(ctx, descriptor->nlayers);
        break;
    case INFO_ITEMS:
        RedisModule_ReplyWithLongLong(ctx, (long long)descriptor_nitems(descriptor));
        break;
    default:
        if (descriptor->expansion)
            RedisModule_ReplyWithLongLong(ctx, descriptor->expansion);
        else
            RedisModule_ReplyWithNull(ctx);
    }
}

/* BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION] */
int BFInfo_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2 && argc != 3) return RedisModule_WrongArity(ctx);
    int field = 0;
    if (argc == 3) {
        while (field < INFO_NFIELDS && !word_is(word_of(argv[2]), info_fields[field].argument))
            field++;
        if (field == INFO_NFIELDS) return RedisModule_ReplyWithError(ctx, ERROR_BAD_FIELD);
    }
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_existing_any(ctx, argv[1], REDISMODULE_READ, &key, &filter)) return REDISMODULE_OK;
    if (argc == 3) {
        /* In RESP2 an array of the value alone, as clients expect. */
        const bool map = RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_RESP3;
        if (map)
            RedisModule_ReplyWithMap(ctx, 1);
        else
            RedisModule_ReplyWithArray(ctx, 1);
        if (map) RedisModule_ReplyWithSimpleString(ctx, info_fields[field].title);
        reply_info(ctx, filter, (enum info_field)field);
    } else {
        RedisModule_ReplyWithMap(ctx, INFO_NFIELDS);
        for (field = 0; field < INFO_NFIELDS; field++) {
            RedisModule_ReplyWithSimpleString(ctx, info_fields[field].title);
            reply_info(ctx, filter, (enum info_field)field);
        }
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* How much of a layer is counted for its fill. A small one is read whole. In a large one every block is another memory
 * page, microseconds each with 10 GB, so that it is the number of blocks that counts. */
#define SAMPLE_BYTES  (1u << 20)
#define SAMPLE_BLOCKS 1024u

/* How many blocks of a shard that is. */
static uint32_t sample_size(const struct layer *layer) {
    const struct layout *layout = &layer->layout;
    if (layout->nshards * (uint64_t)layout_shard_bytes(layout) <= SAMPLE_BYTES)
        return layout->nblocks;
    const uint32_t share = SAMPLE_BLOCKS / layout->nshards, wanted = share < 2 ? 2 : share;
    return wanted < layout->nblocks ? wanted : layout->nblocks;
}

static double sampled_fill(const struct layer *layer, const uint8_t *blocks, uint32_t nsamples) {
    const size_t block_bytes = layout_block_bytes(&layer->layout);
    uint64_t nset = 0;
    for (uint32_t i = 0; i < nsamples; i++) {
        const uint8_t *block =
            blocks + (uint64_t)i * layer->layout.nblocks / nsamples * block_bytes;
        for (size_t at = 0; at < block_bytes; at += 8) {
            uint64_t word;
            memcpy(&word, block + at, sizeof word);
            nset += (uint64_t)__builtin_popcountll(word);
        }
    }
    return (double)nset / ((double)nsamples * (double)block_bytes * 8);
}

/* One entry of BF.SHARDS. */
static void reply_shard(struct shards *shards, uint32_t index, uint32_t shard) {
    static const char *const states[] = {
        [SHARD_READY] = "ok", [SHARD_MISSING] = "missing", [SHARD_FOREIGN] = "damaged"};
    RedisModuleCtx *ctx = shards->ctx;
    const struct layer *layer = &shards->filter->descriptor->layers[index];
    const struct shard_slot *slot = shards_open(shards, index, shard);
    double sampled = 1, fill = 0;
    if (layer->adoption) {
        if (slot)
            fill = adopt_fill(layer, slot->blocks, slot->nbytes,
                              SAMPLE_BYTES / layer->layout.nshards, &sampled);
    } else {
        const uint32_t nsamples = sample_size(layer);
        sampled = (double)nsamples / layer->layout.nblocks;
        if (slot) fill = sampled_fill(layer, shard_blocks(layer, slot), nsamples);
    }
    RedisModuleString *name = shard_name(shards->filter->descriptor, index, shard);
    RedisModule_ReplyWithMap(ctx, 8);
    RedisModule_ReplyWithSimpleString(ctx, "key");
    RedisModule_ReplyWithString(ctx, name);
    RedisModule_ReplyWithSimpleString(ctx, "layer");
    RedisModule_ReplyWithLongLong(ctx, index);
    RedisModule_ReplyWithSimpleString(ctx, "shard");
    RedisModule_ReplyWithLongLong(ctx, shard);
    RedisModule_ReplyWithSimpleString(ctx, "bytes");
    if (layer->adoption)
        RedisModule_ReplyWithLongLong(ctx, slot ? (long long)slot->nbytes : 0);
    else
        RedisModule_ReplyWithLongLong(
            ctx, (long long)((layer_is_joined(layer) ? 0 : SHARD_HEADER_BYTES) +
                             layout_shard_bytes(&layer->layout)));
    RedisModule_ReplyWithSimpleString(ctx, "state");
    RedisModule_ReplyWithSimpleString(ctx, states[slot ? SHARD_READY : shards->status]);
    RedisModule_ReplyWithSimpleString(ctx, "fill");
    if (slot)
        RedisModule_ReplyWithDouble(ctx, fill);
    else
        RedisModule_ReplyWithNull(ctx);
    RedisModule_ReplyWithSimpleString(ctx, "fill sampled from");
    RedisModule_ReplyWithDouble(ctx, sampled);
    RedisModule_ReplyWithSimpleString(ctx, "offset");
    RedisModule_ReplyWithLongLong(
        ctx, layer_is_joined(layer) ? (long long)(SHARD_HEADER_BYTES + layer->offset) : 0);
    RedisModule_FreeString(NULL, name);
    shards_close(shards);
}

/* BF.SHARDS key */
int BFShards_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_existing(ctx, argv[1], REDISMODULE_READ, &key, &filter)) return REDISMODULE_OK;
    const struct descriptor *descriptor = filter->descriptor;
    struct shards shards = {.ctx = ctx, .filter = filter, .mode = REDISMODULE_READ};
    long nshown = 0;
    RedisModule_ReplyWithArray(ctx, REDISMODULE_POSTPONED_LEN);
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        for (uint32_t j = 0; j < layer->layout.nshards; j++) {
            /* Adopted strings may have been made by others: only the key itself tells. */
            if (layer->adoption ? shards_check(&shards, i, j) == SHARD_NONE
                                : !layer_shard_created(layer, j))
                continue;
            reply_shard(&shards, i, j);
            nshown++;
        }
    }
    RedisModule_ReplySetArrayLength(ctx, nshown);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}
