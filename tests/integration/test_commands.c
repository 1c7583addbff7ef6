/* Every command: its replies in RESP2 and RESP3, its errors, and what it accepts as a key, an item
 * and a number.
 *
 * Filters of more than a few items get a fixed SEED: with a random one, a false positive would now
 * and then answer 0 for a new item. */
#include "check.h"
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* What no command takes for a number, whatever the number is for. */
static const char *const junk[] = {
    "",    "abc", "nan", "NaN", "-nan", "inf", "-inf",  "infinity", "0x10", "0x1p3",
    "5x",  "5 ",  " 5",  "5\n", "--5",  "5,0", "1.2.3", "1e",       "1e+",  "5e5e5",
    "\t5", "5\v", "+-5", "0b1", "٣",    "-5",  "-0.5",  "1e999",    "-1e9", "1 2"};
static const char *const bad_integers[] = {
    "0.5", "1.0", "1e3", "1e-3", "18446744073709551616", "99999999999999999999999999"};

/* ---- BF.RESERVE ---- */

TEST(reserve_creates_an_empty_filter) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 5000");
    EXPECT(c, "+bf-shards", "TYPE k");
    EXPECT(c, ":0", "BF.CARD k");
    EXPECT(c, ":0", "BF.EXISTS k a");
    EXPECT(c,
           "*10 +Capacity :5000 +Size :... +Number of filters :1 +Number of items inserted :0 "
           "+Expansion rate :2",
           "BF.INFO k");
    EXPECT(c, "*0", "BF.SHARDS k");
    EXPECT(c, ":1", "DBSIZE");
}

TEST(reserve_takes_options_in_any_order_and_case) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE a 0.01 100 EXPANSION 4");
    EXPECT(c, "*1 :4", "BF.INFO a EXPANSION");
    EXPECT(c, "+OK", "bf.reserve b 0.01 100 nonscaling");
    EXPECT(c, "*1 _", "BF.INFO b EXPANSION");
    EXPECT(c, "+OK", "BF.RESERVE d 0.01 100 SEED 7 Expansion 1 SHARDSIZE 1048576");
    EXPECT(c, "*1 :1", "BF.INFO d EXPANSION");
    EXPECT(c, "+OK",
           "BF.RESERVE e 0.01 100 shardsize 1048576 NONSCALING seed 18446744073709551615");
    EXPECT(c, "+OK", "BF.RESERVE f 0.01 100 SEED 0");
    EXPECT(c, "+OK", "BF.RESERVE g 0.01 100 EXPANSION 0"); /* another word for NONSCALING */
    EXPECT(c, "*1 _", "BF.INFO g EXPANSION");
    EXPECT(c, "+OK", "BF.RESERVE h 0.01 100 SHARDSIZE 8kb");
}

TEST(reserve_takes_the_whole_range_of_error_rates) {
    Client *c = server_start(NULL)->client;
    const char *good[] = {"0.01", "1e-2",    "1E-3", "0.5", "0.999999",
                          "0.25", "0.00001", "1e-9", ".01"};
    for (size_t i = 0; i < N(good); i++) {
        EXPECT(c, "+OK", "BF.RESERVE k%d %s 1000", (int)i, good[i]);
        EXPECT(c, ":1", "BF.ADD k%d item", (int)i);
        EXPECT(c, ":1", "BF.EXISTS k%d item", (int)i);
    }
}

/* Anything above 0.25 is treated as 0.25. */
TEST(error_rates_above_a_quarter_are_a_quarter) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE quarter 0.25 100000 SEED 1");
    EXPECT(c, "+OK",
           "BF.RESERVE highest 0.9 100000 SEED 1"); /* a name as long: it is part of Size */
    EXPECT(c, ":1", "BF.ADD quarter x");
    EXPECT(c, ":1", "BF.ADD highest x");
    CHECK_STR(command_text(c, "BF.INFO highest"), command_text(c, "BF.INFO quarter"));
    CHECK_STR(command_text(c, "BF.PLAN 0.9 100000"), command_text(c, "BF.PLAN 0.25 100000"));
}

TEST(reserve_refuses_bad_error_rates) {
    Client *c = server_start(NULL)->client;
    const char *bad[] = {"0", "0.0", "-0", "1", "1.0", "1.5", "2", "100", "1e-999", "1e1"};
    for (size_t i = 0; i < N(bad); i++)
        if (!EXPECT_ERROR(c, "ERR", "error rate", "BF.RESERVE k %s 100", bad[i]))
            CHECK_FAIL("error rate %s", bad[i]);
    for (size_t i = 0; i < N(junk); i++)
        if (!EXPECT_ERROR(c, "ERR", "error rate", "BF.RESERVE k %s 100", junk[i]))
            CHECK_FAIL("error rate %s", junk[i]);
    EXPECT_ERROR(c, "ERR", "error rate", "BF.RESERVE k %b 100", "0.01\0", (size_t)5);
    EXPECT(c, ":0", "DBSIZE");
}

TEST(reserve_takes_the_whole_range_of_capacities) {
    Client *c = server_start(NULL)->client;
    const char *good[] = {"1", "2", "10", "100", "1073741825", "1000000000000", "1099511627776"};
    for (size_t i = 0; i < N(good); i++) {
        char want[64];
        snprintf(want, sizeof(want), "*1 :%s", good[i]);
        EXPECT(c, "+OK", "BF.RESERVE k%d 0.01 %s", (int)i, good[i]);
        EXPECT(c, want, "BF.INFO k%d CAPACITY", (int)i);
        EXPECT(c, ":1", "BF.ADD k%d item", (int)i);
        EXPECT(c, ":1", "BF.EXISTS k%d item", (int)i);
    }
}

