/* BF.SCANDUMP and BF.LOADCHUNK: filters on their way from server to server, and everything that can
 * come between. */
#include "check.h"
#include "client.h"
#include "fixture.h"
#include "snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(array)   (sizeof(array) / sizeof((array)[0]))
#define MAX_CHUNKS 64

struct bytes {
    uint64_t iterator;
    const char *at;
    size_t n;
};

static struct bytes scandump(Client *c, const char *key, uint64_t iterator) {
    const redisReply *r = command(c, "BF.SCANDUMP %s %llu", key, (unsigned long long)iterator);
    struct bytes chunk = {0};
    if (!CHECK(r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
               r->element[0]->type == REDIS_REPLY_INTEGER &&
               r->element[1]->type == REDIS_REPLY_STRING))
        return chunk;
    chunk.iterator = (uint64_t)r->element[0]->integer;
    chunk.at = r->element[1]->str; /* freed after the test */
    chunk.n = r->element[1]->len;
    CHECK(chunk.n <= 16u << 20);
    CHECK((chunk.iterator == 0) == (chunk.n == 0));
    return chunk;
}

static size_t dump(Client *c, const char *key, struct bytes *chunks) {
    size_t n = 0;
    for (uint64_t iterator = 0; n < MAX_CHUNKS; n++) {
        chunks[n] = scandump(c, key, iterator);
        iterator = chunks[n].iterator;
        if (iterator == 0) break;
    }
    CHECK(n >= 2 && n < MAX_CHUNKS);
    return n;
}

#define LOAD(c, want, key, chunk)                                                                  \
    EXPECT(c, want, "BF.LOADCHUNK %s %llu %b", key, (unsigned long long)(chunk).iterator,          \
           (chunk).at, (chunk).n)

static void load(Client *c, const char *key, const struct bytes *chunks, size_t n) {
    for (size_t i = 0; i < n; i++) LOAD(c, "+OK", key, chunks[i]);
}

static void check_equal(Client *a, const char *akey, Client *b, const char *bkey) {
    CHECK_STR(command_text(b, "DEBUG DIGEST-VALUE %s", bkey),
              command_text(a, "DEBUG DIGEST-VALUE %s", akey));
    CHECK_STR(command_text(b, "BF.INFO %s ITEMS", bkey), command_text(a, "BF.INFO %s ITEMS", akey));
    CHECK_STR(command_text(b, "BF.INFO %s CAPACITY", bkey),
              command_text(a, "BF.INFO %s CAPACITY", akey));
    CHECK_STR(command_text(b, "BF.INFO %s FILTERS", bkey),
              command_text(a, "BF.INFO %s FILTERS", akey));
    CHECK_STR(command_text(b, "BF.INFO %s EXPANSION", bkey),
              command_text(a, "BF.INFO %s EXPANSION", akey));
}

/* ---- our own filters ---- */

TEST(filters_of_every_shape_are_copied_exactly) {
    Server *s1 = server_start(NULL), *s2 = server_start_with("SHARD_SIZE 8192", NULL);
    Client *a = s1->client, *b = s2->client;
    fixture_fill(a);
    fixture_add(a, 0);
    EXPECT(a, ":1", "PERSIST expiring"); /* the digest of a key that expires differs */
    const char *keys[] = {"reserved", "sharded", "growing", "full", "default", "expiring"};
    for (size_t i = 0; i < N(keys); i++) {
        struct bytes chunks[MAX_CHUNKS];
        load(b, keys[i], chunks, dump(a, keys[i], chunks));
        check_equal(a, keys[i], b, keys[i]);
        load(a, "other name", chunks, dump(a, keys[i], chunks));
        check_equal(a, keys[i], a, "other name");
        EXPECT(a, ":1", "DEL %s", "other name");
    }
    CHECK_INT(command_batches(b, "BF.MEXISTS", "growing", "g", 0, 5700), 5700);
    EXPECT(b, "*5 :0 :0 :0 -ERR non... -ERR non...", "BF.MADD full a b c d e");
    /* Copies are independent: they have other shards, and go their own way. */
    CHECK_INT(command_batches(b, "BF.MADD", "growing", "new", 0, 3000), 3000);
    EXPECT(a, ":5700", "BF.CARD growing");
    EXPECT(b, ":8700", "BF.CARD growing");
}

