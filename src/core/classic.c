/* MurmurHash2 and MurmurHash64A are Austin Appleby's, written here from their description: each
 * word of the input is multiplied, folded onto itself, multiplied again and mixed into the state.
 * Then the remaining bytes are added, and a last round spreads them. RedisBloom runs on
 * little-endian machines, so words are read as little-endian here. */
#include "core/classic.h"

#include "core/bytes.h"

#define MULTIPLIER_64 0xc6a4a7935bd1e995u
#define MULTIPLIER_32 0x5bd1e995u
#define SEED_64       0xc6a4a7935bd1e995u
#define SEED_32       0x9747b28cu

static uint64_t murmur_64a(const uint8_t *bytes, size_t nbytes, uint64_t seed) {
    uint64_t state = seed ^ (nbytes * MULTIPLIER_64);
    for (; nbytes >= 8; bytes += 8, nbytes -= 8) {
        uint64_t word = bytes_u64(bytes) * MULTIPLIER_64;
        word = (word ^ (word >> 47)) * MULTIPLIER_64;
        state = (state ^ word) * MULTIPLIER_64;
    }
    if (nbytes > 0) state = (state ^ bytes_get(bytes, (unsigned)nbytes)) * MULTIPLIER_64;
    state = (state ^ (state >> 47)) * MULTIPLIER_64;
    return state ^ (state >> 47);
}

static uint32_t murmur_32(const uint8_t *bytes, size_t nbytes, uint32_t seed) {
    uint32_t state = seed ^ (uint32_t)nbytes;
    for (; nbytes >= 4; bytes += 4, nbytes -= 4) {
        uint32_t word = bytes_u32(bytes) * MULTIPLIER_32;
        word = (word ^ (word >> 24)) * MULTIPLIER_32;
        state = state * MULTIPLIER_32 ^ word;
    }
    if (nbytes > 0) state = (state ^ (uint32_t)bytes_get(bytes, (unsigned)nbytes)) * MULTIPLIER_32;
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
