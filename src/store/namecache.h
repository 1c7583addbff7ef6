/* namecache.h: filters that were looked up a moment ago. Opening a key costs as much as the rest of
 * a look-up; the next command for the same filter does without. */
#ifndef NAMECACHE_H
#define NAMECACHE_H

#include "store/value.h"

/* Once, when the module is loaded. */
void namecache_start(void);

/* The filter under this name in the selected database, or NULL: then the key must be opened. */
struct filter *namecache_find(RedisModuleCtx *ctx, const RedisModuleString *name);

/* Remembers what an open key holds. */
void namecache_keep(RedisModuleCtx *ctx, const RedisModuleString *name, RedisModuleKey *key,
                    struct filter *filter);

/* Forgets everything. Call it, from any thread, before a name stops meaning the filter it meant. */
void namecache_forget(void);

#endif
