/* Words into numbers and options. */
#include "check.h"
#include "core/options.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))
#define ALL      OPTIONS_INSERT

static struct word word(const char *text) {
    return (struct word){text, strlen(text)};
}

/* What is no number of any kind. */
static const char *const junk[] = {"",    " ",   "abc",  "nan",   "NAN", "inf",  "infinity", "-inf",
                                   "-1",  "+1",  "0x10", "0x1p3", "5x",  "5 ",   " 5",       "5\n",
                                   "\t5", "--5", "5,0",  "1.2.3", "1e",  "1e+",  "1e-",      "e5",
                                   ".",   ".e1", "٣",    "1 2",   "-0",  "1e5e5"};

TEST(whole_numbers) {
    static const struct {
        const char *text;
        uint64_t number;
    } good[] = {{"0", 0}, {"1", 1}, {"42", 42}, {"18446744073709551615", UINT64_MAX}};
    static const char *const bad[] = {
        "00", "01", "1.0", "1e3", ".5", "18446744073709551616", "99999999999999999999999"};
    uint64_t number;
    for (size_t i = 0; i < N(good); i++) {
        CHECK(word_to_u64(word(good[i].text), &number));
        CHECK_UINT(number, good[i].number);
    }
    number = 7;
    for (size_t i = 0; i < N(bad); i++) CHECK(!word_to_u64(word(bad[i]), &number));
    for (size_t i = 0; i < N(junk); i++) CHECK(!word_to_u64(word(junk[i]), &number));
    CHECK(!word_to_u64((struct word){"1\0", 2}, &number));
    CHECK_UINT(number, 7); /* untouched by failures */
    CHECK(word_to_u64((struct word){"123", 2}, &number));
    CHECK_UINT(number, 12); /* reads no further than the word goes */
}

TEST(bytes_with_units) {
    static const struct {
        const char *text;
        uint64_t number;
    } good[] = {{"0", 0},           {"4096", 4096},      {"7b", 7},          {"2k", 2000},
                {"2kb", 2048},      {"3m", 3000000},     {"32mb", 33554432}, {"32MB", 33554432},
                {"1g", 1000000000}, {"1gb", 1ull << 30}, {"1Gb", 1ull << 30}};
    static const char *const bad[] = {"kb",           "1kib", "1 kb",
                                      "1.5mb",        "1tb",  "1bb",
                                      "01kb",         "1kb ", "18446744073709551615k",
                                      "17179869184gb"};
    uint64_t number;
    for (size_t i = 0; i < N(good); i++) {
        CHECK(word_to_bytes(word(good[i].text), &number));
        CHECK_UINT(number, good[i].number);
    }
    for (size_t i = 0; i < N(bad); i++)
        if (!CHECK(!word_to_bytes(word(bad[i]), &number))) CHECK_FAIL("%s", bad[i]);
    for (size_t i = 0; i < N(junk); i++)
        if (!CHECK(!word_to_bytes(word(junk[i]), &number))) CHECK_FAIL("%s", junk[i]);
    CHECK(!word_to_bytes((struct word){"1k\0", 3}, &number));
}

TEST(fractions) {
    static const struct {
        const char *text;
        double number;
    } good[] = {{"0", 0},
                {"0.01", 0.01},
                {".5", 0.5},
                {"5.", 5},
                {"1e-2", 1e-2},
                {"1E-2", 1e-2},
                {"1e+2", 100},
                {"12.5e-1", 1.25},
                {"007", 7},
                {"1e-999", 0},
                {"0.1000000000000000055511151231257827", 0.1}};
    double number;
    for (size_t i = 0; i < N(good); i++) {
        if (!CHECK(word_to_double(word(good[i].text), &number))) CHECK_FAIL("%s", good[i].text);
        CHECK(number == good[i].number);
    }
    CHECK(word_to_double(word("1e999"), &number));
    CHECK(number > DBL_MAX); /* a number, but no rate: refused by options_set_error */
    for (size_t i = 0; i < N(junk); i++)
        if (!CHECK(!word_to_double(word(junk[i]), &number))) CHECK_FAIL("%s", junk[i]);
    CHECK(!word_to_double((struct word){"0.5\0", 4}, &number));
    CHECK(!word_to_double((struct word){"0\0.5", 4}, &number));
    char longest[64];
    memset(longest, '1', sizeof longest);
    CHECK(word_to_double((struct word){longest, 63}, &number));
    CHECK(!word_to_double((struct word){longest, 64}, &number));
}

