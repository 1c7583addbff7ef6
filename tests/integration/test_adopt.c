/* BF.ADOPT: its arguments and errors, and an adopted layer through everything that can happen to a
 * filter. That its bits are those of the recipe is proved in tests/clients/test_adopt.py. */
#include "check.h"
#include "client.h"
#include "primary.h"
#include "cluster_fixture.h"
#include "snapshot.h"

#include <stdio.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* Strings that are small enough to be quick and large enough not to fill up. */
#define ADOPT_SMALL "BITS 16 BLOCKS 3"

static void add(Client *c, const char *key, const char *prefix, int n) {
    char item[64];
    for (int i = 0; i < n; i++) {
        snprintf(item, sizeof item, "%s%d", prefix, i);
        command(c, "BF.ADD %s %s", key, item);
    }
}

static void check_all_there(Client *c, const char *key, const char *prefix, int n) {
    for (int i = 0; i < n; i++) EXPECT(c, ":1", "BF.EXISTS %s %s%d", key, prefix, i);
}

/* ---- arguments ---- */

TEST(adopt_has_the_recipes_defaults) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.ADOPT k");
    EXPECT(c, "+bf-shards", "TYPE k");
    EXPECT(c, ":1", "DBSIZE");
    EXPECT(c,
           "*10 +Capacity :93379028 +Size :... +Number of filters :1 +Number of items inserted :0 "
           "+Expansion rate :2",
           "BF.INFO k");
    EXPECT(c, "*0", "BF.SHARDS k");
    EXPECT(c, ":0", "BF.EXISTS k a");
    EXPECT(c, "+OK", "BF.ADOPT k2 BLOCKS 6 EXPANSION 4");
    EXPECT(c, "*1 :560274168", "BF.INFO k2 CAPACITY");
    EXPECT(c, "*1 :4", "BF.INFO k2 EXPANSION");
    EXPECT(c, "+OK", "bf.adopt k3 nonscaling digest none seeds 2 0 18446744073709551615 bits 32");
    EXPECT(c, "*1 _", "BF.INFO k3 EXPANSION");
    EXPECT(c, ":3", "DBSIZE");
}

TEST(names_of_the_strings) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.ADOPT one PREFIX bits BITS 10");
    EXPECT(c, ":1", "BF.ADD one a");
    EXPECT(c, ":1", "EXISTS bits");
    EXPECT(c, "+OK", "BF.ADOPT many PREFIX %b BITS 10 BLOCKS 2", "x\0y", (size_t)3);
    for (int i = 0; i < 20; i++) command(c, "BF.ADD many %d", i);
    EXPECT(c, ":2", "EXISTS %b %b", "x\0y0", (size_t)4, "x\0y1", (size_t)4);
    EXPECT(c, ":5", "DBSIZE");
    EXPECT(c, "*1 *16 +key \"bits\" +layer :0 +shard :0 +bytes :... +state +ok +fill ...",
           "BF.SHARDS one");
}

TEST(adopt_refuses_what_makes_no_sense) {
    Client *c = server_start(NULL)->client;
    static const struct {
        const char *word, *arguments;
    } bad[] = {
        {"prefix", "PREFIX "},
        {"value", "PREFIX"},
        {"blocks", "BLOCKS 0"},
        {"blocks", "BLOCKS 257"},
        {"blocks", "BLOCKS x"},
        {"blocks", "BLOCKS -1"},
        {"bits", "BITS 8"},
        {"bits", "BITS 33"},
        {"bits", "BITS 31.0"},
        {"seeds", "SEEDS 0"},
        {"seeds", "SEEDS 65 1"},
        {"seeds", "SEEDS 3 1 2"},
        {"seed", "SEEDS 2 1 -2"},
        {"seed", "SEEDS 1 18446744073709551616"},
        {"unknown", "SEEDS 1 2 3"},
        {"digest", "DIGEST SHA1"},
        {"digest", "DIGEST NONE BLOCKS 2"},
        {"expansion", "EXPANSION 32769"},
        {"expansion", "EXPANSION x"},
        {"nonscaling", "EXPANSION 2 NONSCALING"},
        {"twice", "BITS 20 BITS 20"},
        {"twice", "NONSCALING NONSCALING"},
        {"unknown", "CAPACITY 100"},
        {"unknown", "bloomfilter"},
    };
    for (size_t i = 0; i < N(bad); i++) {
        const char *argv[80] = {"BF.ADOPT", "k"};
        size_t lens[80] = {8, 1};
        int argc = 2;
        for (const char *at = bad[i].arguments;;) {
            const char *space = strchrnul(at, ' ');
            argv[argc] = at;
            lens[argc++] = (size_t)(space - at);
            if (!*space) break;
            at = space + 1;
        }
        redisReply *reply = command_argv(c, argc, argv, lens);
        if (!CHECK(reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "ERR ", 4) == 0 &&
                   strcasestr(reply->str, bad[i].word)))
            CHECK_FAIL("%s: %s", bad[i].arguments, reply_text(reply));
    }
    EXPECT(c, "-ERR wrong number...", "BF.ADOPT");
    EXPECT(c, ":0", "DBSIZE");
}

