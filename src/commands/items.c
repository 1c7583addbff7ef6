/* BF.ADD, BF.MADD, BF.INSERT, BF.EXISTS, BF.MEXISTS: arguments and replies. core/filter.c does the
 * work. */
#include "commands/items.h"

#include "commands/create.h"
#include "commands/open.h"
#include "commands/reply.h"
#include "commands/words.h"
#include "core/filter.h"
#include "store/namecache.h"
#include "store/replication.h"
#include "store/slices.h"
#include "store/statistics.h"

/* Like open_filter, for the most frequent commands: *key is NULL if the filter was found without
 * opening it. */
static bool open_again(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                       struct filter **filter) {
    *key = NULL;
    *filter = namecache_find(ctx, name);
    if (*filter && !(*filter)->descriptor->load) return true;
    if (!open_filter(ctx, name, mode, key, filter)) return false;
    if (*filter) namecache_keep(ctx, name, *key, *filter);
    return true;
}

/* Lookups for the items of a command: on the caller's stack if they are few. */
#define FEW 64
static struct lookup *lookups_for(RedisModuleString **items, size_t n, struct lookup few[FEW]) {
    struct lookup *lookups = n <= FEW ? few : RedisModule_Alloc(n * sizeof *lookups);
    for (size_t i = 0; i < n; i++)
        lookups[i].item = RedisModule_StringPtrLen(items[i], &lookups[i].nbytes);
    return lookups;
}

/* Replies why an item was neither known nor added. */
static void reply_left_out(RedisModuleCtx *ctx, enum answer answer, const char *full) {
    if (answer == ANSWER_LOST) /* nobody reads the replies to a primary */
        RedisModule_ReplyWithBool(ctx, false);
    else
        RedisModule_ReplyWithError(ctx, answer == ANSWER_OOM ? ERROR_OOM : full);
}

/* Returns how many of the answers were yes. */
static inline size_t reply_answers(RedisModuleCtx *ctx, const struct lookup *lookups, size_t n,
                                   enum answer yes, bool array, const char *full) {
    size_t nyes = 0;
    if (array) RedisModule_ReplyWithArray(ctx, (long)n);
    for (size_t i = 0; i < n; i++) {
        if (lookups[i].answer <= ANSWER_NEW)
            RedisModule_ReplyWithBool(ctx, lookups[i].answer == yes);
        else
            reply_left_out(ctx, lookups[i].answer, full);
        nyes += lookups[i].answer == yes;
    }
    return nyes;
}

/* Adds items to the filter. If it does not exist, it is created, with `options` or else as
 * configured. Without options, as with BF.ADD and BF.MADD, a replica can repeat the command as it
 * is. */
static int add(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleString **items, size_t n,
               const struct options *options, bool array) {
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_again(ctx, name, REDISMODULE_READ | REDISMODULE_WRITE, &key, &filter))
        return REDISMODULE_OK;
    const bool existed = filter != NULL;
    if (!filter && options && options->given & OPTION_NOCREATE) {
        RedisModule_ReplyWithError(ctx, ERROR_NOT_FOUND);
    } else if (!filter) {
        const struct options configured = default_options();
        filter = create(ctx, name, key, options ? options : &configured);
    }
    const enum slices_turned turned =
        filter && existed ? slices_turn(ctx, name, filter) : SLICES_SAME;
    if (turned == SLICES_STUCK) {
        RedisModule_ReplyWithError(ctx, ERROR_LAST_LAYER);
    } else if (filter) {
        struct lookup few[FEW], *lookups = lookups_for(items, n, few);
        struct strings strings = strings_of(ctx, filter, REDISMODULE_READ | REDISMODULE_WRITE);
        strings.access.first = slices_first_to_add(filter->descriptor);
        strings.name = name;
        strings.items = items;
        strings.grown = replicate_growth;
        const bool verbatim = existed && !options && turned == SLICES_SAME;
        const struct descriptor *with_window =
            filter->descriptor->window ? filter->descriptor : NULL;
        const uint64_t before = with_window ? descriptor_nitems(with_window) : 0;
        size_t nchanged;
        if (filter_add(&strings.access, lookups, n, &nchanged)) {
            if (nchanged > 0) replicate_items(&strings, lookups, n, verbatim);
            const size_t nadded =
                reply_answers(ctx, lookups, n, ANSWER_NEW, array,
                              filter->descriptor->expansion ? ERROR_LAST_LAYER : ERROR_FULL);
            statistics_added(n, nadded);
            /* An item that is remembered for longer is counted twice if its older slice counts too
             * few, as it may after BF.HEAL. */
            if (with_window) statistics_recounted(before + nadded, descriptor_nitems(with_window));
        } else {
            reply_lost(&strings);
        }
        access_close(&strings.access);
        /* An application with many small filters uses most of them once. So handles are kept only
         * from the second use on. */
        if (!filter->used) filter_forget_handles(filter);
        filter->used = true;
        if (lookups != few) RedisModule_Free(lookups);
        if (nchanged > 0) {
            RedisModule_SignalModifiedKey(ctx, name);
            RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.add", name);
        }
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* BF.ADD key item */
int BFAdd_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 3) return RedisModule_WrongArity(ctx);
    return add(ctx, argv[1], argv + 2, 1, NULL, false);
}

/* BF.MADD key item [item ...] */
int BFMAdd_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 3) return RedisModule_WrongArity(ctx);
    return add(ctx, argv[1], argv + 2, (size_t)argc - 2, NULL, true);
}

/* BF.INSERT key [CAPACITY n] [ERROR rate] [EXPANSION n | NONSCALING] [SEED n] [SHARDSIZE bytes]
 *           [WINDOW seconds [SLICES n] [SLIDING]] [NOCREATE] ITEMS item [item ...] */
int BFInsert_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 4) return RedisModule_WrongArity(ctx);
    struct options options = default_options();
    if (!parse_options(ctx, argv + 2, argc - 2, OPTIONS_INSERT, &options)) return REDISMODULE_OK;
    const size_t first = 2 + options.nwords;
    if (!(options.given & OPTION_ITEMS) || first == (size_t)argc)
        return RedisModule_ReplyWithError(ctx, ERROR_NO_ITEMS);
    return add(ctx, argv[1], argv + first, (size_t)argc - first, &options, true);
}

static int check(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleString **items, size_t n,
                 bool array) {
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_again(ctx, name, REDISMODULE_READ, &key, &filter)) return REDISMODULE_OK;
    struct lookup few[FEW], *lookups = lookups_for(items, n, few);
    if (!filter) {
        for (size_t i = 0; i < n; i++) lookups[i].answer = ANSWER_NEW;
        statistics_checked(n, reply_answers(ctx, lookups, n, ANSWER_KNOWN, array, NULL));
    } else {
        struct strings strings = strings_of(ctx, filter, REDISMODULE_READ);
        strings.access.first = slices_first_to_ask(filter->descriptor);
        if (filter_check(&strings.access, lookups, n))
            statistics_checked(n, reply_answers(ctx, lookups, n, ANSWER_KNOWN, array, NULL));
        else
            reply_lost(&strings);
        access_close(&strings.access);
    }
    if (lookups != few) RedisModule_Free(lookups);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* BF.EXISTS key item */
int BFExists_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 3) return RedisModule_WrongArity(ctx);
    return check(ctx, argv[1], argv + 2, 1, false);
}

/* BF.MEXISTS key item [item ...] */
int BFMExists_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 3) return RedisModule_WrongArity(ctx);
    return check(ctx, argv[1], argv + 2, (size_t)argc - 2, true);
}
