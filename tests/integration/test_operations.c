/* docs/operations.md: the users that it recommends, made by its own lines, can do what it says and
 * no more. */
#include "check.h"
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define PAGE "docs/operations.md"

/* Sets up the users of the page. Each line is one command. */
static void make_users(Client *c) {
    FILE *page = fopen(PAGE, "r");
    char *line = NULL;
    size_t room = 0;
    int nusers = 0;
    REQUIRE(page != NULL);
    for (ssize_t n; (n = getline(&line, &room, page)) > 0;) {
        if (strncmp(line, "    ACL SETUSER ", 16)) continue;
        const char *argv[128];
        int argc = 0;
        char *rest = NULL;
        for (char *word = strtok_r(line, " \n", &rest); word && argc < 128;
             word = strtok_r(NULL, " \n", &rest))
            argv[argc++] = word;
        CHECK_STR(reply_text(command_argv(c, argc, argv, NULL)), "+OK");
        nusers++;
    }
    CHECK_INT(nusers, 3);
    free(line);
    fclose(page);
}

static Client *log_in(Server *s, const char *name, const char *password) {
    Client *c = client_new(s);
    EXPECT(c, "+OK", "AUTH %s %s", name, password);
    return c;
}

static Server *start_with_users(void) {
    Server *s = server_start(NULL);
    make_users(s->client);
    EXPECT(s->client, "+OK", "SET other data");
    return s;
}

/* What nobody of them may do. */
static void check_kept_out(Client *c) {
    EXPECT(c, "-NOPERM...", "GET other");
    EXPECT(c, "-NOPERM...", "DEL other");
    EXPECT(c, "-NOPERM...", "BF.ADD other a");
    EXPECT(c, "-NOPERM...", "BF.EXISTS other a");
    EXPECT(c, "-NOPERM...", "KEYS *");
    EXPECT(c, "-NOPERM...", "FLUSHALL");
    EXPECT(c, "-NOPERM...", "CONFIG SET maxmemory 1");
    EXPECT(c, "-NOPERM...", "CONFIG GET *");
    EXPECT(c, "-NOPERM...", "ACL SETUSER me +@all");
    EXPECT(c, "-NOPERM...", "DEBUG SLEEP 0");
    EXPECT(c, "-NOPERM...", "SHUTDOWN");
    EXPECT(c, "-NOPERM...", "REPLICAOF NO ONE");
    EXPECT(c, "-NOPERM...", "CLIENT KILL TYPE normal");
    EXPECT(c, "-NOPERM...", "RESTORE seen:x 0 payload");
    EXPECT(c, "+PONG", "PING");
}

TEST(crawler) {
    Server *s = start_with_users();
    Client *c = log_in(s, "crawler", "crawler-password");
    EXPECT(c, "+OK", "BF.RESERVE seen:a 0.001 10000");
    EXPECT(c, ":1", "BF.ADD seen:a x");
    EXPECT(c, "*2 :0 :1", "BF.MADD seen:a x y");
    EXPECT(c, "*1 :1", "BF.INSERT seen:b CAPACITY 1000 ITEMS z");
    EXPECT(c, ":1", "BF.EXISTS seen:a x");
    EXPECT(c, "*2 :1 :0", "BF.MEXISTS seen:a y absent");
    EXPECT(c, ":2", "BF.CARD seen:a");
    EXPECT(c, "*10...", "BF.INFO seen:a");
    check_kept_out(c);
    EXPECT(c, "-NOPERM...", "DEL seen:a");
    EXPECT(c, "-NOPERM...", "BF.HEAL seen:a");
    EXPECT(c, "-NOPERM...", "BF.SHARDS seen:a");
    EXPECT(c, "-NOPERM...", "BF.DESCRIPTOR seen:a");
    EXPECT(c, "-NOPERM...", "BF.SCANDUMP seen:a 0");
    EXPECT(c, "-NOPERM...", "BF.LOADCHUNK seen:c 1 x");
}

TEST(reader) {
    Server *s = start_with_users();
    EXPECT(s->client, ":1", "BF.ADD seen:a x");
    Client *c = log_in(s, "reader", "reader-password");
    EXPECT(c, ":1", "BF.EXISTS seen:a x");
    EXPECT(c, "*2 :1 :0", "BF.MEXISTS seen:a x absent");
    EXPECT(c, ":1", "BF.CARD seen:a");
    EXPECT(c, "*10...", "BF.INFO seen:a");
    check_kept_out(c);
    EXPECT(c, "-NOPERM...", "BF.ADD seen:a y");
    EXPECT(c, "-NOPERM...", "BF.MADD seen:a y");
    EXPECT(c, "-NOPERM...", "BF.INSERT seen:a ITEMS y");
    EXPECT(c, "-NOPERM...", "BF.RESERVE seen:b 0.01 100");
    /* "a writing command added by mistake is refused" */
    EXPECT(s->client, "+OK", "ACL SETUSER reader +bf.add");
    EXPECT(c, "-NOPERM...", "BF.ADD seen:a y");
    EXPECT(s->client, ":1", "BF.CARD seen:a");
}

/* The administrator has every command that the module registers, but for those that are refused to
 * all clients, which are the ones with the flag "admin". */
TEST(admin_has_every_command) {
    Server *s = start_with_users();
    EXPECT(s->client, ":2", "ACL DELUSER crawler reader");
    const char *rules = command_text(s->client, "ACL LIST");
    const redisReply *names = command(s->client, "COMMAND LIST FILTERBY MODULE bf");
    CHECK(names->elements > 15);
    for (size_t i = 0; i < names->elements; i++) {
        const char *name = names->element[i]->str;
        char given[64], last[64];
        snprintf(given, sizeof given, "+%s ", name);
        snprintf(last, sizeof last, "+%s\"", name);
        const char *info = command_text(s->client, "COMMAND INFO %s", name);
        const bool is_given = strstr(rules, given) || strstr(rules, last);
        if (is_given == (strstr(info, "+admin") != NULL))
            CHECK_FAIL("%s is %s " PAGE, name, is_given ? "given by" : "missing in");
    }
}

