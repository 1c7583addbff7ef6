/* Shards are plain strings, `bf:{tag}:id:layer:shard`. A string opened here is trusted only after its length and its
 * header were compared with what the descriptor says: anybody may have written to it, renamed it or put another in
 * its place, and reading past its end or believing its bits would be worse than an error. */
#include "store/strings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/cluster.h"
#include "store/statistics.h"

_Static_assert(sizeof(uint64_t) == 8 && SHARD_HEADER_BYTES == 55,
               "9 bytes of string header + 55 = one cache line");

static RedisModuleString *adopted_name(const struct adoption *adoption, uint32_t shard) {
    char *text = RedisModule_Alloc((size_t)adoption->prefix_length + 16);
    size_t length = adoption->prefix_length;
    memcpy(text, adoption->prefix, length);
    if (adoption->numbered) length += (size_t)snprintf(text + length, 16, "%" PRIu32, shard);
    RedisModuleString *name = RedisModule_CreateString(NULL, text, length);
    RedisModule_Free(text);
    return name;
}

RedisModuleString *shard_name(const struct descriptor *descriptor, uint32_t layer, uint32_t shard) {
    if (!layer_owns_shards(&descriptor->layers[layer]))
        return adopted_name(descriptor->layers[layer].adoption, shard);
    char stack[256], *text = stack;
    const size_t room = descriptor->tag_length + 64;
    if (room > sizeof stack) text = RedisModule_Alloc(room);
    memcpy(text, "bf:{", 4);
    memcpy(text + 4, descriptor->tag, descriptor->tag_length);
    const size_t at = 4 + descriptor->tag_length;
    const int n = snprintf(text + at, room - at, "}:%016" PRIx64 ":%" PRIu32 ":%" PRIu32,
                           descriptor->id, descriptor->layers[layer].home, shard);
    RedisModuleString *name = RedisModule_CreateString(NULL, text, at + (size_t)n);
    if (text != stack) RedisModule_Free(text);
    return name;
}

bool shard_parse_name(const char *name, size_t length, uint64_t *id, uint32_t *layer,
                      uint32_t *shard) {
    /* The tag may hold anything but its end, which is the last brace. */
    const char *brace = memrchr(name, '}', length);
    char text[64], again[64];
    const size_t n = brace ? (size_t)(name + length - brace) : 0;
    if (n == 0 || n >= sizeof text || length < 5 || memcmp(name, "bf:{", 4)) return false;
    memcpy(text, brace, n);
    text[n] = '\0';
    if (sscanf(text, "}:%16" SCNx64 ":%10" SCNu32 ":%10" SCNu32, id, layer, shard) != 3)
        return false;
    /* sscanf is generous with signs, spaces, zeros and what follows; names are not. */
    snprintf(again, sizeof again, "}:%016" PRIx64 ":%" PRIu32 ":%" PRIu32, *id, *layer, *shard);
    return n == strlen(again) && memcmp(text, again, n) == 0;
}

bool shard_tag(const char *name, size_t length, const char **tag, size_t *tag_length) {
    const char *open = memchr(name, '{', length);
    const char *close = open ? memchr(open, '}', (size_t)(name + length - open)) : NULL;
    if (close && close > open + 1) {
        *tag = open + 1;
        *tag_length = (size_t)(close - open - 1);
        return true;
    }
    /* The server hashes the whole name. In braces it must stay whole: no '}' inside, and not empty. */
    *tag = name;
    *tag_length = length;
    return length > 0 && !memchr(name, '}', length);
}

/* Keeps count of the shards that are known to be lost. */
static void set_lost(struct shard_slot *slot, bool lost) {
    if (slot->lost == lost) return;
    slot->lost = lost;
    if (lost)
        statistics.nlost++;
    else
        statistics.nlost--;
}

char *descriptor_bytes(const struct descriptor *descriptor, size_t *nbytes) {
    *nbytes = descriptor_encoded_size(descriptor);
    uint8_t *bytes = RedisModule_Alloc(*nbytes);
    descriptor_encode(descriptor, bytes);
    return (char *)bytes;
}

struct filter *filter_wrap(struct descriptor *descriptor) {
    struct filter *filter = RedisModule_Calloc(1, sizeof *filter);
    filter->descriptor = descriptor;
    return filter;
}

static void free_slots(struct filter *filter) {
    for (uint32_t i = 0; i < filter->nslots; i++) {
        if (!filter->slots[i]) continue;
        for (uint32_t j = 0; j < filter->descriptor->layers[i].layout.nshards; j++) {
            if (filter->slots[i][j].name) RedisModule_FreeString(NULL, filter->slots[i][j].name);
            set_lost(&filter->slots[i][j], false);
        }
        RedisModule_Free(filter->slots[i]);
    }
    RedisModule_Free(filter->slots);
    filter->slots = NULL;
    filter->nslots = 0;
}

struct descriptor *filter_unwrap(struct filter *filter) {
    struct descriptor *descriptor = filter->descriptor;
    free_slots(filter);
    RedisModule_Free(filter);
    return descriptor;
}

