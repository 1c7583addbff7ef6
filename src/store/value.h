/* value.h: a filter as the value of a key: its descriptor, and what is remembered of its shards. */
#ifndef VALUE_H
#define VALUE_H

#include "store/strings.h"

struct filter {
    struct descriptor *descriptor;
    struct handles handles;
    uint64_t packed_at; /* clock_tick() when it was last packed for MIGRATE or DUMP; 0: never */
    bool leaving;       /* it goes to another node: its shards will follow, and are not garbage */
    bool used;          /* by a command that added items */
    int last_db;        /* 1 + the database that it was last taken out of; 0: it never was */
    struct filter *next_retired; /* of those that another thread freed */
};

/* The type that such a value has in the server. */
extern RedisModuleType *FilterType;

/* The filter that has this name in the selected database, or NULL. Does not count as a use of it.
 */
struct filter *filter_named(RedisModuleCtx *ctx, RedisModuleString *name);

struct filter *filter_wrap(struct descriptor *descriptor);

/* Frees everything but the descriptor. */
struct descriptor *filter_unwrap(struct filter *filter);

/* Forgets what is remembered of its shards: the next command builds it anew. */
void filter_forget_handles(struct filter *filter);

/* Puts a later state of the same filter in its place. */
void filter_replace(struct filter *filter, struct descriptor *descriptor);

/* The strings of a filter; end with access_close. `mode` is REDISMODULE_READ, or with
 * REDISMODULE_WRITE. */
static inline struct strings strings_of(RedisModuleCtx *ctx, struct filter *filter, int mode) {
    return (struct strings){.access = {.supplier = &key_supplier,
                                       .descriptor = filter->descriptor,
                                       .handles = &filter->handles,
                                       .writes = mode & REDISMODULE_WRITE},
                            .ctx = ctx};
}

/* Bytes that it takes, shards apart. */
size_t filter_memory(const struct filter *filter);

/* The descriptor as it is stored, for RedisModule_Free. */
char *descriptor_bytes(const struct descriptor *descriptor, size_t *nbytes);

#endif
