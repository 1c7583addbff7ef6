/* contents.h: all strings of a filter at once: written out, read in, copied, moved, compared. */
#ifndef CONTENTS_H
#define CONTENTS_H

#include "store/value.h"

/* Saves every string that the descriptor says is there, in order. */
void contents_save(RedisModuleIO *rdb, struct strings *strings);

/* Reads what contents_save wrote, into keys; those that are there are replaced. The problem, or
 * NULL. */
const char *contents_load(RedisModuleIO *rdb, struct strings *strings);

/* Gives the copy, whose descriptor is that of the original but for its names, strings of its
 * own. */
void contents_copy(struct strings *from, struct strings *to);

/* Adds all that makes two filters equal, whatever their names and ids. */
void contents_digest(RedisModuleDigest *digest, struct strings *strings);

/* Takes the strings that are the filter's own to another database. */
void contents_move(RedisModuleCtx *ctx, const struct descriptor *descriptor, int from, int to);

#endif
