/* scripts/bfcopy: filters from server to server, also from RedisBloom, for which a stand-in answers
 * from its dumps. */
#include "check.h"
#include "client.h"
#include "fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* Runs bfcopy between the servers at two ports; what it printed, errors included, is freed after
 * the test. */
static const char *run(int from, int to, const char *arguments, int *status) {
    char line[1024];
    snprintf(line, sizeof line,
             "env -u LD_PRELOAD timeout 60 scripts/bfcopy -p %d "
             "--to redis://127.0.0.1:%d %s 2>&1",
             from, to, arguments);
    FILE *pipe = popen(line, "r");
    char *output = NULL, buffer[4096];
    size_t length = 0;
    FILE *memory = open_memstream(&output, &length);
    for (size_t n; pipe && (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        fwrite(buffer, 1, n, memory);
    fclose(memory);
    const int ended = pipe ? pclose(pipe) : -1;
    *status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    return keep(output);
}

/* Checks its exit status and that its output has this text. */
#define RUN(from, to, arguments, want_status, want)                                                \
    check_run(from, to, arguments, want_status, want, __FILE__, __LINE__)
static void check_run(int from, int to, const char *arguments, int want_status, const char *want,
                      const char *file, int line) {
    int status;
    const char *output = run(from, to, arguments, &status);
    if (status != want_status || !strstr(output, want))
        check_fail(file, line, "bfcopy %s: status %d, expected %d and \"%s\":\n%s", arguments,
                   status, want_status, want, output);
    else
        check_that(true, "bfcopy", file, line);
}

static void check_equal(Client *a, const char *akey, Client *b, const char *bkey) {
    CHECK_STR(command_text(b, "DEBUG DIGEST-VALUE %s", bkey),
              command_text(a, "DEBUG DIGEST-VALUE %s", akey));
    CHECK_STR(command_text(b, "BF.INFO %s", bkey), command_text(a, "BF.INFO %s", akey));
}

/* No key of a copy that was not finished, and none of its shards. */
static void check_no_rest(Client *c) {
    EXPECT(c, "*0", "KEYS bfcopy:*");
    for (int i = 0; i < 6000; i++) {
        long long nshards = 0, nlisted = 0;
        const redisReply *keys = command(c, "KEYS *");
        for (size_t j = 0; j < keys->elements; j++) {
            const char *name = keys->element[j]->str;
            if (strncmp(name, "bf:{", 4) == 0) {
                nshards++;
            } else {
                const redisReply *shards =
                    command(c, "BF.SHARDS %b", name, (size_t)keys->element[j]->len);
                if (shards->type == REDIS_REPLY_ARRAY) nlisted += count_strings(shards);
            }
        }
        if (nshards == nlisted) return;
        pause_ms(10);
    }
    CHECK_FAIL("shards are left behind");
}

TEST(copies_filters_and_verifies_them) {
    Server *s1 = server_start(NULL), *s2 = server_start(NULL);
    Client *a = s1->client, *b = s2->client;
    fixture_fill(a);
    EXPECT(a, "+OK", "BF.RESERVE large 0.0001 10000000 SEED 1 SHARDSIZE 64mb NONSCALING");
    CHECK_INT(command_batches(a, "BF.MADD", "large", "i", 0, 5000), 5000);
    const char *keys[] = {"sharded", "growing", "full", "reserved", "default", "large"};
    for (size_t i = 0; i < N(keys); i++) {
        char want[64];
        snprintf(want, sizeof want, "%s: ", keys[i]);
        RUN(s1->port, s2->port, keys[i], 0, want);
        RUN(s1->port, s2->port, keys[i], 2, "exists at the target");
        check_equal(a, keys[i], b, keys[i]);
    }
    RUN(s1->port, s1->port, "growing --as other{tag}", 0, "verified");
    CHECK_STR(command_text(a, "DEBUG DIGEST-VALUE other{tag}"),
              command_text(a, "DEBUG DIGEST-VALUE growing"));
    check_no_rest(a);
    check_no_rest(b);
}

TEST(copies_what_matches_a_pattern) {
    Server *s1 = server_start(NULL), *s2 = server_start(NULL);
    Client *a = s1->client, *b = s2->client;
    for (int i = 0; i < 5; i++) EXPECT(a, "*1 :1", "BF.INSERT crawl:%d SEED 1 ITEMS item%d", i, i);
    EXPECT(a, ":1", "BF.ADD other x");
    EXPECT(a, "+OK", "SET crawl:string x");
    EXPECT(b, ":1", "BF.ADD crawl:3 mine");
    RUN(s1->port, s2->port, "'crawl:*'", 2, "4 copied, 1 failed");
    EXPECT(b, ":1", "BF.EXISTS crawl:3 mine");
    RUN(s1->port, s2->port, "'crawl:*' --replace", 0, "5 copied, 0 failed");
    EXPECT(b, "*2 :1 :0", "BF.MEXISTS crawl:3 item3 mine");
    for (int i = 0; i < 5; i++) EXPECT(b, ":1", "BF.EXISTS crawl:%d item%d", i, i);
    EXPECT(b, ":0", "EXISTS other crawl:string");
    RUN(s1->port, s2->port, "'crawl:*' --as one", 2, "--as is for one filter");
    RUN(s1->port, s2->port, "'nothing*'", 2, "no filter matches");
    /* A key whose name is a pattern is that key. */
    EXPECT(a, ":1", "BF.ADD [x]* a");
    RUN(s1->port, s2->port, "'[x]*'", 0, "[x]*: 1 items");
    check_no_rest(b);
}

TEST(says_what_it_cannot_do_and_changes_nothing) {
    Server *s1 = server_start(NULL), *s2 = server_start(NULL),
           *plain = server_start_with(NULL, NULL);
    Client *a = s1->client, *b = s2->client;
    EXPECT(a, ":1", "BF.ADD k a");
    EXPECT(a, "+OK", "SET string x");
    RUN(s1->port, s2->port, "missing", 2, "there is no filter missing");
    RUN(s1->port, s2->port, "string", 2, "string is not a filter");
    RUN(s1->port, plain->port, "k", 2, "has no shardbloom module, or an old one");
    RUN(s1->port, 1, "k", 2, "no connection to 127.0.0.1:1: Connection refused");
    RUN(s1->port, s2->port, "", 2, "usage");
    RUN(s1->port, s2->port, "--help", 0, "--replace");
    const redisReply *names = command(a, "KEYS bf:*");
    REQUIRE(names->elements == 1);
    EXPECT(a, ":1", "DEL %s", names->element[0]->str);
    EXPECT(b, "+OK", "SET k kept");
    RUN(s1->port, s2->port, "k --replace", 2, "SHARDLOST");
    EXPECT(b, "\"kept\"", "GET k");
    check_no_rest(b);
    EXPECT(plain->client, ":0", "DBSIZE");
}

TEST(keeps_the_time_to_live_and_removes_what_a_killed_run_left) {
    Server *s1 = server_start(NULL), *s2 = server_start(NULL);
    Client *a = s1->client, *b = s2->client;
    EXPECT(a, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(a, "*2 :1 :1", "BF.MADD k a b");
    EXPECT(a, ":1", "EXPIRE k 10000");
    const redisReply *header = command(a, "BF.SCANDUMP k 0");
    REQUIRE(header->elements == 2);
    EXPECT(b, "+OK", "BF.LOADCHUNK bfcopy:{k} %lld %b", header->element[0]->integer,
           header->element[1]->str, (size_t)header->element[1]->len);
    RUN(s1->port, s2->port, "k", 0, "k: 2 items");
    CHECK_RANGE((double)command_int(b, "TTL k"), 9000, 10000);
    EXPECT(b, "*3 :1 :1 :0", "BF.MEXISTS k a b c");
    check_no_rest(b);
}

/* The way from server to server that docs/recipes.md shows: copy, then merge. Twice, because more
 * may come. */
TEST(filters_of_two_servers_unite) {
    Server *east = server_start(NULL), *west = server_start(NULL);
    Client *e = east->client, *w = west->client;
    EXPECT(e, "+OK", "BF.RESERVE seen 0.0001 20000 SEED 5");
    EXPECT(w, "+OK", "BF.RESERVE seen 0.0001 20000 SEED 5");
    CHECK_INT(command_batches(w, "BF.MADD", "seen", "west", 0, 5000), 5000);
    for (int round = 0; round < 2; round++) {
        CHECK_INT(command_batches(e, "BF.MADD", "seen", "east", 3000 * round, 3000), 3000);
        RUN(east->port, west->port, "--as seen:east seen", 0, "");
        CHECK_RANGE((double)command_int(w, "BF.MERGE seen seen:east"), 7900 + 3000 * round,
                    8100 + 3000 * round);
        EXPECT(w, ":1", "DEL seen:east");
        CHECK_INT(command_batches(w, "BF.MEXISTS", "seen", "east", 0, 3000 * (round + 1)),
                  3000 * (round + 1));
        CHECK_INT(command_batches(w, "BF.MEXISTS", "seen", "west", 0, 5000), 5000);
    }
}

/* ---- from RedisBloom ---- */

struct dump {
    struct {
        long long iterator;
        size_t length;
        char bytes[1024];
    } chunks[16];
    int nchunks;
    const char *info; /* the reply to BF.INFO */
};

static bool read_dump(const char *name, struct dump *dump) {
    char path[128];
    snprintf(path, sizeof path, "tests/assets/redisbloom-%s.dump", name);
    FILE *file = fopen(path, "rb");
    if (!CHECK(file != NULL)) return false;
    unsigned char head[16]; /* iterator and length, little-endian */
    for (dump->nchunks = 0; fread(head, 1, 16, file) == 16; dump->nchunks++) {
        unsigned long long numbers[2] = {0, 0};
        for (int i = 0; i < 16; i++) numbers[i / 8] |= (unsigned long long)head[i] << (i % 8 * 8);
        dump->chunks[dump->nchunks].iterator = (long long)numbers[0];
        dump->chunks[dump->nchunks].length = (size_t)numbers[1];
        if (fread(dump->chunks[dump->nchunks].bytes, 1, numbers[1], file) != numbers[1]) break;
    }
    fclose(file);
    return CHECK(dump->nchunks > 1);
}

/* Reads the next command; its words end with NUL. Enough of the protocol for what bfcopy sends. */
static int read_command(FILE *in, char words[8][256]) {
    char line[64];
    if (!fgets(line, sizeof line, in) || line[0] != '*') return 0;
    const int n = atoi(line + 1);
    for (int i = 0; i < n && i < 8; i++) {
        if (!fgets(line, sizeof line, in)) return 0;
        const size_t length = (size_t)atoi(line + 1);
        if (length > 255 || fread(words[i], 1, length, in) != length || !fgets(line, 3, in))
            return 0;
        words[i][length] = '\0';
    }
    return n;
}

static void answer(FILE *out, const struct dump *dump, int n, char words[8][256]) {
    if (n == 3 && strcmp(words[0], "BF.SCANDUMP") == 0) {
        const long long iterator = atoll(words[2]);
        for (int i = 0; i < dump->nchunks; i++) {
            if (iterator != (i == 0 ? 0 : dump->chunks[i - 1].iterator)) continue;
            fprintf(out, "*2\r\n:%lld\r\n$%zu\r\n", dump->chunks[i].iterator,
                    dump->chunks[i].length);
            fwrite(dump->chunks[i].bytes, 1, dump->chunks[i].length, out);
            fputs("\r\n", out);
            return;
        }
        fputs("*2\r\n:0\r\n$0\r\n\r\n", out);
    } else if (strcmp(words[0], "BF.INFO") == 0) {
        fputs(dump->info, out);
    } else if (strcmp(words[0], "TYPE") == 0) {
        fputs("+MBbloom--\r\n", out);
    } else if (strcmp(words[0], "GETRANGE") == 0) {
        fputs("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", out);
    } else if (strcmp(words[0], "PTTL") == 0) {
        fputs(":-1\r\n", out);
    } else if (strcmp(words[0], "EXISTS") == 0) {
        fputs(":1\r\n", out);
    } else if (strcmp(words[0], "PING") == 0) {
        fputs("+PONG\r\n", out);
    } else {
        fprintf(out, "-ERR unknown command '%s'\r\n", words[0]);
    }
}

static pid_t stand_in;

static void stop_stand_in(void) {
    if (stand_in <= 0) return;
    kill(stand_in, SIGKILL);
    waitpid(stand_in, NULL, 0);
    stand_in = 0;
}

/* Starts a server that knows one filter, under any name; returns its port. */
static int start_stand_in(const struct dump *dump) {
    check_after_each(stop_stand_in);
    stop_stand_in();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (!CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, length) == 0 &&
               listen(listener, 8) == 0 &&
               getsockname(listener, (struct sockaddr *)&address, &length) == 0))
        return 1;
    stand_in = fork();
    if (stand_in == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            const int fd = accept(listener, NULL, NULL);
            FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
            char words[8][256];
            for (int n; in && out && (n = read_command(in, words)) > 0; fflush(out))
                answer(out, dump, n, words);
            if (in) fclose(in);
            if (out) fclose(out);
        }
    }
    close(listener);
    CHECK(stand_in > 0);
    return ntohs(address.sin_port);
}

