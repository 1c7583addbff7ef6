#include "store/leftovers.h"

#include "store/clock.h"
#include "store/jobs.h"
#include "store/strings.h"

#define PER_LOOK 64u /* handles to free between two looks at the clock */

static struct leftover {
    struct shard *shards;
    uint32_t n, ndone;
    struct leftover *next;
} * first;

void leftovers_take(struct shard *shards, uint32_t n) {
    struct leftover *leftover = RedisModule_Alloc(sizeof *leftover);
    *leftover = (struct leftover){.shards = shards, .n = n, .next = first};
    first = leftover;
}

/* The job. */
static bool free_until(RedisModuleCtx *ctx, int64_t deadline_us) {
    (void)ctx;
    while (first && clock_monotonic_us() < deadline_us) {
        struct leftover *leftover = first;
        const uint32_t left = leftover->n - leftover->ndone, n = left < PER_LOOK ? left : PER_LOOK;
        handles_forget(leftover->shards + leftover->ndone, n, &key_supplier);
        leftover->ndone += n;
        if (leftover->ndone < leftover->n) continue;
        first = leftover->next;
        RedisModule_Free(leftover->shards);
        RedisModule_Free(leftover);
    }
    return first != NULL;
}

void leftovers_start(void) {
    jobs_add(free_until);
}
