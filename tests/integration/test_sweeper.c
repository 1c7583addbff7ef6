/* How much the sweeper does to remove what filters leave behind, counted rather than timed: names
 * looked up, calls, runs. test_lifecycle.c tests that it removes all of that and nothing else. Also
 * BF.SHARDS in parts. */
#include "audit.h"
#include "check.h"
#include "client.h"
#include "cluster_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static long long lookups(Server *s) {
    return server_info(s, "bf_sweep_lookups");
}

/* How often a command was run, by clients or by the module. */
static long long calls(Server *s, const char *command_name) {
    char field[64];
    snprintf(field, sizeof field, "cmdstat_%s:calls=", command_name);
    const char *text = command(s->client, "INFO commandstats")->str, *at = strstr(text, field);
    return at ? atoll(at + strlen(field)) : 0;
}

/* One filter with one shard under each of the names f<first> … */
static void make_small(Client *c, int first, int n) {
    for (int i = first; i < first + n; i++) EXPECT(c, ":1", "BF.ADD f%d x", i);
}

static void delete_small(Client *c, int first, int n) {
    for (int i = first; i < first + n; i++) EXPECT(c, ":1", "DEL f%d", i);
}

/* A name is looked up once, in the database in which its filter died, however many others there
 * are. This took 1000 look-ups for each. */
TEST(one_look_up_for_each_string) {
    enum { NDBS = 1000, NFILTERS = 200 };
    Server *s = server_start("databases 1000");
    Client *c = s->client;
    for (int db = 0; db < NDBS; db++) {
        EXPECT(c, "+OK", "SELECT %d", db);
        EXPECT(c, "+OK", "SET something else");
    }
    EXPECT(c, "+OK", "SELECT 700");
    make_small(c, 0, NFILTERS);
    EXPECT(c, "+OK", "BF.RESERVE large 0.0001 100000 SHARDSIZE 4096");
    command_batches(c, "BF.MADD", "large", "i", 0, 20000);
    const long long nshards = count_strings(command(c, "BF.SHARDS large"));
    CHECK(nshards > 50);
    EXPECT(c, ":1", "MOVE large 300");
    const long long before = lookups(s);
    delete_small(c, 0, NFILTERS);
    EXPECT(c, "+OK", "SELECT 300");
    EXPECT(c, ":1", "DEL large");
    REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
    CHECK_INT(lookups(s) - before, NFILTERS + nshards);
    CHECK_INT(server_info(s, "bf_shards_removed"), NFILTERS + nshards);
    CHECK_TIDY(s);
}

/* Where a string is found, the others of its filter are; only the first of them is searched for. */
TEST(databases_are_searched_once) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    for (int db = 0; db < 8; db++) { /* the other eight are empty, and not looked into */
        EXPECT(c, "+OK", "SELECT %d", db);
        EXPECT(c, "+OK", "SET something else");
    }
    EXPECT(c, "+OK", "BF.RESERVE large 0.0001 100000 SHARDSIZE 4096");
    command_batches(c, "BF.MADD", "large", "i", 0, 20000);
    const long long nshards = count_strings(command(c, "BF.SHARDS large"));
    const long long before = lookups(s);
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "DEL large");
    EXPECT(c, "+QUEUED", "SWAPDB 7 5"); /* what was in 7 is in 5 now */
    EXPECT(c, "*2 :1 +OK", "EXEC");
    REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
    CHECK_INT(lookups(s) - before, 6 + nshards); /* 0 … 5 */
    CHECK_INT(server_info(s, "bf_shards_removed"), nshards);
    CHECK_TIDY(s);
}

/* Filters that went with all their strings cost no look-up. */
TEST(nothing_to_look_for_after_flushall) {
    const char *const flushes[] = {"FLUSHALL", "FLUSHALL ASYNC"};
    for (int i = 0; i < 2; i++) {
        Server *s = server_start(NULL);
        make_small(s->client, 0, 500);
        EXPECT(s->client, "+OK", flushes[i]);
        REQUIRE(server_wait_info(s, "bf_filters", "0"));
        REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
        CHECK_INT(lookups(s), 0);
        CHECK_INT(server_info(s, "bf_shards_removed"), 0);
    }
}