TEST(reserve_refuses_bad_capacities) {
    Client *c = server_start(NULL)->client;
    const char *bad[] = {"0", "-1", "1099511627777", "9223372036854775807", "9223372036854775808"};
    for (size_t i = 0; i < N(bad); i++)
        if (!EXPECT_ERROR(c, "ERR", "capacity", "BF.RESERVE k 0.01 %s", bad[i]))
            CHECK_FAIL("capacity %s", bad[i]);
    for (size_t i = 0; i < N(junk); i++)
        if (!EXPECT_ERROR(c, "ERR", "capacity", "BF.RESERVE k 0.01 %s", junk[i]))
            CHECK_FAIL("capacity %s", junk[i]);
    for (size_t i = 0; i < N(bad_integers); i++)
        if (!EXPECT_ERROR(c, "ERR", "capacity", "BF.RESERVE k 0.01 %s", bad_integers[i]))
            CHECK_FAIL("capacity %s", bad_integers[i]);
    EXPECT_ERROR(c, "ERR", "capacity", "BF.RESERVE k 0.01 %b", "100\0", (size_t)4);
    EXPECT(c, ":0", "DBSIZE");
}

static void check_option_refuses_junk(Client *c, const char *option, const char *word) {
    for (size_t i = 0; i < N(junk); i++)
        if (!EXPECT_ERROR(c, "ERR", word, "BF.RESERVE k 0.01 100 %s %s", option, junk[i]))
            CHECK_FAIL("%s %s", option, junk[i]);
    for (size_t i = 0; i < N(bad_integers); i++)
        if (!EXPECT_ERROR(c, "ERR", word, "BF.RESERVE k 0.01 100 %s %s", option, bad_integers[i]))
            CHECK_FAIL("%s %s", option, bad_integers[i]);
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 %s", option); /* no value */
    EXPECT(c, ":0", "DBSIZE");
}

TEST(reserve_refuses_bad_options) {
    Client *c = server_start(NULL)->client;
    check_option_refuses_junk(c, "EXPANSION", "expansion");
    check_option_refuses_junk(c, "SEED", "seed");
    check_option_refuses_junk(c, "SHARDSIZE", "shard");
    EXPECT_ERROR(c, "ERR", "expansion", "BF.RESERVE k 0.01 100 EXPANSION 9223372036854775807");
    EXPECT_ERROR(c, "ERR", "shard", "BF.RESERVE k 0.01 100 SHARDSIZE 0");
    EXPECT_ERROR(c, "ERR", "shard", "BF.RESERVE k 0.01 100 SHARDSIZE 1");
    EXPECT_ERROR(c, "ERR", "shard", "BF.RESERVE k 0.01 100 SHARDSIZE 1099511627776");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 WHATEVER");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 EXPANSIO 2");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 EXPANSION2 2");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 %b 2", "EXPANSION\0", (size_t)10);
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 %s", "");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 NONSCALING 2");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 NOCREATE");
    EXPECT(c, ":0", "DBSIZE");
}

TEST(reserve_refuses_options_twice_or_contradicting) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 EXPANSION 2 EXPANSION 2");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 NONSCALING NONSCALING");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 SEED 1 seed 1");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 SHARDSIZE 1048576 SHARDSIZE 1048576");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 EXPANSION 2 NONSCALING");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.01 100 NONSCALING EXPANSION 2");
    EXPECT(c, ":0", "DBSIZE");
}

TEST(reserve_refuses_an_existing_filter) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100");
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT(c, "-ERR item exists", "BF.RESERVE k 0.01 100");
    EXPECT(c, "-ERR item exists", "BF.RESERVE k 0.02 5 NONSCALING");
    EXPECT(c, ":1", "BF.EXISTS k a");
    EXPECT(c, "*1 :100", "BF.INFO k CAPACITY");
    EXPECT(c, ":1", "DEL k");
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100");
    EXPECT(c, ":0", "BF.EXISTS k a");
}

/* Reserving is free of charge: nothing is allocated ahead. */
TEST(reserve_allocates_no_shards) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    long long before = server_info(s, "used_memory");
    for (int i = 0; i < 20; i++) EXPECT(c, "+OK", "BF.RESERVE k%d 0.0001 1000000000", i);
    EXPECT(c, ":20", "DBSIZE");
    CHECK_RANGE((double)(server_info(s, "used_memory") - before), -2e6, 2e6);
}

/* ---- BF.ADD, BF.MADD, BF.EXISTS, BF.MEXISTS, BF.CARD ---- */

TEST(add_answers_whether_the_item_is_new) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, ":0", "BF.CARD k");
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT(c, ":0", "BF.ADD k a");
    EXPECT(c, ":1", "BF.ADD k b");
    EXPECT(c, ":1", "BF.EXISTS k a");
    EXPECT(c, ":0", "BF.EXISTS k c");
    EXPECT(c, ":2", "BF.CARD k");
    EXPECT(c, ":1", "bf.add K a");
}

TEST(automatic_creation_uses_the_defaults) {
    Client *c = server_start(NULL)->client;
    const char *info =
        "*10 +Capacity :100 +Size :... +Number of filters :1 +Number of items inserted "
        ":1 +Expansion rate :2";
    EXPECT(c, ":1", "BF.ADD a x");
    EXPECT(c, info, "BF.INFO a");
    EXPECT(c, "*1 :1", "BF.MADD b x");
    EXPECT(c, info, "BF.INFO b");
    EXPECT(c, "*1 :1", "BF.INSERT c ITEMS x");
    EXPECT(c, info, "BF.INFO c");
    /* The error rate of 0.01, seen by its price. */
    EXPECT(c, "+OK", "BF.RESERVE d 0.01 100");
    EXPECT(c, ":1", "BF.ADD d x");
    CHECK_STR(command_text(c, "BF.INFO d SIZE"), command_text(c, "BF.INFO a SIZE"));
}

TEST(madd_answers_each_item_in_order) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, "*3 :1 :1 :1", "BF.MADD k a b c");
    EXPECT(c, "*5 :0 :1 :0 :1 :0", "BF.MADD k a d b e c");
    EXPECT(c, "*4 :1 :0 :1 :0", "BF.MADD k f f g f"); /* the same item twice in one batch */
    EXPECT(c, "*1 :0", "BF.MADD k a");
    EXPECT(c, ":7", "BF.CARD k");
    EXPECT(c, "*4 :1 :0 :1 :0", "BF.MEXISTS k a nope g neither");
    EXPECT(c, "*1 :1", "BF.MEXISTS k a");
}

