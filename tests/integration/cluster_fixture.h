/* A Redis Cluster for tests: real nodes on free ports, formed in little more than two seconds, and
 * a client that follows it.
 *
 * Every wait has a limit. What a test starts is stopped after it, as in server.h. */
#ifndef CLUSTER_FIXTURE_H
#define CLUSTER_FIXTURE_H

#include "client.h"

enum { CLUSTER_MAX_NODES = 8, CLUSTER_NSLOTS = 16384 };

typedef struct Cluster {
    int nprimaries, nnodes;
    Server *node[CLUSTER_MAX_NODES]; /* node[nprimaries + i] began as the replica of node[i] */
    char id[CLUSTER_MAX_NODES][64];
} Cluster;

/* Starts nprimaries nodes that share the slots evenly, in order, and as many replicas if asked.
 * Freed after the test. On failure the test has failed and NULL is returned. */
Cluster *cluster_start(int nprimaries, bool replicas, const char *config);

/* Waits until all nodes that are up find the cluster sound and agree on who owns which slot. */
bool cluster_wait(Cluster *cluster);
/* Changes the node timeout now (it starts at 4 s, unless the configuration sets it). Make it short
 * only while a node should be found missing, because on a busy machine others may be, too. */
void cluster_set_timeout(Cluster *cluster, int ms);
/* The slot of a key, and the index of the node that owned a slot at the start. */
int cluster_slot(Cluster *cluster, const char *key);
int cluster_home(const Cluster *cluster, int slot);
/* The first name prefix<n> whose slot lies in [from, to]. Kept until the end of the test. */
const char *cluster_name(Cluster *cluster, const char *prefix, int from, int to);

/* The steps of a slot migration, one at a time: both sides open; some keys (NULL-terminated)
 * travel; the end. */
void cluster_open_slot(Cluster *cluster, int slot, int from, int to);
void cluster_move_keys(Cluster *cluster, int from, int to, const char *const *keys);
void cluster_close_slot(Cluster *cluster, int slot, int owner);
/* Moves what is left in the slot, then ends the migration. */
void cluster_finish_slot(Cluster *cluster, int slot, int from, int to);

/* Starts redis-cli with these arguments. Its output goes to a file, which is shown if it fails. */
pid_t cluster_cli(Cluster *cluster, const char *const *arguments);
/* Whether the process has ended; *ok is whether it succeeded. */
bool cluster_cli_ended(Cluster *cluster, pid_t pid, bool *ok);

/* All shard keys in a node's keyspace, or those of one filter: NULL-terminated, freed after the
 * test. */
const char **cluster_shards_on(Server *node);
const char **cluster_shards_of(Client *c, const char *filter);
size_t cluster_count(const char *const *keys);
/* Waits until a node holds this many shard keys; fails the test after some seconds. */
bool cluster_wait_shards(Server *node, size_t n, const char *file, int line);
#define CHECK_SHARDS(node, n) cluster_wait_shards(node, n, __FILE__, __LINE__)

/* A client that follows MOVED and ASK, tries again after TRYAGAIN, and counts them. */
typedef struct Router {
    Cluster *cluster;
    redisContext *connection[CLUSTER_MAX_NODES];
    int at;           /* the node that answered last */
    bool may_be_down; /* lost connections and CLUSTERDOWN are part of the test, too */
    long nmoved, nask, ntryagain, ndown;
} Router;

Router *router_new(Cluster *cluster);
void router_free(Router *router);
/* The reply, to be freed. Redirections are followed for at most three minutes; NULL then, and the
 * test has failed. */
redisReply *router_argv(Router *router, int argc, const char **argv, const size_t *lens);
redisReply *router_command(Router *router, const char *format, ...);
/* Waits until the sweeper of every node that serves slots has gone through all its work, so that
 * anything it does wrong has happened by then. Gives each two small filters to remove, one after
 * the other. */
void cluster_wait_sweepers(Router *router);
/* Like command_batches. */
long long router_batches(Router *router, const char *name, const char *key, const char *prefix,
                         long long first, long long n);
/* Creates a filter of some thirty shards of 4096 bytes, full of items prefix0 ..; and checks these
 * items, and others. */
void cluster_fill(Router *router, const char *name, const char *prefix);
void cluster_check(Router *router, const char *name, const char *prefix);
/* The text of the reply. Freed after the test. */
const char *router_text(Router *router, const char *format, ...);

#endif
