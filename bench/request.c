#include "request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* The bitmap of the recipe has 2^31 bits whatever the number of items. */
enum { RECIPE_MASK = 0x7fffffff };

static const struct style styles[] = {
    {"bf", PAYLOAD_ITEM, "BF.ADD", "BF.MADD", "BF.EXISTS", "BF.MEXISTS"},
    {"noop", PAYLOAD_ITEM, "NOOP.ONE", "NOOP.MANY", "NOOP.ONE", "NOOP.MANY"},
    {"set", PAYLOAD_ITEM, "SADD", "SADD", "SISMEMBER", "SMISMEMBER"},
    {"digest", PAYLOAD_DIGEST, "SADD", "SADD", "SISMEMBER", "SMISMEMBER"},
    {"setbit", PAYLOAD_SETBIT, "SETBIT", "SETBIT", "GETBIT", "GETBIT"},
    {"lua", PAYLOAD_LUA, "EVALSHA", "EVALSHA", "EVALSHA", "EVALSHA"},
    {"days", PAYLOAD_DAYS, NULL, NULL, "BF.EXISTS", "BF.MEXISTS"},
    {"days-script", PAYLOAD_SCRIPT, "EVALSHA", "EVALSHA", "EVALSHA", "EVALSHA"},
};

/* One element per item: 1 if the item was new. */
static const char script_add[] =
    "local out = {} "
    "for i = 1, #ARGV, 7 do "
    "  local new = 0 "
    "  for j = i, i + 6 do "
    "    if redis.call('SETBIT', KEYS[1], ARGV[j], 1) == 0 then new = 1 end "
    "  end "
    "  out[#out + 1] = new "
    "end "
    "return out";

/* One element per item: 1 if the item is there. Stops at the first zero, as a careful user
 * would. */
static const char script_exists[] =
    "local out = {} "
    "for i = 1, #ARGV, 7 do "
    "  local seen = 1 "
    "  for j = i, i + 6 do "
    "    if redis.call('GETBIT', KEYS[1], ARGV[j]) == 0 then seen = 0; break end "
    "  end "
    "  out[#out + 1] = seen "
    "end "
    "return out";

/* A filter per day, the newest first. An older day is checked only for items that no newer one
 * knows, as a careful user would do. */
#define DAYS_ASK                                                                                   \
    "local left, out = ARGV, {} "                                                                  \
    "local at = {} "                                                                               \
    "for i = 1, #ARGV do out[i] = 0; at[i] = i end "                                               \
    "for k = 1, #KEYS do "                                                                         \
    "  if #left == 0 then break end "                                                              \
    "  local known = redis.call('BF.MEXISTS', KEYS[k], unpack(left)) "                             \
    "  local rest, where = {}, {} "                                                                \
    "  for i = 1, #left do "                                                                       \
    "    if known[i] == 1 then out[at[i]] = 1 "                                                    \
    "    else rest[#rest + 1] = left[i]; where[#where + 1] = at[i] end "                           \
    "  end "                                                                                       \
    "  left, at = rest, where "                                                                    \
    "end "

static const char script_days_exists[] = DAYS_ASK "return out";
static const char script_days_add[] =
    DAYS_ASK "for i = 1, #ARGV do out[i] = 1 - out[i] end "
             "if #left > 0 then redis.call('BF.MADD', KEYS[1], unpack(left)) end "
             "return out";
static const char script_days_exists_one[] =
    "for k = 1, #KEYS do "
    "  if redis.call('BF.EXISTS', KEYS[k], ARGV[1]) == 1 then return 1 end "
    "end "
    "return 0";
static const char script_days_add_one[] =
    "for k = 2, #KEYS do "
    "  if redis.call('BF.EXISTS', KEYS[k], ARGV[1]) == 1 then return 0 end "
    "end "
    "return redis.call('BF.ADD', KEYS[1], ARGV[1])";

const struct style *style_find(const char *name) {
    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++)
        if (!strcmp(styles[i].name, name)) return &styles[i];
    return NULL;
}

const char *request_command(const struct request *req) {
    const struct style *style = req->style;
    if (req->exists) return req->batch ? style->exists_many : style->exists;
    return req->batch ? style->add_many : style->add;
}

unsigned request_nitems(const struct request *req) {
    return req->batch ? req->batch : 1;
}

unsigned request_nreplies(const struct request *req, unsigned nitems) {
    switch (req->style->payload) {
    case PAYLOAD_SETBIT:
        return nitems * RECIPE_BITS;
    case PAYLOAD_DAYS:
        return req->nkeys;
    default:
        return 1;
    }
}

bool request_is_possible(const struct request *req) {
    return request_command(req) != NULL;
}

const char *request_script(const struct request *req) {
    switch (req->style->payload) {
    case PAYLOAD_LUA:
        return req->exists ? script_exists : script_add;
    case PAYLOAD_SCRIPT:
        if (req->batch) return req->exists ? script_days_exists : script_days_add;
        return req->exists ? script_days_exists_one : script_days_add_one;
    default:
        return NULL;
    }
}

uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void put(struct bytes *out, const void *data, size_t nbytes) {
    if (out->nbytes + nbytes > out->capacity) {
        out->capacity = (out->nbytes + nbytes) * 2;
        out->data = realloc(out->data, out->capacity);
        if (!out->data) {
            perror("realloc");
            exit(1);
        }
    }
    memcpy(out->data + out->nbytes, data, nbytes);
    out->nbytes += nbytes;
}

