/* descriptor.h: everything that is known about a filter except its bits. */
#ifndef DESCRIPTOR_H
#define DESCRIPTOR_H

#include "core/recipe.h"
#include "core/layout.h"
#include "core/sizing.h"

#define DESCRIPTOR_VERSION       1u
#define DESCRIPTOR_MAX_TAG       1024u /* the server hashes a string's name at each look-up */
#define DESCRIPTOR_MAX_EXPANSION 32768u

#define WINDOW_MAX_SECONDS  1000000000u  /* 31 years */
#define WINDOW_MAX_SLICES   32u          /* slices are layers, and a filter has at most 64 */
#define WINDOW_MIN_SLICE_MS 100u         /* so that the layer numbers last for decades */
#define WINDOW_MAX_MS       (1ull << 53) /* no slice begins later */
/* The highest number of a slice's first layer. It leaves numbers for as many more layers as a
 * filter can have. */
#define WINDOW_MAX_NUMBER (UINT32_MAX - SIZING_MAX_LAYERS)

/* How a layer keeps its items. */
enum layer_kind {
    LAYER_BLOCKED = 1, /* our own shards: blocks addressed by layout.h */
    LAYER_CLASSIC = 2, /* bits that RedisBloom set, copied to our own shards: classic.h */
    LAYER_ADOPTED = 3  /* bitmaps written by others with SETBIT: recipe.h; first layer only */
};

/* Flags of a layer; each kind has its own. */
#define LAYER_WIDE   1u /* classic: 64-bit hashes instead of 32-bit ones */
#define LAYER_JOINED 1u /* blocked: its only shard continues the previous layer's string */

struct layer {
    enum layer_kind kind;
    uint8_t flags;
    uint32_t home;        /* the first layer in its string: itself, unless it is joined */
    uint32_t offset;      /* of its blocks after the string's header; 0 unless it is joined */
    struct layout layout; /* for kinds without blocks: how its bytes are cut into shards */
    uint64_t began_ms;    /* with a window: when its slice began; otherwise 0 */
    uint64_t nbits;       /* classic: bits that items are spread over */
    uint64_t nbytes;      /* classic: size of the original array, which may exceed nbits a little */
    uint64_t capacity;    /* items at which the layer is full */
    uint64_t nitems;      /* items added to this layer */
    uint64_t nstored;     /* bytes of its strings, headers included; 0 for an adopted layer */
    uint8_t *created;     /* a bit per shard, lowest bit first: has it ever been created? */
    struct adoption *adoption; /* adopted: the recipe and the strings' names; otherwise NULL */
};

/* The source of the chunks from which a filter is being loaded. */
enum load_origin { LOAD_OURS = 1, LOAD_REDISBLOOM = 2 };

/* The progress of loading a filter chunk by chunk. */
struct load {
    enum load_origin origin;
    uint64_t source; /* id of the filter that is copied; 0 if it has none */
    uint64_t next;   /* the chunk expected next: the one BF.SCANDUMP returns for this iterator */
    uint64_t nbytes; /* bytes of bits loaded so far */
    uint64_t total;  /* size of the source at the start; only for reporting progress */
};

/* A filter with a window forgets items: core/window.h. */
struct window {
    uint32_t seconds;      /* how long an item is remembered, at least */
    uint32_t nslices;      /* per window */
    bool sliding;          /* adding an item again makes its time start anew */
    uint32_t first_number; /* of the oldest layer; all before it are gone */
    /* How many of the oldest layers the primary has found to be over but could not drop yet. They
     * share a string with a slice that still counts, or their cluster slot is moving. */
    uint32_t nover;
    uint64_t capacity; /* items for each window */
};

struct descriptor {
    uint64_t id;           /* random; part of the shards' names */
    uint64_t seed;         /* of the hash */
    double error;          /* the promised false-positive rate of the whole filter */
    char *tag;             /* the text in braces in the shards' names; not NUL-terminated */
    struct layer *layers;  /* oldest first; the last one takes new items */
    uint32_t tag_length;   /* bytes in tag */
    uint32_t nlayers;      /* at least 1 */
    uint32_t shard_bytes;  /* largest allocation of a shard, for future layers */
    uint32_t expansion;    /* capacity factor from layer to layer; 0: the filter does not grow */
    struct load *load;     /* half loaded, not usable yet; NULL: the filter is complete */
    struct window *window; /* NULL: the filter never forgets */
};

