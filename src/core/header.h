/* header.h: the 55 bytes at the start of each shard's string. They say whose string it is and in
 * which form, so that a string which was overwritten, renamed or truncated is noticed. 55, because
 * the server puts 9 bytes before such a string: its blocks then begin at a cache line. */
#ifndef HEADER_H
#define HEADER_H

#include "core/descriptor.h"

#define HEADER_BYTES SIZING_SHARD_HEADER

enum shard_form {
    FORM_DENSE = 0, /* blocks, of this layer and of those that are joined to it */
    FORM_YOUNG = 1, /* a table of items: young.h */
};

void header_write(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                  enum shard_form form, uint8_t header[HEADER_BYTES]);

/* Is this the header of that shard, in one form or the other? */
bool header_fits(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                 const uint8_t header[HEADER_BYTES]);

/* The same where only the id is known, and the number of the layer. */
bool header_names(const uint8_t header[HEADER_BYTES], uint64_t id, uint32_t number, uint32_t shard);

/* Of a header that fits. */
enum shard_form header_form(const uint8_t header[HEADER_BYTES]);

/* Items in a young shard. Clients can write to the string: the number may be anything. */
uint32_t header_nitems(const uint8_t header[HEADER_BYTES]);
void header_set_nitems(uint8_t header[HEADER_BYTES], uint32_t nitems);

#endif
