/* Hostile bytes: DUMP payloads, chunks, RDB files, descriptors and shards, corrupted with a correct
 * checksum. The server refuses them or works with them; it never crashes, never takes memory out of
 * proportion, and what it accepts keeps the promises of any filter.
 *
 * Short and the same in every run; with SECONDS=n (make integration ONLY=corrupter SECONDS=n) each
 * test goes on for that long with new seeds. */
#include "check.h"
#include "core/chunk.h"
#include "client.h"
#include "corrupt.h"
#include "primary.h"
#include "core/encoding.h"
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
    {"BF.RESERVE %s 0.01 400000 SHARDSIZE 131072 NONSCALING SEED 10", "40"}, /* young shards */
    {"BF.RESERVE %s 0.01 60000 SEED 11", "120"},                             /* near its turn */
    {"BF.RESERVE %s 0.01 60000 SEED 12", "200"},                             /* it has turned */
    {"BF.RESERVE %s 0.01 50 SHARDSIZE 90000 EXPANSION 2000 SEED 13", "250"}, /* young layer */
    {"BF.RESERVE %s 0.001 40 WINDOW 3600 SLICES 4 SEED 14", "200"},          /* forgets */
    {"BF.RESERVE %s 0.01 40 WINDOW 3600 SLIDING NONSCALING SEED 15", "10"},
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

/* The largest shard that adding or healing could make, how many of the created ones there are, and
 * whether all layers were made by us. */
static void describe(Client *c, const char *key, size_t *shard_bytes, uint64_t *ncreated,
                     bool *ours) {
    Bytes bytes = ask_bytes(c, "BF.DESCRIPTOR %s", key);
    const char *problem;
    struct descriptor *descriptor = descriptor_decode(bytes.data, bytes.nbytes, &problem);
    *shard_bytes = SIZE_MAX;
    *ncreated = 0;
    *ours = true;
    if (CHECK(descriptor != NULL)) {
        *shard_bytes = 0;
        *ncreated = descriptor_nshards(descriptor);
        for (uint32_t i = 0; i < descriptor->nlayers; i++) {
            const size_t nbytes = layout_shard_bytes(&descriptor->layers[i].layout);
            if (nbytes > *shard_bytes) *shard_bytes = nbytes;
            if (descriptor->layers[i].kind != LAYER_BLOCKED) *ours = false;
        }
    }
    descriptor_free(descriptor);
    bytes_free(&bytes);
}

