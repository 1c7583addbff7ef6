/* identity.h: which id a filter gets. An id names a filter's shards, so no two filters may ever
 * have the same one; and a replica, or the replay of an AOF, that runs the same COPY or RESTORE
 * must use the same id as the primary. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include <stdbool.h>

#include "redismodule.h"

#define IDENTITY_DIGITS 16u /* of an id in a command or a shard's name: hexadecimal, lower case */

/* Once, when the module is loaded. */
void identity_start(RedisModuleCtx *ctx);

/* For a filter that a command creates: random. Replicas get the descriptor. */
uint64_t identity_fresh(void);

/* For a filter that COPY or RESTORE is about to make under this name: the one that the primary
 * told, else a fresh one. */
uint64_t identity_for(int db, const RedisModuleString *name);

/* Reads an id; false if it is not exactly so many digits. */
bool identity_parse(const char *digits, size_t length, uint64_t *id);

/* The primary has told which id the next filter gets that COPY or RESTORE makes under this name. */
void identity_told(int db, const RedisModuleString *name, uint64_t id);

/* COPY or RESTORE has made something under this name. If it is the filter that identity_for was
 * asked for, tells its id to replicas and the AOF, unless it is a primary's that they hear of
 * anyway. To be called before the command itself is replicated: from its notification. */
void identity_tell(RedisModuleString *name);

#endif
