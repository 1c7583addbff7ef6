#include "core/descriptor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/sizing.h"

struct allocator descriptor_allocator = {malloc, realloc, free};

/* Bytes of the fixed parts of the encoding; the tag and the layers' bitmaps come on top. */
#define HEAD_BYTES  (4 + 8 + 8 + 8 + 8 + 4 + 4 + 2 + 1)
#define LAYER_BYTES (1 + 1 + 1 + 1 + 4 + 4 + 8 + 8)

/* An adopted layer has more behind its bitmap: digest, flags, log2 of the bits, number of seeds, length of the prefix;
 * then the seeds and the prefix. */
#define ADOPTION_BYTES    (1 + 1 + 1 + 1 + 2)
#define ADOPTION_NUMBERED 1u
#define ADOPTION_OWNED    2u

/* A classic layer has more: nbits and nbytes, behind the fixed part. */
#define CLASSIC_BYTES (8 + 8)

/* The load state follows the last layer if the number of layers has this bit. */
#define LOADING_BIT 0x80u
#define LOAD_BYTES  (1 + 8 + 8 + 8 + 8)
_Static_assert(SIZING_MAX_LAYERS < LOADING_BIT, "the number of layers needs the bit");

static const uint8_t descriptor_magic[3] = {'B', 'F', 'D'};
static const uint8_t shard_magic[4] = {'B', 'F', 'S', 'H'};

static size_t bitmap_bytes(uint32_t nshards) {
    return ((size_t)nshards + 7) / 8;
}

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

static struct adoption *adoption_copy(const struct adoption *from) {
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
    descriptor_allocator.free(descriptor->tag);
    descriptor_allocator.free(descriptor);
}

bool descriptor_append(struct descriptor *descriptor, const struct layer *like) {
    uint8_t *created = alloc_zeroed(bitmap_bytes(like->layout.nshards));
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
        layer->offset = layer[-1].offset + layout_shard_bytes(&layer[-1].layout);
    }
    return true;
}

bool descriptor_add_layer(struct descriptor *descriptor, const struct layout *layout,
                          uint64_t capacity) {
    const struct layer layer = {.kind = LAYER_BLOCKED, .layout = *layout, .capacity = capacity};
    return descriptor_append(descriptor, &layer);
}

/* Why a blocked layer can't share the string of the newest one, which must not get longer than max_bytes; NULL: it can. */
static const char *join_problem(const struct descriptor *descriptor, const struct layout *layout,
                                uint64_t max_bytes) {
    if (descriptor->nlayers == 0) return "a first layer that is joined";
    const struct layer *newest = descriptor_newest(descriptor);
    if (newest->kind != LAYER_BLOCKED || newest->layout.nshards != 1 || layout->nshards != 1)
        return "joined layers with several shards, or of different kinds";
    const uint64_t nbytes =
        newest->offset + layout_shard_bytes(&newest->layout) + layout_shard_bytes(layout);
    return nbytes > max_bytes - SIZING_SHARD_OVERHEAD ? "joined layers that are too long" : NULL;
}

bool descriptor_add_layer_joined(struct descriptor *descriptor, const struct layout *layout,
                                 uint64_t capacity) {
    struct layer layer = {.kind = LAYER_BLOCKED, .layout = *layout, .capacity = capacity};
    const uint64_t nblocks = (uint64_t)layout->nshards * layout->nblocks;
    if (nblocks <= UINT32_MAX) {
        const struct layout whole = {.nshards = 1,
                                     .nblocks = (uint32_t)nblocks,
                                     .block_log2 = layout->block_log2,
                                     .nprobes = layout->nprobes};
        if (!join_problem(descriptor, &whole, descriptor->shard_bytes)) {
            layer.layout = whole;
            layer.flags = LAYER_JOINED;
        }
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
            memset(layer->created, 0, bitmap_bytes(layer->layout.nshards));
    }
}

