/* Bitmaps in place: a filter whose first layer is strings that other programs write too.
 *
 * Nothing of the bits is copied, and nothing is remembered of them between commands but which strings have been seen:
 * the old workers may set bits at any time. A string that was seen and is gone is lost, as with shards; one that was
 * never seen is empty until somebody writes it, as with SETBIT. The strings stay whose they were: the filter never
 * removes them, and a copy of the filter gets copies of its own. */
#include "commands/adopt.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store/cluster.h"
#include "config.h"
#include "core/fill.h"
#include "core/names.h"
#include "store/replication.h"
#include "core/sizing.h"
#include "store/datatype.h"
#include "commands/words.h"

/* Counted for the estimate of all items, in some milliseconds. */
#define ESTIMATE_BYTES (8u << 20)

enum {
    GIVEN_PREFIX = 1 << 0,
    GIVEN_BLOCKS = 1 << 1,
    GIVEN_BITS = 1 << 2,
    GIVEN_SEEDS = 1 << 3,
    GIVEN_DIGEST = 1 << 4,
    GIVEN_EXPANSION = 1 << 5,
    GIVEN_NONSCALING = 1 << 6
};

struct request {
    unsigned given;
    struct adoption adoption;
    uint32_t expansion;
    char problem[160]; /* why it was refused, as an error reply */
};

static bool fail(struct request *request, const char *problem) {
    snprintf(request->problem, sizeof request->problem, "%s", problem);
    return false;
}

static bool fail_word(struct request *request, const char *before, struct word word,
                      const char *after) {
    char shown[41];
    const size_t n = word.length < sizeof shown - 1 ? word.length : sizeof shown - 1;
    for (size_t i = 0; i < n; i++)
        shown[i] = isprint((unsigned char)word.text[i]) ? word.text[i] : '?';
    shown[n] = '\0';
    snprintf(request->problem, sizeof request->problem, "%s'%s'%s", before, shown, after);
    return false;
}

static bool number_in(struct word word, uint64_t min, uint64_t max, uint64_t *number) {
    return word_to_u64(word, number) && *number >= min && *number <= max;
}

static bool set_prefix(struct request *request, struct word value) {
    if (value.length == 0 || value.length > DESCRIPTOR_MAX_TAG)
        return fail(request, "ERR bad prefix: from 1 to 65535 bytes are needed");
    request->adoption.prefix = (char *)value.text;
    request->adoption.prefix_length = (uint32_t)value.length;
    return true;
}

static bool set_blocks(struct request *request, struct word value) {
    uint64_t number;
    if (!number_in(value, 1, RECIPE_MAX_STRINGS, &number))
        return fail(request, "ERR bad number of blocks: from 1 to 256 are possible");
    request->adoption.recipe.nstrings = (uint32_t)number;
    request->adoption.numbered = true;
    return true;
}

static bool set_bits(struct request *request, struct word value) {
    uint64_t number;
    if (!number_in(value, RECIPE_MIN_LOG2_BITS, RECIPE_MAX_LOG2_BITS, &number))
        return fail(request,
                    "ERR bad bits: a number from 9 to 32 is needed, for strings of 2^bits bits");
    request->adoption.recipe.log2_bits = (uint8_t)number;
    return true;
}

static bool set_digest(struct request *request, struct word value) {
    request->adoption.recipe.digest = word_is(value, "NONE") ? RECIPE_NONE : RECIPE_MD5;
    return word_is(value, "NONE") || word_is(value, "MD5") ||
           fail(request, "ERR bad digest: MD5 or NONE is needed");
}

static bool set_expansion(struct request *request, struct word value) {
    uint64_t number;
    if (!number_in(value, 0, DESCRIPTOR_MAX_EXPANSION, &number))
        return fail(request, "ERR bad expansion: a whole number from 0 to 32768 is needed");
    request->expansion = (uint32_t)number;
    return true;
}

static bool set_nonscaling(struct request *request, struct word value) {
    (void)value;
    request->expansion = 0;
    return true;
}

/* The first word behind SEEDS; the seeds themselves follow. */
static bool set_nseeds(struct request *request, struct word value) {
    uint64_t number;
    if (!number_in(value, 1, RECIPE_MAX_SEEDS, &number))
        return fail(request, "ERR bad number of seeds: from 1 to 64 are possible");
    request->adoption.recipe.nseeds = (uint8_t)number;
    return true;
}

static bool read_seeds(struct request *request, const struct word *words, size_t nwords) {
    struct recipe *recipe = &request->adoption.recipe;
    if (nwords < recipe->nseeds) return fail(request, "ERR fewer seeds than SEEDS announces");
    for (unsigned i = 0; i < recipe->nseeds; i++)
        if (!word_to_u64(words[i], &recipe->seeds[i]))
            return fail(request,
                        "ERR bad seed: a whole number from 0 to 18446744073709551615 is needed");
    return true;
}

