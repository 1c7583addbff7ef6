/* The recipes' hash. The expected positions were computed by a transcription of the recipe into
 * Python, with whole numbers of any size; tests/clients/test_adopt.py runs that transcription
 * against a server. */
#include "core/recipe.h"
#include "core/encoding.h"
#include "check.h"
#include "core/descriptor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct recipe_item item_of(const struct recipe *recipe, const char *bytes, size_t nbytes) {
    struct recipe_item item = {.bytes = bytes, .nbytes = nbytes};
    recipe_hash(recipe, &item);
    return item;
}

static void check_positions(const struct recipe *recipe, const char *bytes, size_t nbytes,
                            const uint32_t *expected) {
    const struct recipe_item item = item_of(recipe, bytes, nbytes);
    uint32_t positions[RECIPE_MAX_SEEDS];
    recipe_positions(recipe, &item, positions);
    for (unsigned i = 0; i < recipe->nseeds; i++) CHECK_UINT(positions[i], expected[i]);
}

TEST(the_default_recipe_sets_the_bits_that_python_sets) {
    char xs[200];
    memset(xs, 'x', sizeof xs);
    const struct {
        const char *bytes;
        size_t nbytes;
        uint32_t positions[7];
    } known[] = {
        {"http://example.com/",
         19,
         {133804376, 1323470612, 1366675404, 731127144, 254567716, 791895448, 1826347976}},
        {"https://example.com/a?b=1",
         25,
         {2038623490, 76189520, 1207811708, 280824602, 1982504600, 1275190114, 1303245994}},
        {"", 0, {2063491735, 1315108509, 509537817, 529789967, 261803845, 1496499831, 937358815}},
        {"\x00\xff\x80 bytes",
         9,
         {1820515483, 998286339, 1299436251, 1793966251, 91490931, 1804375515, 1571419275}},
        {xs,
         sizeof xs,
         {973069758, 1188682416, 676075900, 1963229526, 728601368, 2129435934, 1462731366}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        check_positions(&recipe_default, known[i].bytes, known[i].nbytes, known[i].positions);
}

TEST(any_seed_and_number_of_bits_gives_the_low_bits_of_an_unbounded_number) {
    struct recipe recipe = {.digest = RECIPE_MD5,
                            .nstrings = 1,
                            .log2_bits = 32,
                            .nseeds = 4,
                            .seeds = {0, 1, UINT64_MAX, (1ull << 63) + 12345}};
    check_positions(&recipe, "http://example.com/", 19,
                    (const uint32_t[]){2369, 83770064, 100, 2745453760});
    recipe = (struct recipe){
        .digest = RECIPE_MD5, .nstrings = 1, .log2_bits = 10, .nseeds = 2, .seeds = {3, 10}};
    check_positions(&recipe, "http://example.com/", 19, (const uint32_t[]){28, 907});
}

TEST(without_a_digest_the_item_is_the_value) {
    struct recipe recipe = {.digest = RECIPE_NONE,
                            .nstrings = 1,
                            .log2_bits = 30,
                            .nseeds = 6,
                            .seeds = {0, 1, 2, 3, 4, 5}};
    check_positions(
        &recipe, "9c17e047f58f9220a7008d4f18152fee4d111d14", 40,
        (const uint32_t[]){2653, 261261022, 268739287, 233654392, 867705433, 760064818});
    check_positions(&recipe, "", 0, (const uint32_t[]){0, 0, 0, 0, 0, 0});
    recipe = (struct recipe){.digest = RECIPE_NONE,
                             .nstrings = 1,
                             .log2_bits = 32,
                             .nseeds = 2,
                             .seeds = {1, 1ull << 40}};
    check_positions(&recipe, "\xff\x80\x00", 3, (const uint32_t[]){1276, 383});
}

TEST(two_hexadecimal_digits_choose_the_string) {
    struct recipe recipe = recipe_default;
    const struct recipe_item item = item_of(&recipe, "http://example.com/", 19); /* a6… */
    const struct { uint32_t nstrings, string; } known[] = {{1, 0}, {2, 0}, {5, 1}, {256, 166}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        recipe.nstrings = known[i].nstrings;
        CHECK_UINT(recipe_string(&recipe, &item), known[i].string);
    }
}

TEST(strings_end_where_their_highest_bit_is) {
    struct recipe recipe = recipe_default;
    recipe.log2_bits = 10;
    const struct recipe_item item = item_of(&recipe, "http://example.com/", 19);
    uint32_t positions[RECIPE_MAX_SEEDS], highest = 0;
    recipe_positions(&recipe, &item, positions);
    for (unsigned i = 0; i < recipe.nseeds; i++)
        if (positions[i] > highest) highest = positions[i];
    const size_t nbytes = recipe_length(&recipe, &item);
    CHECK_UINT(nbytes, highest / 8 + 1);
    uint8_t *string = calloc(1, nbytes); /* exactly as long: the sanitizer watches its end */
    CHECK(!recipe_test(&recipe, &item, string, nbytes));
    CHECK(!recipe_test(&recipe, &item, string, 0));
    CHECK(recipe_set(&recipe, &item, string));
    CHECK(recipe_test(&recipe, &item, string, nbytes));
    CHECK(!recipe_test(&recipe, &item, string, nbytes - 1));
    CHECK(!recipe_set(&recipe, &item, string));
    for (uint32_t bit = 0; bit < nbytes * 8; bit++) {
        bool expected = false;
        for (unsigned i = 0; i < recipe.nseeds; i++) expected |= positions[i] == bit;
        CHECK_INT(string[bit / 8] >> (7 - bit % 8) & 1, expected);
    }
    free(string);
}

TEST(the_empty_item_is_never_contained) {
    struct recipe recipe = recipe_default;
    recipe.log2_bits = 10;
    uint8_t string[128];
    memset(string, 0xff, sizeof string);
    const struct recipe_item empty = item_of(&recipe, "", 0), other = item_of(&recipe, "a", 1);
    CHECK(!recipe_test(&recipe, &empty, string, sizeof string));
    CHECK(recipe_test(&recipe, &other, string, sizeof string));
    CHECK(!recipe_set(&recipe, &empty, string));
}

/* No false negative, ever: many items in small strings. */
TEST(what_was_set_is_found) {
    struct recipe recipe = recipe_default;
    recipe.log2_bits = 16;
    recipe.nstrings = 3;
    static uint8_t strings[3][1 << 13];
    memset(strings, 0, sizeof strings);
    char text[32];
    for (int i = 0; i < 5000; i++) {
        const size_t n = (size_t)snprintf(text, sizeof text, "item-%d", i);
        const struct recipe_item item = item_of(&recipe, text, n);
        recipe_set(&recipe, &item, strings[recipe_string(&recipe, &item)]);
    }
    for (int i = 0; i < 5000; i++) {
        const size_t n = (size_t)snprintf(text, sizeof text, "item-%d", i);
        const struct recipe_item item = item_of(&recipe, text, n);
        CHECK(recipe_test(&recipe, &item, strings[recipe_string(&recipe, &item)], 1 << 13));
    }
}

TEST(capacity_is_what_the_recipe_promises) {
    struct recipe recipe = recipe_default;
    CHECK_RANGE((double)recipe_capacity(&recipe), 93e6, 94e6);
    const uint64_t one = recipe_capacity(&recipe);
    recipe.nstrings = 6;
    CHECK_UINT(recipe_capacity(&recipe), 6 * one);
    recipe.nstrings = 1;
    recipe.log2_bits = 30;
    CHECK_RANGE((double)recipe_capacity(&recipe), (double)one / 2 - 1, (double)one / 2 + 1);
    recipe.nseeds = 6;
    CHECK_RANGE((double)recipe_capacity(&recipe), 42e6, 43e6);
    recipe.log2_bits = 9;
    recipe.nseeds = 1;
    CHECK_UINT(recipe_capacity(&recipe), 1); /* never none */
}

TEST(items_are_estimated_from_the_fill) {
    struct recipe recipe = recipe_default;
    CHECK_UINT(recipe_estimate(&recipe, 0), 0);
    CHECK_UINT(recipe_estimate(&recipe, 7 / 2147483648.0), 1);
    CHECK_UINT(recipe_estimate(&recipe, 1 / 2147483648.0), 1);
    CHECK_RANGE((double)recipe_estimate(&recipe, 0.5), 212.6e6, 212.7e6); /* ln 2 * 2^31 / 7 */
    CHECK_RANGE((double)recipe_estimate(&recipe, 1), 212.7e6, 1e10);
    CHECK_RANGE((double)recipe_estimate(&recipe, 2), 212.7e6, 1e10);
}

TEST(impossible_recipes_are_refused) {
    CHECK(recipe_problem(&recipe_default) == NULL);
    struct recipe recipe = recipe_default;
    recipe.nstrings = 0;
    CHECK(recipe_problem(&recipe) != NULL);
    recipe.nstrings = 257;
    CHECK(recipe_problem(&recipe) != NULL);
    recipe.nstrings = 256;
    CHECK(recipe_problem(&recipe) == NULL);
    recipe.digest = RECIPE_NONE;
    CHECK(recipe_problem(&recipe) != NULL);
    recipe.nstrings = 1;
    CHECK(recipe_problem(&recipe) == NULL);
    recipe.digest = 3;
    CHECK(recipe_problem(&recipe) != NULL);
    recipe = recipe_default;
    recipe.log2_bits = 8;
    CHECK(recipe_problem(&recipe) != NULL);
    recipe.log2_bits = 33;
    CHECK(recipe_problem(&recipe) != NULL);
    recipe = recipe_default;
    recipe.nseeds = 0;
    CHECK(recipe_problem(&recipe) != NULL);
    recipe.nseeds = 65;
    CHECK(recipe_problem(&recipe) != NULL);
}

/* ---- in the descriptor ---- */

static struct descriptor *descriptor_with(const struct adoption *adoption) {
    struct descriptor *descriptor = descriptor_new("tag", 3);
    descriptor->id = 1;
    descriptor->error = RECIPE_ERROR;
    descriptor->shard_bytes = 1 << 20;
    descriptor->expansion = 2;
    CHECK(descriptor_add_adopted(descriptor, adoption));
    return descriptor;
}

static struct descriptor *encode_and_decode(const struct descriptor *descriptor) {
    const size_t nbytes = descriptor_encoded_size(descriptor);
    uint8_t *bytes = malloc(nbytes);
    const char *problem;
    descriptor_encode(descriptor, bytes);
    struct descriptor *decoded = descriptor_decode(bytes, nbytes, &problem);
    if (!decoded) CHECK_FAIL("%s", problem);
    for (size_t n = 0; n < nbytes; n++) {
        uint8_t *cut = malloc(n); /* of exactly this size: the sanitizer watches its end */
        memcpy(cut, bytes, n);
        CHECK(descriptor_decode(cut, n, &problem) == NULL);
        free(cut);
    }
    free(bytes);
    return decoded;
}

TEST(an_adopted_layer_is_encoded_and_decoded) {
    char prefix[] = "a\0b:";
    struct adoption adoption = {
        .recipe = recipe_default, .numbered = true, .prefix = prefix, .prefix_length = 4};
    adoption.recipe.nstrings = 20;
    adoption.recipe.log2_bits = 32;
    adoption.recipe.seeds[6] = UINT64_MAX;
    struct descriptor *descriptor = descriptor_with(&adoption);
    struct layer *layer = &descriptor->layers[0];
    layer->nitems = layer->capacity + 5; /* an estimate may say so */
    layer_mark_created(layer, 19);
    const struct layout layout = {.nshards = 1, .nblocks = 4, .block_log2 = 9, .nprobes = 3};
    CHECK(descriptor_add_layer(descriptor, &layout, 10));
    layer = &descriptor->layers[0]; /* it was moved */
    struct descriptor *decoded = encode_and_decode(descriptor);
    REQUIRE(decoded != NULL);
    const struct layer *other = &decoded->layers[0];
    CHECK_UINT(decoded->nlayers, 2);
    CHECK_INT(other->kind, LAYER_ADOPTED);
    CHECK_UINT(other->nitems, layer->nitems);
    CHECK_UINT(other->capacity, layer->capacity);
    CHECK(layer_shard_created(other, 19) && !layer_shard_created(other, 18));
    CHECK(!layer_owns_shards(other));
    CHECK(other->adoption->numbered);
    CHECK_MEM(other->adoption->prefix, other->adoption->prefix_length, prefix, 4);
    CHECK_UINT(other->adoption->recipe.nstrings, 20);
    CHECK_UINT(other->adoption->recipe.log2_bits, 32);
    CHECK_UINT(other->adoption->recipe.nseeds, 7);
    CHECK_UINT(other->adoption->recipe.seeds[6], UINT64_MAX);
    CHECK(decoded->layers[1].adoption == NULL);
    descriptor_free(decoded);
    descriptor_free(descriptor);
}

TEST(only_own_strings_may_be_removed) {
    char prefix[] = "bits";
    const struct adoption adoption = {
        .recipe = recipe_default, .prefix = prefix, .prefix_length = 4};
    struct descriptor *descriptor = descriptor_with(&adoption);
    layer_mark_created(&descriptor->layers[0], 0);
    CHECK_UINT(descriptor_nshards(descriptor), 1);
    CHECK_UINT(descriptor_nstored(descriptor), 0);
    descriptor_disown(descriptor);
    CHECK_UINT(descriptor_nshards(descriptor), 0);
    layer_mark_created(&descriptor->layers[0], 0);
    descriptor_own_adopted(descriptor);
    CHECK(layer_owns_shards(&descriptor->layers[0]));
    descriptor_disown(descriptor);
    CHECK_UINT(descriptor_nshards(descriptor), 1);
    struct descriptor *decoded = encode_and_decode(descriptor);
    REQUIRE(decoded != NULL);
    CHECK(layer_owns_shards(&decoded->layers[0]));
    descriptor_free(decoded);
    descriptor_free(descriptor);
}

TEST(impossible_adopted_layers_are_refused) {
    char prefix[] = "bits";
    const struct adoption adoption = {
        .recipe = recipe_default, .prefix = prefix, .prefix_length = 4};
    struct descriptor *descriptor = descriptor_with(&adoption);
    struct layer *layer = &descriptor->layers[0];
    CHECK(descriptor_problem(descriptor) == NULL);
    layer->layout.nprobes++;
    CHECK(descriptor_problem(descriptor) != NULL);
    layer->layout.nprobes--;
    layer->nitems = (1ull << 40) + 1;
    CHECK(descriptor_problem(descriptor) != NULL);
    layer->nitems = 0;
    layer->adoption->owned = true; /* and has a name */
    CHECK(descriptor_problem(descriptor) != NULL);
    layer->adoption->owned = false;
    CHECK(descriptor_begin_load(descriptor, &(struct load){.origin = LOAD_OURS, .next = 5}));
    CHECK(descriptor_problem(descriptor) != NULL);
    descriptor_end_load(descriptor);
    CHECK(descriptor_add_adopted(descriptor, &adoption)); /* a second one */
    CHECK(descriptor_problem(descriptor) != NULL);
    descriptor_free(descriptor);
}
