/* The module remembers for a moment which filter a name means. Whatever changes that must make it
 * forget, at once: here the change and the next question stand in one transaction, so that no time
 * passes between them. */
#include "check.h"
#include "client.h"
#include "cluster_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* f contains x, g does not, and f was just used. */
static void prepare(Client *c) {
    command(c, "FLUSHALL");
    EXPECT(c, "*1 :1", "BF.INSERT f SEED 1 ITEMS x");
    EXPECT(c, "*1 :1", "BF.INSERT g SEED 1 ITEMS y");
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "BF.EXISTS f x");
    EXPECT(c, "+QUEUED", "BF.EXISTS f x");
}

/* Runs the action in the midst of questions; `want` is the answer to the last one, whether f
 * contains x. */
static void check_after(Client *c, const char *action, const char *want) {
    prepare(c);
    command(c, action);
    EXPECT(c, "+QUEUED", "BF.EXISTS f x");
    char expected[64];
    snprintf(expected, sizeof expected, "*4 :1 :1 ... %s", want);
    if (!EXPECT(c, expected, "EXEC")) fprintf(stderr, "    after %s\n", action);
}

TEST(names_that_mean_something_else) {
    Client *c = server_start("enable-debug-command yes")->client;
    check_after(c, "PING", ":1");
    check_after(c, "DEL f", ":0");
    check_after(c, "UNLINK f", ":0");
    check_after(c, "FLUSHDB", ":0");
    check_after(c, "FLUSHALL", ":0");
    check_after(c, "FLUSHALL ASYNC", ":0");
    check_after(c, "SWAPDB 0 1", ":0");
    check_after(c, "SELECT 1", ":0");
    command(c, "SELECT 0");
    check_after(c, "RENAME f h", ":0");
    check_after(c, "RENAME g f", ":0");
    check_after(c, "COPY g f REPLACE", ":0");
    check_after(c, "MOVE f 1", ":0");
    check_after(c, "EXPIRE f -1", ":0");
    check_after(c, "SET f string", "-WRONGTYPE...");
    check_after(c, "EVAL return(redis.call('del','f')) 0", ":0");
}

TEST(restored_over_it) {
    Client *c = server_start("")->client;
    prepare(c);
    EXPECT(c, "...", "DISCARD");
    redisReply *dump = command(c, "DUMP g");
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "BF.EXISTS f x");
    EXPECT(c, "+QUEUED", "RESTORE f 0 %b REPLACE", dump->str, (size_t)dump->len);
    EXPECT(c, "+QUEUED", "BF.EXISTS f x");
    EXPECT(c, "+QUEUED", "BF.EXISTS f y");
    EXPECT(c, "*4 :1 +OK :0 :1", "EXEC");
}

/* Every filter has its own entry, or takes another's, and none gets another's answers. */
TEST(many_filters) {
    Client *c = server_start("")->client;
    enum { NFILTERS = 300 };
    for (int i = 0; i < NFILTERS; i++)
        EXPECT(c, "*1 :1", "BF.INSERT filter:%d SEED 1 ITEMS item%d", i, i);
    for (int i = 0; i < NFILTERS; i++) {
        EXPECT(c, ":1", "BF.EXISTS filter:%d item%d", i, i);
        EXPECT(c, ":0", "BF.EXISTS filter:%d item%d", i, i + 1);
        EXPECT(c, ":0", "BF.ADD filter:%d item%d", i, i);
    }
    EXPECT(c, "+OK", "SELECT 3");
    for (int i = 0; i < NFILTERS; i++) EXPECT(c, ":0", "BF.EXISTS filter:%d item%d", i, i);
}

