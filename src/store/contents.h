/* contents.h: operations on all strings of a filter: save, load, copy, compare, move. */
#ifndef CONTENTS_H
#define CONTENTS_H

#include "store/value.h"

/* Saves every string that exists according to the descriptor, in order. */
void contents_save(RedisModuleIO *rdb, struct strings *strings);

/* Reads what contents_save wrote into keys, replacing any that exist. Returns the problem, or
 * NULL. */
const char *contents_load(RedisModuleIO *rdb, struct strings *strings);

/* Gives the copy strings of its own. Its descriptor equals the original's except for the names. */
void contents_copy(struct strings *from, struct strings *to);

/* Adds everything that makes two filters equal, regardless of their names and ids. */
void contents_digest(RedisModuleDigest *digest, struct strings *strings);

/* Moves the filter's own strings to another database. */
void contents_move(RedisModuleCtx *ctx, const struct descriptor *descriptor, int from, int to);

#endif
