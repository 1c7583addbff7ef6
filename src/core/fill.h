/* fill.h: how full a shard is, from a sample of its bits. Counting 10 GB would take seconds. */
#ifndef FILL_H
#define FILL_H

#include "core/access.h"

/* Per layer, for BF.SHARDS. There may be 64 layers: 16 MB take 3 ms. */
#define FILL_SAMPLE_BYTES (256u << 10)

/* The share of bits that are set in an open shard, or would be if it were dense. *sampled is the
 * share of the shard that was read. */
double fill_of_shard(const struct layer *layer, const struct shard *shard, double *sampled);

/* The same for an adopted string, reading at most about max_bytes. */
double fill_of_adopted(const struct layer *layer, const struct shard *shard, size_t max_bytes,
                       double *sampled);

#endif
