#include "commands/internal.h"

#include <stdio.h>

#include "commands/open.h"
#include "commands/reply.h"
#include "commands/words.h"
#include "core/encoding.h"
#include "core/header.h"
#include "core/names.h"
#include "store/cluster.h"
#include "store/datatype.h"
#include "store/garbage.h"
#include "store/identity.h"
#include "store/living.h"
#include "store/slices.h"

/* Scripts and other modules have a client of their own, so their commands are refused, wherever the
 * script itself came from. While the server is loading, the AOF's client has the highest id. */
bool internal_only(RedisModuleCtx *ctx) {
    const int flags = RedisModule_GetContextFlags(ctx);
    return flags & REDISMODULE_CTX_FLAGS_REPLICATED ||
           (flags & REDISMODULE_CTX_FLAGS_LOADING && RedisModule_GetClientId(ctx) == UINT64_MAX);
}

/* BF.DESCRIPTOR key
 * The descriptor as it is stored, for tools that read shards themselves. */
int BFDescriptor_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_existing_any(ctx, argv[1], REDISMODULE_READ, &key, &filter)) return REDISMODULE_OK;
    size_t nbytes;
    char *bytes = descriptor_bytes(filter->descriptor, &nbytes);
    RedisModule_ReplyWithStringBuffer(ctx, bytes, nbytes);
    RedisModule_Free(bytes);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

static int reply_bad_descriptor(RedisModuleCtx *ctx, const char *problem) {
    char text[160];
    snprintf(text, sizeof text, ERROR_DESCRIPTOR ": %s", problem);
    return RedisModule_ReplyWithError(ctx, text);
}

/* BF.SETDESCRIPTOR key bytes
 * Stores exactly this descriptor. Replicas, the AOF and nodes that import slots learn about new
 * filters and new layers this way. An existing filter can only be replaced by another state of
 * itself. */
int BFSetDescriptor_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 3) return RedisModule_WrongArity(ctx);
    if (!internal_only(ctx)) return RedisModule_ReplyWithError(ctx, ERROR_INTERNAL);
    const struct word bytes = word_of(argv[2]), name = word_of(argv[1]);
    const char *problem;
    struct descriptor *descriptor =
        descriptor_decode((const uint8_t *)bytes.text, bytes.length, &problem);
    if (!descriptor) return reply_bad_descriptor(ctx, problem);
    if (cluster_enabled(ctx) && !names_share_slot(descriptor, name.text, name.length)) {
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
            slices_replace(ctx, filter, descriptor);
        else
            type_set(key, filter_wrap(descriptor));
        RedisModule_ReplicateVerbatim(ctx);
        RedisModule_SignalModifiedKey(ctx, argv[1]);
        RedisModule_ReplyWithSimpleString(ctx, "OK");
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* BF.NEXTID key id
 * The id of the filter that the following COPY or RESTORE creates under this name. */
int BFNextId_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 3) return RedisModule_WrongArity(ctx);
    if (!internal_only(ctx)) return RedisModule_ReplyWithError(ctx, ERROR_INTERNAL);
    const struct word digits = word_of(argv[2]);
    uint64_t id;
    if (!identity_parse(digits.text, digits.length, &id))
        return RedisModule_ReplyWithError(ctx, ERROR_BAD_ID);
    identity_told(RedisModule_GetSelectedDb(ctx), argv[1], id);
    RedisModule_ReplicateVerbatim(ctx);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

/* What a key named like a shard is: "live" if its filter lives, "dying" if the sweeper will remove
 * it, "moving" if its slot is between nodes and the filter may be on the other one, "orphan" if no
 * filter owns it, "other" if it is not a shard of ours. */
static const char *owner_of(RedisModuleCtx *ctx, const struct word name, RedisModuleKey *key) {
    uint64_t id;
    uint32_t layer, shard;
    size_t length;
    if (!names_parse(name.text, name.length, &id, &layer, &shard) || !key ||
        RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_STRING)
        return "other";
    const char *string = RedisModule_StringDMA(key, &length, REDISMODULE_READ);
    if (!string || length < HEADER_BYTES ||
        !header_names((const uint8_t *)string, id, layer, shard))
        return "other";
    if (living_has(id)) return "live";
    if (garbage_has(id)) return "dying";
    const unsigned slot = names_slot(name.text, name.length);
    return cluster_slot_state(ctx, slot) == SLOT_OWNED ? "orphan" : "moving";
}

/* BF.OWNER key
 * For scripts/bforphans: is the shard's filter alive? */
int BFOwner_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key = RedisModule_OpenKey(ctx, argv[1], REDISMODULE_READ);
    RedisModule_ReplyWithSimpleString(ctx, owner_of(ctx, word_of(argv[1]), key));
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* BF.LEAVES key
 * Announces to replicas and the AOF that the following DEL is a filter leaving for another node. */
int BFLeaves_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    if (!internal_only(ctx)) return RedisModule_ReplyWithError(ctx, ERROR_INTERNAL);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_filter(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE, &key, &filter))
        return REDISMODULE_OK;
    if (filter) filter->leaving = true;
    RedisModule_CloseKey(key);
    RedisModule_ReplicateVerbatim(ctx);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}
