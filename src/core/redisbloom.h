/* redisbloom.h: the chunks that RedisBloom's BF.SCANDUMP returns. */
#ifndef REDISBLOOM_H
#define REDISBLOOM_H

#include "core/descriptor.h"

/* Reads the first chunk of a dump (the one that goes with iterator 1). The result has no id and an
 * empty tag; its load state says that all data is still to come. NULL with the reason in *problem.
 * Allocates in proportion to the header and to the number of shards, never to the sizes that the
 * header claims. */
struct descriptor *redisbloom_decode_header(const uint8_t *bytes, size_t nbytes,
                                            uint64_t shard_bytes, const char **problem);

/* Where the bytes of a data chunk belong: those that BF.SCANDUMP gave for iterator `from`, which
 * counts the bytes of all layers from 1. False if they do not lie within one layer. */
bool redisbloom_locate(const struct descriptor *descriptor, uint64_t from, uint64_t nbytes,
                       uint32_t *layer, uint64_t *offset);

/* Bytes of all layers, as RedisBloom counts them. */
uint64_t redisbloom_total_bytes(const struct descriptor *descriptor);

#endif
