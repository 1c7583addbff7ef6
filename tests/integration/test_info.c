/* INFO bf, and the settings: CONFIG GET, CONFIG SET, CONFIG REWRITE. */
#include "check.h"
#include "client.h"
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- INFO bf ---- */

#define CHECK_FIELD(s, field, value) CHECK_INT(server_info(s, field), value)

TEST(info_has_a_section_of_its_own) {
    Client *c = server_start(NULL)->client;
    EXPECT(c,
           "\"# bf...bf_filters:0...bf_shards:0...bf_bytes:0...bf_items:0...bf_adds:0..."
           "bf_items_added:0...bf_checks:0...bf_hits:0...bf_shards_lost:0..."
           "bf_sweeps_pending:0...bf_shards_removed:0...\"",
           "INFO bf");
    CHECK(!strstr(command_text(c, "INFO"), "bf_filters"));
    CHECK(strstr(command_text(c, "INFO everything"), "bf_filters") != NULL);
}

TEST(info_counts_what_is_asked_for) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT(c, ":0", "BF.ADD k a");
    EXPECT(c, "*3 :1 :1 :0", "BF.MADD k b c b");
    EXPECT(c, "*2 :0 :1", "BF.INSERT k ITEMS a d");
    CHECK_FIELD(s, "bf_adds", 7);
    CHECK_FIELD(s, "bf_items_added", 4);
    CHECK_FIELD(s, "bf_items", 4);
    EXPECT(c, ":1", "BF.EXISTS k a");
    EXPECT(c, ":0", "BF.EXISTS k zzz");
    EXPECT(c, "*3 :1 :1 :0", "BF.MEXISTS k a b zzz");
    EXPECT(c, "*2 :0 :0", "BF.MEXISTS nothing a b");
    CHECK_FIELD(s, "bf_checks", 7);
    CHECK_FIELD(s, "bf_hits", 3);
    /* Errors are neither. */
    EXPECT(c, "+OK", "SET string x");
    EXPECT(c, "-WRONGTYPE...", "BF.ADD string a");
    EXPECT(c, "-WRONGTYPE...", "BF.EXISTS string a");
    CHECK_FIELD(s, "bf_adds", 7);
    CHECK_FIELD(s, "bf_checks", 7);
    CHECK_FIELD(s, "bf_filters", 1);
}

/* The same numbers, asked of every filter by name. */
struct totals {
    long long filters, shards, bytes, items;
};

static struct totals sum_up(Client *c) {
    struct totals sum = {0};
    for (int db = 0; db < 16; db++) {
        EXPECT(c, "+OK", "SELECT %d", db);
        const redisReply *keys = command(c, "KEYS *");
        for (size_t i = 0; i < keys->elements; i++) {
            const char *name = keys->element[i]->str;
            const size_t length = keys->element[i]->len;
            if (strcmp(command(c, "TYPE %b", name, length)->str, "bf-shards") != 0) continue;
            const redisReply *shards = command(c, "BF.SHARDS %b", name, length);
            sum.filters++;
            sum.items += command_int(c, "BF.CARD %b", name, length);
            sum.shards += count_strings(shards);
            for (size_t j = 0; j < shards->elements; j++)
                sum.bytes += shards->element[j]->element[7]->integer;
        }
    }
    EXPECT(c, "+OK", "SELECT 0");
    return sum;
}

static void check_totals(Server *s, const char *when) {
    const struct totals sum = sum_up(s->client);
    const unsigned before = check_failures();
    CHECK_FIELD(s, "bf_filters", sum.filters);
    CHECK_FIELD(s, "bf_shards", sum.shards);
    CHECK_FIELD(s, "bf_bytes", sum.bytes);
    CHECK_FIELD(s, "bf_items", sum.items);
    if (check_failures() != before) CHECK_FAIL("%s", when);
}

static void copy_by_chunks(Client *c, const char *from, const char *to) {
    for (long long at = 0;;) {
        const redisReply *chunk = command(c, "BF.SCANDUMP %s %lld", from, at);
        REQUIRE(chunk->type == REDIS_REPLY_ARRAY && chunk->elements == 2);
        at = chunk->element[0]->integer;
        if (at == 0) return;
        command(c, "BF.LOADCHUNK %s %lld %b", to, at, chunk->element[1]->str,
                (size_t)chunk->element[1]->len);
    }
}

