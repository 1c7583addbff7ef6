/* layer.h: the kinds of layers behind one interface. A kind decides which bits of a layer's shards stand for an item;
 * everything else (growth, counting, batches, persistence, replication, sweeping) is the same for all of them.
 *
 * The usual kind, LAYER_BLOCKED, is not in the table: filter.c has its functions inline, because a call per item would
 * cost a tenth of what an item of a batch costs. Every other kind provides a struct layer_ops:
 *
 *   1. a value of enum layer_kind, and in descriptor.c what it stores and what must hold of it;
 *   2. pure functions from the bytes of an item to bits, unit-tested without Redis;
 *   3. locate, contains and insert below, and its line in layer_ops_of.
 *
 * A kind that hashes items in its own way keeps the hash in lookup->own and its name in lookup->own_for, so that it
 * hashes an item once per command, however many layers of the kind there are. */
#ifndef LAYER_H
#define LAYER_H

#include "store/strings.h"

enum answer {
    ANSWER_KNOWN = 0, /* seen before, or a false positive */
    ANSWER_NEW = 1,   /* not seen before; by filter_add, now added */
    ANSWER_FULL = 2,  /* not seen before and not added: the filter can't take more */
    ANSWER_OOM = 3,   /* not seen before and not added: the server can't */
};

/* One item on its way through a filter. The caller sets `item`; the rest is the filter's. */
struct lookup {
    RedisModuleString *item;
    struct item_hash hash;
    uint8_t *block;     /* blocked layers: in the layer at hand; NULL if its shard does not exist */
    enum answer answer; /* the result */
    enum layer_kind own_for; /* the kind whose hash `own` is; 0: none yet */
    uint64_t own[2];         /* the hash of a kind that does not use `hash` */
};

struct layer_ops {
    /* Opens all shards that the item needs in this layer, and asks the processor for the memory it will touch. A shard
     * that was never created is no error. False if one is lost: shards->status tells why. */
    bool (*locate)(struct shards *shards, uint32_t index, struct lookup *lookup);

    /* Does the layer contain the item? Only after locate, in the same command. */
    bool (*contains)(struct shards *shards, uint32_t index, struct lookup *lookup);

    /* Adds an item, making the shards it lacks, and counts it in layer->nitems; false if the layer contained it
     * already. Only after locate said true for all items of the command, so that it can't fail. */
    bool (*insert)(struct shards *shards, uint32_t index, struct lookup *lookup);
};

extern const struct layer_ops layer_classic_ops;

/* NULL for LAYER_BLOCKED. */
const struct layer_ops *layer_ops_of(enum layer_kind kind);

#endif
