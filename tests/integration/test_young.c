/* Large shards begin as tables of their items and turn into bitmaps: the same on every server that
 * applies the same commands, whatever happens to the keys meanwhile. tests/unit/test_filter.c has
 * the rules; here are servers, files and the network. */
#include "audit.h"
#include "check.h"
#include "client.h"
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Four shards of some 75 kB, which turn when they hold 37 to 74 items, one after the other. */
#define SEVERAL "0.01 240000 SHARDSIZE 80kb NONSCALING SEED 5"
/* A small first layer, then one of two shards, which begin young when it is full. */
#define GROWING "0.01 50 SHARDSIZE 90000 EXPANSION 2000 SEED 6"

enum { NSTEPS = 40, STEP_ITEMS = 23 };

static const char *state_of(const redisReply *shard) {
    return shard->element[9]->str;
}

/* Shards in this state. */
static size_t count_state(Client *c, const char *key, const char *state) {
    const redisReply *shards = command(c, "BF.SHARDS %s", key);
    size_t n = 0;
    for (size_t i = 0; i < shards->elements; i++)
        n += strcmp(state_of(shards->element[i]), state) == 0;
    return n;
}

static void reserve(Client *c) {
    EXPECT(c, "+OK", "BF.RESERVE several " SEVERAL);
    EXPECT(c, "+OK", "BF.RESERVE growing " GROWING);
}

/* Step by step, singly and by batches, every third item twice. All shards have turned at the end.
 */
static void add_step(Client *c, int step) {
    const long long first = (long long)step * STEP_ITEMS;
    command_batches(c, "BF.MADD", "several", "i", first, STEP_ITEMS);
    command_batches(c, "BF.MADD", "several", "i", first - first / 3, STEP_ITEMS / 3);
    command_batches(c, "BF.MADD", "growing", "i", first, STEP_ITEMS);
    command(c, "BF.ADD several one%d", step);
    command(c, "BF.ADD growing one%d", step);
}

static void check_step(Client *c, int step) {
    const long long n = (long long)(step + 1) * STEP_ITEMS;
    CHECK_INT(command_batches(c, "BF.MEXISTS", "several", "i", 0, n), n);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "growing", "i", 0, n), n);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "several", "one", 0, step + 1), step + 1);
}

/* Some young, some not: the test meets both forms. */
static bool is_turning(Client *c, const char *key) {
    return count_state(c, key, "young") > 0 && count_state(c, key, "ok") > 0;
}

/* ---- what is seen of it ---- */

TEST(a_fresh_filter_of_10_to_the_9_takes_less_than_200_kb) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    /* The connection has the buffers that it will need. */
    EXPECT(c, "+OK", "BF.RESERVE warm 0.01 100000 SEED 1");
    command_batches(c, "BF.MADD", "warm", "i", 0, 1000);
    EXPECT(c, ":1", "DEL warm");
    server_wait_info(s, "bf_sweeps_pending", "0");
    const long long before = server_info(s, "used_memory");
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 1000000000 SEED 1");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 1000), 1000);
    CHECK_RANGE((double)(server_info(s, "used_memory") - before), 0, 200e3);
    CHECK_RANGE((double)server_info(s, "bf_bytes"), 0, 100e3);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "absent", 0, 10000), 0);
}

TEST(shards_show_their_state_and_fill) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k " SEVERAL);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 100), 100);
    const redisReply *shards = command(c, "BF.SHARDS k");
    CHECK_UINT(shards->elements, 4);
    double fill = 0;
    for (size_t i = 0; i < shards->elements; i++) {
        const redisReply *shard = shards->element[i];
        CHECK_STR(state_of(shard), "young");
        CHECK_INT(command_int(c, "STRLEN %s", shard->element[1]->str), shard->element[7]->integer);
        CHECK(shard->element[7]->integer < 4096);
        fill += atof(shard->element[11]->str) / 4;
    }
    /* Seven bits of each item in 2.4 million. */
    CHECK_RANGE(fill, 100 * 6 / 2.5e6, 100 * 8 / 2.3e6);
    /* One of them in each command. */
    for (size_t n = 1; n <= 4; n++) {
        command_batches(c, "BF.MADD", "k", "i", (long long)n * 150, 150);
        CHECK_UINT(count_state(c, "k", "ok"), n);
    }
    CHECK_RANGE((double)server_info(s, "bf_bytes"), 4.0 * (64 << 10), 4.0 * (80 << 10));
}

