/* The promises about errors, through a real server: no false negative, no more false positives than
 * promised, in filters that are full, and in one that has grown by five orders of magnitude. And
 * that the bits are plain strings. */
#include "check.h"
#include "client.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

enum { BATCH = 1000, WINDOW = 4 }; /* items in a command, commands under way at a time */

/* Writes item number n; different for different n. */
typedef int Writer(char *item, size_t room, long long n);

static int url(char *item, size_t room, long long n) {
    return snprintf(item, room, "https://www.example.com/shop/%lld/product?id=%lld", n % 97, n);
}

static int number(char *item, size_t room, long long n) {
    return snprintf(item, room, "%lld", n);
}

/* Not random, but without any pattern that a hash could stumble over. */
static int scattered(char *item, size_t room, long long n) {
    uint64_t x = (uint64_t)n * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return snprintf(item, room, "%016llx", (unsigned long long)x);
}

static const struct {
    const char *name;
    Writer *write;
} kinds[] = {{"URLs", url}, {"numbers", number}, {"scattered", scattered}};

static bool send_batch(Client *c, const char *name, const char *key, Writer *write, long long first,
                       int n) {
    static char items[BATCH][96];
    const char *argv[BATCH + 2] = {name, key};
    size_t lens[BATCH + 2] = {strlen(name), strlen(key)};
    for (int i = 0; i < n; i++) {
        argv[i + 2] = items[i];
        lens[i + 2] = (size_t)write(items[i], sizeof items[i], first + i);
    }
    int done = 0;
    bool ok = redisAppendCommandArgv(c->redis, n + 2, argv, lens) == REDIS_OK;
    while (ok && !done) ok = redisBufferWrite(c->redis, &done) == REDIS_OK;
    return ok;
}

/* Adds the integers of one reply; an error among them fails the test. */
static bool receive_batch(Client *c, long long *sum) {
    redisReply *r = NULL;
    if (redisGetReply(c->redis, (void **)&r) != REDIS_OK) return false;
    bool ok = CHECK(r->type == REDIS_REPLY_ARRAY);
    for (size_t i = 0; ok && i < r->elements; i++) {
        ok = r->element[i]->type == REDIS_REPLY_INTEGER;
        *sum += ok ? r->element[i]->integer : 0;
    }
    freeReplyObject(r);
    return CHECK(ok);
}

/* `name key item...` for items first … first+n-1, several commands at a time; the sum of all
 * answers, or -1. */
static long long pipelined(Client *c, const char *name, const char *key, Writer *write,
                           long long first, long long n) {
    long long sum = 0, sent = 0, received = 0;
    const long long nbatches = (n + BATCH - 1) / BATCH;
    if (!CHECK(c->redis != NULL)) return -1;
    while (received < nbatches) {
        bool ok;
        if (sent < nbatches && sent - received < WINDOW) {
            const long long left = n - sent * BATCH;
            ok = send_batch(c, name, key, write, first + sent * BATCH,
                            left < BATCH ? (int)left : BATCH);
            sent++;
        } else {
            ok = receive_batch(c, &sum);
            received++;
        }
        if (!CHECK(ok)) return -1;
    }
    return sum;
}

/* Up to the promised rate, and 4 standard deviations of the count. */
static void check_rate(long long nfalse, long long nprobes, double promised, const char *what) {
    const double limit = promised * (double)nprobes;
    printf("    %-24s promised %-6g measured %.4g (%lld of %lld)\n", what, promised,
           (double)nfalse / (double)nprobes, nfalse, nprobes);
    CHECK_RANGE((double)nfalse, 0, limit + 4 * sqrt(limit));
}

TEST(a_filter_grown_from_100_to_10_million_items_keeps_the_promise) {
    /* Sanitizers look for other things, and take ten times as long. */
    const char *sanitizer = getenv("SANITIZER");
    const bool slow = sanitizer && *sanitizer;
    const long long n = slow ? 1000000 : 10000000, nprobes = n / 10;
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    const long long nadded = pipelined(c, "BF.MADD", "k", url, 0, n);
    /* What is not added was a false positive when it came. */
    CHECK_RANGE((double)nadded, (double)n * 0.99, (double)n);
    CHECK_INT(command_int(c, "BF.CARD k"), nadded);
    CHECK_INT(pipelined(c, "BF.MEXISTS", "k", url, 0, n), n);
    check_rate(pipelined(c, "BF.MEXISTS", "k", url, n, nprobes), nprobes, 0.01,
               slow ? "14 layers" : "17 layers");
    EXPECT(c, slow ? "*1 :14" : "*1 :17", "BF.INFO k FILTERS");
}

