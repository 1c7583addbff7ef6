/* BF.ADOPT: a filter whose first layer consists of strings that other programs also write (see
 * core/layer_adopted.c). */
#include "commands/adopt.h"

#include <errno.h>
#include <string.h>

#include "commands/create.h"
#include "commands/open.h"
#include "commands/reply.h"
#include "commands/words.h"
#include "core/fill.h"
#include "core/names.h"
#include "store/cluster.h"
#include "store/datatype.h"
#include "store/identity.h"
#include "store/replication.h"

/* How many bytes to count when estimating the number of items: takes a few milliseconds. */
#define ESTIMATE_BYTES (8u << 20)

/* Does the command run for a user whose permissions apply? Not if another module runs it in its own
 * name. Redis 7.0 crashes when asked for the name of a user that does not exist. When asked to run
 * a command on the user's behalf, however, it checks the user before the command. So calling a
 * command that does not exist is a safe way to find out. */
static bool has_user(RedisModuleCtx *ctx) {
    errno = 0;
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "bf.no-such-command", "C");
    const bool none = !reply && errno == ENOTSUP;
    if (reply) RedisModule_FreeCallReply(reply);
    return !none;
}

/* May the user who sent the command write to this key? A filter must not bypass the ACL rules for
 * keys. */
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

/* Why string number j can't be adopted, judging by its name alone; NULL if it can. */
static const char *name_problem(RedisModuleCtx *ctx, RedisModuleString *key,
                                const struct descriptor *descriptor, uint32_t j) {
    RedisModuleString *name = shard_name(descriptor, 0, j);
    const char *problem = NULL;
    if (same(key, name))
        problem = ERROR_OWN_NAME;
    else if (!permitted(ctx, name))
        problem = ERROR_NOPERM;
    RedisModule_FreeString(NULL, name);
    return problem;
}

/* Checks all strings: marks those that exist and estimates their items. Returns the reason if they
 * can't be adopted, or NULL. */
static const char *survey(struct strings *strings, RedisModuleString *key) {
    struct access *access = &strings->access;
    struct layer *layer = &access->descriptor->layers[0];
    const uint32_t n = layer->layout.nshards;
    uint64_t nitems = 0;
    for (uint32_t j = 0; j < n; j++) {
        const char *problem = name_problem(strings->ctx, key, access->descriptor, j);
        if (problem) return problem;
        const struct shard *shard = access_open(access, 0, j);
        if (!shard && access->status == SHARD_FOREIGN) return ERROR_NOT_BITMAP;
        if (!shard && access->status == SHARD_MISSING) return ERROR_ADOPT_MOVING;
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

/* A filter with one adopted layer, not yet stored under its key. NULL after replying with an
 * error. */
static struct filter *make(RedisModuleCtx *ctx, RedisModuleString *key,
                           const struct options *options) {
    const char *tag, *problem;
    size_t tag_length;
    if (!tag_for(ctx, key, &tag, &tag_length)) return NULL;
    struct descriptor *descriptor = descriptor_new(tag, tag_length);
    if (!descriptor || !descriptor_add_adopted(descriptor, &options->adoption)) {
        descriptor_free(descriptor);
        RedisModule_ReplyWithError(ctx, ERROR_MEMORY);
        return NULL;
    }
    descriptor->id = identity_fresh();
    descriptor->seed = identity_fresh();
    descriptor->error = RECIPE_ERROR;
    descriptor->shard_bytes = (uint32_t)options->shard_bytes;
    descriptor->expansion = options->expansion;
    struct filter *filter = filter_wrap(descriptor);
    const struct word name = word_of(key);
    if (cluster_enabled(ctx) && !names_share_slot(descriptor, name.text, name.length)) {
        problem = ERROR_CROSSSLOT;
    } else {
        struct strings strings = strings_of(ctx, filter, REDISMODULE_READ);
        problem = survey(&strings, key);
        access_close(&strings.access);
    }
    if (!problem) return filter;
    descriptor_free(filter_unwrap(filter));
    RedisModule_ReplyWithError(ctx, problem);
    return NULL;
}

/* BF.ADOPT key [PREFIX name] [BLOCKS n] [BITS b] [SEEDS n s1 ... sn] [DIGEST MD5|NONE]
 *          [EXPANSION n | NONSCALING] */
int BFAdopt_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 2) return RedisModule_WrongArity(ctx);
    static char prefix[] = "bloomfilter";
    struct options options = default_options();
    options.adoption = (struct adoption){
        .recipe = recipe_default, .prefix = prefix, .prefix_length = sizeof prefix - 1};
    if (!parse_options(ctx, argv + 2, argc - 2, OPTIONS_ADOPT, &options)) return REDISMODULE_OK;
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_any(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE, &key, &filter))
        return REDISMODULE_OK;
    if (filter) {
        RedisModule_ReplyWithError(ctx, ERROR_EXISTS);
    } else if ((filter = make(ctx, argv[1], &options))) {
        type_set(key, filter);
        replicate_descriptor(ctx, argv[1], filter->descriptor);
        RedisModule_SignalModifiedKey(ctx, argv[1]);
        RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.adopt", argv[1]);
        RedisModule_ReplyWithSimpleString(ctx, "OK");
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}
