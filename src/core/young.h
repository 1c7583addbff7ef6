/* young.h: the form in which a shard starts: an exact table of its items.
 *
 * A shard's bitmap takes megabytes, which must all be zeroed before the first bit can be set. A
 * filter for 10^9 items has hundreds of shards, and its first batch of a thousand items needs most
 * of them: seconds during which everybody waits. So a large shard starts as a small hash table of
 * its items, as HyperLogLog counters start sparse, and turns into a bitmap when it has enough of
 * them. A table gives the same answers as a bitmap, but without false positives.
 *
 *     entry   u32 block + 1 (0: the entry is free) | u64 the bits of the item's hash
 *     table   2^n entries, linear probing from (hash bits mod 2^n), at most three quarters of
 *             them used, no item further than YOUNG_MAX_PROBES from its place
 *
 * Only a shard's contents and its number decide when it turns. Replicas and the replay of an AOF
 * apply the same items, so they turn it at the same item without being told. The limits of a
 * layer's shards are between one and two times a base, spread by a hash of their numbers, so that
 * shards that fill evenly do not all turn at once.
 *
 * Rejected: zeroing in the background (servers copy a string that is handed over), many small
 * shards (a batch opens most of them), creating shards in advance (a batch that comes first still
 * waits). docs/design.md has the figures. */
#ifndef YOUNG_H
#define YOUNG_H

#include "core/layout.h"

#define YOUNG_ENTRY_BYTES 12u
#define YOUNG_FIRST       4u /* entries of a new table */

/* The longest search. Hashes hardly ever need half of it, but somebody who knows the seed can
 * choose items that all want the same entry, and then a table of n items would cost n² steps. If an
 * item can't be placed, the shard turns. */
#define YOUNG_MAX_PROBES 512u

/* The largest table: it must fit into one part of a dump. */
#define YOUNG_MAX_BYTES (8u << 20)

/* Shards smaller than this are bitmaps from the start: a table would save nothing. */
#define YOUNG_LEAST_BYTES 128u

/* Does a shard of this layout start young? */
static inline bool young_begins(const struct layout *layout) {
    return layout_shard_bytes(layout) >= YOUNG_LEAST_BYTES;
}

static inline size_t young_bytes(uint32_t capacity) {
    return (size_t)capacity * YOUNG_ENTRY_BYTES;
}

/* The number of items at which this shard turns into a bitmap. */
uint32_t young_limit(const struct layout *layout, uint32_t shard);

/* The same if another shard of the layer has turned in the same command. Then this one waits for
 * the next command, unless so many items come at once that waiting would cost more than turning. */
uint32_t young_last_limit(const struct layout *layout, uint32_t shard);

/* How many entries a table of this length has; 0 if this layout has no tables of this length. */
uint32_t young_capacity(const struct layout *layout, size_t nbytes);

/* The smallest table with room for nitems + 1. */
uint32_t young_capacity_for(uint32_t nitems);

bool young_find(const uint8_t *table, uint32_t capacity, uint32_t block, uint64_t bits);

/* Is there room for another item? */
static inline bool young_has_room(uint32_t capacity, uint32_t nitems) {
    return nitems < capacity / 4 * 3;
}

/* Adds an item that young_find did not find. False if there is no free entry near its place. */
bool young_insert(uint8_t *table, uint32_t capacity, uint32_t block, uint64_t bits);

/* Is entry number i used, and for a block that exists? If so, returns its contents. */
bool young_item(const struct layout *layout, const uint8_t *table, uint32_t i, uint32_t *block,
                uint64_t *bits);

/* Adds the entries of a table to an empty one that has room for them; *nitems is the number of
 * items in it. Whatever the old table contained, the new one has every item once, and only blocks
 * that exist. False if an item found no entry. */
bool young_rehash(const struct layout *layout, const uint8_t *from, uint32_t from_capacity,
                  uint8_t *to, uint32_t to_capacity, uint32_t *nitems);

/* Can young_find find every item of the table, is each there once, and are there no more than
 * allowed? If so, *nitems is their number. */
bool young_is_sound(const struct layout *layout, const uint8_t *table, uint32_t capacity,
                    uint32_t *nitems);

/* Sets the bits of all items of the table in the blocks of a shard. */
void young_pour(const struct layout *layout, const uint8_t *table, uint32_t capacity,
                uint8_t *blocks);

/* Prefetches the memory that young_find will read first. */
static inline void young_prefetch(const uint8_t *table, uint32_t capacity, uint64_t bits) {
    __builtin_prefetch(table + young_bytes((uint32_t)bits & (capacity - 1)));
}

#endif
