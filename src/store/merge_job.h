/* merge_job.h: a BF.MERGE in steps, each with a deadline (law I13).
 *
 * A merge first checks that every string it needs is sound. Then it adds the layers that the
 * destination lacks. Then it unites shard after shard. Between two steps anything may happen to the
 * filters, so it keeps their names and ids and looks them up again each time. Whatever ends the
 * merge, united shards stay united; sending the command again starts over and loses nothing.
 *
 * Each step is replicated as BF.MERGED: which shards of which layers. A replica sets the bits from
 * its own copy of the source, which is the same at this point of the stream. Rejected: sending the
 * bits. A union of two filters of 10^9 items would send 2.5 GB, faster than a replica's output
 * buffer may grow. A replica can't know the count, so the step includes it (law I7). */
#ifndef MERGE_JOB_H
#define MERGE_JOB_H

#include "core/merge.h"
#include "store/value.h"

#define MERGE_MAX_SOURCES 1000u

struct merge;

/* Prepares a merge into the filter `name` of the selected database. */
struct merge *merge_new(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleString **sources,
                        size_t nsources);
void merge_free(struct merge *merge);

/* Works until the deadline, or a little longer. True when the merge has ended. */
bool merge_step(RedisModuleCtx *ctx, struct merge *merge, int64_t deadline_us);

/* Why the merge failed, as an error reply; NULL if it did not. */
const char *merge_problem(const struct merge *merge);

/* Items in the destination, once the merge has ended. */
uint64_t merge_nitems(const struct merge *merge);

/* Continues in the background. At the end the client is unblocked, with the merge as private data.
 * If the client disconnects, the merge ends. */
void merge_continue(struct merge *merge, RedisModuleBlockedClient *client);

/* Repeats one of the primary's steps. */
void merge_repeat(RedisModuleCtx *ctx, struct filter *to, struct filter *from,
                  const struct merge_range *range);

/* Call it once, when the module is loaded. */
void merge_start(void);

#endif
