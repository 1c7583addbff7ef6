#include "core/recipe.h"

#include <math.h>
#include <md5.h>
#include <string.h>

const struct recipe recipe_default = {
    .digest = RECIPE_MD5,
    .nstrings = 1,
    .log2_bits = 31,
    .nseeds = 7,
    .seeds = {5, 7, 11, 13, 31, 37, 61},
};

const char *recipe_problem(const struct recipe *recipe) {
    if (recipe->digest != RECIPE_MD5 && recipe->digest != RECIPE_NONE) return "unknown digest";
    if (recipe->nstrings < 1 || recipe->nstrings > RECIPE_MAX_STRINGS)
        return "from 1 to 256 strings are possible";
    if (recipe->digest == RECIPE_NONE && recipe->nstrings > 1)
        return "several strings need the digest that chooses one of them";
    if (recipe->log2_bits < RECIPE_MIN_LOG2_BITS || recipe->log2_bits > RECIPE_MAX_LOG2_BITS)
        return "a string has from 2^9 to 2^32 bits";
    if (recipe->nseeds < 1 || recipe->nseeds > RECIPE_MAX_SEEDS)
        return "from 1 to 64 seeds are possible";
    return NULL;
}

void recipe_hash(const struct recipe *recipe, struct recipe_item *item) {
    if (recipe->digest != RECIPE_MD5) return;
    MD5_CTX md5;
    MD5Init(&md5);
    MD5Update(&md5, (const uint8_t *)item->bytes, item->nbytes);
    MD5Final(item->md5, &md5);
}

uint32_t recipe_string(const struct recipe *recipe, const struct recipe_item *item) {
    return recipe->nstrings == 1 ? 0 : item->md5[0] % recipe->nstrings;
}

static const char *value_of(const struct recipe *recipe, const struct recipe_item *item,
                            char hex[32], size_t *length) {
    if (recipe->digest != RECIPE_MD5) {
        *length = item->nbytes;
        return item->bytes;
    }
    for (size_t i = 0; i < sizeof item->md5; i++) {
        hex[2 * i] = "0123456789abcdef"[item->md5[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[item->md5[i] & 15];
    }
    *length = 32;
    return hex;
}

void recipe_positions(const struct recipe *recipe, const struct recipe_item *item,
                      uint32_t positions[RECIPE_MAX_SEEDS]) {
    char hex[32];
    size_t length;
    const char *value = value_of(recipe, item, hex, &length);
    const uint64_t mask = ((uint64_t)1 << recipe->log2_bits) - 1;
    /* For each seed, every multiplication waits for the one before. Four seeds at a time keep the
     * processor busy. */
    for (unsigned i = 0; i < recipe->nseeds; i += 4) {
        const unsigned n = recipe->nseeds - i < 4 ? recipe->nseeds - i : 4;
        uint64_t factor[4] = {0}, x[4] = {0};
        for (unsigned j = 0; j < n; j++) factor[j] = recipe->seeds[i + j] + 1;
        for (size_t at = 0; at < length; at++)
            for (unsigned j = 0; j < 4; j++) x[j] = x[j] * factor[j] + (unsigned char)value[at];
        for (unsigned j = 0; j < n; j++) positions[i + j] = (uint32_t)(x[j] & mask);
    }
}

bool recipe_test(const struct recipe *recipe, const struct recipe_item *item, const uint8_t *string,
                 size_t nbytes) {
    if (item->nbytes == 0) return false;
    uint32_t positions[RECIPE_MAX_SEEDS];
    recipe_positions(recipe, item, positions);
    for (unsigned i = 0; i < recipe->nseeds; i++) {
        const size_t byte = positions[i] >> 3;
        if (byte >= nbytes || !(string[byte] & 0x80u >> (positions[i] & 7))) return false;
    }
    return true;
}

void recipe_prefetch(const struct recipe *recipe, const struct recipe_item *item,
                     const uint8_t *string, size_t nbytes) {
    uint32_t positions[RECIPE_MAX_SEEDS];
    recipe_positions(recipe, item, positions);
    for (unsigned i = 0; i < recipe->nseeds; i++)
        if (positions[i] >> 3 < nbytes) __builtin_prefetch(string + (positions[i] >> 3));
}

size_t recipe_length(const struct recipe *recipe, const struct recipe_item *item) {
    uint32_t positions[RECIPE_MAX_SEEDS], highest = 0;
    recipe_positions(recipe, item, positions);
    for (unsigned i = 0; i < recipe->nseeds; i++)
        if (positions[i] > highest) highest = positions[i];
    return (size_t)(highest >> 3) + 1;
}

bool recipe_set(const struct recipe *recipe, const struct recipe_item *item, uint8_t *string) {
    uint32_t positions[RECIPE_MAX_SEEDS];
    bool changed = false;
    recipe_positions(recipe, item, positions);
    for (unsigned i = 0; i < recipe->nseeds; i++) {
        uint8_t *byte = string + (positions[i] >> 3);
        const uint8_t mask = (uint8_t)(0x80u >> (positions[i] & 7));
        changed |= !(*byte & mask);
        *byte |= mask;
    }
    return changed;
}

/* In a classic filter of m bits with k bits per item, n items set a share of 1 - exp(-kn/m) of the
 * bits, and the error rate is that share to the power of k. This is solved for n. With seven seeds
 * the result is m/23, the recipe's own figure: 93 million items for 2^31 bits. */
uint64_t recipe_capacity(const struct recipe *recipe) {
    const double k = recipe->nseeds, share = pow(RECIPE_ERROR, 1 / k);
    const double per_string = ldexp(1, recipe->log2_bits) * -log1p(-share) / k;
    return per_string < 1 ? recipe->nstrings : (uint64_t)per_string * recipe->nstrings;
}

uint64_t recipe_estimate(const struct recipe *recipe, double fill) {
    const double nbits = ldexp(1, recipe->log2_bits);
    /* A string with all bits set could have any number of items; assume half a bit is not set. */
    const double share = fmin(fill, 1 - 0.5 / nbits);
    if (share <= 0) return 0;
    return (uint64_t)fmax(1, round(nbits * -log1p(-share) / recipe->nseeds));
}
