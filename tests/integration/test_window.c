/* Filters that forget, on servers whose clocks the tests set. A window of an hour in four slices:
 * with SEED 0 they begin at full quarters. */
#include "atomic.h"
#include "audit.h"
#include "check.h"
#include "client.h"
#include "cluster_fixture.h"
#include "core/header.h"
#include "corrupt.h"
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MINUTE  (60 * 1000ull)
#define QUARTER (15 * MINUTE)
#define HOUR    (60 * MINUTE)
#define FIRST   (1600000000000ull / QUARTER * QUARTER)
#define HOURLY  "WINDOW 3600 SLICES 4 SEED 0"

/* A server on which the first quarter has just begun. */
static Server *start(const char *config) {
    server_clocks_begin_at(FIRST);
    return server_start(config);
}

static void pass(Server *s, uint64_t ms) {
    server_set_clock(s, s->clock_ms + ms);
}

/* Adds ten items x0 … x9 in each of these many quarters, x from a on, and stays in the last. */
static void fill(Server *s, const char *key, int nquarters) {
    for (int i = 0; i < nquarters; i++) {
        const char prefix[] = {(char)('a' + i), '\0'};
        if (i > 0) pass(s, QUARTER);
        CHECK_INT(command_batches(s->client, "BF.MADD", key, prefix, 0, 10), 10);
    }
}

/* Which of them are known: all or none of each ten. */
static const char *known(Client *c, const char *key) {
    static char text[27];
    size_t n = 0;
    for (char x = 'a'; x <= 'z'; x++) {
        const char prefix[] = {x, '\0'};
        const long long found = command_batches(c, "BF.MEXISTS", key, prefix, 0, 10);
        if (found != 0) text[n++] = found == 10 ? x : '?';
    }
    text[n] = '\0';
    return text;
}

/* ---- commands ---- */

TEST(what_commands_say_of_a_window) {
    Server *s = start(NULL);
    Client *c = s->client, *resp3 = client_new_resp3(s);
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 400 " HOURLY);
    EXPECT(c,
           "*18 +Capacity :400 +Size :... +Number of filters :1 +Number of items inserted :0 "
           "+Expansion rate :2 +Window :3600 +Slices :4 +Sliding :0 +Age of the oldest slice :0",
           "BF.INFO k");
    fill(s, "k", 3);
    pass(s, 61 * 1000);
    EXPECT(c, "*1 :3600", "BF.INFO k WINDOW");
    EXPECT(c, "*1 :4", "BF.INFO k slices");
    EXPECT(c, "*1 :0", "BF.INFO k SLIDING");
    EXPECT(c, "*1 :1861", "BF.INFO k AGE"); /* half an hour, a minute and a second */
    EXPECT(c, "*1 :3", "BF.INFO k FILTERS");
    EXPECT(c, "*1 :400", "BF.INFO k CAPACITY");
    EXPECT(c, ":30", "BF.CARD k");
    EXPECT(resp3, "%1 +Sliding #f", "BF.INFO k SLIDING");
    /* Which slice a shard belongs to: milliseconds since 1970. */
    const redisReply *shards = command(c, "BF.SHARDS k");
    REQUIRE(shards->elements == 3 && shards->element[0]->elements == 18);
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT(shards->element[i]->element[3]->integer, (long long)i);
        CHECK_STR(shards->element[i]->element[16]->str, "slice began");
        CHECK_INT(shards->element[i]->element[17]->integer, (long long)(FIRST + i * QUARTER));
    }
    /* A filter without a window has nothing to say of one. */
    EXPECT(c, "+OK", "BF.RESERVE plain 0.001 400");
    EXPECT(c, "*1 _", "BF.INFO plain WINDOW");
    EXPECT(c, "*1 _", "BF.INFO plain AGE");
    EXPECT(c, "*10 ...", "BF.INFO plain");
    /* Layers keep their numbers when older ones go. */
    pass(s, 4 * QUARTER);
    EXPECT(c, ":1", "BF.ADD k later");
    shards = command(c, "BF.SHARDS k FROM 3 0");
    REQUIRE(shards->elements == 1);
    CHECK_INT(shards->element[0]->element[3]->integer, 3);
    CHECK_INT((long long)command(c, "BF.SHARDS k")->elements, 2);
    EXPECT(c, "*1 :3661", "BF.INFO k AGE");
    /* What it would cost: five slices of a quarter of the items each, and room for chance. */
    EXPECT(c, "... +Slices at once :5 +Capacity of a slice :140 +Seconds per slice \"900\"",
           "BF.PLAN 0.001 400 WINDOW 3600 SLICES 4");
    EXPECT(c, "... +Slices at once :9 ...", "BF.PLAN 0.001 400 WINDOW 3600 SLIDING NONSCALING");
}

