/* events.h: server events: snapshots, loading, keys that are moved or restored. There is one
 * handler for each kind of event, because a second one would replace the first. */
#ifndef EVENTS_H
#define EVENTS_H

#include <stdbool.h>

#include "redismodule.h"

/* Subscribes to all of them; false if the server refuses. */
bool events_start(RedisModuleCtx *ctx);

/* A filter of this database was copied; call it before the server's event. (By then the copy may
 * have expired.) */
void events_copied_from(int db);

/* Is this process itself, not a child, writing a snapshot (SAVE, DEBUG RELOAD)? */
bool events_saving(void);

#endif
