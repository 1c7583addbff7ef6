/* The commands: arguments in, one look-up of the filter, the work in filter.c, a reply out. */
#include "commands/open.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "commands/adopt.h"
#include "store/cluster.h"
#include "config.h"
#include "commands/docs.h"
#include "store/filter.h"
#include "store/identity.h"
#include "store/namecache.h"
#include "store/garbage.h"
#include "commands/inspect.h"
#include "core/sizing.h"
#include "store/statistics.h"
#include "commands/dump.h"
#include "store/datatype.h"
#include "commands/words.h"

/* All fixed error texts. Those that RedisBloom has too are worded as there: clients match them. */
#define ERROR_EXISTS     "ERR item exists"
#define ERROR_NOT_FOUND  "ERR not found"
#define ERROR_FULL       "ERR non scaling filter is full"
#define ERROR_LAST_LAYER "ERR the filter has as many layers as it can have and is full"
#define ERROR_OOM        "OOM the item needs a new shard and 'maxmemory' is used up"
#define ERROR_NO_ITEMS   "ERR ITEMS and at least one item are needed"
#define ERROR_TOO_LARGE  "ERR bad capacity: too large for the largest possible shards"
#define ERROR_LONG_NAME  "ERR the filter's name is too long: 65535 bytes at most"
#define ERROR_CLUSTER                                                                              \
    "ERR in a cluster this name can't be a filter's: it has a '}' outside of a {hash tag}, or is " \
    "empty"
#define ERROR_DESCRIPTOR "ERR not a filter's descriptor"
#define ERROR_OTHER_SLOT "ERR the descriptor's shards lie in another cluster slot than the key"
#define ERROR_INTERNAL   "ERR only replication and the append-only file use this command"
#define ERROR_MIGRATING  "TRYAGAIN shards of this filter are on their way between cluster nodes"

/* ---- looking up a filter ---- */

bool open_any(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
              struct filter **filter) {
    *key = RedisModule_OpenKey(ctx, name, mode);
    *filter = NULL;
    if (!*key) return true;
    if (RedisModule_ModuleTypeGetType(*key) == FilterType) {
        *filter = RedisModule_ModuleTypeGetValue(*key);
        return true;
    }
    if (RedisModule_KeyType(*key) == REDISMODULE_KEYTYPE_EMPTY) return true;
    RedisModule_CloseKey(*key);
    RedisModule_ReplyWithError(ctx, REDISMODULE_ERRORMSG_WRONGTYPE);
    return false;
}

static int reply_half_loaded(RedisModuleCtx *ctx, const struct load *load) {
    char text[200];
    const double share = load->total == 0 ? 0 : (double)load->nbytes / (double)load->total;
    snprintf(text, sizeof text,
             "HALFLOADED the filter is half loaded (%.0f%%): go on with BF.LOADCHUNK and what "
             "BF.SCANDUMP gives for iterator %" PRIu64 ", or DEL it",
             share < 1 ? 100 * share : 100, load->next);
    return RedisModule_ReplyWithError(ctx, text);
}

bool open_filter(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                 struct filter **filter) {
    if (!open_any(ctx, name, mode, key, filter)) return false;
    if (!*filter || (*filter)->descriptor->load.origin == LOAD_NONE) return true;
    reply_half_loaded(ctx, &(*filter)->descriptor->load);
    RedisModule_CloseKey(*key);
    return false;
}

/* The same for the commands that come by the thousand: *key is NULL if the filter was found without opening it. */
static bool open_again(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                       struct filter **filter) {
    *key = NULL;
    *filter = recent_find(ctx, name);
    if (*filter && (*filter)->descriptor->load.origin == LOAD_NONE) return true;
    if (!open_filter(ctx, name, mode, key, filter)) return false;
    if (*filter) recent_keep(ctx, name, *key, *filter);
    return true;
}

