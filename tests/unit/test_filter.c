/* Search, add and grow, over strings in memory: no server. */
#include "check.h"
#include "core/encoding.h"
#include "core/header.h"
#include "core/young.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

static const struct filter_options billion = {.error = 1e-4,
                                              .capacity = 1000000000,
                                              .expansion = 2,
                                              .seed = 1,
                                              .id = 7,
                                              .shard_bytes = 8 << 20};

static struct descriptor *descriptor_of(const struct memory *memory) {
    return memory->access.descriptor;
}

/* Bytes of all strings, counted one by one: what the descriptor and the statistics must say as
 * well. */
static uint64_t count_stored(struct memory *memory) {
    const struct descriptor *d = descriptor_of(memory);
    uint64_t nbytes = 0;
    for (uint32_t i = 0; i < d->nlayers; i++)
        for (uint32_t j = 0; j < layer_nstrings(&d->layers[i]); j++)
            nbytes += memory_string(memory, i, j)->nbytes;
    return nbytes;
}

static void check_totals(struct memory *memory) {
    const struct descriptor *d = descriptor_of(memory);
    CHECK_UINT(descriptor_nstored(d), count_stored(memory));
    CHECK_INT(memory_nbytes, (long long)count_stored(memory));
    CHECK_INT(memory_nstrings, (long long)descriptor_nshards(d));
    CHECK(descriptor_problem(d) == NULL);
}

static size_t count_young(struct memory *memory, uint32_t layer) {
    size_t n = 0;
    for (uint32_t j = 0; j < descriptor_of(memory)->layers[layer].layout.nshards; j++) {
        const struct string *string = memory_string(memory, layer, j);
        n += string->bytes && header_form(string->bytes) == FORM_YOUNG;
    }
    return n;
}

TEST(a_fresh_filter_of_any_capacity_costs_bytes) {
    struct memory *memory = memory_new(&billion);
    CHECK_INT(memory_add(memory, "u", 0, 1000), 1000);
    CHECK(memory->largest < 4096);
    CHECK(count_stored(memory) < 100000);
    CHECK_INT(memory_add(memory, "u", 0, 1000), 0);
    CHECK_INT(memory_count_new(memory, "u", 0, 1000), 0);
    CHECK_INT(memory_count_new(memory, "absent", 0, 100000), 100000); /* exact while young */
    CHECK_UINT(descriptor_nitems(descriptor_of(memory)), 1000);
    check_totals(memory);
    memory_free(memory);
}

/* Every item that was added is found, before, during and after its shard turns; counts agree with
 * the answers. */
TEST(shards_turn_and_forget_nothing) {
    const struct filter_options options = {.error = 1e-4,
                                           .capacity = 2000000,
                                           .expansion = 0,
                                           .seed = 3,
                                           .id = 7,
                                           .shard_bytes = 1 << 20};
    struct memory *memory = memory_new(&options);
    const uint32_t nshards = descriptor_of(memory)->layers[0].layout.nshards;
    CHECK(nshards >= 4);
    uint64_t nadded = 0, nturned = 0;
    for (uint64_t first = 0; first < 20000; first += 500) {
        const size_t before = count_young(memory, 0);
        const long n = memory_add(memory, "u", first, 500);
        CHECK(n >= 499);
        nadded += (uint64_t)n;
        /* At most one shard of a layer turns in a command, so that none takes longer than one
         * zeroing. */
        const size_t after = count_young(memory, 0);
        if (first > 0) CHECK(before - after <= 1);
        nturned += first > 0 ? before - after : 0;
        CHECK_INT(memory_count_new(memory, "u", 0, first + 500), 0);
        check_totals(memory);
    }
    CHECK_UINT(nturned, nshards);
    CHECK_UINT(count_young(memory, 0), 0);
    CHECK_UINT(descriptor_nitems(descriptor_of(memory)), nadded);
    memory_free(memory);
}

/* After the turn, the bitmap has the bits that it would have without a table: the same items make
 * the same bits. */
