/* Any bytes to descriptor_decode: refused with a reason, or a descriptor that encodes to exactly
 * these bytes, keeps every promise that the rest of the module relies on, and cost no more memory
 * than its own length justifies. */
#include "fuzz.h"

#include <math.h>
#include <stdalign.h>

#include "core/descriptor.h"
#include "core/encoding.h"
#include "core/header.h"
#include "core/sizing.h"
#include "core/window.h"

/* Memory in use by descriptors, and how many more allocations succeed. */
static size_t nalive, npeak;
static long nleft;

static void *counted_realloc(void *old, size_t nbytes) {
    const size_t room = alignof(max_align_t), had = old ? *(size_t *)((char *)old - room) : 0;
    if (nleft-- <= 0) return NULL;
    char *memory = realloc(old ? (char *)old - room : NULL, nbytes + room);
    HOLDS(memory);
    nalive = nalive - had + nbytes;
    if (nalive > npeak) npeak = nalive;
    *(size_t *)memory = nbytes;
    return memory + room;
}

static void *counted_alloc(size_t nbytes) {
    return counted_realloc(NULL, nbytes);
}

static void counted_free(void *memory) {
    if (!memory) return;
    char *start = (char *)memory - alignof(max_align_t);
    nalive -= *(size_t *)start;
    free(start);
}

static struct descriptor *decode(const uint8_t *bytes, size_t nbytes, long nallocations) {
    const char *problem = NULL;
    nleft = nallocations;
    npeak = 0;
    struct descriptor *descriptor = descriptor_decode(bytes, nbytes, &problem);
    HOLDS((descriptor == NULL) == (problem != NULL));
    HOLDS(descriptor || nalive == 0);
    HOLDS(npeak <= 512 + sizeof(struct adoption) + 8 * nbytes);
    return descriptor;
}

static void check_layout(const struct layout *layout) {
    HOLDS(layout->block_log2 >= LAYOUT_MIN_BLOCK_LOG2 &&
          layout->block_log2 <= LAYOUT_MAX_BLOCK_LOG2);
    HOLDS(layout->nprobes >= 1 && layout->nprobes <= LAYOUT_MAX_PROBES);
    HOLDS(layout->nshards >= 1 && layout->nshards <= LAYOUT_MAX_SHARDS);
    HOLDS(layout->nblocks >= 1);
    HOLDS(HEADER_BYTES + layout_shard_bytes(layout) < 512u << 20);
}

/* Items land inside the shards, whatever their hash. */
static void check_places(const struct descriptor *descriptor, const struct layout *layout) {
    static const uint64_t extremes[] = {0, 1, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
        const uint64_t hash = extremes[i] ^ descriptor->seed;
        const struct item_place place = layout_place(layout, hash);
        HOLDS(place.shard < layout->nshards && place.block < layout->nblocks);
        for (unsigned probe = 0; probe < layout->nprobes; probe++)
            HOLDS(layout_position(layout, hash, probe) < 1u << layout->block_log2);
    }
}

/* The bits of an adopted layer lie inside its strings, and its recipe is one that can be. */
static void check_adoption(const struct descriptor *descriptor, uint32_t index) {
    const struct layer *layer = &descriptor->layers[index];
    const struct recipe *recipe = &layer->adoption->recipe;
    HOLDS(index == 0 && recipe_problem(recipe) == NULL);
    HOLDS(recipe->nstrings == layer->layout.nshards && layer->nitems <= SIZING_MAX_CAPACITY);
    struct recipe_item item = {.bytes = (const char *)&descriptor->seed, .nbytes = 8};
    recipe_hash(recipe, &item);
    HOLDS(recipe_string(recipe, &item) < layer->layout.nshards);
    HOLDS(recipe_length(recipe, &item) <= layout_shard_bytes(&layer->layout));
}

static void check_headers(const struct descriptor *descriptor, uint32_t layer, const uint8_t *any,
                          size_t nany) {
    const uint32_t last = descriptor->layers[layer].layout.nshards - 1;
    uint8_t header[HEADER_BYTES];
    header_write(descriptor, layer, last, FORM_DENSE, header);
    HOLDS(header_fits(descriptor, layer, last, header));
    if (nany >= HEADER_BYTES)
        HOLDS(!header_fits(descriptor, layer, last, any + nany - HEADER_BYTES) ||
              header_form(any + nany - HEADER_BYTES) == FORM_YOUNG ||
              memcmp(any + nany - HEADER_BYTES, header, sizeof header) == 0);
    header[descriptor->seed % sizeof header] ^= 2;
    HOLDS(!header_fits(descriptor, layer, last, header));
}

