/* descriptor.h: what is known of a filter besides its bits. */
#ifndef DESCRIPTOR_H
#define DESCRIPTOR_H

#include "core/recipe.h"
#include "core/layout.h"
#include "core/sizing.h"

#define DESCRIPTOR_VERSION       1u
#define DESCRIPTOR_MAX_TAG       65535u
#define DESCRIPTOR_MAX_EXPANSION 32768u

#define WINDOW_MAX_SECONDS  1000000000u  /* 31 years */
#define WINDOW_MAX_SLICES   32u          /* they are layers, of which there are 64 at most */
#define WINDOW_MIN_SLICE_MS 100u         /* so that the numbers of layers last for decades */
#define WINDOW_MAX_MS       (1ull << 53) /* no slice begins later */
/* No slice begins with a layer of a higher number: as many as a filter can have still follow it. */
#define WINDOW_MAX_NUMBER (UINT32_MAX - SIZING_MAX_LAYERS)

/* How a layer keeps its items. */
enum layer_kind {
    LAYER_BLOCKED = 1, /* our own shards: blocks addressed by layout.h */
    LAYER_CLASSIC = 2, /* bits that RedisBloom set, in shards of our own: classic.h */
    LAYER_ADOPTED = 3  /* bitmaps that others wrote with SETBIT: recipe.h; the first layer only */
};

/* Flags of a layer; each kind has its own. */
#define LAYER_WIDE   1u /* classic: hashes of 64 bits, not 32 */
#define LAYER_JOINED 1u /* blocked: its only shard continues the string of the layer before */

struct layer {
    enum layer_kind kind;
    uint8_t flags;
    uint32_t home;        /* the layer with which its string begins: itself, unless it is joined */
    uint32_t offset;      /* of its blocks behind the string's header; 0 unless it is joined */
    struct layout layout; /* of a kind that has no blocks: how its bytes are cut into shards */
    uint64_t began_ms;    /* of a filter with a window: when its slice began; otherwise 0 */
    uint64_t nbits;       /* classic: bits that items are spread over */
    uint64_t nbytes;      /* classic: bytes of the array at its origin, which may be a few more */
    uint64_t capacity;    /* items at which the layer is full */
    uint64_t nitems;      /* items added to this layer */
    uint64_t nstored;     /* bytes of its strings, headers included; of an adopted layer 0 */
    uint8_t *created;     /* a bit per shard, the lowest first: has the shard ever been created? */
    struct adoption *adoption; /* adopted: how and where; otherwise NULL */
};

/* Where the chunks of a filter that is being loaded come from. */
enum load_origin { LOAD_OURS = 1, LOAD_REDISBLOOM = 2 };

/* How far the loading of a filter, chunk by chunk, has come. */
struct load {
    enum load_origin origin;
    uint64_t source; /* id of the filter that is copied; 0 where it has none */
    uint64_t next;   /* the chunk that must come now: the one BF.SCANDUMP gives for this iterator */
    uint64_t nbytes; /* bytes of bits loaded so far */
    uint64_t total;  /* bytes that there were at the start; only to tell how far it is */
};

/* A filter with a window forgets: core/window.h. */
struct window {
    uint32_t seconds;      /* how long an item is remembered, at least */
    uint32_t nslices;      /* into which a window is cut */
    bool sliding;          /* an item that is added again is remembered from then on */
    uint32_t first_number; /* of the oldest layer; those before it are gone */
    uint32_t nover; /* layers, the oldest, that the primary has found over but could not drop yet:
                       a slice that counts shares their string, or their cluster slot is moving */
    uint64_t capacity; /* items for each window */
};

struct descriptor {
    uint64_t id;           /* random; part of the shards' names */
    uint64_t seed;         /* of the hash */
    double error;          /* the promised false-positive rate of the whole filter */
    char *tag;             /* what stands between braces in the shards' names; no NUL behind it */
    struct layer *layers;  /* oldest first; the last one takes new items */
    uint32_t tag_length;   /* bytes in tag */
    uint32_t nlayers;      /* at least 1 */
    uint32_t shard_bytes;  /* largest allocation of a shard, for layers to come */
    uint32_t expansion;    /* capacity factor from layer to layer; 0: the filter does not grow */
    struct load *load;     /* half loaded, not to be used; NULL: the filter is complete */
    struct window *window; /* NULL: the filter never forgets */
};

/* The allocator that the core uses: the server's in the module, malloc's in tests. */
struct allocator {
    /* May fail: the function at hand then fails and leaves no trace. */
    void *(*alloc)(size_t nbytes);
    void *(*realloc)(void *old, size_t nbytes);
    void *(*need)(size_t nbytes);                  /* does not return if there is no memory */
    void *(*need_zeroed)(size_t n, size_t nbytes); /* the same, of n times nbytes */
    void (*free)(void *memory);
};
extern struct allocator descriptor_allocator;

/* Makes an empty descriptor with no layers, or NULL for lack of memory. */
struct descriptor *descriptor_new(const char *tag, size_t tag_length);
void descriptor_free(struct descriptor *descriptor);

/* A copy with memory of its own; NULL for lack of it. */
struct descriptor *descriptor_copy(const struct descriptor *from);

/* Puts another tag in place; false for lack of memory. */
bool descriptor_set_tag(struct descriptor *descriptor, const char *tag, size_t tag_length);

/* Makes it a filter with such a window; false for lack of memory. */
bool descriptor_set_window(struct descriptor *descriptor, const struct window *window);

/* Makes it a half-loaded filter; false for lack of memory. And a complete one again. */
bool descriptor_begin_load(struct descriptor *descriptor, const struct load *load);
void descriptor_end_load(struct descriptor *descriptor);

