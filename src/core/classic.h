/* classic.h: how items map to bits in the layers of filters that RedisBloom made.
 *
 * RedisBloom keeps a layer as one array of bits. An item has two MurmurHash2 hashes, a and b (64
 * bits in all filters made by 2.x, 32 in some older ones). Its bits are (a + i*b) mod the number of
 * bits, i = 0 … k-1; bit 0 is the least significant of byte 0. Here the array is cut, in order,
 * into shards of equal length. Where RedisBloom computes in 32 bits, the number of bits is a power
 * of two, and 64 bits give the same positions. */
#ifndef CLASSIC_H
#define CLASSIC_H

#include "core/descriptor.h"

struct classic_hash {
    uint64_t a;
    uint64_t b;
};

struct classic_hash classic_hash(const void *item, size_t nbytes, bool wide);

/* The item's bit number `probe` in a layer of nbits bits. */
static inline uint64_t classic_position(struct classic_hash hash, unsigned probe, uint64_t nbits) {
    const uint64_t sum = hash.a + probe * hash.b;
    return (nbits & (nbits - 1)) == 0 ? sum & (nbits - 1) : sum % nbits;
}

struct classic_place {
    uint32_t shard;
    uint32_t byte; /* within the shard's blocks */
    uint8_t mask;  /* of the bit in that byte */
};

static inline struct classic_place classic_place(const struct layout *layout, uint64_t position) {
    const uint64_t byte = position >> 3, shard_bytes = layout_shard_bytes(layout);
    const uint64_t shard = layout->nshards == 1 ? 0 : byte / shard_bytes;
    return (struct classic_place){(uint32_t)shard, (uint32_t)(byte - shard * shard_bytes),
                                  (uint8_t)(1u << (position & 7))};
}

#endif
