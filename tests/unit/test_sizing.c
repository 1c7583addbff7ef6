/* How large filters are: the memory promise, the error promise, and the limits. */
#include "check.h"
#include "core/descriptor.h"
#include "core/sizing.h"

#include <math.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

static const uint64_t shard_sizes[] = {4096,    4097,    5000,     8192,     65536,     100000,
                                       1 << 20, 3000000, 32 << 20, 33554433, 128 << 20, 512 << 20};

static double bits_per_item(const struct layout *layout, uint64_t capacity) {
    return 8.0 * layout->nshards * (double)layout_shard_bytes(layout) / (double)capacity;
}

/* Whatever the request, the result must be valid in a descriptor and fit the shard size. */
static bool check_sound(const struct layout *layout, uint64_t capacity, double error,
                        uint64_t shard_bytes) {
    const uint64_t allocation = layout_shard_bytes(layout) + SIZING_SHARD_OVERHEAD;
    bool ok = CHECK(layout->block_log2 >= LAYOUT_MIN_BLOCK_LOG2 &&
                    layout->block_log2 <= LAYOUT_MAX_BLOCK_LOG2);
    ok &= CHECK(layout->nprobes >= 1 && layout->nprobes <= LAYOUT_MAX_PROBES);
    ok &= CHECK(layout->nshards >= 1 && layout->nshards <= LAYOUT_MAX_SHARDS);
    ok &= CHECK(layout->nblocks >= 1);
    ok &= CHECK(allocation <= SIZING_MAX_SHARD_BYTES);
    const uint64_t room = (shard_bytes - SIZING_SHARD_OVERHEAD) / layout_block_bytes(layout);
    if (allocation > shard_bytes) /* only where there would be too many shards */
        ok &= CHECK((uint64_t)layout->nshards * layout->nblocks > room * LAYOUT_MAX_SHARDS);
    ok &= CHECK(sizing_rate(layout, capacity) <= error);
    if (!ok)
        CHECK_FAIL("capacity %llu, error %g, shard size %llu", (unsigned long long)capacity, error,
                   (unsigned long long)shard_bytes);
    return ok;
}

TEST(large_filters_stay_within_8_percent_of_the_classic_one) {
    for (double error = 1e-2; error > 0.9e-9; error /= 1.5) {
        for (double capacity = 1e5; capacity < 2e12; capacity *= 3.1) {
            for (size_t i = 0; i < N(shard_sizes); i++) {
                const uint64_t n = (uint64_t)fmin(capacity, (double)SIZING_MAX_CAPACITY);
                struct layout layout;
                if (!sizing_plan(n, error, shard_sizes[i], true, &layout)) {
                    CHECK_FAIL("no plan for %g at %g", (double)n, error);
                    continue;
                }
                check_sound(&layout, n, error, shard_sizes[i]);
                if (!CHECK_RANGE(bits_per_item(&layout, n) / sizing_classic_bits(error), 1, 1.08))
                    CHECK_FAIL("error %g, capacity %llu, shard size %llu", error,
                               (unsigned long long)n, (unsigned long long)shard_sizes[i]);
            }
        }
    }
}

/* How many items come until `capacity` of them were new, by simulation with the model's own
 * rates. */
static uint64_t items_to_come(const struct layout *layout, uint64_t capacity) {
    uint64_t n = 0;
    for (double held = 0; held < (double)capacity; n++) held += 1 - sizing_rate(layout, n);
    return n;
}

/* Needed: the blocks without which the promise is broken. A small filter may round up by one
 * block. */
