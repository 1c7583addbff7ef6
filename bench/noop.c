/* noop.c: the limit. A module whose commands take the arguments of BF.ADD and BF.MADD and do
 * nothing with them: what is left is parsing, dispatch and reply, which every module pays. */
#define REDISMODULE_MAIN
#include "../redismodule.h"

/* NOOP.ONE key item */
static int NoopOne_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv;
    if (argc != 3) return RedisModule_WrongArity(ctx);
    return RedisModule_ReplyWithLongLong(ctx, 0);
}

/* NOOP.MANY key item [item …] */
static int NoopMany_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv;
    if (argc < 3) return RedisModule_WrongArity(ctx);
    RedisModule_ReplyWithArray(ctx, argc - 2);
    for (int i = 2; i < argc; i++) RedisModule_ReplyWithLongLong(ctx, 0);
    return REDISMODULE_OK;
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx *ctx,
                                                              RedisModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    if (RedisModule_Resolve(ctx) != NULL) return REDISMODULE_ERR;
    RedisModule_SetModuleAttribs(ctx, "noop", 1, REDISMODULE_APIVER_1);
    if (RedisModule_CreateCommand(ctx, "noop.one", NoopOne_RedisCommand, "readonly fast", 1, 1,
                                  1) == REDISMODULE_ERR ||
        RedisModule_CreateCommand(ctx, "noop.many", NoopMany_RedisCommand, "readonly fast", 1, 1,
                                  1) == REDISMODULE_ERR)
        return REDISMODULE_ERR;
    return REDISMODULE_OK;
}
