/* Files that earlier builds wrote: they must be read as long as the format has this version.
 * tests/assets/regenerate makes them, with the answers that are expected; see there for what is in
 * them. */
#include "check.h"
#include "core/chunk.h"
#include "client.h"
#include "primary.h"
#include "corrupt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASSETS "tests/assets/stored"

/* When the answers were asked: of a window of an hour, the first slices are over. */
#define ASKED_MS (1600000000000u + 95u * 60 * 1000)

static Bytes read_asset(const char *name) {
    char path[256];
    snprintf(path, sizeof path, ASSETS "/%s", name);
    Bytes bytes = {0};
    FILE *f = fopen(path, "rb");
    FILE *out = open_memstream((char **)&bytes.data, &bytes.nbytes);
    char block[4096];
    for (size_t n; f && (n = fread(block, 1, sizeof block, f)) > 0;) fwrite(block, 1, n, out);
    fclose(out);
    if (f) fclose(f);
    if (!f) CHECK_FAIL("no %s", path);
    return bytes;
}

static void put(Server *s, const char *name, const Bytes *bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes->data, 1, bytes->nbytes, f) == bytes->nbytes);
    if (f) fclose(f);
}

/* Each line of the recorded answers is a command and its reply, separated by " => ". */
static void check_answers(Client *c) {
    Bytes text = read_asset("answers");
    int n = 0;
    char *rest = NULL;
    REQUIRE(text.data);
    for (char *line = strtok_r((char *)text.data, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        char *arrow = strstr(line, " => ");
        REQUIRE(arrow != NULL);
        *arrow = '\0';
        if (!CHECK_STR(command_text(c, line), arrow + 4)) printf("    %s\n", line);
        n++;
    }
    CHECK(n > 20);
    bytes_free(&text);
}

static Server *down(const char *config) {
    server_clocks_begin_at(ASKED_MS);
    Server *s = server_start(config);
    server_stop(s, STOP_KILL);
    return s;
}

TEST(stored_rdb) {
    Server *s = down(NULL);
    Bytes rdb = read_asset("dump.rdb");
    put(s, "dump.rdb", &rdb);
    server_up(s);
    check_answers(s->client);
    bytes_free(&rdb);
}

/* An append-only file as one file, of either kind: Redis 7 takes it as the base of a new set. */
static void check_aof(const char *name) {
    Server *s = down(NULL);
    Bytes aof = read_asset(name);
    put(s, "appendonly.aof", &aof);
    server_reconfigure(s, NULL, "appendonly yes");
    server_up(s);
    check_answers(s->client);
    bytes_free(&aof);
}

TEST(stored_aof_of_commands) {
    check_aof("commands.aof");
}

TEST(stored_aof_rewritten) {
    check_aof("rewritten.aof");
}

TEST(stored_dump) {
    Server *s = server_start(NULL);
    Bytes dump = read_asset("growing.dump");
    EXPECT(s->client, "+OK", "RESTORE restored 0 %b", dump.data, dump.nbytes);
    CHECK_INT(command_batches(s->client, "BF.MEXISTS", "restored", "g", 0, 60), 60);
    EXPECT(s->client, ":60", "BF.CARD restored");
    bytes_free(&dump);
}

static uint64_t number_at(const Bytes *bytes, size_t at) {
    uint64_t number = 0;
    for (int i = 7; i >= 0; i--) number = number << 8 | bytes->data[at + (size_t)i];
    return number;
}

/* Each chunk comes behind its iterator and its length. */
static void load_chunks(Client *c, const char *name, const char *key) {
    Bytes file = read_asset(name);
    int n = 0;
    for (size_t at = 0; at + 16 <= file.nbytes; n++) {
        const uint64_t iterator = number_at(&file, at), nbytes = number_at(&file, at + 8);
        if (!CHECK(nbytes <= file.nbytes - at - 16)) break;
        EXPECT(c, "+OK", "BF.LOADCHUNK %s %llu %b", key, (unsigned long long)iterator,
               file.data + at + 16, (size_t)nbytes);
        at += 16 + nbytes;
    }
    CHECK_INT(n, 3);
    bytes_free(&file);
}

TEST(stored_chunks) {
    server_clocks_begin_at(ASKED_MS);
    Client *c = server_start(NULL)->client;
    load_chunks(c, "growing.chunks", "loaded");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "loaded", "g", 0, 60), 60);
    EXPECT(c, ":60", "BF.CARD loaded");
    load_chunks(c, "sharded.chunks", "other");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "other", "s", 0, 30), 30);
    EXPECT(c, ":30", "BF.CARD other");
    load_chunks(c, "young.chunks", "early");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "early", "y", 0, 60), 40);
    EXPECT(c, ":40", "BF.CARD early");
    load_chunks(c, "window.chunks", "since");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "since", "w", 100, 520), 520);
    EXPECT(c, ":520", "BF.CARD since");
    EXPECT(c, "*1 :3600", "BF.INFO since WINDOW");
    load_chunks(c, "pairs.chunks", "both"); /* slices that share a string */
    CHECK_INT(command_batches(c, "BF.MEXISTS", "both", "p", 110, 45), 45);
    EXPECT(c, ":50", "BF.CARD both");
}