/* What others have counted is taken as it is: then a layer may hold more than its capacity. */
static void check_counts(Client *c, const char *key, bool ours) {
    const long long nitems = atoll(ask(c, "BF.CARD %s", key) + 1);
    long long capacity = -1;
    const char *info = ask(c, "BF.INFO %s CAPACITY", key);
    CHECK(sscanf(info, "*1 :%lld", &capacity) == 1);
    CHECK(nitems >= 0 && capacity > 0);
    if (ours) CHECK(nitems <= 64ll << 40); /* a union may have more than its capacity */
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
    bool ours;
    describe(c, key, &shard_bytes, &ncreated, &ours);
    check_counts(c, key, ours);
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
    check_counts(c, key, ours);
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

/* The replica has the same, and the filters that were made leave no shards behind. */
static void check_replica_and_death(Server *s, Server *replica) {
    wait_for_sweeper(s);
    server_wait_for_replica(s, replica);
    CHECK_SAME_DATA(s, replica);
    ask(s->client, "DEL k0 k1 k2");
    wait_for_sweeper(s);
    CHECK_STR(ask(s->client, "KEYS bf:{k[012]}*"), "*0");
}

static void check_restart(Server *s) {
    Snapshot *before = snapshot_take(s);
    server_restart(s, STOP_NOSAVE);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
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
    /* The version in front of the checksum stays right most of the time: else nothing else is
     * looked at. */
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

/* Redis 8.6 counts the peak at each allocation, and so also what it takes itself, for a moment,
 * when it unpacks a string whose forged length says 4 GB: a plain string does the same there
 * without any module. So with compression it is what is in use after each payload that must stay
 * small, and without it also what was in use while it was read. */
static void check_memory(Server *s, bool compressed, double limit) {
    CHECK_RANGE((double)server_info(s, compressed ? "used_memory" : "used_memory_peak"), 0, limit);
}

static void check_restore(const char *compression) {
    const bool compressed = strcmp(compression, "yes") == 0;
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
        check_memory(s, compressed, (double)used + MAX_GROWTH);
        if (done % 400 == 399) persist(s);
    }
    CHECK(naccepted > done / 50 && naccepted < done);
    if (in_detail()) printf("    %d payloads, %d accepted\n", done, naccepted);
    /* Shards of payloads that were refused halfway are on the primary alone, until they are
     * swept. */
    check_replica_and_death(s, replica);
    CHECK_STR(ask(c, "KEYS bf:{again}*"), "*0");
    CHECK_STR(ask(c, "KEYS bf:{copy}*"), "*0");
    wait_for_sweeper(s);
    check_restart(s);
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

/* ---- BF.LOADCHUNK ---- */

enum {
    MAX_PIECES = 64,
    CHUNK_HEAD = 40, /* of ours: the frame in front of the body, and the checksum behind it */
    CHUNK_TAIL = 8,
};

/* A chunk, and the iterator that BF.LOADCHUNK is given with it. */
typedef struct {
    uint64_t iterator;
    Bytes bytes;
} Piece;

typedef struct {
    Piece pieces[MAX_PIECES];
    unsigned n;
} Stream;

static void stream_insert(Stream *stream, unsigned at, uint64_t iterator, const void *bytes,
                          size_t nbytes) {
    if (stream->n == MAX_PIECES) return;
    if (at > stream->n) at = stream->n;
    Piece *place = stream->pieces + at;
    memmove(place + 1, place, (stream->n - at) * sizeof *place);
    *place = (Piece){iterator, bytes_copy(bytes, nbytes)};
    stream->n++;
}

static void stream_append(Stream *stream, uint64_t iterator, const void *bytes, size_t nbytes) {
    stream_insert(stream, stream->n, iterator, bytes, nbytes);
}

static void stream_remove(Stream *stream, unsigned at) {
    bytes_free(&stream->pieces[at].bytes);
    stream->n--;
    memmove(stream->pieces + at, stream->pieces + at + 1,
            (stream->n - at) * sizeof *stream->pieces);
}

static void stream_free(Stream *stream) {
    while (stream->n > 0) stream_remove(stream, stream->n - 1);
}

static Stream stream_copy(const Stream *stream) {
    Stream copy = {.n = 0};
    for (unsigned i = 0; i < stream->n; i++)
        stream_append(&copy, stream->pieces[i].iterator, stream->pieces[i].bytes.data,
                      stream->pieces[i].bytes.nbytes);
    return copy;
}

/* Everything that BF.SCANDUMP gives; empty if it does not answer. */
static Stream scandump(Client *c, const char *key) {
    Stream stream = {.n = 0};
    for (uint64_t iterator = 0; c->redis && stream.n < MAX_PIECES;) {
        redisReply *r =
            redisCommand(c->redis, "BF.SCANDUMP %s %llu", key, (unsigned long long)iterator);
        const bool more = r && r->type == REDIS_REPLY_ARRAY && r->element[0]->integer != 0;
        if (more) {
            iterator = (uint64_t)r->element[0]->integer;
            stream_append(&stream, iterator, r->element[1]->str, (size_t)r->element[1]->len);
        }
        if (r) freeReplyObject(r);
        if (!more) break;
    }
    return stream;
}

/* A data chunk of a small filter holds all of it: cut into chunks of one part each, so that there
 * is something to lose, to repeat and to reorder. */
static Stream split(const Stream *whole) {
    Stream fine = {.n = 0};
    struct chunk header, chunk;
    const char *problem = NULL;
    chunk_open(whole->pieces[0].bytes.data, whole->pieces[0].bytes.nbytes, &header);
    struct descriptor *descriptor = chunk_read_header(&header, &problem);
    for (unsigned i = 0; descriptor && i < whole->n; i++) {
        const Bytes *bytes = &whole->pieces[i].bytes;
        if (!CHECK(!chunk_open(bytes->data, bytes->nbytes, &chunk))) break;
        if (chunk.type != CHUNK_DATA) {
            stream_append(&fine, whole->pieces[i].iterator, bytes->data, bytes->nbytes);
            continue;
        }
        struct part part;
        uint64_t from = chunk.from;
        for (size_t at = 0; chunk_read_part(&chunk, &at, &part);) {
            uint64_t position = 1 + part.shard;
            for (uint32_t j = 0; j < part.layer; j++)
                position += descriptor->layers[j].layout.nshards;
            const uint64_t to = (from >> 31 << 31) + position + 1;
            Bytes one = bytes_copy(bytes->data, CHUNK_HEAD + 16 + part.nbytes + CHUNK_TAIL);
            chunk_put_part(chunk_begin_data(descriptor, from, to, one.data), &part);
            chunk_seal(one.data, one.nbytes);
            stream_append(&fine, to, one.data, one.nbytes);
            bytes_free(&one);
            from = to;
        }
        CHECK_UINT(from, chunk.to);
    }
    CHECK(!problem);
    descriptor_free(descriptor);
    return fine;
}

static bool is_ours(const Bytes *bytes) {
    return chunk_is_ours(bytes->data, bytes->nbytes) && bytes->nbytes >= CHUNK_HEAD + CHUNK_TAIL;
}

/* The frame says which iterator follows; the caller of BF.LOADCHUNK must say the same. */
static uint64_t announced(const Bytes *bytes) {
    uint64_t to = 0;
    for (int i = 7; i >= 0; i--) to = to << 8 | bytes->data[32 + i];
    return to;
}

/* Changes bytes; of our own chunks mostly the body alone, and mostly with the right checksum. */
static void corrupt_piece(Piece *piece, const Piece *other) {
    Bytes *bytes = &piece->bytes;
    if (is_ours(bytes) && corrupt_draw(4)) {
        Bytes body = bytes_copy(bytes->data + CHUNK_HEAD, bytes->nbytes - CHUNK_HEAD - CHUNK_TAIL);
        corrupt(&body, &other->bytes, PAYLOAD_HEAD);
        bytes->data = realloc(bytes->data, CHUNK_HEAD + body.nbytes + CHUNK_TAIL);
        memcpy(bytes->data + CHUNK_HEAD, body.data, body.nbytes);
        memset(bytes->data + CHUNK_HEAD + body.nbytes, 0, CHUNK_TAIL);
        bytes->nbytes = CHUNK_HEAD + body.nbytes + CHUNK_TAIL;
        bytes_free(&body);
    } else {
        corrupt(bytes, &other->bytes, PAYLOAD_HEAD);
    }
    if (!is_ours(bytes)) return;
    if (corrupt_draw(8)) chunk_seal(bytes->data, bytes->nbytes);
    if (corrupt_draw(8)) piece->iterator = announced(bytes);
}

static uint64_t wrong_iterator(uint64_t right) {
    const uint64_t wrong[] = {0,          1,          2,          right + 1,
                              right - 1,  right << 1, INT64_MAX,  (uint64_t)1 << 63,
                              UINT64_MAX, right + 64, right - 64, right ^ (uint64_t)1 << 52};
    return wrong[corrupt_draw(sizeof wrong / sizeof *wrong)];
}

/* One to three changes to the order, the iterators, or the bytes. */
static void corrupt_stream(Stream *stream, const Stream *other) {
    for (unsigned n = 1 + corrupt_draw(3) * corrupt_draw(2); n > 0 && stream->n > 0; n--) {
        const unsigned at = corrupt_draw(stream->n), to = corrupt_draw(stream->n);
        const Piece *foreign = &other->pieces[corrupt_draw(other->n)];
        Piece *piece = &stream->pieces[at];
        switch (corrupt_draw(10)) {
        case 0:
            stream_remove(stream, at);
            break;
        case 1:
            stream_insert(stream, corrupt_draw(2) ? at : to, piece->iterator, piece->bytes.data,
                          piece->bytes.nbytes);
            break;
        case 2: {
            const Piece moved = *piece;
            *piece = stream->pieces[to];
            stream->pieces[to] = moved;
            break;
        }
        case 3:
            stream_insert(stream, at, foreign->iterator, foreign->bytes.data,
                          foreign->bytes.nbytes);
            break;
        case 4:
            piece->iterator = wrong_iterator(piece->iterator);
            break;
        default: /* the header more often than its share: the others hang on it */
            corrupt_piece(corrupt_draw(3) ? piece : stream->pieces, foreign);
        }
    }
}

/* A refused chunk has changed nothing: no key came to be, and a half-loaded filter waits for the
 * same as before. */
static bool load_piece(Client *c, const char *key, const Piece *piece) {
    Bytes before = ask_bytes(c, "BF.DESCRIPTOR %s", key);
    const bool refused =
        is_error(ask(c, "BF.LOADCHUNK %s %llu %b", key, (unsigned long long)piece->iterator,
                     piece->bytes.data, piece->bytes.nbytes));
    Bytes after = ask_bytes(c, "BF.DESCRIPTOR %s", key);
    if (refused) {
        CHECK_MEM(after.data, after.nbytes, before.data, before.nbytes);
        if (before.nbytes == 0) CHECK_STR(ask(c, "EXISTS %s", key), ":0");
    } else {
        CHECK(after.nbytes > 0);
    }
    bytes_free(&before);
    bytes_free(&after);
    return !refused;
}

static bool is_half_loaded(Client *c, const char *key) {
    return strncmp(ask(c, "BF.CARD %s", key), "-HALFLOADED ", 12) == 0;
}

/* Nothing can be asked of it, but it is a key like any other. */
static void exercise_half_loaded(Client *c, const char *key) {
    static const char *const refused[] = {
        "BF.ADD %s x",     "BF.MADD %s x y", "BF.INSERT %s ITEMS x", "BF.EXISTS %s x",
        "BF.MEXISTS %s x", "BF.SHARDS %s",   "BF.HEAL %s",           "BF.SCANDUMP %s 0",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK(strncmp(ask(c, refused[i], key), "-HALFLOADED ", 12) == 0);
    CHECK(!is_error(ask(c, "BF.INFO %s", key)));
    ask(c, "DEBUG DIGEST-VALUE %s", key);
    ask(c, "MEMORY USAGE %s", key);
    check_travel(c, key);
    CHECK_STR(ask(c, "RENAME %s moved", key), "+OK");
    CHECK_STR(ask(c, "RENAME moved %s", key), "+OK");
}

/* What was loaded can be handed on, and is the same at its destination. */
static void check_handing_on(Client *c, const char *key) {
    Stream again = scandump(c, key);
    CHECK(again.n >= 2);
    for (unsigned i = 0; i < again.n; i++) CHECK(load_piece(c, "handed", &again.pieces[i]));
    CHECK_STR(ask(c, "BF.CARD handed"), ask(c, "BF.CARD %s", key));
    CHECK_STR(ask(c, "DEBUG DIGEST-VALUE handed"), ask(c, "DEBUG DIGEST-VALUE %s", key));
    CHECK_STR(ask(c, "UNLINK handed"), ":1");
    stream_free(&again);
}

/* One stream with something wrong; what is refused is sometimes followed by what is right. True if
 * a filter came of it. */
static bool load_one(Client *c, const Stream *streams, unsigned nstreams, int n) {
    const Stream *right = &streams[corrupt_draw(nstreams)];
    Stream wrong = stream_copy(right);
    corrupt_stream(&wrong, &streams[corrupt_draw(nstreams)]);
    char key[16];
    snprintf(key, sizeof key, "k%d", n % 7);
    ask(c, "DEL %s", key);
    const unsigned before = check_failures();
    for (unsigned i = 0; i < wrong.n; i++) {
        const bool loaded = load_piece(c, key, &wrong.pieces[i]);
        if (loaded && corrupt_draw(12) == 0 && is_half_loaded(c, key)) exercise_half_loaded(c, key);
        if (!loaded && i < right->n && corrupt_draw(2)) load_piece(c, key, &right->pieces[i]);
    }
    const bool there = strcmp(ask(c, "EXISTS %s", key), ":1") == 0;
    const bool complete = there && !is_half_loaded(c, key);
    if (there && !complete) exercise_half_loaded(c, key);
    if (complete) {
        check_handing_on(c, key);
        exercise(c, key, n);
    }
    if (!alive(c)) CHECK_FAIL("the server is gone after stream %d", n);
    for (unsigned i = 0; check_failures() > before && i < wrong.n; i++) {
        printf("    with iterator %llu\n", (unsigned long long)wrong.pieces[i].iterator);
        print_bytes("chunk", &wrong.pieces[i].bytes);
    }
    stream_free(&wrong);
    return complete;
}

static void check_streams(const Stream *streams, unsigned nstreams) {
    Server *s = server_start_with("SHARD_SIZE 65536", "appendonly yes\nappendfsync no\n"
                                                      "auto-aof-rewrite-percentage 0");
    Server *replica = server_start(NULL);
    Client *c = s->client;
    server_follow(replica, s);
    for (unsigned i = 0; i < nstreams; i++) { /* unchanged, all are taken */
        for (unsigned j = 0; j < streams[i].n; j++)
            CHECK(load_piece(c, "good", &streams[i].pieces[j]));
        CHECK(!is_error(ask(c, "BF.CARD good")));
        CHECK_STR(ask(c, "DEL good"), ":1");
    }
    const long long used = server_info(s, "used_memory");
    int done = 0, ncomplete = 0;
    for (; go_on(done, 900) && check_failures() < 4; done++) {
        ncomplete += load_one(c, streams, nstreams, done);
        check_memory(s, false, (double)used + MAX_GROWTH);
        if (done % 400 == 399) persist(s);
    }
    CHECK(ncomplete > done / 50 && ncomplete < done);
    if (in_detail()) printf("    %d streams, %d became filters\n", done, ncomplete);
    check_replica_and_death(s, replica);
    CHECK_STR(ask(c, "KEYS bf:{handed}*"), "*0");
    check_restart(s);
    check_cleaned_up(s, used);
}

TEST(corrupted_chunks) {
    Server *s = server_start(NULL);
    Stream streams[2 * NSHAPES];
    corrupt_seed(6);
    for (int i = 0; i < NSHAPES; i++) {
        make_shape(s->client, i, "shape");
        streams[2 * i] = scandump(s->client, "shape");
        REQUIRE(streams[2 * i].n >= 2);
        streams[2 * i + 1] = split(&streams[2 * i]);
        EXPECT(s->client, ":1", "DEL shape");
    }
    server_stop(s, STOP_NOSAVE);
    check_streams(streams, 2 * NSHAPES);
    for (int i = 0; i < 2 * NSHAPES; i++) stream_free(&streams[i]);
}

/* From tests/assets; see the README there for the form of the file. */
static Stream read_redisbloom(const char *name) {
    Stream stream = {.n = 0};
    char path[128];
    snprintf(path, sizeof path, "tests/assets/redisbloom-%s.dump", name);
    FILE *f = fopen(path, "rb");
    uint8_t head[16];
    while (f && fread(head, 1, 16, f) == 16) {
        uint64_t iterator = 0, nbytes = 0;
        for (int i = 7; i >= 0; i--) {
            iterator = iterator << 8 | head[i];
            nbytes = nbytes << 8 | head[8 + i];
        }
        uint8_t bytes[65536];
        if (!CHECK(nbytes <= sizeof bytes && fread(bytes, 1, nbytes, f) == nbytes)) break;
        stream_append(&stream, iterator, bytes, nbytes);
    }
    if (f) fclose(f);
    return stream;
}

TEST(corrupted_redisbloom_chunks) {
    static const char *const names[] = {"growing", "nonscaling", "power-of-two", "hash32",
                                        "hash32-unrounded"};
    enum { NNAMES = sizeof names / sizeof *names };
    Server *s = server_start(NULL);
    Stream streams[2 * NNAMES];
    corrupt_seed(7);
    for (int i = 0; i < NNAMES; i++) {
        Stream *theirs = &streams[i], *ours = &streams[NNAMES + i]; /* once loaded, in our form */
        *theirs = read_redisbloom(names[i]);
        for (unsigned j = 0; j < theirs->n; j++)
            CHECK(load_piece(s->client, names[i], &theirs->pieces[j]));
        *ours = scandump(s->client, names[i]);
        REQUIRE(theirs->n >= 2 && ours->n >= 3);
    }
    server_stop(s, STOP_NOSAVE);
    check_streams(streams, 2 * NNAMES);
    for (int i = 0; i < 2 * NNAMES; i++) stream_free(&streams[i]);
}

/* ---- BF.SETDESCRIPTOR ---- */

/* Whether the server took it. */
static bool set_descriptor(Primary *primary, const char *key, const Bytes *bytes) {
    primary_send(primary, "BF.SETDESCRIPTOR %s %b", key, bytes->data, bytes->nbytes);
    Bytes now = ask_bytes(primary->replica->client, "BF.DESCRIPTOR %s", key);
    const bool taken = now.nbytes > 0 && now.nbytes == bytes->nbytes &&
                       memcmp(now.data, bytes->data, now.nbytes) == 0;
    bytes_free(&now);
    return taken;
}

/* Only a primary can send them. */
TEST(corrupted_descriptors) {
    Server *s = server_start("appendonly yes\nappendfsync no\nreplica-read-only no");
    Client *c = s->client;
    Bytes bytes[NSHAPES];
    int done = 0, naccepted = 0;
    corrupt_seed(3);
    for (int i = 0; i < NSHAPES; i++) {
        make_shape(c, i, "shape");
        bytes[i] = ask_bytes(c, "BF.DESCRIPTOR shape");
        EXPECT(c, ":1", "DEL shape");
    }
    Primary primary = primary_start(s);
    for (; go_on(done, 1500) && check_failures() < 4; done++) {
        Bytes wrong = bytes_copy(bytes[done % NSHAPES].data, bytes[done % NSHAPES].nbytes);
        corrupt(&wrong, &bytes[corrupt_draw(NSHAPES)], PAYLOAD_HEAD);
        /* Often onto a filter that is there: with the same id it is replaced. */
        const char *key = corrupt_draw(2) ? "d" : "e";
        if (set_descriptor(&primary, key, &wrong)) {
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
    primary_stop(&primary);
    wait_for_sweeper(s);
    check_restart(s);
    for (int i = 0; i < NSHAPES; i++) bytes_free(&bytes[i]);
}

/* ---- shards that somebody wrote to ---- */

/* Does something to the shard; the header must be intact for it to be used. */
static void damage(Client *c, const char *shard, size_t nbytes) {
    const unsigned offset = corrupt_draw((unsigned)nbytes), n = corrupt_draw(64);
    uint8_t noise[64];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)corrupt_draw(256);
    switch (corrupt_draw(13)) {
    case 10: /* the number of items of a young shard */
        ask(c, "SETRANGE %s 29 %b", shard, noise, (size_t)(1 + n % 4));
        break;
    case 11: /* behind the header one entry everywhere, or nothing but used ones */
        ask(c, "EVAL %s 1 %s %b",
            "local s = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], string.sub(s, 1, 55) "
            ".. "
            "string.rep(ARGV[1], (#s - 55) / 12))",
            shard, n % 2 ? (const uint8_t *)"\1\0\0\0abcdefgh" : noise, (size_t)12);
        break;
    case 12: /* young, whatever it was */
        ask(c, "SETRANGE %s 28 %b", shard, "\1", (size_t)1);
        break;
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
    check_restart(s);
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
    /* Where the descriptors are in the file is the server's secret, so which of the files are
     * refused differs, 23 to 29 of 30: go on until there was one of each. That 1000 are not enough
     * has a probability of some (29/30)^1000 < 1e-14. */
    for (; (go_on(done, 30) || ((nrefused == 0 || nrefused == done) && done < 1000)) &&
           check_failures() < 4;
         done++) {
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