/* The server frees strings in place: large ones go one at a time, small ones many at a time. */
TEST(calls_by_bytes) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE large 0.0001 10000000 SHARDSIZE 2500000");
    command_batches(c, "BF.MADD", "large", "i", 0, 1000);
    const long long nlarge = count_strings(command(c, "BF.SHARDS large"));
    CHECK_RANGE((double)nlarge, 8, 100);
    EXPECT(c, ":1", "DEL large");
    REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
    CHECK_INT(calls(s, "unlink"), nlarge);

    EXPECT(c, "+OK", "BF.RESERVE small 0.0001 1000000 SHARDSIZE 4096");
    command_batches(c, "BF.MADD", "small", "i", 0, 900);
    const long long nsmall = count_strings(command(c, "BF.SHARDS small"));
    CHECK(nsmall > 300);
    EXPECT(c, ":1", "DEL small");
    REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
    /* 40 in a call. The first is searched for alone, and counts in its run. */
    const long long least = 1 + (nsmall - 1 + 39) / 40;
    CHECK_RANGE((double)(calls(s, "unlink") - nlarge), (double)least, (double)least + 1);
    CHECK_TIDY(s);
}

/* What the append-only file says was removed. */
struct removals {
    long long nnames; /* given to UNLINK */
    long long most;   /* of them in one transaction, which is one run of the timer */
};

static struct removals read_removals(Server *s) {
    struct removals removals = {0};
    size_t nbytes = 0;
    char *file = server_read_file(s, "appendonlydir/appendonly.aof.1.incr.aof", &nbytes);
    redisReader *reader = redisReaderCreate();
    CHECK(file && redisReaderFeed(reader, file, nbytes) == REDIS_OK);
    long long nhere = 0;
    bool within = false;
    for (void *next; redisReaderGetReply(reader, &next) == REDIS_OK && next;) {
        redisReply *words = next;
        const char *word = words->elements ? words->element[0]->str : "";
        if (strcasecmp(word, "MULTI") == 0) within = true;
        if (strcasecmp(word, "EXEC") == 0) within = false;
        if (strcasecmp(word, "UNLINK") == 0) {
            nhere += (long long)words->elements - 1;
            removals.nnames += (long long)words->elements - 1;
        }
        if (nhere > removals.most) removals.most = nhere;
        if (!within) nhere = 0;
        freeReplyObject(words);
    }
    CHECK_INT(reader->err, 0);
    redisReaderFree(reader);
    free(file);
    return removals;
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* A replica executes as one transaction what one run removes, so a run is short by number, not only
 * by the clock: 40 strings, of many filters or of one. It was as many as a millisecond allows. */
TEST(few_strings_in_a_run) {
    enum { NFILTERS = 3000, PER_RUN = 40 };
    Server *s = server_start("appendonly yes\nappendfsync no\nauto-aof-rewrite-percentage 0");
    Client *c = s->client;
    make_small(c, 0, NFILTERS);
    EXPECT(c, "+OK", "BF.RESERVE many 0.0001 1000000 SHARDSIZE 4096");
    command_batches(c, "BF.MADD", "many", "i", 0, 900);
    const long long nstrings = NFILTERS + count_strings(command(c, "BF.SHARDS many"));
    CHECK(nstrings > NFILTERS + 300);
    const long long began_ms = now_ms();
    EXPECT(c, "+OK", "MULTI"); /* all at once: the sweeper has much to do in its next run */
    for (int i = 0; i < NFILTERS; i++) EXPECT(c, "+QUEUED", "DEL f%d", i);
    EXPECT(c, "+QUEUED", "DEL many");
    CHECK_UINT(command(c, "EXEC")->elements, NFILTERS + 1);
    REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
    /* On a machine so slow that strings wait for two seconds, three, … a run may remove twice as
     * many, three times. Ticks are a tenth of a second apart, and one may come at once. */
    const long long seconds = ((now_ms() - began_ms) / 100 + 1) / 10;
    const struct removals removals = read_removals(s);
    CHECK_RANGE((double)removals.most, 1, (double)(PER_RUN * (seconds > 1 ? seconds : 1)));
    CHECK_INT(removals.nnames, nstrings);
    CHECK_INT(server_info(s, "bf_shards_removed"), nstrings);
    EXPECT(c, ":0", "DBSIZE");
    CHECK_TIDY(s);
}

/* The list survives a snapshot and a reload at any point of the removal; what lives is left
 * alone. */
TEST(reload_at_any_point) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "SELECT 3");
    make_small(c, 0, 300);
    EXPECT(c, "+OK", "BF.RESERVE many 0.0001 10000000 SHARDSIZE 4096 NONSCALING");
    command_batches(c, "BF.MADD", "many", "i", 0, 20000);
    CHECK(command_int(c, "DBSIZE") > 5000);
    EXPECT(c, ":1", "DEL many");
    for (int i = 0; i < 20; i++) {
        delete_small(c, 10 * i, 10);
        EXPECT(c, "+OK", "DEBUG RELOAD");
        pause_ms(1);
    }
    CHECK_TIDY(s);
    EXPECT(c, "+OK", "SELECT 3");
    EXPECT(c, ":200", "DBSIZE"); /* 100 filters of one shard */
    CHECK_UINT(audit(s).nfilters, 100);
}

