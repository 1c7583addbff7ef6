/* events.h: what the server tells the module of: snapshots, loading, keys that are moved or
 * restored. One handler for each kind of event, since a second one would take the place of the
 * first. */
#ifndef EVENTS_H
#define EVENTS_H

#include <stdbool.h>

#include "redismodule.h"

/* Subscribes to all of them; false if the server refuses. */
bool events_start(RedisModuleCtx *ctx);

/* A filter of this database was copied; the server's event for it comes next. (By then the copy may
 * have expired.) */
void events_copied_from(int db);

/* A snapshot is being written by this very process (SAVE, DEBUG RELOAD), not by a child. */
bool events_saving(void);

#endif