TEST(adopt_refuses_other_types_and_existing_keys) {
    Client *c = server_start(NULL)->client;
    command(c, "RPUSH bf2 x");
    command(c, "SET bf0 abc");
    EXPECT_ERROR(c, "ERR", "string", "BF.ADOPT k PREFIX bf BLOCKS 3");
    EXPECT(c, ":0", "EXISTS k bf1");
    command(c, "DEL bf2");
    command(c, "SETBIT long 512 1");
    EXPECT_ERROR(c, "ERR", "longer", "BF.ADOPT k PREFIX long BITS 9");
    EXPECT(c, "+OK", "BF.ADOPT k PREFIX long BITS 10");
    EXPECT(c, "-ERR item exists", "BF.ADOPT k PREFIX long BITS 10");
    EXPECT(c, "-WRONGTYPE...", "BF.ADOPT bf0 PREFIX other");
    EXPECT_ERROR(c, "ERR", "name", "BF.ADOPT self PREFIX self");
    EXPECT_ERROR(c, "ERR", "name", "BF.ADOPT self3 PREFIX self BLOCKS 4");
    EXPECT(c, "+OK", "BF.ADOPT self3 PREFIX self BLOCKS 3");
}

TEST(adopt_respects_the_permissions_of_the_user) {
    Server *s = server_start(NULL);
    EXPECT(s->client, "+OK", "ACL SETUSER worker on >secret ~mine* +@all");
    Client *c = client_new(s);
    EXPECT(c, "+OK", "AUTH worker secret");
    EXPECT(c, "-NOPERM...", "BF.ADOPT mine PREFIX theirs");
    EXPECT(c, "+OK", "BF.ADOPT mine PREFIX mine:bits");
    EXPECT(s->client, ":1", "DBSIZE");
}

/* ---- the life of a filter ---- */

/* Waits until the sweeper has removed a filter, and another: it has then gone through all its
 * work. */
static void wait_sweeper(Client *c) {
    for (int n = 0; n < 2; n++) {
        EXPECT(c, "*1 :1", "BF.INSERT decoy ITEMS x");
        const char *shard = command(c, "BF.SHARDS decoy")->element[0]->element[1]->str;
        EXPECT(c, ":1", "DEL decoy");
        for (int i = 0; i < 6000 && command_int(c, "EXISTS %s", shard); i++) pause_ms(10);
        EXPECT(c, ":0", "EXISTS %s", shard);
    }
}

TEST(deleting_the_filter_leaves_the_strings) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.ADOPT k " ADOPT_SMALL);
    add(c, "k", "x", 50);
    EXPECT(c, ":4", "DBSIZE");
    EXPECT(c, ":1", "DEL k");
    wait_sweeper(c);
    EXPECT(c, ":3", "DBSIZE");
    EXPECT(c, "+OK", "BF.ADOPT k " ADOPT_SMALL);
    check_all_there(c, "k", "x", 50);
    CHECK_RANGE((double)command_int(c, "BF.CARD k"), 48, 52);
}