TEST(missing_keys_hold_nothing) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, ":0", "BF.EXISTS k a");
    EXPECT(c, "*3 :0 :0 :0", "BF.MEXISTS k a b a");
    EXPECT(c, ":0", "BF.CARD k");
    EXPECT(c, "-ERR not found", "BF.INFO k");
    EXPECT(c, "-ERR not found", "BF.INFO k SIZE");
    EXPECT(c, "-ERR not found", "BF.SHARDS k");
    EXPECT(c, ":0", "DBSIZE"); /* reading creates nothing */
}

TEST(items_and_keys_are_binary_safe) {
    Client *c = server_start(NULL)->client;
    char all[256];
    for (int i = 0; i < 256; i++) all[i] = (char)i;
    EXPECT(c, "+OK", "BF.RESERVE %b 0.01 100 SEED 1", all, sizeof(all));
    EXPECT(c, ":1", "BF.ADD %b %b", all, sizeof(all), all, sizeof(all));
    EXPECT(c, ":1", "BF.EXISTS %b %b", all, sizeof(all), all, sizeof(all));
    EXPECT(c, ":0", "BF.EXISTS %b %b", all, sizeof(all), all, sizeof(all) - 1);
    EXPECT(c, ":0", "BF.EXISTS %b %b", all, sizeof(all) - 1, all, sizeof(all));
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, "*4 :1 :1 :1 :1", "BF.MADD k %b %b %b %b", "a\0b", (size_t)3, "a\0c", (size_t)3, "a",
           (size_t)1, "a\0", (size_t)2);
    EXPECT(c, "*3 :1 :0 :0", "BF.MEXISTS k %b %b %b", "a\0b", (size_t)3, "a\0d", (size_t)3, "\0",
           (size_t)1);
    EXPECT(c, "*2 :1 :0", "BF.INSERT k ITEMS %b %b", "\r\n", (size_t)2, "\r\n", (size_t)2);
}

TEST(the_empty_item_is_an_item) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 100 SEED 1");
    EXPECT(c, ":0", "BF.EXISTS k %s", "");
    EXPECT(c, "*3 :1 :1 :0", "BF.MADD k a %s %s", "", "");
    EXPECT(c, ":0", "BF.ADD k %s", "");
    EXPECT(c, ":1", "BF.EXISTS k %s", "");
    EXPECT(c, "*2 :1 :0", "BF.MEXISTS k %s b", "");
    EXPECT(c, "*1 :0", "BF.INSERT k ITEMS %s", "");
    EXPECT(c, ":2", "BF.CARD k");
}

TEST(the_empty_key_and_keys_with_braces_are_keys) {
    Client *c = server_start(NULL)->client;
    const char *keys[] = {"",        "{",     "}",      "{}",  "{}x",     "a{b}c",
                          "a{b}{c}", "{{a}}", "a}b{c}", "a b", "bf:{a}:0"};
    for (size_t i = 0; i < N(keys); i++) {
        EXPECT(c, "*1 :1", "BF.INSERT %s SEED 1 ITEMS only%d", keys[i], (int)i);
        EXPECT(c, "*1 ...", "BF.SHARDS %s", keys[i]);
    }
    for (size_t i = 0; i < N(keys); i++) {
        EXPECT(c, ":1", "BF.CARD %s", keys[i]);
        EXPECT(c, ":1", "BF.EXISTS %s only%d", keys[i], (int)i);
        EXPECT(c, ":0", "BF.EXISTS %s only%d", keys[i], (int)i + 1);
    }
}

TEST(long_items_and_long_keys) {
    Client *c = server_start(NULL)->client;
    size_t len = 3 << 20;
    char *item = keep(malloc(len));
    memset(item, 'x', len);
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, ":1", "BF.ADD k %b", item, len);
    EXPECT(c, ":0", "BF.ADD k %b", item, len);
    EXPECT(c, ":0", "BF.EXISTS k %b", item, len - 1);
    item[len / 2] = 'y';
    EXPECT(c, ":0", "BF.EXISTS k %b", item, len);
    const size_t longest = 1024;
    EXPECT(c, "+OK", "BF.RESERVE %b 0.01 100 SEED 1", item, longest);
    EXPECT(c, ":1", "BF.ADD %b a", item, longest);
    EXPECT(c, ":1", "BF.EXISTS %b a", item, longest);
    EXPECT(c, ":0", "BF.EXISTS %b b", item, longest);
    /* The server hashes the names of shards all the time: with 64 kB, a batch took 0.1 s. */
    EXPECT_ERROR(c, "ERR", "name is too long", "BF.RESERVE %b 0.01 100", item, longest + 1);
    EXPECT_ERROR(c, "ERR", "name is too long", "BF.ADD %b a", item, longest + 1);
    EXPECT(c, "-...", "COPY k %b", item, longest + 1);
    EXPECT(c, "+OK", "RENAME k %b", item, len); /* its shards keep their names */
    EXPECT(c, ":0", "BF.EXISTS %b %b", item, len, item, len);
    EXPECT(c, "+OK", "BF.RESERVE {t}%b 0.01 100", item, len);
    EXPECT(c, ":1", "BF.ADD {t}%b a", item, len);
}

TEST(large_batches) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.000001 100000 SEED 1");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "item", 0, 100000), 100000);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "item", 0, 100000), 0);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "item", 0, 100000), 100000);
    CHECK_RANGE((double)command_batches(c, "BF.MEXISTS", "k", "other", 0, 100000), 0, 5);
    EXPECT(c, ":100000", "BF.CARD k");
}

/* ---- BF.INSERT ---- */

TEST(insert_creates_with_its_options) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "*2 :1 :1", "BF.INSERT a CAPACITY 5000 ERROR 0.0001 EXPANSION 3 SEED 1 ITEMS x y");
    EXPECT(c,
           "*10 +Capacity :5000 +Size :... +Number of filters :1 +Number of items inserted :2 "
           "+Expansion rate :3",
           "BF.INFO a");
    EXPECT(c, "*1 :1", "bf.insert b nonscaling error 0.1 capacity 7 items x");
    EXPECT(c,
           "*10 +Capacity :7 +Size :... +Number of filters :1 +Number of items inserted :1 "
           "+Expansion rate _",
           "BF.INFO b");
    /* The error rate, seen by its price. */
    EXPECT(c, "+OK", "BF.RESERVE d 0.0001 5000 EXPANSION 3");
    EXPECT(c, ":1", "BF.ADD d x");
    CHECK_STR(command_text(c, "BF.INFO d SIZE"), command_text(c, "BF.INFO a SIZE"));
}

