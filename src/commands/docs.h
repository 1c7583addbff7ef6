/* docs.h: what COMMAND DOCS, COMMAND INFO, the ACL and redis-cli know of each command. */
#ifndef DOCS_H
#define DOCS_H

#include <stdbool.h>

#include "redismodule.h"

/* Makes the ACL category @bloom on servers that let modules have one. Once, before the first
 * docs_describe. */
void docs_start(RedisModuleCtx *ctx);

/* Tells the server all that is to know of a command that was just created with these flags. A name
 * without an entry in the table stays undocumented. False after logging, if the server refuses the
 * entry. */
bool docs_describe(RedisModuleCtx *ctx, const char *name, const char *flags);

#endif