static const struct {
    const char *name;
    unsigned bit;
    bool has_value;
    bool (*set)(struct request *, struct word value);
} table[] = {
    {"PREFIX", GIVEN_PREFIX, true, set_prefix},
    {"BLOCKS", GIVEN_BLOCKS, true, set_blocks},
    {"BITS", GIVEN_BITS, true, set_bits},
    {"SEEDS", GIVEN_SEEDS, true, set_nseeds},
    {"DIGEST", GIVEN_DIGEST, true, set_digest},
    {"EXPANSION", GIVEN_EXPANSION, true, set_expansion},
    {"NONSCALING", GIVEN_NONSCALING, false, set_nonscaling},
};
#define NOPTIONS (sizeof table / sizeof *table)

/* Every option once, SEEDS with all its seeds: no more words than this can be right. */
#define MAX_WORDS (2 * NOPTIONS + RECIPE_MAX_SEEDS)

static bool parse(struct request *request, const struct word *words, size_t nwords) {
    for (size_t at = 0; at < nwords;) {
        const struct word name = words[at++];
        size_t i = 0;
        while (i < NOPTIONS && !word_is(name, table[i].name)) i++;
        if (i == NOPTIONS) return fail_word(request, "ERR unknown option ", name, "");
        if (request->given & table[i].bit)
            return fail_word(request, "ERR option ", name, " is given twice");
        request->given |= table[i].bit;
        if (table[i].has_value && at == nwords)
            return fail_word(request, "ERR option ", name, " needs a value");
        const struct word value = table[i].has_value ? words[at++] : (struct word){"", 0};
        if (!table[i].set(request, value)) return false;
        if (table[i].bit != GIVEN_SEEDS) continue;
        if (!read_seeds(request, words + at, nwords - at)) return false;
        at += request->adoption.recipe.nseeds;
    }
    const unsigned both = GIVEN_EXPANSION | GIVEN_NONSCALING;
    if ((request->given & both) == both)
        return fail(request,
                    "ERR nonscaling filters cannot expand: give EXPANSION or NONSCALING, not both");
    const char *problem = recipe_problem(&request->adoption.recipe);
    if (problem) snprintf(request->problem, sizeof request->problem, "ERR %s", problem);
    return !problem;
}

/* Is there a user whose rights count? Not if another module runs the command in its own right. Redis 7.0 dies of being
 * asked for the name of no user. But asked to run a command on the user's behalf, it looks for the user first, and for the
 * command, which there is none of, only then. */
static bool has_user(RedisModuleCtx *ctx) {
    errno = 0;
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "bf.no-such-command", "C");
    const bool none = !reply && errno == ENOTSUP;
    if (reply) RedisModule_FreeCallReply(reply);
    return !none;
}

/* May the user who sent the command write to this key? A filter must not be a way around the rules for keys. */
static bool permitted(RedisModuleCtx *ctx, RedisModuleString *key) {
    RedisModuleString *name = has_user(ctx) ? RedisModule_GetCurrentUserName(ctx) : NULL;
    if (!name) return true;
    RedisModuleUser *user = RedisModule_GetModuleUserFromUserName(name);
    const int flags = REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE;
    const bool allowed =
        user && RedisModule_ACLCheckKeyPermissions(user, key, flags) == REDISMODULE_OK;
    if (user) RedisModule_FreeModuleUser(user);
    RedisModule_FreeString(ctx, name);
    return allowed;
}

static bool same(const RedisModuleString *a, const RedisModuleString *b) {
    size_t a_length, b_length;
    const char *a_text = RedisModule_StringPtrLen(a, &a_length);
    const char *b_text = RedisModule_StringPtrLen(b, &b_length);
    return a_length == b_length && memcmp(a_text, b_text, a_length) == 0;
}

/* What stands in the way of adopting string number j, by its name alone. */
static const char *name_problem(RedisModuleCtx *ctx, RedisModuleString *key,
                                const struct descriptor *descriptor, uint32_t j) {
    RedisModuleString *name = shard_name(descriptor, 0, j);
    const char *problem = NULL;
    if (same(key, name))
        problem = "ERR the filter can't have the name of a string that it adopts";
    else if (!permitted(ctx, name))
        problem = "NOPERM this user has no permissions to access one of the strings to adopt";
    RedisModule_FreeString(NULL, name);
    return problem;
}