/* Capacity of one string of 2^9 bits with 7 seeds is 22 items. */
TEST(a_full_adopted_layer_is_followed_by_blocked_ones) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.ADOPT k BITS 9");
    EXPECT(c, "*1 :22", "BF.INFO k CAPACITY");
    add(c, "k", "x", 200);
    /* The blocked layers have a random seed, and are so sparse that the false positives of 200
     * items have a mean of 0.002. Nine of them would be needed (one item collides in the bitmap):
     * less than 0.002^9 < 1e-24. */
    CHECK(command_int(c, "BF.CARD k") >= 190);
    EXPECT(c, "*1 :4", "BF.INFO k FILTERS");
    check_all_there(c, "k", "x", 200);
    CHECK(command_int(c, "STRLEN bloomfilter") <= 64);
    const long long nkeys = command_int(c, "DBSIZE");
    CHECK_INT(nkeys, 3); /* the filter, the string, and a shard that three layers share */
    EXPECT(c, ":1", "DEL k");
    for (int i = 0; i < 6000 && command_int(c, "DBSIZE") > 1; i++) pause_ms(10);
    EXPECT(c, "*1 \"bloomfilter\"", "KEYS *");

    EXPECT(c, "+OK", "BF.ADOPT full BITS 9 NONSCALING");
    CHECK(command_int(c, "BF.CARD full") >= 20);
    add(c, "full", "y", 30);
    EXPECT(c, "-ERR non scaling filter is full", "BF.ADD full never-seen-before");
}

/* Adopting what is already fuller than it should be. */
TEST(an_overfull_bitmap_is_adopted_and_grows_at_once) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    command(c, "BITFIELD bloomfilter SET i64 0 -1 SET i64 64 -1 SET i64 128 -1");
    command(c, "SETBIT bloomfilter 511 0");
    EXPECT(c, "+OK", "BF.ADOPT k BITS 9");
    CHECK(command_int(c, "BF.CARD k") > 22);
    command(c, "BITFIELD full SET i64 0 -1 SET i64 64 -1 SET i64 128 -1 SET i64 192 -1 "
               "SET i64 256 -1 SET i64 320 -1 SET i64 384 -1 SET i64 448 -1");
    EXPECT(c, "+OK", "BF.ADOPT k2 PREFIX full BITS 9");
    EXPECT(c, ":0", "BF.ADD k2 anything");
    EXPECT(c, "+OK", "DEBUG RELOAD");
    EXPECT(c, ":0", "BF.ADD k2 anything");
}

TEST(adopted_layers_survive_restarts) {
    Server *s = server_start("appendonly yes\nappendfsync always\n");
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.ADOPT k " ADOPT_SMALL);
    EXPECT(c, "+OK", "BF.ADOPT small PREFIX tiny BITS 9");
    add(c, "k", "x", 100);
    add(c, "small", "y", 100);
    Snapshot *before = snapshot_take(s);
    server_restart(s, STOP_KILL);
    CHECK_SAME_SNAPSHOT(snapshot_take(s), before);
    EXPECT(c, "+OK", "DEBUG RELOAD");
    CHECK_SAME_SNAPSHOT(snapshot_take(s), before);
    EXPECT(c, "+Background...", "BGREWRITEAOF");
    server_wait_info(s, "aof_rewrite_in_progress", "0");
    server_restart(s, STOP_KILL);
    CHECK_SAME_SNAPSHOT(snapshot_take(s), before);
    check_all_there(c, "k", "x", 100);
    add(c, "k", "z", 10);
    check_all_there(c, "k", "z", 10);
}

TEST(replicas_have_the_same_bits_and_counts) {
    Server *primary = server_start(NULL), *replica = server_start_with("EXPANSION 7", NULL);
    Client *c = primary->client;
    command(c, "SETBIT bloomfilter1 1000 1");
    EXPECT(c, "+OK", "BF.ADOPT before " ADOPT_SMALL);
    server_follow(replica, primary);
    EXPECT(c, "+OK", "BF.ADOPT after PREFIX tiny BITS 9");
    add(c, "before", "x", 100);
    add(c, "after", "y", 100); /* grows */
    for (int i = 0; i < 300; i++) command(c, "SETBIT bloomfilter%d %d 1", i % 3, i * 97);
    add(c, "before", "z", 100);
    command(c, "BF.MADD before z1 z2 new1 new1 new2 %s", "");
    command(c, "BF.MADD before %s %s", "", "");
    EXPECT(c, ":1", "COPY after copy");
    server_wait_for_replica(primary, replica);
    CHECK_SAME_DATA(primary, replica);
    check_all_there(replica->client, "before", "z", 100);
}

