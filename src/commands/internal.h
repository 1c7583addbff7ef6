/* internal.h: the commands by which replicas, the AOF and tools learn how filters are stored. */
#ifndef INTERNAL_H
#define INTERNAL_H

#include "redismodule.h"

int BFDescriptor_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFSetDescriptor_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFNextId_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFOwner_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFLeaves_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
