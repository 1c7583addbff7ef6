/* commands.h: the BF.* commands. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include <stdbool.h>

#include "redismodule.h"
#include "store/strings.h"

/* Registers all commands; false if the server refuses one. */
bool commands_register(RedisModuleCtx *ctx);

/* ---- for the files that hold further commands ---- */

/* Opens a key and looks at it. False after replying WRONGTYPE. *filter is NULL if there is no such key; *key may be
 * NULL then too. Close *key in any case. The filter may be half loaded: only for commands that can deal with that. */
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

/* Replies that a shard which is needed is not there, or is not what it should be. */
int reply_lost(struct shards *shards);

/* The tag for the shards of a new filter; false after replying why this name can't be a filter's. */
bool tag_for(RedisModuleCtx *ctx, const RedisModuleString *name, const char **tag,
             size_t *tag_length);

#endif
