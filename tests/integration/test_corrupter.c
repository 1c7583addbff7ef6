/* Hostile bytes: DUMP payloads, RDB files, descriptors and shards, corrupted with a correct checksum. The server refuses
 * them or works with them; it never crashes, never takes memory out of proportion, and what it accepts keeps the
 * promises of any filter.
 *
 * Short and the same in every run; with SECONDS=n (make integration ONLY=corrupter SECONDS=n) each test goes on for that
 * long with new seeds. */
#include "check.h"
#include "client.h"
#include "corrupt.h"
#include "descriptor.h"
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PAYLOAD_HEAD = 240,    /* type, form, descriptor and the first shard's length */
    MAX_GROWTH = 64 << 20, /* a payload of a few KB must not cost more than this */
    AFFORDABLE = 2 << 20,  /* larger shards are not filled by this test: it would only be slow */
};

static const char *const shapes[][2] = {
    /* how it is made, items */
    {"BF.RESERVE %s 0.01 100 SEED 1", "50"},
    {"BF.RESERVE %s 0.01 3 NONSCALING SEED 2", "3"},
    {"BF.RESERVE %s 0.001 10 SEED 3", "500"},                  /* several layers */
    {"BF.RESERVE %s 0.001 1 EXPANSION 1 SEED 4", "40"},        /* many layers */
    {"BF.RESERVE %s 0.001 20000 SHARDSIZE 4096 SEED 5", "20"}, /* several shards, not all */
    {"BF.RESERVE %s 0.0001 100000 SHARDSIZE 4096 SEED 6", "2"},
    {"BF.RESERVE %s 0.000001 2000 SHARDSIZE 8192 NONSCALING SEED 7", "100"},
    {"BF.RESERVE %s 0.25 1 SEED 8", "1"},
    {"BF.RESERVE %s 0.01 1000000000 SEED 9", "0"}, /* empty */
};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

/* ---- how long ---- */

static time_t deadline;

static bool in_detail(void) {
    const char *seconds = getenv("TEST_SECONDS");
    return seconds && *seconds;
}

/* True for `nshort` calls, or until the given time is over. */
static bool go_on(int done, int nshort) {
    if (!in_detail()) return done < nshort;
    if (done == 0) deadline = time(NULL) + atoi(getenv("TEST_SECONDS"));
    return time(NULL) < deadline;
}

/* ---- replies, freed at once: there are very many ---- */

/* The reply as text; valid until the 8th next call. */
static const char *ask(Client *c, const char *format, ...) {
    static char *texts[8];
    static unsigned at;
    char **text = &texts[at++ % 8];
    va_list args;
    va_start(args, format);
    redisReply *r = c->redis ? redisvCommand(c->redis, format, args) : NULL;
    va_end(args);
    free(*text);
    *text = r ? reply_text(r) : strdup("connection lost");
    if (r) freeReplyObject(r);
    return *text;
}

static bool is_error(const char *text) {
    return *text == '-';
}

static bool alive(Client *c) {
    return strcmp(ask(c, "PING"), "+PONG") == 0;
}

static Bytes ask_bytes(Client *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    redisReply *r = c->redis ? redisvCommand(c->redis, format, args) : NULL;
    va_end(args);
    const bool found = r && r->type == REDIS_REPLY_STRING;
    Bytes bytes = bytes_copy(found ? r->str : "", found ? (size_t)r->len : 0);
    if (r) freeReplyObject(r);
    return bytes;
}

static void print_bytes(const char *what, const Bytes *bytes) {
    printf("    %s:", what);
    for (size_t i = 0; i < bytes->nbytes && i < 4000; i++) printf(" %02x", bytes->data[i]);
    printf("%s\n", bytes->nbytes > 4000 ? " ..." : "");
}

