/* partitions: a partitioned filter on a cluster or a single server. It is opened as its plan says,
 * and checks many lines at once. */
#ifndef PARTITIONS_H
#define PARTITIONS_H

#include <time.h>

#include "cluster.h"
#include "plan.h"

enum verdict { UNANSWERED, NEW, SEEN, REFUSED };

/* About a line. */
struct answer {
    enum verdict verdict;
    bool doubtful; /* the filter may have been asked before, and its answer lost */
};

enum verdict verdict_of(const redisReply *reply);

struct partitions {
    struct cluster cluster; /* cluster.why says what went wrong */
    const char *name;
    struct plan plan;
    time_t checked;    /* when the plan was read last */
    bool made;         /* there was no such filter before */
    size_t nmade;      /* partitions that were not there when it was opened */
    char refusal[600]; /* why a line was refused */
    void (*report)(void *reporter, const char *message); /* of what a user must know */
    void *reporter;

    char **keys; /* of each partition */
    int *slots;
    struct request *requests; /* one for each partition that has lines */
    uint16_t *numbers;        /* the partition of each line */
    size_t *starts;           /* of each partition in `order`, and one more */
    size_t *order;            /* numbers of the lines, by partition */
    const char **argv;        /* of all requests */
    size_t *lengths;
};

/* Finds or makes plan and partitions. What exists has to be as wanted. batch: lines at most. False
 * if it can't be used, with the reason in cluster.why. */
bool partitions_open(struct partitions *partitions, const struct connection *entry,
                     const char *name, const struct plan *want, const struct wanted *wanted,
                     size_t batch);
void partitions_free(struct partitions *partitions);

/* Asks for the lines and adds them, with one command for each partition. A partition that has
 * vanished is made again, and reported. False if some are unanswered, with the reason in
 * cluster.why. */
bool partitions_ask(struct partitions *partitions, const char **lines, const size_t *lengths,
                    size_t nlines, struct answer *answers);

#endif