/* What open_filter and open_any have left open, or "not found". */
static bool need(RedisModuleCtx *ctx, RedisModuleKey *key, const struct filter *filter) {
    if (filter) return true;
    RedisModule_CloseKey(key);
    RedisModule_ReplyWithError(ctx, ERROR_NOT_FOUND);
    return false;
}

bool open_existing(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                   struct filter **filter) {
    return open_filter(ctx, name, mode, key, filter) && need(ctx, *key, *filter);
}

/* The same for commands that tell something of a half-loaded filter too. */
bool open_existing_any(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                       struct filter **filter) {
    return open_any(ctx, name, mode, key, filter) && need(ctx, *key, *filter);
}

/* A name as it may stand in an error line: no control characters, not endless. */
static void printable(const RedisModuleString *string, char *out, size_t room) {
    const struct word word = word_of(string);
    size_t n = 0;
    for (; n < word.length && n + 1 < room; n++)
        out[n] = isprint((unsigned char)word.text[n]) ? word.text[n] : '?';
    out[n] = '\0';
}

int reply_lost(struct shards *shards) {
    const struct descriptor *descriptor = shards->filter->descriptor;
    /* A replica is not told which slots its primary is moving: it may lack the shard for that reason, too. */
    if (shards->status == SHARD_MISSING &&
        cluster_slot_state(shards->ctx, cluster_filter_slot(descriptor)) != SLOT_OWNED)
        return RedisModule_ReplyWithError(shards->ctx, ERROR_MIGRATING);
    RedisModuleString *name = shard_name(descriptor, shards->bad_layer, shards->bad_shard);
    char shown[256], text[512];
    printable(name, shown, sizeof shown);
    RedisModule_FreeString(NULL, name);
    snprintf(
        text, sizeof text,
        "SHARDLOST shard %s %s: %.3g%% of the filter can't be answered; see BF.SHARDS and BF.HEAL",
        shown, shards->status == SHARD_MISSING ? "is missing" : "was overwritten or damaged",
        100 * filter_shard_share(descriptor, shards->bad_layer));
    return RedisModule_ReplyWithError(shards->ctx, text);
}

/* ---- creating ---- */

static struct options default_options(void) {
    return (struct options){.error = config.error_rate,
                            .capacity = (uint64_t)config.initial_size,
                            .expansion = (uint32_t)config.expansion,
                            .shard_bytes = (uint64_t)config.shard_bytes};
}

static uint64_t random_u64(void) {
    uint64_t number;
    RedisModule_GetRandomBytes((unsigned char *)&number, sizeof number);
    return number;
}

/* Reads the options among the arguments; only as many words are looked at as options can take. False after replying
 * with what is wrong. */
static bool parse_options(RedisModuleCtx *ctx, RedisModuleString **argv, int argc, unsigned allowed,
                          struct options *options) {
    struct word words[OPTIONS_MAX_WORDS];
    size_t n = 0;
    for (; n < OPTIONS_MAX_WORDS && n < (size_t)argc; n++) words[n] = word_of(argv[n]);
    if (options_parse(options, words, n, allowed)) return true;
    RedisModule_ReplyWithError(ctx, options->problem);
    return false;
}

bool tag_for(RedisModuleCtx *ctx, const RedisModuleString *name, const char **tag,
             size_t *tag_length) {
    const struct word word = word_of(name);
    if (!shard_tag(word.text, word.length, tag, tag_length) && cluster_enabled(ctx)) {
        RedisModule_ReplyWithError(ctx, ERROR_CLUSTER);
        return false;
    }
    if (*tag_length > DESCRIPTOR_MAX_TAG) {
        RedisModule_ReplyWithError(ctx, ERROR_LONG_NAME);
        return false;
    }
    return true;
}

/* Makes a filter under an empty key, and tells replicas with every parameter what it is. NULL after replying why
 * not. */
