/* The union of filters, over strings in memory: no server. */
#include "check.h"
#include "core/header.h"
#include "core/merge.h"
#include "core/window.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* Six shards of some 64 kB, which turn dense with 32 to 64 items. */
static struct filter_options usual(void) {
    return (struct filter_options){.error = 1e-3,
                                   .capacity = 200000,
                                   .expansion = 2,
                                   .seed = 5,
                                   .id = 7,
                                   .shard_bytes = 64 << 10};
}

static struct memory *filled(const struct filter_options *options, const char *prefix, size_t n) {
    struct memory *memory = memory_new(options);
    for (size_t first = 0; first < n; first += 500)
        memory_add(memory, prefix, first, n - first < 500 ? n - first : 500);
    return memory;
}

/* Unites two filters completely, in pieces of this many blocks, and counts as the store does. */
static bool unite_in_pieces(struct memory *to, struct memory *from, uint32_t piece) {
    struct descriptor *into = to->access.descriptor, *of = from->access.descriptor;
    char problem[320];
    bool changed = false;
    if (!CHECK(merge_extend(into, of, 0, problem, sizeof problem))) return false;
    for (uint32_t i = 0; i < of->nlayers; i++) {
        const uint32_t target = merge_target(into, of, i);
        const uint32_t nblocks = of->layers[i].layout.nblocks;
        for (uint32_t j = 0; j < of->layers[i].layout.nshards; j++)
            for (uint32_t block = 0; block < nblocks; block += piece) {
                const uint32_t left = nblocks - block;
                const struct merge_part part = {target, i, j, block, left < piece ? left : piece};
                struct merge_gain gain = {0};
                CHECK_INT(merge_shard(&to->access, &from->access, &part, &gain), MERGE_DONE);
                memory_end(to);
                memory_end(from);
                into->layers[target].nitems += (uint64_t)(gain.nitems + 0.5);
                changed |= gain.changed;
            }
    }
    CHECK(descriptor_problem(into) == NULL);
    return changed;
}

static bool unite(struct memory *to, struct memory *from) {
    return unite_in_pieces(to, from, UINT32_MAX);
}

/* Checks that the byte counts in a descriptor are those of its strings. */
static void check_stored(struct memory *memory) {
    const struct descriptor *d = memory->access.descriptor;
    uint64_t nbytes = 0;
    for (uint32_t i = 0; i < d->nlayers; i++)
        for (uint32_t j = 0; j < layer_nstrings(&d->layers[i]); j++)
            nbytes += memory_string(memory, i, j)->nbytes;
    CHECK_UINT(descriptor_nstored(d), nbytes);
}

static bool same_strings(struct memory *a, struct memory *b) {
    const struct descriptor *d = a->access.descriptor;
    for (uint32_t i = 0; i < d->nlayers; i++)
        for (uint32_t j = 0; j < layer_nstrings(&d->layers[i]); j++) {
            const struct string *one = memory_string(a, i, j), *other = memory_string(b, i, j);
            if (one->nbytes != other->nbytes ||
                (one->bytes && memcmp(one->bytes, other->bytes, one->nbytes) != 0))
                return false;
        }
    return true;
}

