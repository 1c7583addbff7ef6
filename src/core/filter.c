/* How a command searches a filter and adds items to it.
 *
 * A batch is processed in two passes. The first searches every layer, newest first, and opens every
 * shard that any item needs. If one is lost, the command fails there, before anything has changed.
 * The second pass adds the new items. Within a pass, all items of a batch go through each step
 * together: hashing, opening their shards, prefetching their blocks, testing. So the processor and
 * the memory work on many items at once. Because of that, and because each shard is opened only
 * once per command, an item of a batch is several times cheaper than a single one. */
#include "core/filter.h"

#include "core/window.h"
#include "core/young.h"

#define AHEAD    16
#define TOGETHER 128
#define LONG_TAG 256u         /* bytes; shorter names take less than the first items of a shard */
#define CACHED   (512u << 10) /* shards up to this size are in the processor's cache anyway */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

bool filter_plan(const struct filter_options *options, struct layout *layout, uint64_t *capacity,
                 double *error) {
    const bool grows = options->expansion > 0;
    const struct window *window = options->window.seconds > 0 ? &options->window : NULL;
    *capacity = window ? window_slice_capacity(window) : options->capacity;
    *error = sizing_layer_error(window_slice_error(options->error, window), 0, grows);
    return sizing_plan(*capacity, *error, options->shard_bytes, !grows, layout);
}

/* Adds the first layer to a new filter. */
static bool begin(struct descriptor *descriptor, const struct filter_options *options) {
    struct layout layout;
    uint64_t capacity;
    double error;
    if (options->window.seconds > 0)
        return descriptor_set_window(descriptor, &options->window) &&
               window_begin(descriptor, options->now_ms);
    return filter_plan(options, &layout, &capacity, &error) &&
           descriptor_add_layer(descriptor, &layout, capacity);
}

struct descriptor *filter_new(const struct filter_options *options, const char *tag,
                              size_t tag_length) {
    struct descriptor *descriptor = descriptor_new(tag, tag_length);
    if (!descriptor) return NULL;
    descriptor->id = options->id;
    descriptor->seed = options->seed;
    descriptor->error = options->error;
    descriptor->shard_bytes = (uint32_t)options->shard_bytes;
    descriptor->expansion = options->expansion;
    if (begin(descriptor, options)) return descriptor;
    descriptor_free(descriptor);
    return NULL;
}

/* ---- blocked layers; the other kinds are behind layer.h ---- */

static inline uint8_t *block_of(const struct layer *layer, const struct lookup *lookup) {
    return shard_blocks(layer, lookup->shard) +
           (size_t)lookup->block * layout_block_bytes(&layer->layout);
}

static inline bool blocked_locate(struct access *access, uint32_t index, struct lookup *lookup) {
    const struct layer *layer = &access->descriptor->layers[index];
    const struct item_place place = layout_place(&layer->layout, lookup->hash.place);
    lookup->shard = access_open(access, index, place.shard);
    lookup->block = place.block;
    return lookup->shard || access->status == SHARD_NONE;
}

/* Prefetches the memory that will be tested for a located item. */
static inline void blocked_prefetch(const struct layer *layer, const struct lookup *lookup) {
    const struct shard *shard = lookup->shard;
    if (!shard) return;
    if (shard->capacity)
        young_prefetch(shard->body, shard->capacity, lookup->hash.bits);
    else
        layout_prefetch(&layer->layout, block_of(layer, lookup), lookup->hash.bits);
}

static inline bool blocked_contains(struct access *access, uint32_t index, struct lookup *lookup) {
    const struct layer *layer = &access->descriptor->layers[index];
    const struct shard *shard = lookup->shard;
    if (!shard) return false;
    if (shard->capacity)
        return young_find(shard->body, shard->capacity, lookup->block, lookup->hash.bits);
    return layout_test(&layer->layout, block_of(layer, lookup), lookup->hash.bits);
}

static uint32_t shard_number(const struct layer *layer, const struct lookup *lookup) {
    return layout_place(&layer->layout, lookup->hash.place).shard;
}

/* A large shard starts young, with only a few hundred bytes; unless its name is long, which the
 * server and our handle have a copy of. */
static inline bool blocked_allocates(struct access *access, uint32_t index, struct lookup *lookup) {
    const struct layer *layer = &access->descriptor->layers[index];
    if (!lookup->shard)
        return layer_is_joined(layer) || !young_begins(&layer->layout) ||
               access->descriptor->tag_length > LONG_TAG;
    return lookup->shard->capacity &&
           access_would_turn(access, index, shard_number(layer, lookup), lookup->shard);
}

