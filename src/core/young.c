#include "core/young.h"

#include "core/bytes.h"

/* One item per this many bytes of bitmap: a table then takes 1 to 2% of the bitmap's memory, and
 * turning it costs little more than the zeroing. */
#define BYTES_PER_ITEM 2048u

#define AHEAD 16u /* entries to prefetch when a table is turned into a bitmap */

/* But no more than this, before spreading: for shards over 32 MB, a table would not fit into a part
 * of a dump. */
#define MAX_BASE 16384u

/* How many times its limit a table may grow to while its shard waits to turn. */
#define PATIENCE 8u

_Static_assert(MAX_BASE * 2 * PATIENCE / 3 * 4 * 2 * YOUNG_ENTRY_BYTES <= YOUNG_MAX_BYTES,
               "twice what three quarters of are the most items that a table can have");

/* A multiplicative hash of the shard's number spreads neighbours evenly over 0 … 1. */
static uint32_t spread(uint32_t shard, uint32_t range) {
    const uint32_t hash = (shard + 1) * 0x9e3779b9u;
    return (uint32_t)((uint64_t)hash * range >> 32);
}

/* The lowest number of items at which a large shard turns; 0: when its first table is full. */
static uint32_t base_of(const struct layout *layout) {
    const size_t base = layout_shard_bytes(layout) / BYTES_PER_ITEM;
    if (base <= YOUNG_FIRST / 4 * 3) return 0;
    return base < MAX_BASE ? (uint32_t)base : MAX_BASE;
}

uint32_t young_limit(const struct layout *layout, uint32_t shard) {
    const uint32_t base = base_of(layout);
    return base ? base + spread(shard, base) : YOUNG_FIRST / 4 * 3;
}

uint32_t young_last_limit(const struct layout *layout, uint32_t shard) {
    return young_limit(layout, shard) * PATIENCE;
}

/* The smallest table with room for one more than nitems. */
uint32_t young_capacity_for(uint32_t nitems) {
    uint32_t capacity = YOUNG_FIRST;
    while (!young_has_room(capacity, nitems)) capacity *= 2;
    return capacity;
}

uint32_t young_capacity(const struct layout *layout, size_t nbytes) {
    const size_t capacity = nbytes / YOUNG_ENTRY_BYTES;
    const uint32_t base = base_of(layout);
    const uint32_t most = young_capacity_for((base ? base : YOUNG_FIRST) * 2 * PATIENCE);
    if (!young_begins(layout) || capacity * YOUNG_ENTRY_BYTES != nbytes || capacity < YOUNG_FIRST ||
        capacity > most || (capacity & (capacity - 1)) != 0 || nbytes >= layout_shard_bytes(layout))
        return 0;
    return (uint32_t)capacity;
}

/* The entry of this item, or the free one where it would go, or NULL. The search always ends,
 * because anybody may have written to the string. */
static const uint8_t *locate(const uint8_t *table, uint32_t capacity, uint32_t block,
                             uint64_t bits) {
    const uint32_t mask = capacity - 1;
    const uint32_t nprobes = capacity < YOUNG_MAX_PROBES ? capacity : YOUNG_MAX_PROBES;
    uint32_t at = (uint32_t)bits & mask;
    for (uint32_t n = 0; n < nprobes; n++, at = (at + 1) & mask) {
        const uint8_t *entry = table + young_bytes(at);
        const uint32_t used = bytes_u32(entry);
        if (used == 0 || (used == block + 1 && bytes_u64(entry + 4) == bits)) return entry;
    }
    return NULL;
}

bool young_find(const uint8_t *table, uint32_t capacity, uint32_t block, uint64_t bits) {
    const uint8_t *entry = locate(table, capacity, block, bits);
    return entry && bytes_u32(entry) != 0;
}

bool young_insert(uint8_t *table, uint32_t capacity, uint32_t block, uint64_t bits) {
    uint8_t *entry = (uint8_t *)locate(table, capacity, block, bits);
    if (!entry) return false;
    bytes_put(bytes_put(entry, (uint64_t)block + 1, 4), bits, 8);
    return true;
}

/* Is this entry used, and for a block that exists? */
static bool is_item(const struct layout *layout, const uint8_t *entry) {
    const uint32_t used = bytes_u32(entry);
    return used != 0 && used <= layout->nblocks;
}

bool young_item(const struct layout *layout, const uint8_t *table, uint32_t i, uint32_t *block,
                uint64_t *bits) {
    const uint8_t *entry = table + young_bytes(i);
    if (!is_item(layout, entry)) return false;
    *block = bytes_u32(entry) - 1;
    *bits = bytes_u64(entry + 4);
    return true;
}

bool young_rehash(const struct layout *layout, const uint8_t *from, uint32_t from_capacity,
                  uint8_t *to, uint32_t to_capacity, uint32_t *nitems) {
    bool whole = true;
    uint32_t block;
    uint64_t bits;
    *nitems = 0;
    for (uint32_t i = 0; i < from_capacity; i++) {
        if (!young_item(layout, from, i, &block, &bits)) continue;
        if (young_find(to, to_capacity, block, bits)) continue;
        if (young_insert(to, to_capacity, block, bits))
            ++*nitems;
        else
            whole = false;
    }
    return whole;
}

bool young_is_sound(const struct layout *layout, const uint8_t *table, uint32_t capacity,
                    uint32_t *nitems) {
    *nitems = 0;
    for (uint32_t i = 0; i < capacity; i++) {
        const uint8_t *entry = table + young_bytes(i);
        const uint32_t used = bytes_u32(entry);
        if (used == 0) continue;
        if (used > layout->nblocks ||
            locate(table, capacity, used - 1, bytes_u64(entry + 4)) != entry)
            return false;
        ++*nitems;
    }
    return *nitems <= capacity / 4 * 3;
}

/* The blocks are scattered over the bitmap: prefetching hides most of the memory's latency. */
void young_pour(const struct layout *layout, const uint8_t *table, uint32_t capacity,
                uint8_t *blocks) {
    const size_t block_bytes = layout_block_bytes(layout);
    for (uint32_t i = 0; i < capacity + AHEAD; i++) {
        const uint8_t *next = i < capacity ? table + young_bytes(i) : NULL;
        const uint8_t *entry = i >= AHEAD ? table + young_bytes(i - AHEAD) : NULL;
        if (next && is_item(layout, next))
            layout_prefetch(layout, blocks + (bytes_u32(next) - 1) * block_bytes,
                            bytes_u64(next + 4));
        if (entry && is_item(layout, entry))
            layout_set(layout, blocks + (bytes_u32(entry) - 1) * block_bytes, bytes_u64(entry + 4));
    }
}
