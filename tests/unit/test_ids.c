/* The set of living ids against a plain list of them. */
#include "check.h"
#include "core/ids.h"
#include "core/descriptor.h"

#include <stdlib.h>

enum { NIDS = 3000, NSTEPS = 200000 };

static uint64_t state = 1;
static uint64_t random_u64(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1du;
}

static size_t nbytes_of(const struct ids *ids) {
    size_t nbytes = 0;
    for (unsigned i = 0; i < IDS_NPARTS; i++) nbytes += ids->parts[i].nplaces * sizeof(uint64_t);
    return nbytes;
}

/* Ids that come and go, some several times, 0 among them; many in the same parts, so that searches
 * go round the end. */
TEST(like_a_list) {
    static struct ids ids = {.salt = 42};
    uint64_t id[NIDS], ndifferent = 0;
    unsigned count[NIDS] = {0};
    for (int i = 0; i < NIDS; i++) id[i] = i == 0 ? 0 : random_u64();
    for (int step = 0; step < NSTEPS; step++) {
        /* Mostly growing, then mostly shrinking. */
        const int i = (int)(random_u64() % NIDS);
        if (random_u64() % 100 < (step < NSTEPS / 2 ? 60 : 40)) {
            CHECK(ids_add(&ids, id[i]));
            ndifferent += count[i]++ == 0;
        } else if (count[i] > 0) {
            ids_remove(&ids, id[i]);
            ndifferent -= --count[i] == 0;
        }
        if (step % 1000 != 0) continue;
        CHECK_UINT(ids.ndifferent, ndifferent);
        for (int j = 0; j < NIDS; j++) CHECK_UINT(ids_count(&ids, id[j]), count[j]);
    }
    for (int i = 0; i < NIDS; i++)
        for (; count[i] > 0; count[i]--) ids_remove(&ids, id[i]);
    CHECK_UINT(ids.ndifferent, 0);
    CHECK_UINT(nbytes_of(&ids), 0);
}

/* The promise of the header, and no part that is much larger than the others. */
TEST(memory) {
    static struct ids ids = {.salt = 7};
    for (uint64_t n = 1; n <= 300000; n++) {
        CHECK(ids_add(&ids, n)); /* not random at all */
        if (n >= 30000 && n % 10000 == 0) CHECK_RANGE((double)nbytes_of(&ids) / (double)n, 8, 14);
    }
    for (unsigned i = 0; i < IDS_NPARTS; i++) CHECK(ids.parts[i].nused < 2 * 300000 / IDS_NPARTS);
    ids_clear(&ids);
    CHECK_UINT(ids.ndifferent, 0);
    CHECK_UINT(ids_count(&ids, 1), 0);
    CHECK_UINT(ids.salt, 7);
}

static void *no_memory(size_t nbytes) {
    (void)nbytes;
    return NULL;
}

TEST(no_memory) {
    static struct ids ids;
    const struct allocator usual = descriptor_allocator;
    descriptor_allocator.alloc = no_memory;
    CHECK(!ids_add(&ids, 5));
    descriptor_allocator = usual;
    CHECK_UINT(ids_count(&ids, 5), 0);
    CHECK_UINT(ids.ndifferent, 0);
    CHECK(ids_add(&ids, 5));
    CHECK_UINT(ids_count(&ids, 5), 1);
    ids_clear(&ids);
}