TEST(bad_windows_are_errors) {
    Client *c = start(NULL)->client;
    static const char *const bad[] = {"WINDOW",
                                      "WINDOW 0",
                                      "WINDOW -1",
                                      "WINDOW 1.5",
                                      "WINDOW 1000000001",
                                      "WINDOW x",
                                      "WINDOW 60 WINDOW 60",
                                      "SLICES 4",
                                      "SLIDING",
                                      "WINDOW 60 SLICES 0",
                                      "WINDOW 60 SLICES 33",
                                      "WINDOW 60 SLICES x",
                                      "WINDOW 1 SLICES 11",
                                      "WINDOW 60 SLIDING SLIDING"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[200];
        snprintf(line, sizeof line, "BF.RESERVE k 0.01 100 %s", bad[i]);
        EXPECT_ERROR(c, "ERR", "", line);
        snprintf(line, sizeof line, "BF.INSERT k %s ITEMS a", bad[i]);
        EXPECT_ERROR(c, "ERR", "", line);
        snprintf(line, sizeof line, "BF.PLAN 0.01 100 %s", bad[i]);
        EXPECT_ERROR(c, "ERR", "", line);
    }
    EXPECT(c, ":0", "DBSIZE");
    EXPECT_ERROR(c, "ERR", "", "BF.ADOPT k WINDOW 60");
    EXPECT(c, "+OK", "BF.RESERVE shortest 0.01 100 window 1 slices 10 sliding");
    EXPECT(c, "+OK", "BF.RESERVE longest 0.01 100 WINDOW 1000000000 SLICES 32");
    /* An existing filter keeps what it has. */
    EXPECT(c, "*1 :1", "BF.INSERT shortest WINDOW 60 ITEMS a");
    EXPECT(c, "*1 :1", "BF.INFO shortest WINDOW");
    EXPECT(c, "*1 :1", "BF.INSERT fresh WINDOW 60 SLIDING ITEMS a");
    EXPECT(c, "*1 :8", "BF.INFO fresh SLICES");
}

TEST(items_are_forgotten_in_time) {
    Server *s = start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 400 " HOURLY);
    fill(s, "k", 4);
    CHECK_STR(known(c, "k"), "abcd");
    /* Nobody writes for days: answers change, the data does not. */
    Snapshot *before = snapshot_take(s);
    pass(s, 2 * QUARTER - 1);
    CHECK_STR(known(c, "k"), "abcd");
    EXPECT(c, ":40", "BF.CARD k");
    pass(s, 1);
    CHECK_STR(known(c, "k"), "bcd");
    EXPECT(c, ":30", "BF.CARD k");
    pass(s, 3 * QUARTER);
    CHECK_STR(known(c, "k"), "");
    EXPECT(c, ":0", "BF.CARD k");
    EXPECT(c, "*1 :0", "BF.INFO k FILTERS");
    EXPECT(c, "*1 :0", "BF.INFO k AGE");
    pass(s, 1000 * HOUR);
    EXPECT(c, ":0", "BF.EXISTS k a0");
    /* A clock that was ahead and is set right has lost nothing: no command has written. */
    server_set_clock(s, FIRST + 3 * QUARTER);
    CHECK_STR(known(c, "k"), "abcd");
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    /* The server was off for longer than the window. */
    server_set_clock(s, FIRST + 100 * HOUR);
    EXPECT(c, "*2 :1 :1", "BF.MADD k a0 d0");
    EXPECT(c, "*2 :0 :1", "BF.MADD k a0 d1");
    EXPECT(c, ":3", "BF.CARD k");
    CHECK_TIDY(s);
    EXPECT(c, ":2", "DBSIZE");
    REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
    CHECK_INT(server_info(s, "bf_items"), 3);
    CHECK_INT(server_info(s, "bf_shards"), 1);
    CHECK_INT(server_info(s, "bf_shards_lost"), 0);
}

TEST(sliding_windows_remember_what_comes_again) {
    Server *s = start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 400 SLIDING " HOURLY);
    EXPECT(c, "*2 :1 :1", "BF.MADD k often once");
    for (int i = 0; i < 10; i++) {
        pass(s, QUARTER);
        EXPECT(c, ":0", "BF.ADD k often");
        EXPECT(c, i < 4 ? ":2" : ":1", "BF.CARD k");
    }
    EXPECT(c, "*2 :1 :0", "BF.MEXISTS k often once");
    pass(s, 5 * QUARTER - 1);
    EXPECT(c, ":1", "BF.EXISTS k often");
    pass(s, 1);
    EXPECT(c, ":0", "BF.EXISTS k often");
    CHECK_INT(server_info(s, "bf_items_added"), 2);
}

/* Regression: in INFO, items that were counted twice were missing, and when the filter was deleted
 * the sum fell below 0. */
TEST(sliding_windows_after_a_loss) {
    Server *s = start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 400 SLIDING " HOURLY);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "a", 0, 10), 10);
    pass(s, 2 * QUARTER);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "a", 0, 10), 0);
    EXPECT(c, ":10", "BF.CARD k");
    const redisReply *shards = command(c, "BF.SHARDS k");
    REQUIRE(shards->elements == 2);
    EXPECT(c, ":1", "DEL %s", shards->element[1]->element[1]->str);
    EXPECT(c, ":1", "BF.HEAL k");
    /* The first slice still has the items, but the second one counts them. */
    pass(s, QUARTER);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "a", 0, 10), 0);
    CHECK_INT(server_info(s, "bf_items"), command_int(c, "BF.CARD k"));
    CHECK_TIDY(s);
    EXPECT(c, ":1", "DEL k");
    CHECK_INT(server_info(s, "bf_items"), 0);
}

/* A year ahead by mistake: what was added before is over, as far as the server knew. What is added
 * from then on is remembered for at least a window, by whatever clock. */
