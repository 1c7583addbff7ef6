/* The false-positive rate, measured on layers in memory: it keeps the promise, and it is what the
 * model says, so that the positions of an item's bits are as good as independent ones.
 *
 * Seeds are fixed, so every run gives the same numbers. A count of n false positives has a standard
 * deviation of about sqrt(n); SIGMAS of them are allowed for. */
#include "check.h"
#include "core/sizing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))
#define SIGMAS   4

/* ---- items ---- */

enum kind { URL, NUMBER, RANDOM, NKINDS };
static const char *const kinds[] = {"URL-like", "sequential", "random"};

struct item {
    char text[96];
    size_t nbytes;
};

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static char *put_number(char *at, uint64_t n) {
    char digits[20];
    size_t ndigits = 0;
    do digits[ndigits++] = (char)('0' + n % 10);
    while (n /= 10);
    while (ndigits > 0) *at++ = digits[--ndigits];
    return at;
}

static char *put_text(char *at, const char *text) {
    const size_t n = strlen(text);
    memcpy(at, text, n);
    return at + n;
}

/* Item number n; different for different n. */
static void make_item(struct item *item, enum kind kind, uint64_t n) {
    char *at = item->text;
    if (kind == URL) {
        at = put_text(at, "https://www.shop-");
        at = put_number(at, n % 97);
        at = put_text(at, ".example.com/category/");
        at = put_number(at, n / 97 % 31);
        at = put_text(at, "/product?id=");
        at = put_number(at, n);
    } else if (kind == NUMBER) {
        at = put_number(at, n);
    } else {
        for (uint64_t word = 0; word < 2; word++, at += 8) {
            const uint64_t bytes = mix(2 * n + word + 1);
            memcpy(at, &bytes, sizeof bytes);
        }
    }
    item->nbytes = (size_t)(at - item->text);
}

static struct item_hash hash_of(enum kind kind, uint64_t n, uint64_t seed) {
    struct item item;
    make_item(&item, kind, n);
    return layout_hash(item.text, item.nbytes, seed);
}

/* ---- filters of one or more layers ---- */

struct layer {
    struct layout layout;
    uint64_t capacity;
    uint64_t nitems; /* that were new */
    uint64_t ncame;  /* also those that were not, but were to the layers before */
    uint8_t *bytes;
};

struct filter {
    double error;
    uint32_t expansion; /* 0: one layer */
    uint64_t seed, shard_bytes;
    unsigned nlayers;
    struct layer layers[SIZING_MAX_LAYERS];
};

static void add_layer(struct filter *filter, uint64_t capacity) {
    struct layer *layer = &filter->layers[filter->nlayers];
    const double error = sizing_layer_error(filter->error, filter->nlayers, filter->expansion > 0);
    memset(layer, 0, sizeof *layer);
    if (!sizing_plan(capacity, error, filter->shard_bytes, true, &layer->layout)) abort();
    layer->capacity = capacity;
    layer->bytes = calloc(layer->layout.nshards, layout_shard_bytes(&layer->layout));
    filter->nlayers++;
}

static struct filter *new_filter(double error, uint64_t capacity, uint32_t expansion, uint64_t seed,
                                 uint64_t shard_bytes) {
    struct filter *filter = calloc(1, sizeof *filter);
    filter->error = error;
    filter->expansion = expansion;
    filter->seed = seed;
    filter->shard_bytes = shard_bytes;
    add_layer(filter, capacity);
    return filter;
}

static void free_filter(struct filter *filter) {
    for (unsigned i = 0; i < filter->nlayers; i++) free(filter->layers[i].bytes);
    free(filter);
}

static uint8_t *block_of(const struct layer *layer, struct item_hash hash) {
    const struct item_place place = layout_place(&layer->layout, hash.place);
    return layer->bytes + place.shard * layout_shard_bytes(&layer->layout) +
           place.block * layout_block_bytes(&layer->layout);
}

static bool layer_contains(const struct layer *layer, struct item_hash hash) {
    return layout_test(&layer->layout, block_of(layer, hash), hash.bits);
}

static bool contains(const struct filter *filter, struct item_hash hash) {
    for (unsigned i = filter->nlayers; i-- > 0;)
        if (layer_contains(&filter->layers[i], hash)) return true;
    return false;
}

/* As the module does: a full layer is followed by another when a new item comes. */
static bool add(struct filter *filter, struct item_hash hash) {
    struct layer *layer = &filter->layers[filter->nlayers - 1];
    for (unsigned i = 0; i + 1 < filter->nlayers; i++)
        if (layer_contains(&filter->layers[i], hash)) return false;
    layer->ncame++;
    if (layer_contains(layer, hash)) return false;
    if (layer->nitems == layer->capacity) {
        add_layer(filter,
                  sizing_next_capacity(layer->capacity, filter->expansion, filter->nlayers));
        layer++;
        layer->ncame++;
    }
    layout_set(&layer->layout, block_of(layer, hash), hash.bits);
    layer->nitems++;
    return true;
}

/* Adds items 0, 1, … until nitems of them were new. Returns how many came. */
static uint64_t fill(struct filter *filter, enum kind kind, uint64_t nitems) {
    uint64_t n = 0;
    for (uint64_t held = 0; held < nitems; n++) held += add(filter, hash_of(kind, n, filter->seed));
    return n;
}

static uint64_t count_missing(const struct filter *filter, enum kind kind, uint64_t n) {
    uint64_t nmissing = 0;
    for (uint64_t i = 0; i < n; i++) nmissing += !contains(filter, hash_of(kind, i, filter->seed));
    return nmissing;
}

