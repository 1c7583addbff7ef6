/* window.h: filters that forget.
 *
 * A filter with a window is a row of slices. A slice is what other filters are as a whole: a layer,
 * or several if it grew. Time is cut into pieces of window / SLICES, and everything that is added
 * during a piece goes into the slice of that piece. An item is remembered for a whole window after
 * the end of its slice; then the slice is over, and goes as a whole:
 *
 *     WINDOW 4 days SLICES 4                              now
 *     day      1      2      3      4      5      6      7 |
 *            [over] [over] [    ] [    ] [    ] [    ] [new]
 *                          <------- one window ------->
 *
 * So an item is remembered for at least the window and at most 1 + 1/SLICES of it, and SLICES + 1
 * slices can be alive at once. They share the promised error evenly.
 *
 * Pieces of time begin at multiples of their length, shifted by the filter's seed. Filters of one
 * seed turn at the same moments, so that they can be united; others do not, so that the filters of
 * a server do not all turn at midnight.
 *
 * Nothing here knows a clock: `now` is an argument, in milliseconds since 1970. A slice begins when
 * something is added, and only the primary begins one (law I7). If the clock is set back, the
 * newest slice takes items until time has caught up with it: they are remembered for longer, never
 * for less. */
#ifndef WINDOW_H
#define WINDOW_H

#include "core/descriptor.h"

#define WINDOW_DEFAULT_SLICES 8u

/* How long items are added to one slice. */
uint64_t window_slice_ms(const struct window *window);

/* When the piece of time began that is now. */
uint64_t window_piece_began(const struct window *window, uint64_t seed, uint64_t now_ms);

/* Must the filter turn before something is added: does that belong into a new slice, or is a slice
 * over? */
bool window_is_due(const struct descriptor *descriptor, uint64_t now_ms);

/* How many layers, the oldest ones, are of slices that are over. May be all. */
uint32_t window_nover(const struct descriptor *descriptor, uint64_t now_ms);

/* Begins the first slice of a filter that has none. False if it can't be sized or there is no
 * memory. */
bool window_begin(struct descriptor *descriptor, uint64_t now_ms);

/* Turns a filter that is due: begins the slice for what is added now, and finds out what is over.
 * If `drops`, the layers that are over are taken away, and *gone is a descriptor of them alone;
 * else, and if there are none, *gone is NULL. If there would be too many layers, since slices had
 * to grow, the newest slice goes on instead: better to remember it for longer than to refuse items.
 * False if the slice can't be sized, there is no memory, or all slices are over and none can be
 * dropped for another: then nothing has changed. */
bool window_turn(struct descriptor *descriptor, uint64_t now_ms, bool drops,
                 struct descriptor **gone);

/* The error that all layers of one slice may have together; of a filter without a window, the whole
 * of the promise. */
double window_slice_error(double error, const struct window *window);

/* The items for which a slice is sized when nothing else is known. */
uint64_t window_slice_capacity(const struct window *window);

#endif