TEST(info_agrees_with_the_filters) {
    Server *s = server_start("appendonly yes\nappendfsync always");
    Client *c = s->client;
    check_totals(s, "empty");
    fixture_fill(c);
    check_totals(s, "filled");
    CHECK(server_info(s, "bf_shards") > 1);
    CHECK(server_info(s, "bf_items") > 1000);
    fixture_add(c, 0);
    check_totals(s, "added");
    EXPECT(c, ":1", "COPY sharded copied");
    check_totals(s, "copied");
    const redisReply *dump = command(c, "DUMP sharded");
    EXPECT(c, "+OK", "RESTORE restored 0 %b", dump->str, (size_t)dump->len);
    check_totals(s, "restored");
    copy_by_chunks(c, "sharded", "loaded");
    check_totals(s, "loaded");
    copy_by_chunks(c, "growing", "loaded");
    check_totals(s, "loading onto another filter refused");
    EXPECT(c, "+OK", "SET restored x");
    EXPECT(c, "+OK", "RENAME copied sharded");
    EXPECT(c, ":1", "DEL growing");
    check_totals(s, "overwritten, renamed onto, deleted");
    EXPECT(c, "+OK", "SWAPDB 0 5");
    check_totals(s, "databases swapped");
    EXPECT(c, "+OK", "DEBUG RELOAD");
    check_totals(s, "reloaded");
    server_restart(s, STOP_NOSAVE);
    check_totals(s, "restarted from the append-only file");
    EXPECT(c, "+...", "BGREWRITEAOF");
    REQUIRE(server_wait_info(s, "aof_rewrite_in_progress", "0"));
    REQUIRE(server_wait_info(s, "aof_rewrite_scheduled", "0"));
    server_restart(s, STOP_NOSAVE);
    check_totals(s, "restarted from a rewritten append-only file");
    EXPECT(c, "+OK", "FLUSHALL ASYNC");
    REQUIRE(server_wait_info(s, "bf_filters", "0"));
    check_totals(s, "flushed");
    CHECK_FIELD(s, "bf_shards", 0);
    CHECK_FIELD(s, "bf_items", 0);
    CHECK_FIELD(s, "bf_bytes", 0);
}

TEST(info_agrees_on_replicas) {
    Server *primary = server_start(NULL), *replica = server_start(NULL);
    fixture_fill(primary->client);
    server_follow(replica, primary);
    check_totals(replica, "after the first copy");
    CHECK_FIELD(replica, "bf_items_added", 0);
    fixture_add(primary->client, 0);
    EXPECT(primary->client, ":1", "DEL growing");
    EXPECT(primary->client, ":1", "BF.ADD another a");
    server_wait_for_replica(primary, replica);
    check_totals(replica, "after more");
    const char *fields[] = {"bf_filters", "bf_shards", "bf_bytes", "bf_items"};
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(server_info(replica, fields[i]), server_info(primary, fields[i]));
}

/* An append-only file repeats old commands; nobody asked for them in this life. */
TEST(work_is_counted_from_the_start_of_the_server) {
    Server *s = server_start("appendonly yes\nappendfsync always");
    EXPECT(s->client, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(s->client, "*3 :1 :1 :1", "BF.MADD k a b c");
    CHECK_FIELD(s, "bf_items_added", 3);
    server_restart(s, STOP_NOSAVE);
    CHECK_FIELD(s, "bf_items", 3);
    CHECK_FIELD(s, "bf_items_added", 0);
    CHECK_FIELD(s, "bf_adds", 0);
    EXPECT(s->client, "*2 :0 :1", "BF.MADD k a d");
    CHECK_FIELD(s, "bf_items_added", 1);
    CHECK_FIELD(s, "bf_adds", 2);
    CHECK_FIELD(s, "bf_items", 4);
}

TEST(lost_shards_are_counted_until_they_are_healed) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT(c, ":1", "BF.ADD l a");
    const char *shard = command(c, "BF.SHARDS k")->element[0]->element[1]->str;
    EXPECT(c, ":1", "DEL %s", shard);
    CHECK_FIELD(s, "bf_shards_lost", 0); /* nobody has looked */
    EXPECT(c, "-SHARDLOST...", "BF.EXISTS k a");
    EXPECT(c, "-SHARDLOST...", "BF.ADD k a");
    CHECK_FIELD(s, "bf_shards_lost", 1);
    EXPECT(c, ":1", "BF.HEAL k");
    CHECK_FIELD(s, "bf_shards_lost", 0);
    shard = command(c, "BF.SHARDS l")->element[0]->element[1]->str;
    EXPECT(c, "+OK", "SET %s rubbish", shard);
    EXPECT(c, "-SHARDLOST...", "BF.EXISTS l a");
    CHECK_FIELD(s, "bf_shards_lost", 1);
    CHECK_FIELD(s, "bf_shards", 2);
    EXPECT(c, ":1", "DEL l");
    CHECK_FIELD(s, "bf_shards_lost", 0);
    CHECK_FIELD(s, "bf_shards", 1);
}

