#include "core/window.h"

#include <math.h>

#define ROOM_FOR_GROWTH 8u
#define MOST_SHARED     (2u << 20) /* bytes of a string that two slices share */

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

/* Where the clock was set back, a slice can be over although the newest one still takes items. */
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

/* Items do not come evenly: with four standard deviations of room, a filter that gets as many as it
 * was made for does not grow in every other slice. */
uint64_t window_slice_capacity(const struct window *window) {
    const uint64_t share = (window->capacity + window->nslices - 1) / window->nslices,
                   room = share + 4 * (uint64_t)ceil(sqrt((double)share));
    return room < SIZING_MAX_CAPACITY ? room : SIZING_MAX_CAPACITY;
}

/* A slice that had to grow was too small, and so would the next one be: that has room for as many
 * items as came this time, and an eighth more. Otherwise a window reserved for a hundred items and
 * fed a million would have a dozen layers in each slice. */
static uint64_t next_capacity(const struct descriptor *descriptor) {
    const uint64_t planned = window_slice_capacity(descriptor->window);
    uint64_t came = 0;
    for (uint32_t i = descriptor_newest_slice(descriptor); i < descriptor->nlayers; i++)
        came += descriptor->layers[i].nitems;
    if (descriptor->expansion == 0 || came <= planned) return planned;
    came += came / 8;
    return came < SIZING_MAX_CAPACITY ? came : SIZING_MAX_CAPACITY;
}

/* May a new slice join the string of the newest one? Opening a string is most of what a slice costs
 * a single item, so small slices share one, two by two. The string goes when both are over: the
 * filter keeps one slice more, at most, since the two follow each other at once. Only a slice that
 * has become a bitmap is joined: a joined layer can't begin young, and a window that holds little
 * would take the memory of a full one. The string is copied then, so it must be short. */
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

/* Slices that have to grow can use up the layers that a filter can have. A slice begins only if
 * that leaves a few for growth. */
static bool has_room(const struct descriptor *descriptor, uint32_t ndropped) {
    const uint32_t nlayers = descriptor->nlayers - ndropped,
                   growth = descriptor->expansion > 0 ? ROOM_FOR_GROWTH : 0;
    return nlayers + growth < SIZING_MAX_LAYERS;
}

/* The newest slice goes on as that of the piece of time that is now: what is in it already is
 * remembered for longer. */
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
