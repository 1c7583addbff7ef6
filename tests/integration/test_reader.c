/* scripts/bfread, a reader of the format that shares no code with the module, must answer as the
 * module does. */
#include "check.h"
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Runs the reader with these arguments, after the port of the server (0: none), and items on its
 * standard input, one per line. Returns what it printed, errors included. */
static const char *run_reader(int port, const char *arguments, const char *lines, int *status) {
    char path[512], line[1024];
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/bfread-items.XXXXXX", tmp ? tmp : "/tmp");
    const int fd = mkstemp(path);
    *status = -1;
    if (!CHECK(fd >= 0)) return "";
    CHECK(write(fd, lines, strlen(lines)) == (ssize_t)strlen(lines));
    close(fd);
    snprintf(line, sizeof line, "env -u LD_PRELOAD timeout 60 scripts/bfread --port %d %s <%s 2>&1",
             port, arguments, path);
    FILE *pipe = popen(line, "r");
    char *output = NULL, buffer[4096];
    size_t length = 0;
    FILE *memory = open_memstream(&output, &length);
    for (size_t n; pipe && (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        fwrite(buffer, 1, n, memory);
    fclose(memory);
    const int ended = pipe ? pclose(pipe) : -1;
    *status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    unlink(path);
    return keep(output);
}

/* Asks module and reader for the items prefix<0> … prefix<n-1> and compares answer by answer. */
static void check_same_answers(Client *c, const char *key, const char *prefix, int n,
                               int at_least) {
    char *lines = NULL;
    size_t length;
    FILE *memory = open_memstream(&lines, &length);
    for (int i = 0; i < n; i++) fprintf(memory, "%s%d\n", prefix, i);
    fclose(memory);
    keep(lines);
    int status, nfound = 0;
    const char *answers = run_reader(c->server->port, key, lines, &status);
    if (!CHECK_INT(status, 0) || !CHECK_INT((long long)strlen(answers), 2 * n)) {
        CHECK_FAIL("bfread %s: %.300s", key, answers);
        return;
    }
    for (int i = 0; i < n; i++) {
        const int module = (int)command_int(c, "BF.EXISTS %s %s%d", key, prefix, i);
        if (!CHECK_INT(answers[2 * i] - '0', module)) CHECK_FAIL("%s%d in %s", prefix, i, key);
        nfound += module;
    }
    CHECK_RANGE(nfound, at_least, n - n / 4); /* both answers must have been seen */
}

TEST(reader_agrees_on_several_shards) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE sharded 0.01 20000 NONSCALING SHARDSIZE 4kb SEED 1");
    CHECK(command_batches(c, "BF.MADD", "sharded", "s", 0, 1000) > 900);
    CHECK(command(c, "BF.SHARDS sharded")->elements > 5);
    check_same_answers(c, "sharded", "s", 2000, 500);
}

TEST(reader_agrees_on_grown_filters) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE grown 0.2 10 SEED 1");
    CHECK(command_batches(c, "BF.MADD", "grown", "g", 0, 1000) > 700);
    CHECK(command_int(c, "BF.CARD grown") > 700);
    /* About 200 false positives, and they must be the same ones. */
    check_same_answers(c, "grown", "g", 2000, 500);
    /* A layer more whose shards do not exist yet, wide blocks. */
    EXPECT(c, "+OK", "BF.RESERVE wide 1e-12 300 EXPANSION 1 SEED 18446744073709551615");
    CHECK_INT(command_batches(c, "BF.MADD", "wide", "w", 0, 1000), 1000);
    check_same_answers(c, "wide", "w", 2000, 500);
    EXPECT(c, "+OK", "BF.RESERVE large 0.0001 300000000 SEED 5");
    EXPECT(c, "*2 :1 :1", "BF.MADD large l0 l1");
    check_same_answers(c, "large", "l", 4, 1);
}

