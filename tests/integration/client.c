#include "client.h"
#include "check.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { REPLY_SECONDS = 120, BATCH = 1000 };

static Client *clients;

/* ---- memory of a test ---- */

static void **kept;
static size_t nkept, kept_room;
static redisReply **replies;
static size_t nreplies, replies_room;

static void *grown(void *list, size_t n, size_t *room, size_t width) {
    if (n < *room) return list;
    *room = *room ? 2 * *room : 64;
    list = realloc(list, *room * width);
    if (!list) abort();
    return list;
}

void *keep(void *allocated) {
    kept = grown(kept, nkept, &kept_room, sizeof(*kept));
    kept[nkept++] = allocated;
    return allocated;
}

static redisReply *keep_reply(redisReply *r) {
    replies = grown(replies, nreplies, &replies_room, sizeof(*replies));
    replies[nreplies++] = r;
    return r;
}

void client_free_all(void);
void client_free_all(void) {
    while (clients) {
        Client *c = clients;
        client_disconnect(c);
        clients = c->next;
        free(c);
    }
    while (nreplies) freeReplyObject(replies[--nreplies]);
    while (nkept) free(kept[--nkept]);
    free(replies);
    free(kept);
    replies = NULL;
    kept = NULL;
    replies_room = kept_room = 0;
}

/* ---- connections ---- */

void client_disconnect(Client *c) {
    if (c->redis) redisFree(c->redis);
    c->redis = NULL;
    c->npending = 0;
}

bool client_connect(Client *c) {
    struct timeval limit = {REPLY_SECONDS, 0};
    client_disconnect(c);
    c->redis = redisConnectWithTimeout("127.0.0.1", c->server->port, limit);
    if (c->redis && !c->redis->err && redisSetTimeout(c->redis, limit) == REDIS_OK) return true;
    client_disconnect(c);
    return false;
}

Client *client_new(Server *s) {
    Client *c = calloc(1, sizeof(*c));
    if (!c) abort();
    c->server = s;
    c->next = clients;
    clients = c;
    if (s->pid && !client_connect(c)) CHECK_FAIL("cannot connect to port %d", s->port);
    return c;
}

Client *client_new_resp3(Server *s) {
    Client *c = client_new(s);
    c->raw = true;
    EXPECT(c, "%...", "HELLO 3");
    return c;
}

static void lost(Client *c, const char *what) {
    CHECK_FAIL("%s: %s", what,
               c->redis && c->redis->err ? c->redis->errstr : "no connection to the server");
    if (c->redis) server_print_log(c->server); /* once */
    client_disconnect(c);
}

/* ---- text ---- */

static void put_bytes(FILE *out, const char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char b = (unsigned char)bytes[i];
        if (b == '"' || b == '\\')
            fprintf(out, "\\%c", b);
        else if (b < ' ' || b > '~')
            fprintf(out, "\\x%02x", b);
        else
            putc(b, out);
    }
}

static void put_reply(FILE *out, const redisReply *r) {
    switch (r->type) {
    case REDIS_REPLY_STATUS:
        fprintf(out, "+%s", r->str);
        break;
    case REDIS_REPLY_ERROR:
        fprintf(out, "-%s", r->str);
        break;
    case REDIS_REPLY_INTEGER:
        fprintf(out, ":%lld", r->integer);
        break;
    case REDIS_REPLY_NIL:
        putc('_', out);
        break;
    case REDIS_REPLY_STRING:
        putc('"', out);
        put_bytes(out, r->str, (size_t)r->len);
        putc('"', out);
        break;
    case REDIS_REPLY_ARRAY:
        fprintf(out, "*%zu", r->elements);
        for (size_t i = 0; i < r->elements; i++) {
            putc(' ', out);
            put_reply(out, r->element[i]);
        }
        break;
    default:
        fprintf(out, "?%d", r->type);
    }
}

char *reply_text(const redisReply *r) {
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    put_reply(out, r);
    fclose(out);
    return text;
}

bool text_matches(const char *text, const char *want) {
    const char *dots = strstr(want, "...");
    if (!dots) return strcmp(text, want) == 0;
    size_t len = (size_t)(dots - want);
    if (strncmp(text, want, len) != 0) return false;
    for (const char *rest = text + len;; rest++) {
        if (text_matches(rest, dots + 3)) return true;
        if (!*rest) return false;
    }
}

/* ---- reading replies ourselves: what hiredis 0.14 cannot (RESP3), or must not (a replication
 * stream) ---- */

static bool raw_fill(Client *c) {
    struct pollfd p = {.fd = c->redis->fd, .events = POLLIN};
    if (c->npending == sizeof(c->buffer) || poll(&p, 1, REPLY_SECONDS * 1000) <= 0) return false;
    ssize_t n = read(p.fd, c->buffer + c->npending, sizeof(c->buffer) - c->npending);
    if (n <= 0) return false;
    c->npending += (size_t)n;
    return true;
}

static void raw_consume(Client *c, size_t n) {
    c->npending -= n;
    memmove(c->buffer, c->buffer + n, c->npending);
}

