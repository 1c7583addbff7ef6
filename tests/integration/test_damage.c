/* Damaged shards. Whatever was done to them, the error says which shard it is and how much it held.
 * There is never a wrong answer or a crash, and the rest of the filter keeps working. */
#include "audit.h"
#include "check.h"
#include "client.h"
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NITEMS = 600, NSHARDS = 11, VICTIM = 4 };

static void fill(Client *c, const char *name) {
    EXPECT(c, "+OK", "BF.RESERVE %s 0.000001 10000 SEED 7 SHARDSIZE 4096", name);
    CHECK_INT(command_batches(c, "BF.MADD", name, "i", 0, NITEMS), NITEMS);
    CHECK_UINT(command(c, "BF.SHARDS %s", name)->elements, NSHARDS);
}

static const char *shard_of(Client *c, const char *name, unsigned n) {
    redisReply *shards = command(c, "BF.SHARDS %s", name);
    return n < shards->elements ? shards->element[n]->element[1]->str : "";
}

/* Checks every item by itself. Returns how many can't be answered; all others must be known. */
static int unanswered(Client *c, const char *filter, const char *lost) {
    int n = 0;
    for (int i = 0; i < NITEMS; i++) {
        const char *text = command_text(c, "BF.EXISTS %s i%d", filter, i);
        if (strcmp(text, ":1") == 0) continue;
        n++;
        if (strncmp(text, "-SHARDLOST ", 11) != 0 || !strstr(text, lost) || !strchr(text, '%'))
            CHECK_FAIL("BF.EXISTS answers %s", text);
    }
    return n;
}

/* An item of the filter that lies in the lost shard, and one that does not; both known before. */
static void find_items(Client *c, const char *filter, int *in_lost, int *elsewhere) {
    *in_lost = *elsewhere = -1;
    for (int i = 0; i < NITEMS && (*in_lost < 0 || *elsewhere < 0); i++)
        *(*command_text(c, "BF.EXISTS %s i%d", filter, i) == '-' ? in_lost : elsewhere) = i;
    CHECK(*in_lost >= 0 && *elsewhere >= 0);
}

static void check_damaged_writes(Client *c, const char *lost, int in_lost, int elsewhere) {
    EXPECT_ERROR(c, "SHARDLOST", lost, "BF.ADD k i%d", in_lost);
    EXPECT(c, ":0", "BF.ADD k i%d", elsewhere);

    /* A batch that needs the lost shard changes nothing, wherever in the batch the item stands. */
    const char *before = command_text(c, "BF.INFO k");
    EXPECT_ERROR(c, "SHARDLOST", lost, "BF.MADD k n1 n2 n3 n4 n5 i%d", in_lost);
    EXPECT_ERROR(c, "SHARDLOST", lost, "BF.INSERT k ITEMS i%d n1 n2 n3 n4 n5", in_lost);
    CHECK_STR(command_text(c, "BF.INFO k"), before);
    for (int i = 1; i <= 5; i++) {
        const char *text = command_text(c, "BF.EXISTS k n%d", i);
        CHECK(strcmp(text, ":0") == 0 || strncmp(text, "-SHARDLOST ", 11) == 0);
    }
}

/* Checks everything that follows from one shard of k being as `state` says. */
static void check_damaged(Client *c, const char *lost, const char *state, bool writable) {
    CHECK_RANGE(unanswered(c, "k", lost), NITEMS / NSHARDS / 2, NITEMS / NSHARDS * 2);
    int in_lost, elsewhere;
    find_items(c, "k", &in_lost, &elsewhere);
    /* 1/11 of the filter */
    EXPECT_ERROR(c, "SHARDLOST", "9.09%", "BF.EXISTS k i%d", in_lost);
    EXPECT_ERROR(c, "SHARDLOST", lost, "BF.MEXISTS k i%d i%d", elsewhere, in_lost);
    EXPECT(c, "*1 :1", "BF.MEXISTS k i%d", elsewhere);
    if (writable) check_damaged_writes(c, lost, in_lost, elsewhere);

    /* BF.INFO and BF.SHARDS work, and the latter shows it. */
    EXPECT(c, "*1 :600", "BF.INFO k ITEMS");
    redisReply *shards = command(c, "BF.SHARDS k");
    CHECK_UINT(shards->elements, NSHARDS);
    for (unsigned i = 0; i < shards->elements; i++) {
        const redisReply *shard = shards->element[i];
        CHECK_STR(shard->element[9]->str, strcmp(shard->element[1]->str, lost) ? "ok" : state);
    }
    EXPECT(c, "...", "DEBUG DIGEST-VALUE k");
    CHECK_INT(command(c, "DUMP k")->type, REDIS_REPLY_STRING);
}