TEST(small_filters_are_not_wasteful) {
    static const uint64_t capacities[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
    static const double errors[] = {0.1, 0.05, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-9, 1e-12, 1e-15};
    for (size_t i = 0; i < N(capacities); i++) {
        for (size_t j = 0; j < N(errors); j++) {
            struct layout layout;
            REQUIRE(sizing_plan(capacities[i], errors[j], 32 << 20, true, &layout));
            check_sound(&layout, capacities[i], errors[j], 32 << 20);
            CHECK_UINT(layout.nshards, 1);
            if (layout.nblocks == 1) continue;
            struct layout less = layout;
            less.nblocks -= 1;
            if (!CHECK(sizing_rate(&less, items_to_come(&less, capacities[i])) > errors[j]))
                CHECK_FAIL("capacity %llu, error %g: %u blocks", (unsigned long long)capacities[i],
                           errors[j], layout.nblocks);
        }
    }
}

/* Items that were false positives when added are not counted, so a filter gets more items than its
 * capacity before it is full. Regression: a filter for 0.25 was then wrong for 0.297 of all
 * items. */
TEST(the_promise_holds_when_as_many_as_the_capacity_were_counted) {
    static const double errors[] = {0.25, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3};
    for (size_t i = 0; i < N(errors); i++) {
        struct layout layout;
        REQUIRE(sizing_plan(20000, errors[i], 32 << 20, true, &layout));
        CHECK_RANGE(sizing_rate(&layout, items_to_come(&layout, 20000)) / errors[i], 0.97, 1);
    }
}

TEST(tiny_filters_take_few_bytes) {
    static const struct {
        uint64_t capacity;
        double error;
        uint64_t classic_nbytes; /* rounded up */
    } cases[] = {{1, 1e-2, 2},   {10, 1e-2, 12},   {100, 1e-2, 120}, {1, 1e-3, 2},
                 {10, 1e-3, 18}, {100, 1e-3, 180}, {100, 1e-4, 240}, {100, 1e-5, 300}};
    for (size_t i = 0; i < N(cases); i++) {
        struct layout layout;
        REQUIRE(sizing_plan(cases[i].capacity, cases[i].error, 32 << 20, true, &layout));
        const uint64_t nbytes = SIZING_SHARD_HEADER + layout.nshards * layout_shard_bytes(&layout);
        if (!CHECK(nbytes <= cases[i].classic_nbytes * 108 / 100 + SIZING_SHARD_HEADER +
                                 layout_block_bytes(&layout)))
            CHECK_FAIL("capacity %llu, error %g: %llu bytes", (unsigned long long)cases[i].capacity,
                       cases[i].error, (unsigned long long)nbytes);
    }
}

TEST(any_capacity_error_and_shard_size_gives_a_sound_layout) {
    static const double errors[] = {0.25, 0.1, 1e-3, 1e-6, 1e-9, 1e-12, 1e-15, 1e-15 / 4096};
    for (uint64_t capacity = 1; capacity <= SIZING_MAX_CAPACITY; capacity = capacity * 5 / 2 + 1)
        for (size_t i = 0; i < N(errors); i++)
            for (size_t j = 0; j < N(shard_sizes); j++) {
                struct layout layout;
                REQUIRE(sizing_plan(capacity, errors[i], shard_sizes[j], true, &layout));
                check_sound(&layout, capacity, errors[i], shard_sizes[j]);
            }
}

/* Regression: blocks as large as the smallest shard left room for none, and a division by zero
 * killed the server. */
TEST(blocks_fit_into_the_smallest_shards) {
    struct layout layout;
    REQUIRE(sizing_plan(100000, 1e-15, SIZING_MIN_SHARD_BYTES, true, &layout));
    CHECK(layout_block_bytes(&layout) + SIZING_SHARD_OVERHEAD <= SIZING_MIN_SHARD_BYTES);
}

TEST(the_largest_capacity_does_not_overflow) {
    for (size_t i = 0; i < N(shard_sizes); i++) {
        struct layout layout;
        REQUIRE(sizing_plan(SIZING_MAX_CAPACITY, 1e-9, shard_sizes[i], true, &layout));
        check_sound(&layout, SIZING_MAX_CAPACITY, 1e-9, shard_sizes[i]);
        CHECK_RANGE(bits_per_item(&layout, SIZING_MAX_CAPACITY), sizing_classic_bits(1e-9),
                    1.08 * sizing_classic_bits(1e-9));
    }
}

/* The rate must rise with the number of items, be 0 for none, and hardly jump (upwards, to the safe
 * side) where the model changes from binomial to Poisson at 10^6. */
TEST(rates_rise_with_the_load) {
    struct layout layout;
    REQUIRE(sizing_plan(1000000, 1e-4, 32 << 20, true, &layout));
    CHECK(sizing_rate(&layout, 0) == 0);
    double before = 0;
    for (uint64_t n = 1000; n <= 4000000; n += n / 8) {
        const double rate = sizing_rate(&layout, n);
        CHECK(rate > before && rate < 1);
        before = rate;
    }
    CHECK_RANGE(sizing_rate(&layout, 1000001) / sizing_rate(&layout, 1000000), 1, 1.01);
    CHECK_RANGE(sizing_rate(&layout, 1000000), 0.98e-4, 1e-4);
}

/* Chunks come from clients, and BF.DEBUG shows the rate of whatever layout they describe. */
TEST(the_rate_of_an_absurd_load_is_one) {
    const uint64_t most = SIZING_MAX_CAPACITY;
    for (uint8_t log2 = LAYOUT_MIN_BLOCK_LOG2; log2 <= LAYOUT_MAX_BLOCK_LOG2; log2++)
        for (uint64_t nitems = 1u << 24; nitems <= most; nitems *= 16) {
            CHECK(sizing_rate(&(struct layout){1, 2, log2, 1}, nitems) == 1);
            CHECK(sizing_rate(&(struct layout){1, 1, log2, 64}, nitems) == 1);
        }
}

/* Narrow blocks need the mixture over loads; with one enormous block the classic formula is
 * right. */
TEST(the_model_agrees_with_the_classic_formula_where_that_holds) {
    const struct layout layout = {1, 1, 15, 7};
    for (uint64_t n = 500; n <= 4000; n += 500) {
        const double classic = pow(1 - exp(-7.0 * (double)n / 32768), 7);
        CHECK_RANGE(sizing_rate(&layout, n) / classic, 0.995, 1.005);
    }
}

TEST(shares_of_all_layers_add_up_to_the_promise_at_most) {
    double sum = 0;
    for (unsigned i = 0; i < SIZING_MAX_LAYERS; i++) {
        CHECK(sizing_layer_error(0.01, i, true) > 0);
        if (i > 0) CHECK(sizing_layer_error(0.01, i, true) < sizing_layer_error(0.01, i - 1, true));
        sum += sizing_layer_error(0.01, i, true);
    }
    CHECK_RANGE(sum, 0.0098, 0.01);
    CHECK(sizing_layer_error(0.01, 0, false) == 0.01);
}

/* As built: the layers' own rates at capacity, by the model, for each kind of growth. */
TEST(rates_of_all_built_layers_add_up_to_the_promise_at_most) {
    static const uint32_t expansions[] = {1, 2, 4, 10};
    static const double errors[] = {0.25, 1e-2, 1e-4, 1e-6, 1e-15};
    for (size_t i = 0; i < N(expansions); i++) {
        for (size_t j = 0; j < N(errors); j++) {
            uint64_t capacity = 100;
            double sum = 0;
            for (unsigned layer = 0; layer < SIZING_MAX_LAYERS; layer++) {
                struct layout layout;
                REQUIRE(sizing_plan(capacity, sizing_layer_error(errors[j], layer, true), 32 << 20,
                                    true, &layout));
                sum += sizing_rate(&layout, capacity);
                capacity = sizing_next_capacity(capacity, expansions[i], layer + 1);
            }
            CHECK_RANGE(sum, 0, errors[j]);
        }
    }
}

TEST(capacities_grow_by_the_expansion) {
    CHECK_UINT(sizing_next_capacity(100, 2, 1), 200);
    CHECK_UINT(sizing_next_capacity(100, 1, 1), 100);
    CHECK_UINT(sizing_next_capacity(100, 1, 15), 100);
    CHECK_UINT(sizing_next_capacity(100, 1, 16), 200);
    CHECK_UINT(sizing_next_capacity(100, 3, 16), 300);
    CHECK_UINT(sizing_next_capacity(100, 32768, 1), 3276800);
    CHECK_UINT(sizing_next_capacity(SIZING_MAX_CAPACITY, 1, 1), SIZING_MAX_CAPACITY);
    CHECK_UINT(sizing_next_capacity(SIZING_MAX_CAPACITY, 2, 1), SIZING_MAX_CAPACITY);
    CHECK_UINT(sizing_next_capacity(SIZING_MAX_CAPACITY, 32768, 40), SIZING_MAX_CAPACITY);
    CHECK_UINT(sizing_next_capacity(SIZING_MAX_CAPACITY / 2, 2, 1), SIZING_MAX_CAPACITY);
    CHECK_UINT(sizing_next_capacity(SIZING_MAX_CAPACITY / 2 + 1, 2, 1), SIZING_MAX_CAPACITY);
    /* Every other limit is reached before the last layer is full. */
    uint64_t capacity = 1;
    for (unsigned n = 1; n < SIZING_MAX_LAYERS; n++)
        capacity = sizing_next_capacity(capacity, 1, n);
    CHECK_UINT(capacity, SIZING_MAX_CAPACITY);
}

TEST(size_classes_are_those_of_jemalloc) {
    static const uint64_t classes[][2] = {{1, 16},
                                          {16, 16},
                                          {17, 32},
                                          {128, 128},
                                          {129, 160},
                                          {160, 160},
                                          {161, 192},
                                          {256, 256},
                                          {257, 320},
                                          {4096, 4096},
                                          {4097, 5120},
                                          {5121, 6144},
                                          {7169, 8192},
                                          {1048577, 1310720},
                                          {33554432, 33554432},
                                          {33554433, 41943040},
                                          {36000000, 41943040},
                                          {536870912, 536870912},
                                          {536870913, 671088640}};
    for (size_t i = 0; i < N(classes); i++)
        CHECK_UINT(sizing_size_class(classes[i][0]), classes[i][1]);
}

static uint64_t allocation(const struct layout *layout) {
    return layout->nshards * sizing_size_class(layout_shard_bytes(layout) + SIZING_SHARD_OVERHEAD);
}

/* Where a layer need not be tight, what is allocated is used: there is no room for one more block
 * in a shard, it takes no more memory than the tight layer of the same items, and its rate is no
 * worse. */
TEST(layouts_that_need_not_be_tight) {
    static const double errors[] = {0.25, 1e-2, 1e-3, 6e-5, 1e-5, 1e-6, 1e-9, 1e-15};
    unsigned nnarrower = 0, nfewer = 0, n = 0;
    double tight_bytes = 0, loose_bytes = 0;
    for (size_t i = 0; i < N(errors); i++)
        for (size_t j = 0; j < N(shard_sizes); j++)
            for (uint64_t capacity = 1; capacity < 1ull << 36; capacity = capacity * 2 + 1) {
                struct layout tight, loose;
                REQUIRE(sizing_plan(capacity, errors[i], shard_sizes[j], true, &tight));
                REQUIRE(sizing_plan(capacity, errors[i], shard_sizes[j], false, &loose));
                check_sound(&loose, capacity, errors[i], shard_sizes[j]);
                CHECK(allocation(&loose) <= allocation(&tight));
                const size_t room =
                    sizing_size_class(layout_shard_bytes(&loose) + SIZING_SHARD_OVERHEAD) -
                    layout_shard_bytes(&loose) - SIZING_SHARD_OVERHEAD;
                if (sizing_size_class(shard_sizes[j]) == shard_sizes[j])
                    CHECK(room < layout_block_bytes(&loose));
                n++;
                nnarrower += loose.block_log2 < tight.block_log2;
                nfewer += loose.nprobes < tight.nprobes;
                tight_bytes += (double)allocation(&tight) / (double)capacity;
                loose_bytes += (double)allocation(&loose) / (double)capacity;
            }
    /* It is worth the trouble. */
    CHECK(nnarrower > n / 5);
    CHECK(nfewer > n / 10);
    CHECK(loose_bytes < tight_bytes);
}

/* A filter that fits into one block uses all of it, and as many probes as improve the rate. With
 * the fewest that keep the promise, a filter for 3 items at 0.01 had one, and was wrong for
 * 0.6%. */
TEST(one_block_is_used_for_what_it_can_do) {
    static const double errors[] = {0.1, 1e-2, 1e-3, 1e-4};
    struct layout layout;
    REQUIRE(sizing_plan(3, 0.01, 8 << 20, true, &layout));
    CHECK_UINT(layout.nshards * layout.nblocks, 1);
    CHECK(sizing_rate(&layout, 3) < 1e-8);
    unsigned n = 0;
    for (size_t i = 0; i < N(errors); i++)
        for (uint64_t capacity = 1; capacity < 40; capacity++) {
            REQUIRE(sizing_plan(capacity, errors[i], 8 << 20, true, &layout));
            if (layout.nshards * layout.nblocks > 1) continue;
            check_sound(&layout, capacity, errors[i], 8 << 20);
            struct layout fewer = layout;
            while (--fewer.nprobes > 0)
                CHECK(sizing_rate(&fewer, capacity) >= sizing_rate(&layout, capacity));
            n++;
        }
    CHECK(n > 60);
}

/* A shard just above a size class would waste up to a fifth of its memory. From several megabytes
 * on there is a choice of how many shards to cut a layer into, and the waste must be small. */
TEST(shards_end_just_below_a_size_class) {
    static const double errors[] = {1e-2, 1e-3, 1e-4, 1e-5, 1e-6};
    static const uint64_t sizes[] = {1 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20};
    double worst = 0;
    for (size_t i = 0; i < N(errors); i++)
        for (size_t j = 0; j < N(sizes); j++)
            for (double capacity = 1e7; capacity < 1e11; capacity *= 1.37) {
                struct layout layout;
                REQUIRE(sizing_plan((uint64_t)capacity, errors[i], sizes[j], true, &layout));
                const uint64_t nbytes = layout_shard_bytes(&layout) + SIZING_SHARD_OVERHEAD;
                const double waste = (double)sizing_size_class(nbytes) / (double)nbytes - 1;
                worst = fmax(worst, waste);
                if ((double)nbytes * layout.nshards > 8.0 * (double)sizes[j])
                    CHECK_RANGE(waste, 0, 0.06);
                CHECK_RANGE(waste, 0, 0.125);
            }
    CHECK(worst > 0); /* the measure itself works */
    /* The default: a full-size shard is allocated as 32 MiB, not 40. */
    struct layout layout;
    REQUIRE(sizing_plan(1000000000, 1e-4, 32 << 20, true, &layout));
    CHECK_UINT(sizing_size_class(layout_shard_bytes(&layout) + SIZING_SHARD_OVERHEAD), 32 << 20);
    CHECK_RANGE((double)layout_shard_bytes(&layout), 0.97 * (32 << 20), 32 << 20);
}

/* Plans are cached. Here there are more than the cache can hold. Requested again in another order,
 * they must be the same. */
TEST(a_plan_is_the_same_when_asked_for_again) {
    enum { NPLANS = 300 };
    struct layout first[NPLANS], again;
    for (unsigned i = 0; i < NPLANS; i++)
        REQUIRE(sizing_plan(1 + i / 4, i & 1 ? 0.01 : 0.001, 1u << (12 + i % 3), i & 2, &first[i]));
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = NPLANS; i-- > 0;) {
            REQUIRE(
                sizing_plan(1 + i / 4, i & 1 ? 0.01 : 0.001, 1u << (12 + i % 3), i & 2, &again));
            CHECK(again.nshards == first[i].nshards && again.nblocks == first[i].nblocks &&
                  again.block_log2 == first[i].block_log2 && again.nprobes == first[i].nprobes);
        }
    /* An impossible plan fails the second time, too. */
    for (int i = 0; i < 2; i++)
        CHECK(!sizing_plan(SIZING_MAX_CAPACITY, 1e-15, 65536, true, &again) ==
              !sizing_plan(SIZING_MAX_CAPACITY, 1e-15, 65536, true, &first[0]));
}
