#include "core/merge.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/young.h"

/* ---- can these be united? ---- */

bool merge_fits(const struct layer *to, const struct layer *from) {
    return to->kind == LAYER_BLOCKED && from->kind == LAYER_BLOCKED &&
           layout_is_same(&to->layout, &from->layout);
}

uint32_t merge_target(const struct descriptor *to, const struct descriptor *from, uint32_t layer) {
    const uint64_t began_ms = from->layers[layer].began_ms;
    uint32_t rank = 0, first = to->window ? to->window->nover : 0;
    while (rank < layer && from->layers[layer - rank - 1].began_ms == began_ms) rank++;
    while (first < to->nlayers && to->layers[first].began_ms != began_ms) first++;
    const uint32_t at = first + rank;
    return at < to->nlayers && to->layers[at].began_ms == began_ms ? at : MERGE_NO_LAYER;
}

static bool same_window(const struct window *a, const struct window *b) {
    return a->seconds == b->seconds && a->nslices == b->nslices && a->sliding == b->sliding;
}

/* Why the filters can't be united, apart from their layers; or NULL. */
static const char *head_problem(const struct descriptor *to, const struct descriptor *from) {
    if (to->seed != from->seed) return "their seeds differ: create both with the same SEED";
    if (to->error != from->error) return "their error rates differ";
    if (!to->expansion != !from->expansion) return "only one of them is NONSCALING";
    if (!to->window != !from->window) return "only one of them has a window";
    if (to->window && !same_window(to->window, from->window)) return "their windows differ";
    return NULL;
}

static const char *kind_problem(const struct layer *layer, bool source) {
    if (layer->kind == LAYER_ADOPTED)
        return source ? "the source has adopted strings" : "the destination has adopted strings";
    if (layer->kind == LAYER_CLASSIC)
        return source ? "the source has layers from RedisBloom, which hash items in another way"
                      : "the destination has layers from RedisBloom, which hash items in another "
                        "way";
    return NULL;
}

/* Appends an empty layer like this one. It joins the string of the layer before it if that is
 * allowed here. */
static const char *append_like(struct descriptor *to, const struct layer *like) {
    struct layer layer = {.kind = like->kind,
                          .flags = like->flags,
                          .layout = like->layout,
                          .began_ms = like->began_ms,
                          .capacity = like->capacity};
    if (to->nlayers >= SIZING_MAX_LAYERS) return "the destination can't have more layers";
    if (to->nlayers == 0 || descriptor_join_problem(to, &layer, to->shard_bytes))
        layer.flags &= (uint8_t)~LAYER_JOINED;
    return descriptor_append(to, &layer) ? NULL : "there is no memory for its layers";
}

/* Layers can only be appended: a slice can't be added once later ones exist. */
static bool comes_next(const struct descriptor *to, const struct descriptor *from, uint32_t layer) {
    return to->nlayers == 0 || descriptor_newest(to)->began_ms <= from->layers[layer].began_ms;
}

static bool say(char *problem, size_t room, const char *text) {
    snprintf(problem, room, "%s", text);
    return false;
}

static bool say_differ(char *problem, size_t room, uint32_t index, const struct layer *to,
                       const struct layer *from) {
    if (to->capacity != from->capacity)
        snprintf(problem, room,
                 "layer %" PRIu32 " is for %" PRIu64 " items in the destination and for %" PRIu64
                 " in the source: create both with the same error rate, capacity and EXPANSION",
                 index, to->capacity, from->capacity);
    else
        snprintf(problem, room,
                 "layer %" PRIu32 " has %" PRIu32 " shards of %zu bytes in the destination and "
                 "%" PRIu32 " of %zu in the source: create both with the same EXPANSION or "
                 "NONSCALING, and the same SHARDSIZE",
                 index, to->layout.nshards, layout_shard_bytes(&to->layout), from->layout.nshards,
                 layout_shard_bytes(&from->layout));
    return false;
}

bool merge_extend(struct descriptor *to, const struct descriptor *from, uint32_t first,
                  char *problem, size_t room) {
    const uint32_t nlayers = to->nlayers;
    const char *text = head_problem(to, from);
    for (uint32_t i = 0; !text && i < from->nlayers; i++)
        text = kind_problem(&from->layers[i], true);
    for (uint32_t i = 0; !text && i < to->nlayers; i++) text = kind_problem(&to->layers[i], false);
    if (text) return say(problem, room, text);
    for (uint32_t i = first; i < from->nlayers; i++) {
        const struct layer *layer = &from->layers[i];
        const uint32_t at = merge_target(to, from, i);
        if (at == MERGE_NO_LAYER) {
            text = comes_next(to, from, i)
                       ? append_like(to, layer)
                       : "the destination has no slice as old as one of the source's";
            if (text) return say(problem, room, text);
        } else if (to->layers[at].capacity != layer->capacity ||
                   !merge_fits(&to->layers[at], layer)) {
            return say_differ(problem, room, i, &to->layers[at], layer);
        }
    }
    text = to->nlayers > nlayers ? descriptor_problem(to) : NULL;
    return !text || say(problem, room, text);
}