TEST(reader_agrees_on_binary_items) {
    Client *c = server_start(NULL)->client;
    int status;
    EXPECT(c, "+OK", "BF.RESERVE binary 0.01 100 SEED 1");
    EXPECT(c, "*4 :1 :1 :1 :1", "BF.MADD binary %b %b %b %b", "", (size_t)0, "\0", (size_t)1,
           "\r\n\xff", (size_t)3, "\0\0", (size_t)2);
    CHECK_STR(
        run_reader(c->server->port, "--hex binary", "\n00\n0d0aff\n0000\n000000\nff\n", &status),
        "1\n1\n1\n1\n0\n0\n");
    CHECK_INT(status, 0);
    EXPECT(c, "*6 :1 :1 :1 :1 :0 :0", "BF.MEXISTS binary %b %b %b %b %b %b", "", (size_t)0, "\0",
           (size_t)1, "\r\n\xff", (size_t)3, "\0\0", (size_t)2, "\0\0\0", (size_t)3, "\xff",
           (size_t)1);
    CHECK_STR(run_reader(c->server->port, "binary '' x", "", &status), "1\n0\n");
    /* A renamed filter keeps the names of its shards; another database is another place. */
    EXPECT(c, "+OK", "RENAME binary renamed");
    CHECK_STR(run_reader(c->server->port, "renamed '' x", "", &status), "1\n0\n");
    EXPECT(c, "+OK", "SELECT 3");
    EXPECT(c, "*1 :1", "BF.INSERT {tag}name SEED 1 ITEMS item");
    CHECK_STR(run_reader(c->server->port, "--db 3 '{tag}name' item x", "", &status), "1\n0\n");
    CHECK_INT(status, 0);
}

/* Gives the chunks of a dump (tests/assets/README.md) to BF.LOADCHUNK, at most so many. */
static void load_dump(Client *c, const char *key, const char *path, int max) {
    FILE *file = fopen(path, "rb");
    uint64_t head[2]; /* iterator and length, little-endian */
    if (!CHECK(file != NULL)) return;
    for (int i = 0; i < max && fread(head, sizeof head, 1, file) == 1; i++) {
        char *bytes = keep(malloc(head[1] + 1));
        CHECK(fread(bytes, 1, head[1], file) == head[1]);
        EXPECT(c, "+OK", "BF.LOADCHUNK %s %lld %b", key, (long long)head[0], bytes,
               (size_t)head[1]);
    }
    fclose(file);
}

TEST(reader_agrees_on_filters_from_redisbloom) {
    static const char *const dumps[] = {"growing", "nonscaling", "power-of-two", "hash32",
                                        "hash32-unrounded"};
    Client *c = server_start("bf.shard-size 4096")->client;
    int status;
    for (size_t i = 0; i < sizeof dumps / sizeof *dumps; i++) {
        char path[128];
        snprintf(path, sizeof path, "tests/assets/redisbloom-%s.dump", dumps[i]);
        load_dump(c, dumps[i], path, 1000);
        check_same_answers(c, dumps[i], "item:", 4000, 20);
        check_same_answers(c, dumps[i], "other:", 1000, 1);
    }
    /* A layer of our own upon RedisBloom's. */
    CHECK(command_batches(c, "BF.MADD", "growing", "more", 0, 1000) > 900);
    check_same_answers(c, "growing", "more", 2000, 900);
    load_dump(c, "half", "tests/assets/redisbloom-growing.dump", 1);
    CHECK(strstr(run_reader(c->server->port, "half x", "", &status), "is half loaded") != NULL);
    CHECK_INT(status, 2);
}

TEST(reader_reads_files) {
    Server *s = server_start(NULL);
    char arguments[512];
    int status;
    EXPECT(s->client, "+OK", "BF.RESERVE k 0.001 20 SEED 1 SHARDSIZE 4kb");
    CHECK(command_batches(s->client, "BF.MADD", "k", "i", 0, 5000) > 4900);
    snprintf(arguments, sizeof arguments, "--save %s/files k", s->dir);
    CHECK_STR(run_reader(s->port, arguments, "", &status), "");
    CHECK_INT(status, 0);
    EXPECT(s->client, "+OK", "FLUSHALL");
    snprintf(arguments, sizeof arguments, "--load %s/files", s->dir);
    CHECK_STR(run_reader(0, arguments, "i0\ni4998\nunknown\n", &status), "1\n1\n0\n");
    CHECK_INT(status, 0);
    snprintf(arguments, sizeof arguments, "--load %s/files --info", s->dir);
    CHECK(strstr(run_reader(0, arguments, "", &status), "error rate 0.001, expansion 2") != NULL);
}

