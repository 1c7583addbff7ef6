#include "core/descriptor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"

/* Without a server, aborting is the best that can be done when memory runs out. */
static void *need(size_t nbytes) {
    void *memory = malloc(nbytes);
    if (!memory) abort();
    return memory;
}

static void *need_zeroed(size_t n, size_t nbytes) {
    void *memory = calloc(n, nbytes);
    if (!memory) abort();
    return memory;
}

struct allocator descriptor_allocator = {malloc, realloc, need, need_zeroed, free};

static void *alloc_zeroed(size_t nbytes) {
    void *memory = descriptor_allocator.alloc(nbytes);
    if (memory) memset(memory, 0, nbytes);
    return memory;
}

static void adoption_free(struct adoption *adoption) {
    if (!adoption) return;
    descriptor_allocator.free(adoption->prefix);
    descriptor_allocator.free(adoption);
}

struct adoption *adoption_copy(const struct adoption *from) {
    struct adoption *copy = alloc_zeroed(sizeof *copy);
    if (!copy) return NULL;
    *copy = *from;
    copy->prefix = descriptor_allocator.alloc((size_t)from->prefix_length + 1);
    if (copy->prefix) {
        memcpy(copy->prefix, from->prefix, from->prefix_length);
        return copy;
    }
    adoption_free(copy);
    return NULL;
}

struct descriptor *descriptor_new(const char *tag, size_t tag_length) {
    struct descriptor *descriptor = alloc_zeroed(sizeof *descriptor);
    if (!descriptor) return NULL;
    descriptor->tag = descriptor_allocator.alloc(tag_length + 1);
    if (!descriptor->tag) {
        descriptor_free(descriptor);
        return NULL;
    }
    memcpy(descriptor->tag, tag, tag_length);
    descriptor->tag_length = (uint32_t)tag_length;
    return descriptor;
}

bool descriptor_set_tag(struct descriptor *descriptor, const char *tag, size_t tag_length) {
    char *copy = descriptor_allocator.alloc(tag_length + 1);
    if (!copy) return false;
    memcpy(copy, tag, tag_length);
    descriptor_allocator.free(descriptor->tag);
    descriptor->tag = copy;
    descriptor->tag_length = (uint32_t)tag_length;
    return true;
}

void descriptor_free(struct descriptor *descriptor) {
    if (!descriptor) return;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        descriptor_allocator.free(descriptor->layers[i].created);
        adoption_free(descriptor->layers[i].adoption);
    }
    descriptor_allocator.free(descriptor->layers);
    descriptor_allocator.free(descriptor->window);
    descriptor_allocator.free(descriptor->load);
    descriptor_allocator.free(descriptor->tag);
    descriptor_allocator.free(descriptor);
}

bool descriptor_set_window(struct descriptor *descriptor, const struct window *window) {
    descriptor->window = descriptor_allocator.alloc(sizeof *window);
    if (descriptor->window) *descriptor->window = *window;
    return descriptor->window != NULL;
}

bool descriptor_begin_load(struct descriptor *descriptor, const struct load *load) {
    descriptor->load = descriptor_allocator.alloc(sizeof *load);
    if (descriptor->load) *descriptor->load = *load;
    return descriptor->load != NULL;
}

void descriptor_end_load(struct descriptor *descriptor) {
    descriptor_allocator.free(descriptor->load);
    descriptor->load = NULL;
}

bool descriptor_append(struct descriptor *descriptor, const struct layer *like) {
    if (descriptor_number(descriptor, descriptor->nlayers) == UINT32_MAX) return false;
    uint8_t *created = alloc_zeroed(layer_bitmap_bytes(&like->layout));
    if (!created) return false;
    struct layer *layers = descriptor_allocator.realloc(descriptor->layers,
                                                        (descriptor->nlayers + 1) * sizeof *layers);
    if (!layers) {
        descriptor_allocator.free(created);
        return false;
    }
    descriptor->layers = layers;
    struct layer *layer = &layers[descriptor->nlayers++];
    *layer = *like;
    layer->created = created;
    layer->home = descriptor->nlayers - 1;
    layer->offset = 0;
    if (layer->kind == LAYER_BLOCKED && layer->flags & LAYER_JOINED) {
        layer->home = layer[-1].home;
        layer->offset = layer[-1].offset + (uint32_t)layout_shard_bytes(&layer[-1].layout);
    }
    return true;
}

