/* Slots that move between the nodes of a cluster, step by step: at no moment is a shard taken for
 * lost or for garbage. */
#include "check.h"
#include "client.h"
#include "cluster_fixture.h"

#include <stdio.h>
#include <string.h>

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
    cluster_fill(move->router, move->name, "i");
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
    cluster_wait_sweepers(move.router);
    CHECK_INT((long long)cluster_count(cluster_shards_on(move.cluster->node[0])), (long long)n);
    check_halfway(&move, 1);
    const char *const half[] = {move.shards[0], move.shards[1], move.shards[2], NULL};
    cluster_move_keys(move.cluster, 0, 1, half);
    check_halfway(&move, 1);
    cluster_wait_sweepers(move.router);
    cluster_finish_slot(move.cluster, move.slot, 0, 1);
    cluster_check(move.router, move.name, "i");
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
    cluster_wait_sweepers(move.router);
    check_halfway(&move, 0);
    cluster_move_keys(move.cluster, 0, 1, (const char *const *)move.shards + 3);
    cluster_wait_sweepers(move.router);
    CHECK_INT((long long)cluster_count(cluster_shards_on(move.cluster->node[1])), (long long)n);
    cluster_finish_slot(move.cluster, move.slot, 0, 1);
    cluster_check(move.router, move.name, "i");
    CHECK_SHARDS(move.cluster->node[0], 0);

    /* And back again: the first node has known this filter, and seen it go. */
    cluster_open_slot(move.cluster, move.slot, 1, 0);
    cluster_finish_slot(move.cluster, move.slot, 1, 0);
    cluster_wait_sweepers(move.router);
    cluster_check(move.router, move.name, "i");
    CHECK_SHARDS(move.cluster->node[0], n);
    CHECK_SHARDS(move.cluster->node[1], 0);
    router_free(move.router);
}

/* A replica has no part in a migration and does not know of it: it must not call a shard lost that
 * has moved. */
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
    for (int i = 0; i < 9000 && !cluster_cli_ended(cluster, cli, &ok); i++) pause_ms(20);
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
    cluster_wait_sweepers(move.router);
    CHECK_INT((long long)cluster_count(cluster_shards_on(move.cluster->node[0])), (long long)n);
    fix(move.cluster, 0);
    cluster_check(move.router, move.name, "i");
    CHECK_STR(router_text(move.router, "DEL %s", move.name), ":1");
    for (int i = 0; i < 3; i++) CHECK_SHARDS(move.cluster->node[i], 0);
    router_free(move.router);
}

/* The same with a failover of the source: its replica saw a DEL, and knows nothing of a
 * migration. */
TEST(migration_whose_source_fails_over) {
    struct move move;
    REQUIRE(prepare(&move, cluster_start(3, true, NULL), "seen"));
    const size_t n = cluster_count(move.shards);
    move_descriptor(&move);
    /* A failover is given up after five seconds, which a busy machine may take. */
    for (int i = 0; i < 6000 && server_info(move.cluster->node[3], "connected_slaves") < 1; i++) {
        if (i % 600 == 0) command_text(move.cluster->node[3]->client, "CLUSTER FAILOVER");
        pause_ms(10);
    }
    server_wait_info(move.cluster->node[3], "role", "master");
    cluster_wait_sweepers(move.router);
    CHECK_INT((long long)cluster_count(cluster_shards_on(move.cluster->node[3])), (long long)n);
    fix(move.cluster, 3);
    cluster_check(move.router, move.name, "i");
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
    cluster_wait_sweepers(move.router);
    CHECK_INT((long long)cluster_count(cluster_shards_on(move.cluster->node[0])), (long long)n);
    fix(move.cluster, 0);
    cluster_check(move.router, move.name, "i");
    router_free(move.router);
}