TEST(full_filters_keep_the_promise) {
    static const struct {
        double error;
        long long nprobes;
    } cases[] = {{1e-2, 200000}, {1e-3, 300000}, {1e-4, 500000}, {1e-5, 1000000}};
    const long long capacity = 100000;
    Client *c = server_start(NULL)->client;
    for (size_t i = 0; i < N(cases); i++) {
        for (size_t j = 0; j < N(kinds); j++) {
            char key[16], what[64];
            snprintf(key, sizeof key, "%zu-%zu", i, j);
            EXPECT(c, "+OK", "BF.RESERVE %s %f %lld NONSCALING SEED %d", key, cases[i].error,
                   capacity, (int)(i * N(kinds) + j));
            long long n = capacity;
            long long nadded = pipelined(c, "BF.MADD", key, kinds[j].write, 0, n);
            for (; nadded >= 0 && nadded < capacity; n++) /* the few that were false positives */
                nadded += pipelined(c, "BF.MADD", key, kinds[j].write, n, 1);
            CHECK_INT(command_int(c, "BF.CARD %s", key), capacity);
            CHECK_INT(pipelined(c, "BF.MEXISTS", key, kinds[j].write, 0, n), n);
            snprintf(what, sizeof what, "full, %s", kinds[j].name);
            check_rate(pipelined(c, "BF.MEXISTS", key, kinds[j].write, n, cases[i].nprobes),
                       cases[i].nprobes, cases[i].error, what);
        }
    }
}

TEST(growing_filters_keep_the_promise) {
    static const struct {
        double error;
        int expansion;
        long long nprobes;
    } cases[] = {{1e-2, 1, 200000}, {1e-3, 2, 300000}, {1e-4, 2, 500000}, {1e-5, 4, 1000000}};
    const long long n = 100000;
    Client *c = server_start(NULL)->client;
    for (size_t i = 0; i < N(cases); i++) {
        char key[16], what[64];
        snprintf(key, sizeof key, "%zu", i);
        EXPECT(c, "+OK", "BF.RESERVE %s %f 1000 EXPANSION %d SEED %d", key, cases[i].error,
               cases[i].expansion, (int)i);
        /* What is not added was a false positive when it came. */
        const long long nadded = pipelined(c, "BF.MADD", key, scattered, 0, n);
        snprintf(what, sizeof what, "while growing");
        check_rate(n - nadded, n, cases[i].error, what);
        CHECK_INT(pipelined(c, "BF.MEXISTS", key, scattered, 0, n), n);
        snprintf(what, sizeof what, "grown, expansion %d", cases[i].expansion);
        check_rate(pipelined(c, "BF.MEXISTS", key, scattered, n, cases[i].nprobes),
                   cases[i].nprobes, cases[i].error, what);
    }
}

/* Nothing is allocated ahead; the first item makes one shard of a hundred. */
TEST(a_filter_for_a_billion_items_costs_nothing_before_it_is_used) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    const long long before = server_info(s, "used_memory");
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 1000000000 SEED 1");
    EXPECT(c, ":1", "DBSIZE");
    EXPECT(c, "*0", "BF.SHARDS k");
    EXPECT(c, "*1 :1000000000", "BF.INFO k CAPACITY");
    CHECK_RANGE((double)(server_info(s, "used_memory") - before), -500000, 500000);
    EXPECT(c, "*3 :1 :1 :0", "BF.MADD k a b a");
    EXPECT(c, "*3 :1 :1 :0", "BF.MEXISTS k a b c");
    const redisReply *shards = command(c, "BF.SHARDS k");
    CHECK_RANGE((double)shards->elements, 1, 2);
    CHECK_RANGE((double)(server_info(s, "used_memory") - before), 0,
                (double)shards->elements * 34e6);
}

/* ---- the bits are plain strings ---- */

/* The value of a field in an entry of BF.SHARDS (RESP2: pairs). */
static const redisReply *field(const redisReply *entry, const char *name) {
    for (size_t i = 0; i + 1 < entry->elements; i += 2)
        if (strcmp(entry->element[i]->str, name) == 0) return entry->element[i + 1];
    CHECK_FAIL("BF.SHARDS has no field %s", name);
    return entry->element[0];
}

