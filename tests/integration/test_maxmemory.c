/* Memory that runs out: with every eviction policy, while filters are made, grow and are filled.
 * Commands work or answer OOM, what was answered with 1 is there unless it was evicted, nothing is
 * half done, and replicas stay equal. */
#include "check.h"
#include "client.h"
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MB = 1 << 20, LIMIT_MB = 8, BATCH = 4000 };

static bool is_oom(const redisReply *r) {
    return r->type == REDIS_REPLY_ERROR && strncmp(r->str, "OOM ", 4) == 0;
}

static bool is_lost(const redisReply *r) {
    return r->type == REDIS_REPLY_ERROR && strncmp(r->str, "SHARDLOST ", 10) == 0;
}

/* Adds items in one command; the reply is to be freed. */
static redisReply *add_batch(Client *c, const char *key, int first) {
    static char items[BATCH][32];
    const char *argv[BATCH + 2] = {"BF.MADD", key};
    for (int i = 0; i < BATCH; i++) {
        snprintf(items[i], sizeof items[i], "i%d", first + i);
        argv[i + 2] = items[i];
    }
    return c->redis ? redisCommandArgv(c->redis, BATCH + 2, argv, NULL) : NULL;
}

static double used(Server *s) {
    return (double)server_info(s, "used_memory");
}

/* Regression: one command made strings as long as its items needed, whatever the limit, because the
 * server checks its memory only before a command starts. (One command makes at most one of our own
 * shards per layer large. Adopted strings become as long as SETBIT would make them.) */
TEST(one_batch_does_not_outgrow_maxmemory) {
    Server *s = server_start("maxmemory 12mb\nmaxmemory-policy noeviction");
    Server *replica = server_start(NULL);
    server_follow(replica, s);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.ADOPT k BLOCKS 64 BITS 23");
    redisReply *r = add_batch(c, "k", 0);
    REQUIRE(r && r->type == REDIS_REPLY_ARRAY);
    int nadded = 0, noom = 0;
    for (size_t i = 0; i < r->elements; i++) {
        const bool added =
            r->element[i]->type == REDIS_REPLY_INTEGER && r->element[i]->integer == 1;
        nadded += added;
        noom += is_oom(r->element[i]);
        EXPECT(c, added ? ":1" : ":0", "BF.EXISTS k i%d", (int)i);
    }
    freeReplyObject(r);
    CHECK(nadded > 10 && noom > 100 && nadded + noom == BATCH);
    CHECK_INT(command_int(c, "BF.CARD k"), nadded);
    CHECK_RANGE(used(s), 0, 12 * 1.1 * MB + 4 * MB);
    EXPECT_ERROR(c, "OOM", "", "BF.ADD k another");
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    EXPECT(c, "+OK", "CONFIG SET maxmemory 0");
    EXPECT(c, ":1", "BF.ADD k another");
}

/* Creates, grows and fills filters far beyond the limit. */
static void fill(Server *s, int *nlost, int *noom) {
    for (int step = 0; step < 120; step++) {
        char key[16];
        snprintf(key, sizeof key, "f%d", step % 9);
        if (step < 9) {
            redisReply *r = command(s->client, "BF.RESERVE %s 0.0001 %d SHARDSIZE 64kb SEED %d",
                                    key, step % 2 ? 100 : 3000000, step);
            CHECK(r->type == REDIS_REPLY_STATUS || is_oom(r));
        }
        redisReply *r = add_batch(s->client, key, step * BATCH);
        if (!r) {
            CHECK_FAIL("the server is gone");
            return;
        }
        *nlost += is_lost(r);
        *noom += is_oom(r);
        if (r->type != REDIS_REPLY_ARRAY && !is_lost(r) && !is_oom(r))
            CHECK_FAIL("BF.MADD answers %s", r->str ? r->str : "something");
        for (size_t i = 0; i < r->elements; i++) {
            const redisReply *e = r->element[i];
            *noom += is_oom(e);
            if (e->type != REDIS_REPLY_INTEGER && !is_oom(e))
                CHECK_FAIL("an item is answered %s", e->str ? e->str : "strangely");
        }
        freeReplyObject(r);
    }
}

static void check_policy(const char *policy, bool evicts) {
    char config[128];
    int nlost = 0, noom = 0;
    snprintf(config, sizeof config, "maxmemory %dmb\nmaxmemory-policy %s", LIMIT_MB, policy);
    Server *s = server_start(config), *replica = server_start(NULL);
    server_follow(replica, s);
    fill(s, &nlost, &noom);
    CHECK(evicts || noom > 0);
    CHECK(evicts || nlost == 0);
    server_wait_for_replica(s, replica); /* what it has not got yet is in memory, too */
    CHECK_RANGE(used(s), 0, LIMIT_MB * 1.1 * MB + 4 * MB);
    /* Even reading the data to compare it would evict some. */
    EXPECT(s->client, "+OK", "CONFIG SET maxmemory 0");
    server_wait_info(s, "bf_sweeps_pending", "0");
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    /* What is left works as soon as there is memory. */
    for (int i = 0; i < 9; i++) {
        redisReply *healed = command(s->client, "BF.HEAL f%d", i);
        CHECK(healed->type == REDIS_REPLY_INTEGER || strcmp(healed->str, "ERR not found") == 0);
        /* One that was evicted and made again has a random seed and the default error rate, 0.01.
         * That 11 of 20 items are taken for known has a probability of at most C(20, 11) * 0.01^11
         * < 2e-17. */
        char key[16];
        snprintf(key, sizeof key, "f%d", i);
        CHECK(command_batches(s->client, "BF.MADD", key, "afterwards", 0, 20) >= 10);
    }
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
}

TEST(policies_that_evict_nothing_of_ours) {
    check_policy("noeviction", false);
    check_policy("volatile-lru", false);
    check_policy("volatile-ttl", false);
}

TEST(other_volatile_policies) {
    check_policy("volatile-lfu", false);
    check_policy("volatile-random", false);
}

TEST(policies_that_evict_anything) {
    check_policy("allkeys-lru", true);
    check_policy("allkeys-lfu", true);
    check_policy("allkeys-random", true);
}

/* However large a filter is to be, reserving it costs next to nothing, or is refused. */
TEST(absurd_capacities) {
    static const char *const errors[] = {"1e-15", "0.0001", "0.999"};
    static const char *const capacities[] = {"1099511627776", "1000000000000",
                                             "18446744073709551615", "1e12"};
    static const char *const sizes[] = {"4096", "32mb", "512mb"};
    Server *s = server_start(NULL);
    const double before = used(s);
    int naccepted = 0;
    for (int i = 0; i < 3 * 4 * 3; i++) {
        const char *text = command_text(s->client, "BF.RESERVE k%d %s %s SHARDSIZE %s", i,
                                        errors[i % 3], capacities[i / 3 % 4], sizes[i / 12]);
        CHECK(strcmp(text, "+OK") == 0 ||
              (strncmp(text, "-ERR ", 5) == 0 && strstr(text, "capacity")));
        naccepted += *text == '+';
        if (*text == '+') EXPECT(s->client, ":0", "BF.EXISTS k%d x", i);
        command_text(s->client, "BF.PLAN %s %s SHARDSIZE %s", errors[i % 3], capacities[i / 3 % 4],
                     sizes[i / 12]);
    }
    CHECK(naccepted > 3);
    CHECK_RANGE(used(s), 0, before + 8 * MB);
    EXPECT(s->client, "+OK", "DEBUG RELOAD");
    EXPECT(s->client, "+PONG", "PING");
}
