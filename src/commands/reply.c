#include "commands/reply.h"

#include <inttypes.h>
#include <stdio.h>

#include "commands/words.h"
#include "core/bytes.h"
#include "core/filter.h"
#include "core/names.h"
#include "store/cluster.h"

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
