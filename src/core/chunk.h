/* chunk.h: the pieces in which BF.SCANDUMP hands a filter out and BF.LOADCHUNK takes it in. The
 * only file that knows their bytes (docs/format.md describes them for other readers). Knows nothing
 * of Redis.
 *
 * A dump is a header (the descriptor), data (parts of shards, in order, as many as fit) and an end
 * (the counts as they are then). No state is kept at the source: an iterator is a position in the
 * order of all parts that the filter could have, whether created or not, so that it means the same
 * after items were added. Every chunk says which iterator it was made for and which one follows;
 * the target takes only the chunk that continues the one before, so that none can be lost, doubled
 * or mixed up with those of another filter. An iterator also holds a mark of the filter's id and
 * of the number that its next layer will have: a filter that has grown, has begun a new slice or
 * dropped an old one, or was replaced does not continue an old dump. It stays below 2^53, where
 * JavaScript's numbers stop being exact. */
#ifndef CHUNK_H
#define CHUNK_H

#include "core/descriptor.h"

#define CHUNK_VERSION    1u
#define CHUNK_PART_BYTES (8u << 20)  /* the most of a shard that one chunk holds */
#define CHUNK_MAX_BYTES  (16u << 20) /* no chunk is larger */
#define CHUNK_MAX_PARTS  4096u       /* each is a key to open */

enum chunk_type {
    CHUNK_HEADER = 1, /* body: bytes of all shards 8, then the encoded descriptor */
    CHUNK_DATA = 2, /* body: parts, each of layer 4, shard 4, part 4, bytes 4, then so many bytes */
    CHUNK_END = 3   /* body: items of each layer, 8 each */
};

struct chunk {
    enum chunk_type type;
    uint64_t source;     /* id of the filter it comes from */
    uint64_t from;       /* the iterator that was given */
    uint64_t to;         /* the iterator to go on with */
    const uint8_t *body; /* what is in it, by type */
    size_t nbody;
};

/* A part of a shard. */
struct part {
    uint32_t layer;
    uint32_t shard;
    uint32_t part;        /* which one, each CHUNK_PART_BYTES long but for the last */
    uint32_t nbytes;      /* of this part */
    const uint8_t *bytes; /* in a chunk; NULL where it is only planned */
    bool young;           /* it is the table of a young shard, all of it; part is 0 */
};

/* ---- iterators ---- */

/* What an iterator asks for. */
enum chunk_wanted {
    WANTED_UNKNOWN, /* it is not an iterator of this filter as it is now */
    WANTED_HEADER,
    WANTED_DATA, /* or the end, if no part is left */
    WANTED_NOTHING
};

enum chunk_wanted chunk_wanted(const struct descriptor *descriptor, uint64_t iterator);

/* ---- making chunks ---- */

/* Bytes of a header, end or data chunk, for the buffer. */
size_t chunk_header_size(const struct descriptor *descriptor);
size_t chunk_end_size(const struct descriptor *descriptor);
size_t chunk_data_size(size_t nbody);

/* Goes through the parts from *iterator on, those of shards that exist, in order, as they are of
 * dense shards; false when none is left. */
bool chunk_next_part(const struct descriptor *descriptor, uint64_t *iterator, struct part *part);

/* The shard of a part that chunk_next_part has just given turned out to be young, with a table of
 * nbytes: makes the part stand for all of it, and *iterator for what comes after it. False if
 * earlier parts of it were dense. */
bool chunk_make_young(const struct descriptor *descriptor, uint64_t *iterator, struct part *part,
                      uint32_t nbytes);

/* Adds a part to the body of a data chunk, of which *nbody bytes are used by nparts; false if it
 * has no room for it. The first part always has. */
bool chunk_reserve(const struct part *part, size_t nparts, size_t *nbody);

void chunk_write_header(const struct descriptor *descriptor, uint8_t *bytes);
void chunk_write_end(const struct descriptor *descriptor, uint64_t from, uint8_t *bytes);

/* A data chunk is begun, filled part by part, and sealed. Each returns where the next byte goes. */
uint8_t *chunk_begin_data(const struct descriptor *descriptor, uint64_t from, uint64_t to,
                          uint8_t *bytes);
uint8_t *chunk_put_part(uint8_t *at, const struct part *part);
void chunk_seal(uint8_t *bytes, size_t nbytes);

/* ---- reading chunks; any bytes may come ---- */

/* Does it look like one of ours, of whatever version? */
bool chunk_is_ours(const uint8_t *bytes, size_t nbytes);

/* Opens a chunk: checks its frame and its checksum. The problem, or NULL. */
const char *chunk_open(const uint8_t *bytes, size_t nbytes, struct chunk *chunk);

/* The filter that a header announces, half loaded: all its shards are still to come. NULL with the
 * reason. */
struct descriptor *chunk_read_header(const struct chunk *chunk, const char **problem);

/* Does this chunk, of type data, continue the half-loaded filter, and is each of its parts in its
 * place? The problem, or NULL: then chunk_read_part can't fail. */
const char *chunk_check_data(const struct chunk *chunk, const struct descriptor *target);

/* The part at *at, 0 at first, which is moved on; false when there are no more. */
bool chunk_read_part(const struct chunk *chunk, size_t *at, struct part *part);

/* Does this chunk, of type end, end the half-loaded filter? If so its counts become the
 * filter's. */
const char *chunk_read_end(const struct chunk *chunk, struct descriptor *target);

#endif
