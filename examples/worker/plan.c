#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 16384

/* Four bytes at a time: one step of a chain of table lookups instead of four. tables[k] has the
 * checksum of each byte with k zero bytes behind it. */
static uint16_t tables[4][256];

static void fill_tables(void) {
    for (unsigned i = 0; i < 256; i++) {
        unsigned crc = i << 8;
        for (int k = 0; k < 4; k++) {
            for (int bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
            tables[k][i] = (uint16_t)crc;
        }
    }
}

uint16_t plan_crc16(const char *bytes, size_t nbytes) {
    const unsigned char *at = (const unsigned char *)bytes, *end = at + nbytes;
    unsigned crc = 0;
    if (!tables[0][1]) fill_tables();
    for (; end - at >= 4; at += 4)
        crc = tables[3][crc >> 8 ^ at[0]] ^ tables[2][(crc & 0xff) ^ at[1]] ^ tables[1][at[2]] ^
              tables[0][at[3]];
    for (; at < end; at++) crc = (crc << 8 & 0xff00) ^ tables[0][crc >> 8 ^ *at];
    return (uint16_t)crc;
}

unsigned plan_partition(const struct plan *plan, const char *item, size_t nbytes) {
    return plan_crc16(item, nbytes) * plan->npartitions >> 16;
}

/* Rounded up. */
static unsigned long long square_root(unsigned long long n) {
    unsigned long long low = 0, high = 1ULL << 32;
    while (low < high) {
        const unsigned long long middle = (low + high) / 2;
        if (middle * middle < n)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Of the 65536 values of the CRC, a partition has as many as fit evenly, rounded up. */
unsigned long long plan_share(const struct plan *plan) {
    const unsigned long long nvalues = (65536 + plan->npartitions - 1) / plan->npartitions;
    const unsigned long long share = (plan->capacity * nvalues + 65535) / 65536;
    return share + (share + 63) / 64 + 4 * square_root(share);
}

void plan_places(const struct plan *plan, int *slots, unsigned *tags) {
    static uint16_t partition_of[SLOTS]; /* plus 1; 0: none, or it has its tag */
    memset(partition_of, 0, sizeof partition_of);
    for (unsigned p = 0; p < plan->npartitions; p++) {
        slots[p] = (int)((2 * p + 1) * (SLOTS / 2) / plan->npartitions);
        partition_of[slots[p]] = (uint16_t)(p + 1);
    }
    unsigned nleft = plan->npartitions;
    for (unsigned n = 0; nleft > 0; n++) {
        char digits[16];
        const int ndigits = snprintf(digits, sizeof digits, "%u", n);
        uint16_t *partition = &partition_of[plan_crc16(digits, (size_t)ndigits) % SLOTS];
        if (!*partition) continue;
        tags[*partition - 1] = n;
        *partition = 0;
        nleft--;
    }
}

void plan_set_error(struct plan *plan, double error) {
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(plan->error, sizeof plan->error, "%.*g", precision, error);
        if (strtod(plan->error, NULL) == error) break;
    }
}

const char *plan_check_name(const char *name) {
    if (!*name) return "a partitioned filter needs a name";
    if (strpbrk(name, "{}")) return "the name of a partitioned filter can't contain { or }";
    return NULL;
}

/* ---- text ---- */

bool plan_write(const struct plan *plan, char *text) {
    int n = snprintf(text, PLAN_MAX_BYTES, "partitioned-filter 1 %u %s %llu", plan->npartitions,
                     plan->error, plan->capacity);
    for (size_t i = 0; plan->words[i]; i++) {
        if (n >= PLAN_MAX_BYTES) return false;
        n += snprintf(text + n, (size_t)(PLAN_MAX_BYTES - n), " %s", plan->words[i]);
    }
    return n < PLAN_MAX_BYTES;
}

/* Digits only: no sign, no blank. */
static bool read_number(const char *word, unsigned long long max, unsigned long long *number) {
    const size_t ndigits = strspn(word, "0123456789");
    if (ndigits == 0 || ndigits > 15 || word[ndigits]) return false;
    *number = strtoull(word, NULL, 10);
    return *number >= 1 && *number <= max;
}

static bool read_error(const char *word, char *error, size_t room) {
    char *end;
    if (word[strspn(word, "0123456789.eE+-")] || strlen(word) >= room) return false;
    const double value = strtod(word, &end);
    snprintf(error, room, "%s", word);
    return end != word && !*end && value > 0 && value < 1;
}

/* The next word, ended by exactly one space; NULL if there is none. */
static char *next_word(char **rest) {
    char *word = *rest;
    if (!word) return NULL;
    char *space = strchr(word, ' ');
    if (space) *space++ = '\0';
    *rest = space;
    return word;
}

const char *plan_read(struct plan *plan, const char *text, size_t nbytes) {
    static const char not_a_plan[] = "it is not a partitioned filter";
    static const char first[] = "partitioned-filter ";
    if (nbytes < sizeof first - 1 || memcmp(text, first, sizeof first - 1) != 0) return not_a_plan;
    if (nbytes >= PLAN_MAX_BYTES || memchr(text, '\0', nbytes)) return not_a_plan;
    memcpy(plan->text, text, nbytes);
    plan->text[nbytes] = '\0';
    char *rest = plan->text + sizeof first - 1;
    const char *version = next_word(&rest);
    if (strcmp(version, "1") != 0) return "it was made by a newer version of shardbloom";
    const char *words[3] = {NULL};
    for (size_t i = 0; i < 3; i++) {
        words[i] = next_word(&rest);
        if (!words[i]) return not_a_plan;
    }
    unsigned long long npartitions;
    if (!read_number(words[0], PLAN_MAX_PARTITIONS, &npartitions) ||
        !read_error(words[1], plan->error, sizeof plan->error) ||
        !read_number(words[2], PLAN_MAX_CAPACITY, &plan->capacity))
        return "its plan is damaged";
    plan->npartitions = (unsigned)npartitions;
    size_t n = 0;
    for (const char *word; (word = next_word(&rest)) != NULL; n++) {
        if (!*word || n == PLAN_MAX_WORDS) return "its plan is damaged";
        plan->words[n] = word;
    }
    plan->words[n] = NULL;
    return NULL;
}

/* ---- comparing ---- */

static bool same_words(const char *const *some, const char *const *others) {
    size_t i = 0;
    while (some[i] && others[i] && strcmp(some[i], others[i]) == 0) i++;
    return !some[i] && !others[i];
}

bool plan_agrees(const struct plan *plan, const struct plan *want, const struct wanted *wanted) {
    return (!wanted->partitions || plan->npartitions == want->npartitions) &&
           (!wanted->error || strtod(plan->error, NULL) == strtod(want->error, NULL)) &&
           (!wanted->capacity || plan->capacity == want->capacity) &&
           (!wanted->words || same_words(plan->words, want->words));
}

void plan_describe(const struct plan *plan, const struct wanted *wanted, char *text, size_t room) {
    char parts[4][PLAN_MAX_BYTES] = {"", "", "", ""};
    if (wanted->partitions) snprintf(parts[0], sizeof parts[0], "%u partitions", plan->npartitions);
    if (wanted->capacity) snprintf(parts[1], sizeof parts[1], "a capacity of %llu", plan->capacity);
    if (wanted->error) snprintf(parts[2], sizeof parts[2], "an error rate of %s", plan->error);
    size_t n = 0;
    for (size_t i = 0; wanted->words && plan->words[i] && n < sizeof parts[3]; i++)
        n += (size_t)snprintf(parts[3] + n, sizeof parts[3] - n, "%s%s", i > 0 ? " " : "",
                              plan->words[i]);
    n = 0;
    *text = '\0';
    for (size_t i = 0; i < 4; i++)
        if (*parts[i] && n < room)
            n += (size_t)snprintf(text + n, room - n, "%s%s", n > 0 ? ", " : "", parts[i]);
}