/* The number of a layer: what names its strings. It never changes, and the next layer has the next
 * one (law I5); where the oldest layers are dropped it is not the layer's place. */
static inline uint32_t descriptor_number(const struct descriptor *descriptor, uint32_t layer) {
    return layer + (descriptor->window ? descriptor->window->first_number : 0);
}

/* The first layer of the newest slice; of a filter without a window, the first of all. */
uint32_t descriptor_newest_slice(const struct descriptor *descriptor);

/* Of the n oldest layers, how many can go without cutting a string in two? */
uint32_t descriptor_whole_strings(const struct descriptor *descriptor, uint32_t n);

/* Takes the n oldest layers of a filter with a window away, and returns a descriptor of these
 * alone. NULL for lack of memory: then nothing has changed. No string may hold layers of both
 * sides. */
struct descriptor *descriptor_split(struct descriptor *descriptor, uint32_t n);

/* Takes back an append: the newest layer goes, of which no string was made. */
void descriptor_drop_newest(struct descriptor *descriptor);

/* Appends a layer like this one, with no shard created yet, and finds its home; false for lack of
 * memory, or of numbers. */
bool descriptor_append(struct descriptor *descriptor, const struct layer *like);

/* Appends an empty blocked layer to the newest slice; false for lack of memory. */
bool descriptor_add_layer(struct descriptor *descriptor, const struct layout *layout,
                          uint64_t capacity);

/* The same for one that may join the string of the layer before, if that does not get too long by
 * it. Layers that share a string cost one key to open, however many they are. */
bool descriptor_add_layer_joined(struct descriptor *descriptor, const struct layout *layout,
                                 uint64_t capacity);

/* Appends an empty layer of kind LAYER_ADOPTED, with a copy of the adoption, and derives its
 * layout: a shard is a string, a block is a cache line of it. False for lack of memory. */
bool descriptor_add_adopted(struct descriptor *descriptor, const struct adoption *adoption);

/* A copy with memory of its own; NULL for lack of it. */
struct adoption *adoption_copy(const struct adoption *from);

/* Are the layer's strings the filter's own, to be copied, moved and removed with it? */
static inline bool layer_owns_shards(const struct layer *layer) {
    return !layer->adoption || layer->adoption->owned;
}

/* Makes copies of the adopted strings the filter's own: from now on they are named like shards. */
void descriptor_own_adopted(struct descriptor *descriptor);

/* Forgets the strings that are not the filter's own: what is left marked as created may be
 * removed. */
void descriptor_disown(struct descriptor *descriptor);

/* Bytes of the marks of its shards. */
static inline size_t layer_bitmap_bytes(const struct layout *layout) {
    return ((size_t)layout->nshards + 7) / 8;
}

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

/* The strings that begin with this layer: one for each shard, none if it shares that of the layer
 * before. Whoever goes over a filter's strings, not over its bits, counts these. */
static inline uint32_t layer_nstrings(const struct layer *layer) {
    return layer_is_joined(layer) ? 0 : layer->layout.nshards;
}

/* Bytes of the blocks that a shard's string has now: the layer's own and those of created layers
 * that joined it. Only for a layer that is not joined itself. */
size_t descriptor_string_bytes(const struct descriptor *descriptor, uint32_t home);

static inline struct layer *descriptor_newest(const struct descriptor *descriptor) {
    return &descriptor->layers[descriptor->nlayers - 1];
}

uint32_t layer_count_created(const struct layer *layer);

/* What its strings take if all of them exist. A young shard takes less than a dense one, none takes
 * more. */
static inline uint64_t layer_most_stored(const struct layer *layer) {
    const uint64_t shard = layout_shard_bytes(&layer->layout) + SIZING_SHARD_HEADER;
    return layer->adoption ? 0 : layer->layout.nshards * shard;
}

/* Totals over all layers: capacity, items, strings created, bytes of these strings (adopted ones
 * apart). */
uint64_t descriptor_capacity(const struct descriptor *descriptor);
uint64_t descriptor_nitems(const struct descriptor *descriptor);
uint64_t descriptor_nshards(const struct descriptor *descriptor);
uint64_t descriptor_nstored(const struct descriptor *descriptor);

/* Forgets all strings: as if none had been created yet. */
void descriptor_clear_strings(struct descriptor *descriptor);

/* Goes over those of a filter's strings that were ever created:
 *
 *     for (struct string_cursor at = {0}; descriptor_next_string(descriptor, &at);)
 *         … at.layer, at.shard … */
struct string_cursor {
    uint32_t layer; /* the string begins with this layer, */
    uint32_t shard; /* and holds this shard of it */
    uint32_t next;  /* where to go on in the layer */
};
bool descriptor_next_string(const struct descriptor *descriptor, struct string_cursor *at);

/* The string is gone, with all layers that share it. */
void descriptor_forget_string(struct descriptor *descriptor, const struct string_cursor *at);

/* What is wrong with a layer, with how far a filter was loaded, with a window, with all of a
 * descriptor but its layers, with a whole descriptor; or NULL. Every decoded one has passed. */
const char *layer_problem(const struct layer *layer);
const char *load_problem(const struct load *load);
const char *window_problem(const struct window *window);
const char *descriptor_head_problem(const struct descriptor *descriptor);
const char *descriptor_problem(const struct descriptor *descriptor);

/* Why this blocked layer can't share the string of the newest one, which must not get longer than
 * max_bytes; NULL: it can. */
const char *descriptor_join_problem(const struct descriptor *descriptor, const struct layer *layer,
                                    uint64_t max_bytes);

#endif
