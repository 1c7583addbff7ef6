#include "core/layout.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Position number i is the top log2(block bits) bits of bits * MULTIPLIER^i (mod 2^64): a
 * multiplicative congruential generator that starts with the item's own 64 random bits. The
 * multiplier is from Steele and Vigna, "Computationally easy, spectrally good multipliers for
 * congruential pseudorandom number generators". It scatters tuples well in many dimensions, which
 * keeps two items of a block from sharing more bits than by chance: the measured false-positive
 * rate equals that of independent positions (tests/unit/test_rate.c). Double hashing, a + i*b,
 * costs the same, but in blocks this small it gave several times the rate. */
#define MULTIPLIER 0xf1357aea2e62a9c5u

#define FIRST 4u /* probes that rule out most absent items */

/* Bit p of a block is what GETBIT calls bit p: the most significant bit of a byte comes first. */
static inline size_t byte_of(uint64_t state, unsigned shift) {
    return (size_t)(state >> (shift + 3));
}

/* The bit's value, shifted to 0x80; the bits above it are garbage. */
static inline unsigned bit_at_80(const uint8_t *block, uint64_t state, unsigned shift) {
    return (unsigned)block[byte_of(state, shift)] << (state >> shift & 7);
}

struct item_hash layout_hash(const void *item, size_t nbytes, uint64_t seed) {
    XXH128_hash_t hash = XXH3_128bits_withSeed(item, nbytes, seed);
    return (struct item_hash){hash.high64, hash.low64};
}

/* About half of an absent item's bits are set, so a branch per bit would be mispredicted every
 * other time. Instead, FIRST bits are read before the only branch: 15 of 16 absent items leave
 * there, which predicts well. An item that passes is most likely present, and all its other bits
 * must be read. The reads do not depend on each other, so their cache misses overlap. */
bool layout_test(const struct layout *layout, const uint8_t *block, uint64_t bits) {
    const unsigned shift = 64u - layout->block_log2;
    unsigned left = layout->nprobes, all = 0x80;
    if (left > FIRST) {
        const uint64_t s0 = bits, s1 = s0 * MULTIPLIER, s2 = s1 * MULTIPLIER, s3 = s2 * MULTIPLIER;
        all &= bit_at_80(block, s0, shift) & bit_at_80(block, s1, shift) &
               bit_at_80(block, s2, shift) & bit_at_80(block, s3, shift);
        if (!all) return false;
        bits = s3 * MULTIPLIER;
        left -= FIRST;
    }
    for (; left > 0; left--, bits *= MULTIPLIER) all &= bit_at_80(block, bits, shift);
    return all != 0;
}

bool layout_set(const struct layout *layout, uint8_t *block, uint64_t bits) {
    const unsigned shift = 64u - layout->block_log2;
    unsigned changed = 0;
    for (unsigned left = layout->nprobes; left > 0; left--, bits *= MULTIPLIER) {
        uint8_t *byte = block + byte_of(bits, shift);
        const unsigned old = *byte, new = old | 0x80u >> (bits >> shift & 7);
        changed |= old ^ new;
        *byte = (uint8_t) new;
    }
    return changed != 0;
}

/* Blocks of up to four lines are fetched whole, which suits the processor's own prefetcher. Of
 * wider ones, only the lines of the first probes are fetched. */
#define NARROW_BYTES 256u

void layout_prefetch(const struct layout *layout, const uint8_t *block, uint64_t bits) {
    const size_t nbytes = layout_block_bytes(layout);
    if (nbytes > NARROW_BYTES) {
        layout_prefetch_first(layout, block, bits);
        return;
    }
    for (size_t at = 0; at < nbytes; at += 64) __builtin_prefetch(block + at);
}

void layout_prefetch_first(const struct layout *layout, const uint8_t *block, uint64_t bits) {
    const unsigned shift = 64u - layout->block_log2;
    for (unsigned i = 0; i < FIRST; i++, bits *= MULTIPLIER)
        __builtin_prefetch(block + byte_of(bits, shift));
}

uint32_t layout_position(const struct layout *layout, uint64_t bits, unsigned probe) {
    while (probe-- > 0) bits *= MULTIPLIER;
    return (uint32_t)(bits >> (64u - layout->block_log2));
}
