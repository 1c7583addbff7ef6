/* create.h: BF.RESERVE and BF.PLAN, and creating a filter for commands that don't find one. */
#ifndef CREATE_H
#define CREATE_H

#include "core/options.h"
#include "store/value.h"

/* The options of a filter created without any: the configured defaults. */
struct options default_options(void);

/* Call it once, when the configuration is loaded. */
void create_start(void);

/* The tag for the shards of a new filter. False after replying why a filter can't have this
 * name. */
bool tag_for(RedisModuleCtx *ctx, const RedisModuleString *name, const char **tag,
             size_t *tag_length);

/* Creates a filter under an empty key and replicates it with all its parameters. NULL after
 * replying with an error. */
struct filter *create(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleKey *key,
                      const struct options *options);

int BFReserve_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFPlan_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