/* A replica waits for the primary, which may not write; it looks, at each filter once per tick at
 * most, and removes nothing. */
TEST(a_replica_waits) {
    enum { NFILTERS = 300 };
    Server *primary = server_start(NULL), *replica = server_start(NULL);
    server_follow(replica, primary);
    Client *c = primary->client;
    make_small(c, 0, NFILTERS);
    server_wait_for_replica(primary, replica);
    EXPECT(c, "+OK", "MULTI");
    for (int i = 0; i < NFILTERS; i++) EXPECT(c, "+QUEUED", "DEL f%d", i);
    EXPECT(c, "+QUEUED", "CLIENT PAUSE 10000000 WRITE");
    command(c, "EXEC");
    REQUIRE(server_wait_info(replica, "bf_filters", "0"));
    const long long before = lookups(replica), runs = server_info(replica, "bf_timer_runs");
    for (int i = 0; i < 6000 && server_info(replica, "bf_timer_runs") < runs + 5; i++) pause_ms(10);
    CHECK_INT(server_info(replica, "bf_sweeps_pending"), NFILTERS);
    CHECK_INT(command_int(replica->client, "DBSIZE"), NFILTERS);
    CHECK(lookups(replica) > before);
    /* One run more than were counted when the look-ups were: they are two questions. */
    CHECK(lookups(replica) - before <=
          NFILTERS * (server_info(replica, "bf_timer_runs") - runs + 1));
    EXPECT(c, "+OK", "CLIENT UNPAUSE");
    REQUIRE(server_wait_info(replica, "bf_sweeps_pending", "0"));
    CHECK_INT(command_int(replica->client, "DBSIZE"), 0);
    CHECK_INT(server_info(replica, "bf_shards_removed"), 0); /* the primary did it */
}

/* ---- clusters ---- */

/* The state of the slots is not queried if a simpler call to the server is enough. It used to be
 * queried for each item whose string does not exist. */
TEST(cluster_nodes_is_not_read_in_peace) {
    Cluster *cluster = cluster_start(2, false, NULL);
    REQUIRE(cluster);
    Server *node = cluster->node[0];
    Client *c = node->client;
    const char *tag = cluster_name(cluster, "t", 0, CLUSTER_NSLOTS / 2 - 1);
    const int slot = cluster_slot(cluster, tag);
    const long long before = calls(node, "cluster|nodes");
    EXPECT(c, "+OK", "BF.ADOPT {%s}seen PREFIX {%s}bits BLOCKS 256 BITS 16", tag, tag);
    char key[64];
    snprintf(key, sizeof key, "{%s}seen", tag);
    const long long asked = calls(node, "exists");
    CHECK_INT(command_batches(c, "BF.MEXISTS", key, "x", 0, 1000), 0);
    CHECK_INT(calls(node, "cluster|nodes"), before);
    CHECK_INT(calls(node, "exists") - asked, 1); /* once per command */
    /* And one that dies is swept without. */
    EXPECT(c, ":1", "BF.ADD {%s}other x", tag);
    EXPECT(c, ":1", "DEL {%s}other", tag);
    REQUIRE(server_wait_info(node, "bf_sweeps_pending", "0"));
    CHECK_INT(server_info(node, "bf_shards_removed"), 1);
    CHECK_INT(calls(node, "cluster|nodes"), before);

    /* On the move, at once, however it was a moment ago. */
    EXPECT(c, ":1", "BF.ADD {%s}own x", tag);
    cluster_open_slot(cluster, slot, 0, 1);
    EXPECT_ERROR(c, "TRYAGAIN", "between", "BF.EXISTS %s x", key);
    EXPECT(c, ":1", "DEL {%s}own", tag);
    for (int i = 0; i < 100; i++)
        EXPECT_ERROR(c, "TRYAGAIN", "between", "BF.EXISTS %s x%d", key, i);
    REQUIRE(server_wait_runs(node));
    CHECK_INT(server_info(node, "bf_sweeps_pending"), 1); /* left alone */
    for (int i = 0; i < 2; i++)
        EXPECT(cluster->node[i]->client, "+OK", "CLUSTER SETSLOT %d STABLE", slot);
    EXPECT(c, ":0", "BF.EXISTS %s x", key);
    REQUIRE(server_wait_info(node, "bf_sweeps_pending", "0"));
    CHECK_INT(server_info(node, "bf_shards_removed"), 2);
}

/* ---- BF.SHARDS ---- */