/* A string, and the part of it that is one layer's. */
static void check_shard(Client *c, const redisReply *shards, size_t i) {
    const redisReply *entry = shards->element[i], *name = field(entry, "key");
    const size_t length = (size_t)name->len;
    const long long nbytes = field(entry, "bytes")->integer,
                    offset = field(entry, "offset")->integer;
    const bool first = is_new_string(shards, i);
    static long long end; /* of the layer before */
    EXPECT(c, "+string", "TYPE %b", name->str, length);
    CHECK_INT(offset, first ? 0 : end);
    end = offset + nbytes;
    if (i + 1 == shards->elements || is_new_string(shards, i + 1))
        CHECK_INT(command_int(c, "STRLEN %b", name->str, length), end);
    EXPECT(c, "\"BFSH\\x01\"", "GETRANGE %b 0 4", name->str, length);
    const redisReply *header = command(c, "GETRANGE %b 0 54", name->str, length);
    CHECK_INT(header->len, 55);
    if (first) CHECK_INT((unsigned char)header->str[7], field(entry, "layer")->integer);
    CHECK_INT((unsigned char)header->str[16] | (unsigned char)header->str[17] << 8,
              field(entry, "shard")->integer);
    const long long from = first ? 55 : offset;
    const double nset =
        (double)command_int(c, "BITCOUNT %b %lld %lld", name->str, length, from, end - 1);
    const double fill = nset / (8.0 * (double)(end - from));
    /* These shards are small enough that all blocks are counted. */
    CHECK_RANGE(atof(field(entry, "fill sampled from")->str), 1, 1);
    CHECK_RANGE(atof(field(entry, "fill")->str), fill - 1e-9, fill + 1e-9);
    CHECK_RANGE(fill, 0.001, 0.6);
}

TEST(shards_are_plain_strings) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE many 0.001 20000 SEED 1 SHARDSIZE 4kb");
    CHECK_INT(pipelined(c, "BF.MADD", "many", url, 0, 15000) > 14900, 1);
    EXPECT(c, "+OK", "BF.RESERVE %b 0.001 10 SEED 1", "a \0{b\xff}", (size_t)7);
    for (int i = 0; i < 5000; i++) EXPECT(c, ":...", "BF.ADD %b %d", "a \0{b\xff}", (size_t)7, i);
    const redisReply *many = command(c, "BF.SHARDS many"),
                     *grown = command(c, "BF.SHARDS %b", "a \0{b\xff}", (size_t)7);
    CHECK(many->elements > 8);
    CHECK_INT((long long)grown->elements, 9);
    CHECK_INT(count_strings(many), (long long)many->elements);
    CHECK_INT(count_strings(grown), 1);
    CHECK_INT(command_int(c, "DBSIZE"), 2 + (long long)many->elements + 1);
    for (size_t i = 0; i < many->elements; i++) check_shard(c, many, i);
    for (size_t i = 0; i < grown->elements; i++) check_shard(c, grown, i);
}

/* A filter can have 64 layers, and BF.SHARDS must not read megabytes of each. */
TEST(the_fill_of_a_layer_is_sampled) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.001 200000 NONSCALING SEED 1");
    CHECK(pipelined(c, "BF.MADD", "k", url, 0, 100000) > 99000);
    const redisReply *shards = command(c, "BF.SHARDS k");
    REQUIRE(shards->elements == 1);
    const redisReply *entry = shards->element[0];
    CHECK_RANGE(field(entry, "bytes")->integer, 350000, 400000);
    CHECK_RANGE(atof(field(entry, "fill sampled from")->str), 0.1, 0.5);
    CHECK_RANGE(atof(field(entry, "fill")->str), 0.2, 0.35);
    /* Blocks of 4 kB. */
    EXPECT(c, "+OK", "BF.RESERVE wide 1e-12 200000 NONSCALING SEED 1");
    CHECK_INT(pipelined(c, "BF.MADD", "wide", url, 0, 100000), 100000);
    entry = command(c, "BF.SHARDS wide")->element[0];
    CHECK_RANGE(field(entry, "bytes")->integer, 1 << 20, 2 << 20);
    CHECK_RANGE(atof(field(entry, "fill sampled from")->str), 0.1, 0.25);
    CHECK_RANGE(atof(field(entry, "fill")->str), 0.2, 0.35);
}