TEST(clocks_that_jump) {
    Server *s = start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 400 " HOURLY);
    fill(s, "k", 3);
    pass(s, -HOUR);
    EXPECT(c, ":1", "BF.ADD k back");
    CHECK_STR(known(c, "k"), "abc");
    CHECK_INT((long long)command(c, "BF.SHARDS k")->elements, 3);
    EXPECT(c, "*1 :0", "BF.INFO k AGE");
    pass(s, HOUR);
    pass(s, 365 * 24 * HOUR);
    EXPECT(c, ":1", "BF.ADD k ahead");
    CHECK_STR(known(c, "k"), "");
    server_set_clock(s, FIRST + 3 * QUARTER);
    CHECK_STR(known(c, "k"), "");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "a", 0, 10), 10);
    pass(s, 10 * HOUR);
    CHECK_STR(known(c, "k"), "a");
    server_set_clock(s, 1);
    EXPECT(c, ":1", "BF.ADD k 1970");
    EXPECT(c, ":1", "BF.EXISTS k 1970");
    server_set_clock(s, FIRST + 366 * 24 * HOUR);
    CHECK_STR(known(c, "k"), "");
    EXPECT(c, ":1", "BF.ADD k 1970");
    CHECK_TIDY(s);
    EXPECT(c, ":2", "DBSIZE");
}

TEST(slices_that_are_full_and_slices_that_grow) {
    Server *s = start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE fixed 0.001 40 NONSCALING " HOURLY);
    CHECK_INT(command_batches(c, "BF.MADD", "fixed", "i", 0, 26), 26);
    EXPECT_ERROR(c, "ERR", "full", "BF.ADD fixed more");
    EXPECT(c, ":0", "BF.ADD fixed i0");
    pass(s, QUARTER);
    EXPECT(c, ":1", "BF.ADD fixed more");
    EXPECT(c, ":27", "BF.CARD fixed");
    EXPECT(c, "+OK", "BF.RESERVE grows 0.001 40 " HOURLY);
    CHECK_INT(command_batches(c, "BF.MADD", "grows", "i", 0, 1000), 1000);
    const long long nlayers = (long long)command(c, "BF.SHARDS grows")->elements;
    CHECK(nlayers > 3);
    pass(s, QUARTER);
    CHECK_INT(command_batches(c, "BF.MADD", "grows", "j", 0, 1000), 1000);
    CHECK_INT((long long)command(c, "BF.SHARDS grows")->elements, nlayers + 1);
    pass(s, 4 * QUARTER);
    EXPECT(c, ":1000", "BF.CARD grows");
    EXPECT(c, ":1", "BF.ADD grows x");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "grows", "j", 0, 1000), 1000);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "grows", "i", 0, 1000), 0);
    /* A sliding slice that is full can't remember a known item for longer, and says so. */
    EXPECT(c, "+OK", "BF.RESERVE slides 0.001 40 NONSCALING SLIDING " HOURLY);
    CHECK_INT(command_batches(c, "BF.MADD", "slides", "i", 0, 20), 20);
    pass(s, QUARTER);
    CHECK_INT(command_batches(c, "BF.MADD", "slides", "j", 0, 26), 26);
    EXPECT_ERROR(c, "ERR", "full", "BF.ADD slides i0");
    EXPECT(c, ":1", "BF.EXISTS slides i0");
    CHECK_TIDY(s);
}

TEST(transactions_and_scripts_turn_once) {
    Server *s = start("appendonly yes\nappendfsync always"), *replica = start(NULL);
    Client *c = s->client;
    server_follow(replica, s);
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 400 " HOURLY);
    EXPECT(c, ":1", "BF.ADD k first");
    Client *stream = stream_new(s);
    pass(s, 5 * QUARTER);
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "BF.ADD k a");
    EXPECT(c, "+QUEUED", "BF.MADD k a b");
    EXPECT(c, "+QUEUED", "BF.EXISTS k first");
    EXPECT(c, "*3 :1 *2 :0 :1 :0", "EXEC");
    pass(s, QUARTER);
    EXPECT(c, "*2 :1 :0", "EVAL %s 1 k",
           "return {redis.call('BF.ADD', KEYS[1], 'c'), redis.call('BF.ADD', "
           "KEYS[1], 'a')}");
    pass(s, QUARTER);
    EXPECT(c, ":0", "BF.ADD k a"); /* known, but the filter turns */
    EXPECT(c, ":0", "BF.ADD k a");
    REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
    const char *sent = stream_read(stream);
    int nturns = 0;
    for (const char *at = sent; (at = strstr(at, "BF.SETDESCRIPTOR")); at++) nturns++;
    CHECK_INT(nturns, 3);
    /* The turn comes before what depends on it. */
    const char *turn = strstr(sent, "BF.SETDESCRIPTOR"), *item = strstr(sent, "BF.MADD k a");
    CHECK(turn && item && turn < item);
    CHECK(strstr(sent, "UNLINK bf:{k}") != NULL);
    server_wait_for_replica(s, replica);
    server_set_clock(replica, s->clock_ms);
    CHECK_SAME_DATA(s, replica);
    Snapshot *before = snapshot_take(s);
    server_restart(s, STOP_KILL);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
}

/* ---- replicas ---- */

/* Whatever a replica's clock says, its data is the primary's, to the byte; only what it shows
 * differs. */
