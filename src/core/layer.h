/* layer.h: one interface for all kinds of layers. A kind decides which bits of a layer's shards
 * stand for an item; everything else (growth, counting, batches, persistence, replication,
 * sweeping) is the same for all of them. A new kind needs:
 *
 *   1. a value of enum layer_kind, and in descriptor.c what it stores and which rules it follows;
 *   2. pure functions from the bytes of an item to bits;
 *   3. locate, contains and insert below, and its line in ops_of in filter.c.
 *
 * A kind with its own hash function keeps the hash in lookup->own and its kind in lookup->own_for.
 * That way it hashes an item once per command, however many of the layers are of this kind. */
#ifndef LAYER_H
#define LAYER_H

#include "core/access.h"

/* One item on its way through a filter. The caller sets the item; the filter sets the rest. */
struct lookup {
    const char *item;
    size_t nbytes; /* of the item */
    struct item_hash hash;
    struct shard *shard;     /* blocked layers: in the current layer; NULL: not created */
    uint32_t block;          /* blocked layers: in that shard */
    enum answer answer;      /* the result */
    bool changed;            /* it was added to the filter or to its newest slice */
    uint32_t found;          /* the layer that contains it, if any */
    enum layer_kind own_for; /* the kind that computed `own`; 0: none yet */
    uint64_t own[2];         /* the hash of a kind that does not use `hash` */
};

struct layer_ops {
    /* Opens all shards that the item needs in this layer and prefetches the memory that will be
     * read. A shard that was never created is not an error. False if one is lost: access->status
     * says why. */
    bool (*locate)(struct access *access, uint32_t index, struct lookup *lookup);

    /* Does the layer contain the item? Call it after locate, in the same command. */
    bool (*contains)(struct access *access, uint32_t index, struct lookup *lookup);

    /* Would adding the item make a string grow by megabytes? Call it after locate. */
    bool (*allocates)(struct access *access, uint32_t index, struct lookup *lookup);

    /* Adds an item. Sets bits and never clears any (law I1), creates missing shards, and counts the
     * item in layer->nitems. ANSWER_NEW; ANSWER_KNOWN if the layer contained it already;
     * ANSWER_LOST if a string that must grow is lost; ANSWER_OOM if a string must grow that was
     * not expected to. Call it after locate. */
    enum answer (*insert)(struct access *access, uint32_t index, struct lookup *lookup);
};

extern const struct layer_ops layer_classic_ops; /* layer_classic.c */
extern const struct layer_ops layer_adopted_ops; /* layer_adopted.c */

#endif