TEST(large_shards_travel_in_parts) {
    Server *s1 = server_start(NULL), *s2 = server_start(NULL);
    Client *a = s1->client, *b = s2->client;
    /* 24 MiB in one shard: three parts. */
    EXPECT(a, "+OK", "BF.RESERVE k 0.0001 10000000 SEED 1 SHARDSIZE 64mb NONSCALING");
    CHECK_INT(command_batches(a, "BF.MADD", "k", "i", 0, 10000), 10000);
    struct bytes chunks[MAX_CHUNKS];
    /* While it is young, it is one. */
    size_t n = dump(a, "k", chunks);
    CHECK_UINT(n, 3);
    load(b, "k", chunks, n);
    check_equal(a, "k", b, "k");
    EXPECT(b, ":1", "DEL k");
    CHECK_INT(command_batches(a, "BF.MADD", "k", "i", 10000, 50000), 50000);
    n = dump(a, "k", chunks);
    CHECK_UINT(n, 5);
    load(b, "k", chunks, n);
    check_equal(a, "k", b, "k");
    EXPECT(b, "*1 ...", "BF.SHARDS k");
}

TEST(the_end_of_a_dump_is_zero_and_empty) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, ":1", "BF.ADD k a");
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump(c, "k", chunks);
    CHECK_UINT(n, 3);
    EXPECT(c, "*2 :0 \"\"", "BF.SCANDUMP k %llu", (unsigned long long)chunks[n - 1].iterator);
    Client *c3 = client_new_resp3(c->server);
    EXPECT(c3, "*2 :0 \"\"", "BF.SCANDUMP k %llu", (unsigned long long)chunks[n - 1].iterator);
}

TEST(scandump_refuses_what_is_not_a_filter_or_an_iterator) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "SET s x");
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT(c, "-WRONGTYPE...", "BF.SCANDUMP s 0");
    EXPECT(c, "-ERR not found", "BF.SCANDUMP missing 0");
    const char *bad[] = {"", "x", "-1", "1.5", "18446744073709551616", " 0", "00"};
    for (size_t i = 0; i < N(bad); i++)
        EXPECT_ERROR(c, "ERR", "iterator", "BF.SCANDUMP k %b", bad[i], strlen(bad[i]));
    const char *unknown[] = {"1", "2", "9007199254740991", "18446744073709551615"};
    for (size_t i = 0; i < N(unknown); i++)
        EXPECT_ERROR(c, "ERR", "start again", "BF.SCANDUMP k %s", unknown[i]);
    EXPECT(c, "-ERR wrong number...", "BF.SCANDUMP k");
    EXPECT(c, "-ERR wrong number...", "BF.SCANDUMP k 0 0");
    EXPECT(c, "-ERR wrong number...", "BF.LOADCHUNK k 0");
}

TEST(a_lost_shard_ends_the_dump) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, ":1", "BF.ADD k a");
    const struct bytes header = scandump(c, "k", 0);
    const redisReply *keys = command(c, "KEYS bf:*");
    REQUIRE(keys->elements == 1);
    EXPECT(c, ":1", "DEL %s", keys->element[0]->str);
    EXPECT(c, "-SHARDLOST...", "BF.SCANDUMP k %llu", (unsigned long long)header.iterator);
}

/* ---- a source that changes ---- */

TEST(items_may_be_added_during_the_dump) {
    Server *s1 = server_start(NULL), *s2 = server_start(NULL);
    Client *a = s1->client, *b = s2->client;
    EXPECT(a, "+OK", "BF.RESERVE k 0.0001 2000000 SEED 1 SHARDSIZE 1mb");
    CHECK_INT(command_batches(a, "BF.MADD", "k", "old", 0, 2000), 2000);
    uint64_t iterator = 0;
    for (int step = 0;; step++) {
        const struct bytes chunk = scandump(a, "k", iterator);
        if (chunk.iterator == 0) break;
        LOAD(b, "+OK", "k", chunk);
        iterator = chunk.iterator;
        if (step == 0) CHECK_INT(command_batches(a, "BF.MADD", "k", "early", 0, 1000), 1000);
        if (step == 1) CHECK_INT(command_batches(a, "BF.MADD", "k", "late", 0, 1000), 1000);
    }
    CHECK_INT(command_batches(b, "BF.MEXISTS", "k", "old", 0, 2000), 2000);
    CHECK_INT(command_batches(b, "BF.MEXISTS", "k", "early", 0, 1000), 1000);
    EXPECT(b, ":4000", "BF.CARD k"); /* counted as the source did at the end */
    CHECK_INT(server_info(s2, "bf_items"), 4000);
    CHECK_INT(server_info(s2, "bf_shards"), server_info(s1, "bf_shards"));
    EXPECT(b, ":1", "BF.ADD k more");
}