TEST(a_turned_shard_is_the_bitmap_of_its_items) {
    const struct filter_options options = {.error = 1e-3,
                                           .capacity = 100000,
                                           .expansion = 0,
                                           .seed = 5,
                                           .id = 7,
                                           .shard_bytes = 8 << 20};
    struct memory *memory = memory_new(&options);
    const struct layout *layout = &descriptor_of(memory)->layers[0].layout;
    CHECK_UINT(layout->nshards, 1);
    CHECK(young_begins(layout));
    uint8_t *expected = calloc(1, layout_shard_bytes(layout));
    uint64_t n = 0;
    while (n == 0 || count_young(memory, 0) == 1) {
        char item[32];
        const int length = snprintf(item, sizeof item, "u%llu", (unsigned long long)n);
        const struct item_hash hash = layout_hash(item, (size_t)length, 5);
        layout_set(layout,
                   expected + layout_place(layout, hash.place).block * layout_block_bytes(layout),
                   hash.bits);
        memory_add(memory, "u", n++, 1);
        REQUIRE(n < 1000);
    }
    const uint32_t limit = young_limit(layout, 0);
    CHECK_UINT(n, limit + 1);
    const struct string *string = memory_string(memory, 0, 0);
    CHECK_MEM(string->bytes + HEADER_BYTES, string->nbytes - HEADER_BYTES, expected,
              layout_shard_bytes(layout));
    free(expected);
    memory_free(memory);
}

/* Applying only the new items, in the same commands, gives the same bytes, as on replicas and from
 * the AOF. */
TEST(a_replica_turns_at_the_same_item) {
    const struct filter_options options = {.error = 1e-4,
                                           .capacity = 100000,
                                           .expansion = 2,
                                           .seed = 9,
                                           .id = 7,
                                           .shard_bytes = 128 << 10};
    struct memory *primary = memory_new(&options);
    struct memory *replica = memory_new(&options);
    replica->repeats = true;
    for (uint64_t first = 0; first < 90000; first += 300) {
        /* Half of the batch is known: the replica gets only the rest. */
        const uint64_t from = first < 300 ? 0 : first - 300;
        memory_add(primary, "u", from, (size_t)(first + 300 - from));
        memory_add(replica, "u", first, 300);
    }
    const struct descriptor *a = descriptor_of(primary), *b = descriptor_of(replica);
    CHECK_UINT(descriptor_nitems(a), descriptor_nitems(b));
    for (uint32_t i = 0; i < a->nlayers; i++)
        for (uint32_t j = 0; j < layer_nstrings(&a->layers[i]); j++)
            CHECK_MEM(memory_string(primary, i, j)->bytes, memory_string(primary, i, j)->nbytes,
                      memory_string(replica, i, j)->bytes, memory_string(replica, i, j)->nbytes);
    memory_free(primary);
    memory_free(replica);
}

TEST(growth_keeps_every_item) {
    const struct filter_options options = {.error = 0.01,
                                           .capacity = 100,
                                           .expansion = 2,
                                           .seed = 11,
                                           .id = 7,
                                           .shard_bytes = 1 << 20};
    struct memory *memory = memory_new(&options);
    uint64_t nadded = 0;
    for (uint64_t first = 0; first < 300000; first += 1000) {
        const long n = memory_add(memory, "u", first, 1000);
        CHECK(n >= 900);
        nadded += (uint64_t)n;
    }
    CHECK_INT(memory_count_new(memory, "u", 0, 300000), 0);
    CHECK_UINT(descriptor_nitems(descriptor_of(memory)), nadded);
    CHECK(memory->ngrown > 8);
    CHECK_UINT(memory->ngrown + 1, descriptor_of(memory)->nlayers);
    check_totals(memory);
    memory_free(memory);
}

TEST(a_full_filter_says_so_and_stays_as_it_is) {
    const struct filter_options options = {.error = 0.001,
                                           .capacity = 500,
                                           .expansion = 0,
                                           .seed = 13,
                                           .id = 7,
                                           .shard_bytes = 1 << 20};
    struct memory *memory = memory_new(&options);
    CHECK_INT(memory_add(memory, "u", 0, 2000), 500);
    CHECK_INT(memory_add(memory, "v", 0, 2000), 0);
    CHECK_UINT(descriptor_nitems(descriptor_of(memory)), 500);
    memory_free(memory);
}

