/* Atomic slot migration: one command moves a slot, at once for all clients. Redis 8.4 and
 * Valkey 9.0 have it, each in its own way. */
#ifndef ATOMIC_H
#define ATOMIC_H

#include "cluster_fixture.h"

typedef enum {
    ATOMIC_NONE,
    ATOMIC_REDIS,
    ATOMIC_VALKEY,
} AtomicKind;

/* Which of them this server has; says so if none. */
AtomicKind atomic_kind(Server *s);
/* Moves a slot from one node to the other and waits until both say so, and all nodes agree. */
bool atomic_move(Cluster *cluster, AtomicKind kind, int slot, int from, int to);

#endif
