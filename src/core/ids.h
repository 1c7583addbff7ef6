/* ids.h: a multiset of filters' ids, which takes 9 to 14 bytes for each. */
#ifndef IDS_H
#define IDS_H

#include <stdbool.h>
#include <stdint.h>

/* The table is in parts that grow one by one, so that no single addition takes long. */
#define IDS_NPARTS 1024u

struct ids {
    struct ids_part {
        uint64_t *places; /* open addressing; 0 is an empty place */
        uint32_t nplaces;
        uint32_t nused;
    } parts[IDS_NPARTS];
    uint64_t salt;       /* anything random: who chooses ids can't choose places */
    uint64_t nzero;      /* how often the id 0 is in */
    uint64_t ndifferent; /* ids, each counted once */
};

/* Zeroed memory with a salt is an empty set. */

/* False for lack of memory. */
bool ids_add(struct ids *ids, uint64_t id);

/* Takes it out once. It must be in. */
void ids_remove(struct ids *ids, uint64_t id);

/* How often it is in. */
uint64_t ids_count(const struct ids *ids, uint64_t id);

/* Gives the memory back. */
void ids_clear(struct ids *ids);

#endif
