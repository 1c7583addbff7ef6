/* merge.h: BF.MERGE, and BF.MERGED, which replicates its steps. */
#ifndef COMMANDS_MERGE_H
#define COMMANDS_MERGE_H

#include "redismodule.h"

int BFMerge_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFMerged_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