/* Looks at all strings: marks those that are there and counts what is in them. Says what stands in the way. */
static const char *survey(struct strings *strings, RedisModuleString *key) {
    struct access *access = &strings->access;
    struct layer *layer = &access->descriptor->layers[0];
    const uint32_t n = layer->layout.nshards;
    uint64_t nitems = 0;
    for (uint32_t j = 0; j < n; j++) {
        const char *problem = name_problem(strings->ctx, key, access->descriptor, j);
        if (problem) return problem;
        const struct shard *shard = access_open(access, 0, j);
        if (!shard && access->status == SHARD_FOREIGN)
            return "ERR one of the strings to adopt is no string, or longer than 2^BITS bits";
        if (!shard && access->status == SHARD_MISSING)
            return "TRYAGAIN the cluster slot of the strings to adopt is on its way between nodes";
        if (!shard) continue;
        double sampled;
        const double fill = fill_of_adopted(layer, shard, ESTIMATE_BYTES / n, &sampled);
        nitems += recipe_estimate(&layer->adoption->recipe, fill);
        layer_mark_created(layer, j);
        access_close(access);
    }
    layer->nitems = nitems < SIZING_MAX_CAPACITY ? nitems : SIZING_MAX_CAPACITY;
    return NULL;
}

/* A filter of one adopted layer, not yet known to anybody. NULL with *problem. */
static struct filter *make(RedisModuleCtx *ctx, RedisModuleString *key,
                           const struct request *request, const char **problem) {
    size_t length, tag_length;
    const char *tag, *name = RedisModule_StringPtrLen(key, &length);
    const bool taggable = names_tag(name, length, &tag, &tag_length);
    *problem = NULL;
    if (!taggable && cluster_enabled(ctx))
        *problem = "ERR in a cluster this name can't be a filter's: it has a '}' outside of a "
                   "{hash tag}, or is empty";
    else if (tag_length > DESCRIPTOR_MAX_TAG)
        *problem = "ERR the filter's name is too long: 65535 bytes at most";
    struct descriptor *descriptor = *problem ? NULL : descriptor_new(tag, tag_length);
    if (!descriptor || !descriptor_add_adopted(descriptor, &request->adoption)) {
        descriptor_free(descriptor);
        if (!*problem) *problem = "OOM no memory for the filter";
        return NULL;
    }
    RedisModule_GetRandomBytes((unsigned char *)&descriptor->id, sizeof descriptor->id);
    RedisModule_GetRandomBytes((unsigned char *)&descriptor->seed, sizeof descriptor->seed);
    descriptor->error = RECIPE_ERROR;
    descriptor->shard_bytes = (uint64_t)config.shard_bytes;
    descriptor->expansion = request->expansion;
    struct filter *filter = filter_wrap(descriptor);
    struct strings strings = strings_of(ctx, filter, REDISMODULE_READ);
    if (cluster_enabled(ctx) && !cluster_fits(descriptor, name, length))
        *problem = "CROSSSLOT the strings to adopt must lie in the filter's cluster slot";
    else
        *problem = survey(&strings, key);
    access_close(&strings.access);
    if (!*problem) return filter;
    descriptor_free(filter_unwrap(filter));
    return NULL;
}

/* BF.ADOPT key [PREFIX name] [BLOCKS n] [BITS b] [SEEDS n s1 ... sn] [DIGEST MD5|NONE] [EXPANSION n | NONSCALING] */
int BFAdopt_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 2) return RedisModule_WrongArity(ctx);
    static char prefix[] = "bloomfilter";
    struct request request = {.adoption = {.recipe = recipe_default,
                                           .prefix = prefix,
                                           .prefix_length = sizeof prefix - 1},
                              .expansion = (uint32_t)config.expansion};
    struct word words[MAX_WORDS + 1] = {{NULL, 0}};
    size_t nwords = 0;
    for (; nwords < MAX_WORDS + 1 && nwords + 2 < (size_t)argc; nwords++)
        words[nwords] = word_of(argv[nwords + 2]);
    if (!parse(&request, words, nwords)) return RedisModule_ReplyWithError(ctx, request.problem);

    RedisModuleKey *key = RedisModule_OpenKey(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE);
    const char *problem = NULL;
    struct filter *filter = NULL;
    if (RedisModule_ModuleTypeGetType(key) == FilterType)
        problem = "ERR item exists";
    else if (RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_EMPTY)
        problem = REDISMODULE_ERRORMSG_WRONGTYPE;
    else
        filter = make(ctx, argv[1], &request, &problem);
    if (filter) {
        type_set(key, filter);
        replicate_descriptor(ctx, argv[1], filter->descriptor);
        RedisModule_SignalModifiedKey(ctx, argv[1]);
        RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.adopt", argv[1]);
        RedisModule_ReplyWithSimpleString(ctx, "OK");
    } else {
        RedisModule_ReplyWithError(ctx, problem);
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}
