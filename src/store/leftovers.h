/* leftovers.h: handles of shards that nobody uses any more.
 *
 * A layer can have 262144 shards, each with a remembered name. Freeing these takes some 20 ms, and
 * a filter with a window can have 33 such layers. So whoever drops them (DEL, a slice that is over,
 * a replica's new descriptor) leaves them here, and a job frees them a few at a time. */
#ifndef LEFTOVERS_H
#define LEFTOVERS_H

#include "core/access.h"

/* Takes over the handles of a layer: supplier->postpone. */
void leftovers_take(struct shard **parts, uint32_t nshards);

/* Starts the job, which forgets the handles of this supplier's strings. */
void leftovers_start(const struct supplier *supplier);

#endif
