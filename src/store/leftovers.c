#include "store/leftovers.h"

#include "store/clock.h"
#include "store/jobs.h"

static const struct supplier *supplier;

static struct leftover {
    struct shard **parts;
    uint32_t nshards, ndone; /* of the shards */
    struct leftover *next;
} * first;

void leftovers_take(struct shard **parts, uint32_t nshards) {
    struct leftover *leftover = RedisModule_Alloc(sizeof *leftover);
    *leftover = (struct leftover){.parts = parts, .nshards = nshards, .next = first};
    first = leftover;
}

/* The job. A part takes some 20 µs. */
static bool free_until(RedisModuleCtx *ctx, int64_t deadline_us) {
    (void)ctx;
    while (first && clock_monotonic_us() < deadline_us) {
        struct leftover *leftover = first;
        handles_forget(leftover->parts, leftover->ndone / HANDLES_PER_PART, leftover->nshards,
                       supplier);
        leftover->ndone += HANDLES_PER_PART;
        if (leftover->ndone < leftover->nshards) continue;
        first = leftover->next;
        RedisModule_Free(leftover->parts);
        RedisModule_Free(leftover);
    }
    return first != NULL;
}

void leftovers_start(const struct supplier *of_strings) {
    supplier = of_strings;
    jobs_add(free_until);
}
