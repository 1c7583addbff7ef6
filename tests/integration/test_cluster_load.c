/* A cluster under load: what was answered stays known while slots move and nodes fail. */
#include "check.h"
#include "client.h"
#include "cluster_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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
                                     "120000",
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

/* Moves slots by redis-cli from node 0 to node 1, `pipeline` keys at a time, while the load goes
 * on. */
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
        router_text(load.router, "BF.RESERVE %s 0.0001 10000000 SHARDSIZE 1mb SEED 1", load.name),
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

/* No single value of a server can hold this many bytes. They move one by one, since a node is deaf
 * while it packs what one MIGRATE takes along: with redis-cli's usual ten shards, for so long on a
 * busy machine that it is taken for dead. With few items the shards compress well on their way;
 * CLUSTER_ITEMS=20000000 puts more into them first, CLUSTER_PIPELINE=10 moves ten at a time,
 * CLUSTER_CONFIG="rdbcompression no" changes the configuration: docs/cluster.md has the figures. */
TEST(reshard_of_more_than_512_mb) {
    const long long nitems = atoll(from_environment("CLUSTER_ITEMS", "1300000"));
    char config[256];
    snprintf(config, sizeof(config), "cluster-node-timeout 120000\n%s",
             from_environment("CLUSTER_CONFIG", ""));
    Cluster *cluster = cluster_start(3, false, config);
    REQUIRE(cluster);
    struct load load = {.router = router_new(cluster), .name = cluster_name(cluster, "seen", 0, 3)};
    CHECK_STR(
        router_text(load.router, "BF.RESERVE %s 0.0001 230000000 NONSCALING SEED 1", load.name),
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

/* Adds items and waits for a replica to have each batch; returns how many are safe by the server's
 * word. */
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

/* A failover by command is given up after five seconds, which a busy machine may take. */
enum { FAILOVER_SECONDS = 6 };

TEST(failover_by_command_under_load) {
    Cluster *cluster = cluster_start(3, true, NULL);
    REQUIRE(cluster);
    Router *router = router_new(cluster);
    const char *name = cluster_name(cluster, "seen", 0, 5000);
    long long nsafe = 0;
    router->may_be_down = true;
    CHECK_STR(router_text(router, "BF.RESERVE %s 0.0001 1000 SHARDSIZE 4096 SEED 1", name), "+OK");
    for (int round = 0; round < 2; round++) {
        Server *replica = cluster->node[round ? 0 : 3];
        for (int i = 0; i < 50; i++) nsafe = add_and_wait(router, name, nsafe);
        EXPECT(replica->client, "+OK", "CLUSTER FAILOVER");
        double again = seconds() + FAILOVER_SECONDS;
        for (const double end = seconds() + 60; router->nmoved <= round && seconds() < end;) {
            nsafe = add_and_wait(router, name, nsafe);
            if (seconds() < again) continue;
            command_text(replica->client, "CLUSTER FAILOVER");
            again = seconds() + FAILOVER_SECONDS;
        }
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
    Cluster *cluster = cluster_start(3, true, NULL);
    REQUIRE(cluster);
    Router *router = router_new(cluster);
    const char *name = cluster_name(cluster, "seen", 0, 5000);
    long long nsafe = 0;
    router->may_be_down = true;
    CHECK_STR(router_text(router, "BF.RESERVE %s 0.0001 1000 SHARDSIZE 4096 SEED 1", name), "+OK");
    for (int i = 0; i < 100; i++) nsafe = add_and_wait(router, name, nsafe);
    const long long before = nsafe;
    CHECK(before > 0);
    cluster_set_timeout(cluster, 2000);
    server_stop(cluster->node[0], STOP_KILL);
    /* Until the replica has taken over, and for a while after. Without a replica nothing is safe
     * any more. */
    for (int i = 0; i < 20; i++) router_batches(router, "BF.MADD", name, "i", before, 50);
    CHECK(router->ndown > 0);
    check_safe(router, name, before);
    cluster_set_timeout(cluster, 10000);
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