TEST(only_what_changed_is_replicated) {
    Server *s = server_start(NULL);
    Client *c = s->client, *stream = stream_new(s);
    EXPECT(c, "+OK", "BF.ADOPT k " ADOPT_SMALL);
    CHECK(strstr(stream_read(stream), "BF.SETDESCRIPTOR k ") != NULL);
    EXPECT(c, "*3 :1 :0 :1", "BF.MADD k a a b");
    CHECK_STR(stream_read(stream), "BF.MADD k a b\n");
    EXPECT(c, "*2 :0 :0", "BF.MADD k a b");
    EXPECT(c, ":1", "BF.EXISTS k a");
    CHECK_STR(stream_read(stream), "");
}

/* WATCH of an adopted string must notice what the filter writes to it. */
TEST(writes_to_adopted_strings_are_signalled) {
    Server *s = server_start(NULL);
    Client *c = s->client, *other = client_new(s);
    EXPECT(c, "+OK", "BF.ADOPT k BITS 16");
    EXPECT(c, ":1", "BF.ADD k a");
    command(other, "WATCH bloomfilter");
    EXPECT(c, ":0", "BF.ADD k a");
    command(other, "MULTI");
    command(other, "PING");
    EXPECT(other, "*1 +PONG", "EXEC");
    command(other, "WATCH bloomfilter");
    EXPECT(c, ":1", "BF.ADD k b");
    command(other, "MULTI");
    command(other, "PING");
    EXPECT(other, "_", "EXEC");
}

/* A copy, and a filter that was restored, have strings of their own, and remove them when they
 * go. */
TEST(copies_are_independent) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.ADOPT k " ADOPT_SMALL);
    add(c, "k", "x", 50);
    EXPECT(c, ":1", "COPY k copy");
    redisReply *dump = command(c, "DUMP k");
    REQUIRE(dump->type == REDIS_REPLY_STRING);
    EXPECT(c, "+OK", "RESTORE restored 0 %b", dump->str, (size_t)dump->len);
    EXPECT(c, ":12", "DBSIZE");
    const char *digest = command_text(c, "DEBUG DIGEST-VALUE k");
    CHECK_STR(command_text(c, "DEBUG DIGEST-VALUE copy"), digest);
    CHECK_STR(command_text(c, "DEBUG DIGEST-VALUE restored"), digest);
    check_all_there(c, "copy", "x", 50);
    check_all_there(c, "restored", "x", 50);
    EXPECT(c, ":1", "BF.ADD copy only-copy");
    EXPECT(c, ":1", "BF.ADD restored only-restored");
    EXPECT(c, ":0", "BF.EXISTS k only-copy");
    EXPECT(c, ":0", "BF.EXISTS k only-restored");
    EXPECT(c, "+OK", "DEBUG RELOAD");
    EXPECT(c, ":1", "BF.EXISTS copy only-copy");
    EXPECT(c, ":1", "BF.EXISTS restored only-restored");
    EXPECT(c, ":2", "DEL copy restored");
    for (int i = 0; i < 6000 && command_int(c, "DBSIZE") > 4; i++) pause_ms(10);
    EXPECT(c, ":4", "DBSIZE");
    EXPECT(c, ":3", "EXISTS bloomfilter0 bloomfilter1 bloomfilter2");
}

/* What others wrote after the adoption is copied too, also into strings that the filter had not
 * seen. */
TEST(copies_have_strings_that_others_made) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.ADOPT k " ADOPT_SMALL);
    EXPECT(c, "+OK", "BF.ADOPT other " ADOPT_SMALL);
    add(c, "other", "x", 50);
    EXPECT(c, ":0", "BF.CARD k");
    check_all_there(c, "k", "x", 50);
    EXPECT(c, ":1", "COPY k copy");
    check_all_there(c, "copy", "x", 50);
    redisReply *dump = command(c, "DUMP k");
    REQUIRE(dump->type == REDIS_REPLY_STRING);
    EXPECT(c, "+OK", "RESTORE restored 0 %b", dump->str, (size_t)dump->len);
    check_all_there(c, "restored", "x", 50);
}

