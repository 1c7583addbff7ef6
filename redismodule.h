/* redismodule.h: the part of the Redis modules API that shardbloom uses.
 *
 * This is not the official header. It declares the types, constants and functions this module
 * needs, from their documented signatures, and nothing else. The list below is therefore everything
 * the module can ask of a server. The oldest supported server is Redis 7.0. Functions that only
 * newer servers have are in a separate list; their pointers are NULL on servers that lack them, so
 * callers must check.
 *
 * Exactly one source file (module.c) defines REDISMODULE_MAIN before including this header; it then
 * holds the function pointers. */
#ifndef REDISMODULE_H
#define REDISMODULE_H

#include <stddef.h>
#include <stdint.h>

/* ---- results, access modes, types of keys and replies ---- */
#define REDISMODULE_OK       0
#define REDISMODULE_ERR      1
#define REDISMODULE_APIVER_1 1

#define REDISMODULE_READ             (1 << 0)
#define REDISMODULE_WRITE            (1 << 1)
#define REDISMODULE_OPEN_KEY_NOTOUCH (1 << 16)

#define REDISMODULE_KEYTYPE_EMPTY  0
#define REDISMODULE_KEYTYPE_STRING 1

#define REDISMODULE_REPLY_INTEGER 2
#define REDISMODULE_REPLY_ARRAY   3

#define REDISMODULE_POSTPONED_LEN -1
#define REDISMODULE_NO_EXPIRE     -1

#define REDISMODULE_ERRORMSG_WRONGTYPE                                                             \
    "WRONGTYPE Operation against a key holding the wrong kind of value"

/* ---- module options ---- */
#define REDISMODULE_OPTIONS_HANDLE_IO_ERRORS           (1 << 0)
#define REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED (1 << 1)
#define REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD     (1 << 2)
#define REDISMODULE_OPTIONS_HANDLE_ATOMIC_MIGRATION    (1 << 5) /* Valkey 9.0 */

/* ---- flags of the running context ---- */
#define REDISMODULE_CTX_FLAGS_LUA           (1 << 0)
#define REDISMODULE_CTX_FLAGS_MULTI         (1 << 1)
#define REDISMODULE_CTX_FLAGS_MASTER        (1 << 2)
#define REDISMODULE_CTX_FLAGS_CLUSTER       (1 << 5)
#define REDISMODULE_CTX_FLAGS_EVICT         (1 << 9)
#define REDISMODULE_CTX_FLAGS_REPLICATED    (1 << 12)
#define REDISMODULE_CTX_FLAGS_LOADING       (1 << 13)
#define REDISMODULE_CTX_FLAGS_IS_CHILD      (1 << 20)
#define REDISMODULE_CTX_FLAGS_DENY_BLOCKING (1 << 21)
#define REDISMODULE_CTX_FLAGS_RESP3         (1 << 22)
#define REDISMODULE_CTX_FLAGS_ASYNC_LOADING (1 << 23)

#define REDISMODULE_NOTIFY_GENERIC (1 << 2)
#define REDISMODULE_NOTIFY_MODULE  (1 << 13)

/* ---- configuration ---- */
#define REDISMODULE_CONFIG_DEFAULT 0
#define REDISMODULE_CONFIG_MEMORY  (1ULL << 7)

/* ---- command documentation ---- */
typedef enum {
    REDISMODULE_ARG_TYPE_STRING,
    REDISMODULE_ARG_TYPE_INTEGER,
    REDISMODULE_ARG_TYPE_DOUBLE,
    REDISMODULE_ARG_TYPE_KEY,
    REDISMODULE_ARG_TYPE_PATTERN,
    REDISMODULE_ARG_TYPE_UNIX_TIME,
    REDISMODULE_ARG_TYPE_PURE_TOKEN,
    REDISMODULE_ARG_TYPE_ONEOF,
    REDISMODULE_ARG_TYPE_BLOCK
} RedisModuleCommandArgType;