/* A layer that shares a string lies in it as a whole, behind the one before. */
static void check_home(const struct descriptor *descriptor, uint32_t index) {
    const struct layer *layer = &descriptor->layers[index];
    HOLDS(layer_is_joined(layer) == (layer->home != index));
    if (!layer_is_joined(layer)) {
        HOLDS(layer->adoption || descriptor_string_bytes(descriptor, index) <=
                                     SIZING_MAX_SHARD_BYTES - SIZING_SHARD_OVERHEAD);
        return;
    }
    HOLDS(layer->kind == LAYER_BLOCKED && layer->layout.nshards == 1);
    HOLDS(layer[-1].home == layer->home &&
          layer->offset == layer[-1].offset + layout_shard_bytes(&layer[-1].layout));
    const size_t nbytes = descriptor_string_bytes(descriptor, layer->home);
    HOLDS(layer_shard_created(layer, 0) ==
          (layer->offset + layout_shard_bytes(&layer->layout) <= nbytes));
}

/* The next layer can be sized, and then stored, or there is none. */
static void check_growth(struct descriptor *descriptor) {
    if (descriptor->expansion == 0 || descriptor->nlayers >= SIZING_MAX_LAYERS) return;
    const uint64_t capacity = sizing_next_capacity(descriptor_newest(descriptor)->capacity,
                                                   descriptor->expansion, descriptor->nlayers);
    const double error = sizing_layer_error(descriptor->error, descriptor->nlayers, true);
    struct layout layout;
    if (!sizing_plan(capacity, error, descriptor->shard_bytes, true, &layout)) return;
    check_layout(&layout);
    HOLDS(descriptor_add_layer_joined(descriptor, &layout, capacity));
    check_home(descriptor, descriptor->nlayers - 1);
    const size_t nbytes = descriptor_encoded_size(descriptor);
    uint8_t *bytes = malloc(nbytes);
    descriptor_encode(descriptor, bytes);
    const char *problem;
    struct descriptor *grown = descriptor_decode(bytes, nbytes, &problem);
    HOLDS(grown);
    descriptor_free(grown);
    free(bytes);
}

/* Whatever time it is, a filter turns or says that it can't; what is left can be stored, and so can
 * what is gone. */
static void check_turn(struct descriptor *descriptor) {
    if (!descriptor->window) return;
    const uint64_t now_ms = descriptor->id % (2 * WINDOW_MAX_MS);
    const bool drops = descriptor->id >> 63;
    const uint32_t nover = window_nover(descriptor, now_ms), before = descriptor->nlayers;
    HOLDS(nover <= before && nover >= descriptor->window->nover);
    if (!window_is_due(descriptor, now_ms)) return;
    struct descriptor *gone;
    const bool turned = window_turn(descriptor, now_ms, drops, &gone);
    HOLDS(descriptor_problem(descriptor) == NULL);
    HOLDS(!gone || (turned && drops && descriptor_problem(gone) == NULL && gone->nlayers == nover));
    HOLDS(turned || descriptor->nlayers == before);
    /* It is done, unless the newest slice is that of a time that never comes. */
    HOLDS(!turned || !window_is_due(descriptor, now_ms));
    descriptor_free(gone);
}

static void check_descriptor(struct descriptor *descriptor, const uint8_t *bytes, size_t nbytes) {
    HOLDS(isfinite(descriptor->error) && descriptor->error >= SIZING_MIN_ERROR &&
          descriptor->error <= SIZING_MAX_ERROR);
    HOLDS(descriptor->nlayers >= 1 && descriptor->nlayers <= SIZING_MAX_LAYERS);
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        HOLDS((descriptor->layers[i].kind == LAYER_ADOPTED) ==
              (descriptor->layers[i].adoption != NULL));
        if (descriptor->layers[i].adoption) check_adoption(descriptor, i);
        if (descriptor->layers[i].kind == LAYER_BLOCKED) {
            HOLDS(descriptor->layers[i].nitems <= SIZING_MAX_CAPACITY);
            check_layout(&descriptor->layers[i].layout);
            check_places(descriptor, &descriptor->layers[i].layout);
        }
        check_headers(descriptor, i, bytes, nbytes);
        check_home(descriptor, i);
    }
    HOLDS(descriptor_encoded_size(descriptor) == nbytes);
    uint8_t *again = malloc(nbytes);
    descriptor_encode(descriptor, again);
    HOLDS(memcmp(again, bytes, nbytes) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    descriptor_allocator = (struct allocator){
        .alloc = counted_alloc, .realloc = counted_realloc, .free = counted_free};
    uint8_t *bytes = fuzz_copy(data, size);
    struct descriptor *descriptor = decode(bytes, size, 1000);
    if (descriptor) {
        check_descriptor(descriptor, bytes, size);
        nleft = 1000;
        check_growth(descriptor);
        nleft = 1000;
        check_turn(descriptor);
        descriptor_free(descriptor);
        HOLDS(nalive == 0);
        for (long n = 0; n < 6; n++) descriptor_free(decode(bytes, size, n));
    }
    HOLDS(nalive == 0);
    free(bytes);
    return 0;
}