TEST(insert_into_an_existing_filter_leaves_its_shape) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 1000 EXPANSION 4 SEED 1");
    EXPECT(c, "*3 :1 :1 :0", "BF.INSERT k CAPACITY 5 ERROR 0.1 EXPANSION 2 ITEMS a b a");
    EXPECT(c, "*2 :0 :1", "BF.INSERT k NOCREATE ITEMS a c");
    EXPECT(c,
           "*10 +Capacity :1000 +Size :... +Number of filters :1 +Number of items inserted :3 "
           "+Expansion rate :4",
           "BF.INFO k");
}

TEST(insert_nocreate) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "-ERR not found", "BF.INSERT k NOCREATE ITEMS a");
    EXPECT(c, ":0", "DBSIZE");
    EXPECT(c, "*1 :1", "BF.INSERT k SEED 1 ITEMS a");
    EXPECT(c, "*2 :0 :1", "BF.INSERT k NOCREATE ITEMS a b");
}

TEST(insert_takes_everything_after_items_for_items) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, "*6 :1 :1 :1 :1 :1 :1", "BF.INSERT k ITEMS ITEMS NOCREATE CAPACITY 5 ERROR nan");
    EXPECT(c, ":6", "BF.CARD k");
    EXPECT(c, "*1 :100", "BF.INFO k CAPACITY");
}

TEST(insert_refuses_bad_options) {
    Client *c = server_start(NULL)->client;
    for (size_t i = 0; i < N(junk); i++) {
        bool ok = EXPECT_ERROR(c, "ERR", "capacity", "BF.INSERT k CAPACITY %s ITEMS a", junk[i]);
        ok = EXPECT_ERROR(c, "ERR", "error rate", "BF.INSERT k ERROR %s ITEMS a", junk[i]) && ok;
        ok = EXPECT_ERROR(c, "ERR", "expansion", "BF.INSERT k EXPANSION %s ITEMS a", junk[i]) && ok;
        if (!ok) CHECK_FAIL("%s", junk[i]);
    }
    EXPECT_ERROR(c, "ERR", "capacity", "BF.INSERT k CAPACITY 0 ITEMS a");
    EXPECT_ERROR(c, "ERR", "capacity", "BF.INSERT k CAPACITY 1099511627777 ITEMS a");
    EXPECT_ERROR(c, "ERR", "error rate", "BF.INSERT k ERROR 0 ITEMS a");
    EXPECT_ERROR(c, "ERR", "error rate", "BF.INSERT k ERROR 1 ITEMS a");
    EXPECT_ERROR(c, "ERR", "expansion", "BF.INSERT k EXPANSION 4294967297 ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT k WHATEVER ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT k ITEM a b");
    EXPECT(c, "-ERR...", "BF.INSERT k ITEMSX a b");
    EXPECT(c, "-ERR...", "BF.INSERT k i a b"); /* an abbreviation is not an option */
    EXPECT(c, "-ERR...", "BF.INSERT k a b c");
    EXPECT(c, "-ERR...", "BF.INSERT k CAPACITY 5 CAPACITY 5 ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT k ERROR 0.1 ERROR 0.1 ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT k EXPANSION 2 EXPANSION 2 ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT k NONSCALING NONSCALING ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT k NOCREATE NOCREATE ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT k EXPANSION 2 NONSCALING ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT k NOCREATE CAPACITY 5 ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT k ERROR 0.1 NOCREATE ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT k CAPACITY 5 NONSCALING");
    EXPECT(c, "-ERR...", "BF.INSERT k NONSCALING ITEMS");
    EXPECT(c, "-ERR...", "BF.INSERT k CAPACITY ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT k ITEMS");
    EXPECT(c, ":0", "DBSIZE");
}

/* ---- a full filter that does not grow ---- */

TEST(full_nonscaling_filter) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.000001 3 NONSCALING SEED 1");
    EXPECT(c, "*3 :1 :1 :1", "BF.MADD k a b c");
    EXPECT(c, "-ERR non scaling filter is full", "BF.ADD k d");
    EXPECT(c, ":0", "BF.ADD k a");
    EXPECT(c, "*5 :0 -ERR non scaling filter is full :0 -ERR non scaling filter is full :0",
           "BF.MADD k a d b e c");
    EXPECT(c, "*3 :0 -ERR non scaling filter is full :0", "BF.INSERT k ITEMS a d b");
    EXPECT(c, "*1 -ERR non scaling filter is full", "BF.MADD k d");
    EXPECT(c, ":3", "BF.CARD k");
    EXPECT(c, "*4 :1 :1 :1 :0", "BF.MEXISTS k a b c d");
    EXPECT(c, "*1 :1", "BF.INFO k FILTERS");
}

TEST(nonscaling_filter_fills_within_a_batch) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "*6 :1 :1 :0 :1 -ERR non scaling filter is full :0",
           "BF.INSERT k CAPACITY 3 ERROR 0.000001 NONSCALING SEED 1 ITEMS a b a c d a");
    EXPECT(c, ":3", "BF.CARD k");
    Client *c3 = client_new_resp3(c->server);
    EXPECT(c3, "*3 #f -ERR non scaling filter is full #f", "BF.MADD k a d b");
    EXPECT(c3, "-ERR non scaling filter is full", "BF.ADD k d");
    EXPECT(c3, "#f", "BF.ADD k a");
}

/* ---- growth ---- */

TEST(a_full_filter_grows) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 100 SEED 1");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 100), 100);
    EXPECT(c, "*1 :1", "BF.INFO k FILTERS");
    EXPECT(c, ":1", "BF.ADD k one-more");
    EXPECT(c,
           "*10 +Capacity :300 +Size :... +Number of filters :2 +Number of items inserted :101 "
           "+Expansion rate :2",
           "BF.INFO k");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, 100), 100);
    EXPECT(c, ":0", "BF.ADD k one-more");
    EXPECT(c, "*1 :2", "BF.INFO k FILTERS");
}