#define REDISMODULE_CMD_ARG_OPTIONAL (1 << 0)
#define REDISMODULE_CMD_ARG_MULTIPLE (1 << 1)

typedef enum {
    REDISMODULE_KSPEC_BS_INVALID = 0,
    REDISMODULE_KSPEC_BS_UNKNOWN,
    REDISMODULE_KSPEC_BS_INDEX,
    REDISMODULE_KSPEC_BS_KEYWORD
} RedisModuleKeySpecBeginSearchType;

typedef enum {
    REDISMODULE_KSPEC_FK_OMITTED = 0,
    REDISMODULE_KSPEC_FK_UNKNOWN,
    REDISMODULE_KSPEC_FK_RANGE,
    REDISMODULE_KSPEC_FK_KEYNUM
} RedisModuleKeySpecFindKeysType;

#define REDISMODULE_CMD_KEY_RO     (1ULL << 0)
#define REDISMODULE_CMD_KEY_RW     (1ULL << 1)
#define REDISMODULE_CMD_KEY_OW     (1ULL << 2)
#define REDISMODULE_CMD_KEY_ACCESS (1ULL << 4)
#define REDISMODULE_CMD_KEY_UPDATE (1ULL << 5)
#define REDISMODULE_CMD_KEY_INSERT (1ULL << 6)

typedef struct RedisModuleCommandArg {
    const char *name;
    RedisModuleCommandArgType type;
    int key_spec_index;
    const char *token;
    const char *summary;
    const char *since;
    int flags;
    const char *deprecated_since;
    struct RedisModuleCommandArg *subargs;
    const char *display_text; /* since 7.2, which reads it whatever size was declared */
} RedisModuleCommandArg;

typedef struct {
    const char *since;
    const char *changes;
} RedisModuleCommandHistoryEntry;

typedef struct {
    const char *notes;
    uint64_t flags;
    RedisModuleKeySpecBeginSearchType begin_search_type;
    union {
        struct {
            int pos;
        } index;
        struct {
            const char *keyword;
            int startfrom;
        } keyword;
    } bs;
    RedisModuleKeySpecFindKeysType find_keys_type;
    union {
        struct {
            int lastkey;
            int keystep;
            int limit;
        } range;
        struct {
            int keynumidx;
            int firstkey;
            int keystep;
        } keynum;
    } fk;
} RedisModuleCommandKeySpec;

typedef struct {
    int version;
    size_t sizeof_historyentry;
    size_t sizeof_keyspec;
    size_t sizeof_arg;
} RedisModuleCommandInfoVersion;

typedef struct {
    const RedisModuleCommandInfoVersion *version;
    const char *summary;
    const char *complexity;
    const char *since;
    RedisModuleCommandHistoryEntry *history;
    const char *tips;
    int arity;
    RedisModuleCommandKeySpec *key_specs;
    RedisModuleCommandArg *args;
} RedisModuleCommandInfo;

/* ---- server events ---- */
#define REDISMODULE_EVENT_PERSISTENCE     1
#define REDISMODULE_EVENT_FLUSHDB         2
#define REDISMODULE_EVENT_LOADING         3
#define REDISMODULE_EVENT_SWAPDB          11
#define REDISMODULE_EVENT_REPL_ASYNC_LOAD 14
/* Redis and Valkey use the same number for different events. */
#define REDISMODULE_EVENT_SLOT_MIGRATION         18 /* Redis 8.4 */
#define REDISMODULE_EVENT_SLOTS_TRIMMED          19 /* Redis 8.4 */
#define VALKEYMODULE_EVENT_ATOMIC_SLOT_MIGRATION 19 /* Valkey 9.0 */

#define REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START 1
#define REDISMODULE_SUBEVENT_PERSISTENCE_ENDED     3
#define REDISMODULE_SUBEVENT_PERSISTENCE_FAILED    4

#define REDISMODULE_SUBEVENT_LOADING_REPL_START 2

#define REDISMODULE_SUBEVENT_SLOT_MIGRATION_SNAPSHOT 6 /* in the child, before it sends slots */

