/* merge.h: the union of filters.
 *
 * Filters of one seed whose layers have equal shapes put an item into the same place, so the union
 * of two of them is the union of their bits, layer by layer and shard by shard. Setting bits can be
 * done in any order, in pieces, and twice: a union that was interrupted is simply begun again.
 *
 * Which layer of one belongs to which of the other: the first to the first, and so on; of filters
 * with a window the same within the slice that began at the same moment.
 *
 * What the union holds is not known, because nobody knows which items were in both. Of young shards
 * it is counted; of bitmaps it is estimated, block by block, from how many bits are set before and
 * after. A layer may have more items than its capacity then, and answers wrongly more often than it
 * was made for. */
#ifndef MERGE_H
#define MERGE_H

#include "core/access.h"

#define MERGE_NO_LAYER UINT32_MAX

/* An empty filter like the source, with no layers yet: its seed, promise, growth and window. NULL
 * for lack of memory. */
struct descriptor *merge_like(const struct descriptor *source, const char *tag, size_t tag_length,
                              uint64_t id);

/* May the source's layers from `first` on be united with those of the destination? If so, appends
 * to the destination, empty, the layers that it lacks. Otherwise says what is in the way; the
 * destination may have got some of the layers then, so use a copy. */
bool merge_extend(struct descriptor *to, const struct descriptor *from, uint32_t first,
                  char *problem, size_t room);

/* The layer of `to` that belongs to this one of `from`; MERGE_NO_LAYER if there is none. */
uint32_t merge_target(const struct descriptor *to, const struct descriptor *from, uint32_t layer);

/* Do these layers put an item into the same place? */
bool merge_fits(const struct layer *to, const struct layer *from);

/* Where to set which bits: places of the layers in their descriptors, a shard, and a part of its
 * blocks. (A young shard is always taken whole.) */
struct merge_part {
    uint32_t to;
    uint32_t from;
    uint32_t shard;
    uint32_t block;
    uint32_t nblocks; /* no more than there are */
};

/* Several shards, one after the other: what one command to replicas tells. */
struct merge_range {
    struct merge_part part; /* the first of them; all have the same blocks */
    uint32_t nshards;
    uint64_t nitems; /* of the destination's layer afterwards */
};

enum merge_outcome {
    MERGE_DONE,
    MERGE_FROM_LOST, /* the source's string is lost: its access says why */
    MERGE_TO_LOST,   /* the destination's is */
    MERGE_NO_MEMORY, /* the server has none for a bitmap */
};

/* What has become of the destination's layer. */
struct merge_gain {
    double nitems; /* more than before */
    bool changed;
};

/* Sets the source's bits in the destination, which gets the shard if it has none, and turns it into
 * its bitmap if it is young and the source's is not. Adds to the gain. Nothing has changed unless
 * it is done. Leaves the strings open. */
enum merge_outcome merge_shard(struct access *to, struct access *from,
                               const struct merge_part *part, struct merge_gain *gain);

#endif
