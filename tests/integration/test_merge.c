/* BF.MERGE: unions of filters, at once and in steps, on primaries and replicas, and whatever
 * happens to the filters, the client or the server in the middle. */
#include "check.h"
#include "client.h"
#include "cluster_fixture.h"
#include "snapshot.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* Some 4500 shards of 4 kB: many steps, whatever the machine. How many items are counted in the end
 * depends on the steps, by one for each at the most, because what is estimated is rounded. */
#define MANY "0.001 10000000 SEED 5 SHARDSIZE 4096"
enum { MANY_ITEMS = 20000 };
#define CHECK_BOTH(nitems)                                                                         \
    CHECK_RANGE((double)(nitems), 0.98 * 2 * MANY_ITEMS, 1.02 * 2 * MANY_ITEMS)

static void reserve(Client *c, const char *options, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char line[256];
        snprintf(line, sizeof line, "BF.RESERVE %s %s", names[i], options);
        EXPECT(c, "+OK", line);
    }
}

/* Two filters, `a` and `b`, with items of their own. */
static void make_pair(Client *c, const char *options, long long nitems) {
    reserve(c, options, (const char *const[]){"a", "b"}, 2);
    CHECK_INT(command_batches(c, "BF.MADD", "a", "a", 0, nitems), nitems);
    CHECK_INT(command_batches(c, "BF.MADD", "b", "b", 0, nitems), nitems);
}

static void make_many(Client *c) {
    make_pair(c, MANY, MANY_ITEMS);
}

static void check_has(Client *c, const char *key, const char *prefix, long long n) {
    if (!CHECK_INT(command_batches(c, "BF.MEXISTS", key, prefix, 0, n), n))
        CHECK_FAIL("%s lacks items of %s", key, prefix);
}

/* ---- small unions, made at once ---- */

TEST(a_union_has_the_items_of_all) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    reserve(c, "0.0001 1000000 SEED 5", (const char *const[]){"a", "b", "d"}, 3);
    EXPECT(c, "*3 :1 :1 :1", "BF.MADD a 1 2 3");
    EXPECT(c, "*3 :1 :1 :1", "BF.MADD b 3 4 5");
    EXPECT(c, ":5", "BF.MERGE c a b"); /* is made */
    EXPECT(c, "*6 :1 :1 :1 :1 :1 :0", "BF.MEXISTS c 1 2 3 4 5 6");
    EXPECT(c, ":5", "BF.CARD c");
    EXPECT(c, "*10 +Capacity :1000000...", "BF.INFO c");
    EXPECT(c, ":3", "BF.CARD a"); /* sources stay as they are */
    EXPECT(c, ":1", "BF.ADD c 6");
    EXPECT(c, ":6", "BF.MERGE d c");
    EXPECT(c, ":6", "BF.MERGE d d"); /* itself */
    EXPECT(c, ":6", "BF.MERGE d a b c a");
    EXPECT(c, ":0", "BF.EXISTS a 4");
    CHECK_INT(server_info(s, "bf_items"), 3 + 3 + 6 + 6);
    EXPECT(c, ":4", "DEL a b c d");
    server_wait_info(s, "bf_sweeps_pending", "0");
    EXPECT(c, ":0", "DBSIZE");
    CHECK_INT(server_info(s, "bf_items"), 0);
}

