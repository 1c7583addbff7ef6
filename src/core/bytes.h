/* bytes.h: numbers as little-endian bytes, written with shifts so that they are the same on every
 * machine; and bytes as text for messages. */
#ifndef BYTES_H
#define BYTES_H

#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Writes the low nbytes of a value; returns the address after them. */
static inline uint8_t *bytes_put(uint8_t *at, uint64_t value, unsigned nbytes) {
    for (; nbytes > 0; nbytes--, value >>= 8) *at++ = (uint8_t)value;
    return at;
}

/* Reads a number of nbytes. */
static inline uint64_t bytes_get(const uint8_t *at, unsigned nbytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < nbytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* The same; moves *at past the number. */
static inline uint64_t bytes_take(const uint8_t **at, unsigned nbytes) {
    const uint64_t value = bytes_get(*at, nbytes);
    *at += nbytes;
    return value;
}

/* The two that hot paths need, in a form that compilers turn into one load. */
static inline uint32_t bytes_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t bytes_u64(const uint8_t *at) {
    return bytes_u32(at) | (uint64_t)bytes_u32(at + 4) << 32;
}

/* Text for an error message: without control characters, cut to fit. */
static inline void bytes_show(const char *text, size_t length, char *out, size_t room) {
    size_t n = 0;
    for (; n < length && n + 1 < room; n++)
        out[n] = isprint((unsigned char)text[n]) ? text[n] : '?';
    out[n] = '\0';
}

/* How many bits are set. */
static inline uint64_t bytes_popcount(const uint8_t *bytes, size_t n) {
    uint64_t nset = 0, word;
    for (; n >= 8; n -= 8, bytes += 8) {
        memcpy(&word, bytes, sizeof word);
        nset += (uint64_t)__builtin_popcountll(word);
    }
    for (; n > 0; n--) nset += (uint64_t)__builtin_popcount(*bytes++);
    return nset;
}

#endif
