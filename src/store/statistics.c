#include "store/statistics.h"

#include "store/garbage.h"

struct statistics statistics;

/* Adopted strings are not counted: others make them and remove them. */
static uint64_t count_shards(const struct descriptor *descriptor) {
    uint64_t nshards = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++)
        if (!descriptor->layers[i].adoption && !layer_is_joined(&descriptor->layers[i]))
            nshards += layer_count_created(&descriptor->layers[i]);
    return nshards;
}

void statistics_join(const struct descriptor *descriptor) {
    statistics.nshards += count_shards(descriptor);
    statistics.nbytes += descriptor_shard_bytes(descriptor);
    statistics.nitems += descriptor_nitems(descriptor);
}

void statistics_leave(const struct descriptor *descriptor) {
    statistics.nshards -= count_shards(descriptor);
    statistics.nbytes -= descriptor_shard_bytes(descriptor);
    statistics.nitems -= descriptor_nitems(descriptor);
}

void statistics_shard_created(const struct layer *layer) {
    if (!layer_is_joined(layer)) {
        statistics.nshards++;
        statistics.nbytes += SHARD_HEADER_BYTES;
    }
    statistics.nbytes += layout_shard_bytes(&layer->layout);
}

static struct work before_loading;

void statistics_loading_starts(void) {
    before_loading = statistics.work;
}

void statistics_loading_ends(void) {
    statistics.work = before_loading;
}

static void OnInfo(RedisModuleInfoCtx *info, int for_crash_report) {
    /* The crash may have come while the registry was locked. */
    const struct registry_counts registry =
        for_crash_report ? (struct registry_counts){0} : registry_count();
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {
        {"filters", registry.nlive},
        {"shards", statistics.nshards},
        {"bytes", statistics.nbytes},
        {"items", statistics.nitems + statistics.nitems_since},
        {"adds", statistics.work.nadds},
        {"items_added", statistics.work.nadded},
        {"checks", statistics.work.nchecks},
        {"hits", statistics.work.nhits},
        {"shards_lost", statistics.nlost},
        {"sweeps_pending", registry.npending},
        {"shards_removed", registry.nremoved},
    };
    if (RedisModule_InfoAddSection(info, NULL) != REDISMODULE_OK) return;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        RedisModule_InfoAddFieldULongLong(info, fields[i].name, fields[i].value);
}

bool statistics_start(RedisModuleCtx *ctx) {
    return RedisModule_RegisterInfoFunc(ctx, OnInfo) == REDISMODULE_OK;
}
