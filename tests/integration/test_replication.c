/* Replicas hold what the primary holds, to the byte, and nothing is sent to them but changes. */
#include "check.h"
#include "client.h"
#include "fixture.h"
#include "snapshot.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *const other_config =
    "bf.error-rate 0.2\nbf.initial-size 7\nbf.expansion 9\nbf.shard-size 8192";

static size_t count(const char *text, const char *what) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

static void check_in_step(Server *primary, Server *replica, int rounds) {
    server_wait_for_replica(primary, replica);
    CHECK_SAME_DATA(primary, replica);
    fixture_check(replica->client, rounds);
}

/* ---- resynchronisation ---- */

static void check_full_resync(const char *primary_config, const char *replica_config) {
    Server *primary = server_start(primary_config), *replica = server_start(replica_config);
    EXPECT(replica->client, ":1", "BF.ADD leftover a"); /* goes away */
    fixture_fill(primary->client);
    fixture_add(primary->client, 0);
    server_follow(replica, primary);
    check_in_step(primary, replica, 1);
    fixture_add(primary->client, 1);
    check_in_step(primary, replica, 2);
}

TEST(full_resync_through_a_file) {
    check_full_resync("repl-diskless-sync no", NULL);
}

TEST(full_resync_without_files) {
    check_full_resync("repl-diskless-sync yes", "repl-diskless-load swapdb");
}

TEST(replication_of_everything_from_the_start) {
    Server *primary = server_start(NULL), *replica = server_start(NULL);
    server_follow(replica, primary);
    fixture_fill(primary->client);
    check_in_step(primary, replica, 0);
    fixture_add(primary->client, 0);
    check_in_step(primary, replica, 1);
}

TEST(partial_resync) {
    Server *primary = server_start("repl-backlog-size 64mb"), *replica = server_start(NULL);
    server_follow(replica, primary);
    fixture_fill(primary->client);
    check_in_step(primary, replica, 0);
    long long nfull = server_info(primary, "sync_full"),
              npartial = server_info(primary, "sync_partial_ok");
    /* Stopped, so that it cannot come back before there is something to catch up on. */
    kill(replica->pid, SIGSTOP);
    EXPECT(primary->client, ":1", "CLIENT KILL TYPE replica");
    fixture_add(primary->client, 0);
    kill(replica->pid, SIGCONT);
    server_wait_info(replica, "master_link_status", "up");
    check_in_step(primary, replica, 1);
    CHECK_INT(server_info(primary, "sync_full"), nfull);
    CHECK_INT(server_info(primary, "sync_partial_ok"), npartial + 1);
}

TEST(replica_that_restarts) {
    Server *primary = server_start(NULL), *replica = server_start("save 3600 1");
    char config[64];
    server_follow(replica, primary);
    fixture_fill(primary->client);
    server_wait_for_replica(primary, replica);
    snprintf(config, sizeof(config), "save 3600 1\nreplicaof 127.0.0.1 %d", primary->port);
    server_reconfigure(replica, NULL, config);
    server_stop(replica, STOP_SAVE);
    fixture_add(primary->client, 0);
    server_up(replica);
    server_wait_info(replica, "master_link_status", "up");
    check_in_step(primary, replica, 1);
}

TEST(replica_of_a_replica) {
    Server *primary = server_start(NULL), *middle = server_start(NULL), *last = server_start(NULL);
    server_follow(middle, primary);
    server_follow(last, middle);
    fixture_fill(primary->client);
    fixture_add(primary->client, 0);
    server_wait_for_replica(primary, middle);
    check_in_step(primary, last, 1);
}

/* ---- differing servers ---- */

/* Creation carries every parameter: the replica's own defaults play no part, also when layers are
 * added later. */
TEST(replica_with_other_configuration) {
    Server *primary = server_start(NULL), *replica = server_start(other_config);
    server_follow(replica, primary);
    fixture_fill(primary->client);
    /* Its seed is random. Of 5000 items at most 50 are taken for known on average; 150 or more have
     * a probability of less than exp(-50) * (50 * e / 150)^150 < 1e-27. */
    CHECK(command_batches(primary->client, "BF.MADD", "automatic", "i", 0, 5000) > 4850);
    check_in_step(primary, replica, 0);
    fixture_add(primary->client, 0);
    check_in_step(primary, replica, 1);

    Server *primary2 = server_start(other_config), *replica2 = server_start(NULL);
    server_follow(replica2, primary2);
    fixture_fill(primary2->client);
    fixture_add(primary2->client, 0);
    check_in_step(primary2, replica2, 1);
}

