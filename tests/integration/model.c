#include "model.h"
#include "core/window.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const model_names[NNAMES] = {"a", "b", "{t}c", "{t}d", "e"};

/* Filters with a window have one of an hour. */
#define PIECE_MS (3600 * 1000ull / NSLICES)
#define LASTS_MS ((NSLICES + 1) * PIECE_MS)

uint64_t model_now_ms = 1600000000000;

/* ---- drawing ---- */

uint64_t random_next(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int below(uint64_t *random, int n) {
    return (int)(random_next(random) % (uint64_t)n);
}

static const int weights[NOPS] = {
    [OP_ADD] = 60,
    [OP_MADD] = 150,
    [OP_INSERT] = 40,
    [OP_EXISTS] = 30,
    [OP_MEXISTS] = 60,
    [OP_CARD] = 10,
    [OP_RESERVE] = 60,
    [OP_DEL] = 15,
    [OP_UNLINK] = 15,
    [OP_EXPIRE_NOW] = 10,
    [OP_EXPIRE_LATER] = 15,
    [OP_SET] = 15,
    [OP_STORE] = 5,
    [OP_RENAME] = 40,
    [OP_RENAMENX] = 20,
    [OP_COPY] = 50,
    [OP_MOVE] = 40,
    [OP_SWAPDB] = 15,
    [OP_DUMP] = 25,
    [OP_RESTORE] = 30,
    [OP_FLUSHDB] = 5,
    [OP_FLUSHALL] = 1,
    [OP_EXPIRE_SOON] = 15,
    [OP_DAMAGE] = 20,
    [OP_MERGE] = 40,
    [OP_CHUNKS] = 20,
    [OP_MULTI] = 60,
    [OP_BGSAVE] = 4,
    [OP_REWRITE] = 4,
    [OP_RELOAD] = 3,
    [OP_PAUSE] = 2,
    [OP_RESTART_PRIMARY] = 2,
    [OP_RESTART_REPLICA] = 1,
    [OP_RESYNC] = 2,
    [OP_SWITCH] = 2,
    [OP_FAILOVER] = 1,
    [OP_QUIET] = 6,
    [OP_TIME] = 40,
};

static OpKind draw_kind(uint64_t *random, int nkinds) {
    int total = 0;
    for (int i = 0; i < nkinds; i++) total += weights[i];
    int at = below(random, total), kind = 0;
    while (at >= weights[kind]) at -= weights[kind++];
    return (OpKind)kind;
}

static Op draw(uint64_t *random, int nkinds) {
    Op op = {.kind = draw_kind(random, nkinds),
             .db = below(random, NDATABASES),
             .db2 = below(random, NDATABASES),
             .name = below(random, NNAMES),
             .name2 = below(random, NNAMES),
             .slot = below(random, NPAYLOADS),
             .variant = (unsigned)random_next(random),
             .nitems = 1 + below(random, MAX_BATCH)};
    /* Half of the batches are neighbours, so that filters fill up and grow. */
    int first = below(random, NITEMS), step = below(random, 2);
    for (int i = 0; i < op.nitems; i++)
        op.items[i] = step ? (first + i) % NITEMS : below(random, NITEMS);
    if (op.kind == OP_ADD || op.kind == OP_EXISTS) op.nitems = 1;
    return op;
}

Op op_draw(uint64_t *random) {
    return draw(random, NOPS);
}

Op op_draw_simple(uint64_t *random) {
    return draw(random, NSIMPLE);
}

/* ---- commands ---- */

static void put_bytes(Args *args, const char *bytes, size_t nbytes) {
    args->argv[args->argc] = bytes;
    args->lens[args->argc++] = nbytes;
}

__attribute__((format(printf, 2, 3))) static void put(Args *args, const char *format, ...) {
    char *text = args->text[args->argc];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(args->text[0]), format, list);
    va_end(list);
    put_bytes(args, text, strlen(text));
}

static const char *const errors[] = {"0.01", "0.001", "0.0001"};

/* What a filter is made for. All but the smallest shards begin as tables of their items; the larger
 * ones turn when they hold 30 to 150 of them, so that they are met in both forms. */
