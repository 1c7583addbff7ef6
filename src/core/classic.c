/* MurmurHash2 and MurmurHash64A are Austin Appleby's, written here from their description: each word of the input is
 * multiplied, folded onto itself, multiplied again and mixed into the state; the rest of less than a word is added, and
 * a last round spreads it. RedisBloom runs them on little-endian machines, so words are read as little-endian here. */
#include "core/classic.h"

#include <math.h>
#include <string.h>

#include "core/sizing.h"

#define MULTIPLIER_64 0xc6a4a7935bd1e995u
#define MULTIPLIER_32 0x5bd1e995u
#define SEED_64       0xc6a4a7935bd1e995u
#define SEED_32       0x9747b28cu

static uint64_t little_endian(const uint8_t *bytes, size_t nbytes) {
    uint64_t word = 0;
    for (size_t i = 0; i < nbytes; i++) word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

static uint64_t murmur_64a(const uint8_t *bytes, size_t nbytes, uint64_t seed) {
    uint64_t state = seed ^ (nbytes * MULTIPLIER_64);
    for (; nbytes >= 8; bytes += 8, nbytes -= 8) {
        uint64_t word = little_endian(bytes, 8) * MULTIPLIER_64;
        word = (word ^ (word >> 47)) * MULTIPLIER_64;
        state = (state ^ word) * MULTIPLIER_64;
    }
    if (nbytes > 0) state = (state ^ little_endian(bytes, nbytes)) * MULTIPLIER_64;
    state = (state ^ (state >> 47)) * MULTIPLIER_64;
    return state ^ (state >> 47);
}

static uint32_t murmur_32(const uint8_t *bytes, size_t nbytes, uint32_t seed) {
    uint32_t state = seed ^ (uint32_t)nbytes;
    for (; nbytes >= 4; bytes += 4, nbytes -= 4) {
        uint32_t word = (uint32_t)little_endian(bytes, 4) * MULTIPLIER_32;
        word = (word ^ (word >> 24)) * MULTIPLIER_32;
        state = state * MULTIPLIER_32 ^ word;
    }
    if (nbytes > 0) state = (state ^ (uint32_t)little_endian(bytes, nbytes)) * MULTIPLIER_32;
    state = (state ^ (state >> 13)) * MULTIPLIER_32;
    return state ^ (state >> 15);
}

struct classic_hash classic_hash(const void *item, size_t nbytes, bool wide) {
    struct classic_hash hash;
    if (wide) {
        hash.a = murmur_64a(item, nbytes, SEED_64);
        hash.b = murmur_64a(item, nbytes, hash.a);
    } else {
        hash.a = murmur_32(item, nbytes, SEED_32);
        hash.b = murmur_32(item, nbytes, (uint32_t)hash.a);
    }
    return hash;
}

/* ---- the header of a dump ----
 *
 *     items of all layers 8, layers 4, options 4, [growth 4], then for each layer
 *     bytes 8, bits 8, items 8, error 8, bits per item 8, hashes 4, capacity 8 or 4, log2 of the bits or 0, 1
 *
 * little-endian and packed. Version 2.0 has no growth (it was 2) and a short capacity, the first 2.2 have growth and the
 * short capacity, all later ones up to 8.x the whole. Nothing but the length tells them apart. */
#define HEAD_SHORT 16u
#define HEAD_LONG  20u
#define LINK_SHORT 49u
#define LINK_LONG  53u

#define OPTION_WIDE       4u
#define OPTION_NONSCALING 8u
#define OPTIONS_ALL       15u /* the other two told how the sizes were chosen */
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

struct reader {
    const uint8_t *at;
};

static uint64_t take(struct reader *reader, size_t nbytes) {
    const uint64_t value = little_endian(reader->at, nbytes);
    reader->at += nbytes;
    return value;
}

static double take_double(struct reader *reader) {
    const uint64_t bits = take(reader, 8);
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

/* Reads one layer and appends it; adds its items to *nitems and its error to *error if that is 0. */
static const char *decode_link(struct reader *reader, const struct form *form, bool wide,
                               struct descriptor *descriptor, uint64_t *nitems, double *error) {
    struct layer layer = {.kind = LAYER_CLASSIC, .flags = wide ? LAYER_WIDE : 0};
    layer.nbytes = take(reader, 8);
    const uint64_t nbits = take(reader, 8);
    layer.nitems = take(reader, 8);
    const double link_error = take_double(reader);
    take_double(reader); /* bits per item: follows from the error */
    const uint64_t nprobes = take(reader, 4);
    layer.capacity = take(reader, form->link == LINK_LONG ? 8 : 4);
    const unsigned log2 = (unsigned)take(reader, 1);

    if (!(link_error > 0 && link_error < 1)) return "error rate out of range";
    if (nprobes < 1 || nprobes > MAX_PROBES) return "number of hashes out of range";
    if (log2 > 63) return "number of bits out of range";
    layer.nbits = log2 > 0 ? (uint64_t)1 << log2 : nbits;
    if (layer.nbits < 1 || (layer.nbits - 1) / 8 >= layer.nbytes ||
        layer.nbytes - (layer.nbits - 1) / 8 > MAX_EXCESS_BYTES)
        return "number of bits and of bytes do not fit together";
    if (nbits != 0 && (nbits < layer.nbits || (nbits - 1) / 8 >= layer.nbytes))
        return "number of bits and of bytes do not fit together";
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

static const char *decode_links(struct reader *reader, const struct form *form, uint64_t nlinks,
                                bool wide, uint64_t total, struct descriptor *descriptor) {
    double error = 0;
    uint64_t nitems = 0;
    for (uint64_t i = 0; i < nlinks; i++) {
        const char *problem = decode_link(reader, form, wide, descriptor, &nitems, &error);
        if (problem) return problem;
    }
    if (nitems != total) return "the layers' items do not add up";
    if (descriptor->expansion == 0 && nlinks > 1) return "several layers, but no expansion";
    /* A growing filter gives half of the promised error to its first layer. */
    if (descriptor->expansion > 0) error *= 2;
    descriptor->error = fmax(SIZING_MIN_ERROR, fmin(SIZING_MAX_ERROR, error));
    return NULL;
}

struct descriptor *classic_decode_header(const uint8_t *bytes, size_t nbytes, uint64_t shard_bytes,
                                         const char **problem) {
    struct reader reader = {bytes};
    struct form form;
    *problem = "not a header of a known length";
    if (nbytes < HEAD_SHORT) return NULL;
    const uint64_t total = take(&reader, 8), nlinks = take(&reader, 4), options = take(&reader, 4);
    if (nlinks < 1 || !find_form(nbytes, nlinks, &form)) return NULL;
    const uint64_t growth = form.head == HEAD_LONG ? take(&reader, 4) : 2;
    *problem = "more than 64 layers";
    if (nlinks > SIZING_MAX_LAYERS) return NULL;
    *problem = "unknown options";
    if (options & ~(uint64_t)OPTIONS_ALL) return NULL;
    *problem = "expansion out of range";
    if (growth > DESCRIPTOR_MAX_EXPANSION) return NULL;

    *problem = "out of memory";
    struct descriptor *descriptor = descriptor_new("", 0);
    if (!descriptor) return NULL;
    descriptor->shard_bytes = shard_bytes;
    descriptor->expansion = options & OPTION_NONSCALING ? 0 : (uint32_t)growth;
    *problem = decode_links(&reader, &form, nlinks, options & OPTION_WIDE, total, descriptor);
    if (*problem) {
        descriptor_free(descriptor);
        return NULL;
    }
    descriptor->load = (struct load){
        .origin = LOAD_REDISBLOOM, .next = 1, .total = classic_total_bytes(descriptor)};
    return descriptor;
}

/* ---- data ---- */

uint64_t classic_total_bytes(const struct descriptor *descriptor) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) total += descriptor->layers[i].nbytes;
    return total;
}

bool classic_locate(const struct descriptor *descriptor, uint64_t from, uint64_t nbytes,
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