/* The promise holds at capacity for a filter that began young. Two filters of the same seed, one
 * filled by single batches and so through every form, have the same bits in the end. */
TEST(the_rate_at_capacity_is_as_promised) {
    enum { CAPACITY = 60000, NABSENT = 200000 };
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 %d SHARDSIZE 80kb NONSCALING SEED 5", CAPACITY);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 10), 10);
    CHECK_UINT(count_state(c, "k", "young"), 1);
    CHECK(command_batches(c, "BF.MADD", "k", "i", 10, CAPACITY - 10) > CAPACITY * 98 / 100);
    CHECK_UINT(count_state(c, "k", "ok"), 1);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, CAPACITY), CAPACITY);
    CHECK_RANGE((double)command_batches(c, "BF.MEXISTS", "k", "absent", 0, NABSENT) / NABSENT,
                0.008, 0.0105);
}

/* ---- replicas and files ---- */

TEST(replicas_have_the_same_bytes_while_shards_turn) {
    Server *primary = server_start(NULL), *replica = server_start(NULL);
    int nturning = 0, ngrowing = 0;
    server_follow(replica, primary);
    reserve(primary->client);
    for (int step = 0; step < NSTEPS; step++) {
        add_step(primary->client, step);
        if (step % 5) continue;
        nturning += is_turning(primary->client, "several");
        ngrowing += count_state(primary->client, "growing", "young") > 0;
        server_wait_for_replica(primary, replica);
        CHECK_SAME_DATA(primary, replica);
        check_step(replica->client, step);
    }
    CHECK(nturning > 0 && ngrowing > 0);
    CHECK_UINT(count_state(primary->client, "several", "ok"), 4);
    server_wait_for_replica(primary, replica);
    CHECK_SAME_DATA(primary, replica);
    CHECK_STR(command_text(primary->client, "BF.DESCRIPTOR growing"),
              command_text(replica->client, "BF.DESCRIPTOR growing"));
}

/* The replica comes when some have turned, and goes on from there. */
TEST(a_resync_takes_shards_of_both_forms) {
    Server *primary = server_start(NULL), *replica = server_start("repl-diskless-load swapdb");
    reserve(primary->client);
    int step = 0;
    while (step < NSTEPS && !is_turning(primary->client, "several"))
        add_step(primary->client, step++);
    REQUIRE(step < NSTEPS);
    server_follow(replica, primary);
    CHECK_SAME_DATA(primary, replica);
    while (step < NSTEPS) add_step(primary->client, step++);
    server_wait_for_replica(primary, replica);
    CHECK_SAME_DATA(primary, replica);
    EXPECT(replica->client, "+OK...", "REPLICAOF NO ONE");
    add_step(replica->client, step);
    check_step(replica->client, step);
}

static void check_restarts(const char *config, bool rewrites) {
    Server *s = server_start(config);
    int nturning = 0;
    reserve(s->client);
    for (int step = 0; step < NSTEPS; step++) {
        add_step(s->client, step);
        if (step % 6) continue;
        nturning += is_turning(s->client, "several");
        if (rewrites) {
            EXPECT(s->client, "+Background append only file rewriting...", "BGREWRITEAOF");
            server_wait_info(s, "aof_rewrite_in_progress", "0");
            server_wait_info(s, "aof_last_bgrewrite_status", "ok");
            command(s->client, "BF.ADD several after%d", step);
        }
        Snapshot *before = snapshot_take(s);
        const long long nbytes = server_info(s, "bf_bytes");
        const char *descriptor = command_text(s->client, "BF.DESCRIPTOR growing");
        server_restart(s, STOP_KILL);
        CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
        CHECK_INT(server_info(s, "bf_bytes"), nbytes);
        CHECK_STR(command_text(s->client, "BF.DESCRIPTOR growing"), descriptor);
        check_step(s->client, step);
    }
    CHECK(nturning > 0);
}

