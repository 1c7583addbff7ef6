/* retired.h: filters that the server freed on another thread, kept until the main thread can free
 * them.
 *
 * A command may be using a filter that the server has removed from the keyspace without a callback
 * (namecache.h finds filters without opening their keys). So the memory of a filter is freed only
 * on the main thread, and never in the middle of a command (law I10). */
#ifndef RETIRED_H
#define RETIRED_H

#include "store/value.h"

/* Call it once, on the main thread, when the module is loaded. `free_now` does the work of the
 * type's free callback. */
void retired_start(void (*free_now)(struct filter *filter));

/* If this is not the main thread, takes over the filter and returns true. */
bool retired_take(struct filter *filter);

/* Frees some of them. Call it where filters are created and no command is using one: timers do not
 * run while the server is loading. */
void retired_free_some(void);

/* Works for a millisecond at most, which frees all of them unless there are thousands. Call it
 * before counting filters. */
void retired_free_most(void);

#endif
