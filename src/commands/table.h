/* table.h: all commands of the module. */
#ifndef TABLE_H
#define TABLE_H

#include <stdbool.h>

#include "redismodule.h"

/* Registers them; false if the server refuses one. */
bool commands_register(RedisModuleCtx *ctx);

#endif