TEST(a_batch_may_cross_several_layers) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 1 SEED 1 EXPANSION 1");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 10), 10);
    EXPECT(c, "*1 :10", "BF.INFO k FILTERS");
    EXPECT(c, "*1 :10", "BF.INFO k CAPACITY");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, 10), 10);
    EXPECT(c, "+OK", "BF.RESERVE l 0.0001 10 SEED 1 EXPANSION 10");
    CHECK_INT(command_batches(c, "BF.MADD", "l", "i", 0, 1000), 1000);
    EXPECT(c, "*1 :3", "BF.INFO l FILTERS");
    EXPECT(c, "*1 :1110", "BF.INFO l CAPACITY");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "l", "i", 0, 1000), 1000);
}

/* ---- BF.INFO ---- */

TEST(info_fields) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "*2 :1 :1", "BF.INSERT k CAPACITY 42 EXPANSION 3 SEED 1 ITEMS a b");
    EXPECT(c, "*1 :42", "BF.INFO k CAPACITY");
    EXPECT(c, "*1 :42", "BF.INFO k capacity");
    EXPECT(c, "*1 :1", "BF.INFO k FILTERS");
    EXPECT(c, "*1 :2", "BF.INFO k ITEMS");
    EXPECT(c, "*1 :3", "BF.INFO k EXPANSION");
    EXPECT(c, "*1 :...", "BF.INFO k SIZE");
    EXPECT(c, "*1 \"0.01\"", "BF.INFO k ERROR");
    EXPECT(c, "-ERR...", "BF.INFO k WHATEVER");
    EXPECT(c, "-ERR...", "BF.INFO k %s", "");
    EXPECT(c, "-ERR...", "BF.INFO k %b", "SIZE\0", (size_t)5);
    EXPECT(c, "-ERR...", "BF.INFO k SIZES");
}

/* The rate as it was given, also where 17 digits would be needed to write its double exactly. */
TEST(the_error_rate_is_told_as_it_was_given) {
    Client *c = server_start(NULL)->client;
    static const char *const rates[][2] = {
        {"0.000001", "1e-06"}, {"1e-15", "1e-15"},   {"0.25", "0.25"},
        {"0.9", "0.25"},       {"0.0003", "0.0003"}, {"0.12345678901234566", "0.12345678901234566"},
    };
    for (size_t i = 0; i < N(rates); i++) {
        char want[64];
        snprintf(want, sizeof(want), "*1 \"%s\"", rates[i][1]);
        EXPECT(c, "+OK", "BF.RESERVE k%d %s 100", (int)i, rates[i][0]);
        EXPECT(c, want, "BF.INFO k%d ERROR", (int)i);
        EXPECT(c, "*10...", "BF.INFO k%d", (int)i); /* go-redis refuses any more */
    }
}

/* As RedisBloom writes it; what a client compares before and after a copy. */
TEST(debug_has_a_line_for_each_layer) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 10 EXPANSION 10 SEED 1");
    EXPECT(
        c,
        "*2 \"size:0\" \"bytes:... bits:... hashes:... hashwidth:64 capacity:10 size:0 ratio:...\"",
        "BF.DEBUG k");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 100), 100);
    EXPECT(c,
           "*3 \"size:100\" \"bytes:... capacity:10 size:10 ratio:...\" \"bytes:... bits:... "
           "hashes:... hashwidth:64 capacity:100 size:90 ratio:...\"",
           "BF.DEBUG k");
    const redisReply *lines = command(c, "BF.DEBUG k");
    for (size_t i = 1; i < lines->elements; i++) {
        unsigned long long nbytes, nbits;
        double ratio;
        REQUIRE(
            sscanf(lines->element[i]->str,
                   "bytes:%llu bits:%llu hashes:%*u hashwidth:%*u capacity:%*u size:%*u ratio:%lf",
                   &nbytes, &nbits, &ratio) == 3);
        CHECK_INT(nbits, nbytes * 8);
        CHECK_RANGE(ratio, 0, 0.01);
    }
    /* Bits of 2^31 for each of six seven-fold hashed strings, the recipe's own rate. */
    EXPECT(c, "+OK", "BF.ADOPT old PREFIX p BLOCKS 6");
    EXPECT(c,
           "*2 \"size:0\" \"bytes:1610612736 bits:12884901888 hashes:7 hashwidth:31 ... "
           "ratio:8...e-05\"",
           "BF.DEBUG old");
    EXPECT(c, "-ERR not found", "BF.DEBUG none");
    EXPECT(c, "+OK", "SET string x");
    EXPECT(c, "-WRONGTYPE...", "BF.DEBUG string");
}

/* 20,000 items that were never added, for filters of three: the chance of a single false positive
 * is below 20,000 times (21/512)^7 < 1e-5 for a random seed, and these seeds are fixed. */
TEST(tiny_filters_are_hardly_ever_wrong) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE tiny 0.01 3 NONSCALING SEED 1");
    EXPECT(c, "*3 :1 :1 :1", "BF.MADD tiny a b c");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "tiny", "other", 0, 20000), 0);
}

TEST(info_in_resp3_is_a_map) {
    Server *s = server_start(NULL);
    Client *c = client_new_resp3(s);
    EXPECT(c, "*2 #t #t", "BF.INSERT k CAPACITY 42 EXPANSION 3 SEED 1 ITEMS a b");
    EXPECT(c,
           "%5 +Capacity :42 +Size :... +Number of filters :1 +Number of items inserted :2 "
           "+Expansion rate :3",
           "BF.INFO k");
    EXPECT(c, "%1 +Capacity :42", "BF.INFO k CAPACITY");
    EXPECT(c, "%1 +Size :...", "BF.INFO k SIZE");
    EXPECT(c, "%1 +Number of filters :1", "BF.INFO k FILTERS");
    EXPECT(c, "%1 +Number of items inserted :2", "BF.INFO k ITEMS");
    EXPECT(c, "%1 +Expansion rate :3", "BF.INFO k EXPANSION");
    EXPECT(c, "%1 +Error rate ,0.01", "BF.INFO k ERROR");
    EXPECT(c, "+OK", "BF.RESERVE fixed 0.01 10 NONSCALING");
    EXPECT(c, "%5 +Capacity :10 ... +Expansion rate _", "BF.INFO fixed");
    EXPECT(c, "%1 +Expansion rate _", "BF.INFO fixed EXPANSION");
    EXPECT(c, "-ERR not found", "BF.INFO nothing");
}

