/* config.h: the defaults a user can set with module arguments, redis.conf and CONFIG SET. */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>

#include "redismodule.h"

struct config {
    double error_rate;
    long long initial_size; /* capacity of filters created by BF.ADD and similar commands */
    long long expansion;
    long long shard_bytes;
};
extern struct config config;

/* Reads the module's arguments and registers bf.error-rate and the other settings. False after
 * logging the reason. */
bool config_load(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

/* Warns in the log if the server's settings let it evict shards. */
void config_warn_of_eviction(RedisModuleCtx *ctx);

#endif