TEST(what_can_not_be_united_changes_nothing) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    reserve(c, "0.01 1000 SEED 5", (const char *const[]){"a"}, 1);
    EXPECT(c, ":1", "BF.ADD a x");
    static const char *const others[][2] = {
        {"0.01 1000 SEED 6", "their seeds differ"},
        {"0.001 1000 SEED 5", "their error rates differ"},
        {"0.01 1001 SEED 5", "layer 0 is for 1000 items in the destination and for 1001"},
        {"0.01 1000 SEED 5 NONSCALING", "only one of them is NONSCALING"},
        {"0.01 1000 SEED 5 WINDOW 3600", "only one of them has a window"},
    };
    for (size_t i = 0; i < N(others); i++) {
        char line[256];
        snprintf(line, sizeof line, "BF.RESERVE other%d %s", (int)i, others[i][0]);
        EXPECT(c, "+OK", line);
        EXPECT(c, "*1 :1", "BF.INSERT other%d ITEMS y", (int)i);
    }
    EXPECT(c, "+OK", "BF.ADOPT old PREFIX bits");
    EXPECT(c, "+OK", "SET string x");
    Snapshot *before = snapshot_take(s);
    for (size_t i = 0; i < N(others); i++)
        EXPECT_ERROR(c, "ERR", others[i][1], "BF.MERGE a other%d", (int)i);
    EXPECT_ERROR(c, "ERR", "the source has adopted strings", "BF.MERGE new old");
    EXPECT_ERROR(c, "ERR", "their seeds differ", "BF.MERGE new a other0");
    EXPECT_ERROR(c, "ERR", "not found", "BF.MERGE new none");
    EXPECT_ERROR(c, "ERR", "not found", "BF.MERGE new a none");
    EXPECT(c, "-WRONGTYPE...", "BF.MERGE string a");
    EXPECT(c, "-WRONGTYPE...", "BF.MERGE new string");
    EXPECT(c, "-ERR wrong number of arguments...", "BF.MERGE a");
    EXPECT(c, "-ERR BF.MERGE works in steps...", "EVAL %s 2 a a",
           "return redis.call('BF.MERGE', KEYS[1], KEYS[2])");
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "BF.MERGE a a");
    EXPECT(c, "*1 -ERR BF.MERGE works in steps...", "EXEC");
    const char *argv[1003] = {"BF.MERGE"};
    size_t lens[1003] = {8};
    for (size_t i = 1; i < N(argv); i++) {
        argv[i] = "a";
        lens[i] = 1;
    }
    CHECK_STR(keep(reply_text(command_argv(c, 1003, argv, lens))),
              "-ERR too many sources: 1000 at most");
    CHECK_STR(keep(reply_text(command_argv(c, 1002, argv, lens))), ":1");
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
}

/* Filters that were half loaded, and filters whose shards are lost. */
TEST(sources_must_be_whole) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    reserve(c, "0.01 100000 SEED 5 SHARDSIZE 4096", (const char *const[]){"a", "b"}, 2);
    command_batches(c, "BF.MADD", "a", "a", 0, 2000);
    command_batches(c, "BF.MADD", "b", "b", 0, 2000);
    const redisReply *chunk = command(c, "BF.SCANDUMP a 0");
    REQUIRE(chunk->type == REDIS_REPLY_ARRAY);
    EXPECT(c, "+OK", "BF.LOADCHUNK half %lld %b", chunk->element[0]->integer,
           chunk->element[1]->str, (size_t)chunk->element[1]->len);
    const redisReply *shards = command(c, "BF.SHARDS b");
    REQUIRE(shards->elements > 10);
    const char *last = shards->element[shards->elements - 1]->element[1]->str;
    const redisReply *lost = command(c, "DUMP %s", last);
    EXPECT(c, ":1", "DEL %s", last);
    Snapshot *before = snapshot_take(s);
    EXPECT(c, "-HALFLOADED...", "BF.MERGE a half");
    EXPECT(c, "-HALFLOADED...", "BF.MERGE half a");
    EXPECT(c, "-SHARDLOST shard bf:{b}:... is missing...", "BF.MERGE a b");
    EXPECT(c, "-SHARDLOST shard bf:{b}:... is missing...", "BF.MERGE b a");
    EXPECT(c, "-SHARDLOST shard bf:{b}:... is missing...", "BF.MERGE new a b");
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    EXPECT(c, "+OK", "RESTORE %s 0 %b", last, lost->str, (size_t)lost->len);
    CHECK(command_int(c, "BF.MERGE a b") > 3900);
    check_has(c, "a", "b", 2000);
}

TEST(rights) {
    Server *s = server_start(NULL);
    reserve(s->client, "0.01 1000 SEED 5", (const char *const[]){"seen1", "seen2", "other"}, 3);
    EXPECT(s->client, "+OK", "ACL SETUSER worker on nopass %s %s %s +bf.merge", "%R~seen1",
           "~seen2", "%W~seen3");
    Client *c = client_new(s);
    EXPECT(c, "+OK", "AUTH worker x");
    EXPECT(c, ":0", "BF.MERGE seen2 seen1");
    EXPECT(c, "-NOPERM...", "BF.MERGE seen1 seen2");
    EXPECT(c, "-NOPERM...", "BF.MERGE seen2 other");
    EXPECT(c, "-NOPERM...", "BF.MERGE seen2 seen1 other");
    EXPECT(c, "-NOPERM...", "BF.MERGE other seen1");
    EXPECT(c, "-NOPERM...", "BF.MERGE seen3 seen1"); /* the count says something of what it had */
    EXPECT(s->client, "*3 \"c\" \"a\" \"b\"", "COMMAND GETKEYS BF.MERGE c a b");
    EXPECT(s->client,
           "*3 *2 \"c\" *3 +RW +access +insert *2 \"a\" *2 +RO +access *2 \"b\" *2 +RO +access",
           "COMMAND GETKEYSANDFLAGS BF.MERGE c a b");
}

