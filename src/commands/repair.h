/* repair.h: BF.HEAL, and BF.HEALED, which replicates it. */
#ifndef REPAIR_H
#define REPAIR_H

#include "redismodule.h"

int BFHeal_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFHealed_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
