/* memory.h: filters in plain memory, for tests of the core: strings from malloc, exactly as long as
 * they must be, so that the sanitizer sees every byte read or written beyond them. */
#ifndef MEMORY_H
#define MEMORY_H

#include "core/filter.h"

struct string {
    uint8_t *bytes; /* NULL: there is none */
    size_t nbytes;
};

struct memory {
    struct access access; /* must be first; lasts from one memory_begin to the next memory_end */
    struct handles handles;
    struct string *strings[SIZING_MAX_LAYERS];
    bool repeats;    /* what the supplier says to the core */
    bool full;       /* the same: no memory for anything large */
    size_t nopen;    /* strings open now */
    size_t nrenewed; /* bytes of all strings that were made or replaced */
    size_t largest;  /* of these, the largest since it was last set to 0 */
    size_t ngrown;   /* how often the filter has grown */
};

/* Creates a filter with these options. */
struct memory *memory_new(const struct filter_options *options);
void memory_free(struct memory *memory);

/* The string of a shard. */
struct string *memory_string(struct memory *memory, uint32_t layer, uint32_t number);

/* Add or check the items prefix<first> … prefix<first + n - 1> in one batch. Both return how many
 * were new, or -1 if a shard was lost. */
long memory_add(struct memory *memory, const char *prefix, uint64_t first, size_t n);
long memory_count_new(struct memory *memory, const char *prefix, uint64_t first, size_t n);

/* Set the time, until the next call. Before adding, memory_turn turns a filter with a window as a
 * command of the module would. Before checking, memory_ask_at leaves out slices that are over. */
bool memory_turn(struct memory *memory, uint64_t now_ms, bool drops);
void memory_ask_at(struct memory *memory, uint64_t now_ms);

/* Closes what a test opened itself through memory->access. */
void memory_end(struct memory *memory);

/* Sums of what the supplier's `count` was called with: strings, bytes, lost. */
extern int64_t memory_nstrings, memory_nbytes, memory_nlost;

/* Handles that the supplier was given to free later. */
extern uint64_t memory_npostponed;

#endif
