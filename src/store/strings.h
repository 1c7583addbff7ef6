/* strings.h: the strings of a filter as keys of the server, for one command. */
#ifndef STRINGS_H
#define STRINGS_H

#include "core/access.h"
#include "store/value.h"

struct strings {
    struct access access; /* what the core works with; must be first */
    RedisModuleCtx *ctx;
    /* For a command that adds items: what it was called with, so that replicas can be told. */
    RedisModuleString *name;
    RedisModuleString **items;
    size_t nsent; /* items that replicas know of */
    enum { ABSENCE_UNKNOWN, ABSENCE_CERTAIN, ABSENCE_UNCERTAIN } absence; /* asked for once */
};

extern const struct supplier key_supplier;

/* The strings of a filter; end with access_close. `mode` is REDISMODULE_READ, or with REDISMODULE_WRITE. */
static inline struct strings strings_of(RedisModuleCtx *ctx, struct filter *filter, int mode) {
    return (struct strings){.access = {.supplier = &key_supplier,
                                       .descriptor = filter->descriptor,
                                       .handles = &filter->handles,
                                       .writes = mode & REDISMODULE_WRITE},
                            .ctx = ctx};
}

/* A new string with the name of a shard, or of an adopted string. */
RedisModuleString *shard_name(const struct descriptor *descriptor, uint32_t layer, uint32_t shard);

/* Is the server so full that nothing large may be made? The server refuses commands when its memory is used up, but only
 * before they start, and one batch can make a thousand shards. A tenth of slack lets a server that evicts, and so is always
 * nearly full, take a usual batch. */
bool strings_memory_is_full(void);

#endif