TEST(replicas_with_other_clocks) {
    Server *primary = start(NULL), *ahead = start(NULL), *behind = start(NULL);
    server_set_clock(ahead, FIRST + 1000 * HOUR);
    server_set_clock(behind, FIRST - 1000 * HOUR);
    server_follow(ahead, primary);
    server_follow(behind, primary);
    EXPECT(primary->client, "+OK", "BF.RESERVE k 0.001 400 " HOURLY);
    EXPECT(primary->client, "+OK", "BF.RESERVE s 0.001 400 SLIDING SHARDSIZE 4096 " HOURLY);
    for (int i = 0; i < 9; i++) {
        const char prefix[] = {(char)('a' + i), '\0'};
        CHECK_INT(command_batches(primary->client, "BF.MADD", "k", prefix, 0, 10), 10);
        CHECK_INT(command_batches(primary->client, "BF.MADD", "s", prefix, 0, 300), 300);
        CHECK_INT(command_batches(primary->client, "BF.MADD", "s", "always", 0, 20), i ? 0 : 20);
        server_wait_for_replica(primary, ahead);
        CHECK_STR(known(ahead->client, "k"), "");
        EXPECT(ahead->client, ":0", "BF.CARD k");
        pass(primary, QUARTER);
    }
    pass(primary, -1);
    CHECK_STR(known(primary->client, "k"), "efghi");
    server_wait_for_replica(primary, behind);
    CHECK_STR(known(behind->client, "k"), "efghi");
    CHECK_TIDY(primary);
    server_wait_for_replica(primary, ahead);
    server_wait_for_replica(primary, behind);
    CHECK_TIDY(ahead);
    CHECK_TIDY(behind);
    /* What a snapshot shows of a filter depends on the clock. */
    server_set_clock(ahead, primary->clock_ms);
    server_set_clock(behind, primary->clock_ms);
    CHECK_SAME_DATA(primary, ahead);
    CHECK_SAME_DATA(primary, behind);
    REQUIRE(server_wait_info(ahead, "bf_sweeps_pending", "0"));
    CHECK_INT(server_info(ahead, "bf_shards_removed"), 0); /* the primary did it */
    /* A full resync, and a replica that is promoted: its clock decides from then on. */
    Server *late = start(NULL);
    server_follow(late, primary);
    server_set_clock(late, primary->clock_ms);
    CHECK_SAME_DATA(primary, late);
    EXPECT(late->client, "+OK", "REPLICAOF NO ONE");
    CHECK_STR(known(late->client, "k"), "efghi");
    pass(late, 1);
    CHECK_INT(command_batches(late->client, "BF.MADD", "k", "j", 0, 10), 10);
    CHECK_STR(known(late->client, "k"), "fghij");
    CHECK_TIDY(late);
    EXPECT(behind->client, "+OK", "REPLICAOF NO ONE");
    server_set_clock(behind, FIRST);
    CHECK_INT(command_batches(behind->client, "BF.MADD", "k", "j", 0, 10), 10);
    CHECK_STR(known(behind->client, "k"), "efghij");
}

/* The primary is gone before it has removed the strings of a slice: whoever is promoted does. */
TEST(promoted_with_strings_to_remove) {
    Server *primary = start(NULL), *replica = start(NULL);
    server_follow(replica, primary);
    EXPECT(primary->client, "+OK", "BF.RESERVE k 0.0001 400000 SHARDSIZE 4096 " HOURLY);
    CHECK_INT(command_batches(primary->client, "BF.MADD", "k", "i", 0, 1000), 1000);
    const long long before = command_int(primary->client, "DBSIZE");
    CHECK(before > 30);
    pass(primary, 5 * QUARTER);
    EXPECT(primary->client, "+OK", "MULTI");
    EXPECT(primary->client, "+QUEUED", "BF.ADD k x");
    EXPECT(primary->client, "+QUEUED", "CLIENT PAUSE 10000000 WRITE");
    EXPECT(primary->client, "*2 :1 +OK", "EXEC");
    server_wait_for_replica(primary, replica);
    CHECK_INT(command_int(replica->client, "DBSIZE"), before + 1);
    CHECK_INT(server_info(replica, "bf_sweeps_pending"), 1);
    server_stop(primary, STOP_KILL);
    EXPECT(replica->client, "+OK", "REPLICAOF NO ONE");
    CHECK_TIDY(replica);
    EXPECT(replica->client, ":2", "DBSIZE");
    EXPECT(replica->client, ":1", "BF.EXISTS k x");
}

/* ---- files ---- */

/* Leaves a filter in a state in which slices were dropped, one is over, and one grew. */
static void prepare(Server *s, const char *key) {
    EXPECT(s->client, "+OK", "BF.RESERVE %s 0.001 40 " HOURLY, key);
    fill(s, key, 3);
    CHECK_INT(command_batches(s->client, "BF.MADD", key, "more", 0, 100), 100);
    pass(s, 3 * QUARTER);
    CHECK_INT(command_batches(s->client, "BF.MADD", key, "d", 0, 10), 10);
    pass(s, QUARTER);
    CHECK_STR(known(s->client, key), "cd");
}

