/* The way of a command through a filter.
 *
 * A batch is answered in two passes. The first asks every layer, newest first, and opens every shard that any item
 * needs; when one is lost, all ends there, before anything has changed. The second adds what was new. Between hashing an
 * item and touching its block, AHEAD other items are hashed and their blocks requested, so that the memory works on
 * many of them at once: that, and opening each shard once per command, is what makes an item of a batch several times
 * cheaper than a single one. */
#include "store/filter.h"

#include <math.h>

#include "commands/adopt.h"
#include "core/sizing.h"

#define AHEAD 16
#define LEAST_ERROR                                                                                \
    1e-19 /* of one layer; with less there would be more probes than a layer may have */

struct filter *filter_new(const struct filter_options *options, const char *tag,
                          size_t tag_length) {
    struct layout layout;
    const double error = sizing_layer_error(options->error, 0, options->expansion > 0);
    if (!sizing_plan(options->capacity, error, options->shard_bytes, options->expansion == 0,
                     &layout))
        return NULL;
    struct descriptor *descriptor = descriptor_new(tag, tag_length);
    if (!descriptor) return NULL;
    descriptor->id = options->id;
    descriptor->seed = options->seed;
    descriptor->error = options->error;
    descriptor->shard_bytes = options->shard_bytes;
    descriptor->expansion = options->expansion;
    if (!descriptor_add_layer(descriptor, &layout, options->capacity)) {
        descriptor_free(descriptor);
        return NULL;
    }
    return filter_wrap(descriptor);
}

/* ---- a blocked layer; the other kinds are behind layer.h ---- */

/* Finds the block of an item in a layer, opening its shard; block is NULL where the shard was never created. False if
 * the shard is lost. */
static inline bool blocked_locate(struct shards *shards, uint32_t index, struct lookup *lookup) {
    const struct layer *layer = &shards->filter->descriptor->layers[index];
    const struct item_place place = layout_place(&layer->layout, lookup->hash.place);
    const struct shard_slot *slot = shards_open(shards, index, place.shard);
    if (!slot) {
        lookup->block = NULL;
        return shards->status == SHARD_NONE;
    }
    lookup->block =
        shard_blocks(layer, slot) + (size_t)place.block * layout_block_bytes(&layer->layout);
    return true;
}

static inline bool blocked_contains(const struct layer *layer, const struct lookup *lookup) {
    return lookup->block && layout_test(&layer->layout, lookup->block, lookup->hash.bits);
}

/* Adds an item to a layer whose shards are all sound, making the item's shard if need be. False if the layer contained
 * it already. */
static bool blocked_insert(struct shards *shards, uint32_t index, struct lookup *lookup) {
    struct layer *layer = &shards->filter->descriptor->layers[index];
    if (!lookup->block) {
        const struct item_place place = layout_place(&layer->layout, lookup->hash.place);
        if (!layer_shard_created(layer, place.shard)) shards_create(shards, index, place.shard);
        blocked_locate(shards, index, lookup);
    }
    const bool changed = layout_set(&layer->layout, lookup->block, lookup->hash.bits);
    layer->nitems += changed;
    return changed;
}

/* ---- a layer of any kind ---- */

const struct layer_ops *layer_ops_of(enum layer_kind kind) {
    switch (kind) {
    case LAYER_BLOCKED:
        break;
    case LAYER_CLASSIC:
        return &layer_classic_ops;
    case LAYER_ADOPTED:
        return &adopt_layer_ops;
    }
    return NULL;
}

/* The two loops below are one: items are located AHEAD of being tested. They are written twice so that the one for
 * blocked layers has no call and no branch on the kind in it. */
