#include "store/retired.h"

#include <pthread.h>
#include <stdatomic.h>

#include "store/clock.h"
#include "store/jobs.h"

#define PER_CALL 16 /* more than one, so that the list gets shorter */
#define MOST_US  1000

static pthread_t main_thread;
static void (*free_filter)(struct filter *filter);
static _Atomic(struct filter *) arrived; /* a stack; any thread may push */
static struct filter *waiting;           /* taken off it by the main thread */

bool retired_take(struct filter *filter) {
    if (pthread_equal(pthread_self(), main_thread)) return false;
    filter->next_retired = atomic_load(&arrived);
    while (!atomic_compare_exchange_weak(&arrived, &filter->next_retired, filter)) {
    }
    return true;
}

/* Frees one filter; false if there is none. */
static bool free_one(void) {
    if (!waiting) waiting = atomic_exchange(&arrived, NULL);
    struct filter *filter = waiting;
    if (!filter) return false;
    waiting = filter->next_retired;
    free_filter(filter);
    return true;
}

void retired_free_some(void) {
    if (!waiting && !atomic_load_explicit(&arrived, memory_order_relaxed)) return;
    for (int n = 0; n < PER_CALL && free_one(); n++) {
    }
}

/* The job. */
static bool free_until(RedisModuleCtx *ctx, int64_t deadline_us) {
    (void)ctx;
    while (clock_monotonic_us() < deadline_us)
        if (!free_one()) return false;
    return true;
}

void retired_free_most(void) {
    free_until(NULL, clock_monotonic_us() + MOST_US);
}

void retired_start(void (*free_now)(struct filter *filter)) {
    main_thread = pthread_self();
    free_filter = free_now;
    jobs_add(free_until);
}
