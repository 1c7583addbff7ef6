/* internal.h: the commands that tell replicas, the AOF and tools how filters are stored. */
#ifndef INTERNAL_H
#define INTERNAL_H

#include <stdbool.h>

#include "redismodule.h"

/* Does this command come from the primary, the AOF or a node that is sending us slots, rather than
 * from a client? */
bool internal_only(RedisModuleCtx *ctx);

int BFDescriptor_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFSetDescriptor_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFNextId_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFOwner_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFLeaves_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