static struct filter *create(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleKey *key,
                             const struct options *options) {
    const char *tag;
    size_t tag_length;
    if (!tag_for(ctx, name, &tag, &tag_length)) return NULL;
    const struct filter_options wanted = {.error = options->error,
                                          .capacity = options->capacity,
                                          .expansion = options->expansion,
                                          .seed = options->given & OPTION_SEED ? options->seed
                                                                               : random_u64(),
                                          .id = random_u64(),
                                          .shard_bytes = options->shard_bytes};
    struct filter *filter = filter_new(&wanted, tag, tag_length);
    if (!filter) {
        RedisModule_ReplyWithError(ctx, ERROR_TOO_LARGE);
        return NULL;
    }
    type_set(key, filter);
    filter_replicate(ctx, name, filter);
    RedisModule_SignalModifiedKey(ctx, name);
    RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.reserve", name);
    return filter;
}

/* BF.RESERVE key error capacity [EXPANSION n | NONSCALING] [SEED n] [SHARDSIZE bytes] */
static int BFReserve_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 4) return RedisModule_WrongArity(ctx);
    struct options options = default_options();
    if (!options_set_error(&options, word_of(argv[2])) ||
        !options_set_capacity(&options, word_of(argv[3])))
        return RedisModule_ReplyWithError(ctx, options.problem);
    if (!parse_options(ctx, argv + 4, argc - 4,
                       OPTION_EXPANSION | OPTION_NONSCALING | OPTION_SEED | OPTION_SHARDSIZE,
                       &options))
        return REDISMODULE_OK;
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

/* ---- adding and asking ---- */

/* Lookups for the items of a command: on the caller's stack if they are few. */
#define FEW 64
static struct lookup *lookups_for(RedisModuleString **items, size_t n, struct lookup few[FEW]) {
    struct lookup *lookups = n <= FEW ? few : RedisModule_Alloc(n * sizeof *lookups);
    for (size_t i = 0; i < n; i++) lookups[i].item = items[i];
    return lookups;
}

/* Returns how many were answered with yes. */
static size_t reply_answers(RedisModuleCtx *ctx, const struct lookup *lookups, size_t n,
                            enum answer yes, bool array, const char *full) {
    size_t nyes = 0;
    if (array) RedisModule_ReplyWithArray(ctx, (long)n);
    for (size_t i = 0; i < n; i++) {
        if (lookups[i].answer == ANSWER_FULL)
            RedisModule_ReplyWithError(ctx, full);
        else if (lookups[i].answer == ANSWER_OOM)
            RedisModule_ReplyWithError(ctx, ERROR_OOM);
        else
            RedisModule_ReplyWithBool(ctx, lookups[i].answer == yes);
        nyes += lookups[i].answer == yes;
    }
    return nyes;
}

/* Adds items to the filter. If there is none, it is created: by `options`, else as configured. Without options, and
 * so by BF.ADD and BF.MADD, the command is one that a replica can repeat as it is. */
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
    if (filter) {
        struct lookup few[FEW], *lookups = lookups_for(items, n, few);
        struct shards shards = {
            .ctx = ctx, .filter = filter, .mode = REDISMODULE_READ | REDISMODULE_WRITE};
        size_t nadded;
        if (filter_add(&shards, name, lookups, n, existed && !options, &nadded)) {
            reply_answers(ctx, lookups, n, ANSWER_NEW, array,
                          filter->descriptor->expansion ? ERROR_LAST_LAYER : ERROR_FULL);
            statistics_added(n, nadded);
        } else {
            reply_lost(&shards);
        }
        shards_close(&shards);
        if (lookups != few) RedisModule_Free(lookups);
        if (nadded > 0) {
            RedisModule_SignalModifiedKey(ctx, name);
            RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.add", name);
        }
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* BF.ADD key item */
static int BFAdd_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 3) return RedisModule_WrongArity(ctx);
    return add(ctx, argv[1], argv + 2, 1, NULL, false);
}

