/* info.h: the module's section of INFO. */
#ifndef INFO_H
#define INFO_H

#include <stdbool.h>

#include "redismodule.h"

/* Registers INFO bf; false if the server refuses. */
bool info_start(RedisModuleCtx *ctx);

#endif