TEST(promoted_replica_goes_on) {
    Server *primary = server_start(NULL), *replica = server_start(other_config);
    server_follow(replica, primary);
    fixture_fill(primary->client);
    server_wait_for_replica(primary, replica);
    server_stop(primary, STOP_KILL);
    EXPECT(replica->client, "+OK", "REPLICAOF NO ONE");
    fixture_check(replica->client, 0);
    fixture_add(replica->client, 0);
    fixture_check(replica->client, 1);
    server_up(primary); /* empty: it had no persistence */
    server_follow(primary, replica);
    check_in_step(replica, primary, 1);
}

TEST(replicas_are_read_only) {
    Server *primary = server_start(NULL), *replica = server_start(NULL);
    server_follow(replica, primary);
    EXPECT(primary->client, "*1 :1", "BF.INSERT k SEED 1 ITEMS a");
    server_wait_for_replica(primary, replica);
    EXPECT(replica->client, ":1", "BF.EXISTS k a");
    EXPECT(replica->client, "*2 :1 :0", "BF.MEXISTS k a b");
    EXPECT(replica->client, ":1", "BF.CARD k");
    EXPECT(replica->client, "*1 :1", "BF.INFO k ITEMS");
    EXPECT(replica->client, "*1 ...", "BF.SHARDS k");
    EXPECT(replica->client, "-READONLY...", "BF.ADD k b");
    EXPECT(replica->client, "-READONLY...", "BF.MADD k b");
    EXPECT(replica->client, "-READONLY...", "BF.INSERT k ITEMS b");
    EXPECT(replica->client, "-READONLY...", "BF.RESERVE l 0.01 100");
    CHECK_SAME_DATA(primary, replica);
}

TEST(transactions_and_scripts) {
    Server *primary = server_start(NULL), *replica = server_start(other_config);
    Client *c = primary->client;
    server_follow(replica, primary);
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "BF.MADD k a b a");
    EXPECT(c, "+QUEUED", "BF.ADD k a");
    EXPECT(c, "+QUEUED", "BF.INSERT l CAPACITY 2 ERROR 0.0001 SEED 1 ITEMS a b c d e");
    EXPECT(c, "*3 *3 :1 :1 :0 :0 *5 :1 :1 :1 :1 :1", "EXEC");
    EXPECT(c, ":150", "EVAL %s 1 m",
           "redis.call('BF.RESERVE', KEYS[1], '0.0001', '20', 'SEED', '5') "
           "local n = 0 "
           "for i = 1, 150 do n = n + redis.call('BF.ADD', KEYS[1], 'i' .. i) end "
           "return n");
    server_wait_for_replica(primary, replica);
    CHECK_SAME_DATA(primary, replica);
    EXPECT(replica->client, "*3 :1 :1 :0", "BF.MEXISTS k a b c");
    EXPECT(replica->client, ":150", "BF.CARD m");
}

/* A random seed and id are drawn once, by the primary. */
TEST(random_seeds_are_replicated) {
    Server *primary = server_start(NULL), *replica = server_start(NULL);
    server_follow(replica, primary);
    for (int i = 0; i < 50; i++) {
        EXPECT(primary->client, ":1", "BF.ADD a%d x", i);
        EXPECT(primary->client, "+OK", "BF.RESERVE r%d 0.01 100", i);
        EXPECT(primary->client, ":1", "BF.ADD r%d x", i);
    }
    server_wait_for_replica(primary, replica);
    CHECK_SAME_DATA(primary, replica);
}

/* ---- what is sent ---- */

