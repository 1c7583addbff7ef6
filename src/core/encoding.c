#include "core/encoding.h"

#include <string.h>

#include "core/bytes.h"

/* Bytes of the fixed parts of the encoding, without the tag and the layers' bitmaps. */
#define HEAD_BYTES  (4 + 8 + 8 + 8 + 8 + 4 + 2 + 1 + 1)
#define LAYER_BYTES (1 + 1 + 1 + 1 + 4 + 4 + 8 + 8 + 8)

/* An adopted layer has more after its bitmap: digest, flags, log2 of the bits, number of seeds,
 * length of the prefix; then the seeds and the prefix. */
#define ADOPTION_BYTES    (1 + 1 + 1 + 1 + 2)
#define ADOPTION_NUMBERED 1u
#define ADOPTION_OWNED    2u

/* A classic layer has more after its fixed part: nbits and nbytes. */
#define CLASSIC_BYTES (8 + 8)

/* Flags of a descriptor. The load state follows the last layer. The window comes before the first
 * layer: seconds, slices, flags, number of expired layers, number of the first layer, capacity.
 * With a window, each layer's fixed part is followed by the time at which its slice began. */
#define FLAG_LOADING   1u
#define FLAG_WINDOW    2u
#define LOAD_BYTES     (1 + 8 + 8 + 8 + 8)
#define WINDOW_BYTES   (4 + 1 + 1 + 1 + 4 + 8)
#define WINDOW_SLIDING 1u
#define BEGAN_BYTES    8u

static const uint8_t descriptor_magic[3] = {'B', 'F', 'D'};

/* Bytes between the fixed part of a layer and its bitmap. */
static size_t extra_bytes(const struct descriptor *descriptor, enum layer_kind kind) {
    return (descriptor->window ? BEGAN_BYTES : 0) + (kind == LAYER_CLASSIC ? CLASSIC_BYTES : 0);
}

size_t descriptor_encoded_size(const struct descriptor *descriptor) {
    size_t nbytes = HEAD_BYTES + descriptor->tag_length;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct adoption *adoption = descriptor->layers[i].adoption;
        nbytes += LAYER_BYTES + extra_bytes(descriptor, descriptor->layers[i].kind) +
                  layer_bitmap_bytes(&descriptor->layers[i].layout);
        if (adoption)
            nbytes += ADOPTION_BYTES + 8u * adoption->recipe.nseeds + adoption->prefix_length;
    }
    return nbytes + (descriptor->load ? LOAD_BYTES : 0) + (descriptor->window ? WINDOW_BYTES : 0);
}

static uint8_t *encode_load(const struct load *load, uint8_t *at) {
    at = bytes_put(at, load->origin, 1);
    at = bytes_put(at, load->source, 8);
    at = bytes_put(at, load->next, 8);
    at = bytes_put(at, load->nbytes, 8);
    return bytes_put(at, load->total, 8);
}

static uint8_t *encode_window(const struct window *window, uint8_t *at) {
    at = bytes_put(at, window->seconds, 4);
    at = bytes_put(at, window->nslices, 1);
    at = bytes_put(at, window->sliding ? WINDOW_SLIDING : 0, 1);
    at = bytes_put(at, window->nover, 1);
    at = bytes_put(at, window->first_number, 4);
    return bytes_put(at, window->capacity, 8);
}

static uint8_t *encode_adoption(const struct adoption *adoption, uint8_t *at) {
    const struct recipe *recipe = &adoption->recipe;
    at = bytes_put(at, recipe->digest, 1);
    at = bytes_put(
        at, (adoption->numbered ? ADOPTION_NUMBERED : 0) | (adoption->owned ? ADOPTION_OWNED : 0),
        1);
    at = bytes_put(at, recipe->log2_bits, 1);
    at = bytes_put(at, recipe->nseeds, 1);
    at = bytes_put(at, adoption->prefix_length, 2);
    for (unsigned i = 0; i < recipe->nseeds; i++) at = bytes_put(at, recipe->seeds[i], 8);
    memcpy(at, adoption->prefix, adoption->prefix_length);
    return at + adoption->prefix_length;
}

