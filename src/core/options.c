#include "core/options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/bytes.h"
#include "core/descriptor.h"
#include "core/sizing.h"
#include "core/window.h"

bool word_is(struct word word, const char *name) {
    return word.length == strlen(name) && strncasecmp(word.text, name, word.length) == 0;
}

bool word_to_u64(struct word word, uint64_t *number) {
    uint64_t value = 0;
    if (word.length == 0 || (word.text[0] == '0' && word.length > 1)) return false;
    for (size_t i = 0; i < word.length; i++) {
        const unsigned digit = (unsigned char)word.text[i] - (unsigned)'0';
        if (digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *number = value;
    return true;
}

bool word_to_bytes(struct word word, uint64_t *nbytes) {
    static const struct {
        const char *name;
        uint64_t factor;
    } units[] = {{"", 1},        {"b", 1},           {"k", 1000},          {"kb", 1 << 10},
                 {"m", 1000000}, {"mb", 1ull << 20}, {"g", 1000000000ull}, {"gb", 1ull << 30}};
    size_t ndigits = 0;
    while (ndigits < word.length && isdigit((unsigned char)word.text[ndigits])) ndigits++;
    const struct word unit = {word.text + ndigits, word.length - ndigits};
    uint64_t number;
    if (!word_to_u64((struct word){word.text, ndigits}, &number)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (word_is(unit, units[i].name))
            return !__builtin_mul_overflow(number, units[i].factor, nbytes);
    return false;
}

/* Skips digits; returns how many there were. */
static size_t skip_digits(const char **at) {
    const char *start = *at;
    while (isdigit((unsigned char)**at)) ++*at;
    return (size_t)(*at - start);
}

bool word_to_double(struct word word, double *number) {
    char text[64];
    if (word.length == 0 || word.length >= sizeof text) return false;
    memcpy(text, word.text, word.length);
    text[word.length] = '\0';
    const char *at = text;
    size_t ndigits = skip_digits(&at);
    if (*at == '.') {
        at++;
        ndigits += skip_digits(&at);
    }
    if (ndigits == 0) return false;
    if (*at == 'e' || *at == 'E') {
        at++;
        if (*at == '+' || *at == '-') at++;
        if (skip_digits(&at) == 0) return false;
    }
    if (at != text + word.length) return false; /* also catches a NUL inside the word */
    *number = strtod(text, NULL);
    return true;
}

static bool fail(struct options *options, const char *problem) {
    snprintf(options->problem, sizeof options->problem, "%s", problem);
    return false;
}

/* The word itself goes into the error message: only its printable characters, and not all of a long
 * one. */
static bool fail_word(struct options *options, const char *before, struct word word,
                      const char *after) {
    char shown[41];
    bytes_show(word.text, word.length, shown, sizeof shown);
    snprintf(options->problem, sizeof options->problem, "%s'%s'%s", before, shown, after);
    return false;
}

static bool number_in(struct word word, uint64_t min, uint64_t max, uint64_t *number) {
    return word_to_u64(word, number) && *number >= min && *number <= max;
}

/* ---- single values ---- */

bool options_set_error(struct options *options, struct word word) {
    double error;
    if (!word_to_double(word, &error))
        return fail(options, "ERR bad error rate: a decimal number is needed");
    if (!(error > 0 && error < 1))
        return fail(options, "ERR bad error rate: error rate must be in the range (0, 1)");
    if (error < SIZING_MIN_ERROR)
        return fail(options, "ERR bad error rate: less than 1e-15 can't be promised");
    options->error = error < SIZING_MAX_ERROR ? error : SIZING_MAX_ERROR;
    return true;
}

bool options_set_capacity(struct options *options, struct word word) {
    uint64_t capacity;
    if (!number_in(word, 1, SIZING_MAX_CAPACITY, &capacity))
        return fail(options, "ERR bad capacity: capacity must be in the range [1, 1099511627776]");
    options->capacity = capacity;
    return true;
}

static bool set_seed_number(struct options *options, struct word word, uint64_t *seed) {
    return word_to_u64(word, seed) ||
           fail(options, "ERR bad seed: a whole number from 0 to 18446744073709551615 is needed");
}

/* ---- options: each takes its values off the words that are left ---- */

struct words {
    const struct word *next, *end;
};

static struct word take(struct words *words) {
    return *words->next++;
}

static bool read_error(struct options *options, struct words *values) {
    return options_set_error(options, take(values));
}

static bool read_capacity(struct options *options, struct words *values) {
    return options_set_capacity(options, take(values));
}

static bool read_expansion(struct options *options, struct words *values) {
    uint64_t expansion;
    if (!number_in(take(values), 0, DESCRIPTOR_MAX_EXPANSION, &expansion))
        return fail(options, "ERR bad expansion: expansion must be in the range [0, 32768]");
    options->expansion = (uint32_t)expansion;
    return true;
}

static bool read_nonscaling(struct options *options, struct words *values) {
    (void)values;
    options->expansion = 0;
    return true;
}

static bool read_seed(struct options *options, struct words *values) {
    return set_seed_number(options, take(values), &options->seed);
}

static bool read_shardsize(struct options *options, struct words *values) {
    uint64_t nbytes;
    if (!word_to_bytes(take(values), &nbytes) || nbytes < SIZING_MIN_SHARD_BYTES ||
        nbytes > SIZING_MAX_SHARD_BYTES)
        return fail(options,
                    "ERR bad shard size: from 4096 (4kb) to 536870912 (512mb) bytes are needed");
    options->shard_bytes = nbytes;
    return true;
}

static bool read_window(struct options *options, struct words *values) {
    uint64_t seconds;
    if (!number_in(take(values), 1, WINDOW_MAX_SECONDS, &seconds))
        return fail(options,
                    "ERR bad window: a whole number of seconds from 1 to 1000000000 is needed");
    options->window.seconds = (uint32_t)seconds;
    return true;
}

static bool read_slices(struct options *options, struct words *values) {
    uint64_t nslices;
    if (!number_in(take(values), 1, WINDOW_MAX_SLICES, &nslices))
        return fail(options, "ERR bad slices: a whole number from 1 to 32 is needed");
    options->window.nslices = (uint32_t)nslices;
    return true;
}

static bool read_sliding(struct options *options, struct words *values) {
    (void)values;
    options->window.sliding = true;
    return true;
}

static bool read_flag(struct options *options, struct words *values) {
    (void)options;
    (void)values;
    return true;
}

static bool read_prefix(struct options *options, struct words *values) {
    const struct word prefix = take(values);
    if (prefix.length == 0 || prefix.length > DESCRIPTOR_MAX_TAG)
        return fail(options, "ERR bad prefix: from 1 to 1024 bytes are needed");
    options->adoption.prefix = (char *)prefix.text;
    options->adoption.prefix_length = (uint32_t)prefix.length;
    return true;
}

static bool read_blocks(struct options *options, struct words *values) {
    uint64_t nstrings;
    if (!number_in(take(values), 1, RECIPE_MAX_STRINGS, &nstrings))
        return fail(options, "ERR bad number of blocks: a number from 1 to 256 is needed");
    options->adoption.recipe.nstrings = (uint32_t)nstrings;
    options->adoption.numbered = true;
    return true;
}

static bool read_bits(struct options *options, struct words *values) {
    uint64_t log2_bits;
    if (!number_in(take(values), RECIPE_MIN_LOG2_BITS, RECIPE_MAX_LOG2_BITS, &log2_bits))
        return fail(options,
                    "ERR bad bits: a number from 9 to 32 is needed, for strings of 2^bits bits");
    options->adoption.recipe.log2_bits = (uint8_t)log2_bits;
    return true;
}

/* First how many seeds there are, then the seeds. */
static bool read_seeds(struct options *options, struct words *values) {
    struct recipe *recipe = &options->adoption.recipe;
    uint64_t nseeds;
    if (!number_in(take(values), 1, RECIPE_MAX_SEEDS, &nseeds))
        return fail(options, "ERR bad number of seeds: a number from 1 to 64 is needed");
    if ((size_t)(values->end - values->next) < nseeds)
        return fail(options, "ERR fewer seeds than the number after SEEDS says");
    recipe->nseeds = (uint8_t)nseeds;
    for (unsigned i = 0; i < nseeds; i++)
        if (!set_seed_number(options, take(values), &recipe->seeds[i])) return false;
    return true;
}

static bool read_digest(struct options *options, struct words *values) {
    const struct word digest = take(values);
    options->adoption.recipe.digest = word_is(digest, "NONE") ? RECIPE_NONE : RECIPE_MD5;
    return word_is(digest, "NONE") || word_is(digest, "MD5") ||
           fail(options, "ERR bad digest: MD5 or NONE is needed");
}

static bool read_from(struct options *options, struct words *values) {
    const struct word layer = take(values), shard = take(values);
    return (word_to_u64(layer, &options->from_layer) && word_to_u64(shard, &options->from_shard)) ||
           fail(options, "ERR bad part: FROM needs the numbers of a layer and of a shard");
}

static bool read_count(struct options *options, struct words *values) {
    return number_in(take(values), 1, OPTIONS_MAX_COUNT, &options->count) ||
           fail(options, "ERR bad part: COUNT needs a whole number from 1 to 1000");
}

/* ---- the engine ---- */

static const struct {
    const char *name;
    enum option option;
    unsigned nvalues; /* of SEEDS: only the fixed ones */
    bool (*read)(struct options *, struct words *values);
} table[] = {
    {"ERROR", OPTION_ERROR, 1, read_error},
    {"CAPACITY", OPTION_CAPACITY, 1, read_capacity},
    {"EXPANSION", OPTION_EXPANSION, 1, read_expansion},
    {"NONSCALING", OPTION_NONSCALING, 0, read_nonscaling},
    {"SEED", OPTION_SEED, 1, read_seed},
    {"SHARDSIZE", OPTION_SHARDSIZE, 1, read_shardsize},
    {"NOCREATE", OPTION_NOCREATE, 0, read_flag},
    {"ITEMS", OPTION_ITEMS, 0, read_flag},
    {"PREFIX", OPTION_PREFIX, 1, read_prefix},
    {"BLOCKS", OPTION_BLOCKS, 1, read_blocks},
    {"BITS", OPTION_BITS, 1, read_bits},
    {"SEEDS", OPTION_SEEDS, 1, read_seeds},
    {"DIGEST", OPTION_DIGEST, 1, read_digest},
    {"FROM", OPTION_FROM, 2, read_from},
    {"COUNT", OPTION_COUNT, 1, read_count},
    {"WINDOW", OPTION_WINDOW, 1, read_window},
    {"SLICES", OPTION_SLICES, 1, read_slices},
    {"SLIDING", OPTION_SLIDING, 0, read_sliding},
};
#define NOPTIONS (sizeof table / sizeof *table)

size_t options_max_words(unsigned allowed) {
    size_t nwords = 1 + (allowed & OPTION_SEEDS ? RECIPE_MAX_SEEDS : 0);
    for (size_t i = 0; i < NOPTIONS; i++)
        if (table[i].option & allowed) nwords += 1 + table[i].nvalues;
    return nwords;
}

/* Reads one option with its values. */
static bool read_option(struct options *options, struct words *words, unsigned allowed) {
    const struct word name = take(words);
    size_t i = 0;
    while (i < NOPTIONS && !((table[i].option & allowed) && word_is(name, table[i].name))) i++;
    if (i == NOPTIONS) return fail_word(options, "ERR Unknown argument received: ", name, "");
    if (options->given & table[i].option)
        return fail_word(options, "ERR option ", name, " is given twice");
    options->given |= table[i].option;
    if ((size_t)(words->end - words->next) < table[i].nvalues)
        return fail_word(options, "ERR option ", name,
                         table[i].nvalues == 1 ? " needs a value" : " needs two values");
    return table[i].read(options, words);
}

static bool contradict(const struct options *options, unsigned both) {
    return (options->given & both) == both;
}

/* Applies SLICES and SLIDING to the window. */
static bool finish_window(struct options *options) {
    struct window *window = &options->window;
    if (!(options->given & OPTION_WINDOW))
        return !(options->given & (OPTION_SLICES | OPTION_SLIDING)) ||
               fail(options, "ERR SLICES and SLIDING need WINDOW");
    if (window->nslices == 0) window->nslices = WINDOW_DEFAULT_SLICES;
    window->capacity = options->capacity;
    return !window_problem(window) ||
           fail(options, "ERR bad slices: each must last at least 0.1 seconds");
}

bool options_parse(struct options *options, const struct word *words, size_t nwords,
                   unsigned allowed) {
    struct words left = {words, words + nwords};
    while (left.next < left.end && !(options->given & OPTION_ITEMS))
        if (!read_option(options, &left, allowed)) return false;
    options->nwords = (size_t)(left.next - words);
    if (contradict(options, OPTION_EXPANSION | OPTION_NONSCALING))
        return fail(options,
                    "ERR Nonscaling filters cannot expand: give EXPANSION or NONSCALING, not both");
    if (contradict(options, OPTION_NOCREATE | OPTION_CAPACITY) ||
        contradict(options, OPTION_NOCREATE | OPTION_ERROR))
        return fail(options, "ERR NOCREATE can't be combined with CAPACITY or ERROR");
    if (!finish_window(options)) return false;
    const bool adopts = allowed & OPTION_PREFIX;
    const char *problem = adopts ? recipe_problem(&options->adoption.recipe) : NULL;
    if (problem) snprintf(options->problem, sizeof options->problem, "ERR %s", problem);
    return !problem;
}
