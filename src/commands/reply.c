#include "commands/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "commands/words.h"
#include "core/bytes.h"
#include "core/filter.h"
#include "core/names.h"
#include "store/cluster.h"

/* The server writes 17 digits: "9.9999999999999995e-07" for what everybody calls 1e-06. */
int reply_number(RedisModuleCtx *ctx, double number, int ndigits) {
    char text[40];
    int length = snprintf(text, sizeof text, "%.*g", ndigits ? ndigits : 15, number);
    if (ndigits == REPLY_EXACT && strtod(text, NULL) != number)
        length = snprintf(text, sizeof text, "%.17g", number);
    if (RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_RESP3)
        return RedisModule_ReplyWithDouble(ctx, strtod(text, NULL));
    return RedisModule_ReplyWithStringBuffer(ctx, text, (size_t)length);
}

int reply_lost(struct strings *strings) {
    const struct access *access = &strings->access;
    const struct descriptor *descriptor = access->descriptor;
    /* A replica does not know which slots its primary is moving: that, too, may be why it lacks the
     * shard. */
    if (access->status == SHARD_MISSING &&
        cluster_slot_state(strings->ctx, names_filter_slot(descriptor)) != SLOT_OWNED)
        return RedisModule_ReplyWithError(strings->ctx, ERROR_MIGRATING);
    RedisModuleString *name = shard_name(descriptor, access->bad_layer, access->bad_shard);
    const struct word word = word_of(name);
    char shown[256], text[512];
    bytes_show(word.text, word.length, shown, sizeof shown);
    RedisModule_FreeString(NULL, name);
    snprintf(
        text, sizeof text,
        "SHARDLOST shard %s %s: %.3g%% of the filter can't be answered; see BF.SHARDS and BF.HEAL",
        shown, access->status == SHARD_MISSING ? "is missing" : "was overwritten or damaged",
        100 * filter_shard_share(descriptor, access->bad_layer));
    return RedisModule_ReplyWithError(strings->ctx, text);
}

int reply_half_loaded(RedisModuleCtx *ctx, const struct load *load) {
    char text[200];
    const double share = load->total == 0 ? 0 : (double)load->nbytes / (double)load->total;
    snprintf(text, sizeof text,
             "HALFLOADED the filter is half loaded (%.0f%%): go on with BF.LOADCHUNK and what "
             "BF.SCANDUMP gives for iterator %" PRIu64 ", or DEL it",
             share < 1 ? 100 * share : 100, load->next);
    return RedisModule_ReplyWithError(ctx, text);
}