static const struct {
    unsigned capacity, shard_bytes;
    unsigned expansion; /* 0: one of the usual */
} sizes[] = {
    {50, 4096, 0},       {200, 8192, 0},    {1000, 4096, 0},     {20000, 8192, 0},
    {20000, 4096, 0},    {50, 8192, 0},     {60000, 200000, 0},  {60000, 8 << 20, 0},
    {200000, 131072, 0}, {50, 90000, 2000}, {1000, 131072, 300}, {400000, 131072, 0},
};

static bool op_fixed(const Op *op) {
    return (op->variant >> 8 & 3) == 0;
}

static unsigned op_size(const Op *op) {
    return (op->variant >> 12) % (sizeof sizes / sizeof *sizes);
}

static unsigned op_capacity(const Op *op) {
    return sizes[op_size(op)].capacity;
}

static bool op_window(const Op *op) {
    return (op->variant >> 16 & 3) == 0;
}

/* A slice that is full can't remember for longer what is known: that is for other tests. */
static bool op_sliding(const Op *op) {
    return op_window(op) && !op_fixed(op) && op->variant >> 18 & 1;
}

static unsigned op_seed(const Op *op) {
    return op->variant >> 4;
}

/* Mostly a little later; at times the clock is set back, and at times nothing happens for long. */
uint64_t op_time(const Op *op) {
    const uint64_t ms = (uint64_t)(op->variant >> 8) % PIECE_MS;
    return op->variant % 16 == 0   ? model_now_ms + ms * 10
           : op->variant % 16 == 1 ? model_now_ms - ms * 4
                                   : model_now_ms + ms;
}

static void put_options(Args *args, const Op *op) {
    if (op_fixed(op)) {
        put(args, "NONSCALING");
    } else {
        put(args, "EXPANSION");
        const unsigned expansion = sizes[op_size(op)].expansion;
        put(args, "%u", expansion ? expansion : 2 + (op->variant >> 10 & 3));
    }
    put(args, "SHARDSIZE");
    put(args, "%u", sizes[op_size(op)].shard_bytes);
    if (!op_window(op)) return;
    put(args, "WINDOW");
    put(args, "3600");
    put(args, "SLICES");
    put(args, "%d", NSLICES);
    if (op_sliding(op)) put(args, "SLIDING");
    put(args, "SEED");
    put(args, "%u", op_seed(op));
}

static void put_items(Args *args, const Op *op) {
    for (int i = 0; i < op->nitems; i++) put(args, "i%d", op->items[i]);
}

static void command_of_filter(const Op *op, Args *args) {
    const char *key = model_names[op->name];
    static const char *const names[] = {
        [OP_ADD] = "BF.ADD",        [OP_MADD] = "BF.MADD",       [OP_INSERT] = "BF.INSERT",
        [OP_EXISTS] = "BF.EXISTS",  [OP_MEXISTS] = "BF.MEXISTS", [OP_CARD] = "BF.CARD",
        [OP_RESERVE] = "BF.RESERVE"};
    put(args, "%s", names[op->kind]);
    put(args, "%s", key);
    if (op->kind == OP_CARD) return;
    if (op->kind == OP_RESERVE) {
        put(args, "%s", errors[op->variant % 3]);
        put(args, "%u", op_capacity(op));
        put_options(args, op);
        return;
    }
    if (op->kind == OP_INSERT && op->variant & 1) {
        put(args, "NOCREATE");
    } else if (op->kind == OP_INSERT) {
        put(args, "ERROR");
        put(args, "%s", errors[op->variant % 3]);
        put(args, "CAPACITY");
        put(args, "%u", op_capacity(op));
        put_options(args, op);
    }
    if (op->kind == OP_INSERT) put(args, "ITEMS");
    put_items(args, op);
}

