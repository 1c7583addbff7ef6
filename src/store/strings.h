/* shard.h: the string keys that hold a filter's bits: how they are called, opened, checked and made. The only file
 * that knows their names. */
#ifndef SHARD_H
#define SHARD_H

#include "core/descriptor.h"
#include "redismodule.h"

enum shard_status {
    SHARD_READY,
    SHARD_NONE,    /* never created: all its bits are zero */
    SHARD_MISSING, /* created, but there is no such key any more */
    SHARD_FOREIGN, /* the key is not a string, or not of the right length, or its header belongs to another shard */
};

/* What is remembered of one shard between commands (its name) and within one command (the open key). */
struct shard_slot {
    RedisModuleString *name; /* built once, NULL before */
    RedisModuleKey *key;     /* NULL unless the running command has it open */
    uint8_t *blocks; /* the first block of the string, while key is open: see shard_blocks */
    uintptr_t hint;  /* where blocks was the last time: good for a prefetch, for nothing else */
    struct shard_slot *next_open; /* the others that the running command has open */
    uint32_t nbytes; /* in all blocks, of joined layers too; an adopted string may be shorter than
                        its layout says */
    bool lost;       /* it was, when last looked at */
};

/* A filter in memory: the value of a key of our type. */
struct filter {
    struct descriptor *descriptor;
    struct shard_slot *
        *slots;      /* by layer, then by shard; an array is made when its layer is first used */
    uint32_t nslots; /* layers for which slots has room */
    uint64_t
        packed_at; /* registry_tick() when it was last packed for MIGRATE (or DUMP); 0: never */
    bool leaving;  /* it goes to another node: its shards will follow, and are not garbage */
};

/* The shards that one command uses. Zero it, set the first three fields, and call shards_close at the end. */
struct shards {
    RedisModuleCtx *ctx;
    struct filter *filter;
    int mode;                 /* REDISMODULE_READ, or with REDISMODULE_WRITE */
    struct shard_slot *open;  /* all open slots */
    enum shard_status status; /* why shards_open failed */
    uint32_t bad_layer;       /* where it failed */
    uint32_t bad_shard;
};

/* The open shard, from this command's earlier work or opened now; NULL with shards->status saying why not. */
struct shard_slot *shards_open_new(struct shards *shards, uint32_t layer, uint32_t shard);

static inline struct shard_slot *shards_open(struct shards *shards, uint32_t layer,
                                             uint32_t shard) {
    const struct filter *filter = shards->filter;
    const struct layer *at = &filter->descriptor->layers[layer];
    if (at->home < filter->nslots && filter->slots[at->home] &&
        filter->slots[at->home][shard].key && (at->home == layer || layer_shard_created(at, 0)))
        return &filter->slots[at->home][shard]; /* the case of all but the first item of a batch */
    return shards_open_new(shards, layer, shard);
}

/* The layer's own blocks in an open shard of it. */
static inline uint8_t *shard_blocks(const struct layer *layer, const struct shard_slot *slot) {
    return slot->blocks + layer->offset;
}

/* Makes an empty shard, marks it as created and returns it open. Whatever is stored under its name is replaced: by the
 * blocks of all layers that share the string. A joined layer is appended to its string instead; if that is lost, NULL
 * with shards->status saying why. */
struct shard_slot *shards_create(struct shards *shards, uint32_t layer, uint32_t shard);

/* For an adopted layer: opens the string, makes it at least nbytes long as SETBIT would, and marks it as created. Only
 * for a string that is sound or not there. */
struct shard_slot *shards_extend(struct shards *shards, uint32_t layer, uint32_t shard,
                                 size_t nbytes);

void shards_close(struct shards *shards);

/* Is the shard there and sound? Leaves nothing open. */
enum shard_status shards_check(struct shards *shards, uint32_t layer, uint32_t shard);

/* The length of the strings of adopted layers. Leaves nothing open. */
uint64_t shards_adopted_bytes(struct shards *shards);

/* A new string with the name of a shard, or of an adopted string. */
RedisModuleString *shard_name(const struct descriptor *descriptor, uint32_t layer, uint32_t shard);

/* Takes the name of a shard apart; false if it is none. */
bool shard_parse_name(const char *name, size_t length, uint64_t *id, uint32_t *layer,
                      uint32_t *shard);

/* The part of a filter's name that its shards' names carry between braces, so that all share one cluster slot: the
 * name's own hash tag, else the whole name. False if in a cluster no such tag can be formed. */
bool shard_tag(const char *name, size_t length, const char **tag, size_t *tag_length);

/* The descriptor as it is stored, for RedisModule_Free. */
char *descriptor_bytes(const struct descriptor *descriptor, size_t *nbytes);

struct filter *filter_wrap(struct descriptor *descriptor);
/* Frees everything but the descriptor. */
struct descriptor *filter_unwrap(struct filter *filter);
/* Puts a later state of the same filter in its place. */
void filter_replace(struct filter *filter, struct descriptor *descriptor);
size_t filter_memory(const struct filter *filter);

#endif