/* ---- BF.SHARDS and BF.PLAN ---- */

/* The value after a name in an array of pairs; NULL fails the test. */
static redisReply *value_of(redisReply *pairs, const char *name) {
    for (size_t i = 0; i + 1 < pairs->elements; i += 2)
        if (pairs->element[i]->str && strcasecmp(pairs->element[i]->str, name) == 0)
            return pairs->element[i + 1];
    CHECK_FAIL("no \"%s\" in a reply of %zu elements", name, pairs->elements);
    return NULL;
}

/* Doubles are strings in RESP2. */
static double number_of(redisReply *pairs, const char *name) {
    redisReply *value = value_of(pairs, name);
    if (!value) return -1;
    return value->type == REDIS_REPLY_INTEGER ? (double)value->integer
           : value->str                       ? atof(value->str)
                                              : -1;
}

static void check_shard(Client *c, redisReply *entry) {
    redisReply *key = value_of(entry, "key");
    long long nbytes = (long long)number_of(entry, "bytes");
    double fill = number_of(entry, "fill");
    REQUIRE(key && key->type == REDIS_REPLY_STRING);
    EXPECT(c, "+string", "TYPE %b", key->str, (size_t)key->len);
    CHECK_INT(command_int(c, "STRLEN %b", key->str, (size_t)key->len), nbytes);
    CHECK_INT((int)command(c, "GETRANGE %b 0 54", key->str, (size_t)key->len)->len, 55);
    double set = (double)command_int(c, "BITCOUNT %b 55 -1", key->str, (size_t)key->len);
    double real = set / (8.0 * (double)(nbytes - 55));
    CHECK(set > 0);
    CHECK_RANGE(fill, real - 0.1, real + 0.1);
}

TEST(shards_are_plain_strings) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 20000 SEED 1 SHARDSIZE 4096 EXPANSION 3");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 25000) > 24900, 1);
    EXPECT(c, "*1 :2", "BF.INFO k FILTERS");
    redisReply *shards = command(c, "BF.SHARDS k");
    CHECK_RANGE((double)shards->elements, 10, 200);
    long long nbytes = 0, last_layer = 0, last_shard = -1;
    for (size_t i = 0; i < shards->elements; i++) {
        redisReply *entry = shards->element[i];
        long long layer = (long long)number_of(entry, "layer"),
                  shard = (long long)number_of(entry, "shard");
        CHECK(layer == last_layer ? shard > last_shard : layer == last_layer + 1);
        last_layer = layer;
        last_shard = shard;
        nbytes += (long long)number_of(entry, "bytes");
        check_shard(c, entry);
        if (layer == 0) CHECK_RANGE(number_of(entry, "fill"), 0.3, 0.65); /* it is full */
    }
    CHECK_INT(last_layer, 1);
    CHECK_INT(command_int(c, "DBSIZE"), (long long)shards->elements + 1);
    /* Size: descriptor and shards; MEMORY USAGE: the descriptor alone. */
    long long size = command(c, "BF.INFO k SIZE")->element[0]->integer;
    CHECK_RANGE((double)(size - nbytes), 50, 5000);
    CHECK_RANGE((double)command_int(c, "MEMORY USAGE k"), 50, 10000);
}

TEST(shards_appear_when_items_fall_into_them) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 1000000 SHARDSIZE 65536 SEED 1");
    EXPECT(c, "*0", "BF.SHARDS k");
    long long empty = command(c, "BF.INFO k SIZE")->element[0]->integer;
    EXPECT(c, ":0", "BF.EXISTS k a");
    EXPECT(c, "*0", "BF.SHARDS k");
    EXPECT(c, ":1", "BF.ADD k a");
    redisReply *shards = command(c, "BF.SHARDS k");
    CHECK_UINT(shards->elements, 1);
    REQUIRE(shards->elements == 1);
    check_shard(c, shards->element[0]);
    long long one = command(c, "BF.INFO k SIZE")->element[0]->integer;
    /* What the allocator rounds up to may be counted. */
    double nbytes = number_of(shards->element[0], "bytes");
    CHECK_RANGE((double)(one - empty), nbytes, 1.25 * nbytes);
    Client *c3 = client_new_resp3(s);
    EXPECT(c3, "*1 %... \"bf:{k}:...:0:...\"...+layer :0 +shard :...+bytes :...+fill ,...",
           "BF.SHARDS k");
}

/* A shard stays within the allocation that SHARDSIZE names. */
TEST(shard_size_bounds_the_shards) {
    Client *c = server_start(NULL)->client;
    const char *sizes[] = {"4096", "10000", "65536", "1mb", "3000000"};
    const double bytes[] = {4096, 10000, 65536, 1 << 20, 3000000};
    for (size_t i = 0; i < N(sizes); i++) {
        EXPECT(c, "+OK", "BF.RESERVE k%d 0.001 1000000 SHARDSIZE %s", (int)i, sizes[i]);
        EXPECT(c, ":1", "BF.ADD k%d a", (int)i);
        redisReply *shards = command(c, "BF.SHARDS k%d", (int)i);
        REQUIRE(shards->elements == 1);
        CHECK_RANGE(number_of(shards->element[0], "bytes"), 100, bytes[i] - 1);
        redisReply *plan = command(c, "BF.PLAN 0.001 1000000 SHARDSIZE %s", sizes[i]);
        CHECK_RANGE(number_of(plan, "bytes per shard"), 1000, bytes[i] - 1);
    }
}

