/* request.h: from the number of an item to the bytes of the command that carries it.
 *
 * Every contestant of the benchmark gets the same items in the same order; what differs is the
 * commands they travel in. A request is what a user would call one operation: one BF.ADD, one
 * BF.MADD of a hundred items, or the seven SETBITs of one item. */
#ifndef BENCH_REQUEST_H
#define BENCH_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RECIPE_BITS = 7 }; /* bits per item in the SETBIT recipe */

/* How a contestant wants its items. */
enum payload {
    PAYLOAD_ITEM,   /* the item itself */
    PAYLOAD_DIGEST, /* a 16-byte digest of it */
    PAYLOAD_SETBIT, /* seven bit commands per item */
    PAYLOAD_LUA,    /* a script call with seven offsets per item */
    PAYLOAD_DAYS,   /* the items, once for every key: a filter per day */
    PAYLOAD_SCRIPT, /* a script call with all keys and the items */
};

/* The commands of one contestant. The "many" forms take several items. */
struct style {
    const char *name;        /* name on the command line */
    enum payload payload;    /* what travels in the commands */
    const char *add;         /* add one item */
    const char *add_many;    /* add a batch */
    const char *exists;      /* ask for one item */
    const char *exists_many; /* ask for a batch */
};

/* The style of that name, or NULL. */
const struct style *style_find(const char *name);

/* A growing byte buffer. */
struct bytes {
    char *data;      /* the bytes, or NULL */
    size_t nbytes;   /* used */
    size_t capacity; /* allocated */
};

/* What the requests of a run look like. */
struct request {
    const struct style *style;
    const char *key;        /* name of the filter, set or bitmap */
    unsigned nkeys;         /* PAYLOAD_DAYS and PAYLOAD_SCRIPT: filters key:0 … key:nkeys-1 */
    bool exists;            /* ask instead of add */
    unsigned batch;         /* items per command; 0: the single-item command */
    unsigned item_nbytes;   /* length of an item, at least 16 */
    const char *script_sha; /* digest of the loaded script, if the style has one */
};

/* The command a run is made of, as INFO commandstats names it apart from case. */
const char *request_command(const struct request *req);

/* Items in one request. */
unsigned request_nitems(const struct request *req);

/* Replies the server sends to a request of nitems items. */
unsigned request_nreplies(const struct request *req, unsigned nitems);

/* Append one request for the nitems items with these numbers. Items of different numbers differ. */
void request_append(struct bytes *out, const struct request *req, const uint64_t *items,
                    unsigned nitems);

/* Can the style do that at all? A pipeline that asks every day's filter can't add, too: whether an
 * item is new is known only after the replies. */
bool request_is_possible(const struct request *req);

/* The script for PAYLOAD_LUA and PAYLOAD_SCRIPT; NULL for others. */
const char *request_script(const struct request *req);

/* A bijective scrambling of 64 bits, used for items and for the choice among them. */
uint64_t mix64(uint64_t x);

#endif
