/* Slots that the server moves as a whole: Redis 8.4 and newer send a snapshot of RESTOREs and take
 * the slot away from under us, Valkey 9.0 and newer send what an AOF would hold. Here that happens
 * under load, is called off, and loses one side by kill -9. What was acknowledged must be there,
 * what was deleted must not, and no shard may be left over.
 *
 * Beside every filter there is a plain set that gets the same items: what a server loses by itself
 * shows there. */
#include "audit.h"
#include "check.h"
#include "cluster_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every other filter has a window, of 32 pieces, all of which the tests last. */
#define WINDOW   "WINDOW 1000000000 SLICES 32"
#define PIECE_MS 31250000000ull

enum { NFILTERS = 6, BATCH = 40, FIRST_SLOT = 0, LAST_SLOT = 40, LIMIT_MS = 60000 };

typedef enum { NONE, REDIS, VALKEY } Kind;

typedef struct {
    Cluster *cluster;
    Router *router;
    Kind kind;
    const char *tag[NFILTERS]; /* of filter {tag}f, set {tag}s, and {tag}c, which comes and goes */
    long long nadded;          /* items i0 … of each filter, acknowledged */
    int nchurned;
    char task[64]; /* of the last migration, where the server names it */
    int source, target;
} World;

static Kind kind_of(Client *c) {
    const char *help = command_text(c, "CLUSTER HELP");
    return strstr(help, "MIGRATESLOTS") ? VALKEY : strstr(help, "MIGRATION") ? REDIS : NONE;
}

/* False if this server has no atomic migration; the test is over then. */
static bool begin_world(World *world, bool replicas, const char *config) {
    memset(world, 0, sizeof(*world));
    server_clocks_begin_at(1600000000000);
    Server *probe = server_start("cluster-enabled yes");
    world->kind = kind_of(probe->client);
    if (world->kind == NONE) EXPECT_ERROR(probe->client, "ERR", "", "CLUSTER MIGRATION STATUS");
    server_stop(probe, STOP_NOSAVE);
    if (world->kind == NONE) {
        printf("    this server has no atomic slot migration\n");
        return false;
    }
    /* A machine that is busy with other things must not make a node pass for dead. */
    char lines[128];
    snprintf(lines, sizeof(lines), "cluster-node-timeout 30000\n%s", config);
    world->cluster = cluster_start(2, replicas, lines);
    if (!CHECK(world->cluster != NULL)) return false;
    world->router = router_new(world->cluster);
    world->target = 1;
    /* Whatever the target thinks of the time, it does not turn a filter while it listens. */
    server_set_clock(world->cluster->node[1], 1600000000000 + PIECE_MS * 3 / 2);
    for (int i = 0; i < NFILTERS; i++) {
        char prefix[16];
        snprintf(prefix, sizeof(prefix), "t%d-", i);
        world->tag[i] = cluster_name(world->cluster, prefix, FIRST_SLOT, LAST_SLOT);
        const char *form = i % 2 ? "BF.RESERVE {%s}f 0.001 100 SHARDSIZE 4096 SEED 7 " WINDOW
                                 : "BF.RESERVE {%s}f 0.001 20000 SHARDSIZE 4096 SEED 7";
        CHECK_STR(router_text(world->router, form, world->tag[i]), "+OK");
    }
    return true;
}

/* ---- load ---- */

static const char *key_of(const World *world, int i, char kind) {
    static char name[2][128];
    static int at;
    at = !at;
    snprintf(name[at], sizeof(name[at]), "{%s}%c", world->tag[i], kind);
    return name[at];
}

/* A batch into every filter and every set, at a later time. */
static bool work(World *world) {
    for (int i = 0; i < world->cluster->nnodes; i++) {
        Server *node = world->cluster->node[i];
        server_set_clock(node, node->clock_ms + PIECE_MS / 200);
    }
    for (int i = 0; i < NFILTERS; i++) {
        const char *filter = key_of(world, i, 'f');
        if (router_batches(world->router, "BF.MADD", filter, "i", world->nadded, BATCH) < 0)
            return false;
        redisReply *reply =
            router_command(world->router, "SADD %s %lld", key_of(world, i, 's'), world->nadded);
        const bool ok = reply && reply->type == REDIS_REPLY_INTEGER;
        if (reply) freeReplyObject(reply);
        if (!CHECK(ok)) return false;
    }
    world->nadded += BATCH;
    return true;
}