void descriptor_encode(const struct descriptor *descriptor, uint8_t *at) {
    uint64_t error;
    memcpy(&error, &descriptor->error, sizeof error);
    memcpy(at, descriptor_magic, sizeof descriptor_magic);
    at = bytes_put(at + sizeof descriptor_magic, DESCRIPTOR_VERSION, 1);
    at = bytes_put(at, descriptor->id, 8);
    at = bytes_put(at, descriptor->seed, 8);
    at = bytes_put(at, error, 8);
    at = bytes_put(at, descriptor->shard_bytes, 8);
    at = bytes_put(at, descriptor->expansion, 4);
    at = bytes_put(at, descriptor->tag_length, 2);
    memcpy(at, descriptor->tag, descriptor->tag_length);
    const unsigned loading = descriptor->load ? FLAG_LOADING : 0;
    at =
        bytes_put(at + descriptor->tag_length, loading | (descriptor->window ? FLAG_WINDOW : 0), 1);
    at = bytes_put(at, descriptor->nlayers, 1);
    if (descriptor->window) at = encode_window(descriptor->window, at);
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        at = bytes_put(at, layer->kind, 1);
        at = bytes_put(at, layer->layout.block_log2, 1);
        at = bytes_put(at, layer->layout.nprobes, 1);
        at = bytes_put(at, layer->flags, 1);
        at = bytes_put(at, layer->layout.nshards, 4);
        at = bytes_put(at, layer->layout.nblocks, 4);
        at = bytes_put(at, layer->capacity, 8);
        at = bytes_put(at, layer->nitems, 8);
        at = bytes_put(at, layer->nstored, 8);
        if (descriptor->window) at = bytes_put(at, layer->began_ms, BEGAN_BYTES);
        if (layer->kind == LAYER_CLASSIC) {
            at = bytes_put(at, layer->nbits, 8);
            at = bytes_put(at, layer->nbytes, 8);
        }
        memcpy(at, layer->created, layer_bitmap_bytes(&layer->layout));
        at += layer_bitmap_bytes(&layer->layout);
        if (layer->adoption) at = encode_adoption(layer->adoption, at);
    }
    if (descriptor->load) encode_load(descriptor->load, at);
}

/* Reads what follows the bitmap of an adopted layer. */
static const char *decode_adoption(struct layer *layer, const uint8_t **at, const uint8_t *end) {
    struct adoption adoption = {.recipe = {.nstrings = layer->layout.nshards}};
    struct recipe *recipe = &adoption.recipe;
    if ((size_t)(end - *at) < ADOPTION_BYTES) return "too short";
    recipe->digest = (enum recipe_digest)bytes_take(at, 1);
    const unsigned flags = (unsigned)bytes_take(at, 1);
    recipe->log2_bits = (uint8_t)bytes_take(at, 1);
    recipe->nseeds = (uint8_t)bytes_take(at, 1);
    adoption.prefix_length = (uint32_t)bytes_take(at, 2);
    if (flags & ~(ADOPTION_NUMBERED | ADOPTION_OWNED)) return "unknown flags of an adopted layer";
    adoption.numbered = flags & ADOPTION_NUMBERED;
    adoption.owned = flags & ADOPTION_OWNED;
    const char *problem = recipe_problem(recipe); /* checked before its number of seeds is used */
    if (problem) return problem;
    if ((size_t)(end - *at) < 8u * recipe->nseeds + adoption.prefix_length) return "too short";
    for (unsigned i = 0; i < recipe->nseeds; i++) recipe->seeds[i] = bytes_take(at, 8);
    adoption.prefix = (char *)*at;
    *at += adoption.prefix_length;
    layer->adoption = adoption_copy(&adoption);
    return layer->adoption ? NULL : "out of memory";
}

/* Reads the layer at *at, appends it, and moves *at past it. The appended layer can be freed. Only
 * its size has been checked; descriptor_problem checks the rest. */
static const char *decode_layer(struct descriptor *descriptor, const uint8_t **at,
                                const uint8_t *end) {
    if ((size_t)(end - *at) < LAYER_BYTES) return "too short";
    struct layer layer = {0};
    const unsigned kind = (unsigned)bytes_take(at, 1);
    if (kind != LAYER_BLOCKED && kind != LAYER_CLASSIC && kind != LAYER_ADOPTED)
        return "unknown kind of layer";
    layer.kind = (enum layer_kind)kind;
    layer.layout.block_log2 = (uint8_t)bytes_take(at, 1);
    layer.layout.nprobes = (uint8_t)bytes_take(at, 1);
    layer.flags = (uint8_t)bytes_take(at, 1);
    layer.layout.nshards = (uint32_t)bytes_take(at, 4);
    layer.layout.nblocks = (uint32_t)bytes_take(at, 4);
    layer.capacity = bytes_take(at, 8);
    layer.nitems = bytes_take(at, 8);
    layer.nstored = bytes_take(at, 8);
    if ((size_t)(end - *at) < extra_bytes(descriptor, layer.kind)) return "too short";
    if (descriptor->window) layer.began_ms = bytes_take(at, BEGAN_BYTES);
    if (layer.kind == LAYER_CLASSIC) {
        layer.nbits = bytes_take(at, 8);
        layer.nbytes = bytes_take(at, 8);
    }
    const char *problem = layer_problem(&layer);
    if (!problem && layer.kind == LAYER_BLOCKED && layer.flags & LAYER_JOINED)
        problem = descriptor_join_problem(descriptor, &layer, SIZING_MAX_SHARD_BYTES);
    if (problem) return problem;
    const size_t nbitmap = layer_bitmap_bytes(&layer.layout);
    if ((size_t)(end - *at) < nbitmap) return "too short";
    if (layer.layout.nshards % 8 && (*at)[nbitmap - 1] >> layer.layout.nshards % 8)
        return "marks for shards that do not exist";
    if (!descriptor_append(descriptor, &layer)) return "out of memory";
    memcpy(descriptor_newest(descriptor)->created, *at, nbitmap);
    *at += nbitmap;
    return kind == LAYER_ADOPTED ? decode_adoption(descriptor_newest(descriptor), at, end) : NULL;
}

