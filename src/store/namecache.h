/* namecache.h: recently used filters by name. Opening a key takes as long as the rest of a look-up;
 * the next command for the same filter does not need to. */
#ifndef NAMECACHE_H
#define NAMECACHE_H

#include "store/value.h"

/* Call it once, when the module is loaded. */
void namecache_start(void);

/* The filter with this name in the selected database. NULL: the key must be opened. */
struct filter *namecache_find(RedisModuleCtx *ctx, const RedisModuleString *name);

/* Remembers the filter of an open key. */
void namecache_keep(RedisModuleCtx *ctx, const RedisModuleString *name, RedisModuleKey *key,
                    struct filter *filter);

/* Forgets everything. Call it, from any thread, before a name stops meaning its filter. */
void namecache_forget(void);

#endif