uint32_t layer_count_created(const struct layer *layer) {
    uint32_t count = 0;
    for (size_t i = 0; i < bitmap_bytes(layer->layout.nshards); i++)
        count += (uint32_t)__builtin_popcount(layer->created[i]);
    return count;
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

uint64_t descriptor_shard_bytes(const struct descriptor *descriptor) {
    uint64_t nbytes = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        if (layer->adoption) continue;
        const uint64_t header = layer_is_joined(layer) ? 0 : SHARD_HEADER_BYTES;
        nbytes += layer_count_created(layer) * (header + layout_shard_bytes(&layer->layout));
    }
    return nbytes;
}

/* ---- encoding: little-endian, by shifts, so that it is the same on every machine ---- */

static uint8_t *put(uint8_t *at, uint64_t value, unsigned nbytes) {
    for (; nbytes > 0; nbytes--, value >>= 8) *at++ = (uint8_t)value;
    return at;
}

static uint64_t get(const uint8_t **at, unsigned nbytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < nbytes; i++) value |= (uint64_t)(*at)[i] << (8 * i);
    *at += nbytes;
    return value;
}

static uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t read_u64(const uint8_t *at) {
    return read_u32(at) | (uint64_t)read_u32(at + 4) << 32;
}

static size_t extra_bytes(enum layer_kind kind) {
    return kind == LAYER_CLASSIC ? CLASSIC_BYTES : 0;
}

size_t descriptor_encoded_size(const struct descriptor *descriptor) {
    size_t nbytes = HEAD_BYTES + descriptor->tag_length;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct adoption *adoption = descriptor->layers[i].adoption;
        nbytes += LAYER_BYTES + extra_bytes(descriptor->layers[i].kind) +
                  bitmap_bytes(descriptor->layers[i].layout.nshards);
        if (adoption)
            nbytes += ADOPTION_BYTES + 8u * adoption->recipe.nseeds + adoption->prefix_length;
    }
    return nbytes + (descriptor->load.origin == LOAD_NONE ? 0 : LOAD_BYTES);
}

static uint8_t *encode_load(const struct load *load, uint8_t *at) {
    at = put(at, load->origin, 1);
    at = put(at, load->source, 8);
    at = put(at, load->next, 8);
    at = put(at, load->nbytes, 8);
    return put(at, load->total, 8);
}

static uint8_t *encode_adoption(const struct adoption *adoption, uint8_t *at) {
    const struct recipe *recipe = &adoption->recipe;
    at = put(at, recipe->digest, 1);
    at = put(at,
             (adoption->numbered ? ADOPTION_NUMBERED : 0) | (adoption->owned ? ADOPTION_OWNED : 0),
             1);
    at = put(at, recipe->log2_bits, 1);
    at = put(at, recipe->nseeds, 1);
    at = put(at, adoption->prefix_length, 2);
    for (unsigned i = 0; i < recipe->nseeds; i++) at = put(at, recipe->seeds[i], 8);
    memcpy(at, adoption->prefix, adoption->prefix_length);
    return at + adoption->prefix_length;
}

void descriptor_encode(const struct descriptor *descriptor, uint8_t *at) {
    uint64_t error;
    memcpy(&error, &descriptor->error, sizeof error);
    memcpy(at, descriptor_magic, sizeof descriptor_magic);
    at = put(at + sizeof descriptor_magic, DESCRIPTOR_VERSION, 1);
    at = put(at, descriptor->id, 8);
    at = put(at, descriptor->seed, 8);
    at = put(at, error, 8);
    at = put(at, descriptor->shard_bytes, 8);
    at = put(at, descriptor->ncopies, 4);
    at = put(at, descriptor->expansion, 4);
    at = put(at, descriptor->tag_length, 2);
    memcpy(at, descriptor->tag, descriptor->tag_length);
    const unsigned loading = descriptor->load.origin == LOAD_NONE ? 0 : LOADING_BIT;
    at = put(at + descriptor->tag_length, descriptor->nlayers | loading, 1);
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        at = put(at, layer->kind, 1);
        at = put(at, layer->layout.block_log2, 1);
        at = put(at, layer->layout.nprobes, 1);
        at = put(at, layer->flags, 1);
        at = put(at, layer->layout.nshards, 4);
        at = put(at, layer->layout.nblocks, 4);
        at = put(at, layer->capacity, 8);
        at = put(at, layer->nitems, 8);
        if (layer->kind == LAYER_CLASSIC) {
            at = put(at, layer->nbits, 8);
            at = put(at, layer->nbytes, 8);
        }
        memcpy(at, layer->created, bitmap_bytes(layer->layout.nshards));
        at += bitmap_bytes(layer->layout.nshards);
        if (layer->adoption) at = encode_adoption(layer->adoption, at);
    }
    if (loading) encode_load(&descriptor->load, at);
}

