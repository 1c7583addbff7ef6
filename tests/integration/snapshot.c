#include "snapshot.h"
#include "check.h"
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NDATABASES = 16, MAX_DIFFERENCES = 5 };

typedef struct {
    char *name;  /* "db key", escaped */
    char *value; /* type, length, digest, expiry, BF.INFO */
} Entry;

struct Snapshot {
    Entry *entries;
    size_t nentries;
};

/* FNV-1a over 8-byte words: quick, and a differing byte always changes it. */
static uint64_t digest(const char *bytes, size_t len) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; len >= 8; bytes += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = (h ^ word) * 0x100000001b3u;
        h ^= h >> 29;
    }
    for (; len; bytes++, len--) h = (h ^ (unsigned char)*bytes) * 0x100000001b3u;
    return h;
}

/* The age of a window's slices is last, and no matter of the data. */
static void print_info(FILE *out, const char *info) {
    const char *age = strstr(info, " +Age of the oldest slice");
    fprintf(out, ", %.*s", (int)(age ? (size_t)(age - info) : strlen(info)), info);
}

static char *describe(Client *c, const char *key, size_t keylen) {
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    redisReply *type = command(c, "TYPE %b", key, keylen);
    bool is_string = strcmp(type->str, "string") == 0;
    /* Values may be large: not kept until the end of the test. */
    redisReply *value =
        c->redis ? redisCommand(c->redis, "%s %b", is_string ? "GET" : "DUMP", key, keylen) : NULL;
    if (value && value->type == REDIS_REPLY_STRING)
        fprintf(out, "%s, %zu bytes, digest %016llx", type->str, (size_t)value->len,
                (unsigned long long)digest(value->str, (size_t)value->len));
    else
        CHECK_FAIL("cannot read the value of a key of type %s", type->str);
    if (value) freeReplyObject(value);
    fprintf(out, ", expiry %s", command_text(c, "PEXPIRETIME %b", key, keylen));
    if (!strncmp(type->str, "bf", 2)) print_info(out, command_text(c, "BF.INFO %b", key, keylen));
    fclose(out);
    return keep(text);
}

static void add_key(Snapshot *snap, Client *c, int db, const redisReply *key) {
    char *text = NULL;
    size_t len;
    char *quoted = reply_text(key);
    FILE *out = open_memstream(&text, &len);
    fprintf(out, "db %d key %s", db, quoted);
    fclose(out);
    free(quoted);
    Entry *e = &snap->entries[snap->nentries++];
    e->name = keep(text);
    e->value = describe(c, key->str, (size_t)key->len);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const Entry *)a)->name, ((const Entry *)b)->name);
}

Snapshot *snapshot_take(Server *s) {
    Snapshot *snap = keep(calloc(1, sizeof(*snap)));
    Client *c = client_new(s);
    size_t total = 0;
    redisReply *keys[NDATABASES];
    for (int db = 0; db < NDATABASES; db++) {
        command(c, "SELECT %d", db);
        keys[db] = command(c, "KEYS *");
        total += keys[db]->elements;
    }
    snap->entries = keep(calloc(total + 1, sizeof(Entry)));
    for (int db = 0; db < NDATABASES; db++) {
        command(c, "SELECT %d", db);
        for (size_t i = 0; i < keys[db]->elements; i++) add_key(snap, c, db, keys[db]->element[i]);
    }
    qsort(snap->entries, snap->nentries, sizeof(Entry), by_name);
    client_disconnect(c);
    return snap;
}

size_t snapshot_nkeys(const Snapshot *snap) {
    return snap->nentries;
}

bool snapshot_check_same(const Snapshot *a, const Snapshot *b, const char *file, int line) {
    unsigned ndifferences = 0;
    for (size_t i = 0, j = 0; i < a->nentries || j < b->nentries;) {
        int order = i == a->nentries   ? 1
                    : j == b->nentries ? -1
                                       : by_name(&a->entries[i], &b->entries[j]);
        const Entry *x = order <= 0 ? &a->entries[i++] : NULL;
        const Entry *y = order >= 0 ? &b->entries[j++] : NULL;
        if (x && y && strcmp(x->value, y->value) == 0) continue;
        if (ndifferences++ >= MAX_DIFFERENCES) continue;
        check_fail(file, line, "%s:\n        first:  %s\n        second: %s", x ? x->name : y->name,
                   x ? x->value : "absent", y ? y->value : "absent");
    }
    if (ndifferences > MAX_DIFFERENCES) check_fail(file, line, "%u keys differ", ndifferences);
    return check_that(ndifferences == 0, "same data", file, line);
}