/* ---- newer than this module ---- */

/* Sets the version of every descriptor in the bytes. */
static int make_newer(Bytes *bytes) {
    int n = 0;
    for (size_t i = 0; i + 4 < bytes->nbytes; i++) {
        if (memcmp(bytes->data + i, "BFD\1", 4)) continue;
        bytes->data[i + 3] = 99;
        n++;
    }
    return n;
}

TEST(newer_rdb_is_refused_in_words) {
    Server *s = down(NULL);
    Bytes rdb = read_asset("dump.rdb");
    CHECK(make_newer(&rdb) > 0);
    crc64_seal(&rdb);
    put(s, "dump.rdb", &rdb);
    CHECK(!server_try_up(s));
    CHECK_LOGGED(s, "written by a newer version of the module");
    bytes_free(&rdb);
}

TEST(newer_dump_and_descriptor_are_refused_in_words) {
    Server *s = server_start(NULL);
    Bytes dump = read_asset("growing.dump");
    REQUIRE(dump.nbytes > 60);
    CHECK_INT(make_newer(&dump), 1);
    crc64_seal(&dump);
    EXPECT(s->client, "-ERR Bad data format", "RESTORE k 0 %b", dump.data, dump.nbytes);
    CHECK_LOGGED(s, "written by a newer version of the module");
    uint8_t *at = memmem(dump.data, dump.nbytes, "BFD", 3);
    Primary primary = primary_start(s);
    primary_send(&primary, "BF.SETDESCRIPTOR k %b", at,
                 dump.nbytes - (size_t)(at - dump.data) - 10);
    CHECK_LOGGED(s, "ERR not a filter's descriptor: written by a newer version");
    EXPECT(s->client, "*0", "KEYS *");
    primary_stop(&primary);
    bytes_free(&dump);
}

/* A newer form of chunks, and today's around a newer descriptor. */
TEST(newer_chunks_are_refused_in_words) {
    Client *c = server_start(NULL)->client;
    Bytes file = read_asset("growing.chunks");
    REQUIRE(file.nbytes > 200);
    const unsigned long long iterator = number_at(&file, 0);
    const size_t nbytes = number_at(&file, 8);
    REQUIRE(nbytes < file.nbytes - 16);
    Bytes chunk = bytes_copy(file.data + 16, nbytes);
    chunk.data[7] = 99;
    chunk_seal(chunk.data, chunk.nbytes);
    EXPECT_ERROR(c, "ERR", "newer version", "BF.LOADCHUNK k %llu %b", iterator, chunk.data,
                 chunk.nbytes);
    chunk.data[7] = CHUNK_VERSION;
    CHECK_INT(make_newer(&chunk), 1);
    chunk_seal(chunk.data, chunk.nbytes);
    EXPECT_ERROR(c, "ERR", "newer version", "BF.LOADCHUNK k %llu %b", iterator, chunk.data,
                 chunk.nbytes);
    EXPECT(c, ":0", "DBSIZE");
    bytes_free(&chunk);
    bytes_free(&file);
}