/* What must hold of a layout whatever made it. Products are bounded by the ranges of their factors. */
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

/* RedisBloom's count may exceed the capacity, but not what all the layers' counts are added up in. */
static const char *classic_problem(const struct layer *layer) {
    const uint64_t room = layer->layout.nshards * (uint64_t)layout_shard_bytes(&layer->layout);
    if (layer->flags & ~LAYER_WIDE) return "unknown flags of a layer";
    if (layer->nbits < 1 || (layer->nbits - 1) / 8 >= layer->nbytes || layer->nbytes > room)
        return "more bits than bytes";
    return layer->nitems > SIZING_MAX_CAPACITY ? "more items than possible" : NULL;
}

static bool same_layout(const struct layout *a, const struct layout *b) {
    return a->nshards == b->nshards && a->nblocks == b->nblocks && a->block_log2 == b->block_log2 &&
           a->nprobes == b->nprobes;
}

/* The items of an adopted layer are an estimate: it may hold more than it should, in strings that others made. */
static const char *adoption_problem(const struct layer *layer) {
    const struct adoption *adoption = layer->adoption;
    const char *problem = recipe_problem(&adoption->recipe);
    if (problem) return problem;
    const struct layout layout = adopted_layout(&adoption->recipe);
    if (!same_layout(&layout, &layer->layout)) return "a layout that is not the recipe's";
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
    return layer->nitems > layer->capacity ? "more items than capacity" : NULL;
}

static const char *head_problem(const struct descriptor *descriptor) {
    if (!isfinite(descriptor->error) || descriptor->error < SIZING_MIN_ERROR ||
        descriptor->error > SIZING_MAX_ERROR)
        return "error rate out of range";
    if (descriptor->shard_bytes < SIZING_MIN_SHARD_BYTES ||
        descriptor->shard_bytes > SIZING_MAX_SHARD_BYTES)
        return "shard size out of range";
    if (descriptor->expansion > DESCRIPTOR_MAX_EXPANSION) return "expansion out of range";
    return NULL;
}

static const char *load_problem(const struct load *load) {
    if (load->origin != LOAD_OURS && load->origin != LOAD_REDISBLOOM)
        return "unknown origin of a half-loaded filter";
    return load->next == 0 ? "a half-loaded filter that waits for nothing" : NULL;
}

const char *descriptor_problem(const struct descriptor *descriptor) {
    const bool loading = descriptor->load.origin != LOAD_NONE;
    const char *problem = head_problem(descriptor);
    if (!problem && loading) problem = load_problem(&descriptor->load);
    if (problem) return problem;
    if (descriptor->nlayers < 1 || descriptor->nlayers > SIZING_MAX_LAYERS)
        return "number of layers out of range";
    if (descriptor->expansion == 0 && descriptor->nlayers > 1)
        return "several layers, but no expansion";
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        problem = layer_problem(layer);
        if (problem) return problem;
        if (layer->adoption && i > 0) return "an adopted layer that is not the first";
        if (layer->adoption && loading) return "a half-loaded filter with an adopted layer";
        /* RedisBloom's counts are its own affair; of ours a shard must follow. */
        if (layer->nitems > 0 && layer->kind == LAYER_BLOCKED && !loading &&
            layer_count_created(layer) == 0)
            return "items but no shards";
        /* A string holds its layers without gaps. */
        if (layer_is_joined(layer) && layer_shard_created(layer, 0) &&
            !layer_shard_created(&descriptor->layers[i - 1], 0))
            return "a joined layer behind one that does not exist";
    }
    return NULL;
}