/* A copy without layers. */
static struct descriptor *copy_head(const struct descriptor *from) {
    struct descriptor *copy = descriptor_new(from->tag, from->tag_length);
    if (!copy) return NULL;
    char *tag = copy->tag;
    *copy = *from;
    copy->tag = tag;
    copy->layers = NULL;
    copy->nlayers = 0;
    copy->window = NULL;
    copy->load = NULL;
    if ((!from->window || descriptor_set_window(copy, from->window)) &&
        (!from->load || descriptor_begin_load(copy, from->load)))
        return copy;
    descriptor_free(copy);
    return NULL;
}

struct descriptor *descriptor_copy(const struct descriptor *from) {
    struct descriptor *copy = copy_head(from);
    if (!copy) return NULL;
    for (uint32_t i = 0; i < from->nlayers; i++) {
        struct layer layer = from->layers[i];
        if (layer.adoption && !(layer.adoption = adoption_copy(layer.adoption))) break;
        if (!descriptor_append(copy, &layer)) {
            adoption_free(layer.adoption);
            break;
        }
        memcpy(descriptor_newest(copy)->created, layer.created, layer_bitmap_bytes(&layer.layout));
    }
    if (copy->nlayers == from->nlayers) return copy;
    descriptor_free(copy);
    return NULL;
}

/* When the newest slice began. */
static uint64_t slice_began(const struct descriptor *descriptor) {
    return descriptor->nlayers == 0 ? 0 : descriptor_newest(descriptor)->began_ms;
}

uint32_t descriptor_newest_slice(const struct descriptor *descriptor) {
    uint32_t first = descriptor->nlayers;
    while (first > 0 && descriptor->layers[first - 1].began_ms == slice_began(descriptor)) first--;
    return first;
}

uint32_t descriptor_whole_strings(const struct descriptor *descriptor, uint32_t n) {
    return n < descriptor->nlayers ? descriptor->layers[n].home : descriptor->nlayers;
}

struct descriptor *descriptor_split(struct descriptor *descriptor, uint32_t n) {
    struct descriptor *gone = descriptor->window ? copy_head(descriptor) : NULL;
    if (gone) gone->layers = descriptor_allocator.alloc(n * sizeof *gone->layers);
    if (!gone || !gone->layers) {
        descriptor_free(gone);
        return NULL;
    }
    memcpy(gone->layers, descriptor->layers, n * sizeof *gone->layers);
    gone->nlayers = n;
    gone->window->nover = 0;
    descriptor->nlayers -= n;
    memmove(descriptor->layers, descriptor->layers + n,
            descriptor->nlayers * sizeof *descriptor->layers);
    for (uint32_t i = 0; i < descriptor->nlayers; i++) descriptor->layers[i].home -= n;
    struct window *window = descriptor->window;
    window->first_number += n;
    window->nover -= window->nover < n ? window->nover : n;
    return gone;
}

void descriptor_drop_newest(struct descriptor *descriptor) {
    descriptor_allocator.free(descriptor_newest(descriptor)->created);
    descriptor->nlayers--;
}

bool descriptor_add_layer(struct descriptor *descriptor, const struct layout *layout,
                          uint64_t capacity) {
    const struct layer layer = {.kind = LAYER_BLOCKED,
                                .layout = *layout,
                                .capacity = capacity,
                                .began_ms = slice_began(descriptor)};
    return descriptor_append(descriptor, &layer);
}

const char *descriptor_join_problem(const struct descriptor *descriptor, const struct layer *layer,
                                    uint64_t max_bytes) {
    if (descriptor->nlayers == 0) return "a first layer that is joined";
    const struct layer *newest = descriptor_newest(descriptor);
    if (newest->kind != LAYER_BLOCKED || newest->layout.nshards != 1 || layer->layout.nshards != 1)
        return "joined layers with several shards, or of different kinds";
    if (layer->began_ms != newest->began_ms &&
        newest->began_ms != descriptor->layers[newest->home].began_ms)
        return "a string that belongs to three slices";
    const uint64_t nbytes =
        newest->offset + layout_shard_bytes(&newest->layout) + layout_shard_bytes(&layer->layout);
    return nbytes > max_bytes - SIZING_SHARD_OVERHEAD ? "joined layers that are too long" : NULL;
}

