/* Everything a server holds, to be compared: between servers, or before and after a restart.
 *
 * For every key in every database: its name, type, bytes (GET for strings, DUMP for others),
 * whether it expires, and for filters the reply of BF.INFO. Bytes are kept as length and 64-bit
 * digest. */
#ifndef SNAPSHOT_H
#define SNAPSHOT_H

#include "server.h"

typedef struct Snapshot Snapshot;

/* Freed after the test. */
Snapshot *snapshot_take(Server *s);
size_t snapshot_nkeys(const Snapshot *snap);

/* Fails the test with the first few differences. */
#define CHECK_SAME_SNAPSHOT(a, b) snapshot_check_same(a, b, __FILE__, __LINE__)
/* Both servers hold the same now. */
#define CHECK_SAME_DATA(s1, s2)                                                                    \
    snapshot_check_same(snapshot_take(s1), snapshot_take(s2), __FILE__, __LINE__)
bool snapshot_check_same(const Snapshot *a, const Snapshot *b, const char *file, int line);

#endif