static long long number_of(const redisReply *entry, int field) {
    return entry->element[2 * field + 1]->integer;
}

/* Goes over all parts as docs/commands.md says, and compares with the names that there are. */
static void check_parts(Client *c, const char *key, long long count, long long nentries) {
    long long layer = 0, shard = 0, n = 0;
    for (const redisReply *part;; n += (long long)part->elements) {
        part = command(c, "BF.SHARDS %s FROM %lld %lld COUNT %lld", key, layer, shard, count);
        REQUIRE(part->type == REDIS_REPLY_ARRAY && (long long)part->elements <= count);
        for (size_t i = 0; i < part->elements; i++) {
            const redisReply *entry = part->element[i];
            const long long at_layer = number_of(entry, 1), at_shard = number_of(entry, 2);
            CHECK(at_layer > layer || (at_layer == layer && at_shard >= shard));
            CHECK_INT(command_int(c, "EXISTS %s", entry->element[1]->str), 1);
            layer = at_layer;
            shard = at_shard + 1;
        }
        if ((long long)part->elements < count) {
            CHECK_INT(n + (long long)part->elements, nentries);
            return;
        }
    }
}

TEST(shards_in_parts) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 1000 EXPANSION 4000 SHARDSIZE 4096");
    command_batches(c, "BF.MADD", "k", "k", 0, 1500);
    const redisReply *all = command(c, "BF.SHARDS k");
    const long long few = (long long)all->elements;
    CHECK_RANGE((double)few, 100, 1000);
    /* The plain form, and the same as one part. */
    CHECK_STR(keep(reply_text(command(c, "BF.SHARDS k FROM 0 0"))), keep(reply_text(all)));
    CHECK_STR(keep(reply_text(command(c, "bf.shards k count 1000"))), keep(reply_text(all)));
    check_parts(c, "k", 7, few);
    check_parts(c, "k", few, few); /* the last part is empty */

    command_batches(c, "BF.MADD", "k", "k", 1500, 8500);
    const long long many = command_int(c, "DBSIZE") - 1;
    CHECK(many > 1000);
    EXPECT_ERROR(c, "ERR", "1000 shards", "BF.SHARDS k");
    CHECK_UINT(command(c, "BF.SHARDS k FROM 0 0")->elements, 1000);
    check_parts(c, "k", 1000, many);
    check_parts(c, "k", 999, many);
    EXPECT(c, "*0", "BF.SHARDS k FROM 2 0");
    EXPECT(c, "*0", "BF.SHARDS k COUNT 1 FROM 1 18446744073709551615");
    EXPECT(c, "*0", "BF.SHARDS k COUNT 1 FROM 18446744073709551615 0");

    static const struct {
        const char *words, *problem;
    } bad[] = {{"FROM", "'FROM' needs two values"},
               {"FROM 0", "'FROM' needs two values"},
               {"FROM 0 -1", "bad part"},
               {"FROM a 0", "bad part"},
               {"FROM 0 0 0", "Unknown argument received: '0'"},
               {"COUNT", "'COUNT' needs a value"},
               {"COUNT 0", "bad part"},
               {"COUNT 1001", "bad part"},
               {"COUNT 1 COUNT 1", "'COUNT' is given twice"},
               {"COUNT -1", "bad part"},
               {"x", "Unknown argument received: 'x'"},
               {"FROM 0 0 FROM 0", "'FROM' is given twice"},
               {"COUNT 1 x", "Unknown argument received: 'x'"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[64];
        snprintf(line, sizeof line, "BF.SHARDS k %s", bad[i].words);
        EXPECT_ERROR(c, "ERR", bad[i].problem, line);
    }
    EXPECT_ERROR(c, "ERR", "not found", "BF.SHARDS none FROM 0 0");
    CHECK_TIDY(s); /* which goes by the parts */
}

/* Layers in one string, and strings of others. */
TEST(shards_in_parts_of_other_layers) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100");
    command_batches(c, "BF.MADD", "k", "k", 0, 5000);
    const redisReply *all = command(c, "BF.SHARDS k");
    CHECK(all->elements > 3 && count_strings(all) == 1);
    check_parts(c, "k", 2, (long long)all->elements);

    EXPECT(c, "+OK", "BF.ADOPT a PREFIX bits BLOCKS 200 BITS 16");
    check_parts(c, "a", 5, 0);
    command_batches(c, "BF.MADD", "a", "a", 0, 100);
    all = command(c, "BF.SHARDS a");
    CHECK(all->elements > 20);
    check_parts(c, "a", 5, (long long)all->elements);
    check_parts(c, "a", 1000, (long long)all->elements);
}