/* BF.MADD key item [item ...] */
static int BFMAdd_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 3) return RedisModule_WrongArity(ctx);
    return add(ctx, argv[1], argv + 2, (size_t)argc - 2, NULL, true);
}

/* BF.INSERT key [CAPACITY n] [ERROR rate] [EXPANSION n | NONSCALING] [SEED n] [SHARDSIZE bytes] [NOCREATE]
 *           ITEMS item [item ...] */
static int BFInsert_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 4) return RedisModule_WrongArity(ctx);
    struct options options = default_options();
    if (!parse_options(ctx, argv + 2, argc - 2,
                       OPTION_CAPACITY | OPTION_ERROR | OPTION_EXPANSION | OPTION_NONSCALING |
                           OPTION_SEED | OPTION_SHARDSIZE | OPTION_NOCREATE | OPTION_ITEMS,
                       &options))
        return REDISMODULE_OK;
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
    struct shards shards = {.ctx = ctx, .filter = filter, .mode = REDISMODULE_READ};
    if (!filter) {
        for (size_t i = 0; i < n; i++) lookups[i].answer = ANSWER_NEW;
        statistics_checked(n, reply_answers(ctx, lookups, n, ANSWER_KNOWN, array, NULL));
    } else if (filter_check(&shards, lookups, n)) {
        statistics_checked(n, reply_answers(ctx, lookups, n, ANSWER_KNOWN, array, NULL));
    } else {
        reply_lost(&shards);
    }
    if (filter) shards_close(&shards);
    if (lookups != few) RedisModule_Free(lookups);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* BF.EXISTS key item */
static int BFExists_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 3) return RedisModule_WrongArity(ctx);
    return check(ctx, argv[1], argv + 2, 1, false);
}

/* BF.MEXISTS key item [item ...] */
static int BFMExists_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 3) return RedisModule_WrongArity(ctx);
    return check(ctx, argv[1], argv + 2, (size_t)argc - 2, true);
}

/* ---- planning ---- */

/* BF.PLAN error capacity [EXPANSION n | NONSCALING] [SHARDSIZE bytes] */
static int BFPlan_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 3) return RedisModule_WrongArity(ctx);
    struct options options = default_options();
    if (!options_set_error(&options, word_of(argv[1])) ||
        !options_set_capacity(&options, word_of(argv[2])))
        return RedisModule_ReplyWithError(ctx, options.problem);
    if (!parse_options(ctx, argv + 3, argc - 3,
                       OPTION_EXPANSION | OPTION_NONSCALING | OPTION_SHARDSIZE, &options))
        return REDISMODULE_OK;
    struct layout layout;
    const double error = sizing_layer_error(options.error, 0, options.expansion > 0);
    if (!sizing_plan(options.capacity, error, options.shard_bytes, options.expansion == 0, &layout))
        return RedisModule_ReplyWithError(ctx, ERROR_TOO_LARGE);
    const uint64_t shard_bytes = SHARD_HEADER_BYTES + layout_shard_bytes(&layout);
    const double total_bits = (double)layout.nshards * (double)layout_shard_bytes(&layout) * 8;
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
        {"Shards", true, layout.nshards},
        {"Bytes per shard", true, (double)shard_bytes},
        {"Total bytes when full", true, (double)shard_bytes * layout.nshards},
        {"Overhead over a classic filter", false,
         bits_per_item / sizing_classic_bits(options.error) - 1},
    };
    const size_t nrows = sizeof rows / sizeof *rows;
    RedisModule_ReplyWithMap(ctx, (long)nrows + 1);
    for (size_t i = 0; i < nrows; i++) {
        RedisModule_ReplyWithSimpleString(ctx, rows[i].title);
        if (rows[i].whole)
            RedisModule_ReplyWithLongLong(ctx, (long long)rows[i].number);
        else
            RedisModule_ReplyWithDouble(ctx, rows[i].number);
    }
    RedisModule_ReplyWithSimpleString(ctx, "Capacity of the next layer");
    if (options.expansion)
        RedisModule_ReplyWithLongLong(
            ctx, (long long)sizing_next_capacity(options.capacity, options.expansion, 1));
    else
        RedisModule_ReplyWithNull(ctx);
    return REDISMODULE_OK;
}

