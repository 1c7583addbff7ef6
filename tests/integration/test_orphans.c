/* scripts/bforphans finds shards that no live filter owns, and nothing else. */
#include "check.h"
#include "client.h"
#include "cluster_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { NITEMS = 5000 };

/* Runs the script and returns what it printed, kept until the end of the test. */
static const char *run(Server *s, const char *arguments, int *status) {
    char command_line[512];
    char *text = NULL;
    size_t len;
    snprintf(command_line, sizeof(command_line),
             "timeout 60 scripts/bforphans --wait 0.3 -u redis://127.0.0.1:%d %s 2>&1", s->port,
             arguments);
    FILE *in = popen(command_line, "r"), *out = open_memstream(&text, &len);
    for (int c; (c = getc(in)) != EOF;) putc(c, out);
    fclose(out);
    *status = WEXITSTATUS(pclose(in));
    return keep(text);
}

#define CHECK_RUN(server, arguments, status, want)                                                 \
    check_run(server, arguments, status, want, __FILE__, __LINE__)
static void check_run(Server *s, const char *arguments, int want_status, const char *want,
                      const char *file, int line) {
    int status;
    const char *text = run(s, arguments, &status);
    if (status == want_status && text_matches(text, want))
        check_that(true, want, file, line);
    else
        check_fail(file, line, "bforphans %s ends with %d and says\n%s\n    expected %d and %s",
                   arguments, status, text, want_status, want);
}

static void fill(Client *c, const char *name, int nitems) {
    EXPECT(c, "+OK", "BF.RESERVE %s 0.001 %d SHARDSIZE 4096 SEED 1", name, nitems);
    CHECK(command_batches(c, "BF.MADD", name, "i", 0, nitems) > nitems / 2);
}

/* Makes orphans as a careless tool would: puts a filter's shards back after the filter was
 * deleted. */
static size_t make_orphans(Client *c, const char *name, int nitems) {
    fill(c, name, nitems);
    const char **shards = cluster_shards_of(c, name);
    const size_t n = cluster_count(shards);
    redisReply **dumps = keep(calloc(n, sizeof(*dumps)));
    for (size_t i = 0; i < n; i++) dumps[i] = command(c, "DUMP %s", shards[i]);
    EXPECT(c, ":1", "DEL %s", name);
    for (int i = 0; i < 6000 && command_int(c, "EXISTS %s", shards[n - 1]); i++) pause_ms(10);
    for (size_t i = 0; i < n; i++)
        EXPECT(c, "+OK", "RESTORE %s 0 %b", shards[i], dumps[i]->str, (size_t)dumps[i]->len);
    return n;
}

TEST(one_server) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    char text[256];
    fill(c, "live", NITEMS);
    EXPECT(c, "+OK", "RENAME live renamed");
    EXPECT(c, "+OK", "SELECT 5");
    fill(c, "live", NITEMS);
    EXPECT(c, ":1", "BF.ADD %b x", "}\0{\xff}\n", (size_t)6);
    CHECK_RUN(s, "", 0, "...0 orphans of 0 bytes, 0 removed\n");

    const size_t n5 = make_orphans(c, "gone", NITEMS);
    EXPECT(c, "+OK", "SELECT 0");
    const size_t n0 = make_orphans(c, "go}ne", NITEMS);
    CHECK(n0 > 2 && n5 > 2);
    /* Named like a shard, but somebody's own. */
    EXPECT(c, "+OK", "SET bf:{mine}:0123456789abcdef:0:0 value");
    EXPECT(c, "+OK", "SET bf:{mine}:0123456789ABCDEF:0:0 value");
    EXPECT(c, ":1", "RPUSH bf:{mine}:0123456789abcdef:0:1 value");
    const long long nkeys = command_int(c, "DBSIZE");

    snprintf(text, sizeof(text),
             "...db 5  bf:{gone}:...%zu orphans of ... bytes, 0 removed\n...something else; left "
             "alone\n",
             n0 + n5);
    CHECK_RUN(s, "--quiet", 1, text);
    CHECK_RUN(s, "--quiet --batch 1", 1, text);
    CHECK_INT(command_int(c, "DBSIZE"), nkeys);
    CHECK_RUN(s, "--json --quiet", 1,
              "{\n  \"orphans\": [...\"key\": \"bf:{go}ne}:...\"bytes\": ...\"removed\": "
              "0,...\"not_shards\": 2,...}\n");

    snprintf(text, sizeof(text), "...removed\n...%zu orphans of ... bytes, %zu removed\n...",
             n0 + n5, n0 + n5);
    CHECK_RUN(s, "--remove --batch 3", 0, text);
    CHECK_INT(command_int(c, "DBSIZE"), nkeys - (long long)n0);
    CHECK_RUN(s, "--remove --quiet", 0, "...0 orphans of 0 bytes, 0 removed\n...");
    EXPECT(c, "\"value\"", "GET bf:{mine}:0123456789abcdef:0:0");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "renamed", "i", 0, NITEMS), NITEMS);
    EXPECT(c, "+OK", "SELECT 5");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "live", "i", 0, NITEMS), NITEMS);
}

