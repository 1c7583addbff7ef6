/* identity.h: which id a filter gets. An id names a filter's shards, so no two filters may ever
 * have the same one. A replica, or the replay of an AOF, that runs the same COPY or RESTORE must
 * use the primary's id. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include <stdbool.h>

#include "redismodule.h"

#define IDENTITY_DIGITS 16u /* of an id in a command or a shard's name: hexadecimal, lower case */

/* Call it once, when the module is loaded. */
void identity_start(RedisModuleCtx *ctx);

/* A random id for a filter that a command creates. Replicas get the descriptor. */
uint64_t identity_fresh(void);

/* For a filter that COPY or RESTORE is about to create under this name: the id that the primary
 * announced, or else a fresh one. */
uint64_t identity_for(int db, const RedisModuleString *name);

/* Reads an id; false if it does not have exactly IDENTITY_DIGITS digits. */
bool identity_parse(const char *digits, size_t length, uint64_t *id);

/* The primary has announced the id of the next filter that COPY or RESTORE creates under this
 * name. */
void identity_told(int db, const RedisModuleString *name, uint64_t id);

/* COPY or RESTORE has created something under this name. If it is the filter that identity_for was
 * called for, announces its id to replicas and the AOF, unless the primary's announcement reaches
 * them anyway. Call it from the notification, before the command itself is replicated. */
void identity_tell(RedisModuleString *name);

#endif