bool descriptor_add_layer_joined(struct descriptor *descriptor, const struct layout *layout,
                                 uint64_t capacity) {
    struct layer layer = {.kind = LAYER_BLOCKED,
                          .layout = *layout,
                          .capacity = capacity,
                          .began_ms = slice_began(descriptor)};
    const uint64_t nblocks = (uint64_t)layout->nshards * layout->nblocks;
    if (nblocks <= UINT32_MAX) {
        struct layer whole = layer;
        whole.flags = LAYER_JOINED;
        whole.layout.nshards = 1;
        whole.layout.nblocks = (uint32_t)nblocks;
        if (!descriptor_join_problem(descriptor, &whole, descriptor->shard_bytes)) layer = whole;
    }
    return descriptor_append(descriptor, &layer);
}

size_t descriptor_string_bytes(const struct descriptor *descriptor, uint32_t home) {
    const struct layer *layer = &descriptor->layers[home];
    size_t nbytes = layout_shard_bytes(&layer->layout);
    for (uint32_t i = home + 1; i < descriptor->nlayers; i++) {
        layer = &descriptor->layers[i];
        if (layer->home != home || !layer_shard_created(layer, 0)) break;
        nbytes += layout_shard_bytes(&layer->layout);
    }
    return nbytes;
}

/* The layout that follows from a recipe. */
static struct layout adopted_layout(const struct recipe *recipe) {
    return (struct layout){.nshards = recipe->nstrings,
                           .nblocks = 1u << (recipe->log2_bits - LAYOUT_MIN_BLOCK_LOG2),
                           .block_log2 = LAYOUT_MIN_BLOCK_LOG2,
                           .nprobes = recipe->nseeds};
}

bool descriptor_add_adopted(struct descriptor *descriptor, const struct adoption *adoption) {
    const struct layer layer = {.kind = LAYER_ADOPTED,
                                .layout = adopted_layout(&adoption->recipe),
                                .capacity = recipe_capacity(&adoption->recipe),
                                .adoption = adoption_copy(adoption)};
    if (layer.adoption && descriptor_append(descriptor, &layer)) return true;
    adoption_free(layer.adoption);
    return false;
}

void descriptor_own_adopted(struct descriptor *descriptor) {
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        struct adoption *adoption = descriptor->layers[i].adoption;
        if (!adoption) continue;
        adoption->owned = true;
        adoption->numbered = false;
        adoption->prefix_length = 0;
    }
}

void descriptor_disown(struct descriptor *descriptor) {
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        struct layer *layer = &descriptor->layers[i];
        if (!layer_owns_shards(layer))
            memset(layer->created, 0, layer_bitmap_bytes(&layer->layout));
    }
}

uint32_t layer_count_created(const struct layer *layer) {
    return (uint32_t)bytes_popcount(layer->created, layer_bitmap_bytes(&layer->layout));
}

uint32_t layer_next_created(const struct layer *layer, uint32_t shard) {
    const uint32_t nshards = layer->layout.nshards;
    while (shard < nshards && !layer_shard_created(layer, shard))
        shard += shard % 8 == 0 && layer->created[shard / 8] == 0 ? 8 : 1;
    return shard < nshards ? shard : nshards;
}

uint64_t descriptor_capacity(const struct descriptor *descriptor) {
    uint64_t capacity = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) capacity += descriptor->layers[i].capacity;
    return capacity;
}

uint64_t descriptor_nitems(const struct descriptor *descriptor) {
    uint64_t nitems = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) nitems += descriptor->layers[i].nitems;
    return nitems;
}

uint64_t descriptor_nshards(const struct descriptor *descriptor) {
    uint64_t nshards = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++)
        if (!layer_is_joined(&descriptor->layers[i]))
            nshards += layer_count_created(&descriptor->layers[i]);
    return nshards;
}

uint64_t descriptor_nstored(const struct descriptor *descriptor) {
    uint64_t nbytes = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) nbytes += descriptor->layers[i].nstored;
    return nbytes;
}

