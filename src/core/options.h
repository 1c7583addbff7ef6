/* options.h: the words of a command, read into numbers and flags. Knows nothing of Redis and owns no heap. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    OPTION_ITEMS = 1 << 7 /* ends the options: all words behind it are items */
};

/* More words than this can't be options: each option is given once at most. */
#define OPTIONS_MAX_WORDS 14

struct options {
    unsigned given;       /* the enum option values that were named */
    double error;         /* the promised false-positive rate, capped at SIZING_MAX_ERROR */
    uint64_t capacity;    /* items in the first layer */
    uint32_t expansion;   /* growth factor; 0: NONSCALING */
    uint64_t seed;        /* only if OPTION_SEED was given */
    uint64_t shard_bytes; /* largest allocation of a shard */
    size_t nwords;        /* how many words were read */
    char problem[160];    /* why parsing failed, as an error reply */
};

/* Reads options from left to right until the words end or ITEMS was read. `allowed` says which may stand there. Fields
 * not named keep their values. False with options->problem filled for a word that is unknown, doubled or malformed. */
bool options_parse(struct options *options, const struct word *words, size_t nwords,
                   unsigned allowed);

/* The positional arguments of BF.RESERVE and BF.PLAN, also used by the configuration. False: options->problem. */
bool options_set_error(struct options *options, struct word word);
bool options_set_capacity(struct options *options, struct word word);

/* Whole numbers without sign, blank or leading zero. */
bool word_to_u64(struct word word, uint64_t *number);
/* A whole number with an optional unit: b, k, kb, m, mb, g, gb (k = 1000, kb = 1024 as in redis.conf). */
bool word_to_bytes(struct word word, uint64_t *nbytes);
/* Decimal notation only: no nan, inf, hexadecimal, blanks or sign. */
bool word_to_double(struct word word, double *number);
bool word_is(struct word word, const char *name); /* ignoring case */

#endif
