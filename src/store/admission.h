/* admission.h: which descriptors may come in by RESTORE without their shards. */
#ifndef ADMISSION_H
#define ADMISSION_H

#include "core/descriptor.h"
#include "redismodule.h"

/* Why this descriptor may not come in, or NULL. For a value that is being loaded by RESTORE or from
 * a file; ctx is any context of its database. */
const char *admission_problem(RedisModuleCtx *ctx, RedisModuleIO *rdb,
                              const struct descriptor *descriptor);

#endif
