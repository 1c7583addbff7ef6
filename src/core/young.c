#include "core/young.h"

#include "core/bytes.h"

/* One item for so many bytes of bitmap: a table then takes 2 to 5% of what the bitmap takes, and turning it costs little
 * more than the zeroing. */
#define BYTES_PER_ITEM 1024u

/* How many times its limit a table may grow to if its shard has to wait for its turn. */
#define PATIENCE 8u

/* A multiplicative hash of the shard's number spreads neighbours evenly over 0 … 1. */
static uint32_t spread(uint32_t shard, uint32_t range) {
    const uint32_t hash = (shard + 1) * 0x9e3779b9u;
    return (uint32_t)((uint64_t)hash * range >> 32);
}

/* The first table is used up in any case. */
static uint32_t base_limit(const struct layout *layout) {
    const size_t base = layout_shard_bytes(layout) / BYTES_PER_ITEM;
    return base > YOUNG_FIRST / 4 * 3 ? (uint32_t)base : 0;
}

uint32_t young_limit(const struct layout *layout, uint32_t shard) {
    const uint32_t base = base_limit(layout);
    return base ? base + spread(shard, base) : YOUNG_FIRST / 4 * 3;
}

uint32_t young_last_limit(const struct layout *layout, uint32_t shard) {
    return young_limit(layout, shard) * PATIENCE;
}

uint32_t young_capacity_for(uint32_t nitems) {
    uint32_t capacity = YOUNG_FIRST;
    while (!young_has_room(capacity, nitems)) capacity *= 2;
    return capacity;
}

uint32_t young_capacity(const struct layout *layout, size_t nbytes) {
    const size_t capacity = nbytes / YOUNG_ENTRY_BYTES;
    const uint32_t most = young_capacity_for((base_limit(layout) + YOUNG_FIRST) * 2 * PATIENCE);
    if (!young_begins(layout) || capacity * YOUNG_ENTRY_BYTES != nbytes || capacity < YOUNG_FIRST ||
        capacity > most || (capacity & (capacity - 1)) != 0)
        return 0;
    return (uint32_t)capacity;
}

/* The entry of this item, or the free one where it would go, or NULL. Anybody may have written to the string: the search
 * ends after one round, whatever is in it. */
static const uint8_t *locate(const uint8_t *table, uint32_t capacity, uint32_t block,
                             uint64_t bits) {
    const uint32_t mask = capacity - 1;
    uint32_t at = (uint32_t)bits & mask;
    for (uint32_t n = 0; n < capacity; n++, at = (at + 1) & mask) {
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

uint32_t young_rehash(const struct layout *layout, const uint8_t *from, uint32_t from_capacity,
                      uint8_t *to, uint32_t to_capacity) {
    uint32_t nitems = 0;
    for (uint32_t i = 0; i < from_capacity; i++) {
        const uint8_t *entry = from + young_bytes(i);
        const uint32_t used = bytes_u32(entry);
        const uint64_t bits = bytes_u64(entry + 4);
        if (used == 0 || used > layout->nblocks) continue;
        if (young_find(to, to_capacity, used - 1, bits)) continue;
        if (young_insert(to, to_capacity, used - 1, bits)) nitems++;
    }
    return nitems;
}

void young_pour(const struct layout *layout, const uint8_t *table, uint32_t capacity,
                uint8_t *blocks) {
    const size_t block_bytes = layout_block_bytes(layout);
    for (uint32_t i = 0; i < capacity; i++) {
        const uint8_t *entry = table + young_bytes(i);
        const uint32_t used = bytes_u32(entry);
        if (used == 0 || used > layout->nblocks) continue;
        layout_set(layout, blocks + (used - 1) * block_bytes, bytes_u64(entry + 4));
    }
}
