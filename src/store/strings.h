/* strings.h: the strings of a filter as keys of the server, for one command. */
#ifndef STRINGS_H
#define STRINGS_H

#include "core/access.h"
#include "redismodule.h"

struct strings {
    struct access access; /* what the core works with; must be first */
    RedisModuleCtx *ctx;
    /* A command that adds items sets these: what it was called with, and what to do when the filter
     * has got a layer after the first n lookups. replication.h tells replicas. */
    RedisModuleString *name;
    RedisModuleString **items;
    void (*grown)(struct strings *strings, const struct lookup *lookups, size_t n);
    size_t nsent; /* items that replicas know of */
    enum { ABSENCE_UNKNOWN, ABSENCE_CERTAIN, ABSENCE_UNCERTAIN } absence; /* asked for once */
};

extern const struct supplier key_supplier;

/* The error of commands that need a string which may be on another cluster node. */
#define STRINGS_ON_THE_WAY "TRYAGAIN shards of this filter are on their way between cluster nodes"

/* A new string with the name of a shard, or of an adopted string. */
RedisModuleString *shard_name(const struct descriptor *descriptor, uint32_t layer, uint32_t shard);

/* Says of which string access_open found that it is lost, and what that means, as an error reply.
 */
void strings_lost_problem(struct strings *strings, char *text, size_t room);

/* Is the running command one that a primary, or this server in an earlier life, has done
 * already? */
bool strings_repeat(RedisModuleCtx *ctx);

/* Is the server so full that nothing large may be made? The server refuses commands when its memory
 * is used up, but only before they start, and one batch can make a thousand shards. A tenth of
 * slack lets a server that evicts, and so is always nearly full, take a usual batch. */
bool strings_memory_is_full(void);

#endif