/* Without memory for a bitmap an item is refused, and nothing else happens. */
TEST(no_memory_no_turn) {
    const struct filter_options options = {.error = 1e-3,
                                           .capacity = 100000,
                                           .expansion = 0,
                                           .seed = 5,
                                           .id = 7,
                                           .shard_bytes = 8 << 20};
    struct memory *memory = memory_new(&options);
    memory->full = true;
    const long n = memory_add(memory, "u", 0, 10000);
    CHECK_INT(n, (long)young_limit(&descriptor_of(memory)->layers[0].layout, 0));
    CHECK_UINT(count_young(memory, 0), 1);
    CHECK_INT(memory_count_new(memory, "u", 0, (size_t)n), 0);
    memory->full = false;
    CHECK_INT(memory_add(memory, "u", (uint64_t)n, 100), 100);
    CHECK_UINT(count_young(memory, 0), 0);
    memory_free(memory);
}

/* A name may be longer than everything that a young shard holds. */
TEST(no_memory_no_long_names) {
    struct memory *memory = memory_new(&billion);
    static char tag[DESCRIPTOR_MAX_TAG];
    memory->full = true;
    CHECK_INT(memory_add(memory, "u", 0, 100), 100);
    memset(tag, 't', sizeof tag);
    REQUIRE(descriptor_set_tag(descriptor_of(memory), tag, sizeof tag));
    const uint64_t nshards = descriptor_nshards(descriptor_of(memory));
    CHECK(memory_add(memory, "v", 0, 100) < 100);
    CHECK_UINT(descriptor_nshards(descriptor_of(memory)), nshards);
    memory->full = false;
    CHECK(memory_add(memory, "v", 0, 100) > 0);
    memory_free(memory);
}

/* An item that comes twice in a batch is known the second time, also if its shard can't turn. */
TEST(no_memory_and_the_same_item_twice) {
    struct memory *memory = memory_new(&billion);
    const struct layout *layout = &descriptor_of(memory)->layers[0].layout;
    uint64_t n = 0; /* until a shard is about to turn */
    char item[32];
    struct lookup lookups[2];
    memory->full = true;
    const uint32_t limit = young_limit(layout, 0);
    for (uint32_t nitems = 0; nitems < limit; n++) {
        snprintf(item, sizeof item, "u%llu", (unsigned long long)n);
        const struct item_hash hash = layout_hash(item, strlen(item), 1);
        if (layout_place(layout, hash.place).shard != 0) continue;
        nitems++;
        if (nitems < limit) {
            CHECK_INT(memory_add(memory, "u", n, 1), 1);
            continue;
        }
        lookups[0] = lookups[1] = (struct lookup){.item = item, .nbytes = strlen(item)};
        size_t nadded;
        CHECK(filter_add(&memory->access, lookups, 2, &nadded));
        memory_end(memory);
        CHECK_INT(lookups[0].answer, ANSWER_NEW);
        CHECK_INT(lookups[1].answer, ANSWER_KNOWN);
    }
    memory_free(memory);
}

/* One batch may be so large that waiting for the next command would cost more than turning now. */
TEST(an_enormous_batch_turns_many) {
    const struct filter_options options = {.error = 1e-4,
                                           .capacity = 1000000,
                                           .expansion = 0,
                                           .seed = 5,
                                           .id = 7,
                                           .shard_bytes = 128 << 10};
    struct memory *memory = memory_new(&options);
    const struct layout *layout = &descriptor_of(memory)->layers[0].layout;
    CHECK(memory_add(memory, "u", 0, 200000) >= 199900);
    CHECK(count_young(memory, 0) < layout->nshards / 2);
    for (uint32_t j = 0; j < layout->nshards; j++)
        CHECK(memory_string(memory, 0, j)->nbytes <= HEADER_BYTES + layout_shard_bytes(layout));
    CHECK_INT(memory_count_new(memory, "u", 0, 200000), 0);
    memory_free(memory);
}

/* ---- loss ---- */

static void lose(struct memory *memory, uint32_t layer, uint32_t number) {
    struct string *string = memory_string(memory, layer, number);
    free(string->bytes);
    *string = (struct string){0};
}

