/* The defaults for filters to come: module arguments, redis.conf, CONFIG SET. */
#include "check.h"
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

static void check_settings(Client *c, const char *error, const char *size, const char *expansion,
                           const char *shard) {
    const char *names[] = {"bf.error-rate", "bf.initial-size", "bf.expansion", "bf.shard-size"};
    const char *values[] = {error, size, expansion, shard};
    for (size_t i = 0; i < N(names); i++) {
        char want[128];
        snprintf(want, sizeof(want), "*2 \"%s\" \"%s\"", names[i], values[i]);
        EXPECT(c, want, "CONFIG GET %s", names[i]);
    }
}

/* What BF.ADD makes of them. The error rate and the shard size show in the plan's numbers, so a
 * filter made with the settings spelled out must look the same. */
static void check_effect(Client *c, const char *error, const char *size, const char *expansion,
                         const char *shard) {
    static int nfilters;
    int n = ++nfilters % 1000 + 1000; /* names of one length: the name is part of Size */
    EXPECT(c, ":1", "BF.ADD auto%d x", n);
    EXPECT(c, "+OK", "BF.RESERVE hand%d %s %s EXPANSION %s SHARDSIZE %s", n, error, size, expansion,
           shard);
    EXPECT(c, ":1", "BF.ADD hand%d x", n);
    CHECK_STR(command_text(c, "BF.INFO auto%d", n), command_text(c, "BF.INFO hand%d", n));
    EXPECT(c, "*1 :1", "BF.MADD madd%d x", n);
    CHECK_STR(command_text(c, "BF.INFO madd%d", n), command_text(c, "BF.INFO hand%d", n));
    EXPECT(c, "*1 :1", "BF.INSERT inse%d ITEMS x", n);
    CHECK_STR(command_text(c, "BF.INFO inse%d", n), command_text(c, "BF.INFO hand%d", n));
}

TEST(defaults) {
    Client *c = server_start(NULL)->client;
    check_settings(c, "0.01", "100", "2", "7340032");
    check_effect(c, "0.01", "100", "2", "7340032");
    EXPECT(c, "*8 ...", "CONFIG GET bf.*");
}

TEST(module_arguments) {
    Client *c =
        server_start_with("error-rate 0.0005 initial-size 100000 expansion 3 shard-size 64kb", NULL)
            ->client;
    check_settings(c, "0.0005", "100000", "3", "65536");
    check_effect(c, "0.0005", "100000", "3", "65536");
}

TEST(module_arguments_named_like_the_settings) {
    Client *c =
        server_start_with("bf.shard-size 65536 bf.expansion 1 bf.error-rate 1e-4", NULL)->client;
    check_settings(c, "1e-4", "100", "1", "65536");
    check_effect(c, "0.0001", "100", "1", "65536");
}

TEST(legacy_module_arguments) {
    Client *c = server_start_with("ERROR_RATE 0.002 INITIAL_SIZE 4000", NULL)->client;
    check_settings(c, "0.002", "4000", "2", "7340032");
    check_effect(c, "0.002", "4000", "2", "7340032");
    c = server_start_with("initial_size 5 error_rate 0.1", NULL)->client;
    check_settings(c, "0.1", "5", "2", "7340032");
    check_effect(c, "0.1", "5", "2", "7340032");
}

TEST(settings_in_redis_conf) {
    Client *c =
        server_start(
            "bf.error-rate 0.0005\nbf.initial-size 100000\nbf.expansion 3\nbf.shard-size 64kb")
            ->client;
    check_settings(c, "0.0005", "100000", "3", "65536");
    check_effect(c, "0.0005", "100000", "3", "65536");
}

/* The loadmodule line says what the default is; a setting of its own is more specific. */
TEST(redis_conf_overrides_module_arguments) {
    Client *c =
        server_start_with("ERROR_RATE 0.002 INITIAL_SIZE 4000", "bf.error-rate 0.0005")->client;
    check_settings(c, "0.0005", "4000", "2", "7340032");
    check_effect(c, "0.0005", "4000", "2", "7340032");
}

TEST(config_set_takes_effect_at_once) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, ":1", "BF.ADD before x");
    const char *before = command_text(c, "BF.INFO before");
    EXPECT(c, "+OK", "CONFIG SET bf.error-rate 0.00001");
    EXPECT(c, "+OK", "CONFIG SET bf.initial-size 12345");
    EXPECT(c, "+OK", "CONFIG SET bf.expansion 4");
    EXPECT(c, "+OK", "CONFIG SET bf.shard-size 8kb");
    check_settings(c, "0.00001", "12345", "4", "8192");
    check_effect(c, "0.00001", "12345", "4", "8192");
    CHECK_STR(command_text(c, "BF.INFO before"), before);
    EXPECT(c, "+OK",
           "CONFIG SET bf.error-rate 0.01 bf.initial-size 100 bf.expansion 2 bf.shard-size 7mb");
    check_settings(c, "0.01", "100", "2", "7340032");
    check_effect(c, "0.01", "100", "2", "7340032");
}

