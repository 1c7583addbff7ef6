#include "commands/info.h"

#include "store/garbage.h"
#include "store/jobs.h"
#include "store/living.h"
#include "store/retired.h"
#include "store/spare.h"
#include "store/statistics.h"

static void OnInfo(RedisModuleInfoCtx *info, int for_crash_report) {
    if (!for_crash_report) retired_free_most();
    /* In a crash report: the crash may have happened while the lock on these was held. */
    const struct garbage_counts garbage =
        for_crash_report ? (struct garbage_counts){0} : garbage_count();
    const uint64_t nfilters = for_crash_report ? 0 : living_count();
    const struct jobs_counts jobs = jobs_count();
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {
        {"filters", nfilters},
        {"shards", statistics.nshards},
        {"bytes", statistics.nbytes},
        {"items", statistics.nitems + statistics.nitems_since},
        {"adds", statistics.work.nadds},
        {"items_added", statistics.work.nadded},
        {"checks", statistics.work.nchecks},
        {"hits", statistics.work.nhits},
        {"shards_lost", statistics.nlost},
        {"sweeps_pending", garbage.npending},
        {"shards_removed", garbage.nremoved},
        {"sweep_lookups", garbage.nlookups},
        {"timer_runs", jobs.nruns},
        {"timer_longest_us", jobs.longest_us},
        {"spare_bytes", spare_bytes()},
    };
    if (RedisModule_InfoAddSection(info, NULL) != REDISMODULE_OK) return;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        RedisModule_InfoAddFieldULongLong(info, fields[i].name, fields[i].value);
}

bool info_start(RedisModuleCtx *ctx) {
    return RedisModule_RegisterInfoFunc(ctx, OnInfo) == REDISMODULE_OK;
}
