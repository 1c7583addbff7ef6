/* Any bytes as the first chunk of a dump that RedisBloom made; the first 8 bytes are where a data
 * chunk claims to go. */
#include "fuzz.h"

#include "core/classic.h"
#include "core/encoding.h"
#include "core/redisbloom.h"
#include "core/sizing.h"

static size_t nasked;

static void *counted_alloc(size_t nbytes) {
    nasked += nbytes;
    return malloc(nbytes);
}

static void *counted_realloc(void *old, size_t nbytes) {
    nasked += nbytes;
    return realloc(old, nbytes);
}

static void check_layer(const struct descriptor *descriptor, uint32_t index) {
    const struct layout *layout = &descriptor->layers[index].layout;
    HOLDS(layout->nshards >= 1 && layout->nshards <= LAYOUT_MAX_SHARDS);
    HOLDS(SIZING_SHARD_HEADER + layout_shard_bytes(layout) < 512u << 20);
    HOLDS(layer_count_created(&descriptor->layers[index]) <= layout->nshards);
}

static void check_place(const struct descriptor *descriptor, uint64_t from, uint64_t nbytes) {
    uint32_t layer;
    uint64_t offset;
    if (!redisbloom_locate(descriptor, from, nbytes, &layer, &offset)) return;
    HOLDS(layer < descriptor->nlayers);
    const struct layout *layout = &descriptor->layers[layer].layout;
    HOLDS(offset + nbytes <= (uint64_t)layout->nshards * layout_shard_bytes(layout));
}

/* It can be stored, and is the same when read again. */
static void check_stored(const struct descriptor *descriptor) {
    const size_t nbytes = descriptor_encoded_size(descriptor);
    uint8_t *bytes = malloc(nbytes), *again = malloc(nbytes);
    const char *problem;
    descriptor_encode(descriptor, bytes);
    struct descriptor *stored = descriptor_decode(bytes, nbytes, &problem);
    if (!stored) fprintf(stderr, "%s\n", problem);
    HOLDS(stored && descriptor_encoded_size(stored) == nbytes);
    descriptor_encode(stored, again);
    HOLDS(memcmp(bytes, again, nbytes) == 0);
    descriptor_free(stored);
    free(bytes);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t from;
    const char *problem = NULL;
    if (size < sizeof from) return 0;
    memcpy(&from, data, sizeof from);
    descriptor_allocator =
        (struct allocator){.alloc = counted_alloc, .realloc = counted_realloc, .free = free};
    nasked = 0;
    uint8_t *bytes = fuzz_copy(data + sizeof from, size - sizeof from);
    struct descriptor *descriptor = redisbloom_decode_header(
        bytes, size - sizeof from, size % 2 ? 32u << 20 : SIZING_MIN_SHARD_BYTES, &problem);
    free(bytes);
    HOLDS((descriptor == NULL) == (problem != NULL));
    /* A bit for each shard that there can be, in each layer that the header has bytes for. */
    HOLDS(nasked <= 4096 + size * (LAYOUT_MAX_SHARDS / 8 / 48 + 64));
    if (!descriptor) return 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) check_layer(descriptor, i);
    check_place(descriptor, from, size);
    check_place(descriptor, from, 1 + from % 4096);
    check_place(descriptor, redisbloom_total_bytes(descriptor), 1);
    check_stored(descriptor);
    descriptor_free(descriptor);
    return 0;
}