TEST(admin_commands) {
    Server *s = start_with_users();
    Client *c = log_in(s, "bloom-admin", "admin-password");
    EXPECT(c, "+OK", "BF.RESERVE seen:a 0.001 10000");
    EXPECT(c, "*3 :1 :1 :1", "BF.MADD seen:a x y z");
    const redisReply *shards = command(c, "BF.SHARDS seen:a");
    REQUIRE(shards->elements > 0 && shards->element[0]->elements > 1);
    const char *shard = shards->element[0]->element[1]->str;
    EXPECT(c, "+live", "BF.OWNER %s", shard);
    EXPECT(c, ":1", "DEL %s", shard);
    EXPECT(c, "-SHARDLOST...", "BF.EXISTS seen:a x");
    EXPECT(c, ":1", "BF.HEAL seen:a");
    EXPECT(c, "\"BFD...", "BF.DESCRIPTOR seen:a");
    EXPECT(c, "*2...", "BF.SCANDUMP seen:a 0");
    EXPECT(c, "*...", "BF.PLAN 0.001 10000");
    EXPECT(c, "...bf_filters:1...", "INFO bf");
    EXPECT(c, "+bf-shards", "TYPE seen:a");
    EXPECT(c, ":1", "COPY seen:a seen:b");
    EXPECT(c, "+OK", "RENAME seen:b seen:c");
    EXPECT(c, ":1", "EXPIRE seen:c 1000");
    EXPECT(c, ":1", "UNLINK seen:c");
    check_kept_out(c);
    EXPECT(c, "-NOPERM...", "RENAME other seen:d");
    EXPECT(c, "-NOPERM...", "COPY other seen:d");
    EXPECT(c, "-NOPERM...", "GETRANGE other 0 -1");
    EXPECT_ERROR(c, "ERR", "", "EVAL %s 1 seen:a", "return redis.call('GETRANGE', 'other', 0, -1)");
    EXPECT(s->client, "\"data\"", "GET other");
}

/* Runs a tool as the administrator and checks its exit status and that it prints this text. */
static void check_tool(Server *s, const char *arguments, int want_status, const char *want) {
    char line[512], buffer[4096];
    snprintf(line, sizeof line,
             "env -u LD_PRELOAD REDISCLI_AUTH=admin-password timeout 60 scripts/%s --user "
             "bloom-admin -p %d 2>&1",
             arguments, s->port);
    FILE *pipe = popen(line, "r");
    REQUIRE(pipe != NULL);
    const size_t n = fread(buffer, 1, sizeof buffer - 1, pipe);
    buffer[n] = '\0';
    const int ended = pclose(pipe);
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != want_status || !strstr(buffer, want))
        CHECK_FAIL("%s: status %d, expected %d and \"%s\":\n%s", line, WEXITSTATUS(ended),
                   want_status, want, buffer);
    else
        CHECK(true);
}

TEST(admin_runs_the_tools) {
    Server *s = start_with_users();
    Client *c = log_in(s, "bloom-admin", "admin-password");
    EXPECT(c, "*2 :1 :1", "BF.MADD seen:a x y");
    check_tool(s, "bfstat --once", 0, "seen:a");
    check_tool(s, "bfstat --prometheus", 0,
               "shardbloom_filter_items{db=\"0\",filter=\"seen:a\"} 2");
    check_tool(s, "bforphans", 0, "0 orphans");
    check_tool(s, "bfread seen:a x", 0, "1");
    char arguments[256];
    snprintf(arguments, sizeof arguments,
             "bfcopy seen:a --as seen:copy --to redis://bloom-admin:admin-password@127.0.0.1:%d",
             s->port);
    check_tool(s, arguments, 0, "2 items");
    EXPECT(s->client, ":2", "BF.CARD seen:copy");
    /* an orphan: a shard that comes back when its filter is gone */
    const redisReply *shards = command(c, "BF.SHARDS seen:a");
    REQUIRE(shards->elements > 0 && shards->element[0]->elements > 1);
    const char *shard = shards->element[0]->element[1]->str;
    EXPECT(s->client, ":1", "COPY %s kept", shard);
    EXPECT(c, ":1", "UNLINK seen:a");
    server_wait_info(s, "bf_sweeps_pending", "0");
    EXPECT(s->client, "+OK", "RENAME kept %s", shard);
    check_tool(s, "bforphans --remove", 0, "1 removed");
    EXPECT(s->client, ":0", "EXISTS %s", shard);
}

/* examples/shardbloom.conf shows every setting with its default, commented out. */
TEST(sample_configuration) {
    Server *s = server_start_with("", NULL);
    FILE *conf = fopen("examples/shardbloom.conf", "r");
    char line[256], name[64], value[64];
    int nsettings = 0;
    REQUIRE(conf != NULL);
    while (fgets(line, sizeof line, conf)) {
        if (strncmp(line, "# bf.", 5) || sscanf(line, "# %63s %63s", name, value) != 2) continue;
        const char *before = command_text(s->client, "CONFIG GET %s", name);
        EXPECT(s->client, "+OK", "CONFIG SET %s %s", name, value);
        CHECK_STR(command_text(s->client, "CONFIG GET %s", name), before);
        nsettings++;
    }
    fclose(conf);
    CHECK_INT(command(s->client, "CONFIG GET bf.*")->elements, 2 * nsettings);
}