TEST(growth_or_replacement_ends_the_dump) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 10 SEED 1");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "a", 0, 10), 10);
    const struct bytes header = scandump(c, "k", 0);
    LOAD(c, "+OK", "copy", header);
    const struct bytes data = scandump(c, "k", header.iterator);
    EXPECT(c, ":1", "BF.ADD k eleven");
    EXPECT_ERROR(c, "ERR", "start again", "BF.SCANDUMP k %llu",
                 (unsigned long long)header.iterator);
    EXPECT_ERROR(c, "ERR", "start again", "BF.SCANDUMP k %llu", (unsigned long long)data.iterator);
    /* What was dumped before can still be loaded, but no chunk of the grown filter continues it. */
    LOAD(c, "+OK", "copy", data);
    struct bytes grown[MAX_CHUNKS];
    const size_t n = dump(c, "k", grown);
    for (size_t i = 0; i < n; i++) LOAD(c, "-ERR received bad data...", "copy", grown[i]);

    EXPECT(c, ":1", "DEL k");
    EXPECT(c, "-ERR not found", "BF.SCANDUMP k %llu", (unsigned long long)grown[0].iterator);
    EXPECT(c, ":1", "BF.ADD k a");
    EXPECT_ERROR(c, "ERR", "start again", "BF.SCANDUMP k %llu",
                 (unsigned long long)grown[0].iterator);
}

/* ---- what is refused, and leaves nothing behind ---- */

static void check_nothing(Client *c, const char *key) {
    EXPECT(c, ":0", "EXISTS %s", key);
    EXPECT(c, "*0", "KEYS bf:{%s}*", key);
}

TEST(a_first_chunk_that_is_none_leaves_nothing) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, "*2 :1 :1", "BF.MADD k a b");
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump(c, "k", chunks);
    for (size_t i = 1; i < n; i++)
        LOAD(c, "-ERR received bad data: there is no filter...", "new", chunks[i]);
    struct bytes chunk = chunks[0];
    chunk.iterator++;
    LOAD(c, "-ERR received bad data: it does not belong to this iterator", "new", chunk);
    chunk = chunks[0];
    for (chunk.n = 0; chunk.n < chunks[0].n; chunk.n++)
        LOAD(c, "-ERR received bad data...", "new", chunk);
    char *copy = keep(malloc(chunks[0].n));
    chunk = (struct bytes){chunks[0].iterator, copy, chunks[0].n};
    for (size_t i = 0; i < chunk.n; i++) {
        memcpy(copy, chunks[0].at, chunk.n);
        copy[i] ^= 0x10;
        LOAD(c, "-ERR received bad data...", "new", chunk);
    }
    memcpy(copy, chunks[0].at, chunk.n);
    copy[7] = 2;
    LOAD(c, "-ERR received bad data: it was made by a newer version of the module", "new", chunk);
    EXPECT(c, "-ERR received bad data...", "BF.LOADCHUNK new 1 whatever");
    EXPECT(c, "-ERR received bad data...", "BF.LOADCHUNK new 1 %b", "", (size_t)0);
    EXPECT(c, "-ERR received bad data...", "BF.LOADCHUNK new 0 %b", "", (size_t)0);
    EXPECT_ERROR(c, "ERR", "iterator", "BF.LOADCHUNK new x y");
    check_nothing(c, "new");
    load(c, "new", chunks, n);
    check_equal(c, "k", c, "new");
}