static void make_shape(Client *c, int shape, const char *key) {
    char reserve[256];
    snprintf(reserve, sizeof reserve, shapes[shape][0], key);
    EXPECT(c, "+OK", reserve);
    const int nitems = atoi(shapes[shape][1]);
    if (nitems > 0) command_batches(c, "BF.MADD", key, "i", 0, nitems);
}

/* ---- what must hold of a filter that was accepted ---- */

/* The largest shard that adding or healing could make, and how many of the created ones there are. */
static void describe(Client *c, const char *key, size_t *shard_bytes, uint64_t *ncreated) {
    Bytes bytes = ask_bytes(c, "BF.DESCRIPTOR %s", key);
    const char *problem;
    struct descriptor *descriptor = descriptor_decode(bytes.data, bytes.nbytes, &problem);
    *shard_bytes = SIZE_MAX;
    *ncreated = 0;
    if (CHECK(descriptor != NULL)) {
        *shard_bytes = 0;
        *ncreated = descriptor_nshards(descriptor);
        for (uint32_t i = 0; i < descriptor->nlayers; i++) {
            const size_t nbytes = layout_shard_bytes(&descriptor->layers[i].layout);
            if (nbytes > *shard_bytes) *shard_bytes = nbytes;
        }
    }
    descriptor_free(descriptor);
    bytes_free(&bytes);
}

static void check_counts(Client *c, const char *key) {
    const long long nitems = atoll(ask(c, "BF.CARD %s", key) + 1);
    long long capacity = -1;
    const char *info = ask(c, "BF.INFO %s CAPACITY", key);
    CHECK(sscanf(info, "*1 :%lld", &capacity) == 1);
    CHECK(nitems >= 0 && nitems <= capacity);
}

/* Adds an item by some command: afterwards it is there, or the reply was an error. */
static void check_adding(Client *c, const char *key, int n) {
    static const char *const formats[] = {"BF.ADD %s new%d", "BF.MADD %s new%d new%d",
                                          "BF.INSERT %s ITEMS new%d x"};
    const char *format = formats[corrupt_draw(3)];
    const char *added = ask(c, format, key, n, n);
    if (strstr(added, "-")) return;
    const char *found = ask(c, "BF.EXISTS %s new%d", key, n);
    if (strcmp(found, ":1")) CHECK_FAIL("%s answered %s, then BF.EXISTS %s", format, added, found);
}

/* What can be read can be written, dumped, copied, renamed and removed. */
static void check_travel(Client *c, const char *key) {
    Bytes dump = ask_bytes(c, "DUMP %s", key);
    CHECK_STR(ask(c, "RESTORE again 0 %b REPLACE", dump.data, dump.nbytes), "+OK");
    CHECK_STR(ask(c, "BF.CARD again"), ask(c, "BF.CARD %s", key));
    bytes_free(&dump);
    CHECK_STR(ask(c, "COPY %s copy", key), ":1");
    CHECK_STR(ask(c, "RENAME copy renamed"), "+OK");
    CHECK_STR(ask(c, "BF.CARD renamed"), ask(c, "BF.CARD %s", key));
    ask(c, "BF.ADD renamed x");
    CHECK_STR(ask(c, "UNLINK renamed again"), ":2");
}

static void exercise(Client *c, const char *key, int n) {
    size_t shard_bytes;
    uint64_t ncreated;
    describe(c, key, &shard_bytes, &ncreated);
    check_counts(c, key);
    ask(c, "BF.MEXISTS %s a i1 i2 i3", key);
    ask(c, "BF.SHARDS %s", key);
    ask(c, "MEMORY USAGE %s", key);
    ask(c, "DEBUG DIGEST-VALUE %s", key);
    CHECK(is_error(ask(c, "BF.RESERVE %s 0.01 10", key)));
    if (shard_bytes > AFFORDABLE || ncreated * shard_bytes > AFFORDABLE) return;
    check_adding(c, key, n);
    check_travel(c, key);
    if (corrupt_draw(3) == 0) {
        CHECK(!is_error(ask(c, "BF.HEAL %s", key)));
        CHECK_STR(ask(c, "BF.HEAL %s", key), ":0");
        check_adding(c, key, n + 1);
        CHECK(!is_error(ask(c, "BF.EXISTS %s any", key)));
    }
    check_counts(c, key);
}

