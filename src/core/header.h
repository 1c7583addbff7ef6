/* header.h: the 55 bytes at the start of each shard's string. They say whose string it is and in
 * which form, so that an overwritten, renamed or truncated string is detected. Why 55: the server
 * puts 9 bytes before such a string, so the blocks begin on a cache line. */
#ifndef HEADER_H
#define HEADER_H

#include "core/descriptor.h"

#define HEADER_BYTES SIZING_SHARD_HEADER

enum shard_form {
    FORM_DENSE = 0, /* blocks of this layer and of layers joined to it */
    FORM_YOUNG = 1, /* a table of items: young.h */
};

void header_write(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                  enum shard_form form, uint8_t header[HEADER_BYTES]);

/* Is this the header of that shard, in either form? */
bool header_fits(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                 const uint8_t header[HEADER_BYTES]);

/* The same if only the filter's id and the layer's number are known. */
bool header_names(const uint8_t header[HEADER_BYTES], uint64_t id, uint32_t number, uint32_t shard);

/* The header must fit. */
enum shard_form header_form(const uint8_t header[HEADER_BYTES]);

/* Items in a young shard. Clients can write to the string, so don't trust the number. */
uint32_t header_nitems(const uint8_t header[HEADER_BYTES]);
void header_set_nitems(uint8_t header[HEADER_BYTES], uint32_t nitems);

#endif