TEST(aof_replay_turns_at_the_same_items) {
    check_restarts("appendonly yes\nappendfsync always\naof-use-rdb-preamble no", false);
}

TEST(rewritten_aof_without_preamble) {
    check_restarts("appendonly yes\nappendfsync always\naof-use-rdb-preamble no", true);
}

TEST(rewritten_aof_with_preamble) {
    check_restarts("appendonly yes\nappendfsync always\naof-use-rdb-preamble yes", true);
}

/* ---- copies of all kinds ---- */

/* Loads all chunks of `from` into `to`. */
static void load_chunks(Client *c, const char *from, const char *to) {
    for (long long iterator = 0, n = 0; n < 1000; n++) {
        const redisReply *r = command(c, "BF.SCANDUMP %s %lld", from, iterator);
        REQUIRE(r->type == REDIS_REPLY_ARRAY);
        iterator = r->element[0]->integer;
        if (iterator == 0) return;
        EXPECT(c, "+OK", "BF.LOADCHUNK %s %lld %b", to, iterator, r->element[1]->str,
               (size_t)r->element[1]->len);
    }
}

/* The copy holds the same, and goes on as the original does. */
static void check_copy(Client *c, const char *copy, int nitems) {
    CHECK_STR(command_text(c, "DEBUG DIGEST-VALUE %s", copy),
              command_text(c, "DEBUG DIGEST-VALUE k"));
    CHECK_STR(command_text(c, "BF.CARD %s", copy), command_text(c, "BF.CARD k"));
    CHECK_INT(command_batches(c, "BF.MEXISTS", copy, "i", 0, nitems), nitems);
    CHECK_INT(command_batches(c, "BF.MADD", copy, "j", 0, 200), 200);
    CHECK_INT(command_batches(c, "BF.MEXISTS", copy, "j", 0, 200), 200);
}

static void check_copies(int nitems) {
    Server *s = server_start(NULL), *replica = server_start(NULL);
    Client *c = s->client;
    server_follow(replica, s);
    EXPECT(c, "+OK", "BF.RESERVE k " SEVERAL);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, nitems), nitems);
    EXPECT(c, ":1", "COPY k copied");
    check_copy(c, "copied", nitems);
    const redisReply *payload = command(c, "DUMP k");
    EXPECT(c, "+OK", "RESTORE restored 0 %b", payload->str, (size_t)payload->len);
    check_copy(c, "restored", nitems);
    load_chunks(c, "k", "loaded");
    check_copy(c, "loaded", nitems);
    EXPECT(c, "+OK", "RENAME loaded renamed");
    EXPECT(c, ":1", "MOVE renamed 3");
    EXPECT(c, "+OK", "SELECT 3");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "renamed", "j", 0, 200), 200);
    CHECK_INT(command_batches(c, "BF.MADD", "renamed", "k", 0, 200), 200);
    EXPECT(c, "+OK", "SELECT 0");
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    CHECK_TIDY(s);
    /* The statistics go down again by what all of them had added. */
    EXPECT(c, "+OK", "FLUSHALL");
    EXPECT(c, ":1", "BF.ADD k x");
    CHECK_INT(server_info(s, "bf_shards"), 1);
    CHECK_INT(server_info(s, "bf_bytes"),
              command_int(c, "STRLEN %s", command(c, "BF.SHARDS k")->element[0]->element[1]->str));
}

TEST(copies_of_young_shards) {
    check_copies(40);
}

