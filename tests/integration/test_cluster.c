/* Filters in a Redis Cluster: a filter and its shards share a slot, move together, and survive failovers. */
#include "check.h"
#include "client.h"
#include "cluster_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SWEEPER_MS = 1000, /* ten periods of the sweeper: long enough for it to do what it must not */
    SMALL = 20000,     /* items of a filter of some thirty small shards */
};

/* A filter of some thirty shards of 4096 bytes, full of prefix0 .. */
static void fill_small(Router *router, const char *name, const char *prefix) {
    CHECK_STR(router_text(router, "BF.RESERVE %s 0.0001 %d SHARDSIZE 4096", name, 2 * SMALL),
              "+OK");
    const long long added = router_batches(router, "BF.MADD", name, prefix, 0, SMALL);
    CHECK_RANGE((double)added, SMALL - 20, SMALL);
}

static void check_small(Router *router, const char *name, const char *prefix) {
    CHECK_INT(router_batches(router, "BF.MEXISTS", name, prefix, 0, SMALL), SMALL);
    const long long wrong = router_batches(router, "BF.MEXISTS", name, "other", 0, 1000);
    CHECK_RANGE((double)wrong, 0, 20);
}

/* ---- names ---- */

/* The slot of every shard is the filter's own. */
static void check_one_slot(Cluster *cluster, Router *router, const char *name) {
    const int slot = cluster_slot(cluster, name);
    const char *const *shards =
        cluster_shards_of(cluster->node[cluster_home(cluster, slot)]->client, name);
    CHECK(cluster_count(shards) > 20);
    for (; *shards; shards++) CHECK_INT(cluster_slot(cluster, *shards), slot);
    check_small(router, name, "i");
}

