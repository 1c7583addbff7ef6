/* encoding.h: how a descriptor is stored as bytes. Only this file knows the encoding;
 * docs/format.md describes it for other readers. */
#ifndef ENCODING_H
#define ENCODING_H

#include "core/descriptor.h"

/* descriptor_encode writes exactly descriptor_encoded_size bytes. descriptor_decode accepts any
 * bytes and checks them all. If they are not a valid descriptor, it returns NULL with the reason in
 * *problem. */
size_t descriptor_encoded_size(const struct descriptor *descriptor);
void descriptor_encode(const struct descriptor *descriptor, uint8_t *bytes);
struct descriptor *descriptor_decode(const uint8_t *bytes, size_t nbytes, const char **problem);

#endif
