#include "commands/reply.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

#include "commands/words.h"
#include "store/cluster.h"
#include "store/filter.h"

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

int reply_half_loaded(RedisModuleCtx *ctx, const struct load *load) {
    char text[200];
    const double share = load->total == 0 ? 0 : (double)load->nbytes / (double)load->total;
    snprintf(text, sizeof text,
             "HALFLOADED the filter is half loaded (%.0f%%): go on with BF.LOADCHUNK and what "
             "BF.SCANDUMP gives for iterator %" PRIu64 ", or DEL it",
             share < 1 ? 100 * share : 100, load->next);
    return RedisModule_ReplyWithError(ctx, text);
}
