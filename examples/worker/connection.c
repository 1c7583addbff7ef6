#include "connection.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_TLS
#include <hiredis/hiredis_ssl.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#endif

#define ALIVE_RETRIES 30 /* of one that answers that it cannot yet */
#define REDIRECTIONS  16
#define PATIENCE_S    10

volatile sig_atomic_t connection_stop = 0;
/* For connection_cut(): the socket that is being waited for, and whether waiting must end. */
static volatile sig_atomic_t awaited = -1, is_cut = 0;

const char connection_usage[] =
    "  -u, --url URL         redis://[user:password@]host[:port][/db], rediss:// for TLS,\n"
    "                        unix://[user:password@]/path[?db=n]\n"
    "  -H, --host NAME       host name or address (127.0.0.1)\n"
    "  -p, --port N          port (6379)\n"
    "  -a, --password TEXT   password; the environment variable REDISCLI_AUTH is safer\n"
    "      --user NAME       log in as this user\n"
    "  -n, --db N            database (0)\n"
#ifdef WITH_TLS
    "      --tls             use TLS\n"
#else
    "      --tls             use TLS; not possible here: this worker was built without it\n"
#endif
    "      --cacert FILE     certificates to trust (the system's)\n";

/* ---- words ---- */

static void set(char **text, const char *value) {
    free(*text);
    *text = value ? strdup(value) : NULL;
    if (value && !*text) abort();
}

void connection_init(struct connection *connection) {
    *connection = (struct connection){.port = 6379, .db = -1};
    set(&connection->host, "127.0.0.1");
}

void connection_init_node(struct connection *connection, const struct connection *like,
                          const char *host, int port) {
    *connection = (struct connection){.port = port, .db = like->db, .tls = like->tls};
    set(&connection->host, host);
    set(&connection->user, like->user);
    set(&connection->password, like->password);
    set(&connection->cacert, like->cacert);
}

static const char *set_number(int *number, const char *text, long min, long max,
                              const char *problem) {
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max) return problem;
    *number = (int)value;
    return NULL;
}

static const char *set_port(struct connection *connection, const char *text) {
    return set_number(&connection->port, text, 1, 65535, "not a port");
}

static const char *set_db(struct connection *connection, const char *text) {
    return set_number(&connection->db, text, 0, 1 << 30, "not the number of a database");
}

static const char *set_tls(struct connection *connection) {
#ifdef WITH_TLS
    connection->tls = true;
    return NULL;
#else
    (void)connection;
    return "this worker was built without TLS, since the hiredis of the system has none";
#endif
}

const char *connection_check(struct connection *connection) {
    if (connection->has_url && connection->has_host)
        return "give either a URL or --host and --port";
    if (connection->tls && connection->path) return "TLS is not for unix sockets";
    if (connection->cacert && !connection->tls)
        return "--cacert is for TLS: give --tls or a rediss:// URL";
    if (connection->cacert && access(connection->cacert, R_OK) != 0)
        return "the file of --cacert cannot be read";
    const char *password = getenv("REDISCLI_AUTH");
    if (!connection->password && password && *password) set(&connection->password, password);
    return NULL;
}

bool connection_option(struct connection *connection, int option, const char *value,
                       const char **problem) {
    *problem = NULL;
    switch (option) {
    case 'u':
        connection->has_url = true;
        *problem = connection_url(connection, value);
        return true;
    case 'H':
        connection->has_host = true;
        set(&connection->host, value);
        return true;
    case 'p':
        connection->has_host = true;
        *problem = set_port(connection, value);
        return true;
    case 'a':
        set(&connection->password, value);
        return true;
    case 'n':
        *problem = set_db(connection, value);
        return true;
    case 'U':
        set(&connection->user, value);
        return true;
    case 'C':
        set(&connection->cacert, value);
        return true;
    case 'T':
        *problem = set_tls(connection);
        return true;
    default:
        return false;
    }
}

/* ---- URLs ---- */

