#include "audit.h"
#include "check.h"
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NDATABASES = 16, STEP_MS = 10, LIMIT_MS = 60000 };

/* The shard names of one database: found as keys, and claimed by filters. */
typedef struct {
    char **names;
    size_t n, room;
} Names;

static void names_add(Names *names, const char *bytes, size_t len) {
    if (names->n == names->room) {
        names->room = names->room ? 2 * names->room : 64;
        names->names = realloc(names->names, names->room * sizeof(*names->names));
    }
    char *text = malloc(2 * len + 1), *at = text; /* hex: names are binary */
    for (size_t i = 0; i < len; i++) at += sprintf(at, "%02x", (unsigned char)bytes[i]);
    *at = '\0';
    names->names[names->n++] = text;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_sort(Names *names) {
    if (names->n) qsort(names->names, names->n, sizeof(*names->names), by_text);
}

static void names_free(Names *names) {
    while (names->n) free(names->names[--names->n]);
    free(names->names);
}

static void note(Audit *result, int db, const char *what, const char *name_hex) {
    if (*result->what) return;
    int n = snprintf(result->what, sizeof(result->what), "db %d, %s: ", db, what);
    for (unsigned byte; sscanf(name_hex, "%2x", &byte) == 1 && n < 190; name_hex += 2)
        result->what[n++] = (char)(byte < ' ' || byte > '~' ? '?' : byte);
}

static bool text_is(const redisReply *r, const char *text) {
    return r->str && strcmp(r->str, text) == 0;
}

static void claim(Audit *result, redisContext *redis, int db, const redisReply *key,
                  Names *claimed) {
    enum { PART = 1000 };
    size_t n = PART;
    for (long long layer = 0, shard = 0; n == PART;) {
        redisReply *shards = redisCommand(redis, "BF.SHARDS %b FROM %lld %lld COUNT %d", key->str,
                                          (size_t)key->len, layer, shard, PART);
        n = shards ? shards->elements : 0;
        for (size_t i = 0; i < n; i++) {
            const redisReply *entry = shards->element[i];
            layer = entry->element[3]->integer;
            shard = entry->element[5]->integer + 1;
            /* A part may begin within a string. */
            if (i == 0 ? entry->element[15]->integer != 0 : !is_new_string(shards, i)) continue;
            names_add(claimed, entry->element[1]->str, (size_t)entry->element[1]->len);
            if (text_is(entry->element[9], "ok") || text_is(entry->element[9], "young")) continue;
            result->nlost++;
            note(result, db, "lost", claimed->names[claimed->n - 1]);
        }
        if (shards) freeReplyObject(shards);
    }
    result->nfilters++;
}

static void compare(Audit *result, int db, Names *found, Names *claimed) {
    names_sort(found);
    names_sort(claimed);
    for (size_t i = 0, j = 0; i < found->n || j < claimed->n;) {
        int order = i == found->n     ? 1
                    : j == claimed->n ? -1
                                      : strcmp(found->names[i], claimed->names[j]);
        if (order < 0) {
            result->norphans++;
            note(result, db, "orphan", found->names[i++]);
            continue;
        }
        if (j > 0 && strcmp(claimed->names[j - 1], claimed->names[j]) == 0) {
            result->nshared++;
            note(result, db, "shared", claimed->names[j]);
        }
        if (order == 0) i++;
        j++;
    }
    result->nshards += claimed->n;
}

/* False if the server has no such database, as in a cluster. */
static bool select_database(redisContext *redis, int db) {
    redisReply *selected = redisCommand(redis, "SELECT %d", db);
    const bool ok = selected && selected->type == REDIS_REPLY_STATUS;
    if (selected) freeReplyObject(selected);
    return ok;
}

static void audit_database(Audit *result, redisContext *redis, int db) {
    Names found = {0}, claimed = {0};
    redisReply *keys = redisCommand(redis, "KEYS *");
    for (size_t i = 0; keys && i < keys->elements; i++) {
        const redisReply *key = keys->element[i];
        redisReply *type = redisCommand(redis, "TYPE %b", key->str, (size_t)key->len);
        if (key->len > 4 && memcmp(key->str, "bf:{", 4) == 0)
            names_add(&found, key->str, (size_t)key->len);
        else if (type && text_is(type, "bf-shards"))
            claim(result, redis, db, key, &claimed);
        else if (type && !text_is(type, "none")) /* it may have expired since */
            result->nothers++;
        if (type) freeReplyObject(type);
    }
    if (keys) freeReplyObject(keys);
    compare(result, db, &found, &claimed);
    names_free(&found);
    names_free(&claimed);
}

Audit audit(Server *s) {
    Audit result = {0};
    redisContext *redis = redisConnect("127.0.0.1", s->port);
    if (!redis || redis->err) CHECK_FAIL("cannot connect to port %d", s->port);
    for (int db = 0; redis && !redis->err && db < NDATABASES && select_database(redis, db); db++)
        audit_database(&result, redis, db);
    if (redis) redisFree(redis);
    result.nshards -= result.nlost + result.nshared;
    return result;
}

bool audit_tidy(Server *s, const char *file, int line) {
    Audit now = {0};
    for (unsigned waited = 0; waited <= LIMIT_MS; waited += STEP_MS) {
        now = audit(s);
        if (now.nlost || now.nshared) break;
        if (!now.norphans) return check_that(true, "tidy", file, line);
        pause_ms(STEP_MS);
    }
    return check_fail(file, line, "port %d: %zu orphans, %zu lost, %zu shared; first: %s", s->port,
                      now.norphans, now.nlost, now.nshared, now.what);
}