/* What stands behind the bitmap of an adopted layer. */
static const char *decode_adoption(struct layer *layer, const uint8_t **at, const uint8_t *end) {
    struct adoption adoption = {.recipe = {.nstrings = layer->layout.nshards}};
    struct recipe *recipe = &adoption.recipe;
    if ((size_t)(end - *at) < ADOPTION_BYTES) return "too short";
    recipe->digest = (enum recipe_digest)get(at, 1);
    const unsigned flags = (unsigned)get(at, 1);
    recipe->log2_bits = (uint8_t)get(at, 1);
    recipe->nseeds = (uint8_t)get(at, 1);
    adoption.prefix_length = (uint32_t)get(at, 2);
    if (flags & ~(ADOPTION_NUMBERED | ADOPTION_OWNED)) return "unknown flags of an adopted layer";
    adoption.numbered = flags & ADOPTION_NUMBERED;
    adoption.owned = flags & ADOPTION_OWNED;
    const char *problem = recipe_problem(recipe); /* before its number of seeds is believed */
    if (problem) return problem;
    if ((size_t)(end - *at) < 8u * recipe->nseeds + adoption.prefix_length) return "too short";
    for (unsigned i = 0; i < recipe->nseeds; i++) recipe->seeds[i] = get(at, 8);
    adoption.prefix = (char *)*at;
    *at += adoption.prefix_length;
    layer->adoption = adoption_copy(&adoption);
    return layer->adoption ? NULL : "out of memory";
}

/* Reads the layer at *at, appends it, and moves *at behind it. What it appends can be freed, and is checked as far as
 * its size goes; descriptor_problem checks the rest. */
static const char *decode_layer(struct descriptor *descriptor, const uint8_t **at,
                                const uint8_t *end) {
    if ((size_t)(end - *at) < LAYER_BYTES) return "too short";
    struct layer layer = {0};
    const unsigned kind = (unsigned)get(at, 1);
    if (kind != LAYER_BLOCKED && kind != LAYER_CLASSIC && kind != LAYER_ADOPTED)
        return "unknown kind of layer";
    layer.kind = (enum layer_kind)kind;
    layer.layout.block_log2 = (uint8_t)get(at, 1);
    layer.layout.nprobes = (uint8_t)get(at, 1);
    layer.flags = (uint8_t)get(at, 1);
    layer.layout.nshards = (uint32_t)get(at, 4);
    layer.layout.nblocks = (uint32_t)get(at, 4);
    layer.capacity = get(at, 8);
    layer.nitems = get(at, 8);
    if ((size_t)(end - *at) < extra_bytes(layer.kind)) return "too short";
    if (layer.kind == LAYER_CLASSIC) {
        layer.nbits = get(at, 8);
        layer.nbytes = get(at, 8);
    }
    const char *problem = layer_problem(&layer);
    if (!problem && layer.kind == LAYER_BLOCKED && layer.flags & LAYER_JOINED)
        problem = join_problem(descriptor, &layer.layout, SIZING_MAX_SHARD_BYTES);
    if (problem) return problem;
    const size_t nbitmap = bitmap_bytes(layer.layout.nshards);
    if ((size_t)(end - *at) < nbitmap) return "too short";
    if (layer.layout.nshards % 8 && (*at)[nbitmap - 1] >> layer.layout.nshards % 8)
        return "marks for shards that do not exist";
    if (!descriptor_append(descriptor, &layer)) return "out of memory";
    memcpy(descriptor_newest(descriptor)->created, *at, nbitmap);
    *at += nbitmap;
    return kind == LAYER_ADOPTED ? decode_adoption(descriptor_newest(descriptor), at, end) : NULL;
}

static const char *decode_load(struct load *load, const uint8_t **at, const uint8_t *end) {
    if ((size_t)(end - *at) < LOAD_BYTES) return "too short";
    load->origin = (enum load_origin)get(at, 1);
    load->source = get(at, 8);
    load->next = get(at, 8);
    load->nbytes = get(at, 8);
    load->total = get(at, 8);
    return load_problem(load);
}

