/* open.h: the only way from a key's name to its filter. */
#ifndef OPEN_H
#define OPEN_H

#include <stdbool.h>

#include "redismodule.h"
#include "store/value.h"

/* Opens a key. False after replying WRONGTYPE: then nothing is open. If there is no such key,
 * *filter is NULL, and *key may be NULL too. After true, close *key. The filter may be half loaded,
 * so this is only for commands that can handle that. */
bool open_any(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
              struct filter **filter);
/* The same, but also false after replying that the filter is half loaded. */
bool open_filter(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                 struct filter **filter);
/* The same for commands that need an existing filter: also false after replying "not found". */
bool open_existing(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                   struct filter **filter);

/* Like open_existing, but the filter may be half loaded. */
bool open_existing_any(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                       struct filter **filter);

#endif
