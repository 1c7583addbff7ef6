#include "core/encoding.h"

#include <string.h>

#include "core/bytes.h"

/* Bytes of the fixed parts of the encoding; the tag and the layers' bitmaps come on top. */
#define HEAD_BYTES  (4 + 8 + 8 + 8 + 8 + 4 + 2 + 1)
#define LAYER_BYTES (1 + 1 + 1 + 1 + 4 + 4 + 8 + 8 + 8)

/* An adopted layer has more behind its bitmap: digest, flags, log2 of the bits, number of seeds,
 * length of the prefix; then the seeds and the prefix. */
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

static size_t extra_bytes(enum layer_kind kind) {
    return kind == LAYER_CLASSIC ? CLASSIC_BYTES : 0;
}

size_t descriptor_encoded_size(const struct descriptor *descriptor) {
    size_t nbytes = HEAD_BYTES + descriptor->tag_length;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct adoption *adoption = descriptor->layers[i].adoption;
        nbytes += LAYER_BYTES + extra_bytes(descriptor->layers[i].kind) +
                  layer_bitmap_bytes(&descriptor->layers[i].layout);
        if (adoption)
            nbytes += ADOPTION_BYTES + 8u * adoption->recipe.nseeds + adoption->prefix_length;
    }
    return nbytes + (descriptor->load.origin == LOAD_NONE ? 0 : LOAD_BYTES);
}

static uint8_t *encode_load(const struct load *load, uint8_t *at) {
    at = bytes_put(at, load->origin, 1);
    at = bytes_put(at, load->source, 8);
    at = bytes_put(at, load->next, 8);
    at = bytes_put(at, load->nbytes, 8);
    return bytes_put(at, load->total, 8);
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
    const unsigned loading = descriptor->load.origin == LOAD_NONE ? 0 : LOADING_BIT;
    at = bytes_put(at + descriptor->tag_length, descriptor->nlayers | loading, 1);
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
        if (layer->kind == LAYER_CLASSIC) {
            at = bytes_put(at, layer->nbits, 8);
            at = bytes_put(at, layer->nbytes, 8);
        }
        memcpy(at, layer->created, layer_bitmap_bytes(&layer->layout));
        at += layer_bitmap_bytes(&layer->layout);
        if (layer->adoption) at = encode_adoption(layer->adoption, at);
    }
    if (loading) encode_load(&descriptor->load, at);
}

/* What stands behind the bitmap of an adopted layer. */
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
    const char *problem = recipe_problem(recipe); /* before its number of seeds is believed */
    if (problem) return problem;
    if ((size_t)(end - *at) < 8u * recipe->nseeds + adoption.prefix_length) return "too short";
    for (unsigned i = 0; i < recipe->nseeds; i++) recipe->seeds[i] = bytes_take(at, 8);
    adoption.prefix = (char *)*at;
    *at += adoption.prefix_length;
    layer->adoption = adoption_copy(&adoption);
    return layer->adoption ? NULL : "out of memory";
}

/* Reads the layer at *at, appends it, and moves *at behind it. What it appends can be freed, and is
 * checked as far as its size goes; descriptor_problem checks the rest. */
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
    if ((size_t)(end - *at) < extra_bytes(layer.kind)) return "too short";
    if (layer.kind == LAYER_CLASSIC) {
        layer.nbits = bytes_take(at, 8);
        layer.nbytes = bytes_take(at, 8);
    }
    const char *problem = layer_problem(&layer);
    if (!problem && layer.kind == LAYER_BLOCKED && layer.flags & LAYER_JOINED)
        problem = descriptor_join_problem(descriptor, &layer.layout, SIZING_MAX_SHARD_BYTES);
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

static const char *decode_load(struct load *load, const uint8_t **at, const uint8_t *end) {
    if ((size_t)(end - *at) < LOAD_BYTES) return "too short";
    load->origin = (enum load_origin)bytes_take(at, 1);
    load->source = bytes_take(at, 8);
    load->next = bytes_take(at, 8);
    load->nbytes = bytes_take(at, 8);
    load->total = bytes_take(at, 8);
    return load_problem(load);
}

/* Fills the rest of a descriptor, behind the tag. */
static const char *decode_layers(struct descriptor *descriptor, const uint8_t *at,
                                 const uint8_t *end) {
    const unsigned first = (unsigned)bytes_take(&at, 1), nlayers = first & ~LOADING_BIT;
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
    const uint64_t shard_bytes = bytes_take(&at, 8); /* 0 is out of range, too */
    head.shard_bytes = shard_bytes <= UINT32_MAX ? (uint32_t)shard_bytes : 0;
    head.expansion = (uint32_t)bytes_take(&at, 4);
    head.tag_length = (uint32_t)bytes_take(&at, 2);
    *problem = descriptor_head_problem(&head);
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