TEST(words_are_compared_whole_and_without_case) {
    CHECK(word_is(word("items"), "ITEMS"));
    CHECK(word_is(word("ItEmS"), "ITEMS"));
    CHECK(!word_is(word("ITEM"), "ITEMS"));
    CHECK(!word_is(word("ITEMSX"), "ITEMS"));
    CHECK(!word_is(word(""), "ITEMS"));
    CHECK(!word_is((struct word){"ITEMS\0", 6}, "ITEMS"));
    CHECK(word_is((struct word){"ITEMSX", 5}, "ITEMS"));
}

TEST(error_rates) {
    struct options options = {0};
    CHECK(options_set_error(&options, word("0.001")));
    CHECK(options.error == 0.001);
    CHECK(options_set_error(&options, word("1e-15")));
    CHECK(options_set_error(&options, word("0.25")));
    CHECK(options.error == 0.25);
    CHECK(options_set_error(&options, word("0.999")));
    CHECK(options.error == 0.25); /* capped */
    static const char *const bad[] = {"0", "0.0", "1", "1.0", "2", "1e999", "1e-999", "9e-16"};
    for (size_t i = 0; i < N(bad); i++) {
        options.problem[0] = '\0';
        CHECK(!options_set_error(&options, word(bad[i])));
        CHECK(strncmp(options.problem, "ERR bad error rate", 18) == 0);
    }
    for (size_t i = 0; i < N(junk); i++) CHECK(!options_set_error(&options, word(junk[i])));
    CHECK(options.error == 0.25);
}

TEST(capacities) {
    struct options options = {0};
    CHECK(options_set_capacity(&options, word("1")));
    CHECK(options_set_capacity(&options, word("1099511627776")));
    CHECK_UINT(options.capacity, 1ull << 40);
    static const char *const bad[] = {"0", "1099511627777", "18446744073709551616", "1e3", "1k"};
    for (size_t i = 0; i < N(bad); i++) {
        options.problem[0] = '\0';
        CHECK(!options_set_capacity(&options, word(bad[i])));
        CHECK(strncmp(options.problem, "ERR bad capacity", 16) == 0);
    }
    for (size_t i = 0; i < N(junk); i++) CHECK(!options_set_capacity(&options, word(junk[i])));
    CHECK_UINT(options.capacity, 1ull << 40);
}

/* Splits at blanks and parses, with defaults that no test sets. */
static bool parse(struct options *options, unsigned allowed, const char *line) {
    static char copy[1024];
    static char prefix[] = "default";
    struct word words[100];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *save, *at = strtok_r(copy, " ", &save); at; at = strtok_r(NULL, " ", &save))
        words[n++] = word(at);
    *options = (struct options){
        .error = 0.125,
        .capacity = 77,
        .expansion = 9,
        .shard_bytes = 5555,
        .count = 55,
        .adoption = {.recipe = recipe_default, .prefix = prefix, .prefix_length = 7}};
    return options_parse(options, words, n, allowed);
}

