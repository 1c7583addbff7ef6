/* young.h: the form in which a shard begins: an exact table of what was added to it.
 *
 * A shard's bitmap is megabytes, and all of them must be zeroed before the first bit can be set. A
 * filter for 10^9 items has hundreds of shards, and its first batch of a thousand items needs most
 * of them: seconds, with everybody waiting. So a shard that is large starts as a small hash table
 * of its items, as HyperLogLog counters start sparse, and becomes its bitmap when it has earned it.
 * A table answers exactly what a bitmap would, but for false positives: it has none.
 *
 *     entry   u32 block + 1 (0: the entry is free) | u64 the bits of the item's hash
 *     table   2^n entries, linear probing from (hash bits mod 2^n), at most three quarters of
 *             them used, no item further than YOUNG_MAX_PROBES from its place
 *
 * When a shard turns is decided by what is in it and by its number, so that a replica and the
 * replay of an AOF, which apply the same items, turn it at the same item without being told. The
 * limits of the shards of a layer lie between one and two times a base, spread by a hash of their
 * numbers, so that shards which fill evenly do not turn together.
 *
 * Rejected: zeroing in the background (servers copy a string that is handed over), many small
 * shards (a batch opens most of them), making shards ahead of time (a batch that comes first still
 * waits). docs/design.md has the figures. */
#ifndef YOUNG_H
#define YOUNG_H

#include "core/layout.h"

#define YOUNG_ENTRY_BYTES 12u
#define YOUNG_FIRST       4u /* entries of a new table */

/* No search is longer. Hashes hardly ever need half of it, but whoever knows the seed can choose
 * items that all want the same entry, and then a table of n items would cost n² steps. A shard that
 * can't place an item turns. */
#define YOUNG_MAX_PROBES 512u

/* No table is longer, so that it is one part of a dump. */
#define YOUNG_MAX_BYTES (8u << 20)

/* Shards smaller than this are bitmaps from the start: a table would save nothing. */
#define YOUNG_LEAST_BYTES 128u

/* Does a shard of this layout begin young? */
static inline bool young_begins(const struct layout *layout) {
    return layout_shard_bytes(layout) >= YOUNG_LEAST_BYTES;
}

static inline size_t young_bytes(uint32_t capacity) {
    return (size_t)capacity * YOUNG_ENTRY_BYTES;
}

/* The number of items with which this shard turns into a bitmap. */
uint32_t young_limit(const struct layout *layout, uint32_t shard);

/* The same if another shard of the layer has turned in the same command: then this one waits for
 * the next command, unless so many items come at once that waiting would cost more than turning. */
uint32_t young_last_limit(const struct layout *layout, uint32_t shard);

/* How many entries a table of so many bytes has; 0 if a table of this layout can't be so long. */
uint32_t young_capacity(const struct layout *layout, size_t nbytes);

/* The smallest table with room for one more than nitems. */
uint32_t young_capacity_for(uint32_t nitems);

bool young_find(const uint8_t *table, uint32_t capacity, uint32_t block, uint64_t bits);

/* Is there room for another item? */
static inline bool young_has_room(uint32_t capacity, uint32_t nitems) {
    return nitems < capacity / 4 * 3;
}

/* Adds an item that young_find did not find. False if there is no free entry near its place. */
bool young_insert(uint8_t *table, uint32_t capacity, uint32_t block, uint64_t bits);

/* Adds the entries of a table to an empty one with room for them; *nitems is how many it then has.
 * Whatever was in the old table, the new one has every item once, and only blocks that exist. False
 * if an item found no entry. */
bool young_rehash(const struct layout *layout, const uint8_t *from, uint32_t from_capacity,
                  uint8_t *to, uint32_t to_capacity, uint32_t *nitems);

/* Is every item of the table where young_find finds it, only once, and are there no more than it
 * may have? Then *nitems is how many. */
bool young_is_sound(const struct layout *layout, const uint8_t *table, uint32_t capacity,
                    uint32_t *nitems);

/* Sets the bits of all items of the table in the blocks of a shard. */
void young_pour(const struct layout *layout, const uint8_t *table, uint32_t capacity,
                uint8_t *blocks);

/* Loads the memory that young_find will look at first. */
static inline void young_touch(const uint8_t *table, uint32_t capacity, uint64_t bits) {
    (void)*(const volatile uint8_t *)(table + young_bytes((uint32_t)bits & (capacity - 1)));
}

#endif
