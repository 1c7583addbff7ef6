/* adopt.h: BF.ADOPT, and the kind of layer that it makes. */
#ifndef ADOPT_H
#define ADOPT_H

#include "store/layer.h"

extern const struct layer_ops adopt_layer_ops;

int BFAdopt_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

/* The share of an adopted string's 2^BITS bits that are set, from at most about max_bytes of it; *sampled tells which
 * share of its bytes was looked at. */
double adopt_fill(const struct layer *layer, const uint8_t *string, size_t nbytes, size_t max_bytes,
                  double *sampled);

#endif
