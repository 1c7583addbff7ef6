#include "commands/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The server would write 17 digits: "9.9999999999999995e-07" instead of 1e-06. */
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
    char text[512];
    strings_lost_problem(strings, text, sizeof text);
    return RedisModule_ReplyWithError(strings->ctx, text);
}

int reply_half_loaded(RedisModuleCtx *ctx, const struct load *load) {
    char text[200];
    const double share = load->total == 0 ? 0 : (double)load->nbytes / (double)load->total;
    snprintf(text, sizeof text,
             "HALFLOADED the filter is half loaded (%.0f%%): continue with BF.LOADCHUNK and the "
             "chunk that BF.SCANDUMP returns for iterator %" PRIu64 ", or DEL the filter",
             share < 1 ? 100 * share : 100, load->next);
    return RedisModule_ReplyWithError(ctx, text);
}