/* One line without its end. Lines are short: lengths, numbers, errors. */
static bool raw_line(Client *c, char line[4096]) {
    for (;;) {
        char *end = memchr(c->buffer, '\n', c->npending);
        if (end) {
            size_t len = (size_t)(end - c->buffer);
            size_t kept_len = len && c->buffer[len - 1] == '\r' ? len - 1 : len;
            if (kept_len >= 4096) return false;
            memcpy(line, c->buffer, kept_len);
            line[kept_len] = '\0';
            raw_consume(c, len + 1);
            return true;
        }
        if (!raw_fill(c)) return false;
    }
}

/* Passes len bytes on to out, or drops them. */
static bool raw_bytes(Client *c, size_t len, FILE *out) {
    while (len) {
        if (c->npending == 0 && !raw_fill(c)) return false;
        size_t n = len < c->npending ? len : c->npending;
        if (out) put_bytes(out, c->buffer, n);
        raw_consume(c, n);
        len -= n;
    }
    return true;
}

static bool raw_reply(Client *c, FILE *out);

static bool raw_elements(Client *c, const char *line, FILE *out) {
    long long n = atoll(line + 1);
    if (n < 0) return putc('_', out) != EOF;
    fputs(line, out);
    if (*line == '%') n *= 2;
    for (; n > 0; n--) {
        putc(' ', out);
        if (!raw_reply(c, out)) return false;
    }
    return true;
}

static bool raw_reply(Client *c, FILE *out) {
    char line[4096];
    if (!raw_line(c, line)) return false;
    switch (*line) {
    case '*':
    case '%':
    case '~':
    case '>':
        return raw_elements(c, line, out);
    case '$':
    case '=':
        if (line[1] == '-') return putc('_', out) != EOF;
        putc('"', out);
        if (!raw_bytes(c, (size_t)atoll(line + 1), out) || !raw_line(c, line)) return false;
        putc('"', out);
        return true;
    case '+':
    case '-':
    case ':':
    case '#':
    case ',':
    case '(':
    case '_':
        return fputs(line, out) != EOF;
    default:
        return false;
    }
}

static char *raw_text(Client *c) {
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    bool ok = c->redis && raw_reply(c, out);
    fclose(out);
    if (ok) return text;
    free(text);
    lost(c, "reading a reply");
    return strdup("-LOST connection");
}

/* ---- commands ---- */

static redisReply *lost_reply(void) {
    redisReply *r = calloc(1, sizeof(*r));
    if (!r) abort();
    r->type = REDIS_REPLY_ERROR;
    r->str = strdup("LOST connection");
    r->len = (int)strlen(r->str);
    return r;
}

static redisReply *command_va(Client *c, const char *format, va_list args) {
    redisReply *r = c->redis ? redisvCommand(c->redis, format, args) : NULL;
    if (r) return r;
    lost(c, format);
    return lost_reply();
}

static bool raw_send(Client *c, const char *format, va_list args) {
    char *bytes = NULL;
    int len = c->redis ? redisvFormatCommand(&bytes, format, args) : -1;
    bool sent = true;
    for (int done = 0; done < len;) {
        ssize_t n = write(c->redis->fd, bytes + done, (size_t)(len - done));
        if (n <= 0) {
            sent = false;
            break;
        }
        done += (int)n;
    }
    if (len >= 0) redisFreeCommand(bytes);
    return sent && len >= 0;
}

static char *text_va(Client *c, const char *format, va_list args) {
    if (c->raw) {
        raw_send(c, format, args);
        return raw_text(c);
    }
    redisReply *r = command_va(c, format, args);
    char *text = reply_text(r);
    freeReplyObject(r);
    return text;
}

redisReply *command(Client *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    redisReply *r = keep_reply(command_va(c, format, args));
    va_end(args);
    return r;
}

redisReply *command_argv(Client *c, int argc, const char **argv, const size_t *lens) {
    redisReply *r = c->redis ? redisCommandArgv(c->redis, argc, argv, lens) : NULL;
    if (r) return keep_reply(r);
    lost(c, argv[0]);
    return keep_reply(lost_reply());
}

const char *command_text(Client *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = keep(text_va(c, format, args));
    va_end(args);
    return text;
}

long long command_int(Client *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = text_va(c, format, args);
    va_end(args);
    long long n = *text == ':' ? atoll(text + 1) : -1;
    if (*text != ':') CHECK_FAIL("%s answers %s, expected an integer", format, text);
    free(text);
    return n;
}

bool client_expect(Client *c, const char *file, int line, const char *want, const char *format,
                   ...) {
    va_list args;
    va_start(args, format);
    char *text = text_va(c, format, args);
    va_end(args);
    bool ok = text_matches(text, want);
    if (ok)
        check_that(true, want, file, line);
    else
        check_fail(file, line, "%s answers\n        %.2000s\n    expected\n        %s", format,
                   text, want);
    free(text);
    return ok;
}