/* What is given apart from the URL comes before what the URL says, whichever stands first. */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Replaces %XX, in place. */
static void decode(char *text) {
    char *to = text;
    for (const char *from = text; *from; to++) {
        if (*from == '%' && hex_digit(from[1]) >= 0 && hex_digit(from[2]) >= 0) {
            *to = (char)(hex_digit(from[1]) << 4 | hex_digit(from[2]));
            from += 3;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* user:password, :password or, as redis-cli has it, password. */
static void take_login(struct connection *connection, char *text) {
    char *password = strrchr(text, ':');
    if (password) {
        *password++ = '\0';
        decode(text);
        if (*text && !connection->user) set(&connection->user, text);
    } else {
        password = text;
    }
    decode(password);
    if (*password && !connection->password) set(&connection->password, password);
}

static const char *take_db(struct connection *connection, const char *text) {
    const int given = connection->db;
    const char *problem = set_db(connection, text);
    if (given >= 0) connection->db = given;
    return problem;
}

/* Behind the question mark: db=n. */
static const char *take_query(struct connection *connection, char *query) {
    if (strncmp(query, "db=", 3) != 0) return "unknown words in the URL of a server";
    return take_db(connection, query + 3);
}

/* host, host:port, [::1]:port */
static const char *take_host(struct connection *connection, char *text) {
    char *port = *text == '[' ? strchr(text, ']') : strchr(text, ':');
    if (*text == '[') {
        if (!port) return "the URL has a [ without a ]";
        text++;
        *port++ = '\0';
        if (*port && *port != ':') return "the URL has something between ] and the port";
        if (!*port) port = NULL;
    }
    if (port) {
        *port++ = '\0';
        const char *problem = set_port(connection, port);
        if (problem) return problem;
    }
    decode(text);
    if (*text) set(&connection->host, text);
    return NULL;
}

static const char not_a_url[] = "not the URL of a server (redis://, rediss:// or unix://)";

static const char *take_url(struct connection *connection, char *url) {
    char *rest = strstr(url, "://");
    if (!rest) return not_a_url;
    *rest = '\0';
    rest += 3;
    const bool tls = strcasecmp(url, "rediss") == 0, is_path = strcasecmp(url, "unix") == 0;
    if (!tls && !is_path && strcasecmp(url, "redis") != 0) return not_a_url;
    char *query = strchr(rest, '?');
    if (query) *query++ = '\0';
    const size_t nplace = strcspn(rest, "/");
    char *at = memrchr(rest, '@', nplace);
    if (at) {
        *at = '\0';
        take_login(connection, rest);
        rest = at + 1;
    }
    const char *problem = tls ? set_tls(connection) : NULL;
    if (problem) return problem;
    if (is_path) {
        decode(rest);
        if (!*rest) return "unix:// needs the path of a socket: unix:///run/redis/redis.sock";
        set(&connection->path, rest);
    } else {
        char *slash = strchr(rest, '/');
        if (slash) *slash++ = '\0';
        problem = take_host(connection, rest);
        if (!problem && slash && *slash) problem = take_db(connection, slash);
    }
    return !problem && query ? take_query(connection, query) : problem;
}

const char *connection_url(struct connection *connection, const char *url) {
    char *copy = strdup(url);
    if (!copy) abort();
    const char *problem = take_url(connection, copy);
    free(copy);
    return problem;
}

const char *connection_name(const struct connection *connection, char *room, size_t nroom) {
    const char *host = connection->node ? connection->node : connection->host;
    if (connection->path && !connection->node)
        snprintf(room, nroom, "%s", connection->path);
    else
        snprintf(room, nroom, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host,
                 connection->node ? connection->node_port : connection->port);
    return room;
}

/* ---- connecting ---- */

void connection_close(struct connection *connection) {
    awaited = -1;
    if (connection->redis) redisFree(connection->redis);
    connection->redis = NULL;
}

/* Before anything is waited for. A signal comes before the look at is_cut, or finds the socket. */
static bool may_wait(const struct connection *connection) {
    awaited = connection->redis->fd;
    return !is_cut;
}

void connection_free(struct connection *connection) {
    connection_close(connection);
#ifdef WITH_TLS
    SSL_CTX_free(connection->tls_context);
#endif
    char *texts[] = {connection->host,     connection->path,   connection->user,
                     connection->password, connection->cacert, connection->node};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) free(texts[i]);
}

void connection_cut(void) {
    is_cut = 1;
    if (awaited >= 0) shutdown((int)awaited, SHUT_RDWR);
}

static bool fail(struct connection *connection, const char *why) {
    snprintf(connection->why, sizeof connection->why, "%s", why);
    return false;
}

#ifdef WITH_TLS
/* The certificate must be signed by somebody we trust, and be for the host that was asked for. */
static bool trust(struct connection *connection, SSL *ssl, const char *host) {
    SSL_CTX *context = connection->tls_context;
    const int loaded = connection->cacert
                           ? SSL_CTX_load_verify_locations(context, connection->cacert, NULL)
                           : SSL_CTX_set_default_verify_paths(context);
    if (loaded != 1) return fail(connection, "the certificates to trust cannot be read");
    SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    SSL_set_tlsext_host_name(ssl, host);
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1) return true;
    return SSL_set1_host(ssl, host) == 1 || fail(connection, "no memory");
}

static bool start_tls(struct connection *connection, const char *host) {
    if (!connection->tls) return true;
    if (!connection->tls_context) connection->tls_context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = connection->tls_context ? SSL_new(connection->tls_context) : NULL;
    if (!ssl) return fail(connection, "TLS does not start");
    if (!trust(connection, ssl, host)) {
        SSL_free(ssl);
        return false;
    }
    if (redisInitiateSSL(connection->redis, ssl) == REDIS_OK) return true;
    const long verified = SSL_get_verify_result(ssl);
    SSL_free(ssl);
    if (verified == X509_V_OK) return fail(connection, connection->redis->errstr);
    snprintf(connection->why, sizeof connection->why, "its certificate is not accepted: %s",
             X509_verify_cert_error_string(verified));
    return false;
}
#else
static bool start_tls(struct connection *connection, const char *host) {
    (void)host;
    return !connection->tls;
}
#endif

static bool open_connection(struct connection *connection) {
    const struct timeval patience = {PATIENCE_S, 0};
    const char *host = connection->node ? connection->node : connection->host;
    const int port = connection->node ? connection->node_port : connection->port;
    connection->redis = connection->path && !connection->node
                            ? redisConnectUnixWithTimeout(connection->path, patience)
                            : redisConnectWithTimeout(host, port, patience);
    if (!connection->redis) return fail(connection, "no memory");
    if (connection->redis->err) return fail(connection, connection->redis->errstr);
    redisSetTimeout(connection->redis, patience);
    if (!may_wait(connection)) return fail(connection, "interrupted");
    return start_tls(connection, host);
}

/* AUTH, SELECT, ASKING. Returns NULL if all is well; an error reply; or NULL with *broken set. */
static redisReply *introduce(struct connection *connection, bool *broken) {
    redisReply *replies[3] = {NULL, NULL, NULL};
    redisContext *redis = connection->redis;
    if (connection->password && connection->user)
        replies[0] = redisCommand(redis, "AUTH %s %s", connection->user, connection->password);
    else if (connection->password)
        replies[0] = redisCommand(redis, "AUTH %s", connection->password);
    if (connection->db > 0 && !redis->err)
        replies[1] = redisCommand(redis, "SELECT %d", connection->db);
    if (connection->asking && !redis->err) replies[2] = redisCommand(redis, "ASKING");
    *broken = redis->err != 0;
    if (*broken) fail(connection, redis->errstr);
    redisReply *refusal = NULL;
    for (int i = 0; i < 3; i++) {
        if (!refusal && !*broken && replies[i] && replies[i]->type == REDIS_REPLY_ERROR)
            refusal = replies[i];
        else if (replies[i])
            freeReplyObject(replies[i]);
    }
    return refusal;
}

/* ---- what went wrong, in the words of all tools ---- */

static bool has(const char *text, const char *words) {
    return strstr(text, words) != NULL;
}

void connection_explain(struct connection *connection, const char *error, const char *key) {
    char where[256], text[200];
    connection_name(connection, where, sizeof where);
    snprintf(text, sizeof text, "%s", strncmp(error, "ERR ", 4) == 0 ? error + 4 : error);
    char *why = connection->why;
    const size_t room = sizeof connection->why;
    if (has(text, "NOAUTH"))
        snprintf(why, room, "%s requires a password: set REDISCLI_AUTH, or use -a or -u", where);
    else if (has(text, "WRONGPASS") || has(text, "invalid password"))
        snprintf(why, room, "%s does not accept the user or the password", where);
    else if (strncmp(text, "NOPERM ", 7) == 0)
        snprintf(why, room, "%s does not permit it: %s", where, text + 7);
    else if (has(text, "unknown command"))
        snprintf(why, room, "%s has no shardbloom module, or an old one", where);
    else if (has(text, "WRONGTYPE"))
        snprintf(why, room, "%s is not a filter", key);
    else
        snprintf(why, room, "%s: %s", key, text);
}

void connection_quote(struct connection *connection, const redisReply *reply) {
    char where[256];
    connection_name(connection, where, sizeof where);
    snprintf(connection->why, sizeof connection->why, "%s: %.300s", where, reply->str);
}

/* hiredis reports the end of its patience as EAGAIN. */
static void explain_silence(struct connection *connection) {
    const redisContext *redis = connection->redis;
    const int error = redis && redis->err == REDIS_ERR_IO ? errno : 0;
    char where[256], text[sizeof connection->why - sizeof where - 20];
    connection_name(connection, where, sizeof where);
    memcpy(text, connection->why, sizeof text);
    text[sizeof text - 1] = '\0';
    if (error == EAGAIN || error == ETIMEDOUT)
        snprintf(connection->why, sizeof connection->why, "%s does not answer in time", where);
    else
        snprintf(connection->why, sizeof connection->why, "no connection to %s: %s", where, text);
}

/* ---- asking ---- */

bool connection_open(struct connection *connection, redisReply **refusal) {
    *refusal = NULL;
    if (connection->redis) return true;
    bool broken = true;
    if (open_connection(connection)) *refusal = introduce(connection, &broken);
    if (broken) explain_silence(connection);
    if (!*refusal && !broken) return true;
    connection_close(connection);
    return false;
}

/* Between commands the server has nothing to say. */
void connection_probe(struct connection *connection) {
    char byte;
    if (!connection->redis) return;
    const ssize_t n = recv(connection->redis->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) connection_close(connection);
}

static void lose(struct connection *connection) {
    fail(connection, connection->redis->err ? connection->redis->errstr : "interrupted");
    explain_silence(connection);
    connection_close(connection);
}

void connection_append(struct connection *connection, size_t argc, const char **argv,
                       const size_t *lengths) {
    if (connection->redis) redisAppendCommandArgv(connection->redis, (int)argc, argv, lengths);
}

void connection_send(struct connection *connection) {
    int done = 0;
    while (connection->redis && !done)
        if (!may_wait(connection) || redisBufferWrite(connection->redis, &done) != REDIS_OK)
            lose(connection);
}

redisReply *connection_receive(struct connection *connection) {
    void *reply = NULL;
    if (!connection->redis) return NULL;
    if (may_wait(connection) && redisGetReply(connection->redis, &reply) == REDIS_OK) return reply;
    lose(connection);
    return NULL;
}

/* One attempt. *sent: the server may have got the command. */
static redisReply *attempt(struct connection *connection, size_t argc, const char **argv,
                           const size_t *lengths, bool *sent) {
    redisReply *refusal;
    connection_probe(connection);
    *sent = connection_open(connection, &refusal);
    if (!*sent) return refusal;
    connection_append(connection, argc, argv, lengths);
    return connection_receive(connection);
}

bool connection_refused(const redisReply *reply, const char *word) {
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, word, strlen(word)) == 0;
}

