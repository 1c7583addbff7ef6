/* sizing.h: how large a filter must be. The only file that computes sizes in floating point. The
 * results are integers, which are stored in the descriptor and never computed again. */
#ifndef SIZING_H
#define SIZING_H

#include "core/layout.h"

/* A 128-bit hash is not enough for lower rates in the largest filters. */
#define SIZING_MIN_ERROR       1e-15
#define SIZING_MAX_ERROR       0.25 /* a higher rate is treated as this one */
#define SIZING_MAX_CAPACITY    (1ull << 40)
#define SIZING_MAX_LAYERS      64u
#define SIZING_MIN_SHARD_BYTES 4096u
#define SIZING_MAX_SHARD_BYTES (512u << 20) /* the server's limit for a string */

/* What a string takes beyond its blocks: our header, the server's string header and the final NUL.
 * The two headers fill a cache line, so the blocks of a shard start at one. */
#define SIZING_SHARD_HEADER   55u
#define SIZING_SHARD_OVERHEAD (SIZING_SHARD_HEADER + 9u + 1u)

/* The smallest layout that holds `capacity` items at a false-positive rate of at most `error`. Only
 * items that were new to the layer when added count. No shard's allocation exceeds shard_bytes,
 * unless there would be more than LAYOUT_MAX_SHARDS shards. If `tight`, the layout has the fewest
 * bytes; otherwise it has the smallest allocation and uses all of it. False if even the largest
 * shards are too small. */
bool sizing_plan(uint64_t capacity, double error, uint64_t shard_bytes, bool tight,
                 struct layout *layout);

/* The expected false-positive rate of a layer with this layout after adding nitems different items,
 * including those that were false positives when added. */
double sizing_rate(const struct layout *layout, uint64_t nitems);

/* The same for a classic filter: each item has nprobes bits anywhere among nbits. */
double sizing_classic_rate(uint64_t nbits, unsigned nprobes, uint64_t nitems);

/* The most likely number of items in a block that has nset bits set. */
double sizing_block_items(const struct layout *layout, uint64_t nset);

/* Bits per item of an ideal classic Bloom filter, to which the documentation and BF.PLAN
 * compare. */
double sizing_classic_bits(double error);

/* The share of the promised error that layer number `layer` may use. Over all layers the shares add
 * up to at most 1. */
double sizing_layer_error(double error, unsigned layer, bool scaling);

/* The error of the layer that follows `nlayers` existing ones. The first nclassic of these are
 * RedisBloom's. */
double sizing_next_error(double error, unsigned nlayers, unsigned nclassic);

/* The capacity of the layer that follows `nlayers` existing ones, the last of which holds
 * last_capacity. */
uint64_t sizing_next_capacity(uint64_t last_capacity, uint32_t expansion, unsigned nlayers);

/* The size that the allocator uses for a request of nbytes (jemalloc has four size classes for each
 * doubling). */
uint64_t sizing_size_class(uint64_t nbytes);

#endif
