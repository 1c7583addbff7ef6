/* One timer runs all jobs. A run has a budget of one millisecond, which a single large step may
 * exceed. If there is more to do, the server first gets at least as much time for its clients as
 * the run took, so background work never takes more than half of the time (law I13). */
#include "store/jobs.h"

#include "store/clock.h"

#define TICK_US   100000
#define BUDGET_US 1000
#define MAX_JOBS  8

static struct {
    job_step step;
    bool wanted; /* it has had no step since the tick, or has more to do */
} jobs[MAX_JOBS];
static unsigned njobs, turn; /* turn: whose step is next, so that no job starves */
static int64_t ticked_us;    /* when the last tick was */
static struct jobs_counts counts;

void jobs_add(job_step step) {
    jobs[njobs++].step = step;
}

static bool any_wanted(void) {
    bool any = false;
    for (unsigned i = 0; i < njobs; i++) any = any || jobs[i].wanted;
    return any;
}

static void on_timer(RedisModuleCtx *ctx, void *data) {
    (void)data;
    const int64_t began_us = clock_monotonic_us(), deadline_us = began_us + BUDGET_US;
    if (began_us - ticked_us >= TICK_US) {
        ticked_us = began_us;
        clock_advance();
        for (unsigned i = 0; i < njobs; i++) jobs[i].wanted = true;
    }
    int64_t now_us = began_us;
    for (unsigned i = 0; i < njobs && now_us < deadline_us; i++, turn++) {
        const unsigned job = turn % njobs;
        if (jobs[job].wanted) jobs[job].wanted = jobs[job].step(ctx, deadline_us);
        now_us = clock_monotonic_us();
    }
    const uint64_t spent_us = (uint64_t)(now_us - began_us);
    counts.nruns++;
    if (spent_us > counts.longest_us) counts.longest_us = spent_us;
    const int64_t rest_us =
        any_wanted() ? (int64_t)spent_us : ticked_us + TICK_US - now_us; /* to the next tick */
    RedisModule_CreateTimer(ctx, rest_us > 1000 ? (rest_us + 999) / 1000 : 1, on_timer, NULL);
}

void jobs_start(RedisModuleCtx *ctx) {
    ticked_us = clock_monotonic_us();
    RedisModule_CreateTimer(ctx, TICK_US / 1000, on_timer, NULL);
}

struct jobs_counts jobs_count(void) {
    return counts;
}