/* Healed: answers again, has forgotten the items of that shard and only those. */
static void check_healed(Client *c, int nhealed) {
    int nknown = (int)command_batches(c, "BF.MEXISTS", "k", "i", 0, NITEMS);
    CHECK_RANGE(nknown, NITEMS - nhealed * NITEMS / NSHARDS * 2, NITEMS - 1);
    EXPECT(c, ":0", "BF.HEAL k");
    EXPECT(c, "*1 :600", "BF.INFO k ITEMS");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, NITEMS), NITEMS - nknown);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, NITEMS), NITEMS);
}

/* Every command of `damage` is run with the name of a shard of k, and perhaps of another of k or of
 * l. */
static void check_damage(const char *damage, const char *state, const char *other_filter) {
    Server *s = server_start("appendonly yes\nappendfsync always\naof-use-rdb-preamble no");
    Server *replica = server_start(NULL);
    Client *c = s->client;
    server_follow(replica, s);
    fill(c, "k");
    fill(c, "l");
    const char *lost = shard_of(c, "k", VICTIM);
    const char *other = other_filter ? shard_of(c, other_filter, VICTIM + 1) : "";
    redisReply *r = command(c, damage, lost, other);
    if (r->type == REDIS_REPLY_ERROR) CHECK_FAIL("%s answers %s", damage, r->str);
    for (int i = 0; strstr(damage, "EXPIRE") && command_int(c, "EXISTS %s", lost) && i < 6000; i++)
        pause_ms(10);
    check_damaged(c, lost, state, true);
    server_wait_for_replica(s, replica);
    check_damaged(replica->client, lost, state, false);
    server_restart_unseen(s, STOP_KILL, replica);
    check_damaged(c, lost, state, true);
    server_wait_info(replica, "master_link_status", "up");

    EXPECT(c, ":1", "BF.HEAL k");
    check_healed(c, 1);
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    CHECK_INT(command_batches(replica->client, "BF.MEXISTS", "k", "i", 0, NITEMS), NITEMS);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "l", "i", 0, NITEMS), NITEMS);
    server_restart(s, STOP_KILL);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, NITEMS), NITEMS);
    EXPECT(c, ":2", "DEL k l");
    CHECK_TIDY(s);
}

TEST(deleted) {
    check_damage("DEL %s", "missing", NULL);
}

TEST(expired) {
    check_damage("PEXPIRE %s 10", "missing", NULL);
}

TEST(overwritten_by_a_string) {
    check_damage("SET %s 123", "damaged", NULL);
}

TEST(overwritten_by_another_type) {
    check_damage("SUNIONSTORE %s s", "missing", NULL); /* of an empty set: deletes it */
    check_damage("EVAL redis.call('DEL',ARGV[1]);redis.call('RPUSH',ARGV[1],1) 0 %s", "damaged",
                 NULL);
}

TEST(too_long) {
    check_damage("APPEND %s x", "damaged", NULL);
}

TEST(truncated) {
    check_damage("EVAL redis.call('SET',ARGV[1],string.sub(redis.call('GET',ARGV[1]),1,-2)) 0 %s",
                 "damaged", NULL);
    check_damage("EVAL redis.call('SET',ARGV[1],string.sub(redis.call('GET',ARGV[1]),1,30)) 0 %s",
                 "damaged", NULL);
}

TEST(header_overwritten) {
    check_damage("SETRANGE %s 0 x", "damaged", NULL);
}

TEST(replaced_by_another_shard_of_the_filter) {
    check_damage("EVAL redis.call('COPY',ARGV[2],ARGV[1],'REPLACE') 0 %s %s", "damaged", "k");
}

TEST(replaced_by_a_shard_of_another_filter) {
    check_damage("EVAL redis.call('COPY',ARGV[2],ARGV[1],'REPLACE') 0 %s %s", "damaged", "l");
}

TEST(two_shards_swapped) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    fill(c, "k");
    const char *a = shard_of(c, "k", 0), *b = shard_of(c, "k", 1);
    EXPECT(c, "+OK", "RENAME %s x", a);
    EXPECT(c, "+OK", "RENAME %s %s", b, a);
    EXPECT(c, "+OK", "RENAME x %s", b);
    CHECK_UINT(audit(s).nlost, 2);
    int n = unanswered(c, "k", "bf:{k}:");
    CHECK_RANGE(n, NITEMS / NSHARDS, NITEMS / NSHARDS * 4);
    /* Put back, all is well again, without healing. */
    EXPECT(c, "+OK", "RENAME %s x", a);
    EXPECT(c, "+OK", "RENAME %s %s", b, a);
    EXPECT(c, "+OK", "RENAME x %s", b);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, NITEMS), NITEMS);
    EXPECT(c, ":0", "BF.HEAL k");
}