/* ---- persistence and replication ---- */

/* Filters that grew, shared strings, turned dense or did not; the count comes with the step. */
static void make_shapes(Client *c) {
    static const struct {
        const char *options;
        int na, nb;
    } shapes[] = {
        {"0.01 100 SEED 5", 50, 5000},
        {"0.01 100 SEED 5", 5000, 50},
        {"0.001 100000 SEED 5 SHARDSIZE 4096", 20000, 300},
        {"0.001 100000 SEED 5 SHARDSIZE 65536", 300, 20000},
        {"0.0001 10000000 SEED 5", 1000, 1000},
        {"0.001 30000 SEED 5 NONSCALING", 10000, 10000},
    };
    for (size_t i = 0; i < N(shapes); i++) {
        char a[8], b[8];
        snprintf(a, sizeof a, "a%d", (int)i);
        snprintf(b, sizeof b, "b%d", (int)i);
        reserve(c, shapes[i].options, (const char *const[]){a, b}, 2);
        command_batches(c, "BF.MADD", a, "a", 0, shapes[i].na);
        command_batches(c, "BF.MADD", b, "b", 0, shapes[i].nb);
        command_batches(c, "BF.MADD", b, "a", 0, 30);
        const long long sum =
            command_int(c, "BF.CARD %s", a) + command_int(c, "BF.CARD %s", b) - 30;
        CHECK_RANGE((double)command_int(c, "BF.MERGE c%d %s %s", (int)i, a, b), 0.97 * (double)sum,
                    1.03 * (double)sum);
        command_int(c, "BF.MERGE %s %s", a, b);
        for (int j = 0; j < 2; j++) {
            char key[8];
            snprintf(key, sizeof key, "%c%d", j ? 'c' : 'a', (int)i);
            check_has(c, key, "a", shapes[i].na);
            check_has(c, key, "b", shapes[i].nb);
        }
    }
}

TEST(replicas_and_files_have_the_same) {
    Server *s = server_start("appendonly yes\nappendfsync always"), *replica = server_start(NULL);
    server_follow(replica, s);
    Client *c = s->client;
    make_shapes(c);
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    /* All of it was merged before: nothing is written. */
    const size_t nbytes = server_aof_nbytes(s);
    for (int i = 0; i < 6; i++) CHECK(command_int(c, "BF.MERGE c%d a%d b%d", i, i, i) > 0);
    CHECK_INT(server_aof_nbytes(s), nbytes);
    server_restart(s, STOP_KILL);
    server_wait_info(replica, "master_link_status", "up");
    CHECK_SAME_DATA(s, replica);
    EXPECT(c, "+OK", "CONFIG SET appendonly no");
    Snapshot *before = snapshot_take(s);
    EXPECT(c, "+OK", "DEBUG RELOAD");
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
}

TEST(only_the_steps_are_sent) {
    Server *s = server_start(NULL);
    Client *c = s->client, *stream = stream_new(s);
    reserve(c, "0.01 1000 SEED 5", (const char *const[]){"a", "b"}, 2);
    EXPECT(c, ":1", "BF.ADD b x");
    stream_read(stream);
    EXPECT(c, ":1", "BF.MERGE a b");
    const char *text = stream_read(stream);
    if (!CHECK(text_matches(text, "...BF.MERGED a b 0 0 0 1 0 ... 1..."))) CHECK_FAIL("%s", text);
    CHECK(!strstr(text, "SETDESCRIPTOR"));
    EXPECT(c, ":1", "BF.MERGE a b");
    CHECK_STR(stream_read(stream), "");
    EXPECT(c, ":1", "BF.MERGE new b");
    CHECK(strstr(stream_read(stream), "BF.SETDESCRIPTOR new "));
}

