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
#include "store/filter.h"
#include "core/sizing.h"
#include "store/datatype.h"
#include "commands/words.h"

/* ---- the layer ---- */

static const struct recipe *recipe_of(const struct shards *shards, uint32_t index) {
    return &shards->filter->descriptor->layers[index].adoption->recipe;
}

static struct recipe_item item_of(const struct recipe *recipe, struct lookup *lookup) {
    struct recipe_item item;
    _Static_assert(sizeof lookup->own == sizeof item.md5, "the digest is kept in the lookup");
    item.bytes = RedisModule_StringPtrLen(lookup->item, &item.nbytes);
    if (lookup->own_for == LAYER_ADOPTED) {
        memcpy(item.md5, lookup->own, sizeof item.md5);
    } else {
        memset(item.md5, 0, sizeof item.md5);
        recipe_hash(recipe, &item);
        memcpy(lookup->own, item.md5, sizeof item.md5);
        lookup->own_for = LAYER_ADOPTED;
    }
    return item;
}

static bool adopt_locate(struct shards *shards, uint32_t index, struct lookup *lookup) {
    const struct recipe *recipe = recipe_of(shards, index);
    const struct recipe_item item = item_of(recipe, lookup);
    const struct shard_slot *slot = shards_open(shards, index, recipe_string(recipe, &item));
    if (!slot) return shards->status == SHARD_NONE;
    recipe_prefetch(recipe, &item, slot->blocks, slot->nbytes);
    return true;
}

static bool adopt_contains(struct shards *shards, uint32_t index, struct lookup *lookup) {
    const struct recipe *recipe = recipe_of(shards, index);
    const struct recipe_item item = item_of(recipe, lookup);
    const struct shard_slot *slot = shards_open(shards, index, recipe_string(recipe, &item));
    return slot && recipe_test(recipe, &item, slot->blocks, slot->nbytes);
}

/* The empty item is never contained, so it comes here again and again; it is new when it changes something. Others may
 * watch or cache the strings, so they learn of the change. */
static bool adopt_insert(struct shards *shards, uint32_t index, struct lookup *lookup) {
    const struct recipe *recipe = recipe_of(shards, index);
    const struct recipe_item item = item_of(recipe, lookup);
    struct layer *layer = &shards->filter->descriptor->layers[index];
    const struct shard_slot *slot =
        shards_extend(shards, index, recipe_string(recipe, &item), recipe_length(recipe, &item));
    if (!recipe_set(recipe, &item, slot->blocks)) return false;
    layer->nitems++;
    if (!layer_owns_shards(layer)) RedisModule_SignalModifiedKey(shards->ctx, slot->name);
    return true;
}

const struct layer_ops adopt_layer_ops = {adopt_locate, adopt_contains, adopt_insert};

/* ---- how full is it? ---- */

#define RUN_BYTES      4096u       /* counted at a time: a page */
#define ESTIMATE_BYTES (64u << 20) /* counted for the estimate of all items, in some tens of ms */

static uint64_t count_bits(const uint8_t *bytes, size_t n) {
    uint64_t nset = 0, word;
    for (; n >= 8; n -= 8, bytes += 8) {
        memcpy(&word, bytes, sizeof word);
        nset += (uint64_t)__builtin_popcountll(word);
    }
    for (; n > 0; n--) nset += (uint64_t)__builtin_popcount(*bytes++);
    return nset;
}

double adopt_fill(const struct layer *layer, const uint8_t *string, size_t nbytes, size_t max_bytes,
                  double *sampled) {
    const double full = (double)layout_shard_bytes(&layer->layout) * 8;
    const size_t nruns = nbytes / RUN_BYTES, wanted = max_bytes / RUN_BYTES + 1;
    *sampled = 1;
    if (nruns <= wanted) return (double)count_bits(string, nbytes) / full;
    uint64_t nset = 0;
    for (size_t i = 0; i < wanted; i++)
        nset += count_bits(string + i * nruns / wanted * RUN_BYTES, RUN_BYTES);
    *sampled = (double)(wanted * RUN_BYTES) / (double)nbytes;
    return (double)nset / *sampled / full;
}

/* ---- BF.ADOPT ---- */

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
static const char *survey(struct shards *shards, RedisModuleString *key) {
    struct layer *layer = &shards->filter->descriptor->layers[0];
    const uint32_t n = layer->layout.nshards;
    uint64_t nitems = 0;
    for (uint32_t j = 0; j < n; j++) {
        const char *problem = name_problem(shards->ctx, key, shards->filter->descriptor, j);
        if (problem) return problem;
        const struct shard_slot *slot = shards_open(shards, 0, j);
        if (!slot && shards->status == SHARD_FOREIGN)
            return "ERR one of the strings to adopt is no string, or longer than 2^BITS bits";
        if (!slot && shards->status == SHARD_MISSING)
            return "TRYAGAIN the cluster slot of the strings to adopt is on its way between nodes";
        if (!slot) continue;
        double sampled;
        nitems +=
            recipe_estimate(&layer->adoption->recipe, adopt_fill(layer, slot->blocks, slot->nbytes,
                                                                 ESTIMATE_BYTES / n, &sampled));
        layer_mark_created(layer, j);
        shards_close(shards);
    }
    layer->nitems = nitems < SIZING_MAX_CAPACITY ? nitems : SIZING_MAX_CAPACITY;
    return NULL;
}

/* A filter of one adopted layer, not yet known to anybody. NULL with *problem. */
static struct filter *make(RedisModuleCtx *ctx, RedisModuleString *key,
                           const struct request *request, const char **problem) {
    size_t length, tag_length;
    const char *tag, *name = RedisModule_StringPtrLen(key, &length);
    const bool taggable = shard_tag(name, length, &tag, &tag_length);
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
    struct shards shards = {.ctx = ctx, .filter = filter, .mode = REDISMODULE_READ};
    if (cluster_enabled(ctx) && !cluster_fits(descriptor, name, length))
        *problem = "CROSSSLOT the strings to adopt must lie in the filter's cluster slot";
    else
        *problem = survey(&shards, key);
    shards_close(&shards);
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
        filter_replicate(ctx, argv[1], filter);
        RedisModule_SignalModifiedKey(ctx, argv[1]);
        RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.adopt", argv[1]);
        RedisModule_ReplyWithSimpleString(ctx, "OK");
    } else {
        RedisModule_ReplyWithError(ctx, problem);
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}