#define INFO(capacity, layers, items)                                                              \
    "*10\r\n+Capacity\r\n:" capacity "\r\n+Size\r\n:700\r\n+Number of filters\r\n:" layers         \
    "\r\n+Number of items inserted\r\n:" items "\r\n+Expansion rate\r\n:2\r\n"

TEST(copies_filters_of_redisbloom) {
    Server *s = server_start_with("SHARD_SIZE 4096", NULL);
    struct dump dump = {.info = INFO("300", "4", "159")};
    REQUIRE(read_dump("growing", &dump));
    RUN(start_stand_in(&dump), s->port, "growing", 0, "growing: 159 items, 4 layers");
    CHECK_INT(command_batches(s->client, "BF.MEXISTS", "growing", "item:", 0, 150), 150);
    EXPECT(s->client, ":159", "BF.CARD growing");
    check_no_rest(s->client);
}

TEST(notices_a_source_that_lies) {
    Server *s = server_start(NULL);
    struct dump dump = {.info = INFO("300", "4", "160")}; /* one item more than the header says */
    REQUIRE(read_dump("growing", &dump));
    RUN(start_stand_in(&dump), s->port, "growing", 2, "the copy has 159 items, the source 160");
    dump.info = INFO("301", "4", "159");
    RUN(start_stand_in(&dump), s->port, "growing", 2, "capacity is 300, at the source 301");
    dump.info = INFO("300", "4", "159");
    dump.nchunks--; /* the last layer does not come */
    RUN(start_stand_in(&dump), s->port, "growing", 2, "HALFLOADED");
    EXPECT(s->client, ":0", "EXISTS growing");
    check_no_rest(s->client);
}

/* RedisBloom has added a layer since it gave the header: more data than was announced. */
TEST(begins_anew_when_redisbloom_has_grown) {
    Server *s = server_start(NULL);
    struct dump dump = {.info = INFO("300", "4", "159")};
    REQUIRE(read_dump("growing", &dump));
    dump.chunks[dump.nchunks] = dump.chunks[dump.nchunks - 1];
    dump.chunks[dump.nchunks].iterator += (long long)dump.chunks[dump.nchunks].length;
    dump.nchunks++;
    RUN(start_stand_in(&dump), s->port, "growing --attempts 2", 2,
        "grown during the copy; attempt 2 of 2");
    EXPECT(s->client, ":0", "EXISTS growing");
    check_no_rest(s->client);
}
