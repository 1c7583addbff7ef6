/* merge_job.h: a BF.MERGE in steps, each of which has a deadline (law I13).
 *
 * A merge first looks whether every string that it needs is sound, then makes sure that the
 * destination has all the layers it needs, then unites shard after shard. Between two steps
 * anything may happen to the filters, so it holds their names and ids and looks them up again each
 * time. What was united stays, whatever ends the merge; sending the command again begins anew, and
 * loses nothing.
 *
 * Each step is replicated as BF.MERGED: which shards of which layers. A replica sets the bits from
 * its own copy of the source, which is the same at this point of the stream. Rejected: sending the
 * bits. A union of two filters of 10^9 items would send 2.5 GB, faster than a replica's output
 * buffer may grow. What a replica can't know is the count, which comes with the step (law I7). */
#ifndef MERGE_JOB_H
#define MERGE_JOB_H

#include "core/merge.h"
#include "store/value.h"

#define MERGE_MAX_SOURCES 1000u

struct merge;

/* A merge into the filter `name` of the selected database. */
struct merge *merge_new(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleString **sources,
                        size_t nsources);
void merge_free(struct merge *merge);

/* Works until the deadline, or a little longer. True when it has come to its end. */
bool merge_step(RedisModuleCtx *ctx, struct merge *merge, int64_t deadline_us);

/* Why it has failed, as an error reply; NULL: it has not. */
const char *merge_problem(const struct merge *merge);

/* Items in the destination, when it has come to its end. */
uint64_t merge_nitems(const struct merge *merge);

/* Goes on in the background. At the end the client is unblocked, with the merge as private data. If
 * the client goes away, the merge ends. */
void merge_continue(struct merge *merge, RedisModuleBlockedClient *client);

/* One step, as the primary told it. */
void merge_repeat(RedisModuleCtx *ctx, struct filter *to, struct filter *from,
                  const struct merge_range *range);

/* Once, when the module is loaded. */
void merge_start(void);

#endif
