/* create.h: BF.RESERVE and BF.PLAN, and creating a filter for commands that find none. */
#ifndef CREATE_H
#define CREATE_H

#include "core/options.h"
#include "store/value.h"

/* The options of a filter for which nothing was asked: as configured. */
struct options default_options(void);

/* The tag for the shards of a new filter; false after replying why this name can't be a
 * filter's. */
bool tag_for(RedisModuleCtx *ctx, const RedisModuleString *name, const char **tag,
             size_t *tag_length);

/* Makes a filter under an empty key and replicates it with every parameter. NULL after replying why
 * not. */
struct filter *create(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleKey *key,
                      const struct options *options);

int BFReserve_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFPlan_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
