/* access.h: the strings of a filter as one command sees them, and the interface through which the
 * core gets them.
 *
 * The core decides which string an item needs, what it must contain and how it changes. A supplier
 * (store/strings.c uses keys of a server, tests/unit/memory.c uses malloc) only opens, replaces and
 * extends strings. An opened string is trusted only after its length and header match the
 * descriptor. Anybody may have written to it, renamed it or put another in its place, and reading
 * past its end or believing wrong bits would be worse than an error.
 *
 * A pointer into a string becomes invalid whenever its length changes. So nothing keeps one except
 * `struct shard`, which lasts for one command and knows where the bytes are now. */
#ifndef ACCESS_H
#define ACCESS_H

#include "core/descriptor.h"

enum answer {
    ANSWER_KNOWN = 0, /* seen before, or a false positive */
    ANSWER_NEW = 1,   /* not seen before; filter_add has added it */
    ANSWER_FULL = 2,  /* not seen before and not added: the filter is full */
    ANSWER_OOM = 3,   /* not seen before and not added: the server is out of memory */
    ANSWER_LOST = 4,  /* left out because its shard is lost; only in a repeated command */
};

enum shard_status {
    SHARD_READY,
    SHARD_NONE,    /* never created: all its bits are zero */
    SHARD_MISSING, /* created, but the string no longer exists */
    SHARD_FOREIGN, /* something else is there: not a string, or one with another length or header */
};

/* What is remembered about one shard: its name between commands, the open string within a
 * command. */
struct shard {
    void *name;    /* owned by the supplier; NULL until it is built, once */
    void *key;     /* owned by the supplier; NULL unless the running command has the string open */
    uint8_t *body; /* after the header. Not open: its last address, for prefetching only */
    struct shard *next_open; /* list of all shards that the running command has open */
    uint32_t nbytes;         /* in the body; an adopted string may be shorter than its layout */
    uint32_t capacity;       /* entries of a young shard's table; 0: the shard is dense */
    bool lost;               /* as of the last time it was looked at */
};

/* Shards are remembered in parts of this many. */
#define HANDLES_PER_PART 256u

/* Indexed by layer, by part, then by shard in the part. The array of a layer is created when the
 * layer is first used, and a part when one of its shards is: of 262144 shards, 15 MB, a filter with
 * few items uses few. Until then a part is handles_none, whose shards are not open. */
struct handles {
    struct shard ***parts;
    uint32_t nlayers; /* allocated */
};

extern struct shard handles_none[HANDLES_PER_PART];

/* What is remembered about a shard of a layer that has been used. */
static inline struct shard *handles_at(const struct handles *handles, uint32_t home,
                                       uint32_t number) {
    return &handles->parts[home][number / HANDLES_PER_PART][number % HANDLES_PER_PART];
}

struct access;
struct lookup;

/* Where strings come from. All functions that open a string set shard->key. */
struct supplier {
    /* The bytes of the string, or NULL. In that case, *there says whether something else has its
     * name. */
    uint8_t *(*open)(struct access *access, struct shard *shard, uint32_t layer, uint32_t number,
                     size_t *nbytes, bool *there);
    /* Replaces the string, or whatever has its name, with nbytes of zeros. It need not be open. */
    uint8_t *(*renew)(struct access *access, struct shard *shard, uint32_t layer, uint32_t number,
                      size_t nbytes);
    /* Appends zeros until the string has nbytes. It need not exist. */
    uint8_t *(*extend)(struct access *access, struct shard *shard, uint32_t layer, uint32_t number,
                       size_t nbytes);
    void (*close)(struct access *access, struct shard *shard);
    void (*forget)(struct shard *shard); /* frees its name */
    /* Takes over the parts of a layer with n shards, which nobody uses any more: calls
     * handles_forget for each part, a few at a time, then frees the array. */
    void (*postpone)(struct shard **parts, uint32_t n);
    /* If a string can't be found, is it certain that it does not exist? Not while its cluster slot
     * moves. */
    bool (*absence_is_certain)(struct access *access);
    /* Is this command a repetition of what a primary, or this server before a restart, has done? */
    bool (*repeats)(struct access *access);
    /* May strings grow by megabytes? */
    bool (*may_allocate)(struct access *access);
    /* Up to `many` strings of nbytes may be created soon, one after the other. Called for about one
     * in `each` items. */
    void (*soon)(size_t nbytes, uint32_t many, uint32_t each);
    /* The filter has got a new layer after the first n lookups. */
    void (*grown)(struct access *access, const struct lookup *lookups, size_t n);
    /* A string that others may be watching was changed. */
    void (*changed)(struct access *access, struct shard *shard);
    /* For the statistics: changes in the number of strings, their bytes and those known to be
     * lost. */
    void (*count)(int64_t nstrings, int64_t nbytes, int64_t nlost);
};