/* A replica that has lost the source's shard can't know the union: it does not pretend to. */
TEST(a_replica_that_lost_a_source) {
    Server *s = server_start(NULL), *replica = server_start("replica-read-only no");
    server_follow(replica, s);
    Client *c = s->client, *r = replica->client;
    reserve(c, "0.001 100000 SEED 5 SHARDSIZE 65536", (const char *const[]){"a", "b"}, 2);
    command_batches(c, "BF.MADD", "a", "a", 0, 20000);
    command_batches(c, "BF.MADD", "b", "b", 0, 20000);
    server_wait_for_replica(s, replica);
    const redisReply *shards = command(r, "BF.SHARDS b");
    REQUIRE(shards->elements >= 3);
    EXPECT(r, ":1", "DEL %s", shards->element[1]->element[1]->str);
    CHECK(command_int(c, "BF.MERGE a b") > 38000);
    server_wait_for_replica(s, replica);
    const redisReply *result = command(r, "BF.SHARDS a");
    REQUIRE(result->elements == shards->elements);
    for (size_t i = 0; i < result->elements; i++)
        CHECK_STR(result->element[i]->element[9]->str, i == 1 ? "damaged" : "ok");
    EXPECT(r, "-SHARDLOST...", "BF.MEXISTS a b1 b2 b3 b4 b5 b6 b7 b8 b9 b10 b11 b12 b13 b14 b15");
    CHECK_STR(command_text(r, "BF.CARD a"), command_text(c, "BF.CARD a"));
}

/* ---- unions that take their time ---- */

/* Sends a command without waiting for its reply. */
static void send(Client *c, const char *line) {
    int done = 0;
    REQUIRE(c->redis && redisAppendCommand(c->redis, line) == REDIS_OK);
    while (!done) REQUIRE(redisBufferWrite(c->redis, &done) == REDIS_OK);
}

/* The reply to what was sent, as text. */
static const char *receive(Client *c) {
    redisReply *reply = NULL;
    if (redisGetReply(c->redis, (void **)&reply) != REDIS_OK || !reply) return "no reply";
    const char *text = keep(reply_text(reply));
    freeReplyObject(reply);
    return text;
}

/* Begins a union and stops all writing after its first step. The server is stopped while both
 * commands are sent, so it finds them together and runs no timer in between. */
static void begin(Server *s, Client *waiting, const char *line) {
    kill(s->pid, SIGSTOP);
    send(waiting, line);
    send(s->client, "CLIENT PAUSE 10000000 WRITE");
    kill(s->pid, SIGCONT);
    CHECK_STR(receive(s->client), "+OK");
    server_wait_info(s, "blocked_clients", "1");
}

/* Lets one command, that writes, run in the middle of a union. */
static void interfere(Server *s, Client *other, const char *line) {
    send(other, line);
    server_wait_info(s, "blocked_clients", "2"); /* it waits for the pause to end */
    EXPECT(s->client, "+OK", "CLIENT UNPAUSE");
}

TEST(others_are_served_meanwhile) {
    Server *s = server_start(NULL), *replica = server_start(NULL);
    server_follow(replica, s);
    Client *c = s->client, *waiting = client_new(s), *other = client_new(s);
    make_many(c);
    begin(s, waiting, "BF.MERGE c a b");
    check_has(c, "a", "a", 1000); /* reading goes on */
    interfere(s, other, "BF.MADD a late1 late2");
    CHECK_STR(receive(other), "*2 :1 :1");
    /* To all of them items are added while it lasts. */
    long long nadded[3] = {0}, n = 0;
    while (server_info(s, "blocked_clients") == 1 && n < 1000000) {
        nadded[0] += command_batches(c, "BF.MADD", "a", "during", n, 100);
        if (command_int(c, "EXISTS c") == 1)
            nadded[2] += command_batches(c, "BF.MADD", "c", "to", n, 100);
        n += 100;
    }
    const char *reply = receive(waiting);
    long long count = 0;
    CHECK(sscanf(reply, ":%lld", &count) == 1);
    CHECK_RANGE((double)count, 0.98 * 2 * MANY_ITEMS,
                1.02 * (2 * MANY_ITEMS + (double)(nadded[0] + nadded[2] + 2)));
    check_has(c, "c", "a", MANY_ITEMS);
    check_has(c, "c", "b", MANY_ITEMS);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "c", "to", 0, n) >= nadded[2], 1);
    check_has(c, "a", "during", n);
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    /* Items that were added to a source later are merged by a second command. */
    CHECK(command_int(c, "BF.MERGE c a") >= count);
    check_has(c, "c", "during", n);
    EXPECT(c, "*2 :1 :1", "BF.MEXISTS c late1 late2");
}