TEST(plan_tells_what_reserve_makes) {
    Client *c = server_start(NULL)->client;
    redisReply *plan = command(c, "BF.PLAN 0.001 100000 NONSCALING SHARDSIZE 16384");
    double nshards = number_of(plan, "shards"), nbytes = number_of(plan, "bytes per shard");
    double block = number_of(plan, "block bits"), bits = number_of(plan, "bits per item");
    EXPECT(c, ":0", "DBSIZE");
    CHECK(block == 512 || block == 1024 || block == 2048);
    CHECK_RANGE(number_of(plan, "hashes per item"), 5, 15);
    CHECK_RANGE(bits, 14.37, 14.38 * 1.08);
    CHECK_RANGE(number_of(plan, "overhead over a classic filter"), 0, 0.08);
    CHECK_RANGE(number_of(plan, "total bytes when full") - nshards * nbytes, 0, 0);
    CHECK_RANGE(nshards * (nbytes - 55) * 8 / 100000 - bits, -0.01, 0.01);

    EXPECT(c, "+OK", "BF.RESERVE k 0.001 100000 NONSCALING SHARDSIZE 16384 SEED 1");
    CHECK_RANGE((double)command_batches(c, "BF.MADD", "k", "i", 0, 99000), 98800, 99000);
    redisReply *shards = command(c, "BF.SHARDS k");
    CHECK_RANGE((double)shards->elements, nshards, nshards);
    for (size_t i = 0; i < shards->elements; i++)
        CHECK_RANGE(number_of(shards->element[i], "bytes"), nbytes, nbytes);
}

/* At most 1.08 times the ideal for fixed filters of 10^5 items and more; small ones one block and a
 * header. */
TEST(plan_is_frugal) {
    Client *c = server_start(NULL)->client;
    const char *rates[] = {"0.01", "0.001", "0.0001", "0.00001"};
    const double ideal[] = {9.585, 14.378, 19.170, 23.963};
    const char *capacities[] = {"100000", "1000000", "50000000", "1000000000", "1099511627776"};
    for (size_t i = 0; i < N(rates); i++)
        for (size_t j = 0; j < N(capacities); j++) {
            redisReply *plan = command(c, "BF.PLAN %s %s NONSCALING", rates[i], capacities[j]);
            CHECK_RANGE(number_of(plan, "bits per item"), ideal[i], ideal[i] * 1.08);
            CHECK_RANGE(number_of(plan, "bytes per shard"), 1, (32 << 20) - 1);
        }
    for (int capacity = 1; capacity <= 100; capacity *= 10) {
        redisReply *plan = command(c, "BF.PLAN 0.01 %d NONSCALING", capacity);
        CHECK_RANGE(number_of(plan, "total bytes when full"), 1, capacity * 9.6 / 8 + 55 + 256);
    }
}

TEST(plan_replies_and_errors) {
    Server *s = server_start(NULL);
    Client *c = s->client, *c3 = client_new_resp3(s);
    EXPECT(
        c,
        "*...+Bits per item \"...\"...+Hashes per item :...+Block bits :...+Shards :...+Bytes per "
        "shard :...+Total bytes when full :...+Overhead...\"...\"...",
        "BF.PLAN 0.01 1000");
    EXPECT(
        c3,
        "%...+Bits per item ,...+Hashes per item :...+Block bits :...+Shards :...+Bytes per shard "
        ":...+Total bytes when full :...+Overhead... ,...",
        "bf.plan 0.01 1000 expansion 4 shardsize 8192");
    EXPECT(c,
           "*20 ... +Error rate of the first layer \"6.079e-05\" +Bits per item \"21.73\" ... "
           "+Overhead over a classic filter \"0.1333\" ...",
           "BF.PLAN 0.0001 100000000");
    for (size_t i = 0; i < N(junk); i++) {
        bool ok = EXPECT_ERROR(c, "ERR", "error rate", "BF.PLAN %s 100", junk[i]);
        ok = EXPECT_ERROR(c, "ERR", "capacity", "BF.PLAN 0.01 %s", junk[i]) && ok;
        ok = EXPECT_ERROR(c, "ERR", "expansion", "BF.PLAN 0.01 100 EXPANSION %s", junk[i]) && ok;
        ok = EXPECT_ERROR(c, "ERR", "shard", "BF.PLAN 0.01 100 SHARDSIZE %s", junk[i]) && ok;
        if (!ok) CHECK_FAIL("%s", junk[i]);
    }
    EXPECT_ERROR(c, "ERR", "error rate", "BF.PLAN 0 100");
    EXPECT_ERROR(c, "ERR", "error rate", "BF.PLAN 1 100");
    EXPECT_ERROR(c, "ERR", "capacity", "BF.PLAN 0.01 0");
    EXPECT_ERROR(c, "ERR", "capacity", "BF.PLAN 0.01 1099511627777");
    EXPECT(c, "-ERR...", "BF.PLAN 0.01 100 WHATEVER");
    EXPECT(c, "-ERR...", "BF.PLAN 0.01 100 SEED 1"); /* it makes no difference to a plan */
    EXPECT(c, "-ERR...", "BF.PLAN 0.01 100 NONSCALING NONSCALING");
    EXPECT(c, "-ERR...", "BF.PLAN 0.01 100 NONSCALING EXPANSION 2");
    EXPECT(c, "-ERR...", "BF.PLAN 0.01 100 EXPANSION 2 EXPANSION 2");
}

/* ---- RESP3 ---- */

TEST(resp3_answers_booleans) {
    Client *c = client_new_resp3(server_start(NULL));
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, "#t", "BF.ADD k a");
    EXPECT(c, "#f", "BF.ADD k a");
    EXPECT(c, "#t", "BF.EXISTS k a");
    EXPECT(c, "#f", "BF.EXISTS k b");
    EXPECT(c, "#f", "BF.EXISTS missing b");
    EXPECT(c, "*3 #f #t #t", "BF.MADD k a b c");
    EXPECT(c, "*3 #t #f #t", "BF.MEXISTS k a x c");
    EXPECT(c, "*2 #f #f", "BF.MEXISTS missing a b");
    EXPECT(c, "*2 #f #t", "BF.INSERT k ITEMS a d");
    EXPECT(c, ":4", "BF.CARD k");
    EXPECT(c, ":0", "BF.CARD missing");
    EXPECT(c, "+OK", "BF.RESERVE r 0.01 100");
    EXPECT(c, "-ERR item exists", "BF.RESERVE r 0.01 100");
}

/* ---- wrong types, wrong arity ---- */