TEST(restarts) {
    static const char *const configs[] = {
        "save 3600 1", "appendonly yes\nappendfsync always",
        "appendonly yes\nappendfsync always\naof-use-rdb-preamble no"};
    for (size_t i = 0; i < 3; i++) {
        Server *s = start(configs[i]);
        prepare(s, "k");
        if (i == 2) {
            EXPECT(s->client, "+Background...", "BGREWRITEAOF");
            REQUIRE(server_wait_info(s, "aof_rewrite_in_progress", "0"));
        }
        CHECK_TIDY(s);
        Snapshot *before = snapshot_take(s);
        server_restart(s, i == 0 ? STOP_SAVE : STOP_KILL);
        CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
        EXPECT(s->client, "+OK", "DEBUG RELOAD");
        CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
        /* It goes on where it was, also after a rest. */
        CHECK_INT(command_batches(s->client, "BF.MADD", "k", "e", 0, 10), 10);
        CHECK_STR(known(s->client, "k"), "cde");
        server_stop(s, i == 0 ? STOP_SAVE : STOP_KILL);
        pass(s, 100 * HOUR);
        server_up(s);
        CHECK_STR(known(s->client, "k"), "");
        CHECK_INT(command_batches(s->client, "BF.MADD", "k", "f", 0, 10), 10);
        CHECK_STR(known(s->client, "k"), "f");
        CHECK_TIDY(s);
        EXPECT(s->client, ":2", "DBSIZE");
    }
}

/* Strings of a slice that was dropped, and that the sweeper has not come to, are removed after the
 * restart; those of the slices that count are not. */
TEST(restarts_with_strings_to_remove) {
    static const char *const configs[] = {"save 3600 1", "appendonly yes\nappendfsync always"};
    for (size_t i = 0; i < 2; i++) {
        Server *s = start(configs[i]);
        EXPECT(s->client, "+OK", "BF.RESERVE k 0.0001 400000 SHARDSIZE 4096 " HOURLY);
        CHECK_INT(command_batches(s->client, "BF.MADD", "k", "i", 0, 1000), 1000);
        pass(s, 2 * QUARTER);
        CHECK_INT(command_batches(s->client, "BF.MADD", "k", "j", 0, 100), 100);
        const long long nkeys = command_int(s->client, "DBSIZE");
        pass(s, 3 * QUARTER);
        EXPECT(s->client, "+OK", "MULTI");
        EXPECT(s->client, "+QUEUED", "BF.ADD k x");
        EXPECT(s->client, "+QUEUED", "CLIENT PAUSE 10000000 WRITE");
        EXPECT(s->client, "*2 :1 +OK", "EXEC");
        CHECK_INT(server_info(s, "bf_sweeps_pending"), 1);
        CHECK_INT(command_int(s->client, "DBSIZE"), nkeys + 1);
        if (i == 0) EXPECT(s->client, "+OK", "SAVE");
        server_restart(s, STOP_KILL);
        CHECK_TIDY(s);
        CHECK_INT(command_batches(s->client, "BF.MEXISTS", "k", "j", 0, 100), 100);
        EXPECT(s->client, ":101", "BF.CARD k");
        REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
        CHECK(command_int(s->client, "DBSIZE") < nkeys - 30);
        EXPECT(s->client, ":1", "DEL k");
        CHECK_TIDY(s);
        EXPECT(s->client, ":0", "DBSIZE");
    }
}

/* Regression: a payload was refused at a string that two slices share, after others had been made.
 * In the list of strings to remove, the second slice then had joined a string that did not exist.
 * No server could load a snapshot with such a list. */
TEST(snapshots_after_a_refused_payload) {
    enum { FOOTER = 1 + 2 + 8, HEAD = 1 + 1 + 2 }; /* the form of a string is before its head */
    Server *s = start("rdbcompression no");
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 400 " HOURLY);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "a", 0, 10), 10);
    pass(s, 2 * QUARTER);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "b", 0, 10), 10);
    pass(s, QUARTER);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "c", 0, 10), 10);
    const redisReply *shards = command(c, "BF.SHARDS k"), *dump = command(c, "DUMP k");
    REQUIRE(shards->elements == 3);
    const char *shared = shards->element[2]->element[1]->str;
    CHECK_STR(shared, shards->element[1]->element[1]->str);
    const size_t nbytes = (size_t)command_int(c, "STRLEN %s", shared) - HEADER_BYTES;
    Bytes bad = bytes_copy(dump->str, (size_t)dump->len);
    uint8_t *form = bad.data + bad.nbytes - FOOTER - nbytes - HEAD;
    REQUIRE(*form == 1);
    *form = 2; /* young, but too long for that */
    crc64_seal(&bad);
    /* Nothing is removed during the pause. */
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "RESTORE l 0 %b", bad.data, bad.nbytes);
    EXPECT(c, "+QUEUED", "CLIENT PAUSE 10000000 WRITE");
    EXPECT(c, "*2 -ERR Bad data format +OK", "EXEC");
    bytes_free(&bad);
    CHECK_INT(server_info(s, "bf_sweeps_pending"), 1);
    EXPECT(c, "+OK", "SAVE");
    server_restart(s, STOP_KILL);
    CHECK_TIDY(s);
    CHECK_STR(known(c, "k"), "abc");
    REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
    EXPECT(c, ":3", "DBSIZE");
}

