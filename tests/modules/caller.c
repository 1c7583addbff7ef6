/* A module that runs any command in its own right, as other people's modules do: CALLER.CALL
 * command [argument ...]. */
#define REDISMODULE_MAIN
#include "redismodule.h"

#include <stdio.h>

#define REPLY_ERROR 1

static int Call_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 2) return RedisModule_WrongArity(ctx);
    const char *name = RedisModule_StringPtrLen(argv[1], NULL);
    RedisModuleCallReply *reply = RedisModule_Call(ctx, name, "v", argv + 2, (size_t)argc - 2);
    if (!reply) return RedisModule_ReplyWithError(ctx, "ERR no such call");
    const int type = RedisModule_CallReplyType(reply);
    size_t length = 0;
    const char *bytes = RedisModule_CallReplyStringPtr(reply, &length);
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)length, bytes ? bytes : "");
    if (type == REDISMODULE_REPLY_INTEGER)
        RedisModule_ReplyWithLongLong(ctx, RedisModule_CallReplyInteger(reply));
    else if (type == REPLY_ERROR)
        RedisModule_ReplyWithError(ctx, text);
    else
        RedisModule_ReplyWithSimpleString(ctx, text);
    RedisModule_FreeCallReply(reply);
    return REDISMODULE_OK;
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx *ctx,
                                                              RedisModuleString **argv, int argc);

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    if (RedisModule_Resolve(ctx)) return REDISMODULE_ERR;
    RedisModule_SetModuleAttribs(ctx, "caller", 1, REDISMODULE_APIVER_1);
    return RedisModule_CreateCommand(ctx, "caller.call", Call_RedisCommand, "write", 0, 0, 0);
}