/* One of the filters goes in the middle: an error says which. Sent again, the command does what can
 * be done. */
TEST(filters_that_vanish) {
    static const char *const cases[][2] = {
        {"DEL b", "-ERR the filter 'b' was deleted, renamed or replaced during the merge..."},
        {"RENAME b elsewhere", "-ERR the filter 'b' was deleted, renamed or replaced..."},
        {"RENAME a b", "-ERR the filter '...' was deleted, renamed or replaced..."},
        {"SET a x", "-ERR the filter 'a' was deleted, renamed or replaced..."},
        {"RENAME c elsewhere", "-ERR the filter 'c' was deleted, renamed or replaced..."},
        {"FLUSHALL", "-ERR the filter '...' was deleted, renamed or replaced..."},
        {"SWAPDB 0 1", "-ERR the filter '...' was deleted, renamed or replaced..."},
    };
    Server *s = server_start("save \"\"");
    Client *c = s->client;
    for (size_t i = 0; i < N(cases); i++) {
        Client *waiting = client_new(s), *other = client_new(s);
        EXPECT(c, "+OK", "FLUSHALL");
        make_many(c);
        reserve(c, MANY, (const char *const[]){"c"}, 1);
        begin(s, waiting, "BF.MERGE c a b");
        interfere(s, other, cases[i][0]);
        const char *reply = receive(waiting);
        if (!text_matches(reply, cases[i][1])) CHECK_FAIL("%s: %s", cases[i][0], reply);
        CHECK(receive(other)[0] != '-');
        server_wait_info(s, "blocked_clients", "0");
    }
}

TEST(clients_that_go_away) {
    Server *s = server_start(NULL);
    Client *c = s->client, *waiting = client_new(s), *killed = client_new(s);
    make_many(c);
    begin(s, waiting, "BF.MERGE c a b");
    client_disconnect(waiting);
    server_wait_info(s, "blocked_clients", "0");
    EXPECT(c, "+OK", "CLIENT UNPAUSE");
    const long long id = command_int(killed, "CLIENT ID");
    begin(s, killed, "BF.MERGE d a b");
    EXPECT(c, ":1", "CLIENT KILL ID %lld", id);
    server_wait_info(s, "blocked_clients", "0");
    EXPECT(c, "+OK", "CLIENT UNPAUSE");
    /* The command can be sent again. */
    CHECK_BOTH(command_int(c, "BF.MERGE c a b"));
    check_has(c, "c", "a", MANY_ITEMS);
    check_has(c, "c", "b", MANY_ITEMS);
    /* Nothing is left of the one that was killed but what it had done. */
    CHECK(command_int(c, "BF.CARD d") <= 1.02 * 2 * MANY_ITEMS);
}

TEST(several_unions_at_a_time) {
    Server *s = server_start(NULL);
    Client *c = s->client, *waiting[3];
    make_many(c);
    static const char *const lines[] = {"BF.MERGE c a b", "BF.MERGE d b a", "BF.MERGE c b a"};
    for (size_t i = 0; i < 3; i++) {
        waiting[i] = client_new(s);
        send(waiting[i], lines[i]);
    }
    for (size_t i = 0; i < 3; i++) CHECK_BOTH(atoll(receive(waiting[i]) + 1));
    check_has(c, "c", "b", MANY_ITEMS);
    check_has(c, "d", "a", MANY_ITEMS);
}