/* A copy is as old as its original, and turns by itself. */
TEST(copies_of_old_filters) {
    Server *s = start(NULL), *other = start(NULL);
    Client *c = s->client;
    prepare(s, "k");
    const redisReply *dump = command(c, "DUMP k");
    EXPECT(c, ":1", "COPY k copied");
    EXPECT(c, ":1", "COPY k copied DB 3");
    EXPECT(c, "+OK", "RESTORE restored 0 %b", dump->str, (size_t)dump->len);
    EXPECT(c, "+OK", "RENAME k renamed");
    const char *keys[] = {"renamed", "copied", "restored"};
    for (int i = 0; i < 3; i++) {
        CHECK_STR(known(c, keys[i]), "cd");
        EXPECT(c, ":120", "BF.CARD %s", keys[i]);
        CHECK_INT(command_batches(c, "BF.MEXISTS", keys[i], "more", 0, 100), 100);
    }
    pass(s, QUARTER);
    for (int i = 0; i < 3; i++) {
        EXPECT(c, ":1", "BF.ADD %s new", keys[i]);
        CHECK_STR(known(c, keys[i]), "d");
        EXPECT(c, ":11", "BF.CARD %s", keys[i]);
    }
    CHECK_TIDY(s);
    EXPECT(c, ":1", "MOVE renamed 5");
    EXPECT(c, "+OK", "SELECT 5");
    pass(s, 2 * QUARTER);
    EXPECT(c, ":1", "BF.ADD renamed newer");
    CHECK_STR(known(c, "renamed"), "d");
    pass(s, QUARTER);
    EXPECT(c, ":1", "BF.ADD renamed newest");
    CHECK_STR(known(c, "renamed"), "");
    EXPECT(c, "+OK", "SELECT 3");
    EXPECT(c, ":0", "BF.CARD copied");
    EXPECT(c, ":1", "BF.ADD copied x");
    EXPECT(c, "+OK", "SWAPDB 3 4");
    CHECK_TIDY(s);
    EXPECT(c, "+OK", "FLUSHALL");
    CHECK_TIDY(s);
    /* On a server where it is years later, and one where it is earlier. */
    server_set_clock(other, FIRST + 1000 * HOUR);
    EXPECT(other->client, "+OK", "RESTORE k 0 %b", dump->str, (size_t)dump->len);
    CHECK_STR(known(other->client, "k"), "");
    server_set_clock(other, FIRST - 1000 * HOUR);
    CHECK_STR(known(other->client, "k"), "bcd"); /* a was dropped, b is not over here */
    EXPECT(other->client, ":1", "BF.ADD k x");
    EXPECT(other->client, ":131", "BF.CARD k");
    CHECK_TIDY(other);
}

/* Copies all of it from one server to the other; the number of chunks, or -1 if the filter has
 * changed meanwhile. `between` runs after the first chunk. */
static int transfer(Server *from, Server *to, const char *key, void (*between)(Server *)) {
    long long iterator = 0;
    for (int n = 0; n < 1000; n++) {
        const redisReply *chunk = command(from->client, "BF.SCANDUMP %s %lld", key, iterator);
        if (chunk->type != REDIS_REPLY_ARRAY) return -1;
        iterator = chunk->element[0]->integer;
        if (iterator == 0) return n;
        EXPECT(to->client, "+OK", "BF.LOADCHUNK %s %lld %b", key, iterator, chunk->element[1]->str,
               (size_t)chunk->element[1]->len);
        if (n == 0 && between) between(from);
    }
    return -1;
}

static void add_known(Server *s) {
    EXPECT(s->client, ":0", "BF.ADD k d0");
    EXPECT(s->client, ":1", "BF.ADD k d10");
}

static void turn(Server *s) {
    pass(s, QUARTER);
    EXPECT(s->client, ":0", "BF.ADD k d0");
}

static void turn_by_reading(Server *s) {
    pass(s, QUARTER);
    EXPECT(s->client, ":0", "BF.EXISTS k c0");
}

TEST(dumps_during_a_turn) {
    Server *s = start(NULL), *other = start(NULL);
    prepare(s, "k");
    server_set_clock(other, s->clock_ms);
    CHECK(transfer(s, other, "k", NULL) > 0);
    CHECK_STR(known(other->client, "k"), "cd");
    EXPECT(other->client, ":120", "BF.CARD k");
    EXPECT(other->client, ":1", "DEL k");
    CHECK(transfer(s, other, "k", turn_by_reading) > 0);
    server_set_clock(other, s->clock_ms);
    CHECK_STR(known(other->client, "k"), "d");
    EXPECT(other->client, ":1", "DEL k");
    EXPECT(s->client, ":0", "BF.ADD k d0"); /* turns: the next piece has begun */
    CHECK(transfer(s, other, "k", add_known) > 0);
    EXPECT(other->client, ":1", "BF.EXISTS k d10");
    EXPECT(other->client, ":1", "DEL k");
    CHECK_INT(transfer(s, other, "k", turn), -1);
    EXPECT_ERROR(other->client, "HALFLOADED", "", "BF.EXISTS k d0");
    EXPECT(other->client, ":1", "DEL k");
    CHECK(transfer(s, other, "k", NULL) > 0);
    server_set_clock(other, s->clock_ms);
    CHECK_STR(known(other->client, "k"), known(s->client, "k"));
    CHECK_TIDY(s);
    CHECK_TIDY(other);
}

/* ---- clusters ---- */

/* The same items as fill adds, by a client that follows the cluster. */
static const char *known_in(Router *router, const char *key) {
    static char text[27];
    size_t n = 0;
    for (char x = 'a'; x <= 'z'; x++) {
        const char prefix[] = {x, '\0'};
        const long long found = router_batches(router, "BF.MEXISTS", key, prefix, 0, 10);
        if (found != 0) text[n++] = found == 10 ? x : '?';
    }
    text[n] = '\0';
    return text;
}