static inline enum answer blocked_insert(struct access *access, uint32_t index,
                                         struct lookup *lookup) {
    struct layer *layer = &access->descriptor->layers[index];
    if (!lookup->shard) lookup->shard = access_create(access, index, shard_number(layer, lookup));
    if (!lookup->shard) return ANSWER_LOST;
    enum answer answer;
    if (lookup->shard->capacity)
        answer = access_add_young(access, index, shard_number(layer, lookup), lookup->shard,
                                  lookup->block, lookup->hash.bits);
    else
        answer = layout_set(&layer->layout, block_of(layer, lookup), lookup->hash.bits)
                     ? ANSWER_NEW
                     : ANSWER_KNOWN;
    layer->nitems += answer == ANSWER_NEW;
    return answer;
}

static const struct layer_ops blocked_ops = {blocked_locate, blocked_contains, blocked_allocates,
                                             blocked_insert};

/* ---- a layer of any kind ---- */

static inline const struct layer_ops *ops_of(const struct access *access, uint32_t index) {
    switch (access->descriptor->layers[index].kind) {
    case LAYER_BLOCKED:
        break;
    case LAYER_CLASSIC:
        return &layer_classic_ops;
    case LAYER_ADOPTED:
        return &layer_adopted_ops;
    }
    return &blocked_ops;
}

/* Called if an item's shard in this layer is lost. Returns whether the command can continue. It can
 * if it repeats a primary's command: then no layer contained the item, and only the shard in the
 * newest layer, which takes the item, must be sound. */
static bool go_on_without(struct access *access, uint32_t index, struct lookup *lookup) {
    if (!access->supplier->repeats(access)) return false;
    lookup->shard = NULL;
    if (index + 1 == access->descriptor->nlayers) lookup->answer = ANSWER_LOST;
    return true;
}

/* Tests this layer for an item, unless a newer layer contains it. */
static inline void test(const struct layer_ops *ops, struct access *access, uint32_t index,
                        struct lookup *lookup) {
    if (lookup->answer != ANSWER_NEW || !ops->contains(access, index, lookup)) return;
    lookup->answer = ANSWER_KNOWN;
    lookup->found = index;
}

static inline bool locate(const struct layer_ops *ops, struct access *access, uint32_t index,
                          struct lookup *lookup) {
    return ops->locate(access, index, lookup) || go_on_without(access, index, lookup);
}

/* Marks the items that this layer contains as known. Locates each item AHEAD items before it is
 * tested. */
static bool search_other(const struct layer_ops *ops, struct access *access, uint32_t index,
                         struct lookup *lookups, size_t n) {
    const size_t ahead = n < AHEAD ? n - 1 : AHEAD;
    for (size_t i = 0; i < n + ahead; i++) {
        if (i < n && lookups[i].answer == ANSWER_NEW && !locate(ops, access, index, &lookups[i]))
            return false;
        if (i >= ahead) test(ops, access, index, &lookups[i - ahead]);
    }
    return true;
}

/* The same for a blocked layer and at most TOGETHER items: all are located, then their memory is
 * prefetched, then they are tested. Prefetches in a row keep the processor's memory system busy,
 * page table walks included, while it goes on. With loads instead, it waits as soon as its window
 * of instructions is full; with prefetches in between other work, it is idle half of the time. */
static bool search_blocked(struct access *access, uint32_t index, struct lookup *lookups,
                           size_t n) {
    const struct layer *layer = &access->descriptor->layers[index];
    for (size_t i = 0; i < n; i++)
        if (lookups[i].answer == ANSWER_NEW && !locate(&blocked_ops, access, index, &lookups[i]))
            return false;
    for (size_t i = 0; i < n && layout_shard_bytes(&layer->layout) > CACHED; i++)
        if (lookups[i].answer == ANSWER_NEW) blocked_prefetch(layer, &lookups[i]);
    for (size_t i = 0; i < n; i++) test(&blocked_ops, access, index, &lookups[i]);
    return true;
}

