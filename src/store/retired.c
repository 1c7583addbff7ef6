#include "store/retired.h"

#include <pthread.h>
#include <stdatomic.h>

#define PERIOD_MS 100
#define BUSY_MS   1    /* while there is more */
#define PER_TIMER 1000 /* about a millisecond */
#define PER_CALL  16   /* more than one, so that it comes to an end */

static pthread_t main_thread;
static void (*free_filter)(struct filter *filter);
static _Atomic(struct filter *) arrived; /* a stack, to which any thread adds */
static struct filter *waiting;           /* what the main thread has taken off it */

bool retired_take(struct filter *filter) {
    if (pthread_equal(pthread_self(), main_thread)) return false;
    filter->next_retired = atomic_load(&arrived);
    while (!atomic_compare_exchange_weak(&arrived, &filter->next_retired, filter)) {
    }
    return true;
}

/* True if there are more. */
static bool free_up_to(int n) {
    for (; n > 0; n--) {
        if (!waiting) waiting = atomic_exchange(&arrived, NULL);
        struct filter *filter = waiting;
        if (!filter) return false;
        waiting = filter->next_retired;
        free_filter(filter);
    }
    return waiting != NULL;
}

void retired_free_some(void) {
    if (waiting || atomic_load_explicit(&arrived, memory_order_relaxed)) free_up_to(PER_CALL);
}

static void on_timer(RedisModuleCtx *ctx, void *data) {
    (void)data;
    RedisModule_CreateTimer(ctx, free_up_to(PER_TIMER) ? BUSY_MS : PERIOD_MS, on_timer, NULL);
}

void retired_start(RedisModuleCtx *ctx, void (*free_now)(struct filter *filter)) {
    main_thread = pthread_self();
    free_filter = free_now;
    RedisModule_CreateTimer(ctx, PERIOD_MS, on_timer, NULL);
}
