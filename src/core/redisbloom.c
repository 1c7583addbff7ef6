/* The header of a dump:
 *
 *     items of all layers 8, layers 4, options 4, [growth 4], then for each layer
 *     bytes 8, bits 8, items 8, error 8, bits per item 8, hashes 4, capacity 8 or 4,
 *     log2 of the bits or 0, 1
 *
 * little-endian and packed. Version 2.0 has no growth (it was 2) and a 4-byte capacity; the first
 * 2.2 versions have growth and the 4-byte capacity; all later ones up to 8.x have growth and 8
 * bytes. Only the length distinguishes them. */
#include "core/redisbloom.h"

#include <math.h>
#include <string.h>

#include "core/bytes.h"

#define HEAD_SHORT 16u
#define HEAD_LONG  20u
#define LINK_SHORT 49u
#define LINK_LONG  53u

#define OPTION_WIDE       4u
#define OPTION_NONSCALING 8u
#define OPTIONS_ALL       15u /* the other two said how the sizes were chosen */
#define MAX_PROBES        255u
#define MAX_EXCESS_BYTES  8u /* sizes are rounded up to 1 or 8 bytes */

struct form {
    size_t head;
    size_t link;
};

static bool find_form(size_t nbytes, uint64_t nlinks, struct form *form) {
    static const struct form forms[] = {
        {HEAD_LONG, LINK_LONG}, {HEAD_LONG, LINK_SHORT}, {HEAD_SHORT, LINK_SHORT}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        *form = forms[i];
        if (nbytes == form->head + nlinks * form->link) return true;
    }
    return false;
}