TEST(existing_keys_are_not_touched) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, "*2 :1 :1", "BF.MADD k a b");
    EXPECT(c, "+OK", "BF.RESERVE other 0.01 100 SEED 1");
    EXPECT(c, "*2 :1 :1", "BF.MADD other c d");
    EXPECT(c, "+OK", "SET string x");
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump(c, "k", chunks);
    const char *before = command_text(c, "DEBUG DIGEST-VALUE other");
    for (size_t i = 0; i < n; i++) {
        LOAD(c, "-ERR item exists...", "other", chunks[i]);
        LOAD(c, "-ERR item exists...", "k", chunks[i]);
        LOAD(c, "-WRONGTYPE...", "string", chunks[i]);
    }
    CHECK_STR(command_text(c, "DEBUG DIGEST-VALUE other"), before);
    EXPECT(c, "\"x\"", "GET string");
    EXPECT(c, "*4 :1 :1 :0 :0", "BF.MEXISTS k a b c d");
}

TEST(chunks_out_of_order_change_nothing) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 1000000 SEED 1 SHARDSIZE 4mb");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 1000), 1000);
    EXPECT(c, ":1", "BF.ADD other a");
    struct bytes chunks[MAX_CHUNKS], other[MAX_CHUNKS];
    const size_t n = dump(c, "k", chunks), nother = dump(c, "other", other);
    for (size_t due = 1; due <= n; due++) {
        LOAD(c, "+OK", "new", chunks[due - 1]);
        for (size_t i = 0; i < n; i++)
            if (i != due)
                LOAD(c, due == n ? "-ERR item..." : "-ERR received bad data...", "new", chunks[i]);
        for (size_t i = 0; i < nother; i++)
            LOAD(c, due == n ? "-ERR item..." : "-ERR received bad data...", "new", other[i]);
        if (due == n) break;
        struct bytes cut = chunks[due];
        cut.n /= 2;
        LOAD(c, "-ERR received bad data: it is truncated...", "new", cut);
    }
    check_equal(c, "k", c, "new");
}

/* ---- half-loaded filters ---- */

TEST(a_half_loaded_filter_says_so) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, "*2 :1 :1", "BF.MADD k a b");
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump(c, "k", chunks);
    LOAD(c, "+OK", "new", chunks[0]);
    for (size_t i = 1; i < n; i++) {
        const char *refused[] = {"BF.ADD new a",     "BF.MADD new a",    "BF.INSERT new ITEMS a",
                                 "BF.EXISTS new a",  "BF.MEXISTS new a", "BF.CARD new",
                                 "BF.SHARDS new",    "BF.HEAL new",      "BF.RESERVE new 0.01 100",
                                 "BF.SCANDUMP new 0"};
        char next[64];
        snprintf(next, sizeof next, "iterator %" PRIu64 ",", chunks[i - 1].iterator);
        for (size_t j = 0; j < N(refused); j++) EXPECT_ERROR(c, "HALFLOADED", next, refused[j]);
        EXPECT(c, "*10 +Capacity :100 ... +Number of items inserted :2 ...", "BF.INFO new");
        LOAD(c, "+OK", "new", chunks[i]);
    }
    EXPECT(c, "*3 :1 :1 :0", "BF.MEXISTS new a b c");
}

/* Deleted, renamed, copied, expired: like any other key. */
TEST(a_half_loaded_filter_is_a_key_like_any_other) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, "*2 :1 :1", "BF.MADD k a b");
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump(c, "k", chunks);
    LOAD(c, "+OK", "new", chunks[0]);
    LOAD(c, "+OK", "new", chunks[1]);
    EXPECT(c, ":1", "COPY new copy");
    EXPECT(c, "+OK", "RENAME new renamed");
    const redisReply *dumped = command(c, "DUMP renamed");
    REQUIRE(dumped->type == REDIS_REPLY_STRING);
    EXPECT(c, "+OK", "RESTORE restored 0 %b", dumped->str, (size_t)dumped->len);
    const char *keys[] = {"copy", "renamed", "restored"};
    for (size_t i = 0; i < N(keys); i++) {
        EXPECT(c, "-HALFLOADED...", "BF.EXISTS %s a", keys[i]);
        load(c, keys[i], chunks + 2, n - 2);
        check_equal(c, "k", c, keys[i]);
        EXPECT(c, ":1", "DEL %s", keys[i]);
    }
    LOAD(c, "+OK", "new", chunks[0]);
    LOAD(c, "+OK", "new", chunks[1]);
    EXPECT(c, ":1", "DEL new");
    LOAD(c, "-ERR received bad data...", "new", chunks[2]);
    for (int i = 0; i < 6000 && command_int(c, "DBSIZE") > 2; i++) pause_ms(10);
    EXPECT(c, ":2", "DBSIZE"); /* k and its shard: all others were swept */
}

