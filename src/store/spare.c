#include "store/spare.h"

#include "store/jobs.h"

#define PAGE    4096u
#define NSPARES 4u          /* shards turn at random moments, sometimes several in a row */
#define NPAGES  2u          /* touched per item */
#define MOST    32u         /* touched at a time */
#define IDLE    20u         /* ticks */
#define LEAST   (64u << 10) /* zeroing less takes no time */
#define STRING  10u         /* what the server adds to a string of this size */

/* From this size on, jemalloc returns memory to the system at once. */
#define OVERSIZE (8ul << 20u)

/* All of the same size. The last one may be touched only in part. */
static struct {
    uint8_t *memory[NSPARES];
    unsigned n;
    size_t nbytes;  /* of the strings they are for */
    size_t nused;   /* touched in the last one */
    unsigned nidle; /* ticks since the last request */
} spare;

static void drop_one(void) {
    RedisModule_Free(spare.memory[--spare.n]);
    spare.nused = spare.nbytes; /* the one before is complete, or there would be none after it */
}

static void drop_all(void) {
    while (spare.n > 0) drop_one();
}

/* Preparing memory must not be what makes the server evict keys or refuse commands. */
static bool memory_is_short(void) {
    return RedisModule_GetUsedMemoryRatio() > 0.9f;
}

void spare_prepare(size_t nbytes, uint32_t many, uint32_t each) {
    if (nbytes + STRING >= OVERSIZE || nbytes < LEAST) return;
    /* If filters with different sizes fill at the same time, the first one is served: alternating
     * between them would cost more than it saves. */
    if (spare.n > 0 && nbytes != spare.nbytes) return;
    spare.nidle = 0;
    if (spare.n == 0 || spare.nused >= nbytes) {
        if (spare.n >= (many < NSPARES ? many : NSPARES) || memory_is_short()) return;
        uint8_t *memory = RedisModule_TryAlloc(nbytes + STRING);
        if (!memory) return;
        spare.memory[spare.n++] = memory;
        spare.nbytes = nbytes;
        spare.nused = 0;
    }
    volatile uint8_t *memory = spare.memory[spare.n - 1];
    const uint32_t npages = each < MOST / NPAGES ? each * NPAGES : MOST;
    for (uint32_t i = 0; i < npages && spare.nused < nbytes; i++, spare.nused += PAGE)
        memory[spare.nused] = 0;
}

void spare_use(size_t nbytes) {
    if (spare.n == 0 || nbytes != spare.nbytes) return;
    /* The last one may not be ready: use another if there is one. */
    if (spare.n > 1 && spare.nused < nbytes) {
        uint8_t *last = spare.memory[spare.n - 1];
        spare.memory[spare.n - 1] = spare.memory[spare.n - 2];
        spare.memory[spare.n - 2] = last;
        const size_t nused = spare.nused;
        drop_one();
        spare.nused = nused;
    } else {
        drop_one();
    }
}

size_t spare_bytes(void) {
    return spare.n * (spare.nbytes + STRING);
}

/* The job. */
static bool drop_idle(RedisModuleCtx *ctx, int64_t deadline_us) {
    (void)ctx, (void)deadline_us;
    if (spare.n > 0 && (++spare.nidle > IDLE || memory_is_short())) drop_all();
    return false;
}

void spare_start(void) {
    jobs_add(drop_idle);
}