TEST(a_lost_shard_refuses_the_whole_batch) {
    const struct filter_options options = {.error = 1e-4,
                                           .capacity = 1000000,
                                           .expansion = 0,
                                           .seed = 5,
                                           .id = 7,
                                           .shard_bytes = 256 << 10};
    struct memory *memory = memory_new(&options);
    CHECK_INT(memory_add(memory, "u", 0, 3000), 3000);
    lose(memory, 0, 2);
    CHECK_INT(memory_add(memory, "v", 0, 100), -1);
    CHECK_UINT(memory->access.bad_shard, 2);
    CHECK_INT(memory->access.status, SHARD_MISSING);
    CHECK_INT(memory_nlost, 1);
    CHECK_UINT(descriptor_nitems(descriptor_of(memory)), 3000);
    memory_free(memory);
    CHECK_INT(memory_nlost, 0);
}

/* A layer has up to 262144 handles, each with a name. Freeing them must not be part of a command.
 */
TEST(many_handles_are_freed_later) {
    struct filter_options options = {
        .error = 1e-4, .capacity = 1000000, .seed = 5, .id = 7, .shard_bytes = 4096};
    struct memory *memory = memory_new(&options);
    const uint32_t nshards = descriptor_of(memory)->layers[0].layout.nshards;
    CHECK(nshards > HANDLES_PER_PART);
    CHECK_INT(memory_add(memory, "u", 0, 1000), 1000);
    handles_free(&memory->handles, descriptor_of(memory), memory->access.supplier);
    CHECK_UINT(memory_npostponed, nshards);
    CHECK_INT(memory_count_new(memory, "u", 0, 1000), 0);
    memory_free(memory);
    CHECK_UINT(memory_npostponed, 2 * (uint64_t)nshards);
    options.capacity = 10000;
    memory = memory_new(&options);
    CHECK(descriptor_of(memory)->layers[0].layout.nshards > 1);
    CHECK_INT(memory_add(memory, "u", 0, 1000), 1000);
    memory_free(memory);
    CHECK_UINT(memory_npostponed, 0);
}

/* What is remembered of a shard takes more than its share of the descriptor: 262144 of them 15 MB.
 */
TEST(few_items_in_many_shards_take_few_handles) {
    struct filter_options options = {
        .error = 1e-4, .capacity = 100000000, .seed = 5, .id = 7, .shard_bytes = 4096};
    struct memory *memory = memory_new(&options);
    const uint32_t nshards = descriptor_of(memory)->layers[0].layout.nshards;
    CHECK(nshards > 50000);
    CHECK_INT(memory_count_new(memory, "u", 0, 1000), 1000);
    CHECK_UINT(handles_bytes(&memory->handles, 0, nshards), 0);
    CHECK_INT(memory_add(memory, "u", 0, 1), 1);
    CHECK(handles_bytes(&memory->handles, 0, nshards) < 20000);
    CHECK_INT(memory_add(memory, "u", 1, 20), 20);
    CHECK_INT(memory_count_new(memory, "u", 0, 21), 0);
    CHECK(handles_bytes(&memory->handles, 0, nshards) < 400000);
    memory_free(memory);
}

/* A replica that has lost a shard applies every item whose shard is sound. */
TEST(a_repeated_batch_leaves_out_what_is_lost) {
    const struct filter_options options = {.error = 1e-4,
                                           .capacity = 1000000,
                                           .expansion = 0,
                                           .seed = 5,
                                           .id = 7,
                                           .shard_bytes = 256 << 10};
    struct memory *memory = memory_new(&options);
    memory_add(memory, "u", 0, 3000);
    lose(memory, 0, 2);
    memory->repeats = true;
    const uint32_t nshards = descriptor_of(memory)->layers[0].layout.nshards;
    const long n = memory_add(memory, "v", 0, 1000);
    CHECK(n > 1000 - 3000 / (long)nshards && n < 1000);
    CHECK_INT(memory_nlost, 1);
    memory->repeats = false;
    long found = 0;
    for (uint64_t i = 0; i < 1000; i++) found += memory_count_new(memory, "v", i, 1) == 0;
    CHECK_INT(found, n);
    memory_free(memory);
}

/* The home of a joined layer is lost, and the next layer begins: what a replica may meet. */
TEST(a_repeated_batch_survives_the_loss_of_a_home) {
    const struct filter_options options = {.error = 0.01,
                                           .capacity = 100,
                                           .expansion = 2,
                                           .seed = 11,
                                           .id = 7,
                                           .shard_bytes = 1 << 20};
    struct memory *memory = memory_new(&options);
    memory_add(memory, "u", 0, 90);
    lose(memory, 0, 0);
    memory->repeats = true;
    CHECK_INT(memory_add(memory, "v", 0, 1000), 0);
    descriptor_of(memory)->layers[0].nitems = 100;
    CHECK_INT(memory_add(memory, "v", 0, 1000), 0);
    memory_free(memory);
}