static const struct persistence {
    const char *config;
    Stop how;
    bool rewrite;
} persistences[] = {
    {NULL, STOP_SAVE, false},
    {"appendonly yes\nappendfsync always\n", STOP_KILL, false},
    {"appendonly yes\nappendfsync always\naof-use-rdb-preamble no\n", STOP_KILL, true},
    {"appendonly yes\nappendfsync always\naof-use-rdb-preamble yes\n", STOP_KILL, true},
};

/* The layers of a growing filter share a string, which is made as they come; somebody removes it
 * meanwhile. */
TEST(a_shared_string_that_is_lost_while_loading) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE from 0.0001 100000 SEED 1 SHARDSIZE 32mb");
    command_batches(c, "BF.MADD", "from", "i", 0, 6000000);
    const redisReply *shards = command(c, "BF.SHARDS from");
    CHECK(shards->elements >= 6);
    CHECK_INT(count_strings(shards), 1);
    bool lost = false;
    for (long long at = 0;;) {
        const redisReply *chunk = command(c, "BF.SCANDUMP from %lld", at);
        REQUIRE(chunk->type == REDIS_REPLY_ARRAY && chunk->elements == 2);
        const long long before = at;
        at = chunk->element[0]->integer;
        if (at == 0) break;
        const char *data = chunk->element[1]->str;
        const size_t nbytes = (size_t)chunk->element[1]->len;
        const redisReply *made = command(c, "KEYS bf:{to}:*");
        if (made->elements == 1 && !lost && before > 0) {
            lost = true;
            const char *name = made->element[0]->str;
            EXPECT(c, "+OK", "RENAME %s aside", name);
            EXPECT_ERROR(c, "SHARDLOST", "missing", "BF.LOADCHUNK to %lld %b", at, data, nbytes);
            EXPECT(c, "*0", "KEYS bf:{to}:*");
            EXPECT(c, "+OK", "RENAME aside %s", name);
        }
        EXPECT(c, "+OK", "BF.LOADCHUNK to %lld %b", at, data, nbytes);
    }
    CHECK(lost);
    CHECK_STR(command_text(c, "DEBUG DIGEST-VALUE to"), command_text(c, "DEBUG DIGEST-VALUE from"));
    CHECK_INT(command_batches(c, "BF.MEXISTS", "to", "i", 5990000, 10000), 10000);
}

TEST(loading_goes_on_after_a_restart) {
    Server *source = server_start(NULL);
    EXPECT(source->client, "+OK", "BF.RESERVE k 0.0001 5000000 SEED 1 SHARDSIZE 1mb");
    CHECK_INT(command_batches(source->client, "BF.MADD", "k", "i", 0, 60000), 60000);
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump(source->client, "k", chunks);
    CHECK(n >= 4);
    for (size_t i = 0; i < N(persistences); i++) {
        Server *s = server_start(persistences[i].config);
        for (size_t j = 0; j < n; j++) {
            LOAD(s->client, "+OK", "k", chunks[j]);
            if (persistences[i].rewrite) {
                EXPECT(s->client, "+Background...", "BGREWRITEAOF");
                server_wait_info(s, "aof_rewrite_in_progress", "0");
                server_wait_info(s, "aof_rewrite_scheduled", "0");
            }
            Snapshot *before = snapshot_take(s);
            server_restart(s, persistences[i].how);
            CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
            if (j + 1 < n) EXPECT(s->client, "-HALFLOADED...", "BF.CARD k");
        }
        check_equal(source->client, "k", s->client, "k");
        server_stop(s, STOP_NOSAVE);
    }
}