void op_command(const Model *model, const Op *op, Args *args) {
    const char *key = model_names[op->name], *key2 = model_names[op->name2];
    const Payload *payload = &model->payloads[op->slot];
    const bool flag = op->variant & 1;
    args->argc = 0;
    switch (op->kind) {
    case OP_DEL:
    case OP_UNLINK:
        put(args, op->kind == OP_DEL ? "DEL" : "UNLINK");
        put(args, "%s", key);
        break;
    case OP_EXPIRE_NOW:
    case OP_EXPIRE_SOON:
        put(args, op->kind == OP_EXPIRE_NOW ? "PEXPIREAT" : "PEXPIRE");
        put(args, "%s", key);
        put(args, "1");
        break;
    case OP_EXPIRE_LATER:
        put(args, flag ? "EXPIRE" : "PERSIST");
        put(args, "%s", key);
        if (flag) put(args, "100000");
        break;
    case OP_SET:
        put(args, "SET");
        put(args, "%s", key);
        put(args, "value");
        break;
    case OP_STORE:
        put(args, "SUNIONSTORE");
        put(args, "%s", key);
        put(args, "no such set");
        break;
    case OP_RENAME:
    case OP_RENAMENX:
        put(args, op->kind == OP_RENAME ? "RENAME" : "RENAMENX");
        put(args, "%s", key);
        put(args, "%s", key2);
        break;
    case OP_COPY:
        put(args, "COPY");
        put(args, "%s", key);
        put(args, "%s", key2);
        put(args, "DB");
        put(args, "%d", op->db2);
        if (flag) put(args, "REPLACE");
        break;
    case OP_MOVE:
        put(args, "MOVE");
        put(args, "%s", key);
        put(args, "%d", op->db2);
        break;
    case OP_MERGE:
        put(args, "BF.MERGE");
        put(args, "%s", key);
        put(args, "%s", model_names[op->name2]);
        break;
    case OP_SWAPDB:
        put(args, "SWAPDB");
        put(args, "%d", op->db);
        put(args, "%d", op->db2);
        break;
    case OP_DUMP:
        put(args, "DUMP");
        put(args, "%s", key);
        break;
    case OP_RESTORE:
        put(args, "RESTORE");
        put(args, "%s", key);
        put(args, op->variant & 2 && op->variant & 4 ? "1" : "0");
        put_bytes(args, payload->bytes ? payload->bytes : "", payload->nbytes);
        if (flag) put(args, "REPLACE");
        if (op->variant & 2 && op->variant & 4) put(args, "ABSTTL");
        break;
    case OP_FLUSHDB:
    case OP_FLUSHALL:
        put(args, op->kind == OP_FLUSHDB ? "FLUSHDB" : "FLUSHALL");
        put(args, flag ? "ASYNC" : "SYNC");
        break;
    default:
        command_of_filter(op, args);
    }
}

void op_describe(const Model *model, const Op *op, char *text, size_t room) {
    static const char *const others[NOPS] = {
        [OP_DAMAGE] = "damage and BF.HEAL of",
        [OP_CHUNKS] = "copy in chunks of",
        [OP_MULTI] = "MULTI",
        [OP_BGSAVE] = "BGSAVE",
        [OP_REWRITE] = "BGREWRITEAOF",
        [OP_RELOAD] = "DEBUG RELOAD",
        [OP_PAUSE] = "CLIENT PAUSE",
        [OP_RESTART_PRIMARY] = "restart of the primary",
        [OP_RESTART_REPLICA] = "restart of the replica",
        [OP_RESYNC] = "resync of the replica",
        [OP_SWITCH] = "switch of roles",
        [OP_FAILOVER] = "kill of the primary, promotion of the replica",
        [OP_QUIET] = "comparison",
        [OP_TIME] = "time passes, says",
    };
    size_t n = (size_t)snprintf(text, room, "db %d: ", op->db);
    if (op->kind > OP_MERGE) {
        snprintf(text + n, room - n, "%s %s", others[op->kind], model_names[op->name]);
        return;
    }
    Args args;
    op_command(model, op, &args);
    for (int i = 0; i < args.argc && n < room; i++)
        n += (size_t)snprintf(text + n, room - n, "%s ",
                              args.argv[i] == args.text[i] ? args.text[i] : "<payload>");
}

/* ---- replies ---- */

/* Does a slice count? Once something was added at a time at which it was over, never again. */
static bool counts(const Value *value, uint64_t began_ms) {
    const uint64_t now_ms = model_now_ms > value->latest_ms ? model_now_ms : value->latest_ms;
    return began_ms && began_ms + LASTS_MS > now_ms;
}

bool value_contains(const Value *value, int item) {
    if (value->kind != FILTER) return false;
    return value->window ? counts(value, value->since_ms[item])
                         : value->contained[item / 64] >> item % 64 & 1;
}

bool value_card(const Value *value, uint64_t *card) {
    *card = value->card;
    if (!value->window) return true;
    for (int i = *card = 0; i <= NSLICES; i++)
        if (counts(value, value->slices[i].began_ms)) *card += value->slices[i].nitems;
    return !value->sliding && !value->merged;
}