bool client_expect_error(Client *c, const char *file, int line, const char *code, const char *word,
                         const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = text_va(c, format, args);
    va_end(args);
    size_t len = strlen(code);
    bool ok = *text == '-' && strncmp(text + 1, code, len) == 0 && text[len + 1] == ' ' &&
              strcasestr(text, word);
    if (ok)
        check_that(true, word, file, line);
    else
        check_fail(file, line, "%s answers\n        %.2000s\n    expected an error %s with: %s",
                   format, text, code, word);
    free(text);
    return ok;
}

static long long sum_of_elements(const redisReply *r) {
    long long sum = 0;
    if (r->type != REDIS_REPLY_ARRAY) {
        CHECK_FAIL("a batch answers %s", r->str ? r->str : "no array");
        return 0;
    }
    for (size_t i = 0; i < r->elements; i++) {
        if (r->element[i]->type == REDIS_REPLY_INTEGER)
            sum += r->element[i]->integer;
        else
            CHECK_FAIL("element %zu of a batch is %s", i,
                       r->element[i]->str ? r->element[i]->str : "not an integer");
    }
    return sum;
}

bool is_new_string(const redisReply *shards, size_t i) {
    if (i == 0) return true;
    const redisReply *name = shards->element[i]->element[1],
                     *before = shards->element[i - 1]->element[1];
    return name->len != before->len || memcmp(name->str, before->str, (size_t)name->len) != 0;
}

long long count_strings(const redisReply *shards) {
    long long nstrings = 0;
    for (size_t i = 0; i < shards->elements; i++) nstrings += is_new_string(shards, i);
    return nstrings;
}

long long command_batches(Client *c, const char *name, const char *key, const char *prefix,
                          long long first, long long n) {
    static char items[BATCH][128];
    const char *argv[BATCH + 2] = {name, key};
    size_t lens[BATCH + 2] = {strlen(name), strlen(key)};
    long long sum = 0;
    for (long long done = 0; done < n && c->redis;) {
        int batch = n - done < BATCH ? (int)(n - done) : BATCH;
        for (int i = 0; i < batch; i++) {
            argv[i + 2] = items[i];
            lens[i + 2] =
                (size_t)snprintf(items[i], sizeof(items[i]), "%s%lld", prefix, first + done + i);
        }
        redisReply *r = redisCommandArgv(c->redis, batch + 2, argv, lens);
        if (!r) {
            lost(c, name);
            break;
        }
        sum += sum_of_elements(r);
        freeReplyObject(r);
        done += batch;
    }
    return sum;
}

/* ---- the replication stream ---- */

static const char *const stream_mark = "shardbloom-stream-mark";

/* SYNC, the simplest replica: the snapshot comes first, with its length or between two equal marks
 * of 40 bytes. */
static bool stream_skip_snapshot(Client *c) {
    char line[4096];
    do {
        if (!raw_line(c, line)) return false;
    } while (*line == '\0'); /* sent while the snapshot is being made */
    if (*line != '$') return false;
    if (strncmp(line, "$EOF:", 5) != 0) return raw_bytes(c, (size_t)atoll(line + 1), NULL);
    for (;;) {
        char *end = memmem(c->buffer, c->npending, line + 5, 40);
        if (end) {
            raw_consume(c, (size_t)(end - c->buffer) + 40);
            return true;
        }
        if (c->npending > 40) raw_consume(c, c->npending - 40);
        if (!raw_fill(c)) return false;
    }
}

static bool stream_sync(Client *c, ...) {
    va_list none;
    va_start(none, c);
    bool sent = raw_send(c, "SYNC", none);
    va_end(none);
    return sent && stream_skip_snapshot(c);
}

Client *stream_new(Server *s) {
    Client *c = client_new(s);
    c->raw = true;
    if (!c->redis || !stream_sync(c)) lost(c, "SYNC");
    stream_read(c); /* drops a SELECT or a ping that comes first */
    return c;
}

/* One command of the stream: *n, then n times $len and bytes. */
static bool stream_command(Client *c, FILE *out) {
    char line[4096];
    if (!raw_line(c, line) || *line != '*') return false;
    int n = atoi(line + 1);
    for (int i = 0; i < n; i++) {
        if (!raw_line(c, line) || *line != '$') return false;
        if (i) putc(' ', out);
        if (!raw_bytes(c, (size_t)atoll(line + 1), out) || !raw_line(c, line)) return false;
    }
    return true;
}

const char *stream_read(Client *stream) {
    char *text = NULL, *all = NULL;
    size_t len, alllen;
    /* PUBLISH reaches replicas and touches no key. */
    command_int(stream->server->client, "PUBLISH %s x", stream_mark);
    FILE *lines = open_memstream(&all, &alllen);
    for (bool more = stream->redis != NULL; more;) {
        FILE *out = open_memstream(&text, &len);
        bool ok = stream_command(stream, out);
        fclose(out);
        more = ok && !strstr(text, stream_mark);
        if (!ok) lost(stream, "reading the replication stream");
        if (more) fprintf(lines, "%s\n", text);
        free(text);
    }
    fclose(lines);
    return keep(all);
}