/* Never a silent "no". */
TEST(reader_reports_what_it_cannot_answer) {
    Client *c = server_start(NULL)->client;
    int status;
    CHECK(strstr(run_reader(c->server->port, "nothing x", "", &status),
                 "there is no filter nothing") != NULL);
    CHECK_INT(status, 2);
    EXPECT(c, ":1", "BF.ADD k x");
    const redisReply *shards = command(c, "BF.SHARDS k");
    REQUIRE(shards->elements == 1);
    const char *name = shards->element[0]->element[1]->str;
    EXPECT(c, ":...", "SETRANGE %s 54 x", name);
    CHECK(strstr(run_reader(c->server->port, "k x", "", &status), "was overwritten or damaged") !=
          NULL);
    CHECK_INT(status, 2);
    EXPECT(c, ":1", "DEL %s", name);
    CHECK(strstr(run_reader(c->server->port, "k x", "", &status), "is missing") != NULL);
    CHECK_INT(status, 2);
    EXPECT(c, "+OK", "SET string value");
    CHECK(strstr(run_reader(c->server->port, "string x", "", &status), "string is not a filter") !=
          NULL);
    CHECK_INT(status, 2);
    CHECK(strstr(run_reader(1, "k x", "", &status), "no connection to 127.0.0.1:1") != NULL);
    CHECK_INT(status, 2);
    run_reader(c->server->port, "", "", &status);
    CHECK_INT(status, 2);
    CHECK(strstr(run_reader(c->server->port, "--help", "", &status),
                 "BF.DESCRIPTOR and GETRANGE") != NULL);
    CHECK_INT(status, 0);
}

/* Slices that are over don't count, by the reader's own clock: a window of three decades holds what
 * was added now, and not what was added in 1970. */
TEST(reader_agrees_on_windows) {
    const uint64_t now_ms = (uint64_t)time(NULL) * 1000;
    server_clocks_begin_at(1000);
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE window 0.01 100 WINDOW 800000000 SLICES 8 SEED 1");
    CHECK(command_batches(c, "BF.MADD", "window", "old", 0, 300) > 280);
    server_set_clock(s, now_ms - 300000000000); /* dropped, two slices follow */
    CHECK(command_batches(c, "BF.MADD", "window", "w", 0, 300) > 280);
    server_set_clock(s, now_ms);
    CHECK(command_batches(c, "BF.MADD", "window", "w", 300, 500) > 480);
    check_same_answers(c, "window", "w", 1600, 700);
    for (int i = 4; i > 0; i--) {
        server_set_clock(s, now_ms - (uint64_t)i * 100000000000);
        if (i == 4) EXPECT(c, "+OK", "BF.RESERVE pairs 0.01 2000 WINDOW 800000000 SLICES 8 SEED 2");
        CHECK(command_batches(c, "BF.MADD", "pairs", "w", 200 * i, 200) > 190);
    }
    EXPECT(c, "*1 :4", "BF.INFO pairs FILTERS");
    CHECK_INT(count_strings(command(c, "BF.SHARDS pairs")), 2); /* two slices in each */
    server_set_clock(s, now_ms);
    check_same_answers(c, "pairs", "w", 1600, 700);
    server_set_clock(s, 1000);
    EXPECT(c, "*1 :1", "BF.INSERT past WINDOW 1000 SEED 1 ITEMS a");
    int status;
    EXPECT(c, ":1", "BF.EXISTS past a");
    CHECK_STR(run_reader(s->port, "past a", "", &status), "0\n");
    const char *info = run_reader(s->port, "--info past", "", &status);
    CHECK(strstr(info, "window of 1000 seconds") && strstr(info, ", over"));
}
