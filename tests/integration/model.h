/* What a server should answer: an exact model of a few filters in a few databases, and random
 * operations on them. */
#ifndef MODEL_H
#define MODEL_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NDATABASES = 3,
    NNAMES = 5,
    NPAYLOADS = 4,
    NITEMS = 2000,
    MAX_BATCH = 40,
    MAX_ARGS = MAX_BATCH + 24,
    NSLICES = 4, /* of filters with a window */
};

extern const char *const model_names[NNAMES];

typedef enum { NOTHING, FILTER, STRING } ValueKind;

/* The value of a key. An item is `contained` once the filter has said so, by accepting it or by
 * taking it for known (a false positive, which stays one). With a window it is contained from when
 * it was accepted until its slice is over; a false positive may last as long or shorter. */
typedef struct {
    ValueKind kind;
    bool fixed;        /* NONSCALING */
    uint64_t capacity; /* of a fixed one; with a window, of a slice */
    uint64_t card;     /* items that were answered to be new; of a union, as many as it said */
    bool merged;       /* it may be fuller than it should be */
    uint64_t contained[(NITEMS + 63) / 64];
    bool window, sliding;
    unsigned seed;      /* with a window: shifts the slices */
    uint64_t latest_ms; /* with a window: the latest time at which something was added */
    struct {
        uint64_t began_ms, nitems; /* 0: there is none */
    } slices[NSLICES + 1];         /* the newest one first */
    uint64_t since_ms[NITEMS];     /* when the slice of an item began; 0: it has none */
} Value;

/* The time on the primary. */
extern uint64_t model_now_ms;

/* What DUMP gave. */
typedef struct {
    char *bytes; /* NULL: there was no key */
    size_t nbytes;
    Value value;
} Payload;

typedef struct {
    Value at[NDATABASES][NNAMES];
    Payload payloads[NPAYLOADS];
    uint64_t nfalse;  /* answers that were false positives */
    uint64_t nfresh;  /* questions about items that were not contained */
    uint64_t nmerged; /* unions of two filters */
} Model;

typedef enum {
    OP_ADD,
    OP_MADD,
    OP_INSERT,
    OP_EXISTS,
    OP_MEXISTS,
    OP_CARD,
    OP_RESERVE,
    OP_DEL,
    OP_UNLINK,
    OP_EXPIRE_NOW,
    OP_EXPIRE_LATER,
    OP_SET,
    OP_STORE,
    OP_RENAME,
    OP_RENAMENX,
    OP_COPY,
    OP_MOVE,
    OP_SWAPDB,
    OP_DUMP,
    OP_RESTORE,
    OP_FLUSHDB,
    OP_FLUSHALL,
    NSIMPLE, /* the above are one command each, and may stand in a MULTI */
    OP_EXPIRE_SOON = NSIMPLE,
    OP_MERGE,
    OP_DAMAGE,
    OP_CHUNKS,
    OP_MULTI,
    OP_BGSAVE,
    OP_REWRITE,
    OP_RELOAD,
    OP_PAUSE,
    OP_RESTART_PRIMARY,
    OP_RESTART_REPLICA,
    OP_RESYNC,
    OP_SWITCH,
    OP_FAILOVER,
    OP_QUIET,
    OP_TIME,
    NOPS
} OpKind;

/* An operation. Drawn without a look at the model, so that a seed gives the same ones whatever a
 * server answers. */
typedef struct {
    OpKind kind;
    int db, db2, name, name2, slot;
    unsigned variant; /* whatever else there is to choose */
    int nitems;
    int items[MAX_BATCH];
} Op;

typedef struct {
    int argc;
    const char *argv[MAX_ARGS];
    size_t lens[MAX_ARGS];
    char text[MAX_ARGS][24];
} Args;

uint64_t random_next(uint64_t *state);
Op op_draw(uint64_t *random);
/* A simple operation among keys, for a MULTI. */
Op op_draw_simple(uint64_t *random);
/* The command of a simple operation (or of OP_EXPIRE_SOON or OP_MERGE). */
void op_command(const Model *model, const Op *op, Args *args);
/* Compares the reply with the model and updates the model. False, with the reason, if the reply is
 * wrong. */
bool op_apply(Model *model, const Op *op, const redisReply *reply, char *why, size_t room);
/* The command as text, for people. */
void op_describe(const Model *model, const Op *op, char *text, size_t room);

bool value_contains(const Value *value, int item);
void value_set(Value *value, int item, bool contained);
/* What BF.CARD answers; false if that depends on false positives. */
bool value_card(const Value *value, uint64_t *card);
/* Where an OP_TIME leads to. */
uint64_t op_time(const Op *op);
void model_free(Model *model);

#endif