/* ---- any bytes in a young string ---- */

TEST(any_bytes_in_a_young_string_are_safe) {
    const struct filter_options options = {.error = 1e-4,
                                           .capacity = 1000000,
                                           .expansion = 0,
                                           .seed = 5,
                                           .id = 7,
                                           .shard_bytes = 128 << 10};
    srandom(4711);
    for (int round = 0; round < 300; round++) {
        struct memory *memory = memory_new(&options);
        memory_add(memory, "u", 0, 400 + (size_t)random() % 400);
        for (uint32_t j = 0; j < descriptor_of(memory)->layers[0].layout.nshards; j++) {
            struct string *string = memory_string(memory, 0, j);
            if (!string->bytes) continue;
            const int kind = (int)(random() % 5);
            const size_t nbytes = string->nbytes - HEADER_BYTES;
            if (kind == 0) memset(string->bytes + HEADER_BYTES, 0xff, nbytes);
            if (kind == 1) /* the same entry everywhere */
                for (size_t at = 0; at < nbytes; at += YOUNG_ENTRY_BYTES)
                    memcpy(string->bytes + HEADER_BYTES + at, "\1\0\0\0abcdefgh", 12);
            if (kind == 2) header_set_nitems(string->bytes, (uint32_t)random());
            if (kind == 3) header_set_nitems(string->bytes, 0);
            if (kind == 4)
                for (size_t at = 0; at < nbytes; at++)
                    string->bytes[HEADER_BYTES + at] = (uint8_t)random();
        }
        CHECK(memory_add(memory, "v", 0, 3000) >= 0);
        CHECK_INT(memory_count_new(memory, "v", 0, 3000), 0);
        memory_free(memory);
    }
}

/* A young string whose length or header is not right is not the shard. */
TEST(a_young_string_of_another_length_is_damaged) {
    struct memory *memory = memory_new(&billion);
    memory_add(memory, "u", 0, 1);
    uint32_t number = 0;
    while (!memory_string(memory, 0, number)->bytes) number++;
    struct string *string = memory_string(memory, 0, number);
    const size_t right = string->nbytes;
    for (size_t nbytes = 0; nbytes < 2000; nbytes++) {
        uint8_t *copy = calloc(1, nbytes + 1);
        memcpy(copy, string->bytes, nbytes < right ? nbytes : right);
        struct string kept = *string;
        *string = (struct string){copy, nbytes};
        const size_t capacity = nbytes < HEADER_BYTES ? 1 : (nbytes - HEADER_BYTES) / 12;
        const bool possible = nbytes >= right && (nbytes - HEADER_BYTES) % 12 == 0 &&
                              (capacity & (capacity - 1)) == 0;
        CHECK_INT(memory_count_new(memory, "u", 0, 1), possible ? (nbytes == right ? 0 : 1) : -1);
        *string = kept;
        free(copy);
    }
    memory_free(memory);
}

/* ---- bodies from elsewhere ---- */

TEST(a_young_body_from_elsewhere_is_built_anew) {
    struct memory *memory = memory_new(&billion);
    uint8_t body[12 * 16];
    for (size_t at = 0; at < sizeof body; at += 12) memcpy(body + at, "\1\0\0\0abcdefgh", 12);
    memset(body, 0xff, 12); /* a block that does not exist */
    CHECK(access_fill(&memory->access, 0, 3, true, body, sizeof body) == NULL);
    memory_end(memory);
    CHECK_UINT(header_nitems(memory_string(memory, 0, 3)->bytes), 1);
    CHECK(access_fill(&memory->access, 0, 4, true, body, sizeof body - 12) != NULL);
    CHECK(access_fill(&memory->access, 0, 4, false, body, sizeof body) != NULL);
    CHECK(!layer_shard_created(&descriptor_of(memory)->layers[0], 4));
    memory_end(memory);
    check_totals(memory);
    memory_free(memory);
}