TEST(sweeps_are_counted) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100000 SEED 1 SHARDSIZE 8192");
    command_batches(c, "BF.MADD", "k", "item", 0, 5000);
    const long long nshards = server_info(s, "bf_shards");
    CHECK(nshards > 5);
    EXPECT(c, ":1", "DEL k");
    REQUIRE(server_wait_info(s, "bf_sweeps_pending", "0"));
    CHECK_FIELD(s, "bf_shards_removed", nshards);
    EXPECT(c, ":0", "DBSIZE");
}

/* ---- settings ---- */

/* The settings as CONFIG GET shows them, one by one: their order is the server's affair. */
static void check_settings(Client *c, const char *error_rate, const char *initial_size,
                           const char *expansion, const char *shard_size) {
    const char *const settings[][2] = {{"bf.error-rate", error_rate},
                                       {"bf.initial-size", initial_size},
                                       {"bf.expansion", expansion},
                                       {"bf.shard-size", shard_size}};
    for (size_t i = 0; i < 4; i++) {
        char want[128];
        snprintf(want, sizeof(want), "*2 \"%s\" \"%s\"", settings[i][0], settings[i][1]);
        EXPECT(c, want, "CONFIG GET %s", settings[i][0]);
    }
}

TEST(config_get_shows_all_settings) {
    Client *c = server_start(NULL)->client;
    CHECK_INT((long long)command(c, "CONFIG GET bf.*")->elements, 8);
    check_settings(c, "0.01", "100", "2", "7340032");
    EXPECT(c, "+OK", "CONFIG SET bf.error-rate 1e-4 bf.shard-size 1mb");
    check_settings(c, "1e-4", "100", "2", "1048576");
}

/* Starts a server with the settings and the loadmodule line of the file that CONFIG REWRITE has
 * left. */
static Server *start_from_rewritten(Server *s) {
    char *file = server_read_file(s, "redis.conf", NULL), *kept = calloc(1, strlen(file) + 2);
    for (char *line = strtok(file, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "bf.", 3) != 0 && strncmp(line, "loadmodule", 10) != 0) continue;
        strcat(kept, line);
        strcat(kept, "\n");
    }
    Server *again = server_start_with(NULL, kept);
    free(file);
    free(kept);
    return again;
}

static void check_survives_rewrite(const char *module_args, const char *config, const char *set,
                                   const char *const want[4]) {
    Server *s = server_start_with(module_args, config);
    if (set) EXPECT(s->client, "+OK", set);
    check_settings(s->client, want[0], want[1], want[2], want[3]);
    EXPECT(s->client, "+OK", "CONFIG REWRITE");
    Server *again = start_from_rewritten(s);
    check_settings(again->client, want[0], want[1], want[2], want[3]);
    EXPECT(again->client, "+OK", "CONFIG REWRITE"); /* and once more, from there */
    again = start_from_rewritten(again);
    check_settings(again->client, want[0], want[1], want[2], want[3]);
}

TEST(rewritten_settings_are_read_back) {
    const char *const set[] = {"1e-5", "5000", "4", "65536"};
    check_survives_rewrite("", NULL,
                           "CONFIG SET bf.error-rate 1e-5 bf.initial-size 5000 bf.expansion 4 "
                           "bf.shard-size 64kb",
                           set);
    check_survives_rewrite(
        "", "bf.error-rate 1e-5\nbf.initial-size 5000\nbf.expansion 4\nbf.shard-size 64kb", NULL,
        set);
    const char *const untouched[] = {"0.01", "100", "2", "7340032"};
    check_survives_rewrite("", NULL, NULL, untouched);
}

TEST(rewritten_arguments_are_read_back) {
    const char *const arguments[] = {"0.001", "700", "3", "8192"};
    check_survives_rewrite("ERROR_RATE 0.001 INITIAL_SIZE 700 EXPANSION 3 SHARD_SIZE 8kb", NULL,
                           NULL, arguments);
    /* What was set since wins over the arguments, also when it is what would be the default without
     * them. */
    const char *const both[] = {"0.01", "100", "2", "7340032"};
    check_survives_rewrite("ERROR_RATE 0.001 INITIAL_SIZE 700 EXPANSION 3 SHARD_SIZE 8kb", NULL,
                           "CONFIG SET bf.error-rate 0.01 bf.initial-size 100 bf.expansion 2 "
                           "bf.shard-size 7mb",
                           both);
}