static bool search_blocked(struct shards *shards, uint32_t index, struct lookup *lookups,
                           size_t n) {
    const struct layer *layer = &shards->filter->descriptor->layers[index];
    const size_t ahead = n < AHEAD ? n - 1 : AHEAD;
    for (size_t i = 0; i < n + ahead; i++) {
        if (i < n && lookups[i].answer == ANSWER_NEW) {
            if (!blocked_locate(shards, index, &lookups[i])) return false;
            if (lookups[i].block)
                layout_prefetch(&layer->layout, lookups[i].block, lookups[i].hash.bits);
        }
        if (i < ahead) continue;
        struct lookup *lookup = &lookups[i - ahead];
        if (lookup->answer == ANSWER_NEW && blocked_contains(layer, lookup))
            lookup->answer = ANSWER_KNOWN;
    }
    return true;
}

static bool search_other(struct shards *shards, uint32_t index, const struct layer_ops *ops,
                         struct lookup *lookups, size_t n) {
    const size_t ahead = n < AHEAD ? n - 1 : AHEAD;
    for (size_t i = 0; i < n + ahead; i++) {
        if (i < n && lookups[i].answer == ANSWER_NEW && !ops->locate(shards, index, &lookups[i]))
            return false;
        if (i < ahead) continue;
        struct lookup *lookup = &lookups[i - ahead];
        if (lookup->answer == ANSWER_NEW && ops->contains(shards, index, lookup))
            lookup->answer = ANSWER_KNOWN;
    }
    return true;
}

/* Marks as known what this layer contains. */
static bool search_layer(struct shards *shards, uint32_t index, struct lookup *lookups, size_t n) {
    const struct layer_ops *ops = layer_ops_of(shards->filter->descriptor->layers[index].kind);
    return ops ? search_other(shards, index, ops, lookups, n)
               : search_blocked(shards, index, lookups, n);
}

/* The same for one item: marks it as known if this layer contains it. In a blocked layer it leaves lookup->block
 * there. */
static inline bool search_one(struct shards *shards, uint32_t index, struct lookup *lookup) {
    const struct layer *layer = &shards->filter->descriptor->layers[index];
    const struct layer_ops *ops = layer_ops_of(layer->kind);
    if (!(ops ? ops->locate(shards, index, lookup) : blocked_locate(shards, index, lookup)))
        return false;
    if (ops ? ops->contains(shards, index, lookup) : blocked_contains(layer, lookup))
        lookup->answer = ANSWER_KNOWN;
    return true;
}

static bool layer_insert(struct shards *shards, uint32_t index, struct lookup *lookup) {
    const struct layer_ops *ops = layer_ops_of(shards->filter->descriptor->layers[index].kind);
    return ops ? ops->insert(shards, index, lookup) : blocked_insert(shards, index, lookup);
}

/* ---- all layers ---- */

static inline void hash_items(const struct descriptor *descriptor, struct lookup *lookups,
                              size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t length;
        const char *item = RedisModule_StringPtrLen(lookups[i].item, &length);
        lookups[i].hash = layout_hash(item, length, descriptor->seed);
        lookups[i].answer = ANSWER_NEW;
        lookups[i].own_for = 0;
    }
}

/* A single item has no others to look ahead to. But where its blocks were the last time is known, and most likely they
 * still are: asking for them before their shards are opened hides a part of the memory's latency (10% of a command; a
 * third with ten layers). Should the server have moved a string, the processor fetches something else, or nothing. */
static void prefetch_by_hint(const struct filter *filter, const struct lookup *lookup) {
    for (uint32_t i = 0; i < filter->descriptor->nlayers; i++) {
        const struct layer *layer = &filter->descriptor->layers[i];
        const struct layout *layout = &layer->layout;
        if (layer->kind != LAYER_BLOCKED || layer->home >= filter->nslots ||
            !filter->slots[layer->home])
            continue;
        const struct item_place place = layout_place(layout, lookup->hash.place);
        const uintptr_t hint = filter->slots[layer->home][place.shard].hint;
        if (!hint) continue;
        const uintptr_t block = hint + layer->offset + place.block * layout_block_bytes(layout);
        /* At most one of several layers contains the item. */
        if (filter->descriptor->nlayers > 1)
            layout_prefetch_first(layout, (const uint8_t *)block, lookup->hash.bits);
        else
            layout_prefetch(layout, (const uint8_t *)block, lookup->hash.bits);
    }
}

