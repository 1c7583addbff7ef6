#include "store/living.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/ids.h"
#include "redismodule.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ids living;

static void acquire(void) {
    pthread_mutex_lock(&lock);
}

static void release(void) {
    pthread_mutex_unlock(&lock);
}

void living_start(void) {
    RedisModule_GetRandomBytes((unsigned char *)&living.salt, sizeof living.salt);
    /* A fork copies the lock in its present state. Hold it, so that the child gets a consistent
     * table. */
    pthread_atfork(acquire, release, release);
}

void living_add(uint64_t id) {
    acquire();
    if (!ids_add(&living, id)) abort(); /* no memory for 64 bytes: the server would also abort */
    release();
}

bool living_remove(uint64_t id) {
    acquire();
    ids_remove(&living, id);
    const bool last = ids_count(&living, id) == 0;
    release();
    return last;
}

bool living_has(uint64_t id) {
    acquire();
    const bool has = ids_count(&living, id) > 0;
    release();
    return has;
}

uint64_t living_count(void) {
    acquire();
    const uint64_t n = living.ndifferent;
    release();
    return n;
}
