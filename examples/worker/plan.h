/* plan: what a partitioned filter is, as text under its name, and which key holds which item.
 * docs/partitions.md describes it to the byte. Nothing here talks to a server. */
#ifndef PLAN_H
#define PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_MAX_PARTITIONS 1024
#define PLAN_MAX_CAPACITY   (1ULL << 40)
#define PLAN_MAX_WORDS      16   /* of the options */
#define PLAN_MAX_BYTES      4097 /* of the text, and a zero */

struct plan {
    unsigned npartitions;
    char error[32];              /* of each partition, as text: one item is asked of one of them */
    unsigned long long capacity; /* of all together */
    const char *words[PLAN_MAX_WORDS + 1]; /* further words for BF.RESERVE; then NULL */
    char text[PLAN_MAX_BYTES];             /* where the words of a plan that was read stand */
};

/* What a user asked for; the plan that exists may differ in the rest. */
struct wanted {
    bool partitions, error, capacity, words;
};

/* CRC-16/XMODEM, that of cluster slots. */
uint16_t plan_crc16(const char *bytes, size_t nbytes);

/* Which partition an item belongs to. */
unsigned plan_partition(const struct plan *plan, const char *item, size_t nbytes);

/* Items to reserve for each partition: its share, and room since they do not fall evenly: four
 * standard deviations, and a 64th for numbered names, which a CRC does not scatter like a hash. */
unsigned long long plan_share(const struct plan *plan);

/* Slots and tags of all partitions: arrays of npartitions. */
void plan_places(const struct plan *plan, int *slots, unsigned *tags);

/* The shortest decimal text of an error rate. */
void plan_set_error(struct plan *plan, double error);

/* What is wrong with a name for a partitioned filter, or NULL. */
const char *plan_check_name(const char *name);

/* Into a buffer of PLAN_MAX_BYTES; false if it is too small. */
bool plan_write(const struct plan *plan, char *text);

/* Returns what is wrong with the text, or NULL. */
const char *plan_read(struct plan *plan, const char *text, size_t nbytes);

/* Whether the plan is as wanted. */
bool plan_agrees(const struct plan *plan, const struct plan *want, const struct wanted *wanted);

/* In words, for messages: all of it, or what was wanted. */
void plan_describe(const struct plan *plan, const struct wanted *wanted, char *text, size_t room);

#endif
