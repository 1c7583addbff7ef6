/* reply.h: the texts of all errors, and replies that need details. Only commands reply (law
 * I11). */
#ifndef REPLY_H
#define REPLY_H

#include "store/value.h"

/* All fixed error texts except those about options (core/options.c). Errors that RedisBloom also
 * has contain its text, because clients match it. */
#define ERROR_EXISTS     "ERR item exists"
#define ERROR_NOT_FOUND  "ERR not found"
#define ERROR_FULL       "ERR non scaling filter is full"
#define ERROR_LAST_LAYER "ERR the filter is full and can't have more layers"
#define ERROR_OOM        "OOM the item needs a new shard, but 'maxmemory' is used up"
#define ERROR_NO_ITEMS   "ERR ITEMS and at least one item are needed"
#define ERROR_TOO_LARGE                                                                            \
    "ERR Insufficient memory to create filter: the capacity is too large for the largest "         \
    "possible shards"
#define ERROR_LONG_NAME "ERR the filter's name is too long: 1024 bytes at most"
#define ERROR_CLUSTER                                                                              \
    "ERR in a cluster a filter can't have this name: it has a '}' outside of a {hash tag}, or is " \
    "empty"
#define ERROR_DESCRIPTOR "ERR not a filter's descriptor"
#define ERROR_OTHER_SLOT "ERR the descriptor's shards lie in another cluster slot than the key"
#define ERROR_INTERNAL                                                                             \
    "ERR only replication, the append-only file and slot migration use this command"
#define ERROR_BAD_ID    "ERR bad id: 16 hexadecimal digits are needed"
#define ERROR_MIGRATING STRINGS_ON_THE_WAY
#define ERROR_BAD_FIELD                                                                            \
    "ERR Invalid information value: CAPACITY, SIZE, FILTERS, ITEMS, EXPANSION, WINDOW, "           \
    "SLICES, SLIDING, AGE or ERROR is needed"
#define ERROR_MANY_SHARDS                                                                          \
    "ERR the filter has more than 1000 shards: list them in parts, with FROM layer shard"
#define ERROR_BAD_ITERATOR "ERR Second argument must be numeric: an iterator is a whole number"
#define ERROR_CHANGED                                                                              \
    "ERR bad iterator: it is not one of this filter's, or the filter has grown, begun a slice or " \
    "been replaced since; start again from 0"
#define ERROR_COMPLETE                                                                             \
    "ERR item exists: BF.LOADCHUNK needs a key that does not exist, or a half-loaded filter"
#define ERROR_NO_HEADER                                                                            \
    "ERR received bad data: there is no filter to continue; begin with the first chunk"
#define ERROR_OTHER_ITERATOR "ERR received bad data: it does not belong to this iterator"
#define ERROR_ADOPTED                                                                              \
    "ERR this filter has adopted strings, which are not copied in chunks; see docs/adopt.md"
#define ERROR_MEMORY     "OOM Insufficient memory to create filter: not enough for its descriptor"
#define ERROR_OWN_NAME   "ERR the filter can't have the name of a string that it adopts"
#define ERROR_NOT_BITMAP "ERR one of the keys to adopt is not a string, or longer than 2^BITS bits"
#define ERROR_NOPERM     "NOPERM this user has no permissions to access one of the strings to adopt"
#define ERROR_CROSSSLOT  "CROSSSLOT the strings to adopt must lie in the filter's cluster slot"
#define ERROR_ADOPT_MOVING                                                                         \
    "TRYAGAIN the cluster slot of the strings to adopt is moving between nodes"

#define ERROR_NO_WAIT                                                                              \
    "ERR BF.MERGE works in steps and can't be used in transactions, scripts or functions"
#define ERROR_MANY_SOURCES "ERR too many sources: 1000 at most"
#define ERROR_MERGED       "ERR these layers can't be united"

/* Replies with a number, as a double or, in RESP2, as text. It has this many digits, or as many as
 * it takes to read back the same number. */
#define REPLY_EXACT 0
int reply_number(RedisModuleCtx *ctx, double number, int ndigits);

/* Replies that a required shard is missing or has been replaced. */
int reply_lost(struct strings *strings);

/* Replies how much of a half-loaded filter is loaded and how to continue. */
int reply_half_loaded(RedisModuleCtx *ctx, const struct load *load);

#endif
