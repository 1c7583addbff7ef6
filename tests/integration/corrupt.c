#include "corrupt.h"

#include <stdlib.h>
#include <string.h>

static uint64_t state;

void corrupt_seed(uint64_t seed) {
    state = seed;
}

unsigned corrupt_draw(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

Bytes bytes_copy(const void *data, size_t nbytes) {
    Bytes bytes = {malloc(nbytes + 1), nbytes};
    memcpy(bytes.data, data, nbytes);
    return bytes;
}

void bytes_free(Bytes *bytes) {
    free(bytes->data);
    *bytes = (Bytes){0};
}

/* Replaces ncut bytes at `at` by others. */
static void replace(Bytes *bytes, size_t at, size_t ncut, const void *by, size_t nby) {
    if (at > bytes->nbytes) at = bytes->nbytes;
    if (ncut > bytes->nbytes - at) ncut = bytes->nbytes - at;
    uint8_t *data = malloc(bytes->nbytes - ncut + nby + 1);
    memcpy(data, bytes->data, at);
    if (nby) memcpy(data + at, by, nby);
    memcpy(data + at + nby, bytes->data + at + ncut, bytes->nbytes - at - ncut);
    free(bytes->data);
    *bytes = (Bytes){data, bytes->nbytes - ncut + nby};
}

/* Lengths and numbers at which programs break, in the server's encoding of lengths and as
 * little-endian integers. */
static const struct {
    uint8_t nbytes;
    uint8_t bytes[9];
} evil[] = {
    {1, {0}},
    {1, {1}},
    {1, {0x7f}},
    {1, {0x80}},
    {1, {0xff}},
    {2, {0x7f, 0xff}},
    {4, {0}},
    {4, {0xff, 0xff, 0xff, 0xff}},
    {4, {0, 0, 4, 0}},
    {4, {1, 0, 4, 0}},
    {4, {0, 0, 0, 0x80}},
    {5, {0x80, 0xff, 0xff, 0xff, 0xff}},
    {5, {0x80, 0x20, 0, 0, 0}},
    {8, {0}},
    {8, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
    {8, {0, 0, 0, 0, 0, 1, 0, 0}},
    {8, {0, 0, 0, 0, 0, 0, 0xf8, 0x7f}},
    {9, {0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
    {9, {0x81, 0, 0, 0, 0, 0x80, 0, 0, 0}},
    {3, {0xc3, 0x05, 0x40}}, /* a compressed string */
};

static size_t place(const Bytes *bytes, size_t head) {
    const size_t range = corrupt_draw(4) && head < bytes->nbytes ? head : bytes->nbytes;
    return range ? corrupt_draw((unsigned)range) : 0;
}

static void corrupt_once(Bytes *bytes, const Bytes *other, size_t head) {
    const size_t at = place(bytes, head);
    const unsigned n = 1 + corrupt_draw(12), e = corrupt_draw(sizeof evil / sizeof *evil);
    uint8_t noise[16];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)corrupt_draw(256);
    switch (corrupt_draw(14)) {
    case 0: /* the gentle ones most often: they are accepted most often */
    case 1:
    case 9:
    case 10:
    case 11:
    case 12:
        if (at < bytes->nbytes) bytes->data[at] ^= (uint8_t)(1u << corrupt_draw(8));
        break;
    case 2:
        replace(bytes, at, n, noise, n);
        break;
    case 3:
        replace(bytes, at, bytes->nbytes, NULL, 0);
        break;
    case 4:
        replace(bytes, at, n, NULL, 0);
        break;
    case 5:
        replace(bytes, at, 0, noise, n);
        break;
    case 6:
        replace(bytes, at, evil[e].nbytes, evil[e].bytes, evil[e].nbytes);
        break;
    case 7: {
        Bytes copy = bytes_copy(bytes->data, bytes->nbytes);
        const size_t from = place(&copy, head), rest = copy.nbytes - from;
        replace(bytes, at, 0, copy.data + from, rest < n ? rest : n);
        bytes_free(&copy);
        break;
    }
    default: {
        const size_t from = corrupt_draw(2) && at < other->nbytes ? at : place(other, head);
        replace(bytes, at, bytes->nbytes, other->data + from, other->nbytes - from);
    }
    }
}

void corrupt(Bytes *bytes, const Bytes *other, size_t head) {
    for (unsigned n = 1 + corrupt_draw(3) * corrupt_draw(2); n > 0; n--)
        corrupt_once(bytes, other, head);
}

uint64_t crc64(const void *data, size_t nbytes) {
    const uint8_t *bytes = data;
    uint64_t crc = 0;
    for (size_t i = 0; i < nbytes; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x95ac9329ac4bc9b5u : 0); /* the polynomial, reflected */
    }
    return crc;
}

void crc64_seal(Bytes *bytes) {
    if (bytes->nbytes < 8) return;
    uint64_t crc = crc64(bytes->data, bytes->nbytes - 8);
    for (size_t i = bytes->nbytes - 8; i < bytes->nbytes; i++, crc >>= 8)
        bytes->data[i] = (uint8_t)crc;
}