TEST(copies_of_young_and_turned_shards) {
    check_copies(430);
}

TEST(copies_of_turned_shards) {
    check_copies(1500);
}

/* Shards turn between the chunks of a dump: what was there when it began is in the copy. */
TEST(shards_turn_during_a_dump) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 8000000 SHARDSIZE 9mb NONSCALING SEED 5");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 3000), 3000);
    REQUIRE(count_state(c, "k", "young") == 2);
    long long iterator = 0, nadded = 0;
    for (int n = 0; n < 100; n++) {
        const redisReply *r = command(c, "BF.SCANDUMP k %lld", iterator);
        REQUIRE(r->type == REDIS_REPLY_ARRAY);
        iterator = r->element[0]->integer;
        if (iterator == 0) break;
        EXPECT(c, "+OK", "BF.LOADCHUNK copy %lld %b", iterator, r->element[1]->str,
               (size_t)r->element[1]->len);
        nadded += command_batches(c, "BF.MADD", "k", "more", n * 15000, 15000);
    }
    CHECK(nadded > 0 && count_state(c, "k", "ok") == 2);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "copy", "i", 0, 3000), 3000);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, 3000), 3000);
}

/* ---- loss ---- */

static const char *shard_of(Client *c, const char *key, size_t n) {
    const redisReply *shards = command(c, "BF.SHARDS %s", key);
    return n < shards->elements ? shards->element[n]->element[1]->str : "";
}

/* Healed, a shard is young again, dense or young as it was; its bytes are counted anew, on the
 * replica, too. */
TEST(healed_shards_begin_young) {
    Server *s = server_start(NULL), *replica = server_start(NULL);
    Client *c = s->client;
    server_follow(replica, s);
    for (int nitems = 40; nitems <= 1500; nitems += 1460) {
        EXPECT(c, "+OK", "BF.RESERVE k " SEVERAL);
        CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, nitems), nitems);
        EXPECT(c, ":1", "DEL %s", shard_of(c, "k", 1));
        EXPECT(c, "+OK", "SET %s x", shard_of(c, "k", 2));
        EXPECT(c, ":2", "BF.HEAL k");
        CHECK_STR(state_of(command(c, "BF.SHARDS k")->element[1]), "young");
        CHECK_STR(state_of(command(c, "BF.SHARDS k")->element[2]), "young");
        const long long found = command_batches(c, "BF.MEXISTS", "k", "i", 0, nitems);
        CHECK_RANGE((double)found, nitems / 4.0, nitems * 3 / 4.0);
        long long nbytes = 0;
        for (size_t i = 0; i < 4; i++) nbytes += command_int(c, "STRLEN %s", shard_of(c, "k", i));
        CHECK_INT(server_info(s, "bf_bytes"), nbytes);
        CHECK(command_batches(c, "BF.MADD", "k", "i", 0, nitems) >= nitems - found - 1);
        server_wait_for_replica(s, replica);
        CHECK_SAME_DATA(s, replica);
        CHECK_STR(command_text(replica->client, "BF.DESCRIPTOR k"),
                  command_text(c, "BF.DESCRIPTOR k"));
        EXPECT(c, ":1", "DEL k");
        server_wait_info(s, "bf_sweeps_pending", "0");
    }
}

/* The copy of a filter of several layers in one lost string: healed, its descriptor can be read by
 * replicas and from files. */
