/* The read-only commands: how many items, how full, which shards. */
#include "commands/inspect.h"

#include <inttypes.h>
#include <stdio.h>

#include "commands/open.h"
#include "commands/reply.h"
#include "commands/words.h"
#include "core/encoding.h"
#include "core/fill.h"
#include "core/header.h"
#include "store/slices.h"

/* BF.CARD key */
int BFCard_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_filter(ctx, argv[1], REDISMODULE_READ, &key, &filter)) return REDISMODULE_OK;
    RedisModule_ReplyWithLongLong(ctx, filter ? (long long)slices_nitems(filter->descriptor) : 0);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

enum info_field {
    INFO_CAPACITY,
    INFO_SIZE,
    INFO_FILTERS,
    INFO_ITEMS,
    INFO_EXPANSION,
    INFO_WINDOW, /* from here on: only for filters with a window */
    INFO_SLICES,
    INFO_SLIDING,
    INFO_AGE,
    INFO_ERROR,
    INFO_NFIELDS
};

/* Without a field name, the reply has RedisBloom's five fields, which clients find by position.
 * Some, such as go-redis, reject a reply with more. So only filters with a window add its fields,
 * and the error rate must be requested by name. */

static const struct {
    const char *argument, *title;
} info_fields[INFO_NFIELDS] = {
    [INFO_CAPACITY] = {"CAPACITY", "Capacity"},
    [INFO_SIZE] = {"SIZE", "Size"},
    [INFO_FILTERS] = {"FILTERS", "Number of filters"},
    [INFO_ITEMS] = {"ITEMS", "Number of items inserted"},
    [INFO_EXPANSION] = {"EXPANSION", "Expansion rate"},
    [INFO_WINDOW] = {"WINDOW", "Window"},
    [INFO_SLICES] = {"SLICES", "Slices"},
    [INFO_SLIDING] = {"SLIDING", "Sliding"},
    [INFO_AGE] = {"AGE", "Age of the oldest slice"},
    [INFO_ERROR] = {"ERROR", "Error rate"},
};

/* The total length of the adopted strings; there are few of them. */
static uint64_t adopted_bytes(RedisModuleCtx *ctx, struct filter *filter) {
    const struct layer *first = &filter->descriptor->layers[0];
    uint64_t nbytes = 0;
    for (uint32_t j = 0; first->adoption && j < first->layout.nshards; j++) {
        struct strings strings = strings_of(ctx, filter, REDISMODULE_READ);
        const struct shard *shard = access_open(&strings.access, 0, j);
        if (shard) nbytes += shard->nbytes;
        access_close(&strings.access);
    }
    return nbytes;
}

/* What the filter was made for: the items of one window if it has one, otherwise the capacity of
 * all layers. */
static uint64_t capacity_of(const struct descriptor *descriptor) {
    return descriptor->window ? descriptor->window->capacity : descriptor_capacity(descriptor);
}

static void reply_window_info(RedisModuleCtx *ctx, const struct descriptor *descriptor,
                              enum info_field field) {
    const struct window *window = descriptor->window;
    if (!window)
        RedisModule_ReplyWithNull(ctx);
    else if (field == INFO_SLIDING)
        RedisModule_ReplyWithBool(ctx, window->sliding);
    else
        RedisModule_ReplyWithLongLong(ctx, field == INFO_WINDOW ? (long long)window->seconds
                                           : field == INFO_SLICES
                                               ? (long long)window->nslices
                                               : (long long)(slices_age_ms(descriptor) / 1000));
}

static void reply_info(RedisModuleCtx *ctx, struct filter *filter, enum info_field field) {
    const struct descriptor *descriptor = filter->descriptor;
    switch (field) {
    case INFO_CAPACITY:
        RedisModule_ReplyWithLongLong(ctx, (long long)capacity_of(descriptor));
        break;
    case INFO_SIZE:
        /* As stored: the same on a primary and its replicas, unlike the memory in use. */
        RedisModule_ReplyWithLongLong(ctx, (long long)(descriptor_encoded_size(descriptor) +
                                                       descriptor_nstored(descriptor) +
                                                       adopted_bytes(ctx, filter)));
        break;
    case INFO_FILTERS:
        RedisModule_ReplyWithLongLong(ctx, descriptor->nlayers - slices_first_to_ask(descriptor));
        break;
    case INFO_ITEMS:
        RedisModule_ReplyWithLongLong(ctx, (long long)slices_nitems(descriptor));
        break;
    case INFO_EXPANSION:
        if (descriptor->expansion)
            RedisModule_ReplyWithLongLong(ctx, descriptor->expansion);
        else
            RedisModule_ReplyWithNull(ctx);
        break;
    case INFO_WINDOW:
    case INFO_SLICES:
    case INFO_SLIDING:
    case INFO_AGE:
        reply_window_info(ctx, descriptor, field);
        break;
    case INFO_ERROR:
        reply_number(ctx, descriptor->error, REPLY_EXACT);
        break;
    case INFO_NFIELDS:
        break;
    }
}

/* BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION | WINDOW | SLICES | SLIDING | AGE |
 *              ERROR] */
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
        const int nfields = filter->descriptor->window ? INFO_ERROR : INFO_WINDOW;
        RedisModule_ReplyWithMap(ctx, nfields);
        for (field = 0; field < nfields; field++) {
            RedisModule_ReplyWithSimpleString(ctx, info_fields[field].title);
            reply_info(ctx, filter, (enum info_field)field);
        }
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* One line of BF.DEBUG, with RedisBloom's names for the figures. The bytes are the size of the
 * layer's bitmaps, even if it is smaller now. The ratio is the expected error rate of the full
 * layer. */
static void reply_layer_line(RedisModuleCtx *ctx, const struct layer *layer) {
    const struct layout *layout = &layer->layout;
    const bool blocked = layer->kind == LAYER_BLOCKED;
    uint64_t nbytes = layout->nshards * (uint64_t)layout_shard_bytes(layout), nbits = nbytes * 8;
    unsigned hash_width = 64;
    if (layer->kind == LAYER_CLASSIC) {
        nbytes = layer->nbytes;
        nbits = layer->nbits;
        hash_width = layer->flags & LAYER_WIDE ? 64 : 32;
    } else if (layer->adoption) {
        hash_width = layer->adoption->recipe.log2_bits;
    }
    const double rate = blocked ? sizing_rate(layout, layer->capacity)
                                : sizing_classic_rate(nbits, layout->nprobes, layer->capacity);
    char line[200];
    const int length =
        snprintf(line, sizeof line,
                 "bytes:%" PRIu64 " bits:%" PRIu64 " hashes:%u hashwidth:%u capacity:%" PRIu64
                 " size:%" PRIu64 " ratio:%.3g",
                 nbytes, nbits, layout->nprobes, hash_width, layer->capacity, layer->nitems, rate);
    RedisModule_ReplyWithStringBuffer(ctx, line, (size_t)length);
}

/* BF.DEBUG key
 * RedisBloom's own report. Client test suites compare it before and after a copy. */
int BFDebug_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_existing_any(ctx, argv[1], REDISMODULE_READ, &key, &filter)) return REDISMODULE_OK;
    const struct descriptor *descriptor = filter->descriptor;
    char line[32];
    const int length = snprintf(line, sizeof line, "size:%" PRIu64, descriptor_nitems(descriptor));
    RedisModule_ReplyWithArray(ctx, (long)descriptor->nlayers + 1);
    RedisModule_ReplyWithStringBuffer(ctx, line, (size_t)length);
    for (uint32_t i = 0; i < descriptor->nlayers; i++)
        reply_layer_line(ctx, &descriptor->layers[i]);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* Bytes of a string, or of this layer's part of it. For a lost one: its size if it were dense. */
static size_t bytes_of(const struct layer *layer, const struct shard *shard) {
    if (layer->adoption) return shard ? shard->nbytes : 0;
    const size_t own =
        shard && shard->capacity ? shard->nbytes : layout_shard_bytes(&layer->layout);
    return (layer_is_joined(layer) ? 0 : HEADER_BYTES) + own;
}

static const char *state_of(const struct access *access, const struct shard *shard) {
    if (shard) return shard->capacity ? "young" : "ok";
    return access->status == SHARD_MISSING ? "missing" : "damaged";
}