/* The server dies somewhere on the way: what it had done is there, and the rest can be done. */
TEST(a_crash_on_the_way) {
    enum { NFEW = 5000 };
    Server *s = server_start("appendonly yes\nappendfsync always"), *replica = server_start(NULL);
    Client *c = s->client;
    make_pair(c, "0.001 2000000 SEED 5 SHARDSIZE 4096", NFEW);
    server_follow(replica, s);
    const long long nkeys = command_int(c, "DBSIZE");
    for (int round = 0; round < 3; round++) {
        Client *waiting = client_new(s);
        send(waiting, "BF.MERGE c a b");
        while (server_info(s, "blocked_clients") == 1 &&
               command_int(c, "DBSIZE") < nkeys + 400 * round)
            continue;
        server_restart_unseen(s, STOP_KILL, replica);
        server_wait_info(replica, "master_link_status", "up");
        check_has(c, "a", "a", NFEW);
        check_has(c, "b", "b", NFEW);
    }
    CHECK_RANGE((double)command_int(c, "BF.MERGE c a b"), 1.96 * NFEW, 2.04 * NFEW);
    check_has(c, "c", "a", NFEW);
    check_has(c, "c", "b", NFEW);
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
}

/* The primary becomes a replica in the middle: the client hears of it, and the union ends. */
TEST(a_primary_that_steps_down) {
    Server *s = server_start(NULL), *other = server_start(NULL);
    Client *c = s->client, *waiting = client_new(s);
    make_many(c);
    server_follow(other, s);
    begin(s, waiting, "BF.MERGE c a b");
    EXPECT(other->client, "+OK", "REPLICAOF NO ONE");
    EXPECT(c, "+OK", "CLIENT UNPAUSE");
    EXPECT(c, "+OK", "REPLICAOF 127.0.0.1 %d", other->port);
    CHECK(receive(waiting)[0] != ':');
    server_wait_info(s, "master_link_status", "up");
    server_wait_info(s, "blocked_clients", "0");
    CHECK_BOTH(command_int(other->client, "BF.MERGE c a b"));
    server_wait_for_replica(other, s);
    CHECK_STR(command_text(c, "BF.CARD c"), command_text(other->client, "BF.CARD c"));
    check_has(c, "c", "a", MANY_ITEMS);
    check_has(c, "c", "b", MANY_ITEMS);
}

/* Shards of more than 1 MB are united in pieces. */
TEST(large_shards_in_pieces) {
    Server *s = server_start(NULL), *replica = server_start(NULL);
    server_follow(replica, s);
    Client *c = s->client;
    reserve(c, "0.001 13000000 SEED 5 SHARDSIZE 32mb", (const char *const[]){"a", "b"}, 2);
    CHECK(command_batches(c, "BF.MADD", "a", "a", 0, 40000) == 40000);
    CHECK(command_batches(c, "BF.MADD", "b", "b", 0, 40000) == 40000);
    const redisReply *shards = command(c, "BF.SHARDS b");
    REQUIRE(shards->elements == 1);
    CHECK_STR(shards->element[0]->element[9]->str, "ok");
    CHECK(shards->element[0]->element[7]->integer > 16 << 20);
    CHECK_RANGE((double)command_int(c, "BF.MERGE a b"), 79500, 80500);
    check_has(c, "a", "a", 40000);
    check_has(c, "a", "b", 40000);
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
}

TEST(no_memory) {
    Server *s = server_start("maxmemory-policy noeviction");
    Client *c = s->client;
    make_many(c);
    const long long used = server_info(s, "used_memory");
    EXPECT(c, "+OK", "CONFIG SET maxmemory %lld", used + (used / 50));
    const char *reply = command_text(c, "BF.MERGE c a b");
    if (!CHECK(strncmp(reply, "-OOM 'maxmemory' is used up", 27) == 0)) CHECK_FAIL("%s", reply);
    EXPECT(c, "+OK", "CONFIG SET maxmemory 0");
    CHECK_BOTH(command_int(c, "BF.MERGE c a b"));
}

/* ---- windows ---- */

