/* chunk.h: the chunks that BF.SCANDUMP returns and BF.LOADCHUNK takes. Only this file knows their
 * bytes (docs/format.md describes them for other readers). It knows nothing about Redis.
 *
 * A dump is a header (the descriptor), data (parts of shards, in order, as many as fit) and an end
 * (the final counts). The source keeps no state. An iterator is a position in the sequence of all
 * parts that the filter could have, created or not, so it stays valid when items are added. Every
 * chunk says which iterator it was made for and which one follows. The target accepts only the
 * chunk that follows the last one, so none can be lost, repeated or mixed up with those of another
 * filter. An iterator also contains a mark derived from the filter's id and the number of its next
 * layer. That way a dump can't be continued if the filter has grown, started or dropped a slice, or
 * was replaced. Iterators stay below 2^53, where JavaScript's numbers stop being exact. */
#ifndef CHUNK_H
#define CHUNK_H

#include "core/descriptor.h"

#define CHUNK_VERSION    1u
#define CHUNK_PART_BYTES (8u << 20)  /* the largest part of a shard in one chunk */
#define CHUNK_MAX_BYTES  (16u << 20) /* no chunk is larger */
#define CHUNK_MAX_PARTS  1024u       /* each is a key to open, or to make: 1 to 3 µs */

enum chunk_type {
    CHUNK_HEADER = 1, /* body: bytes of all shards 8, then the encoded descriptor */
    CHUNK_DATA = 2,   /* body: parts, each of layer 4, shard 4, part 4, length 4, and its bytes */
    CHUNK_END = 3     /* body: items of each layer, 8 each */
};

struct chunk {
    enum chunk_type type;
    uint64_t source;     /* id of the filter it comes from */
    uint64_t from;       /* the iterator that was given */
    uint64_t to;         /* the iterator to continue with */
    const uint8_t *body; /* contents, by type */
    size_t nbody;
};

/* A part of a shard. */
struct part {
    uint32_t layer;
    uint32_t shard;
    uint32_t part;        /* which one; all but the last have CHUNK_PART_BYTES */
    uint32_t nbytes;      /* of this part */
    const uint8_t *bytes; /* in a chunk; NULL while it is only planned */
    bool young;           /* this is the complete table of a young shard; part is 0 */
};

/* ---- iterators ---- */

/* What BF.SCANDUMP should return for an iterator. */
enum chunk_wanted {
    WANTED_UNKNOWN, /* not an iterator of this filter in its present state */
    WANTED_HEADER,
    WANTED_DATA, /* or the end, if there are no parts left */
    WANTED_NOTHING
};

enum chunk_wanted chunk_wanted(const struct descriptor *descriptor, uint64_t iterator);

/* ---- making chunks ---- */

/* Bytes of a header, end or data chunk. */
size_t chunk_header_size(const struct descriptor *descriptor);
size_t chunk_end_size(const struct descriptor *descriptor);
size_t chunk_data_size(size_t nbody);

/* The next part of an existing shard from *iterator on, as if all shards were dense; false if there
 * are none left. */
bool chunk_next_part(const struct descriptor *descriptor, uint64_t *iterator, struct part *part);

/* The shard of the part that chunk_next_part just returned turned out to be young, with a table of
 * nbytes. Makes the part stand for the whole table and *iterator for what follows. False if earlier
 * parts of the shard were dense. */
bool chunk_make_young(const struct descriptor *descriptor, uint64_t *iterator, struct part *part,
                      uint32_t nbytes);

/* Adds a part to the body of a data chunk, in which nparts use *nbody bytes so far. False if it
 * does not fit; the first part always does. */
bool chunk_reserve(const struct part *part, size_t nparts, size_t *nbody);

void chunk_write_header(const struct descriptor *descriptor, uint8_t *bytes);
void chunk_write_end(const struct descriptor *descriptor, uint64_t from, uint8_t *bytes);

/* A data chunk is begun, filled part by part, and sealed. The first two return where the next byte
 * goes. */
uint8_t *chunk_begin_data(const struct descriptor *descriptor, uint64_t from, uint64_t to,
                          uint8_t *bytes);
uint8_t *chunk_put_part(uint8_t *at, const struct part *part);
void chunk_seal(uint8_t *bytes, size_t nbytes);

/* ---- reading chunks: the bytes are not trusted ---- */

/* Does it look like one of ours, of any version? */
bool chunk_is_ours(const uint8_t *bytes, size_t nbytes);

/* Checks a chunk's frame and checksum. Returns the problem, or NULL. */
const char *chunk_open(const uint8_t *bytes, size_t nbytes, struct chunk *chunk);

/* The filter that a header describes, half loaded: all its shards are still to come. NULL with the
 * reason in *problem. */
struct descriptor *chunk_read_header(const struct chunk *chunk, const char **problem);

/* Does this data chunk continue the half-loaded filter, with every part in its place? Returns the
 * problem, or NULL: then chunk_read_part can't fail. */
const char *chunk_check_data(const struct chunk *chunk, const struct descriptor *target);

/* Reads the part at *at, which starts at 0, and moves *at past it. False if there are no more. */
bool chunk_read_part(const struct chunk *chunk, size_t *at, struct part *part);

/* Does this end chunk complete the half-loaded filter? If so, its counts become the filter's. */
const char *chunk_read_end(const struct chunk *chunk, struct descriptor *target);

#endif