/* ---- the whole server ---- */

static void persist(Server *s) {
    server_wait_info(s, "rdb_bgsave_in_progress", "0");
    server_wait_info(s, "aof_rewrite_in_progress", "0");
    CHECK(!is_error(ask(s->client, "BGSAVE")));
    server_wait_info(s, "rdb_bgsave_in_progress", "0");
    server_wait_info(s, "rdb_last_bgsave_status", "ok");
    CHECK_STR(ask(s->client, "DEBUG RELOAD"), "+OK");
    CHECK(!is_error(ask(s->client, "BGREWRITEAOF")));
    server_wait_info(s, "aof_rewrite_in_progress", "0");
    server_wait_info(s, "aof_last_bgrewrite_status", "ok");
}

/* All goes away, shards included. */
static void check_cleaned_up(Server *s, long long used_before) {
    CHECK_STR(ask(s->client, "FLUSHALL"), "+OK");
    ask(s->client, "MEMORY PURGE");
    CHECK_RANGE((double)server_info(s, "used_memory"), 0, (double)used_before + MAX_GROWTH);
    CHECK_INT(command_int(s->client, "DBSIZE"), 0);
}

/* Filters that died have left no shards behind. */
static void wait_for_sweeper(Server *s) {
    server_wait_info(s, "bf_sweeps_pending", "0");
}

TEST(checksum_is_the_servers) {
    CHECK_UINT(crc64("123456789", 9), 0xe9c6d914c4b8d9ca);
}

/* ---- RESTORE ---- */

static void take_dumps(Client *c, Bytes dumps[NSHAPES]) {
    for (int i = 0; i < NSHAPES; i++) {
        make_shape(c, i, "shape");
        dumps[i] = ask_bytes(c, "DUMP shape");
        CHECK(dumps[i].nbytes > 60);
        EXPECT(c, ":1", "DEL shape");
    }
}

/* One corrupted payload; true if it was accepted. */
static bool restore_one(Client *c, const Bytes dumps[NSHAPES], int n) {
    Bytes bytes = bytes_copy(dumps[n % NSHAPES].data, dumps[n % NSHAPES].nbytes);
    /* The version in front of the checksum stays right most of the time: else nothing else is looked at. */
    uint8_t version[2];
    memcpy(version, bytes.data + bytes.nbytes - 10, 2);
    corrupt(&bytes, &dumps[corrupt_draw(NSHAPES)], PAYLOAD_HEAD);
    if (bytes.nbytes >= 10 && corrupt_draw(20)) memcpy(bytes.data + bytes.nbytes - 10, version, 2);
    crc64_seal(&bytes);
    const unsigned before = check_failures();
    char key[16];
    snprintf(key, sizeof key, "k%d", n % 7);
    const char *reply = ask(c, "RESTORE %s 0 %b REPLACE", key, bytes.data, bytes.nbytes);
    /* With another type byte it may have become a value of the server's own. */
    const bool accepted =
        strcmp(reply, "+OK") == 0 && strcmp(ask(c, "TYPE %s", key), "+bf-shards") == 0;
    if (accepted) {
        exercise(c, key, n);
        if (corrupt_draw(4)) ask(c, "DEL %s", key);
    }
    if (!alive(c)) CHECK_FAIL("the server is gone after payload %d", n);
    if (check_failures() > before) print_bytes("after the payload", &bytes);
    bytes_free(&bytes);
    return accepted;
}

