/* contents.h: all strings of a filter at once: written out, read in, copied, moved, compared. */
#ifndef CONTENTS_H
#define CONTENTS_H

#include "store/strings.h"

/* Saves the blocks of every string, in order; an empty one stands for a string that is lost. */
void contents_save(RedisModuleIO *rdb, struct shards *shards);

/* Reads what contents_save wrote, into keys. The problem, or NULL. */
const char *contents_load(RedisModuleIO *rdb, struct shards *shards);

/* Gives the copy, whose descriptor is that of the original but for its names, strings of its own. */
void contents_copy(struct shards *from, struct shards *to);

/* Adds all that makes two filters equal, whatever their names and ids. */
void contents_digest(RedisModuleDigest *digest, struct shards *shards);

/* Takes the strings that are the filter's own to another database. */
void contents_move(RedisModuleCtx *ctx, const struct descriptor *descriptor, int from, int to);

#endif