static void pass_all(const Cluster *cluster, uint64_t ms) {
    for (int i = 0; i < cluster->nnodes; i++) pass(cluster->node[i], ms);
}

/* While its slot is on the move a filter turns, but drops nothing: strings of slices that are over
 * may be on either node, or on their way. The first turn on a node that owns the slot does it. */
TEST(turns_while_a_slot_migrates) {
    server_clocks_begin_at(FIRST);
    Cluster *cluster = cluster_start(2, true, NULL);
    REQUIRE(cluster != NULL);
    Router *router = router_new(cluster);
    Server *source = cluster->node[0], *target = cluster->node[1];
    const char *name = cluster_name(cluster, "seen", 0, CLUSTER_NSLOTS / 2 - 1);
    const int slot = cluster_slot(cluster, name);
    CHECK_STR(router_text(router, "BF.RESERVE %s 0.0001 40000 SHARDSIZE 4096 " HOURLY, name),
              "+OK");
    CHECK_INT(router_batches(router, "BF.MADD", name, "a", 0, 10), 10);
    CHECK_INT(router_batches(router, "BF.MADD", name, "more", 0, 300), 300);
    pass_all(cluster, QUARTER);
    CHECK_INT(router_batches(router, "BF.MADD", name, "b", 0, 10), 10);
    const char **shards = cluster_shards_of(source->client, name);
    const size_t nold = cluster_count(shards);
    CHECK(nold > 5);
    cluster_open_slot(cluster, slot, 0, 1);
    /* The first slice is over: the filter turns at the source. Its strings stay, and travel. */
    pass_all(cluster, 4 * QUARTER);
    CHECK_INT(router_batches(router, "BF.MADD", name, "c", 0, 10), 10);
    CHECK_STR(known_in(router, name), "bc");
    cluster_wait_sweepers(router);
    CHECK(cluster_count(cluster_shards_on(source)) > nold);
    CHECK_INT(server_info(source, "bf_sweeps_pending"), 0);
    const char *const one[] = {shards[0], NULL};
    cluster_move_keys(cluster, 0, 1, one);
    CHECK_STR(known_in(router, name), "bc"); /* also with a string of the old slice on its way */
    const char *const descriptor[] = {name, NULL};
    cluster_move_keys(cluster, 0, 1, descriptor);
    /* And again at the target, which has the descriptor but few of the strings. */
    pass_all(cluster, QUARTER);
    cluster_wait_sweepers(router);
    cluster_finish_slot(cluster, slot, 0, 1);
    CHECK_STR(known_in(router, name), "c");
    cluster_wait_sweepers(router);
    CHECK_SHARDS(source, 0);
    CHECK(cluster_count(cluster_shards_on(target)) > nold);
    /* Now it is owned. */
    CHECK_INT(router_batches(router, "BF.MADD", name, "d", 0, 10), 10);
    CHECK_STR(known_in(router, name), "cd");
    CHECK_TIDY(target);
    CHECK(cluster_count(cluster_shards_on(target)) < nold + 20);
    server_wait_for_replica(target, cluster->node[3]);
    CHECK_SHARDS(cluster->node[3], cluster_count(cluster_shards_on(target)));
    CHECK_STR(router_text(router, "DEL %s", name), ":1");
    CHECK_SHARDS(target, 0);
    CHECK_SHARDS(cluster->node[3], 0);
    router_free(router);
}

/* The slot as a whole, from a node whose clock is right to one that is a day ahead, and back: what
 * was added is there, whatever the target thinks of the time while it only listens. */
TEST(turns_and_atomic_migration) {
    server_clocks_begin_at(FIRST);
    Server *probe = server_start("cluster-enabled yes");
    const AtomicKind kind = atomic_kind(probe);
    CHECK(probe->pid > 0);
    if (kind == ATOMIC_NONE) return;
    Cluster *cluster = cluster_start(2, false, "cluster-node-timeout 30000");
    REQUIRE(cluster != NULL);
    Router *router = router_new(cluster);
    const char *name = cluster_name(cluster, "seen", 0, CLUSTER_NSLOTS / 2 - 1);
    const int slot = cluster_slot(cluster, name);
    CHECK_STR(router_text(router, "BF.RESERVE %s 0.0001 40000 SHARDSIZE 4096 " HOURLY, name),
              "+OK");
    CHECK_INT(router_batches(router, "BF.MADD", name, "a", 0, 10), 10);
    pass_all(cluster, 2 * QUARTER);
    CHECK_INT(router_batches(router, "BF.MADD", name, "b", 0, 10), 10);
    pass_all(cluster, 3 * QUARTER);
    CHECK_INT(router_batches(router, "BF.MADD", name, "c", 0, 10), 10);
    for (int i = 0; i < 2; i++) {
        REQUIRE(atomic_move(cluster, kind, slot, i, !i));
        CHECK_STR(known_in(router, name), "bc");
        CHECK_SHARDS(cluster->node[i], 0);
        CHECK_TIDY(cluster->node[!i]);
    }
    pass_all(cluster, 2 * QUARTER);
    CHECK_INT(router_batches(router, "BF.MADD", name, "d", 0, 10), 10);
    CHECK_STR(known_in(router, name), "cd");
    CHECK_TIDY(cluster->node[0]);
    router_free(router);
}

/* ---- losses ---- */