static const char *decode_load(struct descriptor *descriptor, const uint8_t **at,
                               const uint8_t *end) {
    struct load load;
    if ((size_t)(end - *at) < LOAD_BYTES) return "too short";
    load.origin = (enum load_origin)bytes_take(at, 1);
    load.source = bytes_take(at, 8);
    load.next = bytes_take(at, 8);
    load.nbytes = bytes_take(at, 8);
    load.total = bytes_take(at, 8);
    const char *problem = load_problem(&load);
    if (problem) return problem;
    return descriptor_begin_load(descriptor, &load) ? NULL : "out of memory";
}

static const char *decode_window(struct descriptor *descriptor, const uint8_t **at,
                                 const uint8_t *end) {
    struct window window = {0};
    if ((size_t)(end - *at) < WINDOW_BYTES) return "too short";
    window.seconds = (uint32_t)bytes_take(at, 4);
    window.nslices = (uint32_t)bytes_take(at, 1);
    const unsigned flags = (unsigned)bytes_take(at, 1);
    if (flags & ~WINDOW_SLIDING) return "unknown flags of a window";
    window.sliding = flags & WINDOW_SLIDING;
    window.nover = (uint32_t)bytes_take(at, 1);
    window.first_number = (uint32_t)bytes_take(at, 4);
    window.capacity = bytes_take(at, 8);
    const char *problem = window_problem(&window); /* checked before it is used to number layers */
    if (problem) return problem;
    return descriptor_set_window(descriptor, &window) ? NULL : "out of memory";
}

/* Reads the rest of a descriptor, after the tag. */
static const char *decode_layers(struct descriptor *descriptor, const uint8_t *at,
                                 const uint8_t *end) {
    const unsigned flags = (unsigned)bytes_take(&at, 1), nlayers = (unsigned)bytes_take(&at, 1);
    if (flags & ~(FLAG_LOADING | FLAG_WINDOW)) return "unknown flags";
    if (nlayers < 1 || nlayers > SIZING_MAX_LAYERS) return "number of layers out of range";
    if (flags & FLAG_WINDOW) {
        const char *problem = decode_window(descriptor, &at, end);
        if (problem) return problem;
    }
    for (unsigned i = 0; i < nlayers; i++) {
        const char *problem = decode_layer(descriptor, &at, end);
        if (problem) return problem;
    }
    if (flags & FLAG_LOADING) {
        const char *problem = decode_load(descriptor, &at, end);
        if (problem) return problem;
    }
    return at == end ? descriptor_problem(descriptor) : "bytes after the last layer";
}

struct descriptor *descriptor_decode(const uint8_t *bytes, size_t nbytes, const char **problem) {
    const uint8_t *at = bytes, *end = bytes + nbytes;
    struct descriptor head = {0};
    if (nbytes < HEAD_BYTES || memcmp(at, descriptor_magic, sizeof descriptor_magic)) {
        *problem = "not a descriptor";
        return NULL;
    }
    at += sizeof descriptor_magic;
    const unsigned version = (unsigned)bytes_take(&at, 1);
    if (version != DESCRIPTOR_VERSION) {
        *problem = version > DESCRIPTOR_VERSION ? "written by a newer version of the module"
                                                : "unknown version";
        return NULL;
    }
    head.id = bytes_take(&at, 8);
    head.seed = bytes_take(&at, 8);
    const uint64_t error = bytes_take(&at, 8);
    memcpy(&head.error, &error, sizeof error);
    const uint64_t shard_bytes = bytes_take(&at, 8); /* 0 is also out of range */
    head.shard_bytes = shard_bytes <= UINT32_MAX ? (uint32_t)shard_bytes : 0;
    head.expansion = (uint32_t)bytes_take(&at, 4);
    head.tag_length = (uint32_t)bytes_take(&at, 2);
    *problem = descriptor_head_problem(&head);
    if (!*problem && (size_t)(end - at) < (size_t)head.tag_length + 2) *problem = "too short";
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
