#include "cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENCE_S   60 /* with a failover: the nodes' timeout, 15 s by default, and the election */
#define REDIRECTIONS 16 /* without a pause */

/* What became of the commands in a round. */
struct round {
    size_t nopen;           /* have no reply yet */
    bool redirected, moved; /* some */
    bool alive;             /* somebody answered */
    bool loading;           /* somebody loads its data, which takes as long as it takes */
};

/* ---- nodes ---- */

static struct node *add_node(struct cluster *cluster) {
    struct node **nodes = realloc(cluster->nodes, (cluster->nnodes + 1) * sizeof *cluster->nodes);
    struct node *node = calloc(1, sizeof *node);
    if (!nodes || !node) abort();
    cluster->nodes = nodes;
    return cluster->nodes[cluster->nnodes++] = node;
}

void cluster_init(struct cluster *cluster, const struct connection *entry) {
    *cluster = (struct cluster){.nodes = NULL};
    struct connection *first = &add_node(cluster)->connection;
    connection_init_node(first, entry, entry->host, entry->port);
    if (entry->path && !(first->path = strdup(entry->path))) abort();
}

void cluster_free(struct cluster *cluster) {
    for (size_t i = 0; i < cluster->nnodes; i++) {
        connection_free(&cluster->nodes[i]->connection);
        free(cluster->nodes[i]);
    }
    free(cluster->nodes);
}

/* The node at this address, which is new perhaps. An empty host is that of the node which named it.
 */
static struct node *node_at(struct cluster *cluster, const struct node *teller, const char *host,
                            int port) {
    if (!*host) host = teller->connection.host;
    for (size_t i = 0; i < cluster->nnodes; i++) {
        const struct connection *connection = &cluster->nodes[i]->connection;
        if (!connection->path && connection->port == port && strcmp(connection->host, host) == 0)
            return cluster->nodes[i];
    }
    struct node *node = add_node(cluster);
    connection_init_node(&node->connection, &cluster->nodes[0]->connection, host, port);
    return node;
}

/* The node that owns a slot. If that is unknown, a node that seems to be alive. */
static struct node *owner_of(const struct cluster *cluster, int slot) {
    struct node *best = cluster->nodes[0];
    if (cluster->single) return best;
    if (cluster->owners[slot]) return cluster->owners[slot];
    for (size_t i = 1; i < cluster->nnodes; i++)
        if (cluster->nodes[i]->nfailures < best->nfailures) best = cluster->nodes[i];
    return best;
}

/* Marks a node as down and forgets which slots it owns. Another node will have them, or say which
 * one does. */
static void give_up(struct cluster *cluster, struct node *node) {
    if (node->down) return;
    node->down = true;
    node->nfailures++;
    snprintf(cluster->why, sizeof cluster->why, "%s", node->connection.why);
    for (int slot = 0; slot < CLUSTER_SLOTS; slot++)
        if (cluster->owners[slot] == node) cluster->owners[slot] = NULL;
}

/* ---- who has which slot ---- */

/* One range of CLUSTER SLOTS: first, last, [host, port, …] of the primary, then its replicas. */
static void take_range(struct cluster *cluster, const struct node *teller,
                       const redisReply *range) {
    if (range->type != REDIS_REPLY_ARRAY || range->elements < 3) return;
    const redisReply *first = range->element[0], *last = range->element[1];
    const redisReply *primary = range->element[2];
    if (first->type != REDIS_REPLY_INTEGER || last->type != REDIS_REPLY_INTEGER ||
        first->integer < 0 || last->integer >= CLUSTER_SLOTS)
        return;
    if (primary->type != REDIS_REPLY_ARRAY || primary->elements < 2) return;
    const redisReply *host = primary->element[0], *port = primary->element[1];
    if (port->type != REDIS_REPLY_INTEGER || port->integer < 1 || port->integer > 65535) return;
    /* A node that does not know its own address leaves it out, or says "?". */
    const bool named = host->type == REDIS_REPLY_STRING && strcmp(host->str, "?") != 0;
    struct node *node = node_at(cluster, teller, named ? host->str : "", (int)port->integer);
    for (long long slot = first->integer; slot <= last->integer; slot++)
        cluster->owners[slot] = node;
}

/* One node's view. False if it does not answer. */
static bool ask_for_slots(struct cluster *cluster, struct node *node) {
    const char *argv[] = {"CLUSTER", "SLOTS"};
    const size_t lengths[] = {strlen(argv[0]), strlen(argv[1])};
    redisReply *reply;
    if (connection_open(&node->connection, &reply)) {
        connection_append(&node->connection, 2, argv, lengths);
        reply = connection_receive(&node->connection);
    }
    if (!reply) {
        give_up(cluster, node);
        return false;
    }
    node->nfailures = 0;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0) {
        memset(cluster->owners, 0, sizeof cluster->owners);
        for (size_t i = 0; i < reply->elements; i++) take_range(cluster, node, reply->element[i]);
    }
    /* After any other error, such as missing rights, redirections show who owns a slot. */
    cluster->single =
        reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "cluster support disabled") != NULL;
    freeReplyObject(reply);
    return true;
}

/* Asks those first to whom there is a connection. False if nobody answers. */
static bool look_up(struct cluster *cluster) {
    for (int connected = 1; connected >= 0; connected--) {
        for (size_t i = 0; i < cluster->nnodes && !connection_stop; i++) {
            struct node *node = cluster->nodes[i];
            if ((node->connection.redis != NULL) != connected || node->down) continue;
            if (ask_for_slots(cluster, node)) return cluster->known = true;
        }
    }
    return false;
}