TEST(a_lost_shard_of_a_slice_that_is_over) {
    Server *s = start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 400 " HOURLY);
    fill(s, "k", 1);
    pass(s, 2 * QUARTER); /* slices that do not follow each other at once share no string */
    CHECK_INT(command_batches(c, "BF.MADD", "k", "b", 0, 10), 10);
    const redisReply *shards = command(c, "BF.SHARDS k");
    EXPECT(c, ":1", "DEL %s", shards->element[0]->element[1]->str);
    EXPECT_ERROR(c, "SHARDLOST", "", "BF.EXISTS k x");
    EXPECT_ERROR(c, "SHARDLOST", "", "BF.ADD k x");
    pass(s, 3 * QUARTER);
    CHECK_STR(known(c, "k"), "b");
    EXPECT(c, ":0", "BF.EXISTS k x");
    EXPECT(c, ":1", "BF.ADD k x");
    CHECK_INT(server_info(s, "bf_shards_lost"), 0);
    EXPECT(c, ":0", "BF.HEAL k");
    /* The newest slice: healed, and the filter goes on. */
    shards = command(c, "BF.SHARDS k");
    EXPECT(c, ":1", "DEL %s", shards->element[1]->element[1]->str);
    EXPECT_ERROR(c, "SHARDLOST", "", "BF.EXISTS k b0");
    EXPECT_ERROR(c, "SHARDLOST", "", "BF.ADD k x");
    EXPECT(c, ":1", "BF.HEAL k");
    CHECK_STR(known(c, "k"), "b");
    EXPECT(c, ":1", "BF.ADD k x");
    /* One that was lost before it was dropped. */
    EXPECT(c, ":1", "DEL %s", shards->element[0]->element[1]->str);
    EXPECT_ERROR(c, "SHARDLOST", "", "BF.EXISTS k y");
    CHECK_INT(server_info(s, "bf_shards_lost"), 1);
    pass(s, 5 * QUARTER);
    EXPECT(c, ":1", "BF.ADD k z");
    CHECK_INT(server_info(s, "bf_shards_lost"), 0);
    CHECK_TIDY(s);
    EXPECT(c, ":2", "DBSIZE");
}

/* The string of two slices: lost, it is an error while one of them counts. Healed, both of them are
 * empty, on the replica too, and the string goes with the second. */
TEST(a_lost_shard_of_two_slices) {
    Server *s = start(NULL), *replica = start(NULL);
    Client *c = s->client;
    server_follow(replica, s);
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 400 " HOURLY);
    fill(s, "k", 3);
    EXPECT(c, ":3", "DBSIZE");
    const redisReply *shards = command(c, "BF.SHARDS k");
    REQUIRE(shards->elements == 3);
    CHECK_STR(shards->element[1]->element[1]->str, shards->element[0]->element[1]->str);
    CHECK(strcmp(shards->element[2]->element[1]->str, shards->element[1]->element[1]->str) != 0);
    EXPECT(c, ":1", "DEL %s", shards->element[0]->element[1]->str);
    pass(s, 3 * QUARTER);
    /* Half of what counts; the first slice is over. */
    EXPECT_ERROR(c, "SHARDLOST", "is missing: 50% of the filter", "BF.EXISTS k x");
    EXPECT_ERROR(c, "SHARDLOST", "is missing: 50% of the filter", "BF.ADD k x");
    EXPECT(c, ":1", "BF.HEAL k");
    CHECK_STR(known(c, "k"), "c");
    EXPECT(c, ":1", "BF.ADD k b0");
    EXPECT(c, ":1", "BF.EXISTS k b0");
    server_wait_for_replica(s, replica);
    server_set_clock(replica, s->clock_ms);
    CHECK_SAME_DATA(s, replica);
    pass(s, QUARTER);
    EXPECT(c, ":1", "BF.ADD k y");
    CHECK_TIDY(s);
    EXPECT(c, ":4", "DBSIZE"); /* the filter; c, b0 and y have a string each */
    server_wait_for_replica(s, replica);
    server_set_clock(replica, s->clock_ms);
    CHECK_SAME_DATA(s, replica);
}

TEST(turning_without_memory) {
    Server *s = start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 400 " HOURLY);
    fill(s, "k", 2);
    EXPECT(c, "+OK", "CONFIG SET maxmemory 1");
    pass(s, 4 * QUARTER);
    EXPECT_ERROR(c, "OOM", "", "BF.ADD k x");
    CHECK_STR(known(c, "k"), "b");
    EXPECT(c, "+OK", "CONFIG SET maxmemory 0");
    EXPECT(c, ":1", "BF.ADD k x");
    CHECK_STR(known(c, "k"), "b");
    CHECK_TIDY(s);
}

/* The filter's own time to live is another matter. */
TEST(filters_with_a_window_expire) {
    Server *s = start(NULL);
    EXPECT(s->client, "+OK", "BF.RESERVE k 0.001 400 " HOURLY);
    EXPECT(s->client, ":1", "EXPIRE k 100000");
    fill(s, "k", 6);
    CHECK_RANGE((double)command_int(s->client, "TTL k"), 1, 100000);
    EXPECT(s->client, ":1", "PEXPIRE k 1");
    REQUIRE(server_wait_info(s, "expired_keys", "1"));
    CHECK_TIDY(s);
    REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
    EXPECT(s->client, ":0", "DBSIZE");
}
