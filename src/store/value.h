/* value.h: a filter as the value of a key: its descriptor, and what is remembered about its
 * shards. */
#ifndef VALUE_H
#define VALUE_H

#include "store/strings.h"

struct filter {
    struct descriptor *descriptor;
    struct handles handles;
    uint64_t packed_at; /* clock_tick() when it was last serialised for MIGRATE or DUMP; 0: never */
    bool leaving; /* it is going to another node: its shards will follow and are not garbage */
    bool used;    /* by a command that added items */
    int last_db;  /* 1 + the database that it was last removed from; 0: never */
    struct filter *next_retired; /* list of filters that another thread freed */
};

/* The server's type for such a value. */
extern RedisModuleType *FilterType;

/* The filter with this name in the selected database, or NULL. Does not count as a use of it. */
struct filter *filter_named(RedisModuleCtx *ctx, RedisModuleString *name);

struct filter *filter_wrap(struct descriptor *descriptor);

/* Frees everything but the descriptor. */
struct descriptor *filter_unwrap(struct filter *filter);

/* Forgets what is remembered about its shards: the next command builds it again. */
void filter_forget_handles(struct filter *filter);

/* Replaces the descriptor with a later state of the same filter. */
void filter_replace(struct filter *filter, struct descriptor *descriptor);

/* The strings of a filter; call access_close at the end. `mode` is REDISMODULE_READ, optionally
 * with REDISMODULE_WRITE. */
static inline struct strings strings_of(RedisModuleCtx *ctx, struct filter *filter, int mode) {
    return (struct strings){.access = {.supplier = &key_supplier,
                                       .descriptor = filter->descriptor,
                                       .handles = &filter->handles,
                                       .writes = mode & REDISMODULE_WRITE},
                            .ctx = ctx};
}

/* Bytes that the filter takes, without its shards. */
size_t filter_memory(const struct filter *filter);

/* The encoded descriptor, to be freed with RedisModule_Free. */
char *descriptor_bytes(const struct descriptor *descriptor, size_t *nbytes);

#endif
