/* header.h: the 55 bytes with which each shard's string begins. They tell whose string it is and in
 * which form, so that one that was overwritten, renamed or cut is noticed. 55, because the server
 * puts 9 bytes before such a string: blocks then begin at a cache line. */
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

/* The same by a descriptor that is not at hand. */
bool header_names(const uint8_t header[HEADER_BYTES], uint64_t id, uint32_t layer, uint32_t shard);

/* Of a header that fits. */
enum shard_form header_form(const uint8_t header[HEADER_BYTES]);

/* Items in a young shard. Others may have written to it: the number may be anything. */
uint32_t header_nitems(const uint8_t header[HEADER_BYTES]);
void header_set_nitems(uint8_t header[HEADER_BYTES], uint32_t nitems);

#endif