/* The allocator that the core uses: the server's in the module, malloc's in tests. */
struct allocator {
    /* May return NULL: then the calling function fails and changes nothing. */
    void *(*alloc)(size_t nbytes);
    void *(*realloc)(void *old, size_t nbytes);
    void *(*need)(size_t nbytes);                  /* does not return if there is no memory */
    void *(*need_zeroed)(size_t n, size_t nbytes); /* the same for n times nbytes of zeros */
    void (*free)(void *memory);
};
extern struct allocator descriptor_allocator;

/* Creates a descriptor with no layers. NULL if memory is short. */
struct descriptor *descriptor_new(const char *tag, size_t tag_length);
void descriptor_free(struct descriptor *descriptor);

/* A deep copy. NULL if memory is short. */
struct descriptor *descriptor_copy(const struct descriptor *from);

/* Replaces the tag. False if memory is short. */
bool descriptor_set_tag(struct descriptor *descriptor, const char *tag, size_t tag_length);

/* Gives the filter a window. False if memory is short. */
bool descriptor_set_window(struct descriptor *descriptor, const struct window *window);

/* Mark the filter as half loaded (false if memory is short), and as complete again. */
bool descriptor_begin_load(struct descriptor *descriptor, const struct load *load);
void descriptor_end_load(struct descriptor *descriptor);

/* The number of a layer, which is part of its strings' names. It never changes, and the next layer
 * has the next number (law I5). It differs from the layer's index once older layers were
 * dropped. */
static inline uint32_t descriptor_number(const struct descriptor *descriptor, uint32_t layer) {
    return layer + (descriptor->window ? descriptor->window->first_number : 0);
}

/* The first layer of the newest slice. Without a window, the first layer of the filter. */
uint32_t descriptor_newest_slice(const struct descriptor *descriptor);

/* How many of the n oldest layers can be dropped without cutting a string in two? */
uint32_t descriptor_whole_strings(const struct descriptor *descriptor, uint32_t n);

/* Removes the n oldest layers of a filter with a window and returns a descriptor that has only
 * these. NULL if memory is short: then nothing has changed. No string may hold layers of both
 * parts. */
struct descriptor *descriptor_split(struct descriptor *descriptor, uint32_t n);

/* Undoes an append: removes the newest layer. None of its strings may have been created. */
void descriptor_drop_newest(struct descriptor *descriptor);

/* Appends a copy of this layer, with no shard marked as created, and sets its home and offset.
 * False if memory is short or no layer number is left. */
bool descriptor_append(struct descriptor *descriptor, const struct layer *like);

/* Appends an empty blocked layer to the newest slice. False on failure, as above. */
bool descriptor_add_layer(struct descriptor *descriptor, const struct layout *layout,
                          uint64_t capacity);

/* The same, but the layer joins the string of the previous one if that does not become too long.
 * However many layers share a string, a command opens a single key for them. */
bool descriptor_add_layer_joined(struct descriptor *descriptor, const struct layout *layout,
                                 uint64_t capacity);

/* Appends an empty layer of kind LAYER_ADOPTED with a copy of the adoption, and derives its layout:
 * each string is a shard and each of its cache lines a block. False if memory is short. */
bool descriptor_add_adopted(struct descriptor *descriptor, const struct adoption *adoption);

/* A deep copy. NULL if memory is short. */
struct adoption *adoption_copy(const struct adoption *from);

/* Does the filter own the layer's strings, so that they are copied, moved and removed with it? */
static inline bool layer_owns_shards(const struct layer *layer) {
    return !layer->adoption || layer->adoption->owned;
}

/* Marks the adopted strings as owned by the filter, because they are copies. From now on they are
 * named like shards. */