/* In a filter of several layers an item is new only if every layer says so. */
TEST(lost_in_an_old_layer) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 100 SEED 3 SHARDSIZE 4096");
    command_batches(c, "BF.MADD", "k", "i", 0, 2000);
    const redisReply *shards = command(c, "BF.SHARDS k");
    CHECK(shards->elements > 4);
    /* The first layers, of 100, 200, 400 ... items, share the string that goes. */
    const char *lost = shard_of(c, "k", 0);
    int nlost = 0;
    for (size_t i = 0; i < shards->elements; i++)
        if (strcmp(shards->element[i]->element[1]->str, lost) == 0) nlost += 100 << i;
    CHECK_RANGE(nlost, 300, 1500);
    EXPECT(c, ":1", "DEL %s", lost);
    int nerrors = 0;
    for (int i = 0; i < 200; i++) {
        const char *text = command_text(c, "BF.ADD k fresh%d", i);
        nerrors += *text == '-';
        if (*text == '-') CHECK(strncmp(text, "-SHARDLOST ", 11) == 0);
    }
    CHECK_INT(nerrors, 200); /* every item needs that string */
    /* What a newer layer knows needs no older one. */
    int nknown = 0;
    for (int i = 0; i < 2000; i++)
        nknown += strcmp(command_text(c, "BF.EXISTS k i%d", i), ":1") == 0;
    CHECK_RANGE(nknown, 2000 - nlost - 5, 2000 - nlost + 5);
    EXPECT(c, ":1", "BF.HEAL k");
    EXPECT(c, ":1", "BF.ADD k fresh0");
}

/* A string that several layers share is either whole or lost, with what all of them knew. */
TEST(a_string_of_several_layers) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 100 SEED 3");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 1000) > 990, 1);
    CHECK_UINT(command(c, "BF.SHARDS k")->elements, 4);
    EXPECT(c, ":2", "DBSIZE");
    const char *name = shard_of(c, "k", 0);
    const redisReply *whole = command(c, "GET %s", name);
    const size_t length = (size_t)whole->len;
    const redisReply *last = command(c, "BF.SHARDS k")->element[3];
    const size_t without_last = length - (size_t)last->element[7]->integer;
    CHECK_UINT(last->element[15]->integer, without_last);
    char *changed = keep(calloc(1, length + 64));
    memcpy(changed, whole->str, length);

    static const int wrong[] = {-64, -1, 1, 64};
    for (int i = -1; i < 4; i++) {
        const size_t n = i < 0 ? without_last : length + (size_t)wrong[i];
        EXPECT(c, "+OK", "SET %s %b", name, changed, n);
        EXPECT_ERROR(c, "SHARDLOST", "damaged: 100% of", "BF.EXISTS k i1");
        EXPECT_ERROR(c, "SHARDLOST", "damaged: 100% of", "BF.ADD k new");
    }
    /* As it was, all of it is known again. */
    EXPECT(c, "+OK", "SET %s %b", name, changed, length);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, 1000), 1000);

    EXPECT(c, ":1", "DEL %s", name);
    EXPECT_ERROR(c, "SHARDLOST", "missing: 100% of", "BF.ADD k new");
    const redisReply *shards = command(c, "BF.SHARDS k");
    for (size_t i = 0; i < shards->elements; i++)
        CHECK_STR(shards->element[i]->element[9]->str, "missing");
    EXPECT(c, ":1", "BF.HEAL k");
    EXPECT(c, ":0", "BF.HEAL k");
    CHECK_INT(command_int(c, "STRLEN %s", name), (long long)length);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, 1000), 0);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "j", 0, 2000) > 1990, 1);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "j", 0, 2000), 2000);
    CHECK_TIDY(s);
}

TEST(all_lost) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    fill(c, "k");
    for (unsigned i = 0; i < NSHARDS; i++) EXPECT(c, ":1", "DEL %s", shard_of(c, "k", i));
    CHECK_INT(unanswered(c, "k", "bf:{k}:"), NITEMS);
    EXPECT(c, "+OK", "DEBUG RELOAD");
    CHECK_UINT(audit(s).nlost, NSHARDS);
    EXPECT(c, ":11", "BF.HEAL k");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, NITEMS), 0);
    EXPECT(c, ":1", "DEL k");
    CHECK_TIDY(s);
}

/* A lost shard stays lost in copies, and in what DUMP takes along: nobody may think that all is
 * well. */