TEST(lost_strings_are_errors_until_healed) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.ADOPT k BITS 16 PREFIX bits");
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT(c, ":1", "DEL bits");
    EXPECT(c, "-SHARDLOST shard bits is missing...", "BF.EXISTS k a");
    EXPECT(c, "-SHARDLOST...", "BF.ADD k a");
    EXPECT(c, "*1 *16 +key \"bits\" ... +state +missing ...", "BF.SHARDS k");
    EXPECT(c, ":1", "BF.HEAL k");
    EXPECT(c, ":0", "BF.HEAL k");
    EXPECT(c, ":0", "BF.EXISTS k a");
    EXPECT(c, "*0", "BF.SHARDS k");
    EXPECT(c, ":1", "BF.ADD k a");
    command(c, "DEL bits");
    command(c, "RPUSH bits x");
    EXPECT(c, "-SHARDLOST shard bits was overwritten...", "BF.EXISTS k a");
    EXPECT(c, ":0", "BF.HEAL k"); /* somebody's list is not ours to replace */
    EXPECT(c, "+list", "TYPE bits");
    command(c, "DEL bits");
    EXPECT(c, ":1", "BF.HEAL k");
    command(c, "SET bits 12345"); /* stored as a number: bits all the same */
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT(c, ":1", "BF.EXISTS k a");
    EXPECT(c, "\"1\"", "GETRANGE bits 0 0");
}

TEST(an_empty_string_is_an_empty_bitmap) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    command(c, "SET bits %s", "");
    EXPECT(c, "+OK", "BF.ADOPT k BITS 16 PREFIX bits");
    EXPECT(c, ":0", "BF.EXISTS k a");
    EXPECT(c, ":1", "COPY k copy");
    redisReply *dump = command(c, "DUMP k");
    REQUIRE(dump->type == REDIS_REPLY_STRING);
    EXPECT(c, "+OK", "RESTORE restored 0 %b", dump->str, (size_t)dump->len);
    EXPECT(c, ":0", "BF.EXISTS copy a");
    EXPECT(c, ":0", "BF.EXISTS restored a");
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT(c, ":1", "BF.ADD copy a");
    EXPECT(c, ":1", "BF.ADD restored a");
}

TEST(in_a_cluster_the_strings_share_the_filters_slot) {
    Server *s = server_start("cluster-enabled yes\n");
    Client *c = s->client;
    EXPECT(c, "+OK", "CLUSTER ADDSLOTSRANGE 0 16383");
    server_wait_info(s, "cluster_enabled", "1");
    for (int i = 0; i < 6000 && !strstr(command_text(c, "CLUSTER INFO"), "cluster_state:ok"); i++)
        pause_ms(10);
    EXPECT_ERROR(c, "CROSSSLOT", "slot", "BF.ADOPT k");
    EXPECT_ERROR(c, "CROSSSLOT", "slot", "BF.ADOPT {bits}k PREFIX bits BLOCKS 2 BITS 16");
    EXPECT(c, "+OK", "BF.ADOPT {bits}k PREFIX bits BITS 16");
    EXPECT(c, "+OK", "BF.ADOPT seen PREFIX {seen}: BLOCKS 2 BITS 16");
    add(c, "seen", "x", 50);
    check_all_there(c, "seen", "x", 50);
    EXPECT(c, ":4", "DBSIZE");
}

/* Bytes that claim to be a filter: none may do harm, only those that a filter could have written
 * are taken. */
