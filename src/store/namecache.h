/* recent.h: filters that were looked up a moment ago. Opening a key costs as much as all the rest of asking for one item;
 * the next command for the same filter does without. */
#ifndef RECENT_H
#define RECENT_H

#include "store/value.h"

/* Once, when the module is loaded. */
void recent_start(void);

/* The filter under this name in the selected database, or NULL: then the key must be opened. */
struct filter *recent_find(RedisModuleCtx *ctx, const RedisModuleString *name);

/* Remembers what an open key holds. */
void recent_keep(RedisModuleCtx *ctx, const RedisModuleString *name, RedisModuleKey *key,
                 struct filter *filter);

/* Forgets everything. To be called, from any thread, before a name stops meaning the filter that it meant. */
void recent_forget(void);

#endif
