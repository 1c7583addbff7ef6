/* merge.h: the union of filters.
 *
 * Filters with the same seed and layers of the same shape put an item in the same place. So their
 * union is the union of their bits, layer by layer and shard by shard. Bits can be set in any
 * order, in pieces, and twice: an interrupted union is simply started again.
 *
 * The first layer is united with the first, the second with the second, and so on. With a window,
 * the same applies within slices that began at the same moment.
 *
 * The number of items in the union is not known, because nobody knows which items were in both. For
 * young shards it is counted. For bitmaps it is estimated, block by block, from the bits set before
 * and after. A layer may end up with more items than its capacity and a higher error rate than it
 * was made for. */
#ifndef MERGE_H
#define MERGE_H

#include "core/access.h"

#define MERGE_NO_LAYER UINT32_MAX

/* A filter like the source but without layers: with its seed, error rate, growth and window. NULL
 * if there is no memory. */
struct descriptor *merge_like(const struct descriptor *source, const char *tag, size_t tag_length,
                              uint64_t id);

/* Can the source's layers from `first` on be united with the destination? If so, appends the layers
 * that the destination lacks, empty. Otherwise says why not; the destination may have got some of
 * the layers, so use a copy. */
bool merge_extend(struct descriptor *to, const struct descriptor *from, uint32_t first,
                  char *problem, size_t room);

/* The layer of `to` that corresponds to this layer of `from`, or MERGE_NO_LAYER. A layer that `to`
 * has marked as over counts no more, so it corresponds to none. */
uint32_t merge_target(const struct descriptor *to, const struct descriptor *from, uint32_t layer);

/* Do these layers put an item in the same place? */
bool merge_fits(const struct layer *to, const struct layer *from);

/* Which bits to set: the indices of the layers in their descriptors, a shard, and a part of its
 * blocks. (A young shard is always taken whole.) */
struct merge_part {
    uint32_t to;
    uint32_t from;
    uint32_t shard;
    uint32_t block;
    uint32_t nblocks; /* at most as many as there are */
};

/* Consecutive shards: one command to replicas. */
struct merge_range {
    struct merge_part part; /* of the first shard; all have the same blocks */
    uint32_t nshards;
    uint64_t nitems; /* of the destination's layer afterwards */
};

enum merge_outcome {
    MERGE_DONE,
    MERGE_FROM_LOST, /* the source's string is lost: see the status of its access */
    MERGE_TO_LOST,   /* the destination's is */
    MERGE_NO_MEMORY, /* the server has none for a bitmap */
};

/* How the destination's layer has changed. */
struct merge_gain {
    double nitems; /* additional items */
    bool changed;
};

/* Sets the source's bits in the destination. Creates the shard if the destination has none, and
 * turns a young one into its bitmap if the source's is dense. Adds to the gain. If it fails,
 * nothing has changed. Leaves the strings open. */
enum merge_outcome merge_shard(struct access *to, struct access *from,
                               const struct merge_part *part, struct merge_gain *gain);

#endif
