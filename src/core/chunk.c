#include "core/chunk.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/bytes.h"
#include "core/encoding.h"
#include "core/header.h"
#include "core/young.h"

/* magic 7, version 1, type 1, 7 zeros, source 8, from 8, to 8; body; checksum 8. */
#define FRAME_HEAD 40u
#define CHECKSUM   8u
#define PART_HEAD  16u
#define PART_YOUNG (1u << 31) /* a flag in the part's number */
_Static_assert(YOUNG_MAX_BYTES <= CHUNK_PART_BYTES, "the table of a young shard is one part");

/* An iterator is a mark above a position. Position 0 is the header; 1 the first part, followed by
 * the others; then the end; then nothing. */
#define POSITION_BITS 31
#define MARK_BITS     22
_Static_assert(POSITION_BITS + MARK_BITS == 53, "exact in a double");

static const uint8_t magic[7] = {'B', 'F', 'C', 'H', 'U', 'N', 'K'};

/* ---- iterators ---- */

static uint32_t parts_per_shard(const struct layer *layer) {
    return (uint32_t)((layout_shard_bytes(&layer->layout) + CHUNK_PART_BYTES - 1) /
                      CHUNK_PART_BYTES);
}

/* At most 2^6 layers of 2^18 shards of 2^6 parts. */
static uint64_t count_parts(const struct descriptor *descriptor) {
    uint64_t nparts = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++)
        nparts += (uint64_t)descriptor->layers[i].layout.nshards *
                  parts_per_shard(&descriptor->layers[i]);
    return nparts;
}

/* With a window, positions also change when the oldest layers are dropped, which can happen without
 * a new one. And the newest slice can be reused for a later time. */
static uint64_t mark_of(const struct descriptor *descriptor, uint64_t id) {
    uint8_t bytes[24], *at = bytes_put(bytes, id, 8);
    at = bytes_put(at, descriptor_number(descriptor, descriptor->nlayers), 4);
    if (!descriptor->window) return XXH3_64bits(bytes, 12) >> (64 - MARK_BITS);
    at = bytes_put(at, descriptor->window->first_number, 4);
    bytes_put(at, descriptor_newest(descriptor)->began_ms, 8);
    return XXH3_64bits(bytes, sizeof bytes) >> (64 - MARK_BITS);
}

static uint64_t iterator_at(const struct descriptor *descriptor, uint64_t id, uint64_t position) {
    return mark_of(descriptor, id) << POSITION_BITS | position;
}

static uint64_t position_of(uint64_t iterator) {
    return iterator & (((uint64_t)1 << POSITION_BITS) - 1);
}

enum chunk_wanted chunk_wanted(const struct descriptor *descriptor, uint64_t iterator) {
    if (iterator == 0) return WANTED_HEADER;
    const uint64_t position = position_of(iterator), nparts = count_parts(descriptor);
    if (iterator != iterator_at(descriptor, descriptor->id, position) || position == 0 ||
        position > nparts + 2)
        return WANTED_UNKNOWN;
    return position == nparts + 2 ? WANTED_NOTHING : WANTED_DATA;
}

/* The part at a position, counted from 1; false after the last. */
static bool part_at(const struct descriptor *descriptor, uint64_t position, struct part *part) {
    uint64_t left = position - 1;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        const uint32_t per_shard = parts_per_shard(layer);
        const uint64_t nparts = (uint64_t)layer->layout.nshards * per_shard;
        if (left >= nparts) {
            left -= nparts;
            continue;
        }
        const uint32_t number = (uint32_t)(left % per_shard);
        const uint64_t rest =
            layout_shard_bytes(&layer->layout) - (uint64_t)number * CHUNK_PART_BYTES;
        *part =
            (struct part){.layer = i,
                          .shard = (uint32_t)(left / per_shard),
                          .part = number,
                          .nbytes = rest < CHUNK_PART_BYTES ? (uint32_t)rest : CHUNK_PART_BYTES};
        return true;
    }
    return false;
}

bool chunk_next_part(const struct descriptor *descriptor, uint64_t *iterator, struct part *part) {
    uint64_t position = position_of(*iterator);
    while (part_at(descriptor, position, part)) {
        const struct layer *layer = &descriptor->layers[part->layer];
        const uint32_t next = layer_next_created(layer, part->shard);
        if (next != part->shard) {
            position += (uint64_t)(next - part->shard) * parts_per_shard(layer) - part->part;
            continue;
        }
        position++;
        *iterator = iterator_at(descriptor, descriptor->id, position);
        return true;
    }
    *iterator = iterator_at(descriptor, descriptor->id, position);
    return false;
}

/* ---- making chunks ---- */

size_t chunk_header_size(const struct descriptor *descriptor) {
    return FRAME_HEAD + 8 + descriptor_encoded_size(descriptor) + CHECKSUM;
}

size_t chunk_end_size(const struct descriptor *descriptor) {
    return FRAME_HEAD + 8 * (size_t)descriptor->nlayers + CHECKSUM;
}

size_t chunk_data_size(size_t nbody) {
    return FRAME_HEAD + nbody + CHECKSUM;
}

