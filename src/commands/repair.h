/* repair.h: BF.HEAL. */
#ifndef REPAIR_H
#define REPAIR_H

#include "redismodule.h"

int BFHeal_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