/* A table that is as we make them stays as it is, byte by byte. */
TEST(a_sound_young_body_is_taken_as_it_is) {
    struct memory *memory = memory_new(&billion);
    memory_add(memory, "u", 0, 20000);
    const struct string *string = memory_string(memory, 0, 1);
    struct memory *copy = memory_new(&billion);
    CHECK(access_fill(&copy->access, 0, 1, true, string->bytes + HEADER_BYTES,
                      string->nbytes - HEADER_BYTES) == NULL);
    memory_end(copy);
    CHECK_MEM(memory_string(copy, 0, 1)->bytes, memory_string(copy, 0, 1)->nbytes, string->bytes,
              string->nbytes);
    memory_free(copy);
    memory_free(memory);
}

/* ---- what the turn must not change ---- */

/* The item that makes a shard turn may find all its bits set by others. It was not in the table, so
 * it is new. If it counted as known, it would not be sent to replicas, and they would not turn the
 * shard. */
TEST(the_item_that_turns_a_shard_is_new) {
    const struct filter_options options = {.error = 0.25,
                                           .capacity = 200000,
                                           .expansion = 0,
                                           .seed = 3,
                                           .id = 7,
                                           .shard_bytes = 8 << 20};
    struct memory *memory = memory_new(&options);
    const struct layout *layout = &descriptor_of(memory)->layers[0].layout;
    REQUIRE(layout->nshards == 1 && young_begins(layout));
    const uint32_t limit = young_limit(layout, 0);
    CHECK_INT(memory_add(memory, "u", 0, limit), limit);
    const struct string *string = memory_string(memory, 0, 0);
    REQUIRE(header_form(string->bytes) == FORM_YOUNG);
    uint8_t *blocks = calloc(1, layout_shard_bytes(layout));
    young_pour(layout, string->bytes + HEADER_BYTES,
               (uint32_t)((string->nbytes - HEADER_BYTES) / YOUNG_ENTRY_BYTES), blocks);
    uint64_t n = 0;
    for (;; n++) {
        char item[32];
        const int length = snprintf(item, sizeof item, "v%llu", (unsigned long long)n);
        const struct item_hash hash = layout_hash(item, (size_t)length, 3);
        const uint32_t block = layout_place(layout, hash.place).block;
        if (layout_test(layout, blocks + block * layout_block_bytes(layout), hash.bits)) break;
    }
    CHECK_INT(memory_add(memory, "v", n, 1), 1);
    CHECK_UINT(count_young(memory, 0), 0);
    CHECK_UINT(descriptor_nitems(descriptor_of(memory)), limit + 1);
    CHECK_INT(memory_add(memory, "v", n, 1), 0);
    free(blocks);
    memory_free(memory);
}

/* ---- items chosen by an attacker ---- */

static bool shard_has(const struct memory *memory, const struct shard *shard, uint32_t block,
                      uint64_t bits) {
    const struct layout *layout = &descriptor_of(memory)->layers[0].layout;
    return shard->capacity
               ? young_find(shard->body, shard->capacity, block, bits)
               : layout_test(layout, shard->body + block * layout_block_bytes(layout), bits);
}

/* Without memory for a bitmap, an item that finds no place is refused and changes nothing. */
static void check_no_memory(struct memory *memory, struct shard *shard, uint32_t block,
                            uint64_t bits) {
    const uint32_t capacity = shard->capacity, nbytes = shard->nbytes;
    uint8_t *before = malloc(HEADER_BYTES + nbytes);
    memcpy(before, shard->body - HEADER_BYTES, HEADER_BYTES + nbytes);
    memory->full = true;
    CHECK_INT(access_add_young(&memory->access, 0, 0, shard, block, bits), ANSWER_OOM);
    CHECK_UINT(shard->capacity, capacity);
    CHECK_MEM(shard->body - HEADER_BYTES, HEADER_BYTES + shard->nbytes, before,
              HEADER_BYTES + nbytes);
    check_totals(memory);
    memory->full = false;
    free(before);
}

/* All items hash to the same entry: the shard turns before searches get long. */
TEST(items_aimed_at_one_entry_make_a_shard_turn) {
    struct memory *memory = memory_new(&billion);
    struct shard *shard = access_create(&memory->access, 0, 0);
    for (uint32_t i = 0; i < 600; i++) {
        CHECK_INT(shard->capacity != 0, i <= YOUNG_MAX_PROBES);
        if (i == YOUNG_MAX_PROBES) check_no_memory(memory, shard, i, (uint64_t)i << 40 | 5);
        if (shard->capacity)
            CHECK_INT(access_add_young(&memory->access, 0, 0, shard, i, (uint64_t)i << 40 | 5),
                      ANSWER_NEW);
    }
    for (uint32_t i = 0; i <= YOUNG_MAX_PROBES; i++)
        CHECK(shard_has(memory, shard, i, (uint64_t)i << 40 | 5));
    memory_end(memory);
    check_totals(memory);
    memory_free(memory);
}