static void check_restore(const char *compression) {
    char config[128];
    snprintf(config, sizeof config,
             "appendonly yes\nappendfsync no\nauto-aof-rewrite-percentage 0\nrdbcompression %s",
             compression);
    Server *s = server_start(config), *replica = server_start(strrchr(config, '\n') + 1);
    Client *c = s->client;
    Bytes dumps[NSHAPES];
    take_dumps(c, dumps);
    server_follow(replica, s);
    const long long used = server_info(s, "used_memory");
    int done = 0, naccepted = 0;
    for (; go_on(done, 1200); done++) {
        naccepted += restore_one(c, dumps, done);
        if (check_failures() > 3) return;
        if (done % 400 == 399) {
            persist(s);
            CHECK_RANGE((double)server_info(s, "used_memory_peak"), 0, (double)used + MAX_GROWTH);
        }
    }
    CHECK(naccepted > done / 50 && naccepted < done);
    if (in_detail()) printf("    %d payloads, %d accepted\n", done, naccepted);
    /* Shards of payloads that were refused halfway are on the primary alone, until they are swept. */
    wait_for_sweeper(s);
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    ask(c, "DEL k0 k1 k2");
    wait_for_sweeper(s);
    CHECK_STR(ask(c, "KEYS bf:{k[012]}*"), "*0");
    CHECK_STR(ask(c, "KEYS bf:{again}*"), "*0");
    CHECK_STR(ask(c, "KEYS bf:{copy}*"), "*0");
    wait_for_sweeper(s);
    Snapshot *before = snapshot_take(s);
    server_restart(s, STOP_NOSAVE);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    check_cleaned_up(s, used);
    for (int i = 0; i < NSHAPES; i++) bytes_free(&dumps[i]);
}

TEST(corrupted_dumps) {
    corrupt_seed(1);
    check_restore("no");
}

TEST(corrupted_compressed_dumps) {
    corrupt_seed(2);
    check_restore("yes");
}

/* ---- BF.DESCRIPTOR ---- */

TEST(corrupted_descriptors) {
    Server *s = server_start("appendonly yes\nappendfsync no");
    Client *c = s->client;
    Bytes bytes[NSHAPES];
    int done = 0, naccepted = 0;
    corrupt_seed(3);
    for (int i = 0; i < NSHAPES; i++) {
        make_shape(c, i, "shape");
        bytes[i] = ask_bytes(c, "BF.DESCRIPTOR shape");
        EXPECT(c, ":1", "DEL shape");
    }
    for (; go_on(done, 1500) && check_failures() < 4; done++) {
        Bytes wrong = bytes_copy(bytes[done % NSHAPES].data, bytes[done % NSHAPES].nbytes);
        corrupt(&wrong, &bytes[corrupt_draw(NSHAPES)], PAYLOAD_HEAD);
        /* Often onto a filter that is there: with the same id it is replaced. */
        const char *key = corrupt_draw(2) ? "d" : "e";
        if (strcmp(ask(c, "BF.DESCRIPTOR %s %b", key, wrong.data, wrong.nbytes), "+OK") == 0) {
            naccepted++;
            exercise(c, key, done);
            if (corrupt_draw(3)) ask(c, "DEL %s", key);
        }
        if (corrupt_draw(8) == 0) ask(c, "DEL %s", key);
        if (!alive(c)) CHECK_FAIL("the server is gone after descriptor %d", done);
        if (check_failures()) print_bytes("after the descriptor", &wrong);
        bytes_free(&wrong);
        if (done % 500 == 499) persist(s);
    }
    CHECK(naccepted > done / 50 && naccepted < done);
    if (in_detail()) printf("    %d descriptors, %d accepted\n", done, naccepted);
    wait_for_sweeper(s);
    Snapshot *before = snapshot_take(s);
    server_restart(s, STOP_NOSAVE);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    for (int i = 0; i < NSHAPES; i++) bytes_free(&bytes[i]);
}

/* ---- shards that somebody wrote to ---- */

