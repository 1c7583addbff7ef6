/* Crashes: the server is killed at a random moment while items are added, filters grow, shards and
 * whole filters are made, the append-only file is rewritten and snapshots are taken. Whatever was
 * answered before must be there after the restart. In every third round the replica takes over
 * instead, and what it had confirmed must be there.
 *
 * Three rounds; `make crashtest ROUNDS=n` runs n. */
#include "check.h"
#include "client.h"
#include "snapshot.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Windows of 32 pieces, all of which a round lasts; one passes every fifty pipelines. */
#define WINDOW   "WINDOW 1000000000 SLICES 32"
#define PIECE_MS 31250000000ull

/* Two of the filters can be united. */
enum { NFILTERS = 9, ONE = 4, OTHER = 6, MAX_ITEMS = 200000, MAX_PIPELINE = 12, MAX_BATCH = 40 };

/* What was sent to a filter, and what of it was answered. Items are numbered. */
typedef struct {
    char key[32];
    int nsent;
    int nanswered;
    bool answered[MAX_ITEMS];
} Sent;

static Sent sent[NFILTERS];
static unsigned nrewrites, nsnapshots, npromotions, nunions;

static unsigned draw(unsigned below) {
    return (unsigned)random() % below;
}

static unsigned rounds(void) {
    const char *n = getenv("ROUNDS");
    return n && *n ? (unsigned)atoi(n) : 3;
}

/* ---- the writer ---- */

/* Items of one command that is under way. */
typedef struct {
    Sent *to;
    int first;
    int n;
} Flight;

static Flight send_batch(redisContext *redis) {
    static char items[MAX_BATCH][32];
    const char *argv[MAX_BATCH + 2];
    Flight flight = {.to = &sent[draw(NFILTERS)], .n = 1 + (int)draw(draw(3) ? 3 : MAX_BATCH)};
    flight.first = flight.to->nsent;
    if (flight.first + flight.n > MAX_ITEMS) flight.n = 0;
    argv[0] = "BF.MADD";
    argv[1] = flight.to->key;
    for (int i = 0; i < flight.n; i++) {
        snprintf(items[i], sizeof items[i], "i%d", flight.first + i);
        argv[i + 2] = items[i];
    }
    if (flight.n > 0) redisAppendCommandArgv(redis, flight.n + 2, argv, NULL);
    flight.to->nsent += flight.n;
    return flight;
}

static void note_answer(const Flight *flight) {
    for (int i = 0; i < flight->n; i++) flight->to->answered[flight->first + i] = true;
    flight->to->nanswered += flight->n;
}

/* A reply, or false when the server is gone. */
static bool get_reply(redisContext *redis, long long *number) {
    redisReply *r = NULL;
    if (redisGetReply(redis, (void **)&r) != REDIS_OK || !r) return false;
    if (r->type == REDIS_REPLY_ERROR) CHECK_FAIL("the writer got %s", r->str);
    if (number) *number = r->type == REDIS_REPLY_INTEGER ? r->integer : 0;
    freeReplyObject(r);
    return true;
}

/* One pipeline of batches. With `confirmed`, they count as answered only when a replica has
 * them. */
static bool write_some(Server *s, redisContext *redis, bool confirmed) {
    Flight flights[MAX_PIPELINE];
    const int n = 1 + (int)draw(MAX_PIPELINE);
    long long nreplicas = 1;
    int nsent = 0, ndone = 0;
    for (int i = 0; i < n; i++) {
        flights[nsent] = send_batch(redis);
        nsent += flights[nsent].n > 0;
    }
    server_set_clock(s, s->clock_ms + PIECE_MS / 50);
    if (confirmed) redisAppendCommand(redis, "WAIT 1 5000");
    bool there = true;
    while (ndone < nsent && (there = get_reply(redis, NULL))) ndone++;
    if (there && confirmed) there = get_reply(redis, &nreplicas);
    if (confirmed && (!there || nreplicas < 1)) return there;
    for (int i = 0; i < ndone; i++) note_answer(&flights[i]);
    return there;
}

/* A union of two filters, which may or may not come to its end. */
static bool unite(redisContext *redis) {
    redisReply *r = redisCommand(redis, "BF.MERGE union %s %s", sent[ONE].key, sent[OTHER].key);
    if (!r) return false;
    if (r->type == REDIS_REPLY_ERROR) CHECK_FAIL("BF.MERGE answered %s", r->str);
    freeReplyObject(r);
    nunions++;
    return true;
}

static bool disturb(redisContext *redis) {
    const bool rewrite = draw(2);
    if (draw(3) == 0) return unite(redis);
    redisReply *r = redisCommand(redis, rewrite ? "BGREWRITEAOF" : "BGSAVE SCHEDULE");
    if (!r) return false;
    nrewrites += rewrite;
    nsnapshots += !rewrite;
    freeReplyObject(r);
    return true;
}

/* Writes until the server is killed. */
static void write_until_killed(Server *s, redisContext *redis, bool confirmed) {
    const time_t deadline = time(NULL) + 120;
    bool there = true;
    while (there && time(NULL) < deadline)
        there = draw(12) ? write_some(s, redis, confirmed) : disturb(redis);
    CHECK(!there); /* the killer came in time */
}

static pid_t kill_later(pid_t victim, unsigned ms) {
    const pid_t killer = fork();
    if (killer != 0) return killer;
    pause_ms(ms);
    kill(victim, SIGKILL);
    _exit(0);
}

/* ---- rounds ---- */