/* Something is to be added: there is a slice for it. */
static void value_turn(Value *value) {
    if (!value->window) return;
    uint64_t began_ms = value->seed % PIECE_MS;
    began_ms += (model_now_ms - began_ms) / PIECE_MS * PIECE_MS;
    if (model_now_ms > value->latest_ms) value->latest_ms = model_now_ms;
    if (began_ms <= value->slices[0].began_ms) return; /* the clock was set back */
    memmove(value->slices + 1, value->slices, NSLICES * sizeof *value->slices);
    value->slices[0].began_ms = began_ms;
    value->slices[0].nitems = 0;
}

void value_set(Value *value, int item, bool contained) {
    if (value->window) {
        value->since_ms[item] = contained ? value->slices[0].began_ms : 0;
        return;
    }
    const uint64_t bit = (uint64_t)1 << item % 64;
    if (contained)
        value->contained[item / 64] |= bit;
    else
        value->contained[item / 64] &= ~bit;
}

typedef struct {
    Model *model;
    const Op *op;
    char *why;
    size_t room;
} Judge;

__attribute__((format(printf, 2, 3))) static bool wrong(Judge *judge, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(judge->why, judge->room, format, list);
    va_end(list);
    return false;
}

static bool is_error(const redisReply *r, const char *start) {
    return r->type == REDIS_REPLY_ERROR && strncmp(r->str, start, strlen(start)) == 0;
}

static bool expect_int(Judge *judge, const redisReply *r, long long want) {
    if (r->type == REDIS_REPLY_INTEGER && r->integer == want) return true;
    return wrong(judge, "answered %lld %s, expected %lld", r->integer, r->str ? r->str : "", want);
}

static bool expect_ok(Judge *judge, const redisReply *r) {
    if (r->type == REDIS_REPLY_STATUS && strcmp(r->str, "OK") == 0) return true;
    return wrong(judge, "answered %lld %s, expected OK", r->integer, r->str ? r->str : "");
}

static bool expect_error(Judge *judge, const redisReply *r, const char *start) {
    if (is_error(r, start)) return true;
    return wrong(judge, "answered %lld %s, expected error %s", r->integer, r->str ? r->str : "",
                 start);
}

static void make_filter(Value *value, const Op *op) {
    const struct window window = {.seconds = 3600, .nslices = NSLICES, .capacity = op_capacity(op)};
    *value = (Value){.kind = FILTER,
                     .fixed = op_fixed(op),
                     .capacity = op_window(op) ? window_slice_capacity(&window) : op_capacity(op),
                     .window = op_window(op),
                     .sliding = op_sliding(op),
                     .seed = op_seed(op)};
    value_turn(value);
}

static bool is_full(const Value *value) {
    return value->fixed &&
           (value->window ? value->slices[0].nitems : value->card) >= value->capacity;
}

/* Only the server knows how many items each slice of a union has. */
static bool is_uncertain(const Value *value) {
    return value->merged && value->window && value->fixed;
}

/* One item that was to be added. */
static bool judge_added(Judge *judge, Value *value, int item, const redisReply *r) {
    if (value_contains(value, item)) {
        if (value->sliding) value_set(value, item, true);
        return expect_int(judge, r, 0);
    }
    if (r->type == REDIS_REPLY_ERROR) {
        if ((is_full(value) || is_uncertain(value)) &&
            is_error(r, "ERR non scaling filter is full"))
            return true;
        return wrong(judge, "adding i%d answered %s", item, r->str);
    }
    if (r->type != REDIS_REPLY_INTEGER || r->integer < 0 || r->integer > 1)
        return wrong(judge, "adding i%d answered %s", item, r->str ? r->str : "no integer");
    if (r->integer == 1 && is_full(value) && !is_uncertain(value))
        return wrong(judge, "a full filter took i%d", item);
    judge->model->nfresh += !value->merged;
    judge->model->nfalse += !value->merged && r->integer == 0;
    value->card += r->integer == 1;
    value->slices[0].nitems += value->window && r->integer == 1;
    if (r->integer == 1 || !value->window || value->sliding) value_set(value, item, true);
    return true;
}