/* Does something to the shard; the header must be intact for it to be used. */
static void damage(Client *c, const char *shard, size_t nbytes) {
    const unsigned offset = corrupt_draw((unsigned)nbytes), n = corrupt_draw(64);
    uint8_t noise[64];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)corrupt_draw(256);
    switch (corrupt_draw(10)) {
    case 0:
        ask(c, "SETRANGE %s %u %b", shard, offset, noise, (size_t)n);
        break;
    case 1:
        ask(c, "SETRANGE %s %u %b", shard, corrupt_draw(55), noise, (size_t)n);
        break;
    case 2:
        ask(c, "SET %s %b", shard, noise, (size_t)n);
        break;
    case 3:
        ask(c, "SET %s 12345", shard); /* kept by the server as a number */
        break;
    case 4:
        ask(c, "APPEND %s %b", shard, noise, (size_t)n);
        break;
    case 5:
        ask(c, "SETBIT %s %u %u", shard, offset * 8 + n % 8, n % 2);
        break;
    case 6:
        ask(c, "EVAL %s 1 %s",
            "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, -2))", shard);
        break;
    case 7:
        ask(c, "EVAL %s 1 %s",
            "local n = redis.call('STRLEN', KEYS[1]) redis.call('SET', KEYS[1], "
            "string.rep('x', n))",
            shard);
        break;
    case 8:
        ask(c, "DEL %s", shard);
        if (n % 2) ask(c, "RPUSH %s a b c", shard);
        break;
    default:
        ask(c, "EXPIRE %s %d", shard, n % 2 ? 1000 : 0);
    }
}

/* The shards of the filter, by name and length. */
static redisReply *shards_of(Client *c, const char *key) {
    return c->redis ? redisCommand(c->redis, "BF.SHARDS %s", key) : NULL;
}

TEST(overwritten_shards) {
    Server *s = server_start("appendonly yes\nappendfsync no");
    Client *c = s->client;
    int done = 0, nlost = 0;
    corrupt_seed(4);
    for (int i = 0; i < NSHAPES; i++) {
        char key[16];
        snprintf(key, sizeof key, "f%d", i);
        make_shape(c, i, key);
    }
    for (; go_on(done, 1000) && check_failures() < 4; done++) {
        char key[16];
        snprintf(key, sizeof key, "f%u", corrupt_draw(NSHAPES - 1));
        redisReply *shards = shards_of(c, key);
        REQUIRE(shards && shards->type == REDIS_REPLY_ARRAY && shards->elements > 0);
        const redisReply *one = shards->element[corrupt_draw((unsigned)shards->elements)];
        damage(c, one->element[1]->str, (size_t)one->element[7]->integer);
        freeReplyObject(shards);
        const char *reply = ask(c, "BF.MEXISTS %s i0 i1 i2 i3 i4 i5", key);
        CHECK(*reply == '*' || strncmp(reply, "-SHARDLOST ", 11) == 0);
        nlost += *reply == '-';
        exercise(c, key, done);
        if (!alive(c)) CHECK_FAIL("the server is gone after change %d", done);
        if (done % 500 == 499) persist(s);
    }
    CHECK(nlost > 0 && nlost < done);
    for (int i = 0; i < NSHAPES - 1; i++) {
        char key[16];
        snprintf(key, sizeof key, "f%d", i);
        CHECK(!is_error(ask(c, "BF.HEAL %s", key)));
        CHECK(!is_error(ask(c, "BF.MEXISTS %s i0 i1 i2 i3 i4 i5", key)));
    }
    wait_for_sweeper(s);
    Snapshot *before = snapshot_take(s);
    server_restart(s, STOP_NOSAVE);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
}

/* ---- RDB files ---- */

static bool write_file(Server *s, const char *name, const Bytes *bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    FILE *f = fopen(path, "wb");
    const bool ok = f && fwrite(bytes->data, 1, bytes->nbytes, f) == bytes->nbytes;
    if (f) fclose(f);
    return CHECK(ok);
}

