/* Filters in a Redis Cluster: a filter and its shards share a slot, and live and die together. How
 * they move is in test_cluster_moves.c, what happens under load in test_cluster_load.c. */
#include "check.h"
#include "client.h"
#include "cluster_fixture.h"

#include <string.h>

/* ---- names ---- */

/* The slot of every shard is the filter's own. */
static void check_one_slot(Cluster *cluster, Router *router, const char *name) {
    const int slot = cluster_slot(cluster, name);
    const char *const *shards =
        cluster_shards_of(cluster->node[cluster_home(cluster, slot)]->client, name);
    CHECK(cluster_count(shards) > 20);
    for (; *shards; shards++) CHECK_INT(cluster_slot(cluster, *shards), slot);
    cluster_check(router, name, "i");
}

TEST(names) {
    Cluster *cluster = cluster_start(3, false, NULL);
    REQUIRE(cluster);
    Router *router = router_new(cluster);
    static const char *const good[] = {"seen",      "{crawl}seen", "seen:{crawl}:2", "a{b",
                                       "x}y{tag}z", "{a}{}",       "{{t}x",          "bf:{seen}:0"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        cluster_fill(router, good[i], "i");
        check_one_slot(cluster, router, good[i]);
    }
    CHECK_STR(router_text(router, "BF.ADD %b x", "bin\0ary\r\n{\xff}", (size_t)12), ":1");
    CHECK_STR(router_text(router, "BF.EXISTS %b x", "bin\0ary\r\n{\xff}", (size_t)12), ":1");

    static const char *const bad[] = {"", "{}x", "a}", "a}b", "{}{t}x", "}{", "{}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        static const char *const commands[] = {"BF.RESERVE %s 0.01 100", "BF.ADD %s x",
                                               "BF.MADD %s x y", "BF.INSERT %s ITEMS x"};
        for (size_t j = 0; j < sizeof(commands) / sizeof(*commands); j++) {
            const char *text = router_text(router, commands[j], bad[i]);
            if (!text_matches(text, "-ERR in a cluster ...{hash tag}..."))
                CHECK_FAIL("%s with the name \"%s\" answers %s", commands[j], bad[i], text);
        }
        CHECK_STR(router_text(router, "EXISTS %s", bad[i]), ":0");
        CHECK_STR(router_text(router, "BF.EXISTS %s x", bad[i]), ":0");
    }
    /* Nor can such a filter come in from outside. */
    Server *alone = server_start(NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        EXPECT(alone->client, ":1", "BF.ADD %s x", bad[i]);
        const redisReply *dump = command(alone->client, "DUMP %s", bad[i]);
        const char *text =
            router_text(router, "RESTORE %s 0 %b", bad[i], dump->str, (size_t)dump->len);
        if (!text_matches(text, "-ERR Bad data format..."))
            CHECK_FAIL("RESTORE with the name \"%s\" answers %s", bad[i], text);
    }
    router_free(router);
}

/* ---- within a slot, on one node ---- */