static bool judge_asked(Judge *judge, Value *value, int item, const redisReply *r) {
    if (r->type != REDIS_REPLY_INTEGER || r->integer < 0 || r->integer > 1)
        return wrong(judge, "asking for i%d answered %s", item, r->str ? r->str : "no integer");
    if (value_contains(value, item))
        return r->integer == 1 || wrong(judge, "i%d was added and is not found", item);
    if (value->kind == NOTHING) return expect_int(judge, r, 0);
    judge->model->nfresh += !value->merged;
    judge->model->nfalse += !value->merged && r->integer == 1;
    if (r->integer == 1 && !value->window) value_set(value, item, true);
    return true;
}

static bool judge_items(Judge *judge, Value *value, const redisReply *r,
                        bool (*one)(Judge *, Value *, int, const redisReply *)) {
    const Op *op = judge->op;
    if (op->kind == OP_ADD || op->kind == OP_EXISTS) return one(judge, value, op->items[0], r);
    if (r->type != REDIS_REPLY_ARRAY || r->elements != (size_t)op->nitems)
        return wrong(judge, "answered %s", r->str ? r->str : "an array of another length");
    for (int i = 0; i < op->nitems; i++)
        if (!one(judge, value, op->items[i], r->element[i])) return false;
    return true;
}

static bool judge_filter_command(Judge *judge, Value *value, const redisReply *r) {
    const Op *op = judge->op;
    if (value->kind == STRING) return expect_error(judge, r, "WRONGTYPE");
    switch (op->kind) {
    case OP_RESERVE:
        if (value->kind == FILTER) return expect_error(judge, r, "ERR item exists");
        make_filter(value, op);
        return expect_ok(judge, r);
    case OP_CARD: {
        uint64_t card;
        return !value_card(value, &card) || expect_int(judge, r, (long long)card);
    }
    case OP_EXISTS:
    case OP_MEXISTS:
        return judge_items(judge, value, r, judge_asked);
    case OP_INSERT:
        if (value->kind == NOTHING && op->variant & 1)
            return expect_error(judge, r, "ERR not found");
        if (value->kind == NOTHING) make_filter(value, op);
        value_turn(value);
        return judge_items(judge, value, r, judge_added);
    default:
        if (value->kind == NOTHING) *value = (Value){.kind = FILTER};
        value_turn(value);
        return judge_items(judge, value, r, judge_added);
    }
}

static bool judge_rename(Judge *judge, Value *from, Value *to, const redisReply *r) {
    const bool nx = judge->op->kind == OP_RENAMENX;
    if (from->kind == NOTHING) return expect_error(judge, r, "ERR no such key");
    if (nx && to->kind != NOTHING) return expect_int(judge, r, 0);
    if (from != to) {
        *to = *from;
        *from = (Value){0};
    }
    return nx ? expect_int(judge, r, 1) : expect_ok(judge, r);
}

static bool judge_transfer(Judge *judge, Value *from, Value *to, const redisReply *r) {
    const bool copy = judge->op->kind == OP_COPY, replace = copy && judge->op->variant & 1;
    if (from == to) return expect_error(judge, r, "ERR source and destination");
    if (from->kind == NOTHING || (to->kind != NOTHING && !replace)) return expect_int(judge, r, 0);
    *to = *from;
    if (!copy) *from = (Value){0};
    return expect_int(judge, r, 1);
}

/* What counts of the other's slices is in those that began at the same moment. */
static void unite_slices(Value *to, const Value *from) {
    for (int i = 0; i < NITEMS; i++)
        if (counts(from, from->since_ms[i]) && from->since_ms[i] > to->since_ms[i])
            to->since_ms[i] = from->since_ms[i];
    for (int i = NSLICES; i >= 0; i--) { /* the oldest first */
        const uint64_t began_ms = from->slices[i].began_ms;
        if (!counts(from, began_ms) || began_ms <= to->slices[0].began_ms) continue;
        memmove(to->slices + 1, to->slices, NSLICES * sizeof *to->slices);
        to->slices[0] = from->slices[i];
    }
}

/* Seeds are random, so a filter can be united only with a copy, or with what was once a copy. The
 * server says whether two filters are. */