TEST(a_copy_without_its_shared_string_heals) {
    Server *s = server_start("save 3600 1"), *replica = server_start(NULL);
    Client *c = s->client;
    server_follow(replica, s);
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 3");
    command_batches(c, "BF.MADD", "k", "i", 0, 1000);
    CHECK(command(c, "BF.SHARDS k")->elements > 2);
    EXPECT(c, ":1", "DEL %s", shard_of(c, "k", 0));
    EXPECT(c, ":1", "COPY k copied");
    const redisReply *payload = command(c, "DUMP k");
    EXPECT(c, "+OK", "RESTORE restored 0 %b", payload->str, (size_t)payload->len);
    static const char *const names[] = {"k", "copied", "restored"};
    long long nbytes = 0;
    for (int i = 0; i < 3; i++) {
        EXPECT(c, ":1", "BF.HEAL %s", names[i]);
        EXPECT(c, ":0", "BF.HEAL %s", names[i]);
        CHECK(command_batches(c, "BF.MADD", names[i], "j", 0, 500) > 490);
        for (size_t j = 0; j < command(c, "BF.SHARDS %s", names[i])->elements; j++)
            if (j == 0 || strcmp(shard_of(c, names[i], j), shard_of(c, names[i], j - 1)))
                nbytes += command_int(c, "STRLEN %s", shard_of(c, names[i], j));
    }
    CHECK_INT(server_info(s, "bf_bytes"), nbytes);
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    Snapshot *before = snapshot_take(s);
    server_restart(s, STOP_SAVE);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    EXPECT(s->client, ":3", "DEL k copied restored");
    CHECK_INT(server_info(s, "bf_shards"), 0);
    CHECK_INT(server_info(s, "bf_bytes"), 0);
}

/* An older state of a string is put back, and turns a second time: the file is read all the same.
 */
TEST(a_string_from_the_past_does_not_spoil_the_file) {
    Server *s = server_start("save 3600 1");
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 60000 SHARDSIZE 80kb NONSCALING SEED 5");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 10), 10);
    const char *shard = shard_of(c, "k", 0);
    const redisReply *old = command(c, "GET %s", shard);
    for (int round = 0; round < 3; round++) {
        CHECK(command_batches(c, "BF.MADD", "k", "j", round * 500, 500) > 490);
        CHECK_UINT(count_state(c, "k", "ok"), 1);
        if (round < 2) EXPECT(c, "+OK", "SET %s %b", shard, old->str, (size_t)old->len);
    }
    server_restart(s, STOP_SAVE);
    CHECK_INT(command_batches(s->client, "BF.MEXISTS", "k", "i", 0, 10), 10);
    /* The count is put right by BF.HEAL, which finds nothing lost. */
    EXPECT(s->client, ":0", "BF.HEAL k");
    CHECK_INT(server_info(s, "bf_bytes"), command_int(s->client, "STRLEN %s", shard));
    load_chunks(s->client, "k", "copy");
    CHECK_INT(command_batches(s->client, "BF.MEXISTS", "copy", "i", 0, 10), 10);
}

/* A shard lost on a replica alone: of what the primary sends, all is applied whose shard is sound,
 * and the loss is seen. */
TEST(a_shard_lost_on_a_replica_alone) {
    Server *primary = server_start(NULL), *replica = server_start("replica-read-only no");
    Client *c = primary->client, *r = replica->client;
    server_follow(replica, primary);
    EXPECT(c, "+OK", "BF.RESERVE k " SEVERAL);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 100), 100);
    server_wait_for_replica(primary, replica);
    EXPECT(r, ":1", "DEL %s", shard_of(r, "k", 2));
    CHECK_INT(command_batches(c, "BF.MADD", "k", "j", 0, 2000), 2000);
    server_wait_for_replica(primary, replica);
    CHECK_INT(server_info(replica, "bf_shards_lost"), 1);
    CHECK_STR(state_of(command(r, "BF.SHARDS k")->element[2]), "missing");
    int nfound = 0, nlost = 0;
    for (int i = 0; i < 2000; i++) {
        const redisReply *answer = command(r, "BF.EXISTS k j%d", i);
        nlost += answer->type == REDIS_REPLY_ERROR && !strncmp(answer->str, "SHARDLOST ", 10);
        nfound += answer->type == REDIS_REPLY_INTEGER && answer->integer == 1;
    }
    CHECK_INT(nfound + nlost, 2000); /* none is "not seen" */
    CHECK_RANGE(nlost, 400, 600);
    EXPECT(r, "+OK", "REPLICAOF NO ONE");
    EXPECT(r, ":1", "BF.HEAL k");
    EXPECT(r, "+OK", "DEBUG RELOAD");
    CHECK_INT(server_info(replica, "bf_shards_lost"), 0);
}

