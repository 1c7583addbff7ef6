#include "core/window.h"

#include <math.h>

#define ROOM_FOR_GROWTH 8u
#define MOST_SHARED     (2u << 20) /* largest string that two slices share, in bytes */

uint64_t window_slice_ms(const struct window *window) {
    return ((uint64_t)window->seconds * 1000 + window->nslices - 1) / window->nslices;
}

uint64_t window_piece_began(const struct window *window, uint64_t seed, uint64_t now_ms) {
    const uint64_t piece = window_slice_ms(window);
    const uint64_t since = (now_ms % piece + piece - seed % piece) % piece;
    return now_ms > since ? now_ms - since : 1;
}

static bool needs_slice(const struct descriptor *descriptor, uint64_t now_ms) {
    return window_piece_began(descriptor->window, descriptor->seed, now_ms) >
           descriptor_newest(descriptor)->began_ms;
}

/* If the clock was set back, a slice can be over although the newest one still takes items. */
bool window_is_due(const struct descriptor *descriptor, uint64_t now_ms) {
    return needs_slice(descriptor, now_ms) ||
           window_nover(descriptor, now_ms) > descriptor->window->nover;
}

uint32_t window_nover(const struct descriptor *descriptor, uint64_t now_ms) {
    const struct window *window = descriptor->window;
    const uint64_t lasts = (window->nslices + 1) * window_slice_ms(window);
    uint32_t n = window->nover;
    while (n < descriptor->nlayers && descriptor->layers[n].began_ms + lasts <= now_ms) n++;
    return n;
}

double window_slice_error(double error, const struct window *window) {
    return window ? error / (window->nslices + 1) : error;
}

/* Items do not arrive evenly. Without some extra room, a filter that gets as many items as it was
 * made for would grow in every other slice. Four standard deviations prevent that. */
uint64_t window_slice_capacity(const struct window *window) {
    const uint64_t share = (window->capacity + window->nslices - 1) / window->nslices,
                   room = share + 4 * (uint64_t)ceil(sqrt((double)share));
    return room < SIZING_MAX_CAPACITY ? room : SIZING_MAX_CAPACITY;
}

/* The capacity of the next slice. If the newest one had to grow, it was too small, and a new one of
 * the planned size would be, too. So the next one gets room for as many items as came this time,
 * and an eighth more. Otherwise a window reserved for a hundred items and fed a million would have
 * a dozen layers in each slice. */
static uint64_t next_capacity(const struct descriptor *descriptor) {
    const uint64_t planned = window_slice_capacity(descriptor->window);
    uint64_t came = 0;
    for (uint32_t i = descriptor_newest_slice(descriptor); i < descriptor->nlayers; i++)
        came += descriptor->layers[i].nitems;
    if (descriptor->expansion == 0 || came <= planned) return planned;
    came += came / 8;
    return came < SIZING_MAX_CAPACITY ? came : SIZING_MAX_CAPACITY;
}

/* May a new slice join the string of the newest one? For a single item, opening the string is most
 * of the cost of a slice, so small slices share strings in pairs. A shared string is removed when
 * both slices are over. The two are consecutive, so the filter keeps at most one slice more. A new
 * slice joins only a string that has become a bitmap: a joined layer can't start young, so a window
 * with few items would otherwise use as much memory as a full one. Joining copies the string, so it
 * must be short. */
static bool may_share(const struct descriptor *descriptor, const struct layer *layer) {
    if (descriptor->nlayers == 0) return false;
    const struct layer *newest = descriptor_newest(descriptor),
                       *home = &descriptor->layers[newest->home];
    const uint64_t most =
        descriptor->shard_bytes < MOST_SHARED ? descriptor->shard_bytes : MOST_SHARED;
    return layer->began_ms - newest->began_ms <= window_slice_ms(descriptor->window) &&
           home->nstored == layer_most_stored(home) &&
           !descriptor_join_problem(descriptor, layer, most);
}

bool window_begin(struct descriptor *descriptor, uint64_t now_ms) {
    const struct window *window = descriptor->window;
    const bool grows = descriptor->expansion > 0;
    struct layer layer = {.kind = LAYER_BLOCKED,
                          .capacity = next_capacity(descriptor),
                          .began_ms = window_piece_began(window, descriptor->seed, now_ms)};
    const double error =
        sizing_layer_error(window_slice_error(descriptor->error, window), 0, grows);
    if (layer.began_ms > WINDOW_MAX_MS ||
        descriptor_number(descriptor, descriptor->nlayers) > WINDOW_MAX_NUMBER ||
        !sizing_plan(layer.capacity, error, descriptor->shard_bytes, !grows, &layer.layout))
        return false;
    if (may_share(descriptor, &layer)) layer.flags = LAYER_JOINED;
    return descriptor_append(descriptor, &layer);
}

/* Slices that have to grow can use up all layers that a filter can have. A new slice begins only if
 * a few layers are left for growth. */
static bool has_room(const struct descriptor *descriptor, uint32_t ndropped) {
    const uint32_t nlayers = descriptor->nlayers - ndropped,
                   growth = descriptor->expansion > 0 ? ROOM_FOR_GROWTH : 0;
    return nlayers + growth < SIZING_MAX_LAYERS;
}

/* Makes the newest slice continue as the slice of the current piece of time. The items that it
 * already has are remembered for longer. */
static void go_on(struct descriptor *descriptor, uint64_t now_ms) {
    const uint64_t began_ms = window_piece_began(descriptor->window, descriptor->seed, now_ms);
    for (uint32_t i = descriptor_newest_slice(descriptor); i < descriptor->nlayers; i++)
        descriptor->layers[i].began_ms = began_ms;
}

bool window_turn(struct descriptor *descriptor, uint64_t now_ms, bool drops,
                 struct descriptor **gone) {
    const uint32_t nover = window_nover(descriptor, now_ms),
                   ndropped = drops ? descriptor_whole_strings(descriptor, nover) : 0;
    const bool needs = needs_slice(descriptor, now_ms), begins = has_room(descriptor, ndropped);
    *gone = NULL;
    if (needs && !begins && (nover == descriptor->nlayers || now_ms > WINDOW_MAX_MS)) return false;
    if (needs && begins && !window_begin(descriptor, now_ms)) return false;
    if (ndropped > 0 && !(*gone = descriptor_split(descriptor, ndropped))) {
        if (needs && begins) descriptor_drop_newest(descriptor);
        return false;
    }
    if (needs && !begins) go_on(descriptor, now_ms);
    descriptor->window->nover = nover - ndropped;
    return true;
}
