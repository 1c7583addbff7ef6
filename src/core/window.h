/* window.h: filters that forget.
 *
 * A filter with a window is a sequence of slices. Each slice is built like a filter without a
 * window: it has one layer, or several if it grew. Time is cut into pieces of window / SLICES, and
 * everything that is added during a piece goes into the slice of that piece. An item is remembered
 * for a whole window after its slice's piece has ended. Then the slice is over and is dropped as a
 * whole:
 *
 *     WINDOW 4 days SLICES 4                              now
 *     day      1      2      3      4      5      6      7 |
 *            [over] [over] [    ] [    ] [    ] [    ] [new]
 *                          <------- one window ------->
 *
 * So an item is remembered for at least one window and at most 1 + 1/SLICES windows, and up to
 * SLICES + 1 slices can be alive at once. They share the promised error evenly.
 *
 * Pieces of time begin at multiples of their length, shifted by the filter's seed. Filters with the
 * same seed turn at the same moments, so that they can be united. Others turn at different moments,
 * so that not all filters of a server turn at midnight.
 *
 * Nothing here reads a clock: the current time is an argument, in milliseconds since 1970. A slice
 * begins when something is added, and only on the primary (law I7). If the clock is set back, the
 * newest slice takes items until time has caught up with it. They are remembered for longer, never
 * for less. */
#ifndef WINDOW_H
#define WINDOW_H

#include "core/descriptor.h"

#define WINDOW_DEFAULT_SLICES 8u

/* The length of a piece of time: how long one slice takes items. */
uint64_t window_slice_ms(const struct window *window);

/* When the current piece of time began. */
uint64_t window_piece_began(const struct window *window, uint64_t seed, uint64_t now_ms);

/* Must the filter turn before something is added? It must if a new slice is needed or another one
 * is over. */
bool window_is_due(const struct descriptor *descriptor, uint64_t now_ms);

/* How many of the oldest layers belong to slices that are over. May be all layers. */
uint32_t window_nover(const struct descriptor *descriptor, uint64_t now_ms);

/* Begins a new slice; also the first one of a new filter. False if it can't be sized, its time or
 * number is out of range, or memory is short. */
bool window_begin(struct descriptor *descriptor, uint64_t now_ms);

/* Turns a filter that is due: begins a new slice if one is needed, and finds out which slices are
 * over. If `drops`, their layers are removed, except those that share a string with a slice that
 * still counts, and *gone becomes a descriptor that has only the removed ones. If nothing was
 * removed, *gone is NULL. If there would be too many layers because slices had to grow, the newest
 * slice continues instead: it is better to remember its items for longer than to refuse new ones.
 * False if the slice can't be sized, memory is short, or all slices are over and none can be
 * dropped to make room for a new one. Then nothing has changed. */
bool window_turn(struct descriptor *descriptor, uint64_t now_ms, bool drops,
                 struct descriptor **gone);

/* The error that all layers of one slice may have together. Without a window, the whole promised
 * error. */
double window_slice_error(double error, const struct window *window);

/* The number of items for which a slice is sized if nothing is known about earlier ones. */
uint64_t window_slice_capacity(const struct window *window);

#endif