TEST(replicas_load_the_same_filter) {
    Server *source = server_start(NULL), *primary = server_start(NULL),
           *replica = server_start_with("SHARD_SIZE 4096", NULL), *late = server_start(NULL);
    EXPECT(source->client, "+OK", "BF.RESERVE k 0.0001 1000000 SEED 1 SHARDSIZE 1mb");
    CHECK_INT(command_batches(source->client, "BF.MADD", "k", "i", 0, 3000), 3000);
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump(source->client, "k", chunks);
    server_follow(replica, primary);
    LOAD(primary->client, "+OK", "k", chunks[0]);
    LOAD(primary->client, "-ERR...", "k", chunks[2]);
    LOAD(primary->client, "+OK", "k", chunks[1]);
    server_wait_for_replica(primary, replica);
    CHECK_SAME_DATA(primary, replica);
    EXPECT(replica->client, "-HALFLOADED...", "BF.EXISTS k i0");
    server_follow(late, primary); /* full synchronisation of a half-loaded filter */
    load(primary->client, "k", chunks + 2, n - 2);
    server_wait_for_replica(primary, replica);
    server_wait_for_replica(primary, late);
    CHECK_SAME_DATA(primary, replica);
    CHECK_SAME_DATA(primary, late);
    CHECK_INT(command_batches(late->client, "BF.MEXISTS", "k", "i", 0, 3000), 3000);
    check_equal(source->client, "k", late->client, "k");
}

TEST(loading_is_one_event_per_chunk_and_touches_watch) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, ":1", "BF.ADD k a");
    struct bytes chunks[MAX_CHUNKS];
    dump(c, "k", chunks);
    Client *other = client_new(c->server);
    EXPECT(other, "+OK", "WATCH new");
    EXPECT(other, "+OK", "MULTI");
    EXPECT(other, "+QUEUED", "PING");
    LOAD(c, "+OK", "new", chunks[0]);
    EXPECT(other, "_", "EXEC");
    EXPECT(other, "+OK", "WATCH new");
    EXPECT(other, "+OK", "MULTI");
    EXPECT(other, "+QUEUED", "PING");
    LOAD(c, "-ERR...", "new", chunks[0]);
    EXPECT(other, "*1 +PONG", "EXEC");
}

TEST(names_may_be_anything) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "*1 :1", "BF.INSERT k SEED 1 ITEMS a");
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump(c, "k", chunks);
    const char name[] = "\0}{\xff\r\n";
    for (size_t i = 0; i < n; i++)
        EXPECT(c, "+OK", "BF.LOADCHUNK %b %llu %b", name, sizeof name,
               (unsigned long long)chunks[i].iterator, chunks[i].at, chunks[i].n);
    EXPECT(c, "*2 :1 :0", "BF.MEXISTS %b a b", name, sizeof name);
}

/* ---- RedisBloom's filters ---- */

static size_t read_dump(const char *name, struct bytes *chunks) {
    char path[128];
    snprintf(path, sizeof path, "tests/assets/redisbloom-%s.dump", name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        CHECK_FAIL("can't read %s", path);
        return 0;
    }
    size_t n = 0;
    unsigned char head[16]; /* iterator and length, little-endian */
    for (; n < MAX_CHUNKS && fread(head, 1, 16, file) == 16; n++) {
        uint64_t numbers[2] = {0, 0};
        for (int i = 0; i < 16; i++) numbers[i / 8] |= (uint64_t)head[i] << (i % 8 * 8);
        char *bytes = keep(malloc(numbers[1]));
        CHECK_UINT(fread(bytes, 1, numbers[1], file), numbers[1]);
        chunks[n] = (struct bytes){numbers[0], bytes, numbers[1]};
    }
    fclose(file);
    return n;
}

static const struct asset {
    const char *name;
    int nitems; /* item:0 … */
    const char *info;
} assets[] = {
    {"growing", 150,
     "+Capacity :300 ... +Number of filters :4 +Number of items inserted :159 +Expansion rate :2"},
    {"nonscaling", 40,
     "+Capacity :60 ... +Number of filters :1 +Number of items inserted :56 +Expansion rate _"},
    {"power-of-two", 80,
     "+Capacity :100 ... +Number of filters :1 +Number of items inserted :95 +Expansion rate :2"},
    {"hash32", 80,
     "+Capacity :100 ... +Number of filters :1 +Number of items inserted :96 +Expansion rate :2"},
    {"hash32-unrounded", 80,
     "+Capacity :100 ... +Number of filters :1 +Number of items inserted :96 +Expansion rate :2"},
};