static bool check_one(struct shards *shards, struct lookup *lookup) {
    prefetch_by_hint(shards->filter, lookup);
    for (uint32_t i = shards->filter->descriptor->nlayers; i-- > 0 && lookup->answer == ANSWER_NEW;)
        if (!search_one(shards, i, lookup)) return false;
    return true;
}

bool filter_check(struct shards *shards, struct lookup *lookups, size_t n) {
    const struct descriptor *descriptor = shards->filter->descriptor;
    hash_items(descriptor, lookups, n);
    if (n == 1) return check_one(shards, lookups);
    for (uint32_t index = descriptor->nlayers; index-- > 0;)
        if (!search_layer(shards, index, lookups, n)) return false;
    return true;
}

void filter_replicate(RedisModuleCtx *ctx, RedisModuleString *key, const struct filter *filter) {
    size_t nbytes;
    char *bytes = descriptor_bytes(filter->descriptor, &nbytes);
    RedisModule_Replicate(ctx, "BF.DESCRIPTOR", "sb", key, bytes, nbytes);
    RedisModule_Free(bytes);
}

/* What a command has to tell the replicas. */
struct replication {
    RedisModuleString *key;
    RedisModuleString **changed; /* items that changed something and were not yet replicated */
    size_t nchanged;
};

static void replicate_items(struct replication *replication, RedisModuleCtx *ctx) {
    if (replication->nchanged > 0)
        RedisModule_Replicate(ctx, "BF.MADD", "sv", replication->key, replication->changed,
                              replication->nchanged);
    replication->nchanged = 0;
}

/* First what went into the old layers, then the new layer: a replica must grow at the same item. */
static void replicate_growth(struct replication *replication, struct shards *shards) {
    replicate_items(replication, shards->ctx);
    filter_replicate(shards->ctx, replication->key, shards->filter);
}

/* The error of the layer to come, so that the sum over all layers stays below the promise. RedisBloom halves the error
 * from layer to layer: n of its layers leave 2^-n of the promise, which our own share among themselves. */
static double next_error(const struct descriptor *descriptor) {
    unsigned nclassic = 0;
    while (nclassic < descriptor->nlayers && descriptor->layers[nclassic].kind == LAYER_CLASSIC)
        nclassic++;
    const double left = ldexp(descriptor->error, -(int)nclassic);
    return fmax(LEAST_ERROR, sizing_layer_error(left, descriptor->nlayers - nclassic, true));
}

/* Appends a layer, in the string of the one before if there is room: an item opens every string that it may be in. */
static bool grow(struct filter *filter) {
    struct descriptor *descriptor = filter->descriptor;
    if (descriptor->expansion == 0 || descriptor->nlayers >= SIZING_MAX_LAYERS) return false;
    const uint64_t capacity = sizing_next_capacity(descriptor_newest(descriptor)->capacity,
                                                   descriptor->expansion, descriptor->nlayers);
    struct layout layout;
    return sizing_plan(capacity, next_error(descriptor), descriptor->shard_bytes, true, &layout) &&
           descriptor_add_layer_joined(descriptor, &layout, capacity);
}

/* The server refuses commands when its memory is used up, but only before they start, and one batch can make a thousand
 * shards. So each new one asks again. A tenth of slack lets a server that evicts, and so is always nearly full, take a
 * usual batch. What the primary has done is repeated in any case. */
static bool out_of_memory(const struct shards *shards) {
    return RedisModule_GetUsedMemoryRatio() > 1.1f &&
           !(RedisModule_GetContextFlags(shards->ctx) &
             (REDISMODULE_CTX_FLAGS_REPLICATED | REDISMODULE_CTX_FLAGS_LOADING));
}

static bool needs_shard(const struct layer *layer, const struct lookup *lookup) {
    if (layer->kind != LAYER_BLOCKED) return layer_count_created(layer) < layer->layout.nshards;
    return !lookup->block &&
           !layer_shard_created(layer, layout_place(&layer->layout, lookup->hash.place).shard);
}

