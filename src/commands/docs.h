/* docs.h: what COMMAND DOCS, COMMAND INFO, the ACL and redis-cli know about each command. */
#ifndef DOCS_H
#define DOCS_H

#include <stdbool.h>

#include "redismodule.h"

/* Creates the ACL category @bloom, on servers that allow modules to. Call it once, before the first
 * docs_describe. */
void docs_start(RedisModuleCtx *ctx);

/* Describes a newly created command with these flags to the server. A name that is not in the table
 * stays undocumented. False, after logging, if the server refuses the entry. */
bool docs_describe(RedisModuleCtx *ctx, const char *name, const char *flags);

#endif