#define VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_EXPORT_STARTED   1
#define VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_EXPORT_ABORTED   3
#define VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_EXPORT_COMPLETED 5

typedef struct RedisModuleEvent {
    uint64_t id;
    uint64_t dataver;
} RedisModuleEvent;

/* ---- opaque types and callbacks ---- */
typedef long long mstime_t;
typedef uint64_t RedisModuleTimerID;

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleCommand RedisModuleCommand;
typedef struct RedisModuleKey RedisModuleKey;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleCallReply RedisModuleCallReply;
typedef struct RedisModuleIO RedisModuleIO;
typedef struct RedisModuleType RedisModuleType;
typedef struct RedisModuleDigest RedisModuleDigest;
typedef struct RedisModuleInfoCtx RedisModuleInfoCtx;
typedef struct RedisModuleDefragCtx RedisModuleDefragCtx;
typedef struct RedisModuleKeyOptCtx RedisModuleKeyOptCtx;
typedef struct RedisModuleBlockedClient RedisModuleBlockedClient;
typedef struct RedisModuleUser RedisModuleUser;

typedef int (*RedisModuleCmdFunc)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
typedef void (*RedisModuleEventCallback)(RedisModuleCtx *ctx, RedisModuleEvent eid,
                                         uint64_t subevent, void *data);
typedef int (*RedisModuleNotificationFunc)(RedisModuleCtx *ctx, int type, const char *event,
                                           RedisModuleString *key);
typedef void (*RedisModuleTimerProc)(RedisModuleCtx *ctx, void *data);
typedef void (*RedisModuleDisconnectFunc)(RedisModuleCtx *ctx, RedisModuleBlockedClient *client);
typedef void (*RedisModuleInfoFunc)(RedisModuleInfoCtx *ctx, int for_crash_report);
typedef RedisModuleString *(*RedisModuleConfigGetStringFunc)(const char *name, void *privdata);
typedef long long (*RedisModuleConfigGetNumericFunc)(const char *name, void *privdata);
typedef int (*RedisModuleConfigSetStringFunc)(const char *name, RedisModuleString *val,
                                              void *privdata, RedisModuleString **err);
typedef int (*RedisModuleConfigSetNumericFunc)(const char *name, long long val, void *privdata,
                                               RedisModuleString **err);
typedef int (*RedisModuleConfigApplyFunc)(RedisModuleCtx *ctx, void *privdata,
                                          RedisModuleString **err);

/* The methods of a data type, in the server's order. Redis 7.0 has version 4. Redis 7.2 has version
 * 5, which adds aux_save2: it may save nothing at all. */
#define REDISMODULE_TYPE_METHODS_7_0 4
#define REDISMODULE_TYPE_METHODS_7_2 5
#define REDISMODULE_AUX_AFTER_RDB    (1 << 1)

typedef struct RedisModuleTypeMethods {
    uint64_t version;
    void *(*rdb_load)(RedisModuleIO *rdb, int encver);
    void (*rdb_save)(RedisModuleIO *rdb, void *value);
    void (*aof_rewrite)(RedisModuleIO *aof, RedisModuleString *key, void *value);
    size_t (*mem_usage)(const void *value);
    void (*digest)(RedisModuleDigest *digest, void *value);
    void (*free)(void *value);
    int (*aux_load)(RedisModuleIO *rdb, int encver, int when);
    void (*aux_save)(RedisModuleIO *rdb, int when);
    int aux_save_triggers;
    size_t (*free_effort)(RedisModuleString *key, const void *value);
    void (*unlink)(RedisModuleString *key, const void *value);
    void *(*copy)(RedisModuleString *fromkey, RedisModuleString *tokey, const void *value);
    int (*defrag)(RedisModuleDefragCtx *ctx, RedisModuleString *key, void **value);
    size_t (*mem_usage2)(RedisModuleKeyOptCtx *ctx, const void *value, size_t sample_size);
    size_t (*free_effort2)(RedisModuleKeyOptCtx *ctx, const void *value);
    void (*unlink2)(RedisModuleKeyOptCtx *ctx, const void *value);
    void *(*copy2)(RedisModuleKeyOptCtx *ctx, const void *value);
    void (*aux_save2)(RedisModuleIO *rdb, int when);
} RedisModuleTypeMethods;