/* None, a young shard or a bitmap, into none, a young shard or a bitmap. */
TEST(all_forms_unite_with_all_forms) {
    static const size_t sizes[] = {0, 100, 20000};
    const struct filter_options options = usual();
    for (size_t i = 0; i < N(sizes); i++)
        for (size_t j = 0; j < N(sizes); j++) {
            struct memory *to = filled(&options, "to", sizes[i]),
                          *from = filled(&options, "from", sizes[j]);
            const uint64_t before = descriptor_nitems(to->access.descriptor),
                           added = descriptor_nitems(from->access.descriptor);
            CHECK_INT(unite(to, from), sizes[j] > 0);
            CHECK_INT(memory_count_new(to, "to", 0, sizes[i]), 0);
            CHECK_INT(memory_count_new(to, "from", 0, sizes[j]), 0);
            const double nitems = (double)descriptor_nitems(to->access.descriptor);
            if (sizes[i] + sizes[j] < 1000) /* counted, not estimated */
                CHECK_UINT((uint64_t)nitems, before + added);
            CHECK_RANGE(nitems, 0.99 * (double)(before + added), 1.01 * (double)(before + added));
            check_stored(to);
            /* Once more: nothing is left to do, and nothing is counted twice. */
            CHECK(!unite(to, from));
            CHECK_RANGE((double)descriptor_nitems(to->access.descriptor), nitems, nitems);
            memory_free(to);
            memory_free(from);
        }
}

/* Bit by bit what a filter has to which all items were added, whatever they have in common. */
TEST(a_union_is_what_adding_everything_makes) {
    const struct filter_options options = usual();
    struct memory *one = filled(&options, "x", 30000), *other = memory_new(&options),
                  *both = memory_new(&options);
    for (size_t first = 0; first < 40000; first += 500) {
        if (first >= 10000) memory_add(other, "x", first, 500);
        memory_add(both, "x", first, 500);
    }
    CHECK(unite_in_pieces(one, other, 7)); /* in pieces, of which the last is smaller */
    /* False positives set no bits: an item that one of the filters took for known may be missing
     * from the bits, but not from the answers. */
    CHECK_INT(memory_count_new(one, "x", 0, 40000), 0);
    const double nitems = (double)descriptor_nitems(both->access.descriptor);
    CHECK_RANGE((double)descriptor_nitems(one->access.descriptor), 0.99 * nitems, 1.01 * nitems);
    struct memory *whole = filled(&options, "x", 30000);
    CHECK(unite(whole, other));
    CHECK(same_strings(whole, one));
    memory_free(one);
    memory_free(other);
    memory_free(both);
    memory_free(whole);
}

/* Young shards know their items: the union is young, or turns when it has enough. */
TEST(young_unions_are_exact) {
    const struct filter_options options = usual();
    struct memory *to = filled(&options, "x", 100), *from = memory_new(&options),
                  *both = filled(&options, "x", 150);
    memory_add(from, "x", 50, 100);
    CHECK(unite(to, from));
    CHECK_UINT(descriptor_nitems(to->access.descriptor), 150);
    CHECK_INT(memory_count_new(to, "absent", 0, 100000), 100000);
    CHECK_UINT(descriptor_nstored(to->access.descriptor),
               descriptor_nstored(both->access.descriptor));
    memory_free(to);
    memory_free(from);
    memory_free(both);
}

/* At capacity the union keeps the promise, whoever added the items. */
TEST(a_full_union_keeps_the_promise) {
    struct filter_options options = usual();
    options.expansion = 0;
    struct memory *to = filled(&options, "a", 100000), *from = filled(&options, "b", 99000);
    CHECK(unite(to, from));
    /* 200,000 tries at 1e-3: 200 are expected at most, 330 have a probability below 1e-15. */
    const long nnew = memory_count_new(to, "absent", 0, 200000);
    CHECK_RANGE((double)(200000 - nnew), 50, 330);
    memory_free(to);
    memory_free(from);
}

/* Layers are matched by position, including those that share a string. The destination gets the
 * layers that it lacks, and grows on from there. */