TEST(hostile_descriptors_are_refused) {
    Server *s = server_start("replica-read-only no");
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.ADOPT k BLOCKS 9 BITS 16 PREFIX {x}bits");
    redisReply *good = command(c, "BF.DESCRIPTOR k");
    REQUIRE(good->type == REDIS_REPLY_STRING && good->len < 400);
    Primary primary = primary_start(s);
    char bytes[400];
    for (size_t i = 0; i < good->len; i++) {
        primary_send(&primary, "BF.SETDESCRIPTOR cut %b", good->str, i);
        for (int bit = 0; bit < 8; bit++) {
            memcpy(bytes, good->str, good->len);
            bytes[i] ^= (char)(1 << bit);
            command(c, "DEL changed");
            primary_send(&primary, "BF.SETDESCRIPTOR changed %b", bytes, (size_t)good->len);
            command(c, "BF.EXISTS changed item");
            command(c, "BF.SHARDS changed");
        }
    }
    EXPECT(c, ":0", "EXISTS cut");
    primary_send(&primary, "BF.SETDESCRIPTOR k %b", good->str, (size_t)good->len);
    EXPECT(c, ":1", "EXISTS k");
    primary_stop(&primary);
}

/* The strings stay in the database where others use them; the filter says that they are not where
 * it is. */
TEST(move_leaves_the_strings) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.ADOPT k BITS 16");
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT(c, ":1", "MOVE k 1");
    EXPECT(c, ":1", "EXISTS bloomfilter");
    EXPECT(c, "+OK", "SELECT 1");
    EXPECT(c, "-SHARDLOST...", "BF.EXISTS k a");
    EXPECT(c, ":1", "MOVE k 0");
    EXPECT(c, "+OK", "SELECT 0");
    EXPECT(c, ":1", "BF.EXISTS k a");
}

TEST(chunks_are_refused) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.ADOPT k BITS 16");
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT_ERROR(c, "ERR", "adopted", "BF.SCANDUMP k 0");
    EXPECT_ERROR(c, "ERR", "adopted", "BF.SCANDUMP k 1");
}

/* Filter and strings travel as keys of their own; in between no answer is made up, neither of
 * strings that the filter has seen nor of one that it has not. */
TEST(adopted_filters_migrate_between_cluster_nodes) {
    Cluster *cluster = cluster_start(2, false, NULL);
    REQUIRE(cluster);
    const char *tag = cluster_name(cluster, "t", 0, CLUSTER_NSLOTS / 2 - 1);
    const int slot = cluster_slot(cluster, tag);
    char key[64], strings[3][64];
    snprintf(key, sizeof key, "{%s}seen", tag);
    for (int i = 0; i < 3; i++) snprintf(strings[i], sizeof strings[i], "{%s}bits%d", tag, i);
    Client *from = cluster->node[0]->client, *to = cluster->node[1]->client;
    EXPECT(from, "+OK", "BF.ADOPT %s PREFIX {%s}bits BLOCKS 3 BITS 16", key, tag);
    EXPECT(from, "+OK", "BF.ADOPT {%s}other PREFIX {%s}bits BLOCKS 3 BITS 16", tag, tag);
    char other[64];
    snprintf(other, sizeof other, "{%s}other", tag);
    add(from, other, "x", 50); /* unseen by the first filter */
    check_all_there(from, key, "x", 50);

    cluster_open_slot(cluster, slot, 0, 1);
    const char *const first[] = {key, strings[0], NULL};
    cluster_move_keys(cluster, 0, 1, first);
    int nanswered = 0, ntryagain = 0;
    for (int i = 0; i < 50; i++) {
        command(to, "ASKING");
        const char *answer = command_text(to, "BF.EXISTS %s x%d", key, i);
        if (text_matches(answer, "-TRYAGAIN..."))
            ntryagain++;
        else if (CHECK_STR(answer, ":1"))
            nanswered++;
    }
    CHECK(nanswered > 0 && ntryagain > 0);
    for (int i = 0; i < 50; i++) {
        const char *answer = command_text(from, "BF.EXISTS %s x%d", other, i);
        CHECK(text_matches(answer, "-TRYAGAIN...") || text_matches(answer, ":1"));
    }
    cluster_finish_slot(cluster, slot, 0, 1);
    Router *router = router_new(cluster);
    cluster_wait_sweepers(router);
    router_free(router);
    check_all_there(to, key, "x", 50);
    check_all_there(to, other, "x", 50);
    EXPECT(to, ":5", "DBSIZE");
    EXPECT(from, ":0", "DBSIZE");
    add(to, key, "y", 20);
    check_all_there(to, other, "y", 20);
}
