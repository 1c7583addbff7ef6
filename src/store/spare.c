#include "store/spare.h"

#include "store/jobs.h"

#define PAGE     4096u
#define NSPARES  4u  /* shards turn at random moments, a few of them in a row now and then */
#define NPAGES   2u  /* used per item */
#define MOST     32u /* used at a time */
#define IDLE     20u /* ticks */
#define LEAST    (64u << 10)  /* less is zeroed in no time */
#define STRING   10u          /* what a server adds to a string of this size */
#define OVERSIZE (8ul << 20u) /* from here on, jemalloc returns memory to the system at once */

/* All of the same size. The last one may be used in parts only. */
static struct {
    uint8_t *memory[NSPARES];
    unsigned n;
    size_t nbytes;  /* of the strings that they are for */
    size_t nused;   /* bytes of the last one */
    unsigned nidle; /* ticks since they were last asked for */
} spare;

static void drop_one(void) {
    RedisModule_Free(spare.memory[--spare.n]);
    spare.nused = spare.nbytes; /* of the one before: it would not be the last otherwise */
}

static void drop_all(void) {
    while (spare.n > 0) drop_one();
}

/* Memory that is used a moment earlier must not be what makes the server evict or refuse. */
static bool memory_is_short(void) {
    return RedisModule_GetUsedMemoryRatio() > 0.9f;
}

void spare_prepare(size_t nbytes, uint32_t many, uint32_t each) {
    if (nbytes + STRING >= OVERSIZE || nbytes < LEAST) return;
    /* Where filters of different sizes fill at the same time, the first one is served: taking and
     * freeing memory in turns would cost more than it saves. */
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
    /* The last one may not be ready: if there is another, that is better. */
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