static bool search(struct access *access, uint32_t index, struct lookup *lookups, size_t n) {
    const struct layer_ops *ops = ops_of(access, index);
    if (ops != &blocked_ops) return search_other(ops, access, index, lookups, n);
    for (; n > TOGETHER; lookups += TOGETHER, n -= TOGETHER)
        if (!search_blocked(access, index, lookups, TOGETHER)) return false;
    return search_blocked(access, index, lookups, n);
}

/* ---- all layers ---- */

static inline void hash_items(const struct descriptor *descriptor, struct lookup *lookups,
                              size_t n) {
    for (size_t i = 0; i < n; i++) {
        lookups[i].hash = layout_hash(lookups[i].item, lookups[i].nbytes, descriptor->seed);
        lookups[i].answer = ANSWER_NEW;
        lookups[i].changed = false;
        lookups[i].own_for = 0;
    }
}

/* Prefetches the blocks of a single item, which can't share its waiting with others. The last
 * address of each shard is known and most likely still valid, so prefetching before the shards are
 * opened hides part of the memory latency (10% of a command; a third with ten layers). If the
 * server has moved a string, the processor fetches something else, or nothing. */
static void prefetch_by_hint(const struct access *access, const struct lookup *lookup) {
    const struct handles *handles = access->handles;
    const uint32_t nlayers = access->descriptor->nlayers;
    for (uint32_t i = access->first; i < nlayers; i++) {
        const struct layer *layer = &access->descriptor->layers[i];
        const struct layout *layout = &layer->layout;
        if (layer->kind != LAYER_BLOCKED || layer->home >= handles->nlayers ||
            !handles->parts[layer->home])
            continue;
        const struct item_place place = layout_place(layout, lookup->hash.place);
        const struct shard *shard = handles_at(handles, layer->home, place.shard);
        if (!shard->body || shard->capacity) continue;
        const uintptr_t block =
            (uintptr_t)shard->body + layer->offset + place.block * layout_block_bytes(layout);
        /* With several layers, at most one contains the item, so most tests end early. */
        if (nlayers > 1)
            layout_prefetch_first(layout, (const uint8_t *)block, lookup->hash.bits);
        else
            layout_prefetch(layout, (const uint8_t *)block, lookup->hash.bits);
    }
}

/* Like search, but for a single item and without loops: this is a third of all instructions of a
 * BF.EXISTS. */
ALWAYS_INLINE bool search_one(const struct layer_ops *ops, struct access *access, uint32_t index,
                              struct lookup *lookup) {
    if (!locate(ops, access, index, lookup)) return false;
    test(ops, access, index, lookup);
    return true;
}

static bool check_one(struct access *access, struct lookup *lookup) {
    prefetch_by_hint(access, lookup);
    for (uint32_t i = access->descriptor->nlayers;
         i-- > access->first && lookup->answer == ANSWER_NEW;) {
        const struct layer_ops *ops = ops_of(access, i);
        if (!(ops == &blocked_ops ? search_one(&blocked_ops, access, i, lookup)
                                  : search_one(ops, access, i, lookup)))
            return false;
    }
    return true;
}

bool filter_check(struct access *access, struct lookup *lookups, size_t n) {
    hash_items(access->descriptor, lookups, n);
    if (n == 1) return check_one(access, lookups);
    for (uint32_t index = access->descriptor->nlayers; index-- > access->first;)
        if (!search(access, index, lookups, n)) return false;
    return true;
}

/* Appends a layer to the newest slice. It joins the previous layer's string if there is room,
 * because a command opens every string that an item may be in. */
static bool grow(struct descriptor *descriptor) {
    if (descriptor->expansion == 0 || descriptor->nlayers >= SIZING_MAX_LAYERS) return false;
    unsigned nclassic = 0;
    while (nclassic < descriptor->nlayers && descriptor->layers[nclassic].kind == LAYER_CLASSIC)
        nclassic++;
    const unsigned nlayers = descriptor->nlayers - descriptor_newest_slice(descriptor);
    const double error = sizing_next_error(
        window_slice_error(descriptor->error, descriptor->window), nlayers, nclassic);
    const uint64_t capacity = sizing_next_capacity(descriptor_newest(descriptor)->capacity,
                                                   descriptor->expansion, nlayers);
    struct layout layout;
    return sizing_plan(capacity, error, descriptor->shard_bytes, true, &layout) &&
           descriptor_add_layer_joined(descriptor, &layout, capacity);
}

/* Adds an item to a layer if the server has enough memory. Inlined twice, like search_one: once for
 * blocked layers and once for the other kinds. */
