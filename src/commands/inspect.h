/* report.h: the commands that tell of a filter without changing it. */
#ifndef REPORT_H
#define REPORT_H

#include "redismodule.h"

int BFCard_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFInfo_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFShards_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