TEST(names) {
    Cluster *cluster = cluster_start(3, false, NULL);
    REQUIRE(cluster);
    Router *router = router_new(cluster);
    static const char *const good[] = {"seen",      "{crawl}seen", "seen:{crawl}:2", "a{b",
                                       "x}y{tag}z", "{a}{}",       "{{t}x",          "bf:{seen}:0"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        fill_small(router, good[i], "i");
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
    fill_small(router, "{t}a", "i");
    const size_t nshards = cluster_count(cluster_shards_of(c, "{t}a"));
    EXPECT(c, "+OK", "RENAME {t}a {t}b");
    check_small(router, "{t}b", "i");
    EXPECT(c, ":1", "COPY {t}b {t}c");
    CHECK_SHARDS(cluster->node[home], 2 * nshards);
    EXPECT(c, ":1", "BF.ADD {t}c only-in-the-copy");
    EXPECT(c, ":0", "BF.EXISTS {t}b only-in-the-copy");
    EXPECT(c, ":1", "DEL {t}b");
    CHECK_SHARDS(cluster->node[home], nshards);
    check_small(router, "{t}c", "i");

    /* Another name of the same slot, without the tag. */
    const char *same = cluster_name(cluster, "plain", slot, slot);
    EXPECT(c, "+OK", "RENAME {t}c %s", same);
    check_small(router, same, "i");
    EXPECT(c, ":1", "COPY %s {t}d", same);
    check_small(router, "{t}d", "i");
    EXPECT(c, ":1", "DEL %s", same);
    CHECK_SHARDS(cluster->node[home], nshards);
    /* No shard could be named after this one; the copy's are named after the original. */
    const char *brace = cluster_name(cluster, "a}b", slot, slot);
    EXPECT(c, ":1", "COPY {t}d %s", brace);
    check_small(router, brace, "i");
    for (const char *const *shard = cluster_shards_of(c, brace); *shard; shard++)
        CHECK_INT(cluster_slot(cluster, *shard), slot);
    EXPECT(c, ":1", "DEL %s", brace);
    CHECK_SHARDS(cluster->node[home], nshards);

    /* DUMP carries no bits here: the payload is good for the same shards only, in the same slot, under one name. */
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
    pause_ms(SWEEPER_MS);
    check_small(router, "{t}d", "i");

    EXPECT(c, "+OK", "FLUSHALL");
    CHECK_SHARDS(cluster->node[home], 0);
    CHECK_SHARDS(cluster->node[home + cluster->nprimaries], 0);
    router_free(router);
}

/* ---- migration, step by step ---- */

struct move {
    Cluster *cluster;
    Router *router;
    const char *name;
    int slot, from, to;
    const char **shards;
};

/* A full filter on node 0, and its slot about to go to node 1. */
static bool prepare(struct move *move, Cluster *cluster, const char *prefix) {
    if (!cluster) return false;
    *move = (struct move){.cluster = cluster, .router = router_new(cluster), .from = 0, .to = 1};
    move->name = cluster_name(cluster, prefix, 0, CLUSTER_NSLOTS / cluster->nprimaries - 1);
    move->slot = cluster_slot(cluster, move->name);
    fill_small(move->router, move->name, "i");
    move->shards = cluster_shards_of(cluster->node[0]->client, move->name);
    cluster_open_slot(cluster, move->slot, 0, 1);
    return CHECK(cluster_count(move->shards) > 20);
}

static void move_descriptor(const struct move *move) {
    const char *const keys[] = {move->name, NULL};
    cluster_move_keys(move->cluster, move->from, move->to, keys);
}

/* With shards still missing, whoever has the descriptor says so, and makes nothing up. */
static void check_halfway(const struct move *move, int holder) {
    Client *c = client_new(move->cluster->node[holder]);
    int nagain = 0;
    for (int i = 0; i < 1000; i++) {
        if (holder == move->to) EXPECT(c, "+OK", "ASKING");
        const char *text = command_text(c, "BF.EXISTS %s i%d", move->name, i);
        if (strncmp(text, "-TRYAGAIN ", 10) == 0)
            nagain++;
        else
            CHECK_STR(text, ":1");
    }
    CHECK(nagain > 0);
    if (holder == move->to) EXPECT(c, "+OK", "ASKING");
    EXPECT_ERROR(c, "TRYAGAIN", "on their way", "BF.HEAL %s", move->name);
    client_disconnect(c);
}

/* The source frees the descriptor when it has gone, and must not take the shards for garbage. */
TEST(slow_migration_descriptor_first) {
    struct move move;
    REQUIRE(prepare(&move, cluster_start(2, false, NULL), "seen"));
    const size_t n = cluster_count(move.shards);
    move_descriptor(&move);
    pause_ms(SWEEPER_MS);
    CHECK_INT((long long)cluster_count(cluster_shards_on(move.cluster->node[0])), (long long)n);
    check_halfway(&move, 1);
    const char *const half[] = {move.shards[0], move.shards[1], move.shards[2], NULL};
    cluster_move_keys(move.cluster, 0, 1, half);
    check_halfway(&move, 1);
    pause_ms(SWEEPER_MS);
    cluster_finish_slot(move.cluster, move.slot, 0, 1);
    check_small(move.router, move.name, "i");
    CHECK_SHARDS(move.cluster->node[0], 0);
    CHECK_SHARDS(move.cluster->node[1], n);
    CHECK_INT(server_info(move.cluster->node[0], "bf_filters"), 0);
    CHECK_INT(server_info(move.cluster->node[0], "bf_shards"), 0);
    CHECK_INT(server_info(move.cluster->node[1], "bf_shards"), (long long)n);
    router_free(move.router);
}

TEST(slow_migration_shards_first) {
    struct move move;
    REQUIRE(prepare(&move, cluster_start(2, false, NULL), "seen"));
    const size_t n = cluster_count(move.shards);
    const char *const half[] = {move.shards[0], move.shards[1], move.shards[2], NULL};
    cluster_move_keys(move.cluster, 0, 1, half);
    pause_ms(SWEEPER_MS);
    check_halfway(&move, 0);
    cluster_move_keys(move.cluster, 0, 1, (const char *const *)move.shards + 3);
    pause_ms(SWEEPER_MS);
    CHECK_INT((long long)cluster_count(cluster_shards_on(move.cluster->node[1])), (long long)n);
    cluster_finish_slot(move.cluster, move.slot, 0, 1);
    check_small(move.router, move.name, "i");
    CHECK_SHARDS(move.cluster->node[0], 0);

    /* And back again: the first node has known this filter, and seen it go. */
    cluster_open_slot(move.cluster, move.slot, 1, 0);
    cluster_finish_slot(move.cluster, move.slot, 1, 0);
    pause_ms(SWEEPER_MS);
    check_small(move.router, move.name, "i");
    CHECK_SHARDS(move.cluster->node[0], n);
    CHECK_SHARDS(move.cluster->node[1], 0);
    router_free(move.router);
}

/* A replica has no part in a migration and does not know of it: it must not call a shard lost that has moved. */
TEST(reads_on_a_replica_during_a_migration) {
    struct move move;
    REQUIRE(prepare(&move, cluster_start(3, true, NULL), "seen"));
    const char *const one[] = {move.shards[0], NULL};
    cluster_move_keys(move.cluster, 0, 1, one);
    server_wait_for_replica(move.cluster->node[0], move.cluster->node[3]);
    Client *c = client_new(move.cluster->node[3]);
    int nagain = 0;
    EXPECT(c, "+OK", "READONLY");
    for (int i = 0; i < 1000; i++) {
        const char *text = command_text(c, "BF.EXISTS %s i%d", move.name, i);
        nagain += strncmp(text, "-TRYAGAIN ", 10) == 0;
        CHECK(*text != '-' || strncmp(text, "-TRYAGAIN ", 10) == 0);
    }
    CHECK_RANGE(nagain, 1, 500);
    router_free(move.router);
}

static void run_cli(Cluster *cluster, const char *const *arguments) {
    const pid_t cli = cluster_cli(cluster, arguments);
    bool ok = false;
    for (int i = 0; i < 3000 && !cluster_cli_ended(cluster, cli, &ok); i++) pause_ms(20);
    CHECK(ok);
}

/* What the administrator does when slots were left open. */
static void fix(Cluster *cluster, int node) {
    char address[32];
    snprintf(address, sizeof(address), "127.0.0.1:%d", cluster->node[node]->port);
    const char *const arguments[] = {"--cluster", "fix", address, "--cluster-yes", NULL};
    run_cli(cluster, arguments);
}

/* The descriptor has gone, the shards have not, and then the migration is called off. */
TEST(migration_that_is_called_off) {
    struct move move;
    REQUIRE(prepare(&move, cluster_start(3, false, NULL), "seen"));
    const size_t n = cluster_count(move.shards);
    move_descriptor(&move);
    EXPECT(move.cluster->node[0]->client, "+OK", "CLUSTER SETSLOT %d STABLE", move.slot);
    pause_ms(SWEEPER_MS);
    CHECK_INT((long long)cluster_count(cluster_shards_on(move.cluster->node[0])), (long long)n);
    fix(move.cluster, 0);
    check_small(move.router, move.name, "i");
    CHECK_STR(router_text(move.router, "DEL %s", move.name), ":1");
    for (int i = 0; i < 3; i++) CHECK_SHARDS(move.cluster->node[i], 0);
    router_free(move.router);
}

/* The same with a failover of the source: its replica saw a DEL, and knows nothing of a migration. */
TEST(migration_whose_source_fails_over) {
    struct move move;
    REQUIRE(prepare(&move, cluster_start(3, true, NULL), "seen"));
    const size_t n = cluster_count(move.shards);
    move_descriptor(&move);
    EXPECT(move.cluster->node[3]->client, "+OK", "CLUSTER FAILOVER");
    server_wait_info(move.cluster->node[3], "role", "master");
    pause_ms(SWEEPER_MS);
    CHECK_INT((long long)cluster_count(cluster_shards_on(move.cluster->node[3])), (long long)n);
    fix(move.cluster, 3);
    check_small(move.router, move.name, "i");
    CHECK_STR(router_text(move.router, "DEL %s", move.name), ":1");
    for (int i = 0; i < 6; i++) CHECK_SHARDS(move.cluster->node[i], 0);
    router_free(move.router);
}

/* The same again with a restart of the source from its append-only file. */
TEST(migration_whose_source_restarts) {
    struct move move;
    REQUIRE(prepare(&move, cluster_start(2, false, "appendonly yes\nappendfsync always"), "seen"));
    const size_t n = cluster_count(move.shards);
    move_descriptor(&move);
    router_free(move.router); /* its connections */
    server_restart(move.cluster->node[0], STOP_KILL);
    EXPECT(move.cluster->node[0]->client, "+OK", "CLUSTER SETSLOT %d STABLE", move.slot);
    REQUIRE(cluster_wait(move.cluster));
    pause_ms(SWEEPER_MS);
    CHECK_INT((long long)cluster_count(cluster_shards_on(move.cluster->node[0])), (long long)n);
    fix(move.cluster, 0);
    check_small(move.router, move.name, "i");
    router_free(move.router);
}

/* ---- filters that die at a bad moment ---- */

static bool wait_for_state(Server *s, const char *state) {
    for (int i = 0; i < 1500; i++) {
        if (strstr(command_text(s->client, "CLUSTER INFO"), state)) return true;
        pause_ms(20);
    }
    return CHECK_FAIL("the cluster does not become %s", state);
}

/* While the cluster is down the server refuses the sweeper's commands; it must not forget its work. */
TEST(expiry_while_the_cluster_is_down) {
    Cluster *cluster = cluster_start(2, false, "cluster-node-timeout 1000");
    REQUIRE(cluster);
    Router *router = router_new(cluster);
    const char *name = cluster_name(cluster, "seen", 0, 8000);
    fill_small(router, name, "i");
    Client *c = cluster->node[0]->client;
    EXPECT(c, "+OK", "DEBUG SET-ACTIVE-EXPIRE 0");
    EXPECT(c, ":1", "PEXPIRE %s 50", name);
    server_stop(cluster->node[1], STOP_KILL);
    REQUIRE(wait_for_state(cluster->node[0], "cluster_state:fail"));
    const long long nkeys = command_int(c, "DBSIZE");
    CHECK(nkeys > 20);
    EXPECT(c, "+OK", "DEBUG SET-ACTIVE-EXPIRE 1");
    for (int i = 0; i < 500 && command_int(c, "DBSIZE") == nkeys; i++) pause_ms(20);
    CHECK_INT(command_int(c, "DBSIZE"), nkeys - 1);
    pause_ms(SWEEPER_MS);
    server_up(cluster->node[1]);
    REQUIRE(wait_for_state(cluster->node[0], "cluster_state:ok"));
    CHECK_SHARDS(cluster->node[0], 0);
    router_free(router);
}

/* ---- resharding under load ---- */

/* redis-cli takes the lowest slots of the source first, so these are the slots to move. */
static pid_t start_reshard(Cluster *cluster, int from, int to, int nslots, const char *pipeline) {
    static char address[32], count[16];
    snprintf(address, sizeof(address), "127.0.0.1:%d", cluster->node[0]->port);
    snprintf(count, sizeof(count), "%d", nslots);
    const char *const arguments[] = {"--cluster",
                                     "reshard",
                                     address,
                                     "--cluster-from",
                                     cluster->id[from],
                                     "--cluster-to",
                                     cluster->id[to],
                                     "--cluster-slots",
                                     count,
                                     "--cluster-yes",
                                     "--cluster-timeout",
                                     "60000",
                                     "--cluster-pipeline",
                                     pipeline,
                                     NULL};
    return cluster_cli(cluster, arguments);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct load {
    Router *router;
    const char *name;
    long long nadded, nchecked;
};

/* Adds some, checks those and some older ones. Anything but an answer fails the test. */
static bool work(struct load *load) {
    const long long n = 100, older = load->nadded > 1000 ? load->nadded * 7919 % 1000 : 0;
    if (router_batches(load->router, "BF.MADD", load->name, "i", load->nadded, n) < 0) return false;
    load->nadded += n;
    load->nchecked += 2 * n;
    return CHECK_INT(
               router_batches(load->router, "BF.MEXISTS", load->name, "i", load->nadded - n, n),
               n) &&
           CHECK_INT(router_batches(load->router, "BF.MEXISTS", load->name, "i", older, n), n);
}

/* Moves slots by redis-cli from node 0 to node 1, `pipeline` keys at a time, while the load goes on. */
static void reshard_under_load(Cluster *cluster, struct load *load, int nslots,
                               const char *pipeline) {
    const double start = seconds();
    const long long added = load->nadded, checked = load->nchecked;
    const pid_t cli = start_reshard(cluster, 0, 1, nslots, pipeline);
    bool ok = false;
    double longest = 0;
    while (!cluster_cli_ended(cluster, cli, &ok)) {
        const double before = seconds();
        if (!work(load)) pause_ms(20);
        if (seconds() - before > longest) longest = seconds() - before;
    }
    CHECK(ok);
    printf(
        "    %d slots in %.1f s; meanwhile %lld items added, %lld checked, %ld MOVED, %ld ASK, %ld "
        "TRYAGAIN, at most %.1f s for three commands\n",
        nslots, seconds() - start, load->nadded - added, load->nchecked - checked,
        load->router->nmoved, load->router->nask, load->router->ntryagain, longest);
}

static void check_moved(Cluster *cluster, struct load *load) {
    Client *to = cluster->node[1]->client;
    CHECK_INT(router_batches(load->router, "BF.MEXISTS", load->name, "i", 0, load->nadded),
              load->nadded);
    const char *const *shards = cluster_shards_of(to, load->name);
    CHECK_SHARDS(cluster->node[0], 0);
    CHECK_SHARDS(cluster->node[1], cluster_count(shards));
    for (; *shards; shards++) EXPECT(to, ":1", "EXISTS %s", *shards);
    CHECK_STR(router_text(load->router, "BF.HEAL %s", load->name), ":0");
}

TEST(reshard_under_load) {
    Cluster *cluster = cluster_start(3, true, NULL);
    REQUIRE(cluster);
    struct load load = {.router = router_new(cluster), .name = cluster_name(cluster, "seen", 3, 9)};
    CHECK_STR(
        router_text(load.router, "BF.RESERVE %s 0.0001 10000000 SHARDSIZE 1048576", load.name),
        "+OK");
    for (int i = 0; i < 100; i++) REQUIRE(work(&load));
    CHECK(cluster_count(cluster_shards_of(cluster->node[0]->client, load.name)) > 20);
    reshard_under_load(cluster, &load, 10, "1");
    for (int i = 0; i < 100; i++) REQUIRE(work(&load));
    check_moved(cluster, &load);
    CHECK_SHARDS(cluster->node[3], 0);
    CHECK_SHARDS(cluster->node[4], cluster_count(cluster_shards_on(cluster->node[1])));
    router_free(load.router);
}

static const char *from_environment(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* No single value of a server can hold this many bytes. They move one by one, since a node is deaf while it packs what
 * one MIGRATE takes along: with redis-cli's usual ten shards, for so long on a busy machine that it is taken for dead.
 * With few items the shards compress well on their way; CLUSTER_ITEMS=20000000 puts more into them first,
 * CLUSTER_PIPELINE=10 moves ten at a time, CLUSTER_CONFIG="rdbcompression no" changes the configuration:
 * docs/cluster.md has the figures. */
TEST(reshard_of_more_than_512_mb) {
    const long long nitems = atoll(from_environment("CLUSTER_ITEMS", "1000"));
    char config[256];
    snprintf(config, sizeof(config), "cluster-node-timeout 30000\n%s",
             from_environment("CLUSTER_CONFIG", ""));
    Cluster *cluster = cluster_start(3, false, config);
    REQUIRE(cluster);
    struct load load = {.router = router_new(cluster), .name = cluster_name(cluster, "seen", 0, 3)};
    CHECK_STR(router_text(load.router, "BF.RESERVE %s 0.0001 230000000 NONSCALING", load.name),
              "+OK");
    REQUIRE(router_batches(load.router, "BF.MADD", load.name, "i", 0, nitems) >= 0);
    load.nadded = nitems;
    const char *const *shards = cluster_shards_of(cluster->node[0]->client, load.name);
    const long long used = server_info(cluster->node[0], "used_memory");
    CHECK(used > 512ll << 20);
    printf("    %zu shards, %lld bytes in use, %lld items\n", cluster_count(shards), used,
           load.nadded);
    reshard_under_load(cluster, &load, 4, from_environment("CLUSTER_PIPELINE", "1"));
    check_moved(cluster, &load);
    CHECK(server_info(cluster->node[0], "used_memory") < 64ll << 20);
    router_free(load.router);
}

/* ---- failover ---- */

/* Adds items and waits for a replica to have each batch; returns how many are safe by the server's word. */
static long long add_and_wait(Router *router, const char *name, long long first) {
    const long long n = 50;
    if (router_batches(router, "BF.MADD", name, "i", first, n) < 0) return first;
    /* To the node that took them, on the same connection: that is what WAIT is about. */
    redisContext *c = router->connection[router->at];
    redisReply *reply = c ? redisCommand(c, "WAIT 1 2000") : NULL;
    const bool safe = reply && reply->type == REDIS_REPLY_INTEGER && reply->integer >= 1;
    if (reply) freeReplyObject(reply);
    return safe ? first + n : first;
}

static void check_safe(Router *router, const char *name, long long nsafe) {
    CHECK_INT(router_batches(router, "BF.MEXISTS", name, "i", 0, nsafe), nsafe);
}

TEST(failover_by_command_under_load) {
    Cluster *cluster = cluster_start(3, true, NULL);
    REQUIRE(cluster);
    Router *router = router_new(cluster);
    const char *name = cluster_name(cluster, "seen", 0, 5000);
    long long nsafe = 0;
    router->may_be_down = true;
    CHECK_STR(router_text(router, "BF.RESERVE %s 0.0001 1000 SHARDSIZE 4096", name), "+OK");
    for (int round = 0; round < 2; round++) {
        Server *replica = cluster->node[round ? 0 : 3];
        for (int i = 0; i < 50; i++) nsafe = add_and_wait(router, name, nsafe);
        EXPECT(replica->client, "+OK", "CLUSTER FAILOVER");
        for (const double end = seconds() + 20; router->nmoved <= round && seconds() < end;)
            nsafe = add_and_wait(router, name, nsafe);
        CHECK(router->nmoved > round);
        CHECK(cluster_wait(cluster));
        check_safe(router, name, nsafe);
    }
    server_wait_for_replica(cluster->node[0], cluster->node[3]);
    EXPECT(cluster->node[0]->client, ":1", "DEL %s", name);
    CHECK_SHARDS(cluster->node[0], 0);
    CHECK_SHARDS(cluster->node[3], 0);
    router_free(router);
}

TEST(failover_after_a_crash_under_load) {
    Cluster *cluster = cluster_start(3, true, "cluster-node-timeout 2000");
    REQUIRE(cluster);
    Router *router = router_new(cluster);
    const char *name = cluster_name(cluster, "seen", 0, 5000);
    long long nsafe = 0;
    router->may_be_down = true;
    CHECK_STR(router_text(router, "BF.RESERVE %s 0.0001 1000 SHARDSIZE 4096", name), "+OK");
    for (int i = 0; i < 100; i++) nsafe = add_and_wait(router, name, nsafe);
    const long long before = nsafe;
    CHECK(before > 0);
    server_stop(cluster->node[0], STOP_KILL);
    /* Until the replica has taken over, and for a while after. Without a replica nothing is safe any more. */
    for (int i = 0; i < 20; i++) router_batches(router, "BF.MADD", name, "i", before, 50);
    CHECK(router->ndown > 0);
    check_safe(router, name, before);
    server_up(cluster->node[0]);
    CHECK(cluster_wait(cluster));
    server_wait_info(cluster->node[0], "master_link_status", "up");
    for (int i = 0; i < 20; i++) nsafe = add_and_wait(router, name, nsafe);
    CHECK(nsafe > before);
    check_safe(router, name, nsafe);
    CHECK_SHARDS(cluster->node[0], cluster_count(cluster_shards_on(cluster->node[3])));
    EXPECT(cluster->node[3]->client, ":1", "DEL %s", name);
    CHECK_SHARDS(cluster->node[3], 0);
    CHECK_SHARDS(cluster->node[0], 0);
    router_free(router);
}
