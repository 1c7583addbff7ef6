#include "core/options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/descriptor.h"
#include "core/sizing.h"

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

/* Skips digits; says how many there were. */
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

/* The word itself goes into the error, but only what can be printed of it, and not all of a long one. */
static bool fail_word(struct options *options, const char *before, struct word word,
                      const char *after) {
    char shown[41];
    size_t n = word.length < sizeof shown - 1 ? word.length : sizeof shown - 1;
    for (size_t i = 0; i < n; i++)
        shown[i] = isprint((unsigned char)word.text[i]) ? word.text[i] : '?';
    shown[n] = '\0';
    snprintf(options->problem, sizeof options->problem, "%s'%s'%s", before, shown, after);
    return false;
}

bool options_set_error(struct options *options, struct word word) {
    double error;
    if (!word_to_double(word, &error))
        return fail(options, "ERR bad error rate: a decimal number is needed");
    if (!(error > 0 && error < 1))
        return fail(options, "ERR bad error rate: it must lie between 0 and 1, both excluded");
    if (error < SIZING_MIN_ERROR)
        return fail(options, "ERR bad error rate: less than 1e-15 can't be promised");
    options->error = error < SIZING_MAX_ERROR ? error : SIZING_MAX_ERROR;
    return true;
}

bool options_set_capacity(struct options *options, struct word word) {
    uint64_t capacity;
    if (!word_to_u64(word, &capacity) || capacity < 1 || capacity > SIZING_MAX_CAPACITY)
        return fail(options, "ERR bad capacity: a whole number from 1 to 1099511627776 is needed");
    options->capacity = capacity;
    return true;
}

static bool set_expansion(struct options *options, struct word word) {
    uint64_t expansion;
    if (!word_to_u64(word, &expansion) || expansion > DESCRIPTOR_MAX_EXPANSION)
        return fail(options, "ERR bad expansion: a whole number from 0 to 32768 is needed");
    options->expansion = (uint32_t)expansion;
    return true;
}

static bool set_seed(struct options *options, struct word word) {
    if (!word_to_u64(word, &options->seed))
        return fail(options,
                    "ERR bad seed: a whole number from 0 to 18446744073709551615 is needed");
    return true;
}

static bool set_shardsize(struct options *options, struct word word) {
    uint64_t nbytes;
    if (!word_to_bytes(word, &nbytes) || nbytes < SIZING_MIN_SHARD_BYTES ||
        nbytes > SIZING_MAX_SHARD_BYTES)
        return fail(options,
                    "ERR bad shard size: from 4096 (4kb) to 536870912 (512mb) bytes are needed");
    options->shard_bytes = nbytes;
    return true;
}

static bool set_nonscaling(struct options *options, struct word word) {
    (void)word;
    options->expansion = 0;
    return true;
}

static bool set_nothing(struct options *options, struct word word) {
    (void)options;
    (void)word;
    return true;
}

static const struct {
    const char *name;
    enum option option;
    bool has_value;
    bool (*set)(struct options *, struct word value);
} table[] = {
    {"ERROR", OPTION_ERROR, true, options_set_error},
    {"CAPACITY", OPTION_CAPACITY, true, options_set_capacity},
    {"EXPANSION", OPTION_EXPANSION, true, set_expansion},
    {"NONSCALING", OPTION_NONSCALING, false, set_nonscaling},
    {"SEED", OPTION_SEED, true, set_seed},
    {"SHARDSIZE", OPTION_SHARDSIZE, true, set_shardsize},
    {"NOCREATE", OPTION_NOCREATE, false, set_nothing},
    {"ITEMS", OPTION_ITEMS, false, set_nothing},
};
#define NOPTIONS (sizeof table / sizeof *table)

static bool contradict(const struct options *options, unsigned both) {
    return (options->given & both) == both;
}

bool options_parse(struct options *options, const struct word *words, size_t nwords,
                   unsigned allowed) {
    size_t at = 0;
    while (at < nwords && !(options->given & OPTION_ITEMS)) {
        const struct word name = words[at++];
        size_t i = 0;
        while (i < NOPTIONS && !((table[i].option & allowed) && word_is(name, table[i].name))) i++;
        if (i == NOPTIONS) return fail_word(options, "ERR unknown option ", name, "");
        if (options->given & table[i].option)
            return fail_word(options, "ERR option ", name, " is given twice");
        options->given |= table[i].option;
        if (table[i].has_value && at == nwords)
            return fail_word(options, "ERR option ", name, " needs a value");
        const struct word value = table[i].has_value ? words[at++] : (struct word){"", 0};
        if (!table[i].set(options, value)) return false;
    }
    options->nwords = at;
    if (contradict(options, OPTION_EXPANSION | OPTION_NONSCALING))
        return fail(options,
                    "ERR nonscaling filters cannot expand: give EXPANSION or NONSCALING, not both");
    if (contradict(options, OPTION_NOCREATE | OPTION_CAPACITY) ||
        contradict(options, OPTION_NOCREATE | OPTION_ERROR))
        return fail(options, "ERR NOCREATE contradicts CAPACITY and ERROR");
    return true;
}