/* All shapes, and one filter that is dead but not swept, in a file. */
static Bytes make_rdb(Server *s) {
    for (int i = 0; i < NSHAPES; i++) {
        char key[16];
        snprintf(key, sizeof key, "f%d", i);
        make_shape(s->client, i, key);
    }
    make_shape(s->client, 4, "dead");
    /* In one packet, so that the sweeper does not run in between. */
    redisAppendCommand(s->client->redis, "DEL dead");
    redisAppendCommand(s->client->redis, "SAVE");
    for (int i = 0; i < 2; i++) {
        redisReply *r = NULL;
        CHECK(redisGetReply(s->client->redis, (void **)&r) == REDIS_OK);
        if (r) freeReplyObject(r);
    }
    size_t nbytes;
    char *content = server_read_file(s, "dump.rdb", &nbytes);
    Bytes bytes = bytes_copy(content ? content : "", content ? nbytes : 0);
    free(content);
    return bytes;
}

/* Corrupts near one of the descriptors, since most of a file is bits and other people's keys. */
static void corrupt_rdb(Bytes *bytes) {
    const uint8_t *found[64];
    unsigned nfound = 0;
    for (const uint8_t *at = bytes->data, *end = at + bytes->nbytes; nfound < 64; at++) {
        at = memmem(at, (size_t)(end - at), "BFD", 3);
        if (!at) break;
        found[nfound++] = at;
    }
    if (nfound == 0) return;
    const size_t at = (size_t)(found[corrupt_draw(nfound)] - bytes->data);
    const size_t start = at > 24 ? at - 24 : 0;
    Bytes tail = bytes_copy(bytes->data + start, bytes->nbytes - start);
    /* From another descriptor only: whole keys that come twice are a panic of the server's own. */
    const size_t other = (size_t)(found[corrupt_draw(nfound)] - bytes->data);
    const size_t rest = bytes->nbytes - other;
    Bytes part = bytes_copy(bytes->data + other, rest < 140 ? rest : 140);
    corrupt(&tail, &part, 140);
    bytes_free(&part);
    Bytes whole = bytes_copy(bytes->data, start);
    whole.data = realloc(whole.data, start + tail.nbytes + 1);
    memcpy(whole.data + start, tail.data, tail.nbytes);
    whole.nbytes = start + tail.nbytes;
    bytes_free(&tail);
    bytes_free(bytes);
    *bytes = whole;
}

/* A server on a wrong file: it refuses in words, or comes up and works. */
TEST(corrupted_rdb_files) {
    Server *s = server_start("rdbcompression no");
    Bytes good = make_rdb(s);
    int done = 0, nrefused = 0;
    corrupt_seed(5);
    REQUIRE(good.nbytes > 1000);
    for (; go_on(done, 30) && check_failures() < 4; done++) {
        const unsigned before = check_failures();
        Bytes wrong = bytes_copy(good.data, good.nbytes);
        corrupt_rdb(&wrong);
        crc64_seal(&wrong);
        server_stop(s, STOP_KILL);
        if (!write_file(s, "dump.rdb", &wrong)) return;
        const bool up = server_try_up(s);
        nrefused += !up;
        if (up) {
            for (int i = 0; i < NSHAPES - 1; i++) {
                char key[16];
                snprintf(key, sizeof key, "f%d", i);
                if (strcmp(ask(s->client, "TYPE %s", key), "+bf-shards") == 0)
                    exercise(s->client, key, i);
            }
            CHECK(alive(s->client));
            CHECK_STR(ask(s->client, "DEBUG RELOAD"), "+OK");
        }
        if (check_failures() > before) print_bytes("the file", &wrong);
        bytes_free(&wrong);
    }
    CHECK(nrefused > 0 && nrefused < done);
    if (in_detail()) printf("    %d files, %d refused\n", done, nrefused);
    server_stop(s, STOP_KILL);
    if (!write_file(s, "dump.rdb", &good)) return;
    server_up(s);
    CHECK_INT(command_batches(s->client, "BF.MEXISTS", "f2", "i", 0, 500), 500);
    bytes_free(&good);
}
