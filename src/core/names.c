#include "core/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "bf:{", then the tag, then "}:id:layer:shard" */
#define NUMBERS_ROOM 64u

bool names_tag(const char *name, size_t length, const char **tag, size_t *tag_length) {
    const char *open = memchr(name, '{', length);
    const char *close = open ? memchr(open, '}', (size_t)(name + length - open)) : NULL;
    if (close && close > open + 1) {
        *tag = open + 1;
        *tag_length = (size_t)(close - open - 1);
        return true;
    }
    /* Without a hash tag the server hashes the whole name. It can be put between braces only if it
     * has no '}' and is not empty. */
    *tag = name;
    *tag_length = length;
    return length > 0 && !memchr(name, '}', length);
}

size_t names_room(const struct descriptor *descriptor) {
    const struct adoption *adoption = descriptor->layers[0].adoption;
    const size_t prefix = adoption ? adoption->prefix_length : 0;
    return (prefix > descriptor->tag_length ? prefix : descriptor->tag_length) + NUMBERS_ROOM;
}

/* The first batch of a new filter builds a hundred names: snprintf would take a quarter of its
 * time. */
static char *put_decimal(char *at, uint32_t number) {
    char digits[10];
    size_t n = 0;
    do digits[n++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (n > 0) *at++ = digits[--n];
    return at;
}

static char *put_hexadecimal(char *at, uint64_t number) {
    for (int shift = 60; shift >= 0; shift -= 4) *at++ = "0123456789abcdef"[number >> shift & 15];
    return at;
}

static char *put_bytes(char *at, const char *bytes, size_t n) {
    memcpy(at, bytes, n);
    return at + n;
}

size_t names_string(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                    char *text) {
    const struct layer *in = &descriptor->layers[layer];
    char *at = text;
    if (!layer_owns_shards(in)) {
        at = put_bytes(at, in->adoption->prefix, in->adoption->prefix_length);
        if (in->adoption->numbered) at = put_decimal(at, shard);
        return (size_t)(at - text);
    }
    at = put_bytes(at, "bf:{", 4);
    at = put_bytes(at, descriptor->tag, descriptor->tag_length);
    at = put_bytes(at, "}:", 2);
    at = put_hexadecimal(at, descriptor->id);
    *at++ = ':';
    at = put_decimal(at, descriptor_number(descriptor, in->home));
    *at++ = ':';
    return (size_t)(put_decimal(at, shard) - text);
}

bool names_parse(const char *name, size_t length, uint64_t *id, uint32_t *number, uint32_t *shard) {
    /* The tag may contain anything, so it ends at the last brace. */
    const char *brace = memrchr(name, '}', length);
    char text[NUMBERS_ROOM], again[NUMBERS_ROOM];
    const size_t n = brace ? (size_t)(name + length - brace) : 0;
    if (n == 0 || n >= sizeof text || length < 5 || memcmp(name, "bf:{", 4)) return false;
    memcpy(text, brace, n);
    text[n] = '\0';
    if (sscanf(text, "}:%16" SCNx64 ":%10" SCNu32 ":%10" SCNu32, id, number, shard) != 3)
        return false;
    /* sscanf accepts signs, spaces, leading zeros and trailing characters; names must not have
     * any. */
    snprintf(again, sizeof again, "}:%016" PRIx64 ":%" PRIu32 ":%" PRIu32, *id, *number, *shard);
    return n == strlen(again) && memcmp(text, again, n) == 0;
}

/* CRC-16/XMODEM, the cluster's hash. Bit by bit is fast enough: it is needed when filters are
 * created, loaded or removed, not when they are used. */
static unsigned crc16(const char *bytes, size_t n) {
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)(unsigned char)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++) crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
    return crc;
}

unsigned names_slot(const char *name, size_t length) {
    const char *tag;
    size_t tag_length;
    names_tag(name, length, &tag, &tag_length);
    return crc16(tag, tag_length) & (NAMES_NSLOTS - 1);
}

unsigned names_filter_slot(const struct descriptor *descriptor) {
    /* A filter made outside a cluster may have a tag that does not keep its shards in one slot. */
    if (descriptor->tag_length == 0 || memchr(descriptor->tag, '}', descriptor->tag_length))
        return NAMES_NSLOTS;
    return crc16(descriptor->tag, descriptor->tag_length) & (NAMES_NSLOTS - 1);
}

bool names_share_slot(const struct descriptor *descriptor, const char *name, size_t length) {
    const unsigned slot = names_slot(name, length);
    const struct layer *first = &descriptor->layers[0];
    if (names_filter_slot(descriptor) != slot) return false;
    if (layer_owns_shards(first)) return true;
    /* A prefix without a tag of its own: the slot depends on the number. */
    char *text = descriptor_allocator.alloc(names_room(descriptor));
    bool share = text != NULL;
    for (uint32_t i = 0; share && i < first->layout.nshards; i++)
        share = names_slot(text, names_string(descriptor, 0, i, text)) == slot;
    descriptor_allocator.free(text);
    return share;
}