bool descriptor_next_string(const struct descriptor *descriptor, struct string_cursor *at) {
    for (; at->layer < descriptor->nlayers; at->layer++, at->next = 0) {
        const struct layer *layer = &descriptor->layers[at->layer];
        if (at->next >= layer_nstrings(layer)) continue;
        at->shard = layer_next_created(layer, at->next);
        at->next = at->shard + 1;
        if (at->shard < layer->layout.nshards) return true;
    }
    return false;
}

void descriptor_forget_string(struct descriptor *descriptor, const struct string_cursor *at) {
    for (uint32_t i = at->layer; i < descriptor->nlayers; i++)
        if (descriptor->layers[i].home == at->layer)
            layer_mark_absent(&descriptor->layers[i], at->shard);
}

void descriptor_clear_strings(struct descriptor *descriptor) {
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        struct layer *layer = &descriptor->layers[i];
        memset(layer->created, 0, layer_bitmap_bytes(&layer->layout));
        layer->nstored = 0;
    }
}

/* ---- what must hold ---- */

/* What is wrong with a layout of any kind of layer, or NULL. The products can't overflow because
 * their factors were checked before. */
static const char *layout_problem(const struct layout *layout, unsigned max_probes,
                                  unsigned overhead) {
    if (layout->block_log2 < LAYOUT_MIN_BLOCK_LOG2 || layout->block_log2 > LAYOUT_MAX_BLOCK_LOG2)
        return "block width out of range";
    if (layout->nprobes < 1 || layout->nprobes > max_probes) return "number of probes out of range";
    if (layout->nshards < 1 || layout->nshards > LAYOUT_MAX_SHARDS)
        return "number of shards out of range";
    if (layout->nblocks < 1) return "a shard without blocks";
    if (((uint64_t)layout->nblocks << (layout->block_log2 - 3)) > SIZING_MAX_SHARD_BYTES - overhead)
        return "shards larger than a string can be";
    return NULL;
}

/* RedisBloom's count may exceed the layer's capacity. It is limited only so that the sum over all
 * layers can't overflow. */
static const char *classic_problem(const struct layer *layer) {
    const uint64_t room = layer->layout.nshards * (uint64_t)layout_shard_bytes(&layer->layout);
    if (layer->flags & ~LAYER_WIDE) return "unknown flags of a layer";
    if (layer->nbits < 1 || (layer->nbits - 1) / 8 >= layer->nbytes || layer->nbytes > room)
        return "more bits than bytes";
    return layer->nitems > SIZING_MAX_CAPACITY ? "more items than possible" : NULL;
}

/* The item count of an adopted layer is an estimate, and may exceed its capacity: others wrote its
 * strings. */
static const char *adoption_problem(const struct layer *layer) {
    const struct adoption *adoption = layer->adoption;
    const char *problem = recipe_problem(&adoption->recipe);
    if (problem) return problem;
    const struct layout layout = adopted_layout(&adoption->recipe);
    if (!layout_is_same(&layout, &layer->layout)) return "a layout that is not the recipe's";
    if (adoption->prefix_length > DESCRIPTOR_MAX_TAG) return "a prefix that is too long";
    if (adoption->owned && (adoption->numbered || adoption->prefix_length > 0))
        return "own strings with a name";
    if (!adoption->owned && !adoption->numbered && layout.nshards > 1)
        return "several strings, one name";
    return layer->nitems > SIZING_MAX_CAPACITY ? "more items than possible" : NULL;
}

const char *layer_problem(const struct layer *layer) {
    const bool classic = layer->kind == LAYER_CLASSIC, adopted = layer->kind == LAYER_ADOPTED;
    const char *problem = layout_problem(&layer->layout, classic ? UINT8_MAX : LAYOUT_MAX_PROBES,
                                         adopted ? 0 : SIZING_SHARD_OVERHEAD);
    if (problem) return problem;
    if (layer->capacity < 1 || layer->capacity > SIZING_MAX_CAPACITY)
        return "capacity out of range";
    if (classic) return classic_problem(layer);
    if (layer->flags & ~(adopted ? 0 : LAYER_JOINED)) return "unknown flags of a layer";
    if (adopted) return layer->adoption ? adoption_problem(layer) : NULL;
    /* A union may hold more than its capacity. The limit keeps the sum over all layers from
     * overflowing. */
    return layer->nitems > SIZING_MAX_CAPACITY ? "more items than possible" : NULL;
}