/* The answers of RedisBloom itself. */
static void check_asset(Client *c, const char *key, const struct asset *asset) {
    CHECK_INT(command_batches(c, "BF.MEXISTS", key, "item:", 0, asset->nitems), asset->nitems);
    char path[128], line[32];
    snprintf(path, sizeof path, "tests/assets/redisbloom-%s.positives", asset->name);
    FILE *file = fopen(path, "r");
    REQUIRE(file);
    long long npositive = 0;
    for (; fgets(line, sizeof line, file); npositive++)
        EXPECT(c, ":1", "BF.EXISTS %s other:%ld", key, strtol(line, NULL, 10));
    fclose(file);
    CHECK_INT(command_batches(c, "BF.MEXISTS", key, "other:", 0, 4000), npositive);
}

TEST(redisbloom_filters_answer_as_they_did) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    for (size_t i = 0; i < N(assets); i++) {
        struct bytes chunks[MAX_CHUNKS];
        const char *key = assets[i].name;
        char want[256];
        load(c, key, chunks, read_dump(key, chunks));
        snprintf(want, sizeof want, "*10 %s", assets[i].info);
        EXPECT(c, want, "BF.INFO %s", key);
        check_asset(c, key, &assets[i]);
    }
    Snapshot *before = snapshot_take(s);
    EXPECT(c, "+OK", "DEBUG RELOAD");
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    for (size_t i = 0; i < N(assets); i++) {
        check_asset(c, assets[i].name, &assets[i]);
        struct bytes chunks[MAX_CHUNKS]; /* and from one of ours to the next, in our own form */
        load(c, "copy", chunks, dump(c, assets[i].name, chunks));
        check_equal(c, assets[i].name, c, "copy");
        check_asset(c, "copy", &assets[i]);
        EXPECT(c, ":1", "DEL copy");
    }
}

TEST(redisbloom_filters_grow_by_our_own_layers) {
    Server *s1 = server_start(NULL), *s2 = server_start(NULL);
    Client *c = s1->client;
    server_follow(s2, s1);
    struct bytes chunks[MAX_CHUNKS];
    load(c, "k", chunks, read_dump("growing", chunks));
    const long long before = command_int(c, "BF.CARD k");
    const long long nnew = command_batches(c, "BF.MADD", "k", "new:", 0, 3000);
    CHECK(nnew > 2700 && nnew <= 3000); /* the error is 0.05 */
    CHECK_INT(command_int(c, "BF.CARD k"), before + nnew);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "new:", 0, 3000), 3000);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "item:", 0, 150), 150);
    CHECK_INT(command_batches(c, "BF.MADD", "k", "new:", 0, 3000), 0);
    CHECK(command_batches(c, "BF.MEXISTS", "k", "absent:", 0, 20000) < 20000 / 20);
    server_wait_for_replica(s1, s2);
    CHECK_SAME_DATA(s1, s2);
    load(c, "copy", chunks, dump(c, "k", chunks));
    check_equal(c, "k", c, "copy");
    CHECK_STR(command_text(c, "BF.DEBUG copy"), command_text(c, "BF.DEBUG k"));

    load(c, "fixed", chunks, read_dump("nonscaling", chunks));
    CHECK_INT(command_int(c, "BF.CARD fixed"), 56);
    const redisReply *r = command(c, "BF.MADD fixed n1 n2 n3 n4 n5 n6 n7 n8");
    REQUIRE(r->type == REDIS_REPLY_ARRAY && r->elements == 8);
    EXPECT(c, ":60", "BF.CARD fixed"); /* exactly to its capacity */
    EXPECT(c, "-ERR non scaling filter is full", "BF.ADD fixed one:more");
}