TEST(wrong_types_are_wrongtype) {
    Server *s = server_start(NULL);
    Client *clients[] = {s->client, client_new_resp3(s)};
    EXPECT(s->client, "+OK", "SET string x");
    EXPECT(s->client, ":1", "RPUSH list x");
    EXPECT(s->client, ":1", "HSET hash f x");
    const char *keys[] = {"string", "list", "hash"};
    const char *commands[] = {
        "BF.RESERVE %s 0.01 100",
        "BF.ADD %s a",
        "BF.MADD %s a b",
        "BF.EXISTS %s a",
        "BF.MEXISTS %s a b",
        "BF.INSERT %s ITEMS a",
        "BF.INSERT %s NOCREATE ITEMS a",
        "BF.CARD %s",
        "BF.INFO %s",
        "BF.INFO %s SIZE",
        "BF.SHARDS %s",
    };
    for (size_t k = 0; k < N(keys); k++)
        for (size_t i = 0; i < N(commands); i++)
            for (size_t j = 0; j < N(clients); j++)
                EXPECT(clients[j],
                       "-WRONGTYPE Operation against a key holding the wrong kind of value",
                       commands[i], keys[k]);
    EXPECT(s->client, "\"x\"", "GET string");
    /* And the other way round. */
    EXPECT(s->client, ":1", "BF.ADD k a");
    EXPECT(s->client, "-WRONGTYPE...", "GET k");
    EXPECT(s->client, "-WRONGTYPE...", "LPUSH k a");
    EXPECT(s->client, "-WRONGTYPE...", "SETBIT k 1 1");
}

TEST(wrong_arity) {
    Client *c = server_start(NULL)->client;
    const char *commands[] = {
        "BF.RESERVE",
        "BF.RESERVE k",
        "BF.RESERVE k 0.01",
        "BF.ADD",
        "BF.ADD k",
        "BF.ADD k a b",
        "BF.MADD",
        "BF.MADD k",
        "BF.EXISTS",
        "BF.EXISTS k",
        "BF.EXISTS k a b",
        "BF.MEXISTS",
        "BF.MEXISTS k",
        "BF.INSERT",
        "BF.INSERT k",
        "BF.CARD",
        "BF.CARD k x",
        "BF.INFO",
        "BF.INFO k SIZE x",
        "BF.PLAN",
        "BF.PLAN 0.01",
        "BF.SHARDS",
        "BF.SHARDS k FROM 0 0 COUNT 1 x",
    };
    for (size_t i = 0; i < N(commands); i++)
        EXPECT(c, "-ERR wrong number of arguments for 'bf...", commands[i]);
    EXPECT(c, ":0", "DBSIZE");
}

/* ---- what the server knows of the module ---- */

/* The module is loaded once; whatever else is there is built into the server: no file. */
static void check_module_list(Client *c) {
    const redisReply *modules = command(c, "MODULE LIST");
    int nours = 0;
    for (size_t i = 0; i < modules->elements; i++) {
        const char *module = keep(reply_text(modules->element[i]));
        if (text_matches(module, "...\"name\" \"bf\"..."))
            nours++;
        else if (text_matches(module, "...\"path\" \"/..."))
            CHECK_FAIL("what is %s?", module);
    }
    CHECK_INT(nours, 1);
}

TEST(module_and_commands_are_declared) {
    Client *c = server_start(NULL)->client;
    check_module_list(c);
    const char *commands[] = {"BF.RESERVE k 0.1 1", "BF.ADD k a",     "BF.MADD k a b",
                              "BF.EXISTS k a",      "BF.MEXISTS k a", "BF.INSERT k ITEMS a",
                              "BF.CARD k",          "BF.INFO k",      "BF.SHARDS k"};
    for (size_t i = 0; i < N(commands); i++) {
        char line[64];
        snprintf(line, sizeof(line), "COMMAND GETKEYS %s", commands[i]);
        EXPECT(c, "*1 \"k\"", line);
    }
    EXPECT(c, "...+write...+denyoom...", "COMMAND INFO BF.ADD");
    EXPECT(c, "...+write...+denyoom...", "COMMAND INFO BF.INSERT");
    EXPECT(c, "...+readonly...", "COMMAND INFO BF.EXISTS");
    EXPECT(c, "...+readonly...", "COMMAND INFO BF.INFO");
}

TEST(no_memory_is_oom) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT(c, "+OK", "CONFIG SET maxmemory 1");
    EXPECT(c, "-OOM...", "BF.ADD k b");
    EXPECT(c, "-OOM...", "BF.MADD k b");
    EXPECT(c, "-OOM...", "BF.INSERT k ITEMS b");
    EXPECT(c, "-OOM...", "BF.RESERVE l 0.01 100");
    EXPECT(c, ":1", "BF.EXISTS k a");
    EXPECT(c, "*1 :1", "BF.INFO k ITEMS");
}

TEST(databases_are_apart) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "*1 :1", "BF.INSERT k SEED 1 ITEMS a");
    EXPECT(c, "+OK", "SELECT 3");
    EXPECT(c, ":0", "BF.EXISTS k a");
    EXPECT(c, ":1", "BF.ADD k b");
    EXPECT(c, "+OK", "SELECT 0");
    EXPECT(c, ":0", "BF.EXISTS k b");
    EXPECT(c, ":1", "BF.CARD k");
}

/* A duplicate changes nothing, so it must not abort transactions of those who watch the filter. */
TEST(watch_sees_new_items_only) {
    Server *s = server_start(NULL);
    Client *watcher = client_new(s);
    EXPECT(s->client, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(s->client, ":1", "BF.ADD k a");
    EXPECT(watcher, "+OK", "WATCH k");
    EXPECT(s->client, ":0", "BF.ADD k a");
    EXPECT(watcher, "+OK", "MULTI");
    EXPECT(watcher, "+QUEUED", "PING");
    EXPECT(watcher, "*1 +PONG", "EXEC");
    EXPECT(watcher, "+OK", "WATCH k");
    EXPECT(s->client, ":1", "BF.ADD k b");
    EXPECT(watcher, "+OK", "MULTI");
    EXPECT(watcher, "+QUEUED", "PING");
    EXPECT(watcher, "_", "EXEC");
}
