/* Any bytes as the chunks of BF.LOADCHUNK. Taken as they are they seldom pass the checksum, so they
 * are taken a second time with a frame around them that is right: type and iterators from the first
 * byte, the rest is the body. */
#include "fuzz.h"

#include "core/chunk.h"
#include "core/encoding.h"
#include "core/young.h"

/* Memory in proportion: descriptors are allocated through this. */
static size_t nasked;

static void *counted_alloc(size_t nbytes) {
    nasked += nbytes;
    return malloc(nbytes);
}

static void *counted_realloc(void *old, size_t nbytes) {
    nasked += nbytes;
    return realloc(old, nbytes);
}

/* The table of a young shard, as it is taken in: rebuilt, if need be, it is as we make them. */
static void check_young(const struct layout *layout, const struct part *part) {
    const uint32_t capacity = young_capacity(layout, part->nbytes);
    uint32_t nitems, nagain;
    HOLDS(part->part == 0 && capacity != 0 && young_begins(layout));
    if (young_is_sound(layout, part->bytes, capacity, &nitems)) return;
    uint8_t *table = calloc(1, part->nbytes);
    if (young_rehash(layout, part->bytes, capacity, table, capacity, &nitems) &&
        nitems <= capacity / 4 * 3)
        HOLDS(young_is_sound(layout, table, capacity, &nagain) && nagain == nitems);
    HOLDS(nitems <= capacity);
    free(table);
}

/* Reads all parts of a data chunk for a target; each lies inside the chunk and inside its shard. */
static void check_data(const struct chunk *chunk, const struct descriptor *target) {
    if (chunk_check_data(chunk, target)) return;
    size_t at = 0;
    struct part part;
    while (chunk_read_part(chunk, &at, &part)) {
        HOLDS(at <= chunk->nbody && part.layer < target->nlayers);
        const struct layout *layout = &target->layers[part.layer].layout;
        HOLDS(part.shard < layout->nshards);
        HOLDS((uint64_t)part.part * CHUNK_PART_BYTES + part.nbytes <= layout_shard_bytes(layout));
        HOLDS(part.bytes >= chunk->body && part.bytes + part.nbytes <= chunk->body + chunk->nbody);
        if (part.young) check_young(layout, &part);
        if (part.nbytes) HOLDS(part.bytes[0] + part.bytes[part.nbytes - 1] >= 0);
    }
}

static struct descriptor *check_header(const struct chunk *chunk) {
    const char *problem = NULL;
    nasked = 0;
    struct descriptor *descriptor = chunk_read_header(chunk, &problem);
    HOLDS((descriptor == NULL) == (problem != NULL));
    HOLDS(nasked <= 4096 + 64 * chunk->nbody);
    if (!descriptor) return NULL;
    /* What was announced can be handed out again. */
    uint8_t *bytes = malloc(descriptor_encoded_size(descriptor));
    descriptor_encode(descriptor, bytes);
    free(bytes);
    return descriptor;
}

static void take(const uint8_t *bytes, size_t nbytes, struct descriptor **target) {
    struct chunk chunk;
    const char *problem = chunk_open(bytes, nbytes, &chunk);
    if (problem) return;
    HOLDS(chunk_is_ours(bytes, nbytes));
    HOLDS(chunk.body >= bytes && chunk.body + chunk.nbody <= bytes + nbytes);
    if (chunk.type == CHUNK_HEADER) {
        struct descriptor *descriptor = check_header(&chunk);
        if (!descriptor) return;
        descriptor_free(*target);
        *target = descriptor;
    } else if (*target && chunk.type == CHUNK_DATA) {
        check_data(&chunk, *target);
    } else if (*target) {
        HOLDS(chunk.type == CHUNK_END);
        if (!chunk_read_end(&chunk, *target))
            HOLDS(descriptor_nitems(*target) <= descriptor_capacity(*target));
    }
}

/* The input is a sequence of chunks, each behind its length in two bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct descriptor *target = NULL;
    descriptor_allocator =
        (struct allocator){.alloc = counted_alloc, .realloc = counted_realloc, .free = free};
    for (size_t at = 0; size - at >= 2;) {
        size_t nbytes = (size_t)data[at] | (size_t)data[at + 1] << 8;
        at += 2;
        if (nbytes > size - at) nbytes = size - at;
        uint8_t *bytes = fuzz_copy(data + at, nbytes);
        take(bytes, nbytes, &target);
        if (nbytes > 8) { /* the checksum is the last thing in it */
            chunk_seal(bytes, nbytes);
            take(bytes, nbytes, &target);
        }
        free(bytes);
        at += nbytes;
    }
    descriptor_free(target);
    return 0;
}
