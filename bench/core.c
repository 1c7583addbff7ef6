/* core.c: the pure core without a server: what hashing an item, testing its block and setting its
 * bits cost, in the cache and out of it, one at a time and in batches that prefetch.
 *
 *   core      nanoseconds per item, best of several passes
 *   core N    one short pass of in-cache case number N alone, whose instructions
 *             bench/core.sh counts
 *
 * Every loop is a function of its own that is never inlined, so that a profile shows it by name. */
#include "core/layout.h"
#include "core/sizing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PASSES = 7,
    NHASHES = 1 << 20, /* items asked for in one pass; their hashes are read in order */
    NHASHES_CALLGRIND = 10000,
    NTEXTS = 1 << 10,  /* texts hashed in one pass, few enough to stay in the first cache */
    TEXT_NBYTES = 256, /* longest of them */
    BATCH = 100,       /* items hashed and prefetched ahead in the batch loops */
};

#define SEED         UINT64_C(0x5eed)
#define SMALL_NITEMS 10000    /* fits the first-level caches */
#define LARGE_NITEMS 40000000 /* larger than the last one */
#define SHARD_NBYTES (32u << 20)

struct filter {
    struct layout layout;
    uint8_t **shards; /* one allocation each, as in the server */
};

/* What a loop works on. */
struct work {
    struct filter *filter;
    const struct item_hash *hashes;
    size_t nhashes;
    const char *texts;
    size_t text_nbytes;
};

typedef uint64_t loop_fn(const struct work *work);

static void *checked(void *p) {
    if (!p) {
        perror("core");
        exit(1);
    }
    return p;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline uint8_t *block_of(const struct filter *filter, const struct item_hash *hash) {
    struct item_place place = layout_place(&filter->layout, hash->place);
    return filter->shards[place.shard] + place.block * layout_block_bytes(&filter->layout);
}

/* ---- the loops; each returns something, so that none is optimised away ---- */

__attribute__((noinline)) static uint64_t loop_hash(const struct work *work) {
    uint64_t sum = 0;
    for (size_t i = 0; i < NTEXTS; i++)
        sum += layout_hash(work->texts + i * TEXT_NBYTES, work->text_nbytes, SEED).bits;
    return sum;
}

__attribute__((noinline)) static uint64_t loop_test(const struct work *work) {
    uint64_t found = 0;
    for (size_t i = 0; i < work->nhashes; i++)
        found += layout_test(&work->filter->layout, block_of(work->filter, &work->hashes[i]),
                             work->hashes[i].bits);
    return found;
}

__attribute__((noinline)) static uint64_t loop_set(const struct work *work) {
    uint64_t added = 0;
    for (size_t i = 0; i < work->nhashes; i++)
        added += layout_set(&work->filter->layout, block_of(work->filter, &work->hashes[i]),
                            work->hashes[i].bits);
    return added;
}

static inline void prefetch_batch(const struct work *work, size_t from, size_t n,
                                  uint8_t **blocks) {
    for (size_t i = 0; i < n; i++) {
        blocks[i] = block_of(work->filter, &work->hashes[from + i]);
        layout_prefetch(&work->filter->layout, blocks[i], work->hashes[from + i].bits);
    }
}

__attribute__((noinline)) static uint64_t loop_batch_test(const struct work *work) {
    uint8_t *blocks[BATCH];
    uint64_t found = 0;
    for (size_t from = 0; from + BATCH <= work->nhashes; from += BATCH) {
        prefetch_batch(work, from, BATCH, blocks);
        for (size_t i = 0; i < BATCH; i++)
            found += layout_test(&work->filter->layout, blocks[i], work->hashes[from + i].bits);
    }
    return found;
}

__attribute__((noinline)) static uint64_t loop_batch_set(const struct work *work) {
    uint8_t *blocks[BATCH];
    uint64_t added = 0;
    for (size_t from = 0; from + BATCH <= work->nhashes; from += BATCH) {
        prefetch_batch(work, from, BATCH, blocks);
        for (size_t i = 0; i < BATCH; i++)
            added += layout_set(&work->filter->layout, blocks[i], work->hashes[from + i].bits);
    }
    return added;
}

/* ---- setting up ---- */

static struct item_hash hash_number(uint64_t number) {
    return layout_hash(&number, sizeof(number), SEED);
}

/* A filter that holds the numbers 0 … nitems-1 and is full. */
static struct filter full_filter(uint64_t nitems, double error) {
    struct filter filter;
    if (!sizing_plan(nitems, error, SHARD_NBYTES, false, &filter.layout)) {
        fprintf(stderr, "core: no layout for %llu items\n", (unsigned long long)nitems);
        exit(1);
    }
    filter.shards = checked(calloc(filter.layout.nshards, sizeof(*filter.shards)));
    size_t nbytes = (layout_shard_bytes(&filter.layout) + 63) / 64 * 64;
    for (uint32_t i = 0; i < filter.layout.nshards; i++) {
        filter.shards[i] = checked(aligned_alloc(64, nbytes));
        memset(filter.shards[i], 0, nbytes);
    }
    for (uint64_t i = 0; i < nitems; i++) {
        struct item_hash hash = hash_number(i);
        layout_set(&filter.layout, block_of(&filter, &hash), hash.bits);
    }
    return filter;
}

static void free_filter(struct filter *filter) {
    for (uint32_t i = 0; i < filter->layout.nshards; i++) free(filter->shards[i]);
    free(filter->shards);
}

/* Hashes of numbers from …; those of the filter's own items are drawn at random from below
 * `nitems`. */
static struct item_hash *make_hashes(size_t n, uint64_t from, uint64_t nitems) {
    struct item_hash *hashes = checked(malloc(n * sizeof(*hashes)));
    for (size_t i = 0; i < n; i++)
        hashes[i] = hash_number(nitems ? hash_number(i).place % nitems : from + i);
    return hashes;
}

/* ---- measuring ---- */

static int npasses = PASSES;
static size_t nhashes = NHASHES;
static int only_case; /* the one to run, counted from 1; 0: all */
static int ncases;    /* met so far */
static volatile uint64_t sink;

static void measure(const char *name, loop_fn *loop, const struct work *work, size_t nitems) {
    uint64_t best = UINT64_MAX;
    if (++ncases != only_case && only_case) return;
    for (int pass = 0; pass < npasses; pass++) {
        uint64_t start = now_ns();
        sink = loop(work);
        uint64_t took = now_ns() - start;
        if (took < best) best = took;
    }
    printf("%-44s %9zu items %9.2f ns per item\n", name, nitems, (double)best / (double)nitems);
}

static void measure_hash(void) {
    static const size_t lengths[] = {16, 64, 256};
    char *texts = checked(malloc((size_t)NTEXTS * TEXT_NBYTES));
    for (size_t i = 0; i < (size_t)NTEXTS * TEXT_NBYTES; i++) texts[i] = (char)(i * 131 >> 3);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "  hash, %zu bytes", lengths[i]);
        measure(name, loop_hash, &(struct work){.texts = texts, .text_nbytes = lengths[i]}, NTEXTS);
    }
    free(texts);
}

