/* descriptor.h: what is known of a filter besides its bits, and the bytes in which that is stored. The only file that
 * knows those bytes (docs/format.md describes them for other readers). Knows nothing of Redis. */
#ifndef DESCRIPTOR_H
#define DESCRIPTOR_H

#include "core/recipe.h"
#include "core/layout.h"

#define DESCRIPTOR_VERSION       1u
#define DESCRIPTOR_MAX_TAG       65535u
#define DESCRIPTOR_MAX_EXPANSION 32768u

/* How a layer keeps its items. */
enum layer_kind {
    LAYER_BLOCKED = 1, /* our own shards: blocks addressed by layout.h */
    LAYER_CLASSIC = 2, /* bits that RedisBloom set, in shards of our own: classic.h */
    LAYER_ADOPTED = 3  /* bitmaps that others wrote with SETBIT: adopted.h; the first layer only */
};

/* Flags of a layer; each kind has its own. */
#define LAYER_WIDE   1u /* classic: hashes of 64 bits, not 32 */
#define LAYER_JOINED 1u /* blocked: its only shard continues the string of the layer before */

struct layer {
    enum layer_kind kind;
    uint8_t flags;
    uint32_t home;        /* the layer with which its string begins: itself, unless it is joined */
    size_t offset;        /* of its blocks behind the string's header; 0 unless it is joined */
    struct layout layout; /* of a kind that has no blocks: how its bytes are cut into shards */
    uint64_t nbits;       /* classic: bits that items are spread over */
    uint64_t nbytes;      /* classic: bytes of the array at its origin, which may be a few more */
    uint64_t capacity;    /* items at which the layer is full */
    uint64_t nitems;      /* items added to this layer */
    uint8_t
        *created; /* one bit per shard, least significant first: has the shard ever been created? */
    struct adoption *adoption; /* adopted: how and where; otherwise NULL */
};

/* Where the chunks of a filter that is being loaded come from. */
enum load_origin {
    LOAD_NONE = 0, /* the filter is complete */
    LOAD_OURS = 1,
    LOAD_REDISBLOOM = 2
};

/* How far the loading of a filter, chunk by chunk, has come. */
struct load {
    enum load_origin origin;
    uint64_t source; /* id of the filter that is copied; 0 where it has none */
    uint64_t next;   /* the chunk that must come now: the one BF.SCANDUMP gives for this iterator */
    uint64_t nbytes; /* bytes of bits loaded so far */
    uint64_t total;  /* bytes that there were at the start; only to tell how far it is */
};

struct descriptor {
    uint64_t id;          /* random; part of the shards' names */
    uint64_t seed;        /* of the hash */
    double error;         /* the promised false-positive rate of the whole filter */
    uint64_t shard_bytes; /* largest allocation of a shard, for layers to come */
    uint32_t ncopies;     /* how often it was the source of COPY; makes the copies' ids differ */
    uint32_t expansion;   /* capacity factor from layer to layer; 0: the filter does not grow */
    uint32_t tag_length;  /* bytes in tag */
    char *tag;        /* what stands between the braces in the shards' names; not NUL-terminated */
    uint32_t nlayers; /* at least 1 */
    struct layer *layers; /* oldest first; the last one takes new items */
    struct load load;     /* load.origin != LOAD_NONE: half loaded, not to be used */
};

/* The allocator that descriptors use: the server's in the module, malloc's in tests. An allocation that fails makes
 * the function at hand fail and leaves no trace. */
struct allocator {
    void *(*alloc)(size_t nbytes);
    void *(*realloc)(void *old, size_t nbytes);
    void (*free)(void *memory);
};
extern struct allocator descriptor_allocator;

/* Makes an empty descriptor with no layers, or NULL for lack of memory. */
struct descriptor *descriptor_new(const char *tag, size_t tag_length);
void descriptor_free(struct descriptor *descriptor);

/* Puts another tag in place; false for lack of memory. */
bool descriptor_set_tag(struct descriptor *descriptor, const char *tag, size_t tag_length);

/* Appends a layer like this one, with no shard created yet, and finds its home; false for lack of memory. */
bool descriptor_append(struct descriptor *descriptor, const struct layer *like);

