/* options.h: the arguments of a command, parsed into numbers and flags. One parser for all
 * commands; it allocates nothing. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/descriptor.h"

/* One argument of a command; not NUL-terminated. */
struct word {
    const char *text;
    size_t length;
};

enum option {
    OPTION_ERROR = 1 << 0,
    OPTION_CAPACITY = 1 << 1,
    OPTION_EXPANSION = 1 << 2,
    OPTION_NONSCALING = 1 << 3,
    OPTION_SEED = 1 << 4,
    OPTION_SHARDSIZE = 1 << 5,
    OPTION_NOCREATE = 1 << 6,
    OPTION_ITEMS = 1 << 7, /* ends the options: every word after it is an item */
    OPTION_PREFIX = 1 << 8,
    OPTION_BLOCKS = 1 << 9,
    OPTION_BITS = 1 << 10,
    OPTION_SEEDS = 1 << 11,
    OPTION_DIGEST = 1 << 12,
    OPTION_FROM = 1 << 13,
    OPTION_COUNT = 1 << 14,
    OPTION_WINDOW = 1 << 15,
    OPTION_SLICES = 1 << 16,
    OPTION_SLIDING = 1 << 17
};

/* The options of each command. */
#define OPTIONS_PLAN                                                                               \
    (OPTION_EXPANSION | OPTION_NONSCALING | OPTION_SHARDSIZE | OPTION_WINDOW | OPTION_SLICES |     \
     OPTION_SLIDING)
#define OPTIONS_RESERVE (OPTIONS_PLAN | OPTION_SEED)
#define OPTIONS_INSERT                                                                             \
    (OPTIONS_RESERVE | OPTION_ERROR | OPTION_CAPACITY | OPTION_NOCREATE | OPTION_ITEMS)
#define OPTIONS_ADOPT                                                                              \
    (OPTION_PREFIX | OPTION_BLOCKS | OPTION_BITS | OPTION_SEEDS | OPTION_DIGEST |                  \
     OPTION_EXPANSION | OPTION_NONSCALING)
#define OPTIONS_SHARDS (OPTION_FROM | OPTION_COUNT)

/* The largest result of options_max_words: BF.ADOPT with all its seeds. */
#define OPTIONS_MAX_WORDS (14u + RECIPE_MAX_SEEDS)

/* The most entries that BF.SHARDS returns at once. */
#define OPTIONS_MAX_COUNT 1000u

struct options {
    unsigned given;           /* enum option values of the options given */
    double error;             /* the promised false-positive rate, capped at SIZING_MAX_ERROR */
    uint64_t capacity;        /* items in the first layer */
    uint32_t expansion;       /* growth factor; 0: NONSCALING */
    uint64_t seed;            /* only if OPTION_SEED was given */
    uint64_t shard_bytes;     /* largest allocation of a shard */
    struct window window;     /* seconds, slices and sliding; seconds == 0: no window */
    struct adoption adoption; /* BF.ADOPT: set the defaults first; the prefix is not copied */
    uint64_t from_layer;      /* BF.SHARDS: the first entry, if it exists */
    uint64_t from_shard;
    uint64_t count;    /* BF.SHARDS: the maximum number of entries */
    size_t nwords;     /* how many words were read */
    char problem[160]; /* why parsing failed, as an error reply */
};

/* Reads options from left to right until the words end or ITEMS was read. `allowed` says which
 * options the command has. Fields of options that are not given keep their values. If a word is
 * unknown, repeated or malformed, returns false and sets options->problem. */
bool options_parse(struct options *options, const struct word *words, size_t nwords,
                   unsigned allowed);

/* One more than the number of words these options can take, since each may be given only once. A
 * caller need not convert any more. */
size_t options_max_words(unsigned allowed);

/* The positional arguments of BF.RESERVE and BF.PLAN, also used by the configuration. False with
 * the reason in options->problem. */
bool options_set_error(struct options *options, struct word word);
bool options_set_capacity(struct options *options, struct word word);

/* Whole numbers without sign, spaces or leading zeros. */
bool word_to_u64(struct word word, uint64_t *number);
/* A whole number with an optional unit: b, k, kb, m, mb, g, gb (k = 1000, kb = 1024 as in
 * redis.conf). */
bool word_to_bytes(struct word word, uint64_t *nbytes);
/* Decimal notation only: no nan, inf, hexadecimal, spaces or sign. */
bool word_to_double(struct word word, double *number);
bool word_is(struct word word, const char *name); /* ignoring case */

#endif