bool chunk_reserve(const struct part *part, size_t nparts, size_t *nbody) {
    const size_t more = PART_HEAD + part->nbytes;
    if (nparts > 0 && (nparts == CHUNK_MAX_PARTS || *nbody + more > CHUNK_PART_BYTES)) return false;
    *nbody += more;
    return true;
}

bool chunk_make_young(const struct descriptor *descriptor, uint64_t *iterator, struct part *part,
                      uint32_t nbytes) {
    if (part->part != 0) return false;
    part->young = true;
    part->nbytes = nbytes;
    const uint64_t next =
        position_of(*iterator) + parts_per_shard(&descriptor->layers[part->layer]) - 1;
    *iterator = iterator_at(descriptor, descriptor->id, next);
    return true;
}

static uint8_t *put_frame(uint8_t *at, enum chunk_type type, uint64_t source, uint64_t from,
                          uint64_t to) {
    memcpy(at, magic, sizeof magic);
    at = bytes_put(at + sizeof magic, CHUNK_VERSION, 1);
    at = bytes_put(at, type, 8);
    at = bytes_put(at, source, 8);
    at = bytes_put(at, from, 8);
    return bytes_put(at, to, 8);
}

void chunk_seal(uint8_t *bytes, size_t nbytes) {
    bytes_put(bytes + nbytes - CHECKSUM, XXH3_64bits(bytes, nbytes - CHECKSUM), CHECKSUM);
}

void chunk_write_header(const struct descriptor *descriptor, uint8_t *bytes) {
    uint8_t *at = put_frame(bytes, CHUNK_HEADER, descriptor->id, 0,
                            iterator_at(descriptor, descriptor->id, 1));
    const uint64_t stored = descriptor_nstored(descriptor),
                   headers = HEADER_BYTES * descriptor_nshards(descriptor),
                   nbytes = stored > headers ? stored - headers : 0;
    descriptor_encode(descriptor, bytes_put(at, nbytes, 8));
    chunk_seal(bytes, chunk_header_size(descriptor));
}

void chunk_write_end(const struct descriptor *descriptor, uint64_t from, uint8_t *bytes) {
    uint8_t *at = put_frame(bytes, CHUNK_END, descriptor->id, from,
                            iterator_at(descriptor, descriptor->id, count_parts(descriptor) + 2));
    for (uint32_t i = 0; i < descriptor->nlayers; i++)
        at = bytes_put(at, descriptor->layers[i].nitems, 8);
    chunk_seal(bytes, chunk_end_size(descriptor));
}

uint8_t *chunk_begin_data(const struct descriptor *descriptor, uint64_t from, uint64_t to,
                          uint8_t *bytes) {
    return put_frame(bytes, CHUNK_DATA, descriptor->id, from, to);
}

uint8_t *chunk_put_part(uint8_t *at, const struct part *part) {
    at = bytes_put(at, part->layer, 4);
    at = bytes_put(at, part->shard, 4);
    at = bytes_put(at, part->part | (part->young ? PART_YOUNG : 0), 4);
    at = bytes_put(at, part->nbytes, 4);
    memcpy(at, part->bytes, part->nbytes);
    return at + part->nbytes;
}

/* ---- reading chunks ---- */

