#include "store/clock.h"

#include <time.h>

static _Atomic uint64_t tick = 1; /* also read by threads that free filters in the background */

int64_t clock_monotonic_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Lets tests set the clock: they preload a library that defines this function. Nothing else
 * does. */
__attribute__((weak, visibility("default"))) uint64_t shardbloom_test_clock_ms(void);

uint64_t clock_wall_ms(void) {
    if (shardbloom_test_clock_ms) return shardbloom_test_clock_ms();
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec < 0 ? 0 : (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t clock_tick(void) {
    return tick;
}

void clock_advance(void) {
    tick++;
}
