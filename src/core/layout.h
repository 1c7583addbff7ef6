/* layout.h: how an item maps to bits.
 *
 * An item is hashed once, into 128 bits. The high half chooses a shard and a block in it, the low
 * half chooses k bits inside that block. The mapping is part of the stored format (docs/format.md):
 * changing anything here requires a new descriptor version. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits of the format; decoders and sizing refuse anything beyond them. */
#define LAYOUT_MIN_BLOCK_LOG2 9u
#define LAYOUT_MAX_BLOCK_LOG2 15u /* one memory page */
#define LAYOUT_MAX_PROBES     64u
#define LAYOUT_MAX_SHARDS     (1u << 18)

struct layout {
    uint32_t nshards;   /* shards of the layer */
    uint32_t nblocks;   /* blocks in each shard */
    uint8_t block_log2; /* log2 of the bits in a block */
    uint8_t nprobes;    /* bits set for each item, usually called k */
};

struct item_hash {
    uint64_t place; /* chooses shard and block */
    uint64_t bits;  /* chooses the bits in the block */
};

struct item_place {
    uint32_t shard;
    uint32_t block;
};

static inline size_t layout_block_bytes(const struct layout *layout) {
    return (size_t)1 << (layout->block_log2 - 3);
}

/* Bytes of all blocks of one shard, without its header. */
static inline size_t layout_shard_bytes(const struct layout *layout) {
    return (size_t)layout->nblocks * layout_block_bytes(layout);
}

static inline bool layout_is_same(const struct layout *a, const struct layout *b) {
    return a->nshards == b->nshards && a->nblocks == b->nblocks && a->block_log2 == b->block_log2 &&
           a->nprobes == b->nprobes;
}

struct item_hash layout_hash(const void *item, size_t nbytes, uint64_t seed);

/* Multiplying and keeping the high half maps a uniform 64-bit number to 0..n-1 without division.
 * The low half is what the choice left over: it is again uniform within the chosen shard. */
static inline struct item_place layout_place(const struct layout *layout, uint64_t place) {
    unsigned __int128 shard = (unsigned __int128)place * layout->nshards;
    unsigned __int128 block = (unsigned __int128)(uint64_t)shard * layout->nblocks;
    return (struct item_place){(uint32_t)(shard >> 64), (uint32_t)(block >> 64)};
}

/* Prefetches the cache lines of a block before layout_test or layout_set needs them. */
void layout_prefetch(const struct layout *layout, const uint8_t *block, uint64_t bits);

/* The same, but only the lines that rule out most absent items: a processor can wait for only a few
 * lines at a time. */
void layout_prefetch_first(const struct layout *layout, const uint8_t *block, uint64_t bits);

/* Are all bits of the item set in its block? */
bool layout_test(const struct layout *layout, const uint8_t *block, uint64_t bits);

/* Sets all bits of the item in its block; true if at least one of them was not set before. */
bool layout_set(const struct layout *layout, uint8_t *block, uint64_t bits);

/* The position, 0 … 2^block_log2 − 1, of the item's bit number `probe`. For tests, tools and
 * documentation. */
uint32_t layout_position(const struct layout *layout, uint64_t bits, unsigned probe);

#endif