void filter_replace(struct filter *filter, struct descriptor *descriptor) {
    free_slots(filter);
    statistics_leave(filter->descriptor);
    statistics_join(descriptor);
    descriptor_free(filter->descriptor);
    filter->descriptor = descriptor;
}

size_t filter_memory(const struct filter *filter) {
    const struct descriptor *descriptor = filter->descriptor;
    size_t nbytes = sizeof *filter + sizeof *descriptor + descriptor->tag_length + 1 +
                    descriptor->nlayers * (sizeof *descriptor->layers + sizeof *filter->slots);
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const uint32_t nshards = descriptor->layers[i].layout.nshards;
        nbytes += (nshards + 7) / 8;
        if (descriptor->layers[i].adoption)
            nbytes += sizeof(struct adoption) + descriptor->layers[i].adoption->prefix_length + 1;
        if (i >= filter->nslots || !filter->slots[i]) continue;
        nbytes += nshards * sizeof **filter->slots;
        for (uint32_t j = 0; j < nshards;
             j++) /* name: an object, a string header, tag, id, numbers */
            if (filter->slots[i][j].name) nbytes += 48 + descriptor->tag_length;
    }
    return nbytes;
}

/* The slot of a shard's string. */
static struct shard_slot *slot_of(struct filter *filter, uint32_t layer, uint32_t shard) {
    const struct descriptor *descriptor = filter->descriptor;
    layer = descriptor->layers[layer].home;
    if (layer >= filter->nslots) {
        filter->slots =
            RedisModule_Realloc(filter->slots, descriptor->nlayers * sizeof *filter->slots);
        while (filter->nslots < descriptor->nlayers) filter->slots[filter->nslots++] = NULL;
    }
    struct shard_slot **slots = &filter->slots[layer];
    if (!*slots)
        *slots = RedisModule_Calloc(descriptor->layers[layer].layout.nshards, sizeof **slots);
    struct shard_slot *slot = &(*slots)[shard];
    if (!slot->name) slot->name = shard_name(descriptor, layer, shard);
    return slot;
}

/* The blocks of the string behind an open key, or NULL if it is not the shard that it should be. Adopted strings have no
 * header to check, and any length up to that of their highest bit. */
static uint8_t *blocks_of(struct shards *shards, RedisModuleKey *key, uint32_t home, uint32_t shard,
                          size_t *nbytes) {
    const struct descriptor *descriptor = shards->filter->descriptor;
    size_t length; /* of a key that is empty: 0 */
    uint8_t *string = (uint8_t *)RedisModule_StringDMA(key, &length, shards->mode);
    *nbytes = descriptor_string_bytes(descriptor, home);
    if (string && descriptor->layers[home].adoption) {
        if (length > *nbytes || RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_STRING) return NULL;
        *nbytes = length;
        return string;
    }
    if (!string || length != SHARD_HEADER_BYTES + *nbytes) return NULL;
    return descriptor_owns_shard(descriptor, home, shard, string) ? string + SHARD_HEADER_BYTES
                                                                  : NULL;
}

static struct shard_slot *keep_open(struct shards *shards, struct shard_slot *slot,
                                    RedisModuleKey *key, uint8_t *blocks, size_t nbytes) {
    set_lost(slot, false);
    slot->key = key;
    slot->blocks = blocks;
    slot->nbytes = (uint32_t)nbytes;
    slot->next_open = shards->open;
    shards->open = slot;
    return slot;
}

static struct shard_slot *fail(struct shards *shards, enum shard_status status, uint32_t layer,
                               uint32_t shard) {
    shards->status = status;
    shards->bad_layer = layer;
    shards->bad_shard = shard;
    return NULL;
}

/* An adopted string that was never seen may have been made by others meanwhile, so only the key itself tells. While its
 * cluster slot moves, its absence tells nothing. */
static enum shard_status absent_status(struct shards *shards, uint32_t layer, uint32_t shard) {
    const struct descriptor *descriptor = shards->filter->descriptor;
    if (layer_shard_created(&descriptor->layers[layer], shard)) return SHARD_MISSING;
    return cluster_slot_state(shards->ctx, cluster_filter_slot(descriptor)) == SLOT_MOVING
               ? SHARD_MISSING
               : SHARD_NONE;
}

struct shard_slot *shards_open_new(struct shards *shards, uint32_t layer, uint32_t shard) {
    const struct layer *at = &shards->filter->descriptor->layers[layer];
    if (!layer_shard_created(at, shard) && !at->adoption) {
        shards->status = SHARD_NONE;
        return NULL;
    }
    struct shard_slot *slot = slot_of(shards->filter, layer, shard);
    RedisModuleKey *key = RedisModule_OpenKey(shards->ctx, slot->name, shards->mode);
    size_t nbytes;
    uint8_t *blocks = key ? blocks_of(shards, key, at->home, shard, &nbytes) : NULL;
    if (blocks) return keep_open(shards, slot, key, blocks, nbytes);
    const bool there = key && RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_EMPTY;
    RedisModule_CloseKey(key);
    const enum shard_status status = there ? SHARD_FOREIGN : absent_status(shards, layer, shard);
    set_lost(slot, status != SHARD_NONE);
    return fail(shards, status, layer, shard);
}