/* Filters that die at any moment, also right before a migration. */
static bool churn(World *world, bool birth) {
    for (int i = 0; i < NFILTERS; i++) {
        const char *name = key_of(world, i, 'c');
        if (birth) {
            redisReply *reply = router_command(
                world->router, "BF.RESERVE %s 0.001 10000 SHARDSIZE 4096 SEED 7", name);
            if (reply) freeReplyObject(reply);
            if (router_batches(world->router, "BF.MADD", name, "c", world->nchurned, BATCH) < 0)
                return false;
        } else if (!CHECK_STR(router_text(world->router, "UNLINK %s", name), ":1")) {
            return false;
        }
    }
    world->nchurned += birth;
    return true;
}

/* ---- migrations ---- */

static bool begin_migration(World *world) {
    Cluster *cluster = world->cluster;
    if (world->kind == VALKEY)
        return EXPECT(cluster->node[world->source]->client, "+OK",
                      "CLUSTER MIGRATESLOTS SLOTSRANGE %d %d NODE %s", FIRST_SLOT, LAST_SLOT,
                      cluster->id[world->target]);
    const redisReply *reply = command(cluster->node[world->target]->client,
                                      "CLUSTER MIGRATION IMPORT %d %d", FIRST_SLOT, LAST_SLOT);
    snprintf(world->task, sizeof(world->task), "%s", reply->str ? reply->str : "");
    return CHECK_INT(reply->type, REDIS_REPLY_STRING);
}

/* The state of the last migration, as the server calls it. */
static const char *state(World *world) {
    const redisReply *reply =
        world->kind == VALKEY
            ? command(world->cluster->node[world->source]->client, "CLUSTER GETSLOTMIGRATIONS")
            : command(world->cluster->node[world->target]->client, "CLUSTER MIGRATION STATUS ID %s",
                      world->task);
    const redisReply *task = reply->elements > 0 ? reply->element[0] : NULL;
    for (size_t i = 0; task && i + 1 < task->elements; i += 2)
        if (strcmp(task->element[i]->str, "state") == 0) return task->element[i + 1]->str;
    return "unknown";
}

static bool has_ended(World *world, bool *well) {
    static const char *const good[] = {"completed", "success"};
    static const char *const bad[] = {"failed", "canceled", "cancelled"};
    const char *now = state(world);
    *well = false;
    for (int i = 0; i < 2; i++)
        if (strcmp(now, good[i]) == 0) *well = true;
    for (int i = 0; i < 3; i++)
        if (strcmp(now, bad[i]) == 0) return true;
    return *well;
}

static void cancel(World *world) {
    if (world->kind == VALKEY)
        command(world->cluster->node[world->source]->client, "CLUSTER CANCELSLOTMIGRATIONS");
    else
        command(world->cluster->node[world->target]->client, "CLUSTER MIGRATION CANCEL ALL");
}

static void turn(World *world) {
    const int source = world->source;
    world->source = world->target;
    world->target = source;
}

/* Works until the migration has ended, while filters are born and die. */
static bool migrate_under_load(World *world, bool *well) {
    bool born = false;
    for (int step = 0; step * 2 < LIMIT_MS && !has_ended(world, well); step++) {
        if (!work(world) || !churn(world, !born)) return false;
        born = !born;
        pause_ms(2);
    }
    return CHECK(has_ended(world, well)) && (!born || churn(world, false));
}

/* Node 0 began with the slots; a migration may have ended the way it should after all. */
static void find_owner(World *world) {
    const char *text =
        command_text(world->cluster->node[0]->client, "EXISTS %s", key_of(world, 0, 'f'));
    const bool here = strncmp(text, "-MOVED", 6) != 0;
    world->source = here ? 0 : 1;
    world->target = !world->source;
}

/* ---- what must hold at the end ---- */

static void check_all(World *world) {
    for (int i = 0; i < NFILTERS; i++) {
        const char *set = key_of(world, i, 's'), *filter = key_of(world, i, 'f');
        char want[32];
        snprintf(want, sizeof(want), ":%lld", world->nadded / BATCH);
        if (!CHECK_STR(router_text(world->router, "SCARD %s", set), want))
            CHECK_FAIL("the server itself has lost members of %s", set);
        if (!CHECK_INT(router_batches(world->router, "BF.MEXISTS", filter, "i", 0, world->nadded),
                       world->nadded))
            CHECK_FAIL("%s says %s", filter, router_text(world->router, "BF.SHARDS %s", filter));
        CHECK_STR(router_text(world->router, "BF.HEAL %s", filter), ":0");
    }
    for (int i = 0; i < 2; i++) CHECK_TIDY(world->cluster->node[i]);
    const size_t nfilters =
        audit(world->cluster->node[0]).nfilters + audit(world->cluster->node[1]).nfilters;
    CHECK_UINT(nfilters, NFILTERS);
}

