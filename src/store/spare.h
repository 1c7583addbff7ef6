/* spare.h: memory for bitmaps that will be needed soon.
 *
 * A young shard turns into a bitmap of megabytes in one step. Zeroing it takes a third of a
 * millisecond if the memory was used before, and fifteen times as long if it is new, because the
 * system has to supply and clear every page. But it is known long in advance that a shard will
 * turn. So memory of the right size is allocated in advance, and a page of it is touched with every
 * few items. Just before the server needs that much, the memory is freed, and the allocator hands
 * it out again.
 *
 * This only affects speed. If the allocator hands out other memory, turning takes longer, and
 * nothing else happens. */
#ifndef SPARE_H
#define SPARE_H

#include <stddef.h>
#include <stdint.h>

/* Up to `many` strings of nbytes may be created soon. Does a little work towards that. If it is
 * called for only one in `each` items, it does more. */
void spare_prepare(size_t nbytes, uint32_t many, uint32_t each);

/* Such a string is about to be created. */
void spare_use(size_t nbytes);

/* Bytes held ready now. */
size_t spare_bytes(void);

/* Starts the job that frees spares nobody needed for two seconds, or all when memory is short. */
void spare_start(void);

#endif
