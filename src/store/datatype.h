/* datatype.h: the Redis data type of a filter's own key, `bf-shards`. */
#ifndef DATATYPE_H
#define DATATYPE_H

#include "redismodule.h"
#include "store/value.h"

/* Registers the type; false if the server refuses. */
bool type_register(RedisModuleCtx *ctx);

/* Makes the filter the value of an empty key, which must be open for writing. */
void type_set(RedisModuleKey *key, struct filter *filter);

#endif
