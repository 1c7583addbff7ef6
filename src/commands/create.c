#include "commands/create.h"

#include "commands/open.h"
#include "commands/reply.h"
#include "commands/words.h"
#include "commands/config.h"
#include "core/filter.h"
#include "core/header.h"
#include "core/names.h"
#include "core/window.h"
#include "store/clock.h"
#include "store/cluster.h"
#include "store/datatype.h"
#include "store/identity.h"
#include "store/replication.h"

struct options default_options(void) {
    return (struct options){.error = config.error_rate,
                            .capacity = (uint64_t)config.initial_size,
                            .expansion = (uint32_t)config.expansion,
                            .shard_bytes = (uint64_t)config.shard_bytes};
}

/* What BF.RESERVE and BF.PLAN ask of the core. */
static struct filter_options wanted(const struct options *options) {
    return (struct filter_options){.error = options->error,
                                   .capacity = options->capacity,
                                   .expansion = options->expansion,
                                   .shard_bytes = options->shard_bytes,
                                   .window = options->window};
}

/* Plans a filter with the configured defaults. The first plan takes several times as long as the
 * next one, because code and tables are read for the first time: no client need wait for that. */
void create_start(void) {
    const struct options options = default_options();
    const struct filter_options defaults = wanted(&options);
    struct layout layout;
    uint64_t capacity;
    double error;
    filter_plan(&defaults, &layout, &capacity, &error);
}

bool tag_for(RedisModuleCtx *ctx, const RedisModuleString *name, const char **tag,
             size_t *tag_length) {
    const struct word word = word_of(name);
    if (!names_tag(word.text, word.length, tag, tag_length) && cluster_enabled(ctx)) {
        RedisModule_ReplyWithError(ctx, ERROR_CLUSTER);
        return false;
    }
    if (*tag_length > DESCRIPTOR_MAX_TAG) {
        RedisModule_ReplyWithError(ctx, ERROR_LONG_NAME);
        return false;
    }
    return true;
}

struct filter *create(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleKey *key,
                      const struct options *options) {
    const char *tag;
    size_t tag_length;
    if (!tag_for(ctx, name, &tag, &tag_length)) return NULL;
    struct filter_options filter_options = wanted(options);
    filter_options.seed = options->given & OPTION_SEED ? options->seed : identity_fresh();
    filter_options.id = identity_fresh();
    filter_options.now_ms = options->window.seconds ? clock_wall_ms() : 0;
    struct descriptor *descriptor = filter_new(&filter_options, tag, tag_length);
    if (!descriptor) {
        RedisModule_ReplyWithError(ctx, ERROR_TOO_LARGE);
        return NULL;
    }
    struct filter *filter = filter_wrap(descriptor);
    type_set(key, filter);
    replicate_descriptor(ctx, name, descriptor);
    RedisModule_SignalModifiedKey(ctx, name);
    RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.reserve", name);
    return filter;
}

/* BF.RESERVE key error capacity [EXPANSION n | NONSCALING] [SEED n] [SHARDSIZE bytes]
 *            [WINDOW seconds [SLICES n] [SLIDING]] */
int BFReserve_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 4) return RedisModule_WrongArity(ctx);
    struct options options = default_options();
    if (!options_set_error(&options, word_of(argv[2])) ||
        !options_set_capacity(&options, word_of(argv[3])))
        return RedisModule_ReplyWithError(ctx, options.problem);
    if (!parse_options(ctx, argv + 4, argc - 4, OPTIONS_RESERVE, &options)) return REDISMODULE_OK;
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_filter(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE, &key, &filter))
        return REDISMODULE_OK;
    if (filter)
        RedisModule_ReplyWithError(ctx, ERROR_EXISTS);
    else if (create(ctx, argv[1], key, &options))
        RedisModule_ReplyWithSimpleString(ctx, "OK");
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* BF.PLAN error capacity [EXPANSION n | NONSCALING] [SHARDSIZE bytes]
 *         [WINDOW seconds [SLICES n] [SLIDING]] */
int BFPlan_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 3) return RedisModule_WrongArity(ctx);
    struct options options = default_options();
    if (!options_set_error(&options, word_of(argv[1])) ||
        !options_set_capacity(&options, word_of(argv[2])))
        return RedisModule_ReplyWithError(ctx, options.problem);
    if (!parse_options(ctx, argv + 3, argc - 3, OPTIONS_PLAN, &options)) return REDISMODULE_OK;
    const struct filter_options filter_options = wanted(&options);
    struct layout layout;
    uint64_t capacity;
    double error;
    if (!filter_plan(&filter_options, &layout, &capacity, &error))
        return RedisModule_ReplyWithError(ctx, ERROR_TOO_LARGE);
    /* With a window: the total for all slices that can be alive at once, each with its first
     * layer. */
    const struct window *window = options.window.seconds > 0 ? &options.window : NULL;
    const uint32_t nlayers = window ? window->nslices + 1 : 1;
    const uint64_t shard_bytes = HEADER_BYTES + layout_shard_bytes(&layout);
    const double nshards = (double)nlayers * layout.nshards;
    const double total_bits = nshards * (double)layout_shard_bytes(&layout) * 8;
    const double bits_per_item = total_bits / (double)options.capacity;
    const struct {
        const char *title;
        bool whole;
        double number;
    } rows[] = {
        {"Capacity", true, (double)options.capacity},
        {"Error rate of the first layer", false, error},
        {"Bits per item", false, bits_per_item},
        {"Hashes per item", true, layout.nprobes},
        {"Block bits", true, (double)(1u << layout.block_log2)},
        {"Shards", true, nshards},
        {"Bytes per shard", true, (double)shard_bytes},
        {"Total bytes when full", true, (double)shard_bytes * nshards},
        {"Overhead over a classic filter", false,
         bits_per_item / sizing_classic_bits(options.error) - 1},
    };
    const size_t nrows = sizeof rows / sizeof *rows;
    RedisModule_ReplyWithMap(ctx, (long)nrows + (window ? 4 : 1));
    for (size_t i = 0; i < nrows; i++) {
        RedisModule_ReplyWithSimpleString(ctx, rows[i].title);
        if (rows[i].whole)
            RedisModule_ReplyWithLongLong(ctx, (long long)rows[i].number);
        else
            reply_number(ctx, rows[i].number, 4);
    }
    RedisModule_ReplyWithSimpleString(ctx, "Capacity of the next layer");
    if (options.expansion)
        RedisModule_ReplyWithLongLong(
            ctx, (long long)sizing_next_capacity(capacity, options.expansion, 1));
    else
        RedisModule_ReplyWithNull(ctx);
    if (window) {
        RedisModule_ReplyWithSimpleString(ctx, "Slices at once");
        RedisModule_ReplyWithLongLong(ctx, nlayers);
        RedisModule_ReplyWithSimpleString(ctx, "Capacity of a slice");
        RedisModule_ReplyWithLongLong(ctx, (long long)capacity);
        RedisModule_ReplyWithSimpleString(ctx, "Seconds per slice");
        reply_number(ctx, (double)window_slice_ms(window) / 1000, REPLY_EXACT);
    }
    return REDISMODULE_OK;
}