TEST(windows) {
    enum { HOUR = 3600 * 1000 };
    const uint64_t start = 1800000000000;
    server_clocks_begin_at(start);
    Server *s = server_start(NULL), *replica = server_start(NULL);
    server_follow(replica, s);
    Client *c = s->client;
    reserve(c, "0.001 10000 SEED 5 WINDOW 14400 SLICES 4", (const char *const[]){"a", "b"}, 2);
    for (int hour = 0; hour < 7; hour++) {
        server_set_clock(s, start + (uint64_t)hour * HOUR);
        server_set_clock(replica, start + (uint64_t)hour * HOUR);
        EXPECT(c, ":1", "BF.ADD a a%d", hour);
        EXPECT(c, ":1", "BF.ADD b b%d", hour);
    }
    EXPECT(c, ":10", "BF.MERGE new a b"); /* five slices of each count */
    EXPECT(c, ":10", "BF.MERGE a b");
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "new" : "a";
        EXPECT(c, "*7 :0 :0 :1 :1 :1 :1 :1", "BF.MEXISTS %s a0 a1 a2 a3 a4 a5 a6", key);
        EXPECT(c, "*7 :0 :0 :1 :1 :1 :1 :1", "BF.MEXISTS %s b0 b1 b2 b3 b4 b5 b6", key);
    }
    server_wait_info(s, "bf_sweeps_pending", "0");
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    /* They go on forgetting at the same moments. */
    server_set_clock(s, start + 8ull * HOUR);
    EXPECT(c, "*4 :0 :0 :1 :1", "BF.MEXISTS a a2 b3 a4 b5");
    EXPECT(c, "*4 :0 :0 :1 :1", "BF.MEXISTS new b2 a3 b4 a5");
    /* A slice that the destination never had, and can't have any more. */
    reserve(c, "0.001 10000 SEED 5 WINDOW 14400 SLICES 4", (const char *const[]){"late"}, 1);
    EXPECT_ERROR(c, "ERR", "no slice as old as", "BF.MERGE late a");
    EXPECT(c, "+OK", "BF.RESERVE other 0.001 10000 SEED 5 WINDOW 14400 SLICES 8");
    EXPECT_ERROR(c, "ERR", "their windows differ", "BF.MERGE other a");
}

/* Regression: a source of which every slice is over has nothing to give, but the destination had to
 * have its newest slice. */
TEST(windows_in_which_nothing_came_for_long) {
    enum { HOUR = 3600 * 1000 };
    const uint64_t start = 1600000000000u / HOUR * HOUR + 5;
    server_clocks_begin_at(start);
    Server *s = server_start(NULL);
    Client *c = s->client;
    reserve(c, "0.001 10000 SEED 5 WINDOW 14400 SLICES 4", (const char *const[]){"idle", "k"}, 2);
    EXPECT(c, ":1", "BF.ADD idle old");
    server_set_clock(s, start + 9ull * HOUR);
    EXPECT(c, ":1", "BF.ADD k x");
    EXPECT(c, ":1", "BF.MERGE k idle");
    EXPECT(c, ":1", "BF.MERGE one idle k");
    EXPECT(c, ":1", "BF.MERGE other k idle");
    EXPECT(c, ":0", "BF.MERGE none idle");
    EXPECT(c, "*2 :0 :1", "BF.MEXISTS other old x");
    EXPECT(c, ":1", "BF.ADD none old");
}

/* ---- clusters ---- */

TEST(in_a_cluster) {
    Cluster *cluster = cluster_start(2, false, NULL);
    REQUIRE(cluster);
    const int slot = cluster_slot(cluster, "{t}"), home = cluster_home(cluster, slot);
    Client *c = cluster->node[home]->client;
    reserve(c, "0.01 1000 SEED 5", (const char *const[]){"{t}a", "{t}b"}, 2);
    EXPECT(c, ":1", "BF.ADD {t}a x");
    EXPECT(c, ":1", "BF.ADD {t}b y");
    EXPECT(c, "-CROSSSLOT...", "BF.MERGE {t}a {u}b");
    const char *same = cluster_name(cluster, "plain", slot, slot);
    EXPECT(c, ":2", "BF.MERGE %s {t}a {t}b", same);
    EXPECT(c, "*2 :1 :1", "BF.MEXISTS %s x y", same);
    const char *brace = cluster_name(cluster, "a}b", slot, slot);
    EXPECT(c, "-ERR in a cluster a filter can't have this name...", "BF.MERGE %s {t}a", brace);
    cluster_open_slot(cluster, slot, home, 1 - home);
    EXPECT(c, "-TRYAGAIN shards...", "BF.MERGE {t}a {t}b");
    for (int i = 0; i < 2; i++)
        EXPECT(cluster->node[i]->client, "+OK", "CLUSTER SETSLOT %d STABLE", slot);
    /* That the slot was on the move may be believed for a moment. */
    for (int i = 0; i < 600 && command_text(c, "BF.MERGE {t}a {t}b")[0] == '-'; i++) pause_ms(100);
    EXPECT(c, ":2", "BF.MERGE {t}a {t}b");
}
