/* encoding.h: the bytes in which a descriptor is stored. The only file that knows them;
 * docs/format.md describes them for other readers. */
#ifndef ENCODING_H
#define ENCODING_H

#include "core/descriptor.h"

/* The encoded form. descriptor_encode writes exactly descriptor_encoded_size bytes.
 * descriptor_decode takes any bytes, checks each and all of them, and returns NULL with the reason
 * in *problem if they are not a valid descriptor. */
size_t descriptor_encoded_size(const struct descriptor *descriptor);
void descriptor_encode(const struct descriptor *descriptor, uint8_t *bytes);
struct descriptor *descriptor_decode(const uint8_t *bytes, size_t nbytes, const char **problem);

#endif