/* Two groups that fit into a table in the order in which they came, but not in the order of the
 * table, which wraps. */
TEST(a_table_that_can_not_be_doubled_turns) {
    struct memory *memory = memory_new(&billion);
    struct shard *shard = access_create(&memory->access, 0, 0);
    uint64_t bits[769];
    for (uint32_t i = 0; i < 769; i++) {
        const uint64_t home = i < 300 ? 2047 - 99 : i < 600 ? 150 : 600 + i % 300;
        bits[i] = (uint64_t)(i + 1) << 40 | home;
        if (i == 768) check_no_memory(memory, shard, i, bits[i]);
        CHECK_INT(access_add_young(&memory->access, 0, 0, shard, i, bits[i]), ANSWER_NEW);
        if (i == 767) CHECK_UINT(shard->capacity, 1024);
    }
    CHECK_UINT(shard->capacity, 0);
    for (uint32_t i = 0; i < 769; i++) CHECK(shard_has(memory, shard, i, bits[i]));
    memory_end(memory);
    check_totals(memory);
    memory_free(memory);
}

/* ---- counts ---- */

/* An old state of a string is put back again and again. The count of bytes becomes wrong, but never
 * so wrong that the descriptor can't be read. */
TEST(old_strings_put_back_do_not_spoil_the_descriptor) {
    const struct filter_options options = {.error = 1e-3,
                                           .capacity = 100000,
                                           .expansion = 0,
                                           .seed = 5,
                                           .id = 7,
                                           .shard_bytes = 8 << 20};
    struct memory *memory = memory_new(&options);
    memory_add(memory, "u", 0, 10);
    struct string *string = memory_string(memory, 0, 0);
    uint8_t *old = malloc(string->nbytes);
    const size_t nbytes = string->nbytes;
    memcpy(old, string->bytes, nbytes);
    for (uint64_t round = 0; round < 5; round++) {
        memory_add(memory, "v", round * 1000, 1000);
        CHECK_UINT(count_young(memory, 0), 0);
        CHECK(descriptor_problem(descriptor_of(memory)) == NULL);
        CHECK_INT(memory_nbytes, (long long)descriptor_nstored(descriptor_of(memory)));
        free(string->bytes);
        string->bytes = malloc(nbytes);
        string->nbytes = nbytes;
        memcpy(string->bytes, old, nbytes);
    }
    free(old);
    memory_free(memory);
}

/* In a dump a table is a single part, however large the shard is and however long it waited. */
TEST(a_table_is_never_longer_than_a_part_of_a_dump) {
    for (uint32_t nblocks = 512; nblocks <= 4u << 20; nblocks *= 2) {
        const struct layout layout = {
            .nshards = 1000, .nblocks = nblocks, .block_log2 = 10, .nprobes = 9};
        for (uint32_t shard = 0; shard < 1000; shard++) {
            const size_t nbytes = young_bytes(young_capacity_for(young_last_limit(&layout, shard)));
            CHECK(nbytes <= YOUNG_MAX_BYTES && nbytes < layout_shard_bytes(&layout));
            CHECK(young_capacity(&layout, nbytes) != 0);
        }
        CHECK_UINT(young_capacity(&layout, young_bytes(1u << 20)), 0);
    }
    for (uint32_t nblocks = 1; nblocks < 2048; nblocks++) {
        const struct layout layout = {
            .nshards = 10, .nblocks = nblocks, .block_log2 = 10, .nprobes = 9};
        CHECK(young_capacity(&layout, young_bytes(YOUNG_FIRST)) == YOUNG_FIRST);
        for (uint32_t capacity = YOUNG_FIRST; capacity <= 1u << 20; capacity *= 2)
            CHECK(young_capacity(&layout, young_bytes(capacity)) == 0 ||
                  young_bytes(capacity) < layout_shard_bytes(&layout));
    }
}
