#include "store/identity.h"

#include "core/layout.h"
#include "redismodule.h"

static uint64_t nrestores; /* main thread only */

uint64_t identity_fresh(void) {
    uint64_t id;
    RedisModule_GetRandomBytes((unsigned char *)&id, sizeof id);
    return id;
}

/* splitmix64: ids are random already, this only keeps derived ones apart. Inverted, so that it can't be an id that RESTORE
 * derives of the same number. */
uint64_t identity_copied(uint64_t id, uint32_t ncopies) {
    uint64_t x = ~id + ((uint64_t)ncopies + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t identity_restored(const char *bytes, size_t nbytes, const char *tag, size_t tag_length) {
    const uint64_t seed = layout_hash(tag, tag_length, nrestores).bits;
    return layout_hash(bytes, nbytes, seed).bits;
}

uint64_t identity_nrestores(void) {
    return nrestores;
}

void identity_set_nrestores(uint64_t n) {
    nrestores = n;
}
