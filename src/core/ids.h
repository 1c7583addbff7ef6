/* ids.h: a multiset of filter ids that takes 9 to 14 bytes for each. */
#ifndef IDS_H
#define IDS_H

#include <stdbool.h>
#include <stdint.h>

/* The table has parts that grow separately, so that no single addition takes long. */
#define IDS_NPARTS 1024u

struct ids {
    struct ids_part {
        uint64_t *places; /* open addressing; 0 is an empty place */
        uint32_t nplaces;
        uint32_t nused;
    } parts[IDS_NPARTS];
    uint64_t salt;       /* random: choosing ids must not mean choosing places */
    uint64_t nzero;      /* how often the set contains the id 0 */
    uint64_t ndifferent; /* number of different ids */
};

/* Zeroed memory with a salt is an empty set. */

/* False if there is no memory. */
bool ids_add(struct ids *ids, uint64_t id);

/* Removes one occurrence of an id, which must be in the set. */
void ids_remove(struct ids *ids, uint64_t id);

/* How often the set contains the id. */
uint64_t ids_count(const struct ids *ids, uint64_t id);

/* Frees the memory. */
void ids_clear(struct ids *ids);

#endif