static double take_double(const uint8_t **at) {
    const uint64_t bits = bytes_take(at, 8);
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Cuts nbytes of bits into equal shards, each at most shard_bytes of allocation. */
static bool cut(uint64_t nbytes, uint64_t shard_bytes, struct layout *layout) {
    layout->block_log2 = LAYOUT_MIN_BLOCK_LOG2;
    const uint64_t block_bytes = layout_block_bytes(layout);
    for (;; shard_bytes *= 2) {
        if (shard_bytes > SIZING_MAX_SHARD_BYTES) shard_bytes = SIZING_MAX_SHARD_BYTES;
        const uint64_t most = (shard_bytes - SIZING_SHARD_OVERHEAD) / block_bytes * block_bytes;
        const uint64_t nshards = nbytes / most + (nbytes % most != 0);
        if (nshards <= LAYOUT_MAX_SHARDS) {
            const uint64_t share = nbytes / nshards + (nbytes % nshards != 0);
            layout->nshards = (uint32_t)nshards;
            layout->nblocks = (uint32_t)((share + block_bytes - 1) / block_bytes);
            return true;
        }
        if (shard_bytes == SIZING_MAX_SHARD_BYTES) return false;
    }
}

/* Reads one layer and appends it; adds its items to *nitems and its error to *error if that is
 * 0. */
static const char *decode_link(const uint8_t **at, const struct form *form, bool wide,
                               struct descriptor *descriptor, uint64_t *nitems, double *error) {
    struct layer layer = {.kind = LAYER_CLASSIC, .flags = wide ? LAYER_WIDE : 0};
    layer.nbytes = bytes_take(at, 8);
    const uint64_t nbits = bytes_take(at, 8);
    layer.nitems = bytes_take(at, 8);
    const double link_error = take_double(at);
    take_double(at); /* bits per item: follows from the error */
    const uint64_t nprobes = bytes_take(at, 4);
    layer.capacity = bytes_take(at, form->link == LINK_LONG ? 8 : 4);
    const unsigned log2 = (unsigned)bytes_take(at, 1);

    if (!(link_error > 0 && link_error < 1)) return "error rate out of range";
    if (nprobes < 1 || nprobes > MAX_PROBES) return "number of hashes out of range";
    if (log2 > 63) return "number of bits out of range";
    layer.nbits = log2 > 0 ? (uint64_t)1 << log2 : nbits;
    if (layer.nbits < 1 || (layer.nbits - 1) / 8 >= layer.nbytes ||
        layer.nbytes - (layer.nbits - 1) / 8 > MAX_EXCESS_BYTES)
        return "number of bits and number of bytes do not match";
    if (nbits != 0 && (nbits < layer.nbits || (nbits - 1) / 8 >= layer.nbytes))
        return "number of bits and number of bytes do not match";
    if (layer.nitems > SIZING_MAX_CAPACITY) return "number of items out of range";
    layer.layout.nprobes = (uint8_t)nprobes;
    if (!cut(layer.nbytes, descriptor->shard_bytes, &layer.layout)) return "too large";
    const char *problem = layer_problem(&layer);
    if (problem) return problem;
    if (!descriptor_append(descriptor, &layer)) return "out of memory";
    *nitems += layer.nitems;
    if (*error == 0) *error = link_error;
    return NULL;
}

static const char *decode_links(const uint8_t **at, const struct form *form, uint64_t nlinks,
                                bool wide, uint64_t total, struct descriptor *descriptor) {
    double error = 0;
    uint64_t nitems = 0;
    for (uint64_t i = 0; i < nlinks; i++) {
        const char *problem = decode_link(at, form, wide, descriptor, &nitems, &error);
        if (problem) return problem;
    }
    if (nitems != total) return "the layers' items do not add up";
    if (descriptor->expansion == 0 && nlinks > 1) return "several layers, but no expansion";
    /* A growing filter gives half of the promised error to its first layer. */
    if (descriptor->expansion > 0) error *= 2;
    descriptor->error = fmax(SIZING_MIN_ERROR, fmin(SIZING_MAX_ERROR, error));
    return NULL;
}

struct descriptor *redisbloom_decode_header(const uint8_t *bytes, size_t nbytes,
                                            uint64_t shard_bytes, const char **problem) {
    const uint8_t *at = bytes;
    struct form form;
    *problem = "not a header of a known length";
    if (nbytes < HEAD_SHORT) return NULL;
    const uint64_t total = bytes_take(&at, 8), nlinks = bytes_take(&at, 4),
                   options = bytes_take(&at, 4);
    if (nlinks < 1 || !find_form(nbytes, nlinks, &form)) return NULL;
    const uint64_t growth = form.head == HEAD_LONG ? bytes_take(&at, 4) : 2;
    *problem = "more than 64 layers";
    if (nlinks > SIZING_MAX_LAYERS) return NULL;
    *problem = "unknown options";
    if (options & ~(uint64_t)OPTIONS_ALL) return NULL;
    *problem = "expansion out of range";
    if (growth > DESCRIPTOR_MAX_EXPANSION) return NULL;

    *problem = "out of memory";
    struct descriptor *descriptor = descriptor_new("", 0);
    if (!descriptor) return NULL;
    descriptor->shard_bytes = (uint32_t)shard_bytes;
    descriptor->expansion = options & OPTION_NONSCALING ? 0 : (uint32_t)growth;
    *problem = decode_links(&at, &form, nlinks, options & OPTION_WIDE, total, descriptor);
    const struct load load = {
        .origin = LOAD_REDISBLOOM, .next = 1, .total = redisbloom_total_bytes(descriptor)};
    if (!*problem && !descriptor_begin_load(descriptor, &load)) *problem = "out of memory";
    if (!*problem) return descriptor;
    descriptor_free(descriptor);
    return NULL;
}

/* ---- data ---- */

uint64_t redisbloom_total_bytes(const struct descriptor *descriptor) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) total += descriptor->layers[i].nbytes;
    return total;
}

bool redisbloom_locate(const struct descriptor *descriptor, uint64_t from, uint64_t nbytes,
                       uint32_t *layer, uint64_t *offset) {
    if (from < 1) return false;
    *offset = from - 1;
    for (*layer = 0; *layer < descriptor->nlayers; ++*layer) {
        const uint64_t room = descriptor->layers[*layer].nbytes;
        if (*offset < room) return nbytes <= room - *offset;
        *offset -= room;
    }
    return false;
}