/* One protocol line: a letter, a number, CRLF. By hand, because printf would dominate the
 * generator. */
static void put_line(struct bytes *out, char letter, size_t number) {
    char line[24];
    char *end = line + sizeof(line), *p = end;
    *--p = '\n';
    *--p = '\r';
    do *--p = (char)('0' + number % 10);
    while (number /= 10);
    *--p = letter;
    put(out, p, (size_t)(end - p));
}

static void put_bulk(struct bytes *out, const void *data, size_t nbytes) {
    put_line(out, '$', nbytes);
    put(out, data, nbytes);
    put(out, "\r\n", 2);
}

static void put_word(struct bytes *out, const char *word) {
    put_bulk(out, word, strlen(word));
}

/* A URL of the wanted length: a text that all share, then 16 hex digits that are the item's own. */
static void write_item(char *to, unsigned nbytes, uint64_t number) {
    static const char path[] = "https://news.example.org/archive/2024/article/";
    uint64_t own = mix64(number);
    unsigned shared = nbytes - 16;
    for (unsigned i = 0; i < shared; i++) to[i] = path[i % (sizeof(path) - 1)];
    for (unsigned i = 0; i < 16; i++)
        to[shared + i] = "0123456789abcdef"[(own >> (60 - 4 * i)) & 15];
}

/* Offsets as uniform as the recipe's own. It takes them from MD5, but that is the client's time,
 * not the server's, which is what we measure. */
static void put_offset(struct bytes *out, uint64_t number, unsigned i) {
    char digits[16];
    unsigned bit = (unsigned)(mix64(mix64(number) + i) & RECIPE_MASK);
    put_bulk(out, digits, (size_t)snprintf(digits, sizeof(digits), "%u", bit));
}

static void append_bit_commands(struct bytes *out, const struct request *req, const uint64_t *items,
                                unsigned nitems) {
    for (unsigned i = 0; i < nitems * RECIPE_BITS; i++) {
        put_line(out, '*', req->exists ? 3 : 4);
        put_word(out, request_command(req));
        put_word(out, req->key);
        put_offset(out, items[i / RECIPE_BITS], i % RECIPE_BITS);
        if (!req->exists) put_word(out, "1");
    }
}

static void append_script_call(struct bytes *out, const struct request *req, const uint64_t *items,
                               unsigned nitems) {
    put_line(out, '*', 4 + (size_t)nitems * RECIPE_BITS);
    put_word(out, request_command(req));
    put_word(out, req->script_sha);
    put_word(out, "1");
    put_word(out, req->key);
    for (unsigned i = 0; i < nitems * RECIPE_BITS; i++)
        put_offset(out, items[i / RECIPE_BITS], i % RECIPE_BITS);
}

static void put_items(struct bytes *out, const struct request *req, const uint64_t *items,
                      unsigned nitems) {
    char item[req->item_nbytes];
    for (unsigned i = 0; i < nitems; i++) {
        write_item(item, req->item_nbytes, items[i]);
        if (req->style->payload == PAYLOAD_DIGEST) {
            XXH128_hash_t digest = XXH3_128bits(item, req->item_nbytes);
            put_bulk(out, &digest, sizeof(digest));
        } else {
            put_bulk(out, item, req->item_nbytes);
        }
    }
}

static void append_item_command(struct bytes *out, const struct request *req, const uint64_t *items,
                                unsigned nitems) {
    put_line(out, '*', 2 + (size_t)nitems);
    put_word(out, request_command(req));
    put_word(out, req->key);
    put_items(out, req, items, nitems);
}

static void put_day(struct bytes *out, const struct request *req, unsigned day) {
    char key[64];
    put_bulk(out, key, (size_t)snprintf(key, sizeof(key), "%.48s:%u", req->key, day));
}

static void append_days(struct bytes *out, const struct request *req, const uint64_t *items,
                        unsigned nitems) {
    for (unsigned i = 0; i < req->nkeys; i++) {
        put_line(out, '*', 2 + (size_t)nitems);
        put_word(out, request_command(req));
        put_day(out, req, i);
        put_items(out, req, items, nitems);
    }
}

static void append_days_script(struct bytes *out, const struct request *req, const uint64_t *items,
                               unsigned nitems) {
    char nkeys[16];
    put_line(out, '*', 3 + (size_t)req->nkeys + nitems);
    put_word(out, request_command(req));
    put_word(out, req->script_sha);
    put_bulk(out, nkeys, (size_t)snprintf(nkeys, sizeof(nkeys), "%u", req->nkeys));
    for (unsigned i = 0; i < req->nkeys; i++) put_day(out, req, i);
    put_items(out, req, items, nitems);
}

void request_append(struct bytes *out, const struct request *req, const uint64_t *items,
                    unsigned nitems) {
    switch (req->style->payload) {
    case PAYLOAD_SETBIT:
        append_bit_commands(out, req, items, nitems);
        break;
    case PAYLOAD_LUA:
        append_script_call(out, req, items, nitems);
        break;
    case PAYLOAD_ITEM:
    case PAYLOAD_DIGEST:
        append_item_command(out, req, items, nitems);
        break;
    case PAYLOAD_DAYS:
        append_days(out, req, items, nitems);
        break;
    case PAYLOAD_SCRIPT:
        append_days_script(out, req, items, nitems);
        break;
    }
}