const char *descriptor_head_problem(const struct descriptor *descriptor) {
    if (!isfinite(descriptor->error) || descriptor->error < SIZING_MIN_ERROR ||
        descriptor->error > SIZING_MAX_ERROR)
        return "error rate out of range";
    if (descriptor->shard_bytes < SIZING_MIN_SHARD_BYTES ||
        descriptor->shard_bytes > SIZING_MAX_SHARD_BYTES)
        return "shard size out of range";
    if (descriptor->expansion > DESCRIPTOR_MAX_EXPANSION) return "expansion out of range";
    if (descriptor->tag_length > DESCRIPTOR_MAX_TAG) return "a name that is too long";
    return NULL;
}

const char *load_problem(const struct load *load) {
    if (load->origin != LOAD_OURS && load->origin != LOAD_REDISBLOOM)
        return "unknown origin of a half-loaded filter";
    return load->next == 0 ? "a half-loaded filter that needs no more chunks" : NULL;
}

const char *window_problem(const struct window *window) {
    if (window->seconds < 1 || window->seconds > WINDOW_MAX_SECONDS) return "window out of range";
    if (window->nslices < 1 || window->nslices > WINDOW_MAX_SLICES)
        return "number of slices out of range";
    if ((uint64_t)window->seconds * 1000 < (uint64_t)window->nslices * WINDOW_MIN_SLICE_MS)
        return "slices that are too short";
    if (window->capacity < 1 || window->capacity > SIZING_MAX_CAPACITY)
        return "capacity of a window out of range";
    return window->first_number > WINDOW_MAX_NUMBER ? "number of a layer out of range" : NULL;
}

/* Does this layer begin a slice? Without windows, all layers are one slice. */
static bool begins_slice(const struct descriptor *descriptor, uint32_t layer) {
    return layer == 0 ||
           descriptor->layers[layer].began_ms != descriptor->layers[layer - 1].began_ms;
}

/* Checks that slices follow each other in time. */
static const char *slices_problem(const struct descriptor *descriptor) {
    const struct window *window = descriptor->window;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        if (!window && layer->began_ms != 0) return "a slice without a window";
        if (descriptor->expansion == 0 && !begins_slice(descriptor, i))
            return "several layers, but no expansion";
        if (!window) continue;
        if (layer->kind != LAYER_BLOCKED) return "a window over layers of another kind";
        if (layer->began_ms < 1 || layer->began_ms > WINDOW_MAX_MS) return "a time out of range";
        if (i > 0 && layer->began_ms < layer[-1].began_ms) return "slices out of order";
    }
    if (window && window->nover > 0 &&
        (window->nover >= descriptor->nlayers || !begins_slice(descriptor, window->nover)))
        return "a slice that is over in part";
    return NULL;
}

const char *descriptor_problem(const struct descriptor *descriptor) {
    const bool loading = descriptor->load != NULL;
    const char *problem = descriptor_head_problem(descriptor);
    if (!problem && loading) problem = load_problem(descriptor->load);
    if (problem) return problem;
    if (descriptor->nlayers < 1 || descriptor->nlayers > SIZING_MAX_LAYERS)
        return "number of layers out of range";
    if (descriptor->window) problem = window_problem(descriptor->window);
    if (!problem) problem = slices_problem(descriptor);
    if (problem) return problem;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        problem = layer_problem(layer);
        if (problem) return problem;
        if (layer->adoption && i > 0) return "an adopted layer that is not the first";
        if (layer->adoption && loading) return "a half-loaded filter with an adopted layer";
        if (layer->nstored > layer_most_stored(layer)) return "more bytes than its shards can have";
        /* RedisBloom's counts are not checked, but items counted by us need a shard. */
        if (layer->nitems > 0 && layer->kind == LAYER_BLOCKED && !loading &&
            layer_count_created(layer) == 0)
            return "items but no shards";
        /* The layers in a string have no gaps. */
        if (layer_is_joined(layer) && layer_shard_created(layer, 0) &&
            !layer_shard_created(&descriptor->layers[i - 1], 0))
            return "a joined layer behind one that does not exist";
    }
    return NULL;
}