/* The filter has everything that was answered to this one. */
static void check_filter(Server *s, const char *key, const Sent *to) {
    unsigned nlost = 0;
    for (int i = 0; i < to->nsent; i++) {
        if (!to->answered[i]) continue;
        redisReply *r = redisCommand(s->client->redis, "BF.EXISTS %s i%d", key, i);
        const bool found = r && r->type == REDIS_REPLY_INTEGER && r->integer == 1;
        if (!found && nlost++ == 0)
            CHECK_FAIL("%s lost i%d: %s", key, i, r && r->str ? r->str : "0");
        if (r) freeReplyObject(r);
        if (!s->client->redis) return;
    }
    CHECK_UINT(nlost, 0);
}

static void check_answered(Server *s) {
    for (int f = 0; f < NFILTERS; f++) check_filter(s, sent[f].key, &sent[f]);
}

/* However far a union had come, the command can be sent again. A replica may have been promoted
 * before it heard of the filters. */
static void check_union(Server *s) {
    if (sent[ONE].nanswered == 0 || sent[OTHER].nanswered == 0) return;
    REQUIRE(unite(s->client->redis));
    check_filter(s, "union", &sent[ONE]);
    check_filter(s, "union", &sent[OTHER]);
}

/* New, small filters: most happens at a filter's first items. */
static void renew(Server *s, unsigned round) {
    static const char *const shapes[NFILTERS] = {
        "0.001 10", "0.0001 100000 SHARDSIZE 4096", "0.01 1 EXPANSION 1", NULL,
        /* begin as tables, and turn at some 50 items */
        "0.01 400000 SHARDSIZE 131072 NONSCALING SEED 5", "0.01 50 SHARDSIZE 90000 EXPANSION 2000",
        "0.01 400000 SHARDSIZE 131072 NONSCALING SEED 5", "0.001 100 " WINDOW,
        "0.001 100000 SHARDSIZE 4096 SLIDING " WINDOW};
    command_int(s->client, "DEL union");
    for (int f = 0; f < NFILTERS; f++) {
        if (round % 4 != 0 && f == 1) continue; /* this one lives longer */
        if (*sent[f].key) command_int(s->client, "DEL %s", sent[f].key);
        memset(&sent[f], 0, sizeof sent[f]);
        snprintf(sent[f].key, sizeof sent[f].key, "f%d-%u", f, round);
        if (shapes[f]) {
            char format[128];
            snprintf(format, sizeof format, "BF.RESERVE %%s %s", shapes[f]);
            EXPECT(s->client, "+OK", format, sent[f].key);
        }
    }
}

/* With `first` something is answered before the clock starts to run, however slow the machine. */
static void crash(Server *s, bool confirmed, bool first) {
    redisContext *redis =
        redisConnectWithTimeout("127.0.0.1", s->port, (struct timeval){.tv_sec = 5});
    REQUIRE(redis && !redis->err);
    if (first) CHECK(write_some(s, redis, confirmed));
    const pid_t killer = kill_later(s->pid, 5 + draw(draw(2) ? 60 : 400));
    write_until_killed(s, redis, confirmed);
    redisFree(redis);
    waitpid(killer, NULL, 0);
    server_stop(s, STOP_KILL);
}

/* The replica becomes the primary, and the old one follows it. */
static void promote(Server **primary, Server **replica) {
    Server *old = *primary, *promoted = *replica;
    EXPECT(promoted->client, "+OK...", "REPLICAOF NO ONE");
    check_answered(promoted);
    check_union(promoted);
    server_up(old);
    server_follow(old, promoted);
    check_answered(old);
    *primary = promoted;
    *replica = old;
    npromotions++;
}

TEST(what_was_answered_survives_a_crash) {
    static const char *const config = "appendonly yes\nappendfsync always\n"
                                      "auto-aof-rewrite-percentage 0\nrdb-key-save-delay 50";
    server_clocks_begin_at(1600000000000);
    Server *s = server_start(config), *replica = server_start(config);
    unsigned long nanswered = 0, nopen = 0;
    const char *given = getenv("SEED");
    const unsigned seed = given && *given ? (unsigned)atoi(given)
                          : rounds() > 3  ? (unsigned)time(NULL)
                                          : 1;
    printf("    SEED=%u\n", seed);
    srandom(seed);
    server_follow(replica, s);
    for (unsigned round = 0; round < rounds() && check_failures() == 0; round++) {
        const bool promotes = round % 3 == 2;
        EXPECT(s->client, "+OK", "CONFIG SET aof-use-rdb-preamble %s", draw(2) ? "yes" : "no");
        renew(s, round);
        crash(s, promotes, round == 0);
        if (promotes) {
            promote(&s, &replica);
        } else {
            server_up(s);
            check_answered(s);
            check_union(s);
            server_wait_info(replica, "master_link_status", "up");
            server_wait_info(s, "bf_sweeps_pending", "0");
            server_wait_for_replica(s, replica);
            server_set_clock(replica, s->clock_ms); /* what is shown depends on it */
            if (round % 8 < 2) CHECK_SAME_DATA(s, replica);
        }
        for (int f = 0; f < NFILTERS; f++) {
            nanswered += (unsigned long)sent[f].nanswered;
            nopen += (unsigned long)(sent[f].nsent - sent[f].nanswered);
        }
    }
    CHECK(nanswered > 0);
    if (rounds() > 3)
        printf("    %u rounds: %lu items answered, %lu not, %u rewrites, %u snapshots, "
               "%u promotions, %u unions\n",
               rounds(), nanswered, nopen, nrewrites, nsnapshots, npromotions, nunions);
}