void descriptor_own_adopted(struct descriptor *descriptor);

/* Forgets the strings that the filter does not own. Those still marked as created may be
 * removed. */
void descriptor_disown(struct descriptor *descriptor);

/* Size of the bitmap layer->created. */
static inline size_t layer_bitmap_bytes(const struct layout *layout) {
    return ((size_t)layout->nshards + 7) / 8;
}

static inline bool layer_shard_created(const struct layer *layer, uint32_t shard) {
    return layer->created[shard >> 3] >> (shard & 7) & 1;
}

static inline void layer_mark_created(struct layer *layer, uint32_t shard) {
    layer->created[shard >> 3] |= (uint8_t)(1u << (shard & 7));
}

static inline void layer_mark_absent(struct layer *layer, uint32_t shard) {
    layer->created[shard >> 3] &= (uint8_t) ~(1u << (shard & 7));
}

/* The first created shard from this one on, or the number of shards. Millions may not be created:
 * finding the next must not take milliseconds. */
uint32_t layer_next_created(const struct layer *layer, uint32_t shard);

static inline bool layer_is_joined(const struct layer *layer) {
    return layer->offset != 0;
}

/* How many strings begin with this layer: one for each shard, or none if it is joined. For loops
 * over a filter's strings rather than over its bits. */
static inline uint32_t layer_nstrings(const struct layer *layer) {
    return layer_is_joined(layer) ? 0 : layer->layout.nshards;
}

/* The size of a shard's string without its header: the layer's own blocks and those of the created
 * layers that joined it. Only for a layer that is not joined itself. */
size_t descriptor_string_bytes(const struct descriptor *descriptor, uint32_t home);

static inline struct layer *descriptor_newest(const struct descriptor *descriptor) {
    return &descriptor->layers[descriptor->nlayers - 1];
}

uint32_t layer_count_created(const struct layer *layer);

/* The size of the layer's strings when all of them exist and are dense; young ones are smaller. */
static inline uint64_t layer_most_stored(const struct layer *layer) {
    const uint64_t shard = layout_shard_bytes(&layer->layout) + SIZING_SHARD_HEADER;
    return layer->adoption ? 0 : layer->layout.nshards * shard;
}

/* Totals over all layers: capacity, items, created strings, and bytes of these strings except
 * adopted ones. */
uint64_t descriptor_capacity(const struct descriptor *descriptor);
uint64_t descriptor_nitems(const struct descriptor *descriptor);
uint64_t descriptor_nshards(const struct descriptor *descriptor);
uint64_t descriptor_nstored(const struct descriptor *descriptor);

/* Forgets all strings: as if none had been created yet. */
void descriptor_clear_strings(struct descriptor *descriptor);

/* Iterates over all strings of a filter that were ever created:
 *
 *     for (struct string_cursor at = {0}; descriptor_next_string(descriptor, &at);)
 *         … at.layer, at.shard … */
struct string_cursor {
    uint32_t layer; /* the first layer in the string */
    uint32_t shard; /* the shard of that layer that it holds */
    uint32_t next;  /* the shard at which to continue */
};
bool descriptor_next_string(const struct descriptor *descriptor, struct string_cursor *at);

/* Clears the marks of a string that is gone, for all layers that share it. */
void descriptor_forget_string(struct descriptor *descriptor, const struct string_cursor *at);

/* These return what is wrong with a layer, the progress of a load, a window, a descriptor apart
 * from its layers, or a whole descriptor; NULL if nothing is. Every decoded descriptor has passed
 * these checks. */
const char *layer_problem(const struct layer *layer);
const char *load_problem(const struct load *load);
const char *window_problem(const struct window *window);
const char *descriptor_head_problem(const struct descriptor *descriptor);
const char *descriptor_problem(const struct descriptor *descriptor);

/* Why this blocked layer can't join the string of the newest one; NULL if it can. The string must
 * not become longer than max_bytes. */
const char *descriptor_join_problem(const struct descriptor *descriptor, const struct layer *layer,
                                    uint64_t max_bytes);

#endif