static bool judge_merge(Judge *judge, Value *to, const Value *from, const redisReply *r) {
    if (to->kind == STRING || from->kind == STRING) return expect_error(judge, r, "WRONGTYPE");
    if (from->kind == NOTHING) return expect_error(judge, r, "ERR not found");
    uint64_t card;
    if (to == from && value_card(to, &card)) return expect_int(judge, r, (long long)card);
    if (to->kind == FILTER && is_error(r, "ERR '") && strstr(r->str, "can't be merged into"))
        return true;
    if (r->type != REDIS_REPLY_INTEGER || r->integer < 0)
        return wrong(judge, "BF.MERGE answered %s", r->str ? r->str : "no integer");
    if (to == from) return true;
    judge->model->nmerged += to->kind == FILTER;
    if (to->kind == NOTHING)
        *to = (Value){.kind = FILTER,
                      .fixed = from->fixed,
                      .capacity = from->capacity,
                      .window = from->window,
                      .sliding = from->sliding,
                      .seed = from->seed};
    for (size_t i = 0; i < sizeof to->contained / sizeof *to->contained; i++)
        to->contained[i] |= from->contained[i];
    if (to->window) unite_slices(to, from);
    to->card = (uint64_t)r->integer;
    to->merged = true;
    return true;
}

static bool judge_dump(Judge *judge, const Value *value, const redisReply *r) {
    Payload *payload = &judge->model->payloads[judge->op->slot];
    free(payload->bytes);
    *payload = (Payload){.value = *value};
    if (value->kind == NOTHING) return r->type == REDIS_REPLY_NIL || wrong(judge, "expected nil");
    if (r->type != REDIS_REPLY_STRING) return wrong(judge, "DUMP answered %s", r->str);
    payload->nbytes = (size_t)r->len;
    payload->bytes = malloc(payload->nbytes);
    memcpy(payload->bytes, r->str, payload->nbytes);
    return true;
}

static bool judge_restore(Judge *judge, Value *value, const redisReply *r) {
    const Op *op = judge->op;
    const Payload *payload = &judge->model->payloads[op->slot];
    if (value->kind != NOTHING && !(op->variant & 1)) return expect_error(judge, r, "BUSYKEY");
    if (!payload->bytes) return expect_error(judge, r, "ERR DUMP payload");
    *value = payload->value;
    if (op->variant & 2 && op->variant & 4) *value = (Value){0}; /* expired long ago */
    return expect_ok(judge, r);
}

static void swap_databases(Model *model, int a, int b) {
    for (int i = 0; i < NNAMES; i++) {
        const Value value = model->at[a][i];
        model->at[a][i] = model->at[b][i];
        model->at[b][i] = value;
    }
}

bool op_apply(Model *model, const Op *op, const redisReply *r, char *why, size_t room) {
    Judge judge = {model, op, why, room};
    Value *value = &model->at[op->db][op->name];
    const bool there = value->kind != NOTHING;
    switch (op->kind) {
    case OP_DEL:
    case OP_UNLINK:
    case OP_EXPIRE_NOW:
    case OP_EXPIRE_SOON:
        *value = (Value){0};
        return expect_int(&judge, r, there);
    case OP_EXPIRE_LATER:
        return op->variant & 1 ? expect_int(&judge, r, there) : r->type == REDIS_REPLY_INTEGER;
    case OP_SET:
        *value = (Value){.kind = STRING};
        return expect_ok(&judge, r);
    case OP_STORE:
        *value = (Value){0};
        return expect_int(&judge, r, 0);
    case OP_RENAME:
    case OP_RENAMENX:
        return judge_rename(&judge, value, &model->at[op->db][op->name2], r);
    case OP_COPY:
        return judge_transfer(&judge, value, &model->at[op->db2][op->name2], r);
    case OP_MOVE:
        return judge_transfer(&judge, value, &model->at[op->db2][op->name], r);
    case OP_MERGE:
        return judge_merge(&judge, value, &model->at[op->db][op->name2], r);
    case OP_SWAPDB:
        if (op->db != op->db2) swap_databases(model, op->db, op->db2);
        return expect_ok(&judge, r);
    case OP_DUMP:
        return judge_dump(&judge, value, r);
    case OP_RESTORE:
        return judge_restore(&judge, value, r);
    case OP_FLUSHALL:
        memset(model->at, 0, sizeof(model->at));
        return expect_ok(&judge, r);
    case OP_FLUSHDB:
        memset(model->at[op->db], 0, sizeof(model->at[op->db]));
        return expect_ok(&judge, r);
    default:
        return judge_filter_command(&judge, value, r);
    }
}

void model_free(Model *model) {
    for (int i = 0; i < NPAYLOADS; i++) free(model->payloads[i].bytes);
    memset(model, 0, sizeof(*model));
}
