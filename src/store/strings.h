/* strings.h: the strings of a filter as keys of the server, for one command. */
#ifndef STRINGS_H
#define STRINGS_H

#include "core/access.h"
#include "redismodule.h"

struct strings {
    struct access access; /* used by the core; must be first */
    RedisModuleCtx *ctx;
    /* Set by a command that adds items: its arguments, and what to do when the filter has got a
     * layer after the first n lookups (replication.h). */
    RedisModuleString *name;
    RedisModuleString **items;
    void (*grown)(struct strings *strings, const struct lookup *lookups, size_t n);
    size_t nsent; /* items sent to replicas */
    enum { ABSENCE_UNKNOWN, ABSENCE_CERTAIN, ABSENCE_UNCERTAIN } absence; /* found out once */
};

extern const struct supplier key_supplier;

/* The error if a required string may be on another cluster node. */
#define STRINGS_ON_THE_WAY "TRYAGAIN shards of this filter are on their way between cluster nodes"

/* A new string with the name of a shard, or of an adopted string. */
RedisModuleString *shard_name(const struct descriptor *descriptor, uint32_t layer, uint32_t shard);

/* The error reply for a string that access_open found to be lost: which one it is and what that
 * means. */
void strings_lost_problem(struct strings *strings, char *text, size_t room);

/* Is the running command a repetition of what a primary, or this server before a restart, has
 * done? */
bool strings_repeat(RedisModuleCtx *ctx);

/* Is the server too full to create anything large? The server refuses commands when its memory is
 * used up, but only before they start, and one batch can create a thousand shards. A tenth of slack
 * lets a server that evicts, and so is always nearly full, take a normal batch. */
bool strings_memory_is_full(void);

#endif
