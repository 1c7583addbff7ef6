/* adopt.h: BF.ADOPT. */
#ifndef ADOPT_H
#define ADOPT_H

#include "redismodule.h"

int BFAdopt_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