/* A server that has just come up, a failover, a cluster slot that is on its way: the command was
 * not carried out. */
bool connection_soon(const redisReply *reply) {
    static const char *const words[] = {"LOADING ",     "TRYAGAIN ", "BUSY ",      "MASTERDOWN ",
                                        "CLUSTERDOWN ", "READONLY ", "NOREPLICAS "};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (connection_refused(reply, words[i])) return true;
    return false;
}

bool connection_redirection(const redisReply *reply, char *host, size_t nhost, int *port) {
    if (!connection_refused(reply, "ASK ") && !connection_refused(reply, "MOVED ")) return false;
    const char *address = strrchr(reply->str, ' ') + 1, *colon = strrchr(address, ':');
    if (!colon || set_number(port, colon + 1, 1, 65535, "")) return false;
    snprintf(host, nhost, "%.*s", (int)(colon - address), address);
    if (strcmp(host, "?") == 0) *host = '\0';
    return true;
}

/* An empty host is the one that was asked. */
static bool redirected(struct connection *connection, const redisReply *reply) {
    char host[256];
    int port;
    connection->asking = connection_refused(reply, "ASK ");
    if (!connection_redirection(reply, host, sizeof host, &port)) return false;
    if (*host)
        set(&connection->node, host);
    else if (!connection->node)
        set(&connection->node, connection->host);
    connection->node_port = port;
    connection_close(connection);
    return true;
}