/* ---- BF.HEAL and maxmemory ---- */

static void lose_all(Client *c, const char *key) {
    const redisReply *shards = command(c, "BF.SHARDS %s", key);
    for (size_t i = 0; i < shards->elements; i++)
        EXPECT(c, ":1", "DEL %s", shards->element[i]->element[1]->str);
}

/* 13 lost shards of 32 MB under maxmemory 21mb ended at 417 MB. */
TEST(healing_large_shards_takes_little_memory) {
    Server *s = server_start(NULL), *replica = server_start(NULL);
    Client *c = s->client;
    server_follow(replica, s);
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 160000000 SHARDSIZE 32mb SEED 1");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 1000), 1000);
    CHECK_UINT(command(c, "BF.SHARDS k")->elements, 13);
    lose_all(c, "k");
    EXPECT(c, "+OK", "CONFIG SET maxmemory 21mb");
    EXPECT(c, ":13", "BF.HEAL k");
    CHECK_RANGE((double)server_info(s, "used_memory"), 0, 21 << 20);
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
}

/* Even small strings take memory, here by their names: BF.HEAL stops, says so, and goes on when it
 * may. */
TEST(healing_stops_at_maxmemory) {
    Server *s = server_start(NULL), *replica = server_start(NULL);
    Client *c = s->client;
    char key[1001];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    server_follow(replica, s);
    EXPECT(c, "+OK", "BF.RESERVE %s 0.001 2000000 SHARDSIZE 4096 SEED 1", key);
    CHECK_INT(command_batches(c, "BF.MADD", key, "i", 0, 1500), 1500);
    const redisReply *shards = command(c, "BF.SHARDS %s", key);
    const size_t nshards = shards->elements;
    CHECK(nshards > 600);
    lose_all(c, key);
    server_wait_for_replica(s, replica);
    const long long used = server_info(s, "used_memory"), limit = used + (256 << 10);
    EXPECT(c, "+OK", "CONFIG SET maxmemory %lld", limit);
    const redisReply *r = command(c, "BF.HEAL %s", key);
    REQUIRE(r->type == REDIS_REPLY_ERROR);
    size_t nhealed = 0;
    CHECK_INT(sscanf(r->str, "OOM 'maxmemory' is used up: %zu lost shards were healed", &nhealed),
              1);
    CHECK(nhealed > 0 && nhealed < nshards);
    CHECK_RANGE((double)server_info(s, "used_memory"), 0, 1.1 * (double)limit + (2 << 20));
    CHECK_UINT(count_state(c, key, "young"), nhealed);
    server_wait_for_replica(s, replica);
    CHECK_UINT(count_state(replica->client, key, "young"), nhealed);
    CHECK_SAME_DATA(s, replica);
    EXPECT(c, "+OK", "CONFIG SET maxmemory 0");
    EXPECT(c, ":1", "DEL %s",
           shards->element[0]->element[1]->str); /* again: it is looked at again */
    size_t nmore = 0;
    for (int i = 0; i < 100; i++) {
        r = command(c, "BF.HEAL %s", key);
        if (r->type == REDIS_REPLY_INTEGER) break;
        size_t n = 0;
        CHECK_INT(sscanf(r->str, "TRYAGAIN %zu lost shards were healed", &n), 1);
        nmore += n;
    }
    REQUIRE(r->type == REDIS_REPLY_INTEGER);
    CHECK_UINT(nhealed + nmore + (size_t)r->integer, nshards + 1);
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    CHECK_UINT(count_state(replica->client, key, "young"), nshards);
    CHECK_INT(server_info(s, "bf_bytes"), server_info(replica, "bf_bytes"));
}

