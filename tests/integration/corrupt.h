/* corrupt.h: bytes made wrong on purpose, the same way in every run. */
#ifndef CORRUPT_H
#define CORRUPT_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that grow; data is to be freed. */
typedef struct {
    uint8_t *data;
    size_t nbytes;
} Bytes;

/* The generator behind all of this. */
void corrupt_seed(uint64_t seed);
unsigned corrupt_draw(unsigned below); /* below >= 1 */

Bytes bytes_copy(const void *data, size_t nbytes);
void bytes_free(Bytes *bytes);

/* Makes one to three changes: flips, overwrites, cuts, inserts, repeats, or goes over to `other`
 * somewhere. Favours the first `head` bytes, where lengths and counts are. */
void corrupt(Bytes *bytes, const Bytes *other, size_t head);

/* CRC-64 as the server computes it for DUMP payloads and RDB files: polynomial ad93d23594c935a9,
 * reflected, from 0. */
uint64_t crc64(const void *data, size_t nbytes);
/* Puts the right checksum into the last 8 bytes, little-endian. */
void crc64_seal(Bytes *bytes);

#endif
