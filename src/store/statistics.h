/* statistics.h: running totals over all filters of the server, for INFO bf. INFO counts nothing:
 * whatever changes a total updates it, at the cost of an addition. */
#ifndef STATISTICS_H
#define STATISTICS_H

#include <stdatomic.h>

#include "core/descriptor.h"

struct statistics {
    /* The current totals. Filters may be freed on a background thread. */
    _Atomic uint64_t nshards; /* created and not known to be missing */
    _Atomic uint64_t nbytes;  /* of these shards */
    _Atomic uint64_t nlost;   /* shards that a command found lost, until one finds them sound */
    _Atomic uint64_t nitems;  /* of filters as they were created or loaded, minus freed ones */
    uint64_t nitems_since;    /* added since to living filters; only by the main thread */

    /* What clients and the primary requested since the server started. Main thread only. */
    struct work {
        uint64_t nadds;   /* items given to BF.ADD, BF.MADD, BF.INSERT */
        uint64_t nadded;  /* of these, new ones */
        uint64_t nchecks; /* items given to BF.EXISTS, BF.MEXISTS */
        uint64_t nhits;   /* of these, found */
    } work;
};
extern struct statistics statistics;

/* Call them when a filter with these shards and items is created or freed. Also call leave before
 * and join after a change that the functions below do not cover. */
void statistics_join(const struct descriptor *descriptor);
void statistics_leave(const struct descriptor *descriptor);

/* Adds to the number of shards, to their bytes, and to the number of shards known to be lost. */
void statistics_count(int64_t nstrings, int64_t nbytes, int64_t nlost);

static inline void statistics_added(size_t nadds, size_t nadded) {
    statistics.nitems_since += nadded;
    statistics.work.nadds += nadds;
    statistics.work.nadded += nadded;
}

/* A living filter's count has been corrected. */
static inline void statistics_recounted(uint64_t before, uint64_t after) {
    statistics.nitems_since += after - before;
}

static inline void statistics_checked(size_t nchecks, size_t nhits) {
    statistics.work.nchecks += nchecks;
    statistics.work.nhits += nhits;
}

/* Loading an append-only file repeats earlier commands. Work between these two calls is not
 * counted. */
void statistics_loading_starts(void);
void statistics_loading_ends(void);

#endif