/* How many of 1000 items were added; those for which there is no memory are not. */
static long long add_some(Client *c, const char *key, int first) {
    static char items[1000][16];
    const char *argv[1002] = {"BF.MADD", key};
    for (int i = 0; i < 1000; i++) {
        snprintf(items[i], sizeof items[i], "j%d", first + i);
        argv[i + 2] = items[i];
    }
    redisReply *r = redisCommandArgv(c->redis, 1002, argv, NULL);
    long long nadded = 0;
    if (!CHECK(r != NULL)) return 0;
    if (r->type == REDIS_REPLY_ERROR) CHECK(strncmp(r->str, "OOM ", 4) == 0);
    for (size_t i = 0; i < r->elements; i++) {
        nadded += r->element[i]->integer;
        if (r->element[i]->type == REDIS_REPLY_ERROR)
            CHECK(strncmp(r->element[i]->str, "OOM ", 4) == 0);
    }
    freeReplyObject(r);
    return nadded;
}

/* Where a bitmap does not fit, items of shards that would turn are refused, and the others taken.
 */
TEST(no_shard_turns_without_memory) {
    Server *s = server_start(NULL), *replica = server_start(NULL);
    Client *c = s->client;
    server_follow(replica, s);
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 100000000 SHARDSIZE 8mb NONSCALING SEED 1");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 100000), 100000);
    EXPECT(c, "+OK", "CONFIG SET maxmemory 40mb");
    long long nadded = 0;
    for (int i = 0; i < 400; i++) nadded += add_some(c, "k", i * 1000);
    CHECK_INT(command_int(c, "BF.CARD k"), 100000 + nadded);
    CHECK(nadded > 1000 && nadded < 400000);
    CHECK_RANGE((double)server_info(s, "used_memory"), 0, 1.1 * (40 << 20) + (12 << 20));
    EXPECT(c, "+OK", "CONFIG SET maxmemory 0");
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, 100000), 100000);
}

/* Adds items until memory is ready; how much that is. */
static long long add_until_spare(Server *s, int *n) {
    long long nbytes = 0;
    for (const int end = *n + 300; nbytes == 0 && *n < end;) {
        command(s->client, "BF.ADD k i%d", (*n)++);
        nbytes = server_info(s, "bf_spare_bytes");
    }
    return nbytes;
}

/* Memory for bitmaps is made ready while shards come near their turn, used when they turn, and
 * given back when no more items come, or when the server needs it. */
TEST(memory_for_bitmaps_is_ready_and_given_back) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    /* One shard of 1.2 MB, which turns at 606 items or later; none is expected before half of that.
     */
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 1000000 NONSCALING SEED 1");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 300), 300);
    CHECK_INT(server_info(s, "bf_spare_bytes"), 0);
    int n = 300;
    CHECK_RANGE((double)add_until_spare(s, &n), 1 << 20, 2 << 20);
    CHECK_INT((long long)count_state(c, "k", "young"), 1);
    CHECK(server_wait_info(s, "bf_spare_bytes", "0")); /* nobody asks for two seconds */
    CHECK(add_until_spare(s, &n) > 0);
    while (count_state(c, "k", "young") > 0 && n < 3000) command(c, "BF.ADD k i%d", n++);
    CHECK_INT((long long)count_state(c, "k", "ok"), 1);
    CHECK_INT(server_info(s, "bf_spare_bytes"), 0);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, n), n);

    EXPECT(c, "+OK", "BF.RESERVE full 0.01 1000000 NONSCALING SEED 2");
    command(c, "SETRANGE ballast 40000000 x");
    EXPECT(c, "+OK", "CONFIG SET maxmemory %lld", server_info(s, "used_memory") * 20 / 19);
    CHECK_INT(command_batches(c, "BF.MADD", "full", "i", 0, 500), 500);
    CHECK_INT(server_info(s, "bf_spare_bytes"), 0);
}
