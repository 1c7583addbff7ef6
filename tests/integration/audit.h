/* Checks that the keys of a server are exactly those that its live filters imply. */
#ifndef AUDIT_H
#define AUDIT_H

#include "server.h"

typedef struct {
    size_t nfilters; /* keys of the module's type */
    size_t nshards;  /* shard keys that a filter in the same database claims, and that are sound */
    size_t nothers;  /* keys that are neither */
    size_t norphans; /* shard keys that no filter in the same database claims */
    size_t nlost;    /* shards that a filter claims and that are missing or damaged */
    size_t nshared;  /* shards that two filters claim */
    char what[200];  /* the first orphan, lost or shared shard */
} Audit;

/* Looks at all databases of the server, once. */
Audit audit(Server *s);

/* No shard is lost or shared, now, and no orphan is left soon (10 s is the limit for a busy
 * machine, not a promise). */
#define CHECK_TIDY(s) audit_tidy(s, __FILE__, __LINE__)
bool audit_tidy(Server *s, const char *file, int line);

#endif
