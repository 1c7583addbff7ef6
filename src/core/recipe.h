/* recipe.h: bitmaps that other programs wrote with SETBIT, and how they hash.
 *
 * These recipes keep a Bloom filter in one string or in several. An item's value is the hexadecimal
 * MD5 of its bytes (32 lower-case characters), or the item itself if it is a fingerprint already.
 * Each seed gives one bit: starting from 0, for every character c of the value, x = x * (seed + 1)
 * + c, in unbounded integers; the bit is x mod 2^log2_bits. If there are several strings, the first
 * two hexadecimal digits modulo their number choose one.
 *
 * Only the low bits of x matter, and they depend only on low bits, so 64 bits of x are enough. */
#ifndef RECIPE_H
#define RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECIPE_MIN_LOG2_BITS 9u  /* a cache line */
#define RECIPE_MAX_LOG2_BITS 32u /* the longest string of the server */
#define RECIPE_MAX_SEEDS     64u
#define RECIPE_MAX_STRINGS   256u /* two hexadecimal digits can't choose more */

enum recipe_digest {
    RECIPE_MD5 = 1,  /* the value is the item's MD5 in hexadecimal */
    RECIPE_NONE = 2, /* the value is the item */
};

/* A recipe: everything that decides which bits stand for an item. */
struct recipe {
    enum recipe_digest digest;
    uint32_t nstrings; /* 1 … RECIPE_MAX_STRINGS; 1 with RECIPE_NONE */
    uint8_t log2_bits; /* of the bits in a string */
    uint8_t nseeds;    /* bits for each item */
    uint64_t seeds[RECIPE_MAX_SEEDS];
};

/* The most common recipe: MD5, one string, 2^31 bits, seven seeds. */
extern const struct recipe recipe_default;

/* What is wrong with a recipe, as text for an error; NULL if nothing. */
const char *recipe_problem(const struct recipe *recipe);

/* A recipe and the names of its strings. */
struct adoption {
    struct recipe recipe;
    /* The names are prefix0, prefix1, …; otherwise there is one string, called prefix. */
    bool numbered;
    /* The strings are the filter's own copies, named like its shards; the prefix is empty. */
    bool owned;
    uint32_t prefix_length; /* bytes in prefix */
    char *prefix;           /* not NUL-terminated */
};

/* What the functions below need of an item: its MD5, unless the item itself is the value. */
struct recipe_item {
    const char *bytes;
    size_t nbytes;
    uint8_t md5[16];
};
void recipe_hash(const struct recipe *recipe, struct recipe_item *item);

/* The string in which the item's bits are. */
uint32_t recipe_string(const struct recipe *recipe, const struct recipe_item *item);

/* The bits of the item, one for each seed. */
void recipe_positions(const struct recipe *recipe, const struct recipe_item *item,
                      uint32_t positions[RECIPE_MAX_SEEDS]);

/* Does the string contain the item? Strings are only as long as their highest bit requires; bits
 * beyond the end are zero. The empty item is never contained: the recipes give that answer,
 * whatever was inserted. */
bool recipe_test(const struct recipe *recipe, const struct recipe_item *item, const uint8_t *string,
                 size_t nbytes);

/* Prefetches the memory that recipe_test will read. */
void recipe_prefetch(const struct recipe *recipe, const struct recipe_item *item,
                     const uint8_t *string, size_t nbytes);

/* The length a string must have to hold the item's bits. */
size_t recipe_length(const struct recipe *recipe, const struct recipe_item *item);

/* Sets the item's bits in a string of at least that length; true if one of them was not set
 * before. */
bool recipe_set(const struct recipe *recipe, const struct recipe_item *item, uint8_t *string);

/* The false-positive rate that the common recipe promises and all capacities are derived from:
 * seven bits per item at 23 bits of memory per item. */
#define RECIPE_ERROR 8.57e-5

/* How many items all strings together can hold before that rate is reached. */
uint64_t recipe_capacity(const struct recipe *recipe);

/* The number of items that set a share of `fill` (0 … 1) of one string's bits. */
uint64_t recipe_estimate(const struct recipe *recipe, double fill);

#endif