/* The strings that one command uses. Zero it, set the first fields, and call access_close at the
 * end. */
struct access {
    const struct supplier *supplier;
    struct descriptor *descriptor;
    struct handles *handles;
    uint32_t first;           /* layers before this one have expired and are not searched */
    bool writes;              /* opened for writing */
    bool has_memory;          /* whoever adds has asked for the memory of a bitmap */
    struct shard *open;       /* list of all open shards */
    enum shard_status status; /* why access_open failed, and for which shard */
    uint32_t bad_layer;
    uint32_t bad_shard;
    uint32_t nannounced; /* items for which supplier->soon was called */
    uint32_t turned;     /* 1 + the layer in which this command made a young shard dense; 0: none */
};

/* The shard, opened now or earlier in this command. On failure NULL, with the reason in
 * access->status. */
struct shard *access_open_new(struct access *access, uint32_t layer, uint32_t number);

static inline struct shard *access_open(struct access *access, uint32_t layer, uint32_t number) {
    const struct handles *handles = access->handles;
    const struct layer *at = &access->descriptor->layers[layer];
    if (at->home < handles->nlayers && handles->parts[at->home]) {
        struct shard *shard = handles_at(handles, at->home, number);
        if (shard->key && (at->home == layer || layer_shard_created(at, 0)))
            return shard; /* all items of a batch except the first */
    }
    return access_open_new(access, layer, number);
}

/* The layer's own blocks in an open, dense shard. */
static inline uint8_t *shard_blocks(const struct layer *layer, const struct shard *shard) {
    return shard->body + layer->offset;
}

/* Creates an empty shard (young if it is large), marks it as created and returns it open. Whatever
 * has its name is replaced, with the blocks of all layers that share the string. A joined layer is
 * appended to its string instead; if that is lost, returns NULL with the reason in
 * access->status. */
struct shard *access_create(struct access *access, uint32_t layer, uint32_t number);

/* For an adopted layer: opens the string, extends it to nbytes if it is shorter, as SETBIT would,
 * and marks it as created. The string must be sound or not exist. */
struct shard *access_extend(struct access *access, uint32_t layer, uint32_t number, size_t nbytes);

/* Replaces an open young shard with its bitmap. */
void access_turn(struct access *access, uint32_t layer, uint32_t number, struct shard *shard);

/* Adds an item to an open young shard. The shard turns into its bitmap if it has reached its limit:
 * for that, the caller must have asked for memory. It also turns if its table has no place for the
 * item. If there is no memory for that, returns ANSWER_OOM, and nothing has changed. */
enum answer access_add_young(struct access *access, uint32_t layer, uint32_t number,
                             struct shard *shard, uint32_t block, uint64_t bits);

/* Has the shard reached its limit, so that adding an item makes it turn? */
bool access_would_turn(const struct access *access, uint32_t layer, uint32_t number,
                       const struct shard *shard);

/* Creates a shard from a body that comes from elsewhere and is not trusted: the table of a young
 * shard is rebuilt if need be. Returns the problem, or NULL. */
const char *access_fill(struct access *access, uint32_t layer, uint32_t number, bool young,
                        const uint8_t *body, size_t nbytes);

/* Marks a joined layer as part of the string that access_fill is about to create for its home. */
void access_fill_joined(struct access *access, uint32_t layer);

/* Marks a shard as created, although its string is lost. */
void access_mark_lost(struct access *access, uint32_t layer, uint32_t number);

/* Makes a shard count as lost because it can no longer equal the primary's, even if it was sound or
 * did not exist. */
void access_spoil(struct access *access, uint32_t layer, uint32_t number);

/* The strings that start with this layer, including joined layers, have nbytes in all. True if that
 * differs from the stored figures. */
bool access_recount(struct access *access, uint32_t home, uint64_t nbytes);

void access_close(struct access *access);

/* Does the shard exist, and is it sound? Leaves nothing open. */
enum shard_status access_check(struct access *access, uint32_t layer, uint32_t number);

/* Forgets a part of a layer with n shards that nobody uses any more, and frees it. Layers with a
 * single part are forgotten at once, others later: a filter can have millions of shards, and each
 * has a name to free. */
void handles_forget(struct shard **parts, uint32_t part, uint32_t n,
                    const struct supplier *supplier);

/* The bytes that the handles of a layer with n shards take. */
size_t handles_bytes(const struct handles *handles, uint32_t layer, uint32_t n);

/* Forgets the n oldest layers; the descriptor must still have them. */
void handles_drop(struct handles *handles, const struct descriptor *descriptor, uint32_t n,
                  const struct supplier *supplier);

/* Frees everything that is remembered about a filter's shards. */
void handles_free(struct handles *handles, const struct descriptor *descriptor,
                  const struct supplier *supplier);

#endif