TEST(options_set_their_fields_and_no_others) {
    struct options o;
    CHECK(parse(&o, ALL, ""));
    CHECK(o.given == 0 && o.error == 0.125 && o.capacity == 77 && o.expansion == 9 &&
          o.shard_bytes == 5555 && o.nwords == 0);
    CHECK(parse(&o, ALL, "ERROR 0.01"));
    CHECK(o.given == OPTION_ERROR && o.error == 0.01 && o.capacity == 77 && o.nwords == 2);
    CHECK(parse(&o, ALL, "capacity 5"));
    CHECK(o.given == OPTION_CAPACITY && o.capacity == 5 && o.error == 0.125);
    CHECK(parse(&o, ALL, "Expansion 4"));
    CHECK(o.given == OPTION_EXPANSION && o.expansion == 4);
    CHECK(parse(&o, ALL, "EXPANSION 0"));
    CHECK_UINT(o.expansion, 0);
    CHECK(parse(&o, ALL, "EXPANSION 32768"));
    CHECK(parse(&o, ALL, "NONSCALING"));
    CHECK(o.given == OPTION_NONSCALING && o.expansion == 0 && o.nwords == 1);
    CHECK(parse(&o, ALL, "SEED 18446744073709551615"));
    CHECK(o.given == OPTION_SEED && o.seed == UINT64_MAX);
    CHECK(parse(&o, ALL, "SEED 0"));
    CHECK(o.given == OPTION_SEED && o.seed == 0);
    CHECK(parse(&o, ALL, "SHARDSIZE 1mb"));
    CHECK(o.given == OPTION_SHARDSIZE && o.shard_bytes == 1 << 20);
    CHECK(parse(&o, ALL, "NOCREATE ITEMS a"));
    CHECK(o.given == (OPTION_NOCREATE | OPTION_ITEMS) && o.nwords == 2);
    CHECK(
        parse(&o, ALL, "SHARDSIZE 8kb SEED 3 CAPACITY 10 EXPANSION 3 ERROR 0.5 ITEMS ITEMS SEED"));
    CHECK(o.error == 0.25 && o.capacity == 10 && o.expansion == 3 && o.seed == 3 &&
          o.shard_bytes == 8192 && o.nwords == 11);
    /* As many words as options can take. */
    CHECK(parse(&o, ALL, "ERROR 0.1 CAPACITY 1 SEED 1 SHARDSIZE 4096 NONSCALING ITEMS x"));
    CHECK(o.nwords < options_max_words(ALL));
}

TEST(options_of_adopted_strings) {
    struct options o;
    CHECK(parse(&o, OPTIONS_ADOPT, ""));
    CHECK(o.given == 0 && o.nwords == 0);
    CHECK(o.adoption.prefix_length == 7 && !o.adoption.numbered);
    CHECK(memcmp(&o.adoption.recipe, &recipe_default, sizeof recipe_default) == 0);
    CHECK(parse(&o, OPTIONS_ADOPT, "prefix seen: blocks 256 bits 9 digest md5 expansion 4"));
    CHECK(o.adoption.prefix_length == 5 && memcmp(o.adoption.prefix, "seen:", 5) == 0);
    CHECK(o.adoption.numbered && o.adoption.recipe.nstrings == 256);
    CHECK(o.adoption.recipe.log2_bits == 9 && o.adoption.recipe.digest == RECIPE_MD5);
    CHECK(o.expansion == 4 && o.nwords == 10);
    CHECK(parse(&o, OPTIONS_ADOPT, "SEEDS 3 5 18446744073709551615 0 DIGEST NONE NONSCALING"));
    CHECK(o.adoption.recipe.nseeds == 3 && o.adoption.recipe.seeds[0] == 5 &&
          o.adoption.recipe.seeds[1] == UINT64_MAX && o.adoption.recipe.seeds[2] == 0);
    CHECK(o.adoption.recipe.digest == RECIPE_NONE && o.expansion == 0 && o.nwords == 8);
    CHECK(parse(&o, OPTIONS_ADOPT, "BITS 32 BLOCKS 1"));
    CHECK(o.adoption.numbered && o.adoption.recipe.log2_bits == 32);
    char line[1024] = "PREFIX p BLOCKS 2 BITS 20 DIGEST MD5 EXPANSION 2 SEEDS 64";
    for (int i = 0; i < 64; i++) snprintf(line + strlen(line), 16, " %d", i);
    CHECK(parse(&o, OPTIONS_ADOPT, line));
    CHECK(o.adoption.recipe.nseeds == 64 && o.adoption.recipe.seeds[63] == 63);
    CHECK(o.nwords < options_max_words(OPTIONS_ADOPT));
    CHECK(options_max_words(OPTIONS_ADOPT) <= OPTIONS_MAX_WORDS);
}

