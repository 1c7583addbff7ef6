/* items.h: the commands that add and check items. */
#ifndef ITEMS_H
#define ITEMS_H

#include "redismodule.h"

int BFAdd_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFMAdd_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFInsert_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFExists_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFMExists_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
