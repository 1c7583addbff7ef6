/* clock.h: the time. No other file asks the system for it. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

/* Microseconds since some moment; never goes back. For measuring, not for dates. */
int64_t clock_monotonic_us(void);

/* Milliseconds since 1970 by the system's clock, which may jump in either direction. For filters
 * with a window. Read it once per command. */
uint64_t clock_wall_ms(void);

/* A number that changes whenever the server has served other clients for a while, but never during
 * a command (law I12). Not 0. */
uint64_t clock_tick(void);

/* Starts the next tick. Only jobs.c calls it. */
void clock_advance(void);

#endif
