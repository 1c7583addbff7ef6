/* cluster: commands for many keys, each sent to the node that has its slot, to all nodes at once;
 * or to a single server. */
#ifndef CLUSTER_H
#define CLUSTER_H

#include "connection.h"

#define CLUSTER_SLOTS 16384

struct node {
    struct connection connection;
    int nfailures; /* since it answered last */
    bool down;     /* did not answer in the round at hand */
    bool pending;  /* has commands that were not sent yet */
    bool readonly; /* refused to write: another server may have taken over the address */
};

struct cluster {
    struct node **nodes; /* the one that was given, then all that were ever met */
    size_t nnodes;
    struct node *owners[CLUSTER_SLOTS]; /* NULL: not known, any node will do */
    bool known;                         /* somebody was asked for the slots */
    bool single;                        /* one server that is no cluster */
    char why[600];                      /* what went wrong, in the words that all tools use */
};

/* A command for one key. */
struct request {
    int slot;
    size_t argc;
    const char **argv;
    const size_t *lengths;

    redisReply *reply; /* the caller frees it; NULL: none came, and none will */
    bool doubtful;     /* may have been carried out before, unanswered */
    struct node *node; /* who was asked last, or is to be asked next */
    bool open;         /* has no reply yet that counts */
    bool asking, sent; /* within a round */
};

/* The connection's settings are copied. */
void cluster_init(struct cluster *cluster, const struct connection *entry);
void cluster_free(struct cluster *cluster);

/* Fills in the replies of those requests that have none, and adds to their doubts. They are sent
 * again when a node is lost or answers that it can't yet, and follow redirections; the slots are
 * looked up anew meanwhile, so that a failover is waited for. False if some have no reply in the
 * end, with the reason in cluster->why. A reply may be an error. */
bool cluster_ask(struct cluster *cluster, struct request *requests, size_t nrequests);

/* Puts into cluster->why what the error reply to a request means. */
void cluster_explain(struct cluster *cluster, const struct request *request, const char *error,
                     const char *key);

#endif
