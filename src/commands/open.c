#include "commands/open.h"

#include "commands/reply.h"

bool open_any(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
              struct filter **filter) {
    *key = RedisModule_OpenKey(ctx, name, mode);
    *filter = NULL;
    if (!*key) return true;
    if (RedisModule_ModuleTypeGetType(*key) == FilterType) {
        *filter = RedisModule_ModuleTypeGetValue(*key);
        return true;
    }
    if (RedisModule_KeyType(*key) == REDISMODULE_KEYTYPE_EMPTY) return true;
    RedisModule_CloseKey(*key);
    RedisModule_ReplyWithError(ctx, REDISMODULE_ERRORMSG_WRONGTYPE);
    return false;
}

bool open_filter(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                 struct filter **filter) {
    if (!open_any(ctx, name, mode, key, filter)) return false;
    if (!*filter || !(*filter)->descriptor->load) return true;
    reply_half_loaded(ctx, (*filter)->descriptor->load);
    RedisModule_CloseKey(*key);
    return false;
}

/* True if there is a filter; otherwise closes the key and replies "not found". */
static bool need(RedisModuleCtx *ctx, RedisModuleKey *key, const struct filter *filter) {
    if (filter) return true;
    RedisModule_CloseKey(key);
    RedisModule_ReplyWithError(ctx, ERROR_NOT_FOUND);
    return false;
}

bool open_existing(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                   struct filter **filter) {
    return open_filter(ctx, name, mode, key, filter) && need(ctx, *key, *filter);
}

/* For commands that can handle a half-loaded filter. */
bool open_existing_any(RedisModuleCtx *ctx, RedisModuleString *name, int mode, RedisModuleKey **key,
                       struct filter **filter) {
    return open_any(ctx, name, mode, key, filter) && need(ctx, *key, *filter);
}