TEST(redisbloom_chunks_are_taken_in_order_only) {
    Client *c = server_start(NULL)->client;
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = read_dump("growing", chunks);
    for (size_t i = 1; i < n; i++) LOAD(c, "-ERR received bad data...", "k", chunks[i]);
    check_nothing(c, "k");
    for (size_t due = 1; due <= n; due++) {
        LOAD(c, "+OK", "k", chunks[due - 1]);
        for (size_t i = 0; i < n; i++)
            if (i != due)
                LOAD(c, due == n ? "-ERR item..." : "-ERR received bad data...", "k", chunks[i]);
        if (due == n) break;
        EXPECT(c, "-HALFLOADED...", "BF.EXISTS k item:0");
        struct bytes cut = chunks[due];
        cut.n--;
        LOAD(c, "-ERR received bad data: it is truncated or out of order...", "k", cut);
        EXPECT(c, "-ERR received bad data...", "BF.LOADCHUNK k %llu %b",
               (unsigned long long)chunks[due].iterator, "", (size_t)0);
    }
    check_asset(c, "k", &assets[0]);
    EXPECT(c, "*... \"bytes:... hashwidth:64 ... ratio:0.0102\"...", "BF.DEBUG k");
    struct bytes header = chunks[0];
    for (header.n = 0; header.n < chunks[0].n; header.n++)
        LOAD(c, "-ERR received bad data...", "new", header);
    check_nothing(c, "new");
}

/* A header of 73 bytes that claims 2^40 bits; made by hand, as RedisBloom would write it. */
static void make_header(char header[73], uint64_t nbytes) {
    const double error = 0.005, bits_per_item = 11.03;
    const struct {
        size_t at, n;
        uint64_t value;
    } fields[] = {{8, 4, 1},           {12, 4, 5}, {16, 4, 2},      {20, 8, nbytes},
                  {28, 8, nbytes * 8}, {60, 4, 8}, {64, 8, 1000000}};
    memset(header, 0, 73);
    for (size_t i = 0; i < N(fields); i++)
        for (size_t j = 0; j < fields[i].n; j++)
            header[fields[i].at + j] = (char)(fields[i].value >> (8 * j));
    memcpy(header + 44, &error, 8);
    memcpy(header + 52, &bits_per_item, 8);
}

TEST(huge_redisbloom_headers_allocate_nothing) {
    Server *s = server_start(NULL);
    char header[73];
    make_header(header, (uint64_t)1 << 37);
    const long long before = server_info(s, "used_memory");
    for (int i = 0; i < 20; i++)
        EXPECT(s->client, "+OK", "BF.LOADCHUNK k%d 1 %b", i, header, sizeof header);
    CHECK(server_info(s, "used_memory") - before < 4 << 20);
    EXPECT(s->client, ":20", "DBSIZE");
}

/* Large data goes into many shards, each only where it has a bit. */
TEST(redisbloom_data_is_cut_into_shards) {
    Client *c = server_start_with("SHARD_SIZE 65536", NULL)->client;
    enum { NBYTES = 3000000, NCHUNK = 1000000 };
    char header[73], *bytes = keep(calloc(1, NBYTES));
    make_header(header, NBYTES);
    bytes[0] = 1;
    bytes[NBYTES - 1] = (char)0x80;
    EXPECT(c, "+OK", "BF.LOADCHUNK k 1 %b", header, sizeof header);
    for (int at = 0; at < NBYTES; at += NCHUNK)
        EXPECT(c, "+OK", "BF.LOADCHUNK k %d %b", 1 + at + NCHUNK, bytes + at, (size_t)NCHUNK);
    EXPECT(c, "*2 ...", "BF.SHARDS k");
    CHECK_INT(command_batches(c, "BF.MADD", "k", "i", 0, 5000), 5000);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 0, 5000), 5000);
    const redisReply *shards = command(c, "BF.SHARDS k");
    CHECK(shards->elements > 40);
    const redisReply *names = command(c, "KEYS bf:*");
    CHECK_UINT(names->elements, shards->elements);
    for (size_t i = 0; i < names->elements; i++)
        CHECK(command_int(c, "STRLEN %s", names->element[i]->str) <= 65536);
    /* A lost shard is noticed in this kind of layer too. */
    EXPECT(c, ":1", "DEL %s", names->element[3]->str);
    int nlost = 0;
    for (int i = 0; i < 200; i++)
        nlost += text_matches(command_text(c, "BF.EXISTS k i%d", i), "-SHARDLOST...");
    CHECK_RANGE(nlost, 1, 100);
    EXPECT(c, ":1", "BF.HEAL k");
    for (int i = 0; i < 200; i++) EXPECT(c, ":...", "BF.EXISTS k i%d", i);
}
