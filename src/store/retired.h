/* retired.h: filters that the server has freed on another thread, until the main thread frees them
 * indeed.
 *
 * A command may be working on a filter that the server has taken out of the keyspace without a word
 * (namecache.h finds filters without opening their keys). So no memory of a filter is given back
 * but on the main thread, where no command can be half-way. */
#ifndef RETIRED_H
#define RETIRED_H

#include "store/value.h"

/* Once, on the main thread, when the module is loaded. `free_now` does what the type's free
 * callback is for. */
void retired_start(void (*free_now)(struct filter *filter));

/* Takes the filter over and returns true, if this is not the main thread. */
bool retired_take(struct filter *filter);

/* Frees some of them: to be called where filters are made and no command has one in its hands,
 * since timers stand still while the server loads. */
void retired_free_some(void);

/* Frees for a millisecond at most, which is all of them unless they are thousands: before they are
 * counted. */
void retired_free_most(void);

#endif
