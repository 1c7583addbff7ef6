#include "core/header.h"

#include <string.h>

#include "core/bytes.h"

static const uint8_t magic[4] = {'B', 'F', 'S', 'H'};

/* Offsets of the fields; docs/format.md has the table. */
enum {
    AT_VERSION = 4,
    AT_BLOCK_LOG2 = 5,
    AT_NPROBES = 6,
    AT_RESERVED_BYTE = 7,
    AT_ID = 8,
    AT_SHARD = 16,
    AT_NSHARDS = 20,
    AT_NBLOCKS = 24,
    AT_FORM = 28,
    AT_NITEMS = 29,
    AT_LAYER = 33,
    AT_RESERVED = 37
};

_Static_assert(HEADER_BYTES - AT_RESERVED > 16 && HEADER_BYTES - AT_RESERVED <= 24,
               "header_fits looks at the reserved bytes by three words");

void header_write(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                  enum shard_form form, uint8_t header[HEADER_BYTES]) {
    const struct layout *layout = &descriptor->layers[layer].layout;
    memset(header, 0, HEADER_BYTES);
    memcpy(header, magic, sizeof magic);
    header[AT_VERSION] = DESCRIPTOR_VERSION;
    header[AT_BLOCK_LOG2] = layout->block_log2;
    header[AT_NPROBES] = layout->nprobes;
    bytes_put(header + AT_LAYER, descriptor_number(descriptor, layer), 4);
    bytes_put(header + AT_ID, descriptor->id, 8);
    bytes_put(header + AT_SHARD, shard, 4);
    bytes_put(header + AT_NSHARDS, layout->nshards, 4);
    bytes_put(header + AT_NBLOCKS, layout->nblocks, 4);
    header[AT_FORM] = (uint8_t)form;
}

/* Compares field by field. This is done for every command and every shard, and building the
 * expected header would cost more than testing all bits of an item. The reserved bytes are zero. */
bool header_fits(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                 const uint8_t header[HEADER_BYTES]) {
    const struct layout *layout = &descriptor->layers[layer].layout;
    return memcmp(header, magic, sizeof magic) == 0 && header[AT_VERSION] == DESCRIPTOR_VERSION &&
           header[AT_BLOCK_LOG2] == layout->block_log2 && header[AT_NPROBES] == layout->nprobes &&
           header[AT_RESERVED_BYTE] == 0 && bytes_u64(header + AT_ID) == descriptor->id &&
           bytes_u32(header + AT_LAYER) == descriptor_number(descriptor, layer) &&
           bytes_u32(header + AT_SHARD) == shard &&
           bytes_u32(header + AT_NSHARDS) == layout->nshards &&
           bytes_u32(header + AT_NBLOCKS) == layout->nblocks &&
           (header[AT_FORM] == FORM_YOUNG ||
            (header[AT_FORM] == FORM_DENSE && bytes_u32(header + AT_NITEMS) == 0)) &&
           (bytes_u64(header + AT_RESERVED) | bytes_u64(header + AT_RESERVED + 8) |
            bytes_u64(header + HEADER_BYTES - 8)) == 0;
}

bool header_names(const uint8_t header[HEADER_BYTES], uint64_t id, uint32_t number,
                  uint32_t shard) {
    return memcmp(header, magic, sizeof magic) == 0 && bytes_u32(header + AT_LAYER) == number &&
           bytes_u64(header + AT_ID) == id && bytes_u32(header + AT_SHARD) == shard;
}

enum shard_form header_form(const uint8_t header[HEADER_BYTES]) {
    return header[AT_FORM] == FORM_YOUNG ? FORM_YOUNG : FORM_DENSE;
}

uint32_t header_nitems(const uint8_t header[HEADER_BYTES]) {
    return bytes_u32(header + AT_NITEMS);
}

void header_set_nitems(uint8_t header[HEADER_BYTES], uint32_t nitems) {
    bytes_put(header + AT_NITEMS, nitems, 4);
}