TEST(what_changes_nothing_is_not_sent) {
    Server *s = server_start(NULL);
    Client *c = s->client, *stream = stream_new(s);
    EXPECT(c, "+OK", "BF.RESERVE k 0.000001 3 NONSCALING SEED 3");
    EXPECT(c, "*3 :1 :1 :1", "BF.MADD k a b c");
    CHECK(strlen(stream_read(stream)) > 0);

    EXPECT(c, ":0", "BF.ADD k a");
    EXPECT(c, "*3 :0 :0 :0", "BF.MADD k c b a");
    EXPECT(c, "*2 :0 :0", "BF.INSERT k ITEMS a b");
    EXPECT(c, "*2 :0 :0", "BF.INSERT k NOCREATE ITEMS a b");
    EXPECT(c, "-ERR...", "BF.ADD k d");
    EXPECT(c, "*3 -ERR... -ERR... :0", "BF.MADD k d e a");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.1 100");
    EXPECT(c, "-ERR...", "BF.RESERVE l 0.1 0");
    EXPECT(c, "-ERR...", "BF.INSERT l NOCREATE ITEMS a");
    EXPECT(c, "-ERR...", "BF.INSERT l CAPACITY 0 ITEMS a");
    EXPECT(c, ":1", "BF.EXISTS k a");
    EXPECT(c, "*2 :1 :0", "BF.MEXISTS k a x");
    EXPECT(c, ":3", "BF.CARD k");
    EXPECT(c, "*1 :3", "BF.INFO k ITEMS");
    EXPECT(c, "*1 ...", "BF.SHARDS k");
    EXPECT(c, "...", "BF.PLAN 0.01 1000");
    CHECK_STR(stream_read(stream), "");

    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "BF.ADD k a");
    EXPECT(c, "*1 :0", "EXEC");
    EXPECT(c, ":0", "EVAL %s 1 k", "return redis.call('BF.ADD', KEYS[1], 'a')");
    CHECK_STR(stream_read(stream), "");
}

/* 100 items, of which 3 are new: 3 are sent. */
TEST(a_batch_sends_its_new_items) {
    Server *s = server_start(NULL);
    Client *c = s->client, *stream = stream_new(s);
    const char *argv[102] = {"BF.MADD", "k"};
    size_t lens[102] = {7, 1};
    char items[100][32];
    EXPECT(c, "+OK", "BF.RESERVE k 0.000001 1000 SEED 6");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "known-item-", 100, 100), 100);
    stream_read(stream);
    for (int i = 0; i < 100; i++) {
        bool is_new = i == 0 || i == 50 || i == 99;
        lens[i + 2] = (size_t)snprintf(items[i], sizeof(items[i]),
                                       is_new ? "fresh-item-%d" : "known-item-%d", 100 + i);
        argv[i + 2] = items[i];
    }
    redisReply *r = command_argv(c, 102, argv, lens);
    CHECK_UINT(r->elements, 100);
    const char *sent = stream_read(stream);
    CHECK_UINT(count(sent, "fresh-item-"), 3);
    CHECK_UINT(count(sent, "fresh-item-100"), 1);
    CHECK_UINT(count(sent, "fresh-item-150"), 1);
    CHECK_UINT(count(sent, "fresh-item-199"), 1);
    CHECK_UINT(count(sent, "known-item-"), 0);

    CHECK_INT(command_batches(c, "BF.MADD", "k", "known-item-", 100, 100), 0);
    CHECK_STR(stream_read(stream), "");
}

TEST(items_that_do_not_fit_are_not_sent) {
    Server *s = server_start(NULL);
    Client *c = s->client, *stream = stream_new(s);
    EXPECT(
        c, "*4 :1 :1 -ERR... :0",
        "BF.INSERT k CAPACITY 2 ERROR 0.000001 NONSCALING SEED 1 ITEMS first second third first");
    const char *sent = stream_read(stream);
    CHECK_UINT(count(sent, "first"), 1);
    CHECK_UINT(count(sent, "second"), 1);
    CHECK_UINT(count(sent, "third"), 0);
}

/* What was sent, applied to an empty server, gives the same data: the stream is complete. This is
 * what an AOF does; here a replica that joined before the first command. */
TEST(growth_gives_the_same_layers_on_both_sides) {
    Server *primary = server_start(NULL), *replica = server_start(NULL);
    server_follow(replica, primary);
    EXPECT(primary->client, "+OK", "BF.RESERVE k 0.01 1 EXPANSION 1 SEED 1");
    command_batches(primary->client, "BF.MADD", "k", "i", 0, 60);
    EXPECT(primary->client, "+OK", "BF.RESERVE l 0.01 3 EXPANSION 3 SHARDSIZE 4096 SEED 1");
    command_batches(primary->client, "BF.MADD", "l", "i", 0, 20000);
    server_wait_for_replica(primary, replica);
    CHECK_SAME_DATA(primary, replica);
    CHECK_INT(command_batches(replica->client, "BF.MEXISTS", "l", "i", 0, 20000), 20000);
}
