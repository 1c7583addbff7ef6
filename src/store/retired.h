/* retired.h: filters that the server has freed on another thread, kept until the main thread can
 * free them.
 *
 * A command may be working on a filter that the server has taken out of the keyspace without a
 * callback (namecache.h finds filters without opening their keys). So the memory of a filter is
 * freed only on the main thread, where no command can be half-way (law I10). */
#ifndef RETIRED_H
#define RETIRED_H

#include "store/value.h"

/* Call it once, on the main thread, when the module is loaded. `free_now` does the work of the
 * type's free callback. */
void retired_start(void (*free_now)(struct filter *filter));

/* If this is not the main thread, takes the filter over and returns true. */
bool retired_take(struct filter *filter);

/* Frees some of them. Call it where filters are made and no command is using one: timers do not run
 * while the server loads. */
void retired_free_some(void);

/* Frees for a millisecond at most, which is all of them unless there are thousands. Call it before
 * they are counted. */
void retired_free_most(void);

#endif
