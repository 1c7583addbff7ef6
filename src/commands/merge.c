/* The union of filters: store/merge_job.c does the work, while the client waits. */
#include "commands/merge.h"

#include "commands/create.h"
#include "commands/internal.h"
#include "commands/open.h"
#include "commands/reply.h"
#include "commands/words.h"
#include "store/clock.h"
#include "store/merge_job.h"

/* How long the command itself works before it blocks its client: small unions need no more. */
#define FIRST_STEP_US 1000

static int reply_merge(RedisModuleCtx *ctx, const struct merge *merge) {
    const char *problem = merge_problem(merge);
    return problem ? RedisModule_ReplyWithError(ctx, problem)
                   : RedisModule_ReplyWithLongLong(ctx, (long long)merge_nitems(merge));
}

/* Replies to the client that was blocked. */
static int on_end(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    return reply_merge(ctx, RedisModule_GetBlockedClientPrivateData(ctx));
}

static void free_merge(RedisModuleCtx *ctx, void *merge) {
    (void)ctx;
    merge_free(merge);
}

/* Is each key a usable filter or missing? Otherwise replies with an error. */
static bool look_at_keys(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    for (int i = 1; i < argc; i++) {
        RedisModuleKey *key;
        struct filter *filter;
        if (!open_filter(ctx, argv[i], REDISMODULE_READ, &key, &filter)) return false;
        RedisModule_CloseKey(key);
        const char *tag;
        size_t tag_length;
        if (i == 1 && !filter && !tag_for(ctx, argv[1], &tag, &tag_length)) return false;
    }
    return true;
}

/* BF.MERGE destination source [source ...] */
int BFMerge_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 3) return RedisModule_WrongArity(ctx);
    if (RedisModule_GetContextFlags(ctx) &
        (REDISMODULE_CTX_FLAGS_LUA | REDISMODULE_CTX_FLAGS_MULTI |
         REDISMODULE_CTX_FLAGS_DENY_BLOCKING))
        return RedisModule_ReplyWithError(ctx, ERROR_NO_WAIT);
    const size_t nsources = (size_t)argc - 2;
    if (nsources > MERGE_MAX_SOURCES) return RedisModule_ReplyWithError(ctx, ERROR_MANY_SOURCES);
    if (!look_at_keys(ctx, argv, argc)) return REDISMODULE_OK;
    struct merge *merge = merge_new(ctx, argv[1], argv + 2, nsources);
    if (merge_step(ctx, merge, clock_monotonic_us() + FIRST_STEP_US)) {
        reply_merge(ctx, merge);
        merge_free(merge);
    } else {
        merge_continue(merge, RedisModule_BlockClient(ctx, on_end, NULL, free_merge, 0));
    }
    return REDISMODULE_OK;
}

/* The index of the layer with this number; false if there is none. */
static bool find_layer(const struct descriptor *descriptor, uint64_t number, uint32_t *layer) {
    const uint32_t first = descriptor_number(descriptor, 0);
    if (number < first || number - first >= descriptor->nlayers) return false;
    *layer = (uint32_t)(number - first);
    return true;
}

enum { TO, FROM, SHARD, NSHARDS, BLOCK, NBLOCKS, NITEMS, NNUMBERS };

/* Reads the range that the arguments describe; false if there can't be such a range. */
static bool read_range(const struct descriptor *to, const struct descriptor *from,
                       RedisModuleString **argv, struct merge_range *range) {
    uint64_t numbers[NNUMBERS];
    struct merge_part *part = &range->part;
    for (int i = 0; i < NNUMBERS; i++)
        if (!word_to_u64(word_of(argv[i]), &numbers[i])) return false;
    if (to == from || !find_layer(to, numbers[TO], &part->to) ||
        !find_layer(from, numbers[FROM], &part->from) ||
        !merge_fits(&to->layers[part->to], &from->layers[part->from]))
        return false;
    const struct layout *layout = &to->layers[part->to].layout;
    part->shard = (uint32_t)numbers[SHARD];
    part->block = (uint32_t)numbers[BLOCK];
    part->nblocks = (uint32_t)numbers[NBLOCKS];
    range->nshards = (uint32_t)numbers[NSHARDS];
    range->nitems = numbers[NITEMS];
    return numbers[SHARD] < layout->nshards && numbers[NSHARDS] <= layout->nshards - part->shard &&
           numbers[BLOCK] < layout->nblocks && numbers[NBLOCKS] <= layout->nblocks - part->block;
}

/* BF.MERGED destination source to-layer from-layer shard nshards block nblocks nitems
 * Replicates one step: which shards, or which blocks of a shard, the primary has united, and its
 * estimate of the layer's items. */
int BFMerged_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 3 + NNUMBERS) return RedisModule_WrongArity(ctx);
    if (!internal_only(ctx)) return RedisModule_ReplyWithError(ctx, ERROR_INTERNAL);
    RedisModuleKey *to_key, *from_key;
    struct filter *to, *from;
    if (!open_existing(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE, &to_key, &to))
        return REDISMODULE_OK;
    if (!open_existing(ctx, argv[2], REDISMODULE_READ, &from_key, &from)) {
        RedisModule_CloseKey(to_key);
        return REDISMODULE_OK;
    }
    struct merge_range range;
    if (read_range(to->descriptor, from->descriptor, argv + 3, &range)) {
        merge_repeat(ctx, to, from, &range);
        RedisModule_ReplicateVerbatim(ctx);
        RedisModule_SignalModifiedKey(ctx, argv[1]);
        RedisModule_ReplyWithSimpleString(ctx, "OK");
    } else {
        RedisModule_ReplyWithError(ctx, ERROR_MERGED);
    }
    RedisModule_CloseKey(from_key);
    RedisModule_CloseKey(to_key);
    return REDISMODULE_OK;
}