TEST(copies_of_a_damaged_filter) {
    Server *s = server_start(NULL), *replica = server_start(NULL);
    Client *c = s->client;
    server_follow(replica, s);
    fill(c, "k");
    EXPECT(c, ":1", "DEL %s", shard_of(c, "k", VICTIM));
    EXPECT(c, ":1", "COPY k copied");
    redisReply *payload = command(c, "DUMP k");
    EXPECT(c, "+OK", "RESTORE restored 0 %b", payload->str, (size_t)payload->len);
    EXPECT(c, ":1", "MOVE k 3");
    static const char *const names[] = {"copied", "restored"};
    for (int i = 0; i < 2; i++) {
        CHECK(unanswered(c, names[i], shard_of(c, names[i], VICTIM)) > 0);
        EXPECT(c, ":1", "BF.HEAL %s", names[i]);
        CHECK_RANGE((double)command_batches(c, "BF.MEXISTS", names[i], "i", 0, NITEMS),
                    NITEMS - NITEMS / NSHARDS * 2, NITEMS - 1);
    }
    CHECK_UINT(audit(s).nlost, 1);
    EXPECT(c, "+OK", "SELECT 3");
    EXPECT(c, ":1", "BF.HEAL k");
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    CHECK_TIDY(replica);
}

/* An allkeys policy takes shards. The module says so at load, and errors say so later. */
TEST(evicted) {
    Server *s = server_start("maxmemory 1gb\nmaxmemory-policy allkeys-random");
    Client *c = s->client;
    CHECK_LOGGED(s, "maxmemory-policy allkeys-random may evict parts of filters");
    fill(c, "k");
    EXPECT(c, "+OK", "SET ballast x");
    const long long nkeys = command_int(c, "DBSIZE");
    /* A little too much, also if something of the server's own is freed meanwhile. */
    for (int i = 0; i < 6000 && command_int(c, "DBSIZE") == nkeys; i++) {
        EXPECT(c, "+OK", "CONFIG SET maxmemory %lld", server_info(s, "used_memory") - 8000);
        pause_ms(10);
    }
    EXPECT(c, "+OK", "CONFIG SET maxmemory 0");
    CHECK(server_info(s, "evicted_keys") > 0);
    if (command_int(c, "EXISTS k")) {
        unanswered(c, "k", "bf:{k}:");
        size_t nlost = audit(s).nlost;
        CHECK_INT(command_int(c, "BF.HEAL k"), (long long)nlost);
        CHECK_UINT(audit(s).nlost, 0);
        EXPECT(c, ":...", "BF.ADD k n");
    }
    CHECK_TIDY(s);
}

TEST(no_warning_where_shards_are_safe) {
    const char *configs[] = {"maxmemory 1gb", "maxmemory 1gb\nmaxmemory-policy volatile-ttl",
                             "maxmemory-policy allkeys-lru"};
    for (int i = 0; i < 3; i++) {
        Server *s = server_start(configs[i]);
        EXPECT(s->client, "+PONG", "PING");
        CHECK(!server_logged(s, "may evict"));
    }
}

/* What is remembered of many shards is freed later, and then they are not counted any more. */
TEST(a_large_filter_with_lost_shards_is_deleted) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.000001 1000000 SEED 7 SHARDSIZE 4096");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, NITEMS), NITEMS);
    const redisReply *shards = command(c, "BF.SHARDS k COUNT 1000");
    CHECK(shards->elements > 256);
    for (size_t i = 0; i < 300 && i < shards->elements; i++)
        EXPECT(c, ":1", "DEL %s", shards->element[i]->element[1]->str);
    command(c, "BF.SHARDS k COUNT 1000"); /* looks at them all */
    CHECK_INT(server_info(s, "bf_shards_lost"), 300);
    EXPECT(c, ":1", "DEL k");
    server_wait_info(s, "bf_shards_lost", "0");
}

/* A command opens a few thousand strings at most, even if none of them is lost. */
TEST(healing_looks_at_many_shards_in_parts) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.000001 6000000 SEED 7 SHARDSIZE 4096");
    CHECK(command_batches(c, "BF.MADD", "k", "i", 0, 40000) > 39000);
    EXPECT(c, "-TRYAGAIN 0 lost shards were healed...", "BF.HEAL k");
    EXPECT(c, ":0", "BF.HEAL k");
    const redisReply *last = command(c, "BF.SHARDS k FROM 0 4500 COUNT 1");
    REQUIRE(last->elements == 1);
    EXPECT(c, ":1", "DEL %s", last->element[0]->element[1]->str);
    EXPECT(c, "-TRYAGAIN 0 lost shards were healed...", "BF.HEAL k");
    EXPECT(c, ":1", "BF.HEAL k");
}
