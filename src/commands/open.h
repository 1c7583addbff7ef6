/* open.h: the one way from a name among the arguments to a filter. */
#ifndef OPEN_H
#define OPEN_H

#include <stdbool.h>

#include "redismodule.h"
#include "store/value.h"

/* Opens a key and looks at it. False after replying WRONGTYPE: then nothing is open. *filter is
 * NULL if there is no such key; *key may be NULL then too. Close *key after true. The filter may be
 * half loaded: only for commands that can deal with that. */
bool open_any(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
              struct filter **filter);
/* The same, but also false after replying that the filter is half loaded. */
bool open_filter(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                 struct filter **filter);
/* The same for commands that need an existing filter: also false after replying "not found". */
bool open_existing(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                   struct filter **filter);

/* As open_existing, but the filter may be half loaded. */
bool open_existing_any(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                       struct filter **filter);

#endif