/* ---- repairing, and the form in which filters travel ---- */

/* BF.HEAL key */
static int BFHeal_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_existing(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE, &key, &filter))
        return REDISMODULE_OK;
    if (cluster_slot_state(ctx, cluster_filter_slot(filter->descriptor)) == SLOT_MOVING) {
        RedisModule_ReplyWithError(ctx, ERROR_MIGRATING);
    } else {
        struct shards shards = {
            .ctx = ctx, .filter = filter, .mode = REDISMODULE_READ | REDISMODULE_WRITE};
        const uint64_t nhealed = filter_heal(&shards);
        if (nhealed > 0) {
            RedisModule_ReplicateVerbatim(ctx);
            RedisModule_SignalModifiedKey(ctx, argv[1]);
            RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.heal", argv[1]);
        }
        RedisModule_ReplyWithLongLong(ctx, (long long)nhealed);
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

static int reply_descriptor(RedisModuleCtx *ctx, RedisModuleString *name) {
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_existing_any(ctx, name, REDISMODULE_READ, &key, &filter)) return REDISMODULE_OK;
    size_t nbytes;
    char *bytes = descriptor_bytes(filter->descriptor, &nbytes);
    RedisModule_ReplyWithStringBuffer(ctx, bytes, nbytes);
    RedisModule_Free(bytes);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* BF.DESCRIPTOR key [bytes [restores]]
 * Without bytes: the descriptor as it is stored, for tools that read shards themselves. With bytes: sets it, exactly;
 * how replicas and the AOF learn of new filters and new layers. An existing filter can only be replaced by another
 * state of itself. A rewritten AOF also tells how many filters had been restored. */
static int BFDescriptor_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc == 2) return reply_descriptor(ctx, argv[1]);
    uint64_t nrestores = 0;
    if (argc != 3 && argc != 4) return RedisModule_WrongArity(ctx);
    if (argc == 4 && !word_to_u64(word_of(argv[3]), &nrestores))
        return RedisModule_ReplyWithError(ctx, ERROR_DESCRIPTOR);
    const struct word bytes = word_of(argv[2]), name = word_of(argv[1]);
    const char *problem;
    struct descriptor *descriptor =
        descriptor_decode((const uint8_t *)bytes.text, bytes.length, &problem);
    if (!descriptor) {
        char text[160];
        snprintf(text, sizeof text, ERROR_DESCRIPTOR ": %s", problem);
        return RedisModule_ReplyWithError(ctx, text);
    }
    if (cluster_enabled(ctx) && !cluster_fits(descriptor, name.text, name.length)) {
        descriptor_free(descriptor);
        return RedisModule_ReplyWithError(ctx, ERROR_OTHER_SLOT);
    }
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_any(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE, &key, &filter)) {
        descriptor_free(descriptor);
        return REDISMODULE_OK;
    }
    if (filter && filter->descriptor->id != descriptor->id) {
        descriptor_free(descriptor);
        RedisModule_ReplyWithError(ctx, ERROR_EXISTS);
    } else {
        if (filter)
            filter_replace(filter, descriptor);
        else
            type_set(key, filter_wrap(descriptor));
        if (argc == 4) identity_set_nrestores(nrestores);
        RedisModule_ReplicateVerbatim(ctx);
        RedisModule_SignalModifiedKey(ctx, argv[1]);
        RedisModule_ReplyWithSimpleString(ctx, "OK");
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* What a key is that is named like a shard: "live" if its filter lives, "dying" if the sweeper will remove it, "moving"
 * if its slot is between nodes and the filter may be on the other, "orphan" if no filter owns it, "other" if it is no
 * shard of ours. */
static const char *owner_of(RedisModuleCtx *ctx, const struct word name, RedisModuleKey *key) {
    uint64_t id;
    uint32_t layer, shard;
    size_t length;
    if (!shard_parse_name(name.text, name.length, &id, &layer, &shard) || !key ||
        RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_STRING)
        return "other";
    const char *string = RedisModule_StringDMA(key, &length, REDISMODULE_READ);
    if (!string || length < SHARD_HEADER_BYTES ||
        !descriptor_is_header_of((const uint8_t *)string, id, layer, shard))
        return "other";
    switch (registry_state(id)) {
    case FILTER_LIVE:
        return "live";
    case FILTER_DEAD:
        return "dying";
    default:
        return cluster_slot_state(ctx, cluster_key_slot(name.text, name.length)) == SLOT_OWNED
                   ? "orphan"
                   : "moving";
    }
}

/* BF.OWNER key
 * For scripts/bforphans: whether a shard's filter lives. */
static int BFOwner_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key = RedisModule_OpenKey(ctx, argv[1], REDISMODULE_READ);
    RedisModule_ReplyWithSimpleString(ctx, owner_of(ctx, word_of(argv[1]), key));
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* BF.LEAVES key
 * How replicas and the AOF learn that the DEL which follows is a filter's departure for another node. */
static int BFLeaves_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    if (!(RedisModule_GetContextFlags(ctx) &
          (REDISMODULE_CTX_FLAGS_REPLICATED | REDISMODULE_CTX_FLAGS_LOADING)))
        return RedisModule_ReplyWithError(ctx, ERROR_INTERNAL);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_filter(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE, &key, &filter))
        return REDISMODULE_OK;
    if (filter) filter->leaving = true;
    RedisModule_CloseKey(key);
    RedisModule_ReplicateVerbatim(ctx);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