TEST(bad_options_of_adopted_strings) {
    static const struct {
        const char *line, *problem;
    } cases[] = {
        {"CAPACITY 5", "ERR Unknown argument received: 'CAPACITY'"},
        {"BITS 9 bits 9", "ERR option 'bits' is given twice"},
        {"PREFIX", "ERR option 'PREFIX' needs a value"},
        {"BLOCKS 0", "ERR bad number of blocks: a number from 1 to 256 is needed"},
        {"BLOCKS 257", "ERR bad number of blocks: a number from 1 to 256 is needed"},
        {"BITS 8", "ERR bad bits: a number from 9 to 32 is needed, for strings of 2^bits bits"},
        {"BITS 33", "ERR bad bits: a number from 9 to 32 is needed, for strings of 2^bits bits"},
        {"SEEDS", "ERR option 'SEEDS' needs a value"},
        {"SEEDS 0", "ERR bad number of seeds: a number from 1 to 64 is needed"},
        {"SEEDS 65", "ERR bad number of seeds: a number from 1 to 64 is needed"},
        {"SEEDS 3 1 2", "ERR fewer seeds than the number after SEEDS says"},
        {"SEEDS 2 1 DIGEST MD5",
         "ERR bad seed: a whole number from 0 to 18446744073709551615 is needed"},
        {"DIGEST SHA1", "ERR bad digest: MD5 or NONE is needed"},
        {"EXPANSION 2 NONSCALING",
         "ERR Nonscaling filters cannot expand: give EXPANSION or NONSCALING, not both"},
        {"BLOCKS 2 DIGEST NONE", "ERR several strings need the digest that chooses one of them"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct options o;
        if (!CHECK(!parse(&o, OPTIONS_ADOPT, cases[i].line))) CHECK_FAIL("%s", cases[i].line);
        CHECK_STR(o.problem, cases[i].problem);
    }
    static char huge[DESCRIPTOR_MAX_TAG + 1];
    memset(huge, 'p', sizeof huge);
    struct word words[] = {{"PREFIX", 6}, {huge, DESCRIPTOR_MAX_TAG}};
    struct options o = {.adoption = {.recipe = recipe_default}};
    CHECK(options_parse(&o, words, 2, OPTIONS_ADOPT));
    CHECK_UINT(o.adoption.prefix_length, DESCRIPTOR_MAX_TAG);
    words[1].length = DESCRIPTOR_MAX_TAG + 1;
    o.given = 0;
    CHECK(!options_parse(&o, words, 2, OPTIONS_ADOPT));
    CHECK_STR(o.problem, "ERR bad prefix: from 1 to 1024 bytes are needed");
    words[1].length = 0;
    o.given = 0;
    CHECK(!options_parse(&o, words, 2, OPTIONS_ADOPT));
}

TEST(parts_of_a_list_of_shards) {
    struct options o;
    CHECK(parse(&o, OPTIONS_SHARDS, ""));
    CHECK(o.given == 0 && o.from_layer == 0 && o.from_shard == 0 && o.count == 55);
    CHECK(parse(&o, OPTIONS_SHARDS, "count 1000 from 3 18446744073709551615"));
    CHECK(o.count == 1000 && o.from_layer == 3 && o.from_shard == UINT64_MAX && o.nwords == 5);
    static const struct {
        const char *line, *problem;
    } cases[] = {
        {"FROM", "ERR option 'FROM' needs two values"},
        {"FROM 0", "ERR option 'FROM' needs two values"},
        {"FROM 0 -1", "ERR bad part: FROM needs the numbers of a layer and of a shard"},
        {"FROM a 0", "ERR bad part: FROM needs the numbers of a layer and of a shard"},
        {"FROM 0 0 0", "ERR Unknown argument received: '0'"},
        {"FROM 0 0 FROM 0", "ERR option 'FROM' is given twice"},
        {"COUNT", "ERR option 'COUNT' needs a value"},
        {"COUNT 0", "ERR bad part: COUNT needs a whole number from 1 to 1000"},
        {"COUNT 1001", "ERR bad part: COUNT needs a whole number from 1 to 1000"},
        {"ITEMS", "ERR Unknown argument received: 'ITEMS'"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        if (!CHECK(!parse(&o, OPTIONS_SHARDS, cases[i].line))) CHECK_FAIL("%s", cases[i].line);
        CHECK_STR(o.problem, cases[i].problem);
    }
}

TEST(bad_options_are_refused_in_words) {
    static const struct {
        unsigned allowed;
        const char *line, *problem;
    } cases[] = {
        {ALL, "WHATEVER", "ERR Unknown argument received: 'WHATEVER'"},
        {ALL, "ERROR 0.1 b\001d", "ERR Unknown argument received: 'b?d'"},
        {ALL & ~OPTION_NOCREATE, "NOCREATE", "ERR Unknown argument received: 'NOCREATE'"},
        {OPTION_EXPANSION, "ITEMS", "ERR Unknown argument received: 'ITEMS'"},
        {ALL, "SEED 1 seed 1", "ERR option 'seed' is given twice"},
        {ALL, "NONSCALING NONSCALING", "ERR option 'NONSCALING' is given twice"},
        {ALL, "EXPANSION", "ERR option 'EXPANSION' needs a value"},
        {ALL, "ERROR", "ERR option 'ERROR' needs a value"},
        {ALL, "ERROR ITEMS", "ERR bad error rate: a decimal number is needed"},
        {ALL, "ERROR 1", "ERR bad error rate: error rate must be in the range (0, 1)"},
        {ALL, "ERROR 1e-16", "ERR bad error rate: less than 1e-15 can't be promised"},
        {ALL, "CAPACITY 0", "ERR bad capacity: capacity must be in the range [1, 1099511627776]"},
        {ALL, "EXPANSION 32769", "ERR bad expansion: expansion must be in the range [0, 32768]"},
        {ALL, "EXPANSION -1", "ERR bad expansion: expansion must be in the range [0, 32768]"},
        {ALL, "SEED x", "ERR bad seed: a whole number from 0 to 18446744073709551615 is needed"},
        {ALL, "SHARDSIZE 4095",
         "ERR bad shard size: from 4096 (4kb) to 536870912 (512mb) bytes are needed"},
        {ALL, "SHARDSIZE 513mb",
         "ERR bad shard size: from 4096 (4kb) to 536870912 (512mb) bytes are needed"},
        {ALL, "NONSCALING EXPANSION 2",
         "ERR Nonscaling filters cannot expand: give EXPANSION or NONSCALING, not both"},
        {ALL, "NOCREATE CAPACITY 2 ITEMS a",
         "ERR NOCREATE can't be combined with CAPACITY or ERROR"},
        {ALL, "ERROR 0.1 NOCREATE ITEMS a",
         "ERR NOCREATE can't be combined with CAPACITY or ERROR"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct options o;
        if (!CHECK(!parse(&o, cases[i].allowed, cases[i].line))) CHECK_FAIL("%s", cases[i].line);
        CHECK_STR(o.problem, cases[i].problem);
    }
}

/* A word of any length and content must fit into the error. */
TEST(long_words_are_shortened_in_errors) {
    static char huge[100000];
    memset(huge, 'x', sizeof huge);
    const struct word words[] = {{huge, sizeof huge}};
    struct options o = {0};
    CHECK(!options_parse(&o, words, 1, ALL));
    CHECK(strlen(o.problem) < 80);
    const struct word binary[] = {{"\r\n\0\xff", 4}};
    o = (struct options){0};
    CHECK(!options_parse(&o, binary, 1, ALL));
    CHECK_STR(o.problem, "ERR Unknown argument received: '?\?\?\?'");
}