TEST(filters_that_have_grown) {
    static const size_t sizes[] = {50, 300, 3000, 50000};
    struct filter_options options = usual();
    options.capacity = 100;
    for (size_t i = 0; i < N(sizes); i++)
        for (size_t j = 0; j < N(sizes); j++) {
            struct memory *to = filled(&options, "to", sizes[i]),
                          *from = filled(&options, "from", sizes[j]);
            const uint32_t nlayers = sizes[i] > sizes[j] ? to->access.descriptor->nlayers
                                                         : from->access.descriptor->nlayers;
            CHECK(unite(to, from));
            CHECK_UINT(to->access.descriptor->nlayers, nlayers);
            check_stored(to);
            memory_add(to, "later", 0, 10000);
            check_stored(to);
            CHECK_INT(memory_count_new(to, "to", 0, sizes[i]), 0);
            CHECK_INT(memory_count_new(to, "from", 0, sizes[j]), 0);
            CHECK_INT(memory_count_new(to, "later", 0, 10000), 0);
            memory_free(to);
            memory_free(from);
        }
}

/* A shard that is lost, on either side, or no memory for a bitmap: nothing has changed. */
TEST(what_fails_changes_nothing) {
    const struct filter_options options = usual();
    const struct merge_part part = {0, 0, 1, 0, UINT32_MAX};
    struct merge_gain gain = {0};
    struct memory *to = filled(&options, "to", 100), *from = filled(&options, "from", 20000),
                  *same = filled(&options, "to", 100);
    to->full = true;
    CHECK_INT(merge_shard(&to->access, &from->access, &part, &gain), MERGE_NO_MEMORY);
    memory_end(to);
    memory_end(from);
    CHECK(same_strings(to, same));
    to->full = false;
    struct string *lost = memory_string(from, 0, 1);
    lost->bytes[0] ^= 1;
    CHECK_INT(merge_shard(&to->access, &from->access, &part, &gain), MERGE_FROM_LOST);
    lost->bytes[0] ^= 1;
    memory_end(to);
    memory_end(from);
    CHECK(same_strings(to, same));
    free(memory_string(to, 0, 1)->bytes);
    *memory_string(to, 0, 1) = (struct string){0};
    CHECK_INT(merge_shard(&to->access, &from->access, &part, &gain), MERGE_TO_LOST);
    CHECK_INT(to->access.status, SHARD_MISSING);
    memory_end(to);
    memory_end(from);
    CHECK(!gain.changed && gain.nitems == 0);
    /* A replica that can't compute the union marks its own shard as lost. */
    access_spoil(&same->access, 0, 1);
    CHECK_INT(access_check(&same->access, 0, 1), SHARD_FOREIGN);
    CHECK_INT(access_check(&same->access, 0, 0), SHARD_READY);
    memory_end(same);
    memory_free(to);
    memory_free(from);
    memory_free(same);
}

TEST(what_differs_is_named) {
    const struct filter_options options = usual();
    struct filter_options other[8];
    for (size_t i = 0; i < N(other); i++) other[i] = options;
    other[0].seed = 6;
    other[1].error = 1e-4;
    other[2].capacity = 200001;
    other[3].expansion = 0;
    other[4].shard_bytes = 32 << 10;
    other[5].window = (struct window){.seconds = 3600, .nslices = 4, .capacity = 200000};
    other[5].now_ms = 1800000000000;
    other[6] = other[7] = other[5];
    other[7].window.sliding = true;
    static const struct {
        size_t i;
        const char *problem;
    } cases[] = {
        {0, "their seeds differ: create both with the same SEED"},
        {1, "their error rates differ"},
        {2, "layer 0 is for 200000 items in the destination and for 200001 in the source: create "
            "both with the same error rate, capacity and EXPANSION"},
        {3, "only one of them is NONSCALING"},
        {4, "layer 0 has"},
        {5, "only one of them has a window"},
    };
    char problem[320];
    for (size_t i = 0; i < N(cases); i++) {
        struct descriptor *to = filter_new(&options, "to", 2),
                          *from = filter_new(&other[cases[i].i], "from", 4);
        CHECK(!merge_extend(to, from, 0, problem, sizeof problem));
        if (!CHECK(strncmp(problem, cases[i].problem, strlen(cases[i].problem)) == 0))
            CHECK_FAIL("%s", problem);
        CHECK_UINT(to->nlayers, 1);
        descriptor_free(to);
        descriptor_free(from);
    }
    struct descriptor *to = filter_new(&other[6], "to", 2),
                      *from = filter_new(&other[7], "from", 4);
    CHECK(!merge_extend(to, from, 0, problem, sizeof problem));
    CHECK_STR(problem, "their windows differ");
    descriptor_free(to);
    descriptor_free(from);
}

