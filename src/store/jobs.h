/* jobs.h: work that no client waits for, done by the server's main thread in small steps, each of
 * which has a deadline (law I13). */
#ifndef JOBS_H
#define JOBS_H

#include "redismodule.h"

#include <stdbool.h>
#include <stdint.h>

/* Does part of some work, and returns soon after the deadline at the latest (clock_monotonic_us).
 * True: there is more to do now. False: nothing before the next tick. */
typedef bool (*job_step)(RedisModuleCtx *ctx, int64_t deadline_us);

/* From now on the step is taken at every tick, and again soon if there is more to do. A few jobs at
 * most. */
void jobs_add(job_step step);

/* Starts the timer. Once, when the module is loaded. */
void jobs_start(RedisModuleCtx *ctx);

struct jobs_counts {
    uint64_t nruns;      /* of the timer */
    uint64_t longest_us; /* the longest of them */
};
struct jobs_counts jobs_count(void);

#endif
