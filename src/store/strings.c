#include "store/strings.h"

#include <stdio.h>

#include "core/bytes.h"
#include "core/filter.h"
#include "core/names.h"
#include "store/cluster.h"
#include "store/leftovers.h"
#include "store/spare.h"
#include "store/statistics.h"

static struct strings *strings_behind(struct access *access) {
    return (struct strings *)access;
}

RedisModuleString *shard_name(const struct descriptor *descriptor, uint32_t layer, uint32_t shard) {
    char stack[256], *text = stack;
    const size_t room = names_room(descriptor);
    if (room > sizeof stack) text = RedisModule_Alloc(room);
    const size_t length = names_string(descriptor, layer, shard, text);
    RedisModuleString *name = RedisModule_CreateString(NULL, text, length);
    if (text != stack) RedisModule_Free(text);
    return name;
}

/* A replica does not know which slots its primary is moving: that may also be why the shard is
 * missing. */
void strings_lost_problem(struct strings *strings, char *text, size_t room) {
    const struct access *access = &strings->access;
    const struct descriptor *descriptor = access->descriptor;
    if (access->status == SHARD_MISSING &&
        cluster_slot_state(strings->ctx, names_filter_slot(descriptor)) != SLOT_OWNED) {
        snprintf(text, room, "%s", STRINGS_ON_THE_WAY);
        return;
    }
    RedisModuleString *name = shard_name(descriptor, access->bad_layer, access->bad_shard);
    size_t length;
    const char *bytes = RedisModule_StringPtrLen(name, &length);
    char shown[256];
    bytes_show(bytes, length, shown, sizeof shown);
    RedisModule_FreeString(NULL, name);
    snprintf(
        text, room,
        "SHARDLOST shard %s %s: %.3g%% of the filter can't be answered; see BF.SHARDS and BF.HEAL",
        shown, access->status == SHARD_MISSING ? "is missing" : "was overwritten or damaged",
        100 * filter_shard_share(descriptor, access->first, access->bad_layer));
}

/* ---- keys ---- */

static inline RedisModuleKey *open_key(struct access *access, struct shard *shard, uint32_t layer,
                                       uint32_t number, int mode) {
    if (!shard->name) shard->name = shard_name(access->descriptor, layer, number);
    return RedisModule_OpenKey(strings_behind(access)->ctx, shard->name, mode);
}

static uint8_t *key_open(struct access *access, struct shard *shard, uint32_t layer,
                         uint32_t number, size_t *nbytes, bool *there) {
    const int mode = REDISMODULE_READ | (access->writes ? REDISMODULE_WRITE : 0);
    RedisModuleKey *key = open_key(access, shard, layer, number, mode);
    if (!key) return NULL;
    /* For an empty key, the server returns the address of an empty string; for another type,
     * NULL. */
    uint8_t *string = (uint8_t *)RedisModule_StringDMA(key, nbytes, mode);
    shard->key = key;
    if (string && *nbytes > 0) return string;
    const int type = RedisModule_KeyType(key);
    *there = type != REDISMODULE_KEYTYPE_EMPTY;
    if (string && type == REDISMODULE_KEYTYPE_STRING) return string;
    RedisModule_CloseKey(key);
    shard->key = NULL;
    return NULL;
}

/* The key of a shard that is about to be changed. */
static RedisModuleKey *key_for_change(struct access *access, struct shard *shard, uint32_t layer,
                                      uint32_t number) {
    if (!shard->key)
        shard->key = open_key(access, shard, layer, number, REDISMODULE_READ | REDISMODULE_WRITE);
    return shard->key;
}

/* Creates a new string of exactly this length: for a string that grows, the server would allocate
 * twice as much. */
static uint8_t *key_renew(struct access *access, struct shard *shard, uint32_t layer,
                          uint32_t number, size_t nbytes) {
    RedisModuleKey *key = key_for_change(access, shard, layer, number);
    if (RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_EMPTY) RedisModule_DeleteKey(key);
    spare_use(nbytes);
    RedisModule_StringTruncate(key, nbytes);
    return (uint8_t *)RedisModule_StringDMA(key, &nbytes, REDISMODULE_READ | REDISMODULE_WRITE);
}

static uint8_t *key_extend(struct access *access, struct shard *shard, uint32_t layer,
                           uint32_t number, size_t nbytes) {
    RedisModuleKey *key = key_for_change(access, shard, layer, number);
    RedisModule_StringTruncate(key, nbytes);
    return (uint8_t *)RedisModule_StringDMA(key, &nbytes, REDISMODULE_READ | REDISMODULE_WRITE);
}

static void key_close(struct access *access, struct shard *shard) {
    (void)access;
    RedisModule_CloseKey(shard->key);
    shard->key = NULL;
}

static void key_forget(struct shard *shard) {
    RedisModule_FreeString(NULL, shard->name);
    shard->name = NULL;
}

/* ---- what the core asks of the server ---- */

static bool key_absence_is_certain(struct access *access) {
    struct strings *strings = strings_behind(access);
    if (strings->absence == ABSENCE_UNKNOWN) {
        const unsigned slot = names_filter_slot(access->descriptor);
        strings->absence = cluster_slot_state(strings->ctx, slot) == SLOT_MOVING ? ABSENCE_UNCERTAIN
                                                                                 : ABSENCE_CERTAIN;
    }
    return strings->absence == ABSENCE_CERTAIN;
}

bool strings_repeat(RedisModuleCtx *ctx) {
    return RedisModule_GetContextFlags(ctx) &
           (REDISMODULE_CTX_FLAGS_REPLICATED | REDISMODULE_CTX_FLAGS_LOADING);
}

static bool key_repeats(struct access *access) {
    return strings_repeat(strings_behind(access)->ctx);
}

bool strings_memory_is_full(void) {
    return RedisModule_GetUsedMemoryRatio() > 1.1f;
}

/* What a primary has done is repeated regardless of memory. */
static bool key_may_allocate(struct access *access) {
    return !strings_memory_is_full() || key_repeats(access);
}

static void key_grown(struct access *access, const struct lookup *lookups, size_t n) {
    struct strings *strings = strings_behind(access);
    strings->grown(strings, lookups, n);
}

static void key_changed(struct access *access, struct shard *shard) {
    RedisModule_SignalModifiedKey(strings_behind(access)->ctx, shard->name);
}

const struct supplier key_supplier = {.open = key_open,
                                      .renew = key_renew,
                                      .extend = key_extend,
                                      .close = key_close,
                                      .forget = key_forget,
                                      .postpone = leftovers_take,
                                      .absence_is_certain = key_absence_is_certain,
                                      .repeats = key_repeats,
                                      .may_allocate = key_may_allocate,
                                      .soon = spare_prepare,
                                      .grown = key_grown,
                                      .changed = key_changed,
                                      .count = statistics_count};
