/* layer.h: the kinds of layers behind one interface. A kind decides which bits of a layer's shards
 * stand for an item; everything else (growth, counting, batches, persistence, replication,
 * sweeping) is the same for all of them. A further kind needs:
 *
 *   1. a value of enum layer_kind, and in descriptor.c what it stores and what must hold of it;
 *   2. pure functions from the bytes of an item to bits;
 *   3. locate, contains and insert below, and its line in ops_of in filter.c.
 *
 * A kind that hashes items in its own way keeps the hash in lookup->own and its name in
 * lookup->own_for, so that it hashes an item once per command, however many layers of the kind
 * there are. */
#ifndef LAYER_H
#define LAYER_H

#include "core/access.h"

enum answer {
    ANSWER_KNOWN = 0, /* seen before, or a false positive */
    ANSWER_NEW = 1,   /* not seen before; by filter_add, now added */
    ANSWER_FULL = 2,  /* not seen before and not added: the filter can't take more */
    ANSWER_OOM = 3,   /* not seen before and not added: the server can't */
    ANSWER_LOST = 4,  /* left out, because its shard is lost; only of a repeated command */
};

/* One item on its way through a filter. The caller sets the item; the rest is the filter's. */
struct lookup {
    const char *item;
    size_t nbytes; /* of the item */
    struct item_hash hash;
    struct shard *shard;     /* blocked layers: in the layer at hand; NULL: not created */
    uint32_t block;          /* blocked layers: in that shard */
    enum answer answer;      /* the result */
    bool changed;            /* it was added, to the filter or to its newest slice */
    uint32_t found;          /* the layer that contains it, if it is known */
    enum layer_kind own_for; /* the kind whose hash `own` is; 0: none yet */
    uint64_t own[2];         /* the hash of a kind that does not use `hash` */
};

struct layer_ops {
    /* Opens all shards that the item needs in this layer, and asks the processor for the memory it
     * will touch. A shard that was never created is no error. False if one is lost: access->status
     * says why. */
    bool (*locate)(struct access *access, uint32_t index, struct lookup *lookup);

    /* Does the layer contain the item? Only after locate, in the same command. */
    bool (*contains)(struct access *access, uint32_t index, struct lookup *lookup);

    /* Would adding the item make a string larger by megabytes? Only after locate. */
    bool (*allocates)(struct access *access, uint32_t index, struct lookup *lookup);

    /* Adds an item by setting bits, never by clearing any (law I1), makes the shards it lacks, and
     * counts it in layer->nitems: ANSWER_NEW, or ANSWER_KNOWN if the layer contained it already, or
     * ANSWER_LOST if a string that must become longer is lost. Only after locate. */
    enum answer (*insert)(struct access *access, uint32_t index, struct lookup *lookup);
};

extern const struct layer_ops layer_classic_ops; /* layer_classic.c */
extern const struct layer_ops layer_adopted_ops; /* layer_adopted.c */

#endif