/* Asks for items that were never added. */
static uint64_t count_false(const struct filter *filter, enum kind kind, uint64_t first,
                            uint64_t n) {
    uint64_t nfalse = 0;
    for (uint64_t i = first; i < first + n; i++)
        nfalse += contains(filter, hash_of(kind, i, filter->seed));
    return nfalse;
}

/* What the model says of all layers as they are filled now. */
static double model(const struct filter *filter) {
    double none = 1;
    for (unsigned i = 0; i < filter->nlayers; i++)
        none *= 1 - sizing_rate(&filter->layers[i].layout, filter->layers[i].ncame);
    return 1 - none;
}

static void check_rate(uint64_t nfalse, uint64_t nprobes, double expected, double promised,
                       const char *what) {
    const double count = (double)nfalse, n = (double)nprobes;
    printf("    %-42s promised %-6g model %.4g measured %.4g (%llu of %llu)\n", what, promised,
           expected, count / n, (unsigned long long)nfalse, (unsigned long long)nprobes);
    CHECK_RANGE(count, 0, promised * n + SIGMAS * sqrt(promised * n));
    CHECK_RANGE(count, expected * n - SIGMAS * sqrt(expected * n),
                expected * n + SIGMAS * sqrt(expected * n));
}

TEST(full_filters_keep_the_promise_and_the_model) {
    static const struct {
        double error;
        uint64_t capacity, nprobes;
    } cases[] = {{0.25, 100000, 100000},
                 {1e-2, 100000, 500000},
                 {1e-3, 100000, 500000},
                 {1e-4, 200000, 2500000},
                 {1e-5, 200000, 4000000}};
    for (size_t i = 0; i < N(cases); i++) {
        for (enum kind kind = 0; kind < NKINDS; kind++) {
            struct filter *filter = new_filter(cases[i].error, cases[i].capacity, 0, i, 32 << 20);
            const uint64_t n = fill(filter, kind, cases[i].capacity);
            CHECK_UINT(count_missing(filter, kind, n), 0);
            check_rate(count_false(filter, kind, n, cases[i].nprobes), cases[i].nprobes,
                       model(filter), cases[i].error, kinds[kind]);
            free_filter(filter);
        }
    }
}

/* Many shards instead of one change nothing. */
TEST(sharded_filters_keep_the_promise_and_the_model) {
    struct filter *filter = new_filter(1e-3, 100000, 0, 5, 4096);
    CHECK(filter->layers[0].layout.nshards > 40);
    const uint64_t n = fill(filter, URL, 100000);
    CHECK_UINT(count_missing(filter, URL, n), 0);
    check_rate(count_false(filter, URL, n, 1000000), 1000000, model(filter), 1e-3,
               "shards of 4 kB");
    free_filter(filter);
}

/* The smallest ones differ from each other, so that many are measured. */
TEST(small_filters_keep_the_promise_and_the_model) {
    static const struct {
        double error;
        uint64_t capacity;
        unsigned nfilters, nprobes; /* of each */
    } cases[] = {{0.25, 100, 100, 1000},  {1e-2, 1, 300, 300},     {1e-2, 10, 300, 500},
                 {1e-2, 100, 500, 1000},  {1e-3, 10, 500, 1000},   {1e-3, 100, 1000, 1000},
                 {1e-3, 1000, 200, 5000}, {1e-4, 1000, 200, 20000}};
    for (size_t i = 0; i < N(cases); i++) {
        uint64_t nfalse = 0, nprobes = 0;
        double expected = 0; /* the mean over all filters: they vary */
        for (unsigned j = 0; j < cases[i].nfilters; j++) {
            struct filter *filter = new_filter(cases[i].error, cases[i].capacity, 0, j, 32 << 20);
            const uint64_t n = fill(filter, NUMBER, cases[i].capacity);
            CHECK_UINT(count_missing(filter, NUMBER, n), 0);
            nfalse += count_false(filter, NUMBER, n, cases[i].nprobes);
            nprobes += cases[i].nprobes;
            expected += model(filter) / cases[i].nfilters;
            free_filter(filter);
        }
        char what[64];
        snprintf(what, sizeof what, "capacity %llu", (unsigned long long)cases[i].capacity);
        check_rate(nfalse, nprobes, expected, cases[i].error, what);
    }
}

TEST(grown_filters_keep_the_promise) {
    static const struct {
        double error;
        uint64_t capacity;
        uint32_t expansion;
        uint64_t nitems, nprobes;
        enum kind kind;
    } cases[] = {{1e-2, 100, 2, 300000, 200000, URL},      {1e-3, 100, 2, 300000, 500000, NUMBER},
                 {1e-4, 1000, 2, 300000, 2000000, RANDOM}, {1e-5, 1000, 4, 200000, 3000000, URL},
                 {1e-2, 1000, 1, 60000, 300000, RANDOM},   {1e-3, 10, 10, 200000, 500000, URL}};
    for (size_t i = 0; i < N(cases); i++) {
        struct filter *filter =
            new_filter(cases[i].error, cases[i].capacity, cases[i].expansion, i, 32 << 20);
        const uint64_t n = fill(filter, cases[i].kind, cases[i].nitems);
        CHECK_UINT(count_missing(filter, cases[i].kind, n), 0);
        char what[96];
        snprintf(what, sizeof what, "%s, %u layers, expansion %u", kinds[cases[i].kind],
                 filter->nlayers, cases[i].expansion);
        CHECK(filter->nlayers >= 5);
        CHECK_RANGE(model(filter), 0, cases[i].error);
        check_rate(count_false(filter, cases[i].kind, n, cases[i].nprobes), cases[i].nprobes,
                   model(filter), cases[i].error, what);
        free_filter(filter);
    }
}