struct descriptor *merge_like(const struct descriptor *source, const char *tag, size_t tag_length,
                              uint64_t id) {
    struct descriptor *descriptor = descriptor_new(tag, tag_length);
    if (!descriptor) return NULL;
    descriptor->id = id;
    descriptor->seed = source->seed;
    descriptor->error = source->error;
    descriptor->shard_bytes = source->shard_bytes;
    descriptor->expansion = source->expansion;
    if (!source->window) return descriptor;
    struct window window = *source->window;
    window.first_number = 0;
    window.nover = 0;
    if (descriptor_set_window(descriptor, &window)) return descriptor;
    descriptor_free(descriptor);
    return NULL;
}

/* ---- bits ---- */

/* Compilers vectorise a loop of this. They can't do that with a call to an instruction that not
 * every processor has. */
static inline uint64_t count_bits(uint64_t word) {
    word -= word >> 1 & 0x5555555555555555u;
    word = (word & 0x3333333333333333u) + (word >> 2 & 0x3333333333333333u);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return word * 0x0101010101010101u >> 56;
}

/* Sets the bits of one block in another. A page that has them all is not written to, so that a
 * server that is saving does not have to copy it. */
static void unite_block(const struct layout *layout, uint8_t *to, const uint8_t *from,
                        struct merge_gain *gain) {
    const size_t nbytes = layout_block_bytes(layout);
    uint64_t before = 0, after = 0, lacking = 0;
    for (size_t i = 0; i < nbytes; i += 8) {
        uint64_t old, new;
        memcpy(&old, to + i, sizeof old);
        memcpy(&new, from + i, sizeof new);
        before += count_bits(old);
        after += count_bits(old | new);
        lacking |= new & ~old;
    }
    if (lacking == 0) return;
    for (size_t i = 0; i < nbytes; i++) to[i] |= from[i];
    gain->nitems += sizing_block_items(layout, after) - sizing_block_items(layout, before);
    gain->changed = true;
}

/* Adds the items of a young shard. The destination's shard may be dense, or young and turn. */
static void unite_young(struct access *access, const struct merge_part *part, struct shard *to,
                        const struct shard *from, struct merge_gain *gain) {
    const struct layer *layer = &access->descriptor->layers[part->to];
    const struct layout *layout = &layer->layout;
    uint32_t block;
    uint64_t bits;
    for (uint32_t i = 0; i < from->capacity; i++) {
        if (!young_item(layout, from->body, i, &block, &bits)) continue;
        const bool new =
            to->capacity
                ? access_add_young(access, part->to, part->shard, to, block, bits) == ANSWER_NEW
                : layout_set(layout, shard_blocks(layer, to) + block * layout_block_bytes(layout),
                             bits);
        gain->nitems += new;
        gain->changed |= new;
    }
}

/* May the destination's string grow by megabytes? */
static bool allocates(const struct access *access, const struct merge_part *part,
                      const struct shard *to, const struct shard *from) {
    const struct layout *layout = &access->descriptor->layers[part->to].layout;
    if (!to) return true;
    if (to->capacity == 0) return false;
    return from->capacity == 0 ||
           young_limit(layout, part->shard) <= (uint64_t)to->capacity + from->capacity;
}

enum merge_outcome merge_shard(struct access *to, struct access *from,
                               const struct merge_part *part, struct merge_gain *gain) {
    const struct shard *source = access_open(from, part->from, part->shard);
    if (!source) return from->status == SHARD_NONE ? MERGE_DONE : MERGE_FROM_LOST;
    struct shard *target = access_open(to, part->to, part->shard);
    if (!target && to->status != SHARD_NONE) return MERGE_TO_LOST;
    if (allocates(to, part, target, source) && !to->supplier->may_allocate(to))
        return MERGE_NO_MEMORY;
    to->has_memory = true; /* a shard must be united as a whole: replicas do it on their own */
    if (!target) {
        target = access_create(to, part->to, part->shard);
        if (!target) return MERGE_TO_LOST;
        gain->changed = true;
    }
    if (source->capacity) {
        unite_young(to, part, target, source, gain);
        return MERGE_DONE;
    }
    if (target->capacity) {
        access_turn(to, part->to, part->shard, target);
        gain->changed = true;
    }
    const struct layer *layer = &to->descriptor->layers[part->to];
    const size_t block_bytes = layout_block_bytes(&layer->layout);
    uint8_t *blocks = shard_blocks(layer, target);
    const uint8_t *new = shard_blocks(&from->descriptor->layers[part->from], source);
    for (uint32_t i = part->block; i < part->block + part->nblocks; i++)
        unite_block(&layer->layout, blocks + i * block_bytes, new + i *block_bytes, gain);
    return MERGE_DONE;
}