/* One item that the search did not find. Only layers from `first` on have changed since, by earlier items of the same
 * batch, which may have been this very item. */
static void add_one(struct shards *shards, struct replication *replication, uint32_t first,
                    struct lookup *lookup) {
    struct descriptor *descriptor = shards->filter->descriptor;
    for (uint32_t index = first; index + 1 < descriptor->nlayers; index++) {
        search_one(shards, index, lookup);
        if (lookup->answer == ANSWER_KNOWN) return;
    }
    const struct layer *newest = descriptor_newest(descriptor);
    if (newest->nitems >= newest->capacity) {
        search_one(shards, descriptor->nlayers - 1, lookup);
        if (lookup->answer == ANSWER_KNOWN) return;
        if (out_of_memory(shards)) {
            lookup->answer = ANSWER_OOM;
            return;
        }
        if (!grow(shards->filter)) {
            lookup->answer = ANSWER_FULL;
            return;
        }
        replicate_growth(replication, shards);
    }
    /* With a single layer the search has left the block of that layer here, or NULL. */
    if (descriptor->nlayers > 1) lookup->block = NULL;
    if (needs_shard(descriptor_newest(descriptor), lookup) && out_of_memory(shards)) {
        lookup->answer = ANSWER_OOM;
        return;
    }
    if (layer_insert(shards, descriptor->nlayers - 1, lookup))
        replication->changed[replication->nchanged++] = lookup->item;
    else
        lookup->answer = ANSWER_KNOWN;
}

bool filter_add(struct shards *shards, RedisModuleString *key, struct lookup *lookups, size_t n,
                bool verbatim, size_t *nadded) {
    RedisModuleString *stack[64];
    struct replication replication = {.key = key, .changed = stack};
    *nadded = 0;
    if (!filter_check(shards, lookups, n)) return false;
    if (n > sizeof stack / sizeof *stack)
        replication.changed = RedisModule_Alloc(n * sizeof *replication.changed);
    const uint32_t first = shards->filter->descriptor->nlayers - 1;
    for (size_t i = 0; i < n; i++) {
        if (lookups[i].answer == ANSWER_NEW) add_one(shards, &replication, first, &lookups[i]);
        *nadded += lookups[i].answer == ANSWER_NEW;
    }
    if (verbatim && replication.nchanged == n)
        RedisModule_ReplicateVerbatim(
            shards->ctx); /* for a single BF.ADD a third of the command's time */
    else
        replicate_items(&replication, shards->ctx);
    if (replication.changed != stack) RedisModule_Free(replication.changed);
    return true;
}

uint64_t filter_heal(struct shards *shards) {
    const struct descriptor *descriptor = shards->filter->descriptor;
    uint64_t nhealed = 0;
    for (uint32_t layer = 0; layer < descriptor->nlayers; layer++) {
        for (uint32_t shard = 0; shard < descriptor->layers[layer].layout.nshards; shard++) {
            const enum shard_status status = shards_check(shards, layer, shard);
            if (status != SHARD_MISSING && status != SHARD_FOREIGN) continue;
            if (!descriptor->layers[layer].adoption)
                shards_create(shards, layer, shard);
            else if (status == SHARD_MISSING)
                layer_mark_lost(&descriptor->layers[layer], shard);
            else
                continue; /* what took an adopted string's place may be somebody's data */
            shards_check(shards, layer, shard); /* takes it off the list of lost ones */
            shards_close(shards);
            nhealed++;
        }
    }
    return nhealed;
}

double filter_shard_share(const struct descriptor *descriptor, uint32_t layer) {
    const uint64_t total = descriptor_nitems(descriptor);
    const struct layer *at = &descriptor->layers[layer];
    uint64_t nitems = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++)
        if (descriptor->layers[i].home == at->home) nitems += descriptor->layers[i].nitems;
    return total == 0 ? 0 : (double)nitems / (double)total / at->layout.nshards;
}
