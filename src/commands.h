/* commands.h: the BF.* commands. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include <stdbool.h>

#include "redismodule.h"

/* Registers all commands; false if the server refuses one. */
bool commands_register(RedisModuleCtx *ctx);

#endif