/* One entry of BF.SHARDS. */
static void reply_shard(struct strings *strings, uint32_t index, uint32_t number) {
    RedisModuleCtx *ctx = strings->ctx;
    struct access *access = &strings->access;
    const struct layer *layer = &access->descriptor->layers[index];
    const struct shard *shard = access_open(access, index, number);
    double sampled = 1, fill = 0;
    if (shard && layer->adoption)
        fill = fill_of_adopted(layer, shard, FILL_SAMPLE_BYTES / layer->layout.nshards, &sampled);
    else if (shard)
        fill = fill_of_shard(layer, shard, &sampled);
    RedisModuleString *name = shard_name(access->descriptor, index, number);
    RedisModule_ReplyWithMap(ctx, access->descriptor->window ? 9 : 8);
    RedisModule_ReplyWithSimpleString(ctx, "key");
    RedisModule_ReplyWithString(ctx, name);
    RedisModule_ReplyWithSimpleString(ctx, "layer");
    RedisModule_ReplyWithLongLong(ctx, descriptor_number(access->descriptor, index));
    RedisModule_ReplyWithSimpleString(ctx, "shard");
    RedisModule_ReplyWithLongLong(ctx, number);
    RedisModule_ReplyWithSimpleString(ctx, "bytes");
    RedisModule_ReplyWithLongLong(ctx, (long long)bytes_of(layer, shard));
    RedisModule_ReplyWithSimpleString(ctx, "state");
    RedisModule_ReplyWithSimpleString(ctx, state_of(access, shard));
    RedisModule_ReplyWithSimpleString(ctx, "fill");
    if (shard)
        RedisModule_ReplyWithDouble(ctx, fill);
    else
        RedisModule_ReplyWithNull(ctx);
    RedisModule_ReplyWithSimpleString(ctx, "fill sampled from");
    RedisModule_ReplyWithDouble(ctx, sampled);
    RedisModule_ReplyWithSimpleString(ctx, "offset");
    RedisModule_ReplyWithLongLong(
        ctx, layer_is_joined(layer) ? (long long)(HEADER_BYTES + layer->offset) : 0);
    if (access->descriptor->window) {
        RedisModule_ReplyWithSimpleString(ctx, "slice began");
        RedisModule_ReplyWithLongLong(ctx, (long long)layer->began_ms);
    }
    RedisModule_FreeString(NULL, name);
    access_close(access);
}

/* The largest possible number of entries. */
static uint64_t count_entries(const struct descriptor *descriptor) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        n += layer->adoption ? layer->layout.nshards : layer_count_created(layer);
    }
    return n;
}

/* Replies with the entries of one layer and returns how many there were. */
static uint64_t reply_layer(struct strings *strings, uint32_t index, uint64_t first, uint64_t max) {
    const struct layer *layer = &strings->access.descriptor->layers[index];
    uint64_t n = 0;
    for (uint64_t shard = first; shard < layer->layout.nshards && n < max; shard++) {
        /* Others may have created adopted strings: only the key itself shows. */
        if (!layer->adoption) shard = layer_next_created(layer, (uint32_t)shard);
        if (shard == layer->layout.nshards) break;
        if (layer->adoption && access_check(&strings->access, index, (uint32_t)shard) == SHARD_NONE)
            continue;
        reply_shard(strings, index, (uint32_t)shard);
        n++;
    }
    return n;
}

/* BF.SHARDS key [FROM layer shard] [COUNT count] */
int BFShards_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 2 || argc > 7) return RedisModule_WrongArity(ctx);
    struct options options = {.count = OPTIONS_MAX_COUNT};
    if (!parse_options(ctx, argv + 2, argc - 2, OPTIONS_SHARDS, &options)) return REDISMODULE_OK;
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_existing(ctx, argv[1], REDISMODULE_READ, &key, &filter)) return REDISMODULE_OK;
    const struct descriptor *descriptor = filter->descriptor;
    if (!options.given && count_entries(descriptor) > OPTIONS_MAX_COUNT) {
        RedisModule_CloseKey(key);
        return RedisModule_ReplyWithError(ctx, ERROR_MANY_SHARDS);
    }
    struct strings strings = strings_of(ctx, filter, REDISMODULE_READ);
    uint64_t nshown = 0;
    RedisModule_ReplyWithArray(ctx, REDISMODULE_POSTPONED_LEN);
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const uint32_t number = descriptor_number(descriptor, i);
        if (number < options.from_layer) continue;
        nshown += reply_layer(&strings, i, number == options.from_layer ? options.from_shard : 0,
                              options.count - nshown);
    }
    RedisModule_ReplySetArrayLength(ctx, (long)nshown);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}