/* ---- functions: X(result, name, arguments) ---- */
#define REDISMODULE_REQUIRED(X)                                                                    \
    X(void *, Alloc, (size_t nbytes))                                                              \
    X(void *, TryAlloc, (size_t nbytes))                                                           \
    X(void *, Calloc, (size_t count, size_t nbytes))                                               \
    X(void *, Realloc, (void *ptr, size_t nbytes))                                                 \
    X(void, Free, (void *ptr))                                                                     \
    X(float, GetUsedMemoryRatio, (void))                                                           \
    X(int, CreateCommand,                                                                          \
      (RedisModuleCtx *, const char *name, RedisModuleCmdFunc, const char *flags, int first,       \
       int last, int step))                                                                        \
    X(RedisModuleCommand *, GetCommand, (RedisModuleCtx *, const char *name))                      \
    X(int, SetCommandInfo, (RedisModuleCommand *, const RedisModuleCommandInfo *))                 \
    X(void, SetModuleAttribs, (RedisModuleCtx *, const char *name, int version, int apiversion))   \
    X(int, IsModuleNameBusy, (const char *name))                                                   \
    X(void, SetModuleOptions, (RedisModuleCtx *, int options))                                     \
    X(int, GetContextFlags, (RedisModuleCtx *))                                                    \
    X(int, GetServerVersion, (void))                                                               \
    X(unsigned long long, GetClientId, (RedisModuleCtx *))                                         \
    X(void, Log, (RedisModuleCtx *, const char *level, const char *format, ...))                   \
    X(void, LogIOError, (RedisModuleIO *, const char *level, const char *format, ...))             \
    X(int, WrongArity, (RedisModuleCtx *))                                                         \
    X(int, ReplyWithLongLong, (RedisModuleCtx *, long long))                                       \
    X(int, ReplyWithError, (RedisModuleCtx *, const char *))                                       \
    X(int, ReplyWithSimpleString, (RedisModuleCtx *, const char *))                                \
    X(int, ReplyWithArray, (RedisModuleCtx *, long length))                                        \
    X(int, ReplyWithMap, (RedisModuleCtx *, long length))                                          \
    X(void, ReplySetArrayLength, (RedisModuleCtx *, long length))                                  \
    X(int, ReplyWithStringBuffer, (RedisModuleCtx *, const char *, size_t length))                 \
    X(int, ReplyWithString, (RedisModuleCtx *, RedisModuleString *))                               \
    X(int, ReplyWithNull, (RedisModuleCtx *))                                                      \
    X(int, ReplyWithBool, (RedisModuleCtx *, int))                                                 \
    X(int, ReplyWithDouble, (RedisModuleCtx *, double))                                            \
    X(int, GetSelectedDb, (RedisModuleCtx *))                                                      \
    X(int, SelectDb, (RedisModuleCtx *, int db))                                                   \
    X(unsigned long long, DbSize, (RedisModuleCtx *))                                              \
    X(RedisModuleKey *, OpenKey, (RedisModuleCtx *, RedisModuleString *, int mode))                \
    X(void, CloseKey, (RedisModuleKey *))                                                          \
    X(int, KeyType, (RedisModuleKey *))                                                            \
    X(int, GetDbIdFromModuleKey, (RedisModuleKey *))                                               \
    X(mstime_t, GetExpire, (RedisModuleKey *))                                                     \
    X(int, DeleteKey, (RedisModuleKey *))                                                          \
    X(char *, StringDMA, (RedisModuleKey *, size_t * length, int mode))                            \
    X(int, StringTruncate, (RedisModuleKey *, size_t length))                                      \
    X(RedisModuleType *, CreateDataType,                                                           \
      (RedisModuleCtx *, const char *name, int version, RedisModuleTypeMethods *))                 \
    X(int, ModuleTypeSetValue, (RedisModuleKey *, RedisModuleType *, void *value))                 \
    X(RedisModuleType *, ModuleTypeGetType, (RedisModuleKey *))                                    \
    X(void *, ModuleTypeGetValue, (RedisModuleKey *))                                              \
    X(RedisModuleString *, CreateString, (RedisModuleCtx *, const char *, size_t length))          \
    X(void, FreeString, (RedisModuleCtx *, RedisModuleString *))                                   \
    X(const char *, StringPtrLen, (const RedisModuleString *, size_t *length))                     \
    X(int, Replicate, (RedisModuleCtx *, const char *command, const char *format, ...))            \
    X(int, ReplicateVerbatim, (RedisModuleCtx *))                                                  \
    X(int, SignalModifiedKey, (RedisModuleCtx *, RedisModuleString *))                             \
    X(int, NotifyKeyspaceEvent,                                                                    \
      (RedisModuleCtx *, int type, const char *event, RedisModuleString *key))                     \
    X(RedisModuleCallReply *, Call,                                                                \
      (RedisModuleCtx *, const char *command, const char *format, ...))                            \
    X(void, FreeCallReply, (RedisModuleCallReply *))                                               \
    X(int, CallReplyType, (RedisModuleCallReply *))                                                \
    X(long long, CallReplyInteger, (RedisModuleCallReply *))                                       \
    X(RedisModuleCallReply *, CallReplyArrayElement, (RedisModuleCallReply *, size_t index))       \
    X(const char *, CallReplyStringPtr, (RedisModuleCallReply *, size_t * length))                 \
    X(void, SaveStringBuffer, (RedisModuleIO *, const char *, size_t length))                      \
    X(char *, LoadStringBuffer, (RedisModuleIO *, size_t * length))                                \
    X(void, SaveUnsigned, (RedisModuleIO *, uint64_t))                                             \
    X(uint64_t, LoadUnsigned, (RedisModuleIO *))                                                   \
    X(int, IsIOError, (RedisModuleIO *))                                                           \
    X(void, EmitAOF, (RedisModuleIO *, const char *command, const char *format, ...))              \
    X(int, GetDbIdFromIO, (RedisModuleIO *))                                                       \
    X(const RedisModuleString *, GetKeyNameFromIO, (RedisModuleIO *))                              \
    X(RedisModuleCtx *, GetContextFromIO, (RedisModuleIO *))                                       \
    X(int, GetDbIdFromOptCtx, (RedisModuleKeyOptCtx *))                                            \
    X(int, GetToDbIdFromOptCtx, (RedisModuleKeyOptCtx *))                                          \
    X(const RedisModuleString *, GetKeyNameFromOptCtx, (RedisModuleKeyOptCtx *))                   \
    X(const RedisModuleString *, GetToKeyNameFromOptCtx, (RedisModuleKeyOptCtx *))                 \
    X(void, DigestAddStringBuffer, (RedisModuleDigest *, const char *, size_t length))             \
    X(void, DigestAddLongLong, (RedisModuleDigest *, long long))                                   \
    X(void, DigestEndSequence, (RedisModuleDigest *))                                              \
    X(int, GetDbIdFromDigest, (RedisModuleDigest *))                                               \
    X(int, SubscribeToServerEvent, (RedisModuleCtx *, RedisModuleEvent, RedisModuleEventCallback)) \
    X(int, SubscribeToKeyspaceEvents, (RedisModuleCtx *, int types, RedisModuleNotificationFunc))  \
    X(int, AvoidReplicaTraffic, (void))                                                            \
    X(RedisModuleTimerID, CreateTimer,                                                             \
      (RedisModuleCtx *, mstime_t period, RedisModuleTimerProc, void *data))                       \
    X(RedisModuleBlockedClient *, BlockClient,                                                     \
      (RedisModuleCtx *, RedisModuleCmdFunc reply, RedisModuleCmdFunc timeout,                     \
       void (*free_privdata)(RedisModuleCtx *, void *), long long timeout_ms))                     \
    X(int, UnblockClient, (RedisModuleBlockedClient *, void *privdata))                            \
    X(void *, GetBlockedClientPrivateData, (RedisModuleCtx *))                                     \
    X(void, SetDisconnectCallback,                                                                 \
      (RedisModuleBlockedClient *, RedisModuleDisconnectFunc callback))                            \
    X(RedisModuleCtx *, GetDetachedThreadSafeContext, (RedisModuleCtx *))                          \
    X(void, GetRandomBytes, (unsigned char *, size_t length))                                      \
    X(RedisModuleString *, GetCurrentUserName, (RedisModuleCtx *))                                 \
    X(RedisModuleUser *, GetModuleUserFromUserName, (RedisModuleString *))                         \
    X(void, FreeModuleUser, (RedisModuleUser *))                                                   \
    X(int, ACLCheckKeyPermissions, (RedisModuleUser *, RedisModuleString *, int flags))            \
    X(int, RegisterInfoFunc, (RedisModuleCtx *, RedisModuleInfoFunc))                              \
    X(int, InfoAddSection, (RedisModuleInfoCtx *, const char *name))                               \
    X(int, InfoAddFieldULongLong, (RedisModuleInfoCtx *, const char *field, unsigned long long))   \
    X(int, RegisterNumericConfig,                                                                  \
      (RedisModuleCtx *, const char *name, long long preset, unsigned int flags, long long min,    \
       long long max, RedisModuleConfigGetNumericFunc, RedisModuleConfigSetNumericFunc,            \
       RedisModuleConfigApplyFunc, void *))                                                        \
    X(int, RegisterStringConfig,                                                                   \
      (RedisModuleCtx *, const char *name, const char *preset, unsigned int flags,                 \
       RedisModuleConfigGetStringFunc, RedisModuleConfigSetStringFunc, RedisModuleConfigApplyFunc, \
       void *))                                                                                    \
    X(int, LoadConfigs, (RedisModuleCtx *))