/* Fills the rest of a descriptor, behind the tag. */
static const char *decode_layers(struct descriptor *descriptor, const uint8_t *at,
                                 const uint8_t *end) {
    const unsigned first = (unsigned)get(&at, 1), nlayers = first & ~LOADING_BIT;
    if (nlayers < 1 || nlayers > SIZING_MAX_LAYERS) return "number of layers out of range";
    for (unsigned i = 0; i < nlayers; i++) {
        const char *problem = decode_layer(descriptor, &at, end);
        if (problem) return problem;
    }
    if (first & LOADING_BIT) {
        const char *problem = decode_load(&descriptor->load, &at, end);
        if (problem) return problem;
    }
    return at == end ? descriptor_problem(descriptor) : "bytes behind the last layer";
}

struct descriptor *descriptor_decode(const uint8_t *bytes, size_t nbytes, const char **problem) {
    const uint8_t *at = bytes, *end = bytes + nbytes;
    struct descriptor head = {0};
    if (nbytes < HEAD_BYTES || memcmp(at, descriptor_magic, sizeof descriptor_magic)) {
        *problem = "not a descriptor";
        return NULL;
    }
    at += sizeof descriptor_magic;
    const unsigned version = (unsigned)get(&at, 1);
    if (version != DESCRIPTOR_VERSION) {
        *problem = version > DESCRIPTOR_VERSION ? "written by a newer version of the module"
                                                : "unknown version";
        return NULL;
    }
    head.id = get(&at, 8);
    head.seed = get(&at, 8);
    const uint64_t error = get(&at, 8);
    memcpy(&head.error, &error, sizeof error);
    head.shard_bytes = get(&at, 8);
    head.ncopies = (uint32_t)get(&at, 4);
    head.expansion = (uint32_t)get(&at, 4);
    head.tag_length = (uint32_t)get(&at, 2);
    *problem = head_problem(&head);
    if (!*problem && (size_t)(end - at) < (size_t)head.tag_length + 1) *problem = "too short";
    if (*problem) return NULL;

    struct descriptor *descriptor = descriptor_new((const char *)at, head.tag_length);
    if (!descriptor) {
        *problem = "out of memory";
        return NULL;
    }
    head.tag = descriptor->tag;
    *descriptor = head;
    *problem = decode_layers(descriptor, at + head.tag_length, end);
    if (*problem) {
        descriptor_free(descriptor);
        return NULL;
    }
    return descriptor;
}

void descriptor_shard_header(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                             uint8_t header[SHARD_HEADER_BYTES]) {
    const struct layout *layout = &descriptor->layers[layer].layout;
    uint8_t *at = header;
    memset(header, 0, SHARD_HEADER_BYTES);
    memcpy(at, shard_magic, sizeof shard_magic);
    at = put(at + sizeof shard_magic, DESCRIPTOR_VERSION, 1);
    at = put(at, layout->block_log2, 1);
    at = put(at, layout->nprobes, 1);
    at = put(at, layer, 1);
    at = put(at, descriptor->id, 8);
    at = put(at, shard, 4);
    at = put(at, layout->nshards, 4);
    put(at, layout->nblocks, 4);
}

/* Compared field by field, since it is done for every command: building the expected header would cost more than
 * testing all bits of an item. */
bool descriptor_owns_shard(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                           const uint8_t *header) {
    static const uint8_t reserved[SHARD_HEADER_BYTES - 28];
    const struct layout *layout = &descriptor->layers[layer].layout;
    return memcmp(header, shard_magic, sizeof shard_magic) == 0 &&
           header[4] == DESCRIPTOR_VERSION && header[5] == layout->block_log2 &&
           header[6] == layout->nprobes && header[7] == layer &&
           read_u64(header + 8) == descriptor->id && read_u32(header + 16) == shard &&
           read_u32(header + 20) == layout->nshards && read_u32(header + 24) == layout->nblocks &&
           memcmp(header + 28, reserved, sizeof reserved) == 0;
}

bool descriptor_is_header_of(const uint8_t header[SHARD_HEADER_BYTES], uint64_t id, uint32_t layer,
                             uint32_t shard) {
    return memcmp(header, shard_magic, sizeof shard_magic) == 0 && header[7] == layer &&
           read_u64(header + 8) == id && read_u32(header + 16) == shard;
}