/* BF.RESERVE and BF.PLAN take from the settings what their arguments leave out. */
TEST(reserve_and_plan_use_the_settings_too) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "CONFIG SET bf.expansion 7 bf.shard-size 8kb");
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100000");
    EXPECT(c, "*1 :7", "BF.INFO k EXPANSION");
    CHECK_STR(command_text(c, "BF.PLAN 0.01 100000"),
              command_text(c, "BF.PLAN 0.01 100000 EXPANSION 7 SHARDSIZE 8192"));
    EXPECT(c, "+OK", "BF.RESERVE l 0.01 100000 EXPANSION 2");
    EXPECT(c, "*1 :2", "BF.INFO l EXPANSION");
    EXPECT(c, "+OK", "BF.RESERVE m 0.01 100000 NONSCALING");
    EXPECT(c, "*1 _", "BF.INFO m EXPANSION");
}

TEST(config_set_refuses_nonsense) {
    Client *c = server_start(NULL)->client;
    const char *names[] = {"bf.error-rate", "bf.initial-size", "bf.expansion", "bf.shard-size"};
    const char *junk[] = {
        "", "abc", "nan", "inf", "-1", "0x10", "5x5", "1e99", "99999999999999999999999"};
    for (size_t i = 0; i < N(names); i++)
        for (size_t j = 0; j < N(junk); j++)
            if (!EXPECT(c, "-ERR...", "CONFIG SET %s %s", names[i], junk[j]))
                CHECK_FAIL("CONFIG SET %s %s", names[i], junk[j]);
    EXPECT(c, "-ERR...", "CONFIG SET bf.error-rate 0");
    EXPECT(c, "-ERR...", "CONFIG SET bf.error-rate 1");
    EXPECT(c, "-ERR...", "CONFIG SET bf.initial-size 0");
    EXPECT(c, "-ERR...", "CONFIG SET bf.initial-size 1099511627777");
    EXPECT(c, "-ERR...", "CONFIG SET bf.shard-size 1");
    EXPECT(c, "-ERR...", "CONFIG SET bf.shard-size 1gb");
    check_settings(c, "0.01", "100", "2", "7340032");
    check_effect(c, "0.01", "100", "2", "7340032");
}

/* Each names what is wrong in the log. */
TEST(bad_module_arguments_refuse_to_load) {
    const struct {
        const char *arguments, *word;
    } bad[] = {
        {"WHATEVER 5", "WHATEVER"},
        {"ERROR_RATE", "ERROR_RATE"},
        {"INITIAL_SIZE 100 ERROR_RATE", "ERROR_RATE"},
        {"ERROR_RATE 0", "error rate"},
        {"ERROR_RATE 1", "error rate"},
        {"ERROR_RATE nan", "error rate"},
        {"ERROR_RATE 0x1p-4", "error rate"},
        {"error-rate 0.01x", "error rate"},
        {"INITIAL_SIZE 0", "initial-size"},
        {"INITIAL_SIZE -5", "initial-size"},
        {"INITIAL_SIZE 1e3", "initial-size"},
        {"initial-size 1099511627777", "initial-size"},
        {"expansion x", "expansion"},
        {"expansion 99999999999999999999", "expansion"},
        {"shard-size 1", "shard-size"},
        {"shard-size 1gb", "shard-size"},
        {"shard-size 5q", "shard-size"},
    };
    for (size_t i = 0; i < N(bad); i++) SERVER_REFUSES(bad[i].arguments, NULL, bad[i].word);
}

TEST(bad_settings_in_redis_conf_refuse_to_load) {
    SERVER_REFUSES("", "bf.error-rate 2", "error-rate");
    SERVER_REFUSES("", "bf.initial-size 0", "initial-size");
    SERVER_REFUSES("", "bf.shard-size 1", "shard-size");
    SERVER_REFUSES("", "bf.whatever 1", "aborting");
}

/* CONFIG REWRITE writes what differs from the defaults, and the next start reads it. */
TEST(config_rewrite) {
    Server *s = server_start_with("ERROR_RATE 0.002 INITIAL_SIZE 4000", NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "CONFIG SET bf.error-rate 0.0003 bf.expansion 5");
    EXPECT(c, "+OK", "CONFIG REWRITE");
    char *file = keep(server_read_file(s, "redis.conf", NULL));
    CHECK(strstr(file, "bf.error-rate 0.0003") || strstr(file, "bf.error-rate \"0.0003\""));
    CHECK(strstr(file, "bf.expansion 5") != NULL);
    CHECK(strstr(file, "INITIAL_SIZE 4000") || strstr(file, "bf.initial-size 4000"));
}

/* RedisBloom is called bf, and some servers come with it. Any module of that name will do here: a
 * copy of our own. */
TEST(another_module_called_bf_is_named_as_the_reason) {
    Server *s = server_start("enable-module-command yes");
    const char *module = getenv("MODULE");
    char line[1024];
    snprintf(line, sizeof(line), "cp '%s' '%s/other.so'",
             module && *module ? module : "./shardbloom.so", s->dir);
    REQUIRE(system(line) == 0);
    EXPECT(s->client, "-ERR...", "MODULE LOAD %s/other.so", s->dir);
    CHECK_LOGGED(s, "a module called bf is loaded already");
    CHECK_LOGGED(s, "RedisBloom, which has the same commands: remove its loadmodule line");
    CHECK(!server_logged(s, "this server has no"));
    EXPECT(s->client, ":1", "BF.ADD k a"); /* the first one goes on */
}