bool chunk_is_ours(const uint8_t *bytes, size_t nbytes) {
    return nbytes > sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

const char *chunk_open(const uint8_t *bytes, size_t nbytes, struct chunk *chunk) {
    if (!chunk_is_ours(bytes, nbytes)) return "it is not a chunk";
    const unsigned version = bytes[sizeof magic];
    if (version != CHUNK_VERSION)
        return version > CHUNK_VERSION ? "it was made by a newer version of the module"
                                       : "unknown version";
    if (nbytes < FRAME_HEAD + CHECKSUM) return "it is truncated";
    if (nbytes > CHUNK_MAX_BYTES) return "it is too long";
    if (XXH3_64bits(bytes, nbytes - CHECKSUM) != bytes_get(bytes + nbytes - CHECKSUM, CHECKSUM))
        return "it is truncated or damaged: wrong checksum";
    const uint64_t type = bytes_get(bytes + 8, 8);
    if (type != CHUNK_HEADER && type != CHUNK_DATA && type != CHUNK_END) return "unknown type";
    *chunk = (struct chunk){.type = (enum chunk_type)type,
                            .source = bytes_get(bytes + 16, 8),
                            .from = bytes_get(bytes + 24, 8),
                            .to = bytes_get(bytes + 32, 8),
                            .body = bytes + FRAME_HEAD,
                            .nbody = nbytes - FRAME_HEAD - CHECKSUM};
    return NULL;
}

struct descriptor *chunk_read_header(const struct chunk *chunk, const char **problem) {
    if (chunk->nbody < 8) {
        *problem = "too short";
        return NULL;
    }
    struct descriptor *descriptor = descriptor_decode(chunk->body + 8, chunk->nbody - 8, problem);
    if (!descriptor) return NULL;
    *problem = NULL;
    if (descriptor->load)
        *problem = "its filter was itself half loaded";
    else if (descriptor->id != chunk->source || chunk->from != 0 ||
             chunk->to != iterator_at(descriptor, chunk->source, 1))
        *problem = "its parts do not belong together";
    const struct load load = {.origin = LOAD_OURS,
                              .source = chunk->source,
                              .next = chunk->to,
                              .total = bytes_get(chunk->body, 8)};
    if (!*problem && !descriptor_begin_load(descriptor, &load)) *problem = "out of memory";
    if (*problem) {
        descriptor_free(descriptor);
        return NULL;
    }
    descriptor_clear_strings(descriptor);
    return descriptor;
}

bool chunk_read_part(const struct chunk *chunk, size_t *at, struct part *part) {
    if (chunk->nbody - *at < PART_HEAD) return false;
    const uint8_t *head = chunk->body + *at;
    *part = (struct part){.layer = (uint32_t)bytes_get(head, 4),
                          .shard = (uint32_t)bytes_get(head + 4, 4),
                          .part = (uint32_t)bytes_get(head + 8, 4) & ~PART_YOUNG,
                          .young = bytes_get(head + 8, 4) & PART_YOUNG,
                          .nbytes = (uint32_t)bytes_get(head + 12, 4),
                          .bytes = head + PART_HEAD};
    if (part->nbytes > chunk->nbody - *at - PART_HEAD) return false;
    *at += PART_HEAD + part->nbytes;
    return true;
}

/* The position of a part if it is valid for this filter, otherwise 0. */
static uint64_t position_of_part(const struct descriptor *descriptor, const struct part *part) {
    if (part->layer >= descriptor->nlayers) return 0;
    const struct layer *layer = &descriptor->layers[part->layer];
    const uint32_t per_shard = parts_per_shard(layer);
    if (part->shard >= layer->layout.nshards || part->part >= per_shard) return 0;
    uint64_t position = 1 + (uint64_t)part->shard * per_shard + part->part;
    for (uint32_t i = 0; i < part->layer; i++)
        position += (uint64_t)descriptor->layers[i].layout.nshards *
                    parts_per_shard(&descriptor->layers[i]);
    if (part->young)
        return part->part == 0 && layer->kind == LAYER_BLOCKED && !layer_is_joined(layer) &&
                       young_capacity(&layer->layout, part->nbytes) != 0
                   ? position
                   : 0;
    struct part due;
    return part_at(descriptor, position, &due) && due.nbytes == part->nbytes ? position : 0;
}

static const char *check_order(const struct chunk *chunk, const struct descriptor *target) {
    if (chunk->source != target->load->source)
        return "it belongs to another filter or another dump";
    if (chunk->from != target->load->next) return "it is out of order";
    return NULL;
}

/* Shards that the source has not created are left out, but only as a whole. So the memory that a
 * chunk makes the server allocate is in proportion to the chunk's own length. */
const char *chunk_check_data(const struct chunk *chunk, const struct descriptor *target) {
    const char *problem = check_order(chunk, target);
    if (problem) return problem;
    const uint64_t nparts = count_parts(target), last = position_of(chunk->to);
    uint64_t next = position_of(chunk->from);
    if (chunk->to != iterator_at(target, chunk->source, last) || last > nparts + 1)
        return "its iterator is not one of the filter's";
    struct part part, due;
    size_t nparts_read = 0;
    for (size_t at = 0; at < chunk->nbody;) {
        if (nparts_read++ == CHUNK_MAX_PARTS) return "it has too many parts";
        if (!chunk_read_part(chunk, &at, &part)) return "a part of it is too short";
        const uint64_t position = position_of_part(target, &part);
        if (position == 0) return "a part of it does not belong to the filter";
        const bool skips = position != next;
        if (position < next || (skips && part.part != 0) ||
            (skips && part_at(target, next, &due) && due.part != 0))
            return "its parts are out of order";
        next = position + (part.young ? parts_per_shard(&target->layers[part.layer]) : 1);
    }
    if (chunk->nbody == 0 || last != next) return "its parts do not reach its iterator";
    return NULL;
}

const char *chunk_read_end(const struct chunk *chunk, struct descriptor *target) {
    const char *problem = check_order(chunk, target);
    if (problem) return problem;
    struct part due;
    const uint64_t next = position_of(chunk->from), nparts = count_parts(target);
    if (chunk->to != iterator_at(target, chunk->source, nparts + 2) ||
        (part_at(target, next, &due) && due.part != 0))
        return "it comes too early";
    if (target->load->nbytes < target->load->total) return "chunks before it are missing";
    if (chunk->nbody != 8 * (size_t)target->nlayers) return "its filter has grown";
    struct load *load = target->load;
    uint64_t before[SIZING_MAX_LAYERS];
    for (uint32_t i = 0; i < target->nlayers; i++) {
        before[i] = target->layers[i].nitems;
        target->layers[i].nitems = bytes_get(chunk->body + 8 * i, 8);
    }
    target->load = NULL;
    problem = descriptor_problem(target);
    if (!problem) {
        descriptor_allocator.free(load);
        return NULL;
    }
    for (uint32_t i = 0; i < target->nlayers; i++) target->layers[i].nitems = before[i];
    target->load = load;
    return problem;
}