static void measure_filter(const char *label, uint64_t nitems, double error) {
    struct filter filter = full_filter(nitems, error);
    struct item_hash *present = make_hashes(nhashes, 0, nitems);
    struct item_hash *absent = make_hashes(nhashes, UINT64_C(1) << 40, 0);
    struct work of_present = {.filter = &filter, .hashes = present, .nhashes = nhashes};
    struct work of_absent = {.filter = &filter, .hashes = absent, .nhashes = nhashes};
    if (!only_case)
        printf("%s, error %g: %u shards, blocks of %u bits, %u probes\n", label, error,
               filter.layout.nshards, 1u << filter.layout.block_log2, filter.layout.nprobes);
    measure("  test absent", loop_test, &of_absent, nhashes);
    measure("  test present", loop_test, &of_present, nhashes);
    measure("  set present", loop_set, &of_present, nhashes);
    measure("  prefetched batches, test absent", loop_batch_test, &of_absent, nhashes);
    measure("  prefetched batches, test present", loop_batch_test, &of_present, nhashes);
    measure("  prefetched batches, set present", loop_batch_set, &of_present, nhashes);
    free(absent);
    free(present);
    free_filter(&filter);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        only_case = atoi(argv[1]);
        npasses = 1;
        nhashes = NHASHES_CALLGRIND;
    }
    measure_hash();
    for (int i = 0; i < 2; i++) measure_filter("in cache", SMALL_NITEMS, i ? 1e-4 : 1e-2);
    if (only_case) return only_case > ncases;
    for (int i = 0; i < 2; i++) measure_filter("out of cache", LARGE_NITEMS, i ? 1e-4 : 1e-2);
    return 0;
}
