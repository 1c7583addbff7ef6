/* connection: a server, named by the words that all tools of shardbloom take, and asked until it
 * answers. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdbool.h>

#define CONNECTION_RETRIES 6 /* of a server that does not answer */

struct connection {
    char *host, *path;     /* as given; path is a Unix socket's, or NULL */
    char *user, *password; /* NULL: none */
    char *cacert;          /* file of the authorities to trust with TLS; NULL: the system's */
    int port, db;          /* db is -1 if none was given */
    bool tls, has_url, has_host;

    /* In a cluster, where the key is by the last redirection; NULL: host and port as given. */
    char *node;
    int node_port;
    bool asking;         /* the redirection was an ASK: good for one command */
    redisContext *redis; /* NULL while there is no connection */
    void *tls_context;
    char why[600]; /* what went wrong, in the words that all tools use */
};

/* Set by a signal: wait no longer than for the answer at hand. */
extern volatile sig_atomic_t connection_stop;

/* The options' part of getopt's tables and of the usage. */
#define CONNECTION_SHORT "u:H:p:a:n:"
/* clang-format off */
#define CONNECTION_LONG                            \
    {"url", required_argument, NULL, 'u'},         \
    {"host", required_argument, NULL, 'H'},        \
    {"port", required_argument, NULL, 'p'},        \
    {"password", required_argument, NULL, 'a'},    \
    {"db", required_argument, NULL, 'n'},          \
    {"user", required_argument, NULL, 'U'},        \
    {"tls", no_argument, NULL, 'T'},               \
    {"cacert", required_argument, NULL, 'C'}
/* clang-format on */
extern const char connection_usage[];

/* 127.0.0.1, port 6379. */
void connection_init(struct connection *connection);
void connection_free(struct connection *connection);

/* Another server, with the login and the TLS of this one. */
void connection_init_node(struct connection *connection, const struct connection *like,
                          const char *host, int port);

/* Takes one of the options above. *problem: what is wrong with its value, or NULL. False if it is
 * none of them. */
bool connection_option(struct connection *connection, int option, const char *value,
                       const char **problem);

/* When all options were taken: what is wrong with them together, or NULL. The password of
 * REDISCLI_AUTH, if none was given. */
const char *connection_check(struct connection *connection);

/* redis://[user:password@]host[:port][/db], rediss:// with TLS,
 * unix://[user:password@]/path[?db=n]. Returns what is wrong, or NULL. */
const char *connection_url(struct connection *connection, const char *url);

/* "127.0.0.1:6379", or the path of the socket. */
const char *connection_name(const struct connection *connection, char *room, size_t nroom);

/* The reply to a command. It is sent again over a new connection while there is none, and when the
 * server answers that it can't yet (LOADING, TRYAGAIN and the like); redirections of a cluster are
 * followed. NULL if that did not help, with the reason in connection->why. *doubtful: the command
 * may have been carried out before, unanswered. Else the caller frees the reply, which may be an
 * error. */
redisReply *connection_ask(struct connection *connection, size_t argc, const char **argv,
                           const size_t *lengths, bool *doubtful);

/* Puts into connection->why what an error reply means; key is the filter that was asked for. */
void connection_explain(struct connection *connection, const char *error, const char *key);

/* Puts an error reply into connection->why as it is, with the server's name. */
void connection_quote(struct connection *connection, const redisReply *reply);

/* ---- the same in pieces, for commands to several servers at once ---- */

/* Connects and logs in, unless that is done. If not, false: *refusal is the server's error, which
 * the caller frees, or NULL with the reason in connection->why. */
bool connection_open(struct connection *connection, redisReply **refusal);

/* While nothing is on its way: closes a connection whose server has hung up. What is sent into it
 * would be in doubt, although nobody has got it. */
void connection_probe(struct connection *connection);

/* Prepares a command; sends what was prepared; waits for the next reply. A connection that is lost
 * meanwhile is closed, with the reason in connection->why, and gives NULL as the reply to all that
 * was on its way. */
void connection_append(struct connection *connection, size_t argc, const char **argv,
                       const size_t *lengths);
void connection_send(struct connection *connection);
redisReply *connection_receive(struct connection *connection);
void connection_close(struct connection *connection);

/* Whether it is an error that begins with this word. */
bool connection_refused(const redisReply *reply, const char *word);

/* Whether it is an error that will pass, and the command was not carried out. */
bool connection_soon(const redisReply *reply);

/* MOVED slot host:port, ASK slot host:port: where to. An empty host is the one that was asked. */
bool connection_redirection(const redisReply *reply, char *host, size_t nhost, int *port);

/* Says why, and waits a while before the next attempt; less if the server answers at all. */
void connection_pause(const char *why, int nattempts, bool alive);

/* For a signal handler: stops waiting for an answer. */
void connection_cut(void);

#endif
