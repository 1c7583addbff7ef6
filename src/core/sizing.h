/* sizing.h: how large must a filter be? The only file that computes in floating point; its results
 * are integers, which are stored in the descriptor and never computed again. */
#ifndef SIZING_H
#define SIZING_H

#include "core/layout.h"

/* Below this, 128 bits of hash can't keep the promise for the largest filters. */
#define SIZING_MIN_ERROR       1e-15
#define SIZING_MAX_ERROR       0.25 /* a higher rate is treated as this one */
#define SIZING_MAX_CAPACITY    (1ull << 40)
#define SIZING_MAX_LAYERS      64u
#define SIZING_MIN_SHARD_BYTES 4096u
#define SIZING_MAX_SHARD_BYTES (512u << 20) /* the server's limit for a string */

/* What a string costs beyond its blocks: our header, the server's string header, the closing NUL.
 * With the first two the blocks of a shard start at a cache line. */
#define SIZING_SHARD_HEADER   55u
#define SIZING_SHARD_OVERHEAD (SIZING_SHARD_HEADER + 9u + 1u)

/* The smallest layout that holds `capacity` items, each of which was new to it when it came, at a
 * false-positive rate of at most `error`, in shards whose allocation is at most shard_bytes (more
 * only where there would be over LAYOUT_MAX_SHARDS of them). `tight`: the fewest bytes; otherwise
 * the least allocation, all of which is then used. False when even the largest shards are too small
 * for it. */
bool sizing_plan(uint64_t capacity, double error, uint64_t shard_bytes, bool tight,
                 struct layout *layout);

/* The expected false-positive rate of a layer with this layout after nitems different items came,
 * whether they were new to it or false positives. */
double sizing_rate(const struct layout *layout, uint64_t nitems);

/* The same of a classic filter: nprobes bits of each item anywhere among nbits. */
double sizing_classic_rate(uint64_t nbits, unsigned nprobes, uint64_t nitems);

/* Bits per item of an ideal classic Bloom filter, the yardstick of documentation and BF.PLAN. */
double sizing_classic_bits(double error);

/* The share of the promised error that layer number `layer` may use. Over all layers the shares add
 * up to at most 1. */
double sizing_layer_error(double error, unsigned layer, bool scaling);

/* The error of the layer that follows `nlayers` existing ones, of which the first nclassic are
 * RedisBloom's. */
double sizing_next_error(double error, unsigned nlayers, unsigned nclassic);

/* The capacity of the layer that follows `nlayers` existing ones, the last of which holds
 * last_capacity. */
uint64_t sizing_next_capacity(uint64_t last_capacity, uint32_t expansion, unsigned nlayers);

/* What the allocator takes for a request of nbytes (jemalloc's size classes: four for each
 * doubling). */
uint64_t sizing_size_class(uint64_t nbytes);

#endif
