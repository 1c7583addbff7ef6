/* inspect.h: the commands that describe a filter without changing it. */
#ifndef INSPECT_H
#define INSPECT_H

#include "redismodule.h"

int BFCard_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFInfo_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFDebug_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFShards_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
