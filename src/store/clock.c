#include "store/clock.h"

#include <time.h>

static _Atomic uint64_t tick = 1; /* read by whoever frees a filter in the background */

int64_t clock_monotonic_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

uint64_t clock_tick(void) {
    return tick;
}

void clock_advance(void) {
    tick++;
}