/* Back to the server that was given: the node that was redirected to is gone, or was good for one
 * command only. */
static void forget_node(struct connection *connection) {
    connection_close(connection);
    set(&connection->node, NULL);
    connection->asking = false;
}

static redisReply *attempt_anywhere(struct connection *connection, size_t argc, const char **argv,
                                    const size_t *lengths, bool *doubtful) {
    for (int nredirections = 0;; nredirections++) {
        bool sent;
        redisReply *reply = attempt(connection, argc, argv, lengths, &sent);
        if (!reply) *doubtful = *doubtful || sent;
        if (connection->asking || !reply) forget_node(connection);
        if (!reply || nredirections == REDIRECTIONS || !redirected(connection, reply)) return reply;
        freeReplyObject(reply);
    }
}

void connection_pause(const char *why, int nattempts, bool alive) {
    const int step = nattempts < CONNECTION_RETRIES ? nattempts : CONNECTION_RETRIES - 1;
    const long ms = alive && step > 3 ? 1000 : 100L << step;
    /* On a terminal there may be a line of progress. */
    fprintf(stderr, "%sworker: %s; trying again in %.1f s\n",
            isatty(STDERR_FILENO) ? "\r\033[K" : "", why, (double)ms / 1000);
    if (!connection_stop) nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

redisReply *connection_ask(struct connection *connection, size_t argc, const char **argv,
                           const size_t *lengths, bool *doubtful) {
    *doubtful = false;
    for (int nattempts = 0;; nattempts++) {
        redisReply *reply = attempt_anywhere(connection, argc, argv, lengths, doubtful);
        if (reply && !connection_soon(reply)) return reply;
        const bool alive = reply != NULL;
        /* A server that loads its data says so for as long as it takes. */
        const int nallowed = !alive                                  ? CONNECTION_RETRIES
                             : connection_refused(reply, "LOADING ") ? INT_MAX
                                                                     : ALIVE_RETRIES;
        if (alive) {
            connection_quote(connection, reply);
            /* Another server may have taken over the address. */
            if (connection_refused(reply, "READONLY ")) connection_close(connection);
            freeReplyObject(reply);
        }
        if (nattempts >= nallowed || connection_stop) return NULL;
        connection_pause(connection->why, nattempts, alive);
        if (connection_stop) return NULL;
    }
}