static const struct {
    const char *name;
    RedisModuleCmdFunc handler;
    const char *flags;
    int key; /* where the key stands; 0: there is none */
} commands[] = {
    {"bf.reserve", BFReserve_RedisCommand, "write deny-oom fast", 1},
    {"bf.adopt", BFAdopt_RedisCommand, "write deny-oom", 1},
    {"bf.add", BFAdd_RedisCommand, "write deny-oom fast", 1},
    {"bf.madd", BFMAdd_RedisCommand, "write deny-oom", 1},
    {"bf.insert", BFInsert_RedisCommand, "write deny-oom", 1},
    {"bf.exists", BFExists_RedisCommand, "readonly fast", 1},
    {"bf.mexists", BFMExists_RedisCommand, "readonly", 1},
    {"bf.card", BFCard_RedisCommand, "readonly fast", 1},
    {"bf.info", BFInfo_RedisCommand, "readonly fast", 1},
    {"bf.plan", BFPlan_RedisCommand, "fast", 0},
    {"bf.shards", BFShards_RedisCommand, "readonly", 1},
    {"bf.heal", BFHeal_RedisCommand, "write deny-oom", 1},
    {"bf.scandump", BFScanDump_RedisCommand, "readonly", 1},
    {"bf.loadchunk", BFLoadChunk_RedisCommand, "write deny-oom", 1},
    {"bf.descriptor", BFDescriptor_RedisCommand, "write deny-oom admin", 1},
    {"bf.owner", BFOwner_RedisCommand, "readonly fast", 1},
    {"bf.leaves", BFLeaves_RedisCommand, "write admin", 1},
};

bool commands_register(RedisModuleCtx *ctx) {
    docs_start(ctx);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const int key = commands[i].key;
        if (RedisModule_CreateCommand(ctx, commands[i].name, commands[i].handler, commands[i].flags,
                                      key, key, key) != REDISMODULE_OK ||
            !docs_describe(ctx, commands[i].name, commands[i].flags))
            return false;
    }
    return true;
}