/* The server's own word on a key, on which the script relies. */
TEST(owner) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    fill(c, "f", 100);
    const char *shard = cluster_shards_of(c, "f")[0];
    EXPECT(c, "+live", "BF.OWNER %s", shard);
    EXPECT(c, "+other", "BF.OWNER f");
    EXPECT(c, "+other", "BF.OWNER nothing");
    EXPECT(c, "+other", "BF.OWNER %s0", shard);
    EXPECT(c, "+OK", "RENAME f g");
    EXPECT(c, "+live", "BF.OWNER %s", shard);
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "DEL g");
    EXPECT(c, "+QUEUED", "BF.OWNER %s", shard);
    EXPECT(c, "*2 :1 +dying", "EXEC");
    /* The header tells one shard from another, whatever its name. */
    fill(c, "h", 5000);
    const char **shards = cluster_shards_of(c, "h");
    EXPECT(c, "+OK", "RENAME %s %s", shards[0], shards[1]);
    EXPECT(c, "+other", "BF.OWNER %s", shards[1]);
    EXPECT_ERROR(c, "ERR", "arguments", "BF.OWNER");
}

TEST(errors) {
    Server *s = server_start_with(NULL, NULL);
    CHECK_RUN(s, "", 2, "bforphans: 127.0.0.1:... has no shardbloom module, or an old one\n");
    CHECK_RUN(s, "--batch 0", 2, "...--batch must be...");
    CHECK_RUN(s, "--nonsense", 2, "usage: ...");
    CHECK_RUN(s, "--help", 0, "usage: ...exit status:...");
    server_stop(s, STOP_NOSAVE);
    CHECK_RUN(s, "", 2, "bforphans: no connection to 127.0.0.1:...: Connection refused\n");
}

/* ---- in a cluster: filters deleted while they move ---- */

struct move {
    Cluster *cluster;
    const char *name;
    const char **shards;
    int slot;
};

/* A filter on node 0 half of whose shards are on node 1 already, and a bystander. */
static bool begin(struct move *move) {
    move->cluster = cluster_start(3, true, NULL);
    if (!move->cluster) return false;
    Client *c = move->cluster->node[0]->client;
    move->name = cluster_name(move->cluster, "seen", 0, 5000);
    move->slot = cluster_slot(move->cluster, move->name);
    fill(c, move->name, NITEMS);
    move->shards = cluster_shards_of(c, move->name);
    fill(move->cluster->node[2]->client, cluster_name(move->cluster, "other", 11000, 16000), 100);
    cluster_open_slot(move->cluster, move->slot, 0, 1);
    const char *const half[] = {move->shards[0], move->shards[1], NULL};
    cluster_move_keys(move->cluster, 0, 1, half);
    return CHECK(cluster_count(move->shards) > 2);
}

static void check_nothing_left(const struct move *move) {
    for (int i = 0; i < 6; i++) CHECK_SHARDS(move->cluster->node[i], i % 3 == 2);
    CHECK_RUN(move->cluster->node[1], "--quiet", 0,
              "1 shards seen, 0 orphans of 0 bytes, 0 removed\n");
}

TEST(deleted_on_the_source_of_a_migration) {
    struct move move;
    REQUIRE(begin(&move));
    EXPECT(move.cluster->node[0]->client, ":1", "DEL %s", move.name);
    CHECK_RUN(move.cluster->node[0], "--remove", 2, "...0 orphans of ...slots are moving...");
    cluster_finish_slot(move.cluster, move.slot, 0, 1);
    Router *router = router_new(move.cluster);
    cluster_wait_sweepers(router);
    router_free(router);
    int status;
    CHECK(strstr(run(move.cluster->node[2], "--quiet", &status), move.shards[0]));
    CHECK_INT(status, 1);
    CHECK_RUN(move.cluster->node[2], "--remove", 0, "...removed\n");
    check_nothing_left(&move);
}

TEST(deleted_on_the_target_of_a_migration) {
    struct move move;
    REQUIRE(begin(&move));
    const char *const descriptor[] = {move.name, NULL};
    cluster_move_keys(move.cluster, 0, 1, descriptor);
    EXPECT(move.cluster->node[1]->client, "+OK", "ASKING");
    EXPECT(move.cluster->node[1]->client, ":1", "DEL %s", move.name);
    Router *router = router_new(move.cluster);
    cluster_wait_sweepers(router);
    router_free(router);
    CHECK_RUN(move.cluster->node[0], "--remove", 2, "...0 orphans of ...slots are moving...");
    cluster_finish_slot(move.cluster, move.slot, 0, 1);
    check_nothing_left(&move);
}
