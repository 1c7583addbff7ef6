/* Connections, commands, and what is expected of their replies.
 *
 * A reply is compared as text, one form for RESP2 and RESP3:
 *     +OK  -ERR text  :1  "bulk\x00"  *2 :1 :0  %1 +key :2  #t #f  ,0.5  (123  ~1 :1  _ (any null)
 * In the expected text "..." stands for anything. Commands are written as for hiredis: %s, %d, %lld
 * and %b (bytes, size_t). */
#ifndef CLIENT_H
#define CLIENT_H

#include "server.h"

#include <hiredis/hiredis.h>
#include <stdarg.h>

struct Client {
    Server *server;
    redisContext *redis; /* NULL while there is no connection */
    bool raw;            /* replies are read by us: RESP3, or a replication stream */
    size_t npending;     /* raw: unread bytes in buffer */
    char buffer[65536];
    struct Client *next; /* all clients of the running test */
};

/* More connections to a server; closed after the test. */
Client *client_new(Server *s);
Client *client_new_resp3(Server *s);
/* Used by the server harness when a server goes and comes. */
void client_disconnect(Client *c);
bool client_connect(Client *c);

#define EXPECT(client, want, ...) client_expect(client, __FILE__, __LINE__, want, __VA_ARGS__)
/* An error whose code (first word) is exactly this and whose text contains the word, whatever its
 * case. */
#define EXPECT_ERROR(client, code, word, ...)                                                      \
    client_expect_error(client, __FILE__, __LINE__, code, word, __VA_ARGS__)

bool client_expect(Client *c, const char *file, int line, const char *want, const char *format,
                   ...);
bool client_expect_error(Client *c, const char *file, int line, const char *code, const char *word,
                         const char *format, ...);

/* The reply of a command, never NULL: a lost connection fails the test and is an error reply. Freed
 * after the test. Not for raw clients. */
redisReply *command(Client *c, const char *format, ...);
redisReply *command_argv(Client *c, int argc, const char **argv, const size_t *lens);
/* The reply as text, freed after the test. Any client. */
const char *command_text(Client *c, const char *format, ...);
/* An integer reply; anything else fails the test and is -1. */
long long command_int(Client *c, const char *format, ...);

/* Runs `name key item...` for the items prefix<first> .. prefix<first+n-1> in batches of up to 1000
 * and returns the sum of the integer elements of all replies. */
long long command_batches(Client *c, const char *name, const char *key, const char *prefix,
                          long long first, long long n);

/* Does entry i of a reply of BF.SHARDS name another string than the one before? Layers that share a
 * string follow each other. */
bool is_new_string(const redisReply *shards, size_t i);
/* The strings that it names. */
long long count_strings(const redisReply *shards);

/* The text of a reply, to be freed. */
char *reply_text(const redisReply *r);
/* Whether the text is as wanted ("..." stands for anything). */
bool text_matches(const char *text, const char *want);

/* A connection that the server takes for a replica: the stream of what it writes. */
Client *stream_new(Server *s);
/* What was written to replicas since the last call, one command per line, arguments separated by a
 * space and without quotes (bytes outside printable ASCII as \xHH). Freed after the test. */
const char *stream_read(Client *stream);

/* Memory that is freed after the test. */
void *keep(void *allocated);

#endif
