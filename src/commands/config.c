/* A module argument sets the default of a setting; redis.conf and CONFIG SET override it. That way
 * the file that CONFIG REWRITE writes, with the loadmodule line and the changed settings, is read
 * back correctly. */
#include "commands/config.h"

#include <stdio.h>
#include <string.h>

#include "core/descriptor.h"
#include "core/sizing.h"
#include "commands/words.h"

#define DEFAULT_SHARD_BYTES (7ll << 20)

struct config config = {
    .error_rate = 0.01, .initial_size = 100, .expansion = 2, .shard_bytes = DEFAULT_SHARD_BYTES};

/* What is wrong with a value, without the error code, which the server adds itself. */
static const char *problem_of(const struct options *options) {
    return options->problem + strlen("ERR ");
}

/* ---- bf.error-rate: a string, because Redis has no settings with fractions ---- */

static char error_rate_text[64];
static RedisModuleString *error_rate_string; /* what CONFIG GET shows: the user's own spelling */

static bool set_error_rate(struct word word, struct options *options) {
    if (!options_set_error(options, word)) return false;
    config.error_rate = options->error;
    snprintf(error_rate_text, sizeof error_rate_text, "%.*s", (int)word.length, word.text);
    return true;
}

static RedisModuleString *ErrorRateGet(const char *name, void *data) {
    (void)name;
    (void)data;
    if (error_rate_string) RedisModule_FreeString(NULL, error_rate_string);
    error_rate_string = RedisModule_CreateString(NULL, error_rate_text, strlen(error_rate_text));
    return error_rate_string;
}

static int ErrorRateSet(const char *name, RedisModuleString *value, void *data,
                        RedisModuleString **err) {
    (void)name;
    (void)data;
    struct options options;
    if (set_error_rate(word_of(value), &options)) return REDISMODULE_OK;
    const char *problem = problem_of(&options);
    *err = RedisModule_CreateString(NULL, problem, strlen(problem));
    return REDISMODULE_ERR;
}

/* ---- the whole numbers ---- */

static long long NumberGet(const char *name, void *data) {
    (void)name;
    return *(long long *)data;
}

static int NumberSet(const char *name, long long value, void *data, RedisModuleString **err) {
    (void)name;
    (void)err;
    *(long long *)data = value;
    return REDISMODULE_OK;
}

static const struct number {
    const char *name;   /* setting, and argument */
    const char *legacy; /* what RedisBloom calls the argument */
    long long *value;
    long long min, max;
    unsigned flags;
} numbers[] = {
    {"initial-size", "INITIAL_SIZE", &config.initial_size, 1, (long long)SIZING_MAX_CAPACITY,
     REDISMODULE_CONFIG_DEFAULT},
    {"expansion", "EXPANSION", &config.expansion, 0, DESCRIPTOR_MAX_EXPANSION,
     REDISMODULE_CONFIG_DEFAULT},
    {"shard-size", "SHARD_SIZE", &config.shard_bytes, SIZING_MIN_SHARD_BYTES,
     SIZING_MAX_SHARD_BYTES, REDISMODULE_CONFIG_MEMORY},
};
#define NNUMBERS (sizeof numbers / sizeof *numbers)

/* ---- module arguments: NAME value pairs ---- */

static bool names(struct word word, const char *name, const char *legacy) {
    if (word.length > 3 && strncasecmp(word.text, "bf.", 3) == 0)
        word = (struct word){word.text + 3, word.length - 3};
    return word_is(word, name) || word_is(word, legacy);
}

static bool read_argument(RedisModuleCtx *ctx, struct word name, struct word value) {
    struct options options;
    if (names(name, "error-rate", "ERROR_RATE")) {
        if (set_error_rate(value, &options)) return true;
        RedisModule_Log(ctx, "warning", "bad value for ERROR_RATE: %s", problem_of(&options));
        return false;
    }
    for (size_t i = 0; i < NNUMBERS; i++) {
        if (!names(name, numbers[i].name, numbers[i].legacy)) continue;
        uint64_t number;
        const bool bytes = numbers[i].flags & REDISMODULE_CONFIG_MEMORY;
        if ((bytes ? word_to_bytes(value, &number) : word_to_u64(value, &number)) &&
            number >= (uint64_t)numbers[i].min && number <= (uint64_t)numbers[i].max) {
            *numbers[i].value = (long long)number;
            return true;
        }
        RedisModule_Log(ctx, "warning",
                        "bad value for %s: a whole number from %lld to %lld is needed",
                        numbers[i].name, numbers[i].min, numbers[i].max);
        return false;
    }
    RedisModule_Log(
        ctx, "warning",
        "unknown module argument '%.*s'; known are error-rate, initial-size, expansion, shard-size",
        (int)(name.length < 64 ? name.length : 64), name.text);
    return false;
}

bool config_load(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    snprintf(error_rate_text, sizeof error_rate_text, "0.01");
    for (int i = 0; i < argc; i += 2) {
        if (i + 1 == argc) {
            const struct word name = word_of(argv[i]);
            RedisModule_Log(ctx, "warning", "module argument '%.*s' has no value",
                            (int)(name.length < 64 ? name.length : 64), name.text);
            return false;
        }
        if (!read_argument(ctx, word_of(argv[i]), word_of(argv[i + 1]))) return false;
    }
    bool ok = RedisModule_RegisterStringConfig(ctx, "error-rate", error_rate_text,
                                               REDISMODULE_CONFIG_DEFAULT, ErrorRateGet,
                                               ErrorRateSet, NULL, NULL) == REDISMODULE_OK;
    for (size_t i = 0; ok && i < NNUMBERS; i++)
        ok = RedisModule_RegisterNumericConfig(
                 ctx, numbers[i].name, *numbers[i].value, numbers[i].flags, numbers[i].min,
                 numbers[i].max, NumberGet, NumberSet, NULL, numbers[i].value) == REDISMODULE_OK;
    if (ok && RedisModule_LoadConfigs(ctx) == REDISMODULE_OK) return true;
    RedisModule_Log(ctx, "warning", "a bf.* setting was refused");
    return false;
}

/* ---- the server's own settings ---- */

/* The value of a server setting, as text; "" if it can't be read. */
static void server_setting(RedisModuleCtx *ctx, const char *name, char *text, size_t room) {
    text[0] = '\0';
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "CONFIG", "cc", "GET", name), *value = NULL;
    if (!reply) return;
    if (RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_ARRAY)
        value = RedisModule_CallReplyArrayElement(reply, 1);
    size_t length = 0;
    const char *bytes = value ? RedisModule_CallReplyStringPtr(value, &length) : NULL;
    if (bytes) snprintf(text, room, "%.*s", (int)length, bytes);
    RedisModule_FreeCallReply(reply);
}

/* The volatile policies are harmless: they only evict keys with a time to live. Shards have none,
 * and if a filter's own key is evicted, the whole filter goes. */
void config_warn_of_eviction(RedisModuleCtx *ctx) {
    char policy[64], limit[64];
    server_setting(ctx, "maxmemory-policy", policy, sizeof policy);
    server_setting(ctx, "maxmemory", limit, sizeof limit);
    if (strncmp(policy, "allkeys-", 8) != 0 || strcmp(limit, "0") == 0) return;
    RedisModule_Log(ctx, "warning",
                    "maxmemory-policy %s may evict parts of filters, whose commands then answer "
                    "SHARDLOST; use noeviction or a volatile- policy (see docs/memory.md)",
                    policy);
}