TEST(layers_of_other_kinds_are_refused) {
    const struct filter_options options = usual();
    char problem[320];
    for (int side = 0; side < 2; side++) {
        struct descriptor *both[2] = {filter_new(&options, "a", 1), filter_new(&options, "b", 1)};
        struct layer classic = {.kind = LAYER_CLASSIC,
                                .layout = {1, 1, 9, 7},
                                .nbits = 512,
                                .nbytes = 64,
                                .capacity = 50};
        REQUIRE(descriptor_append(both[side], &classic));
        CHECK(!merge_extend(both[0], both[1], 0, problem, sizeof problem));
        CHECK(strstr(problem, side ? "the source has" : "the destination has"));
        descriptor_free(both[0]);
        descriptor_free(both[1]);
    }
}

/* Slices are matched by the time at which they began. */
TEST(windows_unite_slice_by_slice) {
    struct filter_options options = usual();
    options.window = (struct window){.seconds = 4000, .nslices = 4, .capacity = 40000};
    options.now_ms = 1800000000000;
    char problem[320];
    struct descriptor *gone, *to = filter_new(&options, "to", 2),
                             *from = filter_new(&options, "from", 4);
    /* Both turn at the same moments, but one may skip a turn. The destination gets the newest
     * slices that it lacks. */
    REQUIRE(window_turn(from, options.now_ms + 1000000, true, &gone));
    REQUIRE(window_turn(from, options.now_ms + 2000000, true, &gone));
    CHECK(merge_extend(to, from, 0, problem, sizeof problem));
    CHECK_UINT(to->nlayers, 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_UINT(to->layers[i].began_ms, from->layers[i].began_ms);
        CHECK_UINT(merge_target(to, from, i), i);
    }
    /* The oldest slice of one is marked as over: what it took would never be found. */
    REQUIRE(window_turn(to, options.now_ms + 5000000, false, &gone));
    CHECK_UINT(to->window->nover, 1);
    CHECK_UINT(merge_target(to, from, 0), MERGE_NO_LAYER);
    CHECK_UINT(merge_target(to, from, 1), 1);
    CHECK(!merge_extend(to, from, 0, problem, sizeof problem));
    /* It is dropped: places differ, moments do not. */
    REQUIRE(window_turn(to, options.now_ms + 5000000, true, &gone));
    REQUIRE(gone && to->nlayers == 3);
    descriptor_free(gone);
    CHECK_UINT(merge_target(to, from, 0), MERGE_NO_LAYER);
    CHECK_UINT(merge_target(to, from, 1), 0);
    CHECK_UINT(merge_target(to, from, 2), 1);
    /* A slice can't be inserted before one that has begun. */
    CHECK(merge_extend(to, from, 1, problem, sizeof problem));
    CHECK(!merge_extend(to, from, 0, problem, sizeof problem));
    CHECK_STR(problem, "the destination has no slice as old as one of the source's");
    /* A new filter like it gets slices with the same times, but neither its items nor its layer
     * numbers. */
    struct descriptor *like = merge_like(to, "like", 4, 9);
    REQUIRE(like);
    CHECK(merge_extend(like, to, 1, problem, sizeof problem));
    CHECK_UINT(like->nlayers, 2);
    CHECK_UINT(like->window->first_number, 0);
    CHECK_UINT(like->layers[0].began_ms, to->layers[1].began_ms);
    CHECK_UINT(descriptor_nitems(like), 0);
    descriptor_free(like);
    descriptor_free(to);
    descriptor_free(from);
}