/* ---- tests ---- */

/* There and back, with replicas, and filters that die just before the slots leave. ROUNDS=40 in the
 * environment makes it longer. */
TEST(under_load) {
    World world;
    const char *rounds = getenv("ROUNDS");
    const int nrounds = rounds && *rounds ? atoi(rounds) : 6;
    if (!begin_world(&world, true, "")) return;
    for (int round = 0; round < nrounds; round++) {
        bool well;
        REQUIRE(churn(&world, true));
        for (int i = 0; i < 5; i++) REQUIRE(work(&world));
        REQUIRE(churn(&world, false));
        REQUIRE(begin_migration(&world));
        REQUIRE(migrate_under_load(&world, &well));
        if (!CHECK(well)) CHECK_FAIL("round %d: %s", round, state(&world));
        turn(&world);
    }
    check_all(&world);
    if (nrounds > 6)
        printf("    %d migrations, %lld items in each of %d filters, %d filters died\n", nrounds,
               world.nadded, NFILTERS, world.nchurned * NFILTERS);
    for (int i = 0; i < 2; i++)
        CHECK_SHARDS(world.cluster->node[2 + i],
                     cluster_count(cluster_shards_on(world.cluster->node[i])));
    router_free(world.router);
}

/* Redis frees what left in the background, behind whatever that thread has to do: here two million
 * members of a set. The slots come back long before. */
TEST(back_before_the_old_ones_are_freed) {
    World world;
    if (!begin_world(&world, false, "")) return;
    Client *c = world.cluster->node[0]->client;
    const char *big = cluster_name(world.cluster, "big", LAST_SLOT + 1, CLUSTER_NSLOTS / 2 - 1);
    const char *fill = "for i = 1, 20 do local t = {} for j = 1, 1000 do "
                       "t[j] = 'member ' .. (ARGV[1] * 20000 + i * 1000 + j) end "
                       "redis.call('SADD', KEYS[1], unpack(t)) end return 1";
    for (int i = 0; i < 100; i++) EXPECT(c, ":1", "EVAL %s 1 %s %d", fill, big, i);
    for (int i = 0; i < 10; i++) REQUIRE(work(&world));
    EXPECT(c, ":1", "UNLINK %s", big);
    for (int round = 0; round < 2; round++) {
        bool well;
        REQUIRE(begin_migration(&world));
        REQUIRE(migrate_under_load(&world, &well));
        CHECK(well);
        turn(&world);
    }
    check_all(&world);
    router_free(world.router);
}

TEST(called_off) {
    World world;
    if (!begin_world(&world, false, "")) return;
    for (int round = 0; round < 8; round++) {
        bool well;
        REQUIRE(churn(&world, true));
        REQUIRE(work(&world));
        REQUIRE(churn(&world, false));
        REQUIRE(begin_migration(&world));
        for (int i = 0; i < round / 2; i++) REQUIRE(work(&world));
        cancel(&world);
        REQUIRE(migrate_under_load(&world, &well));
        if (well) turn(&world); /* it was faster */
    }
    check_all(&world);
    router_free(world.router);
}

/* Kills one side, the source or the target, at several moments of a migration. */
static void check_kills(bool source) {
    World world;
    if (!begin_world(&world, false, "appendonly yes\nappendfsync always")) return;
    world.router->may_be_down = true;
    for (int round = 0; round < 4; round++) {
        REQUIRE(churn(&world, true));
        for (int i = 0; i < 5; i++) REQUIRE(work(&world));
        REQUIRE(churn(&world, false));
        REQUIRE(begin_migration(&world));
        for (int i = 0; i < round; i++) REQUIRE(work(&world));
        Server *victim = world.cluster->node[source ? world.source : world.target];
        server_restart(victim, STOP_KILL);
        REQUIRE(cluster_wait(world.cluster));
        cancel(&world); /* if it goes on */
        REQUIRE(cluster_wait(world.cluster));
        for (int i = 0; i < 5; i++) REQUIRE(work(&world));
        find_owner(&world);
    }
    check_all(&world);
    router_free(world.router);
}

TEST(source_killed) {
    check_kills(true);
}

TEST(target_killed) {
    check_kills(false);
}