ALWAYS_INLINE enum answer insert_by(const struct layer_ops *ops, struct access *access,
                                    uint32_t index, struct lookup *lookup) {
    /* The same item may have been added earlier in the batch. */
    if (ops->allocates(access, index, lookup) && !access->supplier->may_allocate(access))
        return ops->contains(access, index, lookup) ? ANSWER_KNOWN : ANSWER_OOM;
    return ops->insert(access, index, lookup);
}

/* Appends a layer for more items. The first n lookups are done. */
static enum answer make_room(struct access *access, const struct lookup *lookups, size_t n) {
    if (!access->supplier->may_allocate(access)) return ANSWER_OOM;
    if (!grow(access->descriptor)) return ANSWER_FULL;
    access->supplier->grown(access, lookups, n);
    return ANSWER_NEW;
}

/* Adds lookup number i, which the search did not find. Earlier items of the batch may have changed
 * the layers from `first` on since then, and one of them may have been the same item. */
static enum answer add_one(struct access *access, uint32_t first, struct lookup *lookups,
                           size_t i) {
    struct lookup *lookup = &lookups[i];
    const struct descriptor *descriptor = access->descriptor;
    for (uint32_t index = first; index + 1 < descriptor->nlayers; index++) {
        const struct layer_ops *ops = ops_of(access, index);
        if (ops->locate(access, index, lookup) && ops->contains(access, index, lookup))
            return ANSWER_KNOWN;
    }
    uint32_t newest = descriptor->nlayers - 1;
    const struct layer_ops *ops = ops_of(access, newest);
    /* With a single layer, lookup->shard is still the one that the search found, if any. */
    if ((newest > 0 || !lookup->shard) && !ops->locate(access, newest, lookup)) return ANSWER_LOST;
    if (descriptor->layers[newest].nitems >= descriptor->layers[newest].capacity) {
        if (ops->contains(access, newest, lookup)) return ANSWER_KNOWN;
        const enum answer room = make_room(access, lookups, i);
        if (room != ANSWER_NEW) return room;
        newest = descriptor->nlayers - 1;
        ops = ops_of(access, newest);
        if (!ops->locate(access, newest, lookup)) return ANSWER_LOST;
    }
    return ops == &blocked_ops ? insert_by(&blocked_ops, access, newest, lookup)
                               : insert_by(ops, access, newest, lookup);
}

/* Adds lookup number i, which an older slice contains, to the newest slice as well. It does not
 * count as new: the newest slice counts it instead of the older one. */
static enum answer remember_longer(struct access *access, uint32_t first, struct lookup *lookups,
                                   size_t i) {
    const uint32_t found = lookups[i].found;
    const enum answer answer = add_one(access, first, lookups, i);
    if (answer != ANSWER_NEW) return answer;
    struct layer *older = &access->descriptor->layers[found];
    older->nitems -= older->nitems > 0;
    lookups[i].changed = true;
    return ANSWER_KNOWN;
}

bool filter_add(struct access *access, struct lookup *lookups, size_t n, size_t *nchanged) {
    const struct descriptor *descriptor = access->descriptor;
    *nchanged = 0;
    if (!filter_check(access, lookups, n)) return false;
    const uint32_t first = descriptor->nlayers - 1;
    const uint32_t slice =
        descriptor->window && descriptor->window->sliding ? descriptor_newest_slice(descriptor) : 0;
    for (size_t i = 0; i < n; i++) {
        struct lookup *lookup = &lookups[i];
        if (lookup->answer == ANSWER_NEW) {
            lookup->answer = add_one(access, first, lookups, i);
            lookup->changed = lookup->answer == ANSWER_NEW;
        } else if (lookup->answer == ANSWER_KNOWN && lookup->found < slice) {
            lookup->answer = remember_longer(access, first, lookups, i);
        }
        *nchanged += lookup->changed;
    }
    return true;
}

double filter_shard_share(const struct descriptor *descriptor, uint32_t first, uint32_t layer) {
    const struct layer *at = &descriptor->layers[layer];
    uint64_t nitems = 0, total = 0;
    for (uint32_t i = first; i < descriptor->nlayers; i++) {
        total += descriptor->layers[i].nitems;
        if (descriptor->layers[i].home == at->home) nitems += descriptor->layers[i].nitems;
    }
    return total == 0 ? 0 : (double)nitems / (double)total / at->layout.nshards;
}