/* Appends an empty blocked layer; false for lack of memory. */
bool descriptor_add_layer(struct descriptor *descriptor, const struct layout *layout,
                          uint64_t capacity);

/* The same for one that may join the string of the layer before, if that does not get too long by it. Layers that share
 * a string cost one key to open, however many they are. */
bool descriptor_add_layer_joined(struct descriptor *descriptor, const struct layout *layout,
                                 uint64_t capacity);

/* Appends an empty layer of kind LAYER_ADOPTED, with a copy of the adoption, and derives its layout: a shard is a string,
 * a block is a cache line of it. False for lack of memory. */
bool descriptor_add_adopted(struct descriptor *descriptor, const struct adoption *adoption);

/* Are the layer's strings the filter's own, to be copied, moved and removed with it? */
static inline bool layer_owns_shards(const struct layer *layer) {
    return !layer->adoption || layer->adoption->owned;
}

/* Makes copies of the adopted strings the filter's own: from now on they are named like shards. */
void descriptor_own_adopted(struct descriptor *descriptor);

/* Forgets the strings that are not the filter's own: what is left marked as created may be removed. */
void descriptor_disown(struct descriptor *descriptor);

static inline bool layer_shard_created(const struct layer *layer, uint32_t shard) {
    return layer->created[shard >> 3] >> (shard & 7) & 1;
}

static inline void layer_mark_created(struct layer *layer, uint32_t shard) {
    layer->created[shard >> 3] |= (uint8_t)(1u << (shard & 7));
}

static inline void layer_mark_lost(struct layer *layer, uint32_t shard) {
    layer->created[shard >> 3] &= (uint8_t) ~(1u << (shard & 7));
}

static inline bool layer_is_joined(const struct layer *layer) {
    return layer->offset != 0;
}

/* The strings that begin with this layer: one for each shard, none if it shares that of the layer before. Whoever goes
 * over a filter's strings, not over its bits, counts these. */
static inline uint32_t layer_nstrings(const struct layer *layer) {
    return layer_is_joined(layer) ? 0 : layer->layout.nshards;
}

/* Bytes of the blocks that a shard's string has now: the layer's own and those of created layers that joined it. Only
 * for a layer that is not joined itself. */
size_t descriptor_string_bytes(const struct descriptor *descriptor, uint32_t home);

static inline struct layer *descriptor_newest(const struct descriptor *descriptor) {
    return &descriptor->layers[descriptor->nlayers - 1];
}

uint32_t layer_count_created(const struct layer *layer);
uint64_t descriptor_capacity(const struct descriptor *descriptor); /* of all layers */
uint64_t descriptor_nitems(const struct descriptor *descriptor);   /* in all layers */
uint64_t
descriptor_nshards(const struct descriptor *descriptor); /* strings created, in all layers */
uint64_t descriptor_shard_bytes(
    const struct descriptor
        *descriptor); /* string bytes of all created shards, adopted strings apart */

/* What is wrong with a layer, or with a whole descriptor, or NULL. Every decoded one has passed. */
const char *layer_problem(const struct layer *layer);
const char *descriptor_problem(const struct descriptor *descriptor);

/* The encoded form. descriptor_encode writes exactly descriptor_encoded_size bytes. descriptor_decode takes any bytes,
 * checks each and all of them, and returns NULL with the reason in *problem if they are not a valid descriptor. */
size_t descriptor_encoded_size(const struct descriptor *descriptor);
void descriptor_encode(const struct descriptor *descriptor, uint8_t *bytes);
struct descriptor *descriptor_decode(const uint8_t *bytes, size_t nbytes, const char **problem);

/* The 55 bytes at the start of each shard: they tell whose it is, so that a misplaced string is noticed. */
#define SHARD_HEADER_BYTES 55u
void descriptor_shard_header(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                             uint8_t header[SHARD_HEADER_BYTES]);
bool descriptor_owns_shard(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                           const uint8_t *header);

/* Whether this is the header of that shard, by a descriptor that is not at hand. */
bool descriptor_is_header_of(const uint8_t header[SHARD_HEADER_BYTES], uint64_t id, uint32_t layer,
                             uint32_t shard);

#endif