/* Newer than Redis 7.0: the pointer may be NULL. */
#define REDISMODULE_OPTIONAL(X)                                                                    \
    X(int, AddACLCategory, (RedisModuleCtx *, const char *name))                                   \
    X(int, SetCommandACLCategories, (RedisModuleCommand *, const char *categories))                \
    X(int, ClusterPropagateForSlotMigration,                                                       \
      (RedisModuleCtx *, const char *command, const char *format, ...))

#ifdef REDISMODULE_MAIN
#define REDISMODULE_DECLARE(result, name, arguments) result(*RedisModule_##name) arguments;
#else
#define REDISMODULE_DECLARE(result, name, arguments) extern result(*RedisModule_##name) arguments;
#endif
REDISMODULE_REQUIRED(REDISMODULE_DECLARE)
REDISMODULE_OPTIONAL(REDISMODULE_DECLARE)

#ifdef REDISMODULE_MAIN
/* Resolves the functions. The first word of a context is the address of the server's own look-up
 * function. Returns NULL on success, or the name of a function that the server lacks. */
static const char *RedisModule_Resolve(RedisModuleCtx *ctx) {
    int (*get_api)(const char *, void *);
    *(void **)&get_api = ((void **)ctx)[0];
#define REDISMODULE_RESOLVE(result, fn, arguments)                                                 \
    if (get_api("RedisModule_" #fn, (void *)&RedisModule_##fn) != REDISMODULE_OK)                  \
        return "RedisModule_" #fn;
#define REDISMODULE_RESOLVE_IF(result, fn, arguments)                                              \
    if (get_api("RedisModule_" #fn, (void *)&RedisModule_##fn) != REDISMODULE_OK)                  \
        RedisModule_##fn = NULL;
    REDISMODULE_REQUIRED(REDISMODULE_RESOLVE)
    REDISMODULE_OPTIONAL(REDISMODULE_RESOLVE_IF)
    return NULL;
}
#endif

#endif