/* ---- a round: all that have no reply are sent, then the replies are read ---- */

static void append(struct request *request) {
    static const char *asking[] = {"ASKING"};
    static const size_t length[] = {6};
    if (request->asking) connection_append(&request->node->connection, 1, asking, length);
    connection_append(&request->node->connection, request->argc, request->argv, request->lengths);
    request->node->pending = request->sent = true;
}

static void send_all(struct cluster *cluster, struct request *requests, size_t nrequests) {
    for (size_t i = 0; i < cluster->nnodes; i++) {
        cluster->nodes[i]->pending = false;
        connection_probe(&cluster->nodes[i]->connection);
    }
    for (struct request *request = requests; request < requests + nrequests; request++) {
        if (!request->open) continue;
        if (!request->node) request->node = owner_of(cluster, request->slot);
        struct node *node = request->node;
        request->sent = false;
        /* One that did not let us in is not tried again for each of its commands. */
        if (node->down) continue;
        if (connection_open(&node->connection, &request->reply))
            append(request);
        else if (!request->reply)
            give_up(cluster, node);
    }
    for (size_t i = 0; i < cluster->nnodes; i++)
        if (cluster->nodes[i]->pending) connection_send(&cluster->nodes[i]->connection);
}

static void receive(struct cluster *cluster, struct request *request) {
    struct connection *connection = &request->node->connection;
    if (request->asking) {
        redisReply *ok = connection_receive(connection);
        if (ok) freeReplyObject(ok);
    }
    request->reply = connection_receive(connection);
    if (request->reply) return;
    request->doubtful = true;
    give_up(cluster, request->node);
}

/* Whether the reply counts. If not, the request is sent again, and request->node says where to. */
static bool judge(struct cluster *cluster, struct request *request, struct round *round) {
    struct node *node = request->node;
    char host[256];
    int port;
    request->asking = false;
    if (!request->reply) {
        request->node = NULL;
        return false;
    }
    node->nfailures = 0;
    round->alive = true;
    if (connection_redirection(request->reply, host, sizeof host, &port)) {
        request->node = node_at(cluster, node, host, port);
        request->asking = connection_refused(request->reply, "ASK ");
        round->redirected = true;
        if (request->asking) return false;
        cluster->owners[request->slot] = request->node;
        round->moved = true;
        return false;
    }
    if (!connection_soon(request->reply)) return true;
    connection_quote(&node->connection, request->reply);
    snprintf(cluster->why, sizeof cluster->why, "%s", node->connection.why);
    if (connection_refused(request->reply, "LOADING ")) round->loading = true;
    if (connection_refused(request->reply, "READONLY ")) node->readonly = true;
    request->node = NULL;
    return false;
}

static struct round go_round(struct cluster *cluster, struct request *requests, size_t nrequests) {
    struct round round = {.nopen = 0};
    send_all(cluster, requests, nrequests);
    for (struct request *request = requests; request < requests + nrequests; request++) {
        if (!request->open) continue;
        if (request->sent) receive(cluster, request);
        request->open = !judge(cluster, request, &round);
        if (!request->open) continue;
        round.nopen++;
        if (request->reply) freeReplyObject(request->reply);
        request->reply = NULL;
    }
    for (size_t i = 0; i < cluster->nnodes; i++) {
        if (cluster->nodes[i]->readonly) connection_close(&cluster->nodes[i]->connection);
        cluster->nodes[i]->readonly = false;
    }
    return round;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* After MOVED, other slots may have moved as well. What the redirections said stays: the node that
 * is asked may not know yet. */
static bool look_up_again(struct cluster *cluster, const struct request *requests,
                          size_t nrequests) {
    if (cluster->single || !look_up(cluster)) return false;
    for (size_t i = 0; i < nrequests; i++)
        if (requests[i].open && requests[i].node && !requests[i].asking)
            cluster->owners[requests[i].slot] = requests[i].node;
    return true;
}

bool cluster_ask(struct cluster *cluster, struct request *requests, size_t nrequests) {
    int nsilent = 0, nattempts = 0, nredirections = 0;
    size_t nopen = 0;     /* after the round before */
    double since = now(); /* then, somebody got a reply */
    bool alive = cluster->known && !cluster->single;
    for (size_t i = 0; i < nrequests; i++) nopen += requests[i].open = !requests[i].reply;
    for (;;) {
        struct round round = {.nopen = nopen};
        for (size_t i = 0; i < cluster->nnodes; i++) cluster->nodes[i]->down = false;
        if (cluster->known || look_up(cluster)) round = go_round(cluster, requests, nrequests);
        if (round.nopen == 0) return true;
        if (round.redirected && nredirections++ < REDIRECTIONS) {
            if (round.moved) look_up_again(cluster, requests, nrequests);
            continue;
        }
        if (connection_stop) return false;
        if (round.nopen < nopen) since = now();
        nopen = round.nopen;
        nredirections = 0;
        alive = alive || round.alive;
        nsilent = alive ? 0 : nsilent + 1;
        if (alive ? !round.loading && now() - since > PATIENCE_S : nsilent > CONNECTION_RETRIES)
            return false;
        connection_pause(cluster->why, nattempts++, alive);
        if (connection_stop) return false;
        /* A failover is under way as long as other nodes are there to bring it about. */
        alive = look_up_again(cluster, requests, nrequests);
    }
}

void cluster_explain(struct cluster *cluster, const struct request *request, const char *error,
                     const char *key) {
    struct connection *connection = &request->node->connection;
    connection_explain(connection, error, key);
    snprintf(cluster->why, sizeof cluster->why, "%s", connection->why);
}