TEST(time_to_live) {
    Client *c = server_start("enable-debug-command yes")->client;
    EXPECT(c, "+OK", "DEBUG SET-ACTIVE-EXPIRE 0");
    for (int round = 0; round < 10; round++) {
        EXPECT(c, ":1", "BF.ADD f x");
        EXPECT(c, ":1", "BF.EXISTS f x");
        EXPECT(c, ":1", "PEXPIRE f 5");
        usleep(8000);
        EXPECT(c, ":0", "BF.EXISTS f x");
        EXPECT(c, ":1", "BF.ADD f x"); /* it was gone: this makes a new one */
        EXPECT(c, ":1", "PEXPIRE f 500000");
        EXPECT(c, ":1", "BF.EXISTS f x");
        EXPECT(c, ":1", "PEXPIRE f 5");
        usleep(8000);
        EXPECT(c, ":0", "BF.EXISTS f x");
    }
}

/* A server that evicts what was not used of late must see that the filter is used. */
TEST(the_server_sees_the_use) {
    Client *c = server_start("maxmemory 100mb\nmaxmemory-policy allkeys-lfu\nlfu-log-factor 0\n"
                             "lfu-decay-time 0")
                    ->client;
    EXPECT(c, ":1", "BF.ADD f x");
    const long long before = command_int(c, "OBJECT FREQ f");
    for (int i = 0; i < 50; i++) EXPECT(c, ":1", "BF.EXISTS f x");
    CHECK(command_int(c, "OBJECT FREQ f") >= before + 50);
}

/* A replica that takes a whole new data set while it answers from the old one. */
TEST(replica_that_swaps_its_data) {
    const char *config = "repl-diskless-sync yes\nrepl-diskless-sync-delay 0\n"
                         "repl-diskless-load swapdb";
    Server *old = server_start(config), *replica = server_start(config);
    EXPECT(old->client, "*1 :1", "BF.INSERT f SEED 1 ITEMS x");
    server_follow(replica, old);
    EXPECT(replica->client, ":1", "BF.EXISTS f x");
    Server *new = server_start(config);
    EXPECT(new->client, "*1 :1", "BF.INSERT f SEED 1 ITEMS y");
    EXPECT(replica->client, ":1", "BF.EXISTS f x");
    server_follow(replica, new);
    EXPECT(replica->client, ":0", "BF.EXISTS f x");
    EXPECT(replica->client, ":1", "BF.EXISTS f y");
}

/* Sends the commands at once, so that the server runs them one after the other and nothing else in
 * between; their replies as one text. */
static const char *pipeline(Client *c, const char *const *lines, int n) {
    char *all = NULL;
    size_t length;
    for (int i = 0; i < n; i++) redisAppendCommand(c->redis, lines[i]);
    FILE *out = open_memstream(&all, &length);
    for (int i = 0; i < n; i++) {
        redisReply *reply = NULL;
        redisGetReply(c->redis, (void **)&reply);
        fprintf(out, "%s%s", i ? " " : "", reply ? (char *)keep(reply_text(reply)) : "lost");
        freeReplyObject(reply);
    }
    fclose(out);
    return keep(all);
}

/* Redis 8.4 and newer take whole slots out of the keyspace, without a word about their keys, and
 * free them in the background: on a replica while its clients still ask. Here the replica is
 * writable, so that the test can say when. */
TEST(slots_that_are_trimmed_on_a_replica) {
    Cluster *cluster = cluster_start(1, true, "replica-read-only no");
    REQUIRE(cluster);
    Client *c = cluster->node[1]->client;
    if (command(c, "COMMAND INFO TRIMSLOTS")->element[0]->type == REDIS_REPLY_NIL) return;
    EXPECT(cluster->node[0]->client, ":1", "BF.ADD f x");
    server_wait_for_replica(cluster->node[0], cluster->node[1]);
    const char *lines[] = {"READONLY",      "BF.EXISTS f x",
                           "BF.EXISTS f x", "TRIMSLOTS RANGES 1 0 16383",
                           "EXISTS f",      "BF.EXISTS f x"};
    CHECK_STR(pipeline(c, lines, sizeof lines / sizeof *lines), "+OK :1 :1 +OK :0 :0");
}