struct shard_slot *shards_extend(struct shards *shards, uint32_t layer, uint32_t shard,
                                 size_t nbytes) {
    struct layer *at = &shards->filter->descriptor->layers[layer];
    struct shard_slot *slot = shards_open(shards, layer, shard);
    const int mode = REDISMODULE_READ | REDISMODULE_WRITE;
    if (!slot) {
        slot = slot_of(shards->filter, layer, shard);
        keep_open(shards, slot, RedisModule_OpenKey(shards->ctx, slot->name, mode), NULL, 0);
    }
    if (slot->nbytes < nbytes) {
        RedisModule_StringTruncate(slot->key, nbytes);
        slot->blocks = (uint8_t *)RedisModule_StringDMA(slot->key, &nbytes, mode);
        slot->nbytes = (uint32_t)nbytes;
    }
    layer_mark_created(at, shard);
    return slot;
}

static void mark_created(struct layer *layer, uint32_t shard) {
    if (layer_shard_created(layer, shard)) return;
    layer_mark_created(layer, shard);
    statistics_shard_created(layer);
}

/* Puts a new string in the place of what is behind an open key: header, then zeros for all layers that are marked as
 * created. A new string has the length it needs; one that is made longer, the server gives twice as much. */
static uint8_t *new_string(struct shards *shards, RedisModuleKey *key, uint32_t home,
                           uint32_t shard, size_t *nbytes) {
    const struct descriptor *descriptor = shards->filter->descriptor;
    if (RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_EMPTY) RedisModule_DeleteKey(key);
    *nbytes = descriptor_string_bytes(descriptor, home);
    size_t length = SHARD_HEADER_BYTES + *nbytes;
    RedisModule_StringTruncate(key, length);
    uint8_t *string =
        (uint8_t *)RedisModule_StringDMA(key, &length, REDISMODULE_READ | REDISMODULE_WRITE);
    descriptor_shard_header(descriptor, home, shard, string);
    return string + SHARD_HEADER_BYTES;
}

static struct shard_slot *create_string(struct shards *shards, uint32_t home, uint32_t shard) {
    struct shard_slot *slot = slot_of(shards->filter, home, shard);
    RedisModuleKey *key =
        RedisModule_OpenKey(shards->ctx, slot->name, REDISMODULE_READ | REDISMODULE_WRITE);
    mark_created(&shards->filter->descriptor->layers[home], shard);
    size_t nbytes;
    uint8_t *blocks = new_string(shards, key, home, shard, &nbytes);
    return keep_open(shards, slot, key, blocks, nbytes);
}

/* Makes room for a joined layer, and for those between it and its home, at the end of their string. */
static struct shard_slot *append_layer(struct shards *shards, uint32_t layer) {
    struct layer *layers = shards->filter->descriptor->layers;
    const uint32_t home = layers[layer].home;
    struct shard_slot *slot = layer_shard_created(&layers[home], 0)
                                  ? shards_open(shards, home, 0)
                                  : create_string(shards, home, 0);
    if (!slot || layer_shard_created(&layers[layer], 0)) return slot;
    for (uint32_t i = home; i <= layer; i++) mark_created(&layers[i], 0);
    size_t nbytes = slot->nbytes;
    uint8_t *old = RedisModule_Alloc(nbytes);
    memcpy(old, slot->blocks, nbytes);
    slot->blocks = new_string(shards, slot->key, home, 0, &nbytes);
    memcpy(slot->blocks, old, slot->nbytes);
    slot->nbytes = (uint32_t)nbytes;
    RedisModule_Free(old);
    return slot;
}

struct shard_slot *shards_create(struct shards *shards, uint32_t layer, uint32_t shard) {
    return layer_is_joined(&shards->filter->descriptor->layers[layer])
               ? append_layer(shards, layer)
               : create_string(shards, layer, shard);
}

void shards_close(struct shards *shards) {
    for (struct shard_slot *slot = shards->open; slot;) {
        struct shard_slot *next = slot->next_open;
        RedisModule_CloseKey(slot->key);
        slot->key = NULL;
        slot->hint = (uintptr_t)slot->blocks;
        slot->blocks = NULL;
        slot->next_open = NULL;
        slot = next;
    }
    shards->open = NULL;
}

enum shard_status shards_check(struct shards *shards, uint32_t layer, uint32_t shard) {
    if (shards_open(shards, layer, shard)) {
        shards_close(shards);
        return SHARD_READY;
    }
    return shards->status;
}

uint64_t shards_adopted_bytes(struct shards *shards) {
    const struct descriptor *descriptor = shards->filter->descriptor;
    uint64_t nbytes = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        if (!descriptor->layers[i].adoption) continue;
        for (uint32_t j = 0; j < descriptor->layers[i].layout.nshards; j++) {
            const struct shard_slot *slot = shards_open(shards, i, j);
            if (slot) nbytes += slot->nbytes;
            shards_close(shards);
        }
    }
    return nbytes;
}
