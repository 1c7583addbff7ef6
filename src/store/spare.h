/* spare.h: memory for bitmaps that will be needed soon.
 *
 * A young shard becomes a bitmap of megabytes in one step. Zeroing them takes a third of a
 * millisecond if the memory was used before, and fifteen times that if it is new: the system then
 * has to supply and clear page after page. But a shard that will turn is known long before. So
 * memory of the right size is taken in advance, a page of it is used with every few items that
 * come, and it is given back just before the server asks for as much: the allocator hands it out
 * again.
 *
 * That is a matter of time alone. If the allocator does otherwise, turning takes longer, and
 * nothing else happens. */
#ifndef SPARE_H
#define SPARE_H

#include <stddef.h>
#include <stdint.h>

/* Up to `many` strings of nbytes may be made soon. Does a little work towards that, and more if it
 * is asked to with every `each`-th item only. */
void spare_prepare(size_t nbytes, uint32_t many, uint32_t each);

/* Such a string is about to be made. */
void spare_use(size_t nbytes);

/* What is held ready now. */
size_t spare_bytes(void);

/* Starts the job that gives back what was not asked for in two seconds, or is needed elsewhere. */
void spare_start(void);

#endif
