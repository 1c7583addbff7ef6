/* access.h: the strings of a filter as one command sees them, and the interface through which the
 * core gets them.
 *
 * The core decides which string an item needs, what must stand in it and how it changes; whoever
 * supplies the strings (store/strings.c from keys of a server, tests/unit/memory.c from malloc)
 * only opens, replaces and lengthens them. A string that was opened is trusted only after its
 * length and its header were compared with what the descriptor says: anybody may have written to
 * it, renamed it or put another in its place, and reading past its end or believing its bits would
 * be worse than an error.
 *
 * A pointer into a string dies with any change of its length. So nothing keeps one: `struct shard`
 * is what lasts, for one command, and knows where its bytes are now. */
#ifndef ACCESS_H
#define ACCESS_H

#include "core/descriptor.h"

enum shard_status {
    SHARD_READY,
    SHARD_NONE,    /* never created: all its bits are zero */
    SHARD_MISSING, /* created, but there is no such string any more */
    SHARD_FOREIGN, /* something else is there: not a string, or of another length or header */
};

/* What is remembered of one shard between commands (its name) and within one command (the open
 * string). */
struct shard {
    void *name;    /* the supplier's; built once, NULL before */
    void *key;     /* the supplier's; NULL unless the running command has the string open */
    uint8_t *body; /* what is behind the header. Of a shard that is not open: where it was
                               the last time, good for a prefetch and for nothing else */
    struct shard *next_open; /* the others that the running command has open */
    uint32_t nbytes;   /* in the body; an adopted string may be shorter than its layout says */
    uint32_t capacity; /* entries of a young shard's table; 0: the shard is dense */
    bool lost;         /* it was, when last looked at */
};

/* By layer, then by shard; an array is made when its layer is first used. */
struct handles {
    struct shard **shards;
    uint32_t nlayers; /* for which there is room */
};

struct access;
struct lookup;

/* Where strings come from. Whatever opens a string sets shard->key. */
struct supplier {
    /* The bytes of the string, or NULL; then *there says if something else has its name. */
    uint8_t *(*open)(struct access *access, struct shard *shard, uint32_t layer, uint32_t number,
                     size_t *nbytes, bool *there);
    /* Puts nbytes of zeros in its place. Of a shard that is not open, too, and whatever is
     * there. */
    uint8_t *(*renew)(struct access *access, struct shard *shard, uint32_t layer, uint32_t number,
                      size_t nbytes);
    /* Appends zeros until it has nbytes. Of a string that is not there, too. */
    uint8_t *(*extend)(struct access *access, struct shard *shard, uint32_t layer, uint32_t number,
                       size_t nbytes);
    void (*close)(struct access *access, struct shard *shard);
    void (*forget)(struct shard *shard); /* frees its name */
    /* Is a string that can't be found surely not there? Not so while its cluster slot moves. */
    bool (*absence_is_certain)(struct access *access);
    /* Is this command one that a primary, or this server in an earlier life, has done already? */
    bool (*repeats)(struct access *access);
    /* May strings get larger by megabytes? */
    bool (*may_allocate)(struct access *access);
    /* Up to `many` strings of so many bytes may be made soon, in a row. Said with every `each`-th
     * item or so. */
    void (*soon)(size_t nbytes, uint32_t many, uint32_t each);
    /* The filter has got a layer; the first n lookups were done before. */
    void (*grown)(struct access *access, const struct lookup *lookups, size_t n);
    /* A string that others may watch, too, was changed. */
    void (*changed)(struct access *access, struct shard *shard);
    /* For the statistics: so many more strings, of so many more bytes; so many more known to be
     * lost. */
    void (*count)(int64_t nstrings, int64_t nbytes, int64_t nlost);
};

/* The strings that one command uses. Zero it, set the first fields, and call access_close at the
 * end. */
struct access {
    const struct supplier *supplier;
    struct descriptor *descriptor;
    struct handles *handles;
    uint32_t first;           /* layers before it are over: they are not asked */
    bool writes;              /* opened for writing */
    struct shard *open;       /* all open ones */
    enum shard_status status; /* why access_open failed, and where */
    uint32_t bad_layer;
    uint32_t bad_shard;
    uint32_t nannounced; /* items for which supplier->soon was called */
    uint32_t turned;     /* 1 + the layer of which this command made a young shard dense; 0: none */
};

/* The open shard, from this command's earlier work or opened now; NULL with access->status saying
 * why not. */
struct shard *access_open_new(struct access *access, uint32_t layer, uint32_t number);

static inline struct shard *access_open(struct access *access, uint32_t layer, uint32_t number) {
    const struct handles *handles = access->handles;
    const struct layer *at = &access->descriptor->layers[layer];
    if (at->home < handles->nlayers && handles->shards[at->home] &&
        handles->shards[at->home][number].key && (at->home == layer || layer_shard_created(at, 0)))
        return &handles->shards[at->home][number]; /* all but the first item of a batch */
    return access_open_new(access, layer, number);
}

/* The layer's own blocks in an open shard of it that is dense. */
static inline uint8_t *shard_blocks(const struct layer *layer, const struct shard *shard) {
    return shard->body + layer->offset;
}

/* Makes an empty shard, young if it is large, marks it as created and returns it open. Whatever is
 * stored under its name is replaced: by the blocks of all layers that share the string. A joined
 * layer is appended to its string instead; if that is lost, NULL with access->status saying why. */
struct shard *access_create(struct access *access, uint32_t layer, uint32_t number);

/* For an adopted layer: opens the string, makes it at least nbytes long as SETBIT would, and marks
 * it as created. Only for a string that is sound or not there. */
struct shard *access_extend(struct access *access, uint32_t layer, uint32_t number, size_t nbytes);

/* Turns an open young shard into its bitmap. */
void access_turn(struct access *access, uint32_t layer, uint32_t number, struct shard *shard);

/* Adds an item to an open young shard, which may turn by it; false if it is known. */
bool access_add_young(struct access *access, uint32_t layer, uint32_t number, struct shard *shard,
                      uint32_t block, uint64_t bits);

/* Would adding an item to this shard make it turn? */
bool access_would_turn(const struct access *access, uint32_t layer, uint32_t number,
                       const struct shard *shard);

/* Makes a shard that was not created yet of a body which comes from somewhere else and may be
 * anything: of a young one, the table is built anew. The problem, or NULL. */
const char *access_fill(struct access *access, uint32_t layer, uint32_t number, bool young,
                        const uint8_t *body, size_t nbytes);

/* Marks a joined layer as part of the string that access_fill is about to make of its home. */
void access_fill_joined(struct access *access, uint32_t layer);

/* Marks a shard as created whose string is lost. */
void access_mark_lost(struct access *access, uint32_t layer, uint32_t number);

/* Makes an end of a shard that can't be what the primary's is any more: it counts as lost, also if
 * it was sound or did not exist. */
void access_spoil(struct access *access, uint32_t layer, uint32_t number);

/* The strings that begin with this layer were found to have nbytes in all, with the layers that
 * joined them. True if it was thought otherwise. */
bool access_recount(struct access *access, uint32_t home, uint64_t nbytes);

void access_close(struct access *access);

/* Is the shard there and sound? Leaves nothing open. */
enum shard_status access_check(struct access *access, uint32_t layer, uint32_t number);

/* Forgets the n oldest layers, of which the descriptor has at least these. */
void handles_drop(struct handles *handles, const struct descriptor *descriptor, uint32_t n,
                  const struct supplier *supplier);

/* Frees all that is remembered of a filter's shards. */
void handles_free(struct handles *handles, const struct descriptor *descriptor,
                  const struct supplier *supplier);

#endif