TEST(rename_copy_restore_and_flush) {
    Cluster *cluster = cluster_start(3, true, NULL);
    REQUIRE(cluster);
    Router *router = router_new(cluster);
    const int slot = cluster_slot(cluster, "{t}"), home = cluster_home(cluster, slot);
    Client *c = cluster->node[home]->client;
    cluster_fill(router, "{t}a", "i");
    const size_t nshards = cluster_count(cluster_shards_of(c, "{t}a"));
    EXPECT(c, "+OK", "RENAME {t}a {t}b");
    cluster_check(router, "{t}b", "i");
    EXPECT(c, ":1", "COPY {t}b {t}c");
    CHECK_SHARDS(cluster->node[home], 2 * nshards);
    EXPECT(c, ":1", "BF.ADD {t}c only-in-the-copy");
    EXPECT(c, ":0", "BF.EXISTS {t}b only-in-the-copy");
    EXPECT(c, ":1", "DEL {t}b");
    CHECK_SHARDS(cluster->node[home], nshards);
    cluster_check(router, "{t}c", "i");

    /* Another name of the same slot, without the tag. */
    const char *same = cluster_name(cluster, "plain", slot, slot);
    EXPECT(c, "+OK", "RENAME {t}c %s", same);
    cluster_check(router, same, "i");
    EXPECT(c, ":1", "COPY %s {t}d", same);
    cluster_check(router, "{t}d", "i");
    EXPECT(c, ":1", "DEL %s", same);
    CHECK_SHARDS(cluster->node[home], nshards);
    /* No shard could be named after this one; the copy's are named after the original. */
    const char *brace = cluster_name(cluster, "a}b", slot, slot);
    EXPECT(c, ":1", "COPY {t}d %s", brace);
    cluster_check(router, brace, "i");
    for (const char *const *shard = cluster_shards_of(c, brace); *shard; shard++)
        CHECK_INT(cluster_slot(cluster, *shard), slot);
    EXPECT(c, ":1", "DEL %s", brace);
    CHECK_SHARDS(cluster->node[home], nshards);

    /* DUMP carries no bits here: the payload is good for the same shards only, in the same slot,
     * under one name. */
    const redisReply *dump = command(c, "DUMP {t}d");
    const char *elsewhere = cluster_name(cluster, "x", slot + 1, slot + 100);
    if (cluster_home(cluster, slot + 100) == home) {
        EXPECT_ERROR(c, "ERR", "Bad data format", "RESTORE %s 0 %b", elsewhere, dump->str,
                     (size_t)dump->len);
        CHECK_LOGGED(cluster->node[home], "another cluster slot");
    }
    EXPECT_ERROR(c, "ERR", "Bad data format", "RESTORE {t}e 0 %b", dump->str, (size_t)dump->len);
    CHECK_LOGGED(cluster->node[home], "under another name");
    EXPECT(c, "+OK", "RESTORE {t}d 0 %b REPLACE", dump->str, (size_t)dump->len);
    cluster_wait_sweepers(router);
    cluster_check(router, "{t}d", "i");

    EXPECT(c, "+OK", "FLUSHALL");
    CHECK_SHARDS(cluster->node[home], 0);
    CHECK_SHARDS(cluster->node[home + cluster->nprimaries], 0);
    router_free(router);
}

/* ---- filters that die at a bad moment ---- */

static bool wait_for_state(Server *s, const char *state) {
    for (int i = 0; i < 3000; i++) {
        if (strstr(command_text(s->client, "CLUSTER INFO"), state)) return true;
        pause_ms(20);
    }
    return CHECK_FAIL("the cluster does not become %s", state);
}

/* While the cluster is down the server refuses the sweeper's commands; it must not forget its
 * work. */
TEST(expiry_while_the_cluster_is_down) {
    Cluster *cluster = cluster_start(2, false, NULL);
    REQUIRE(cluster);
    Router *router = router_new(cluster);
    const char *name = cluster_name(cluster, "seen", 0, 8000);
    cluster_fill(router, name, "i");
    Client *c = cluster->node[0]->client;
    EXPECT(c, "+OK", "DEBUG SET-ACTIVE-EXPIRE 0");
    EXPECT(c, ":1", "PEXPIRE %s 50", name);
    cluster_set_timeout(cluster, 1000);
    server_stop(cluster->node[1], STOP_KILL);
    REQUIRE(wait_for_state(cluster->node[0], "cluster_state:fail"));
    const long long nkeys = command_int(c, "DBSIZE");
    CHECK(nkeys > 20);
    EXPECT(c, "+OK", "DEBUG SET-ACTIVE-EXPIRE 1");
    for (int i = 0; i < 3000 && command_int(c, "DBSIZE") == nkeys; i++) pause_ms(20);
    CHECK_INT(command_int(c, "DBSIZE"), nkeys - 1);
    REQUIRE(server_wait_runs(cluster->node[0]));
    server_up(cluster->node[1]);
    REQUIRE(wait_for_state(cluster->node[0], "cluster_state:ok"));
    CHECK_SHARDS(cluster->node[0], 0);
    router_free(router);
}
