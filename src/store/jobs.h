/* jobs.h: background work that no client waits for. The server's main thread does it in small
 * steps, each with a deadline (law I13). */
#ifndef JOBS_H
#define JOBS_H

#include "redismodule.h"

#include <stdbool.h>
#include <stdint.h>

/* Does part of a job and returns soon after the deadline (clock_monotonic_us) at the latest. True:
 * there is more to do now. False: there is nothing to do before the next tick. */
typedef bool (*job_step)(RedisModuleCtx *ctx, int64_t deadline_us);

/* Adds a job. Its step is called at every tick, and again soon if there is more to do. There is
 * room for a few jobs only. */
void jobs_add(job_step step);

/* Starts the timer. Called once, when the module is loaded. */
void jobs_start(RedisModuleCtx *ctx);

struct jobs_counts {
    uint64_t nruns;      /* of the timer */
    uint64_t longest_us; /* time of the longest run */
};
struct jobs_counts jobs_count(void);

#endif
