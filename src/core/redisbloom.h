/* redisbloom.h: the chunks that RedisBloom's BF.SCANDUMP returns. */
#ifndef REDISBLOOM_H
#define REDISBLOOM_H

#include "core/descriptor.h"

/* Reads the first chunk of a dump (the one for iterator 1). The result has no id and an empty tag;
 * its load state says that all data is still to come. NULL with the reason in *problem. The memory
 * it allocates depends on the length of the header and the number of shards, never on the sizes
 * that the header claims. */
struct descriptor *redisbloom_decode_header(const uint8_t *bytes, size_t nbytes,
                                            uint64_t shard_bytes, const char **problem);

/* Where the bytes of a data chunk belong. BF.SCANDUMP returned them for iterator `from`, which
 * counts the bytes of all layers from 1. False if they are not within one layer. */
bool redisbloom_locate(const struct descriptor *descriptor, uint64_t from, uint64_t nbytes,
                       uint32_t *layer, uint64_t *offset);

/* Bytes of all layers, as RedisBloom counts them. */
uint64_t redisbloom_total_bytes(const struct descriptor *descriptor);

#endif
