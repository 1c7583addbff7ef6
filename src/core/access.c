#include "core/access.h"

#include <string.h>

#include "core/header.h"
#include "core/young.h"

/* ---- what is remembered ---- */

struct shard handles_none[HANDLES_PER_PART];

static uint32_t count_parts(uint32_t nshards) {
    return (nshards - 1) / HANDLES_PER_PART + 1;
}

/* How many shards a part has. */
static uint32_t part_size(uint32_t part, uint32_t nshards) {
    const uint32_t left = nshards - part * HANDLES_PER_PART;
    return left < HANDLES_PER_PART ? left : HANDLES_PER_PART;
}

/* The array of a layer's parts. A single part is behind it. */
static struct shard **new_parts(uint32_t nshards) {
    const uint32_t nparts = count_parts(nshards);
    struct shard **parts = descriptor_allocator.need_zeroed(
        1, nparts * sizeof *parts + (nparts == 1 ? nshards * sizeof **parts : 0));
    for (uint32_t i = 0; i < nparts; i++)
        parts[i] = nparts == 1 ? (struct shard *)(parts + 1) : handles_none;
    return parts;
}

/* Makes room for the handle of a layer's string. */
static struct shard *make_handle(struct access *access, uint32_t home, uint32_t number) {
    struct handles *handles = access->handles;
    const struct descriptor *descriptor = access->descriptor;
    const uint32_t nshards = descriptor->layers[home].layout.nshards,
                   part = number / HANDLES_PER_PART;
    if (home >= handles->nlayers) {
        const size_t nbytes = descriptor->nlayers * sizeof *handles->parts;
        handles->parts = descriptor_allocator.realloc(handles->parts, nbytes);
        while (handles->nlayers < descriptor->nlayers) handles->parts[handles->nlayers++] = NULL;
    }
    if (!handles->parts[home]) handles->parts[home] = new_parts(nshards);
    struct shard **parts = handles->parts[home];
    if (parts[part] == handles_none)
        parts[part] = descriptor_allocator.need_zeroed(part_size(part, nshards), sizeof **parts);
    return handles_at(handles, home, number);
}

/* The handle of a shard's string. */
static inline struct shard *handle_of(struct access *access, uint32_t home, uint32_t number) {
    const struct handles *handles = access->handles;
    if (home >= handles->nlayers || !handles->parts[home] ||
        handles->parts[home][number / HANDLES_PER_PART] == handles_none)
        return make_handle(access, home, number);
    return handles_at(handles, home, number);
}

/* Keeps count of the shards that are known to be lost. */
static void set_lost(const struct supplier *supplier, struct shard *shard, bool lost) {
    if (shard->lost == lost) return;
    shard->lost = lost;
    supplier->count(0, 0, lost ? 1 : -1);
}

void handles_forget(struct shard **parts, uint32_t part, uint32_t n,
                    const struct supplier *supplier) {
    struct shard *shards = parts[part];
    if (shards == handles_none) return;
    for (uint32_t i = 0; i < part_size(part, n); i++) {
        if (shards[i].name) supplier->forget(&shards[i]);
        set_lost(supplier, &shards[i], false);
    }
    if (n > HANDLES_PER_PART) descriptor_allocator.free(shards);
}

size_t handles_bytes(const struct handles *handles, uint32_t layer, uint32_t n) {
    struct shard **parts = layer < handles->nlayers ? handles->parts[layer] : NULL;
    size_t nbytes = 0;
    for (uint32_t i = 0; parts && i < count_parts(n); i++)
        nbytes += sizeof *parts + (parts[i] == handles_none ? 0 : part_size(i, n) * sizeof **parts);
    return nbytes;
}

void handles_drop(struct handles *handles, const struct descriptor *descriptor, uint32_t n,
                  const struct supplier *supplier) {
    if (n > handles->nlayers) n = handles->nlayers;
    for (uint32_t i = 0; i < n; i++) {
        struct shard **parts = handles->parts[i];
        const uint32_t nshards = descriptor->layers[i].layout.nshards;
        if (parts && nshards > HANDLES_PER_PART) {
            supplier->postpone(parts, nshards);
        } else if (parts) {
            handles_forget(parts, 0, nshards, supplier);
            descriptor_allocator.free(parts);
        }
    }
    handles->nlayers -= n;
    if (n > 0)
        memmove(handles->parts, handles->parts + n, handles->nlayers * sizeof *handles->parts);
}

void handles_free(struct handles *handles, const struct descriptor *descriptor,
                  const struct supplier *supplier) {
    handles_drop(handles, descriptor, handles->nlayers, supplier);
    descriptor_allocator.free(handles->parts);
    *handles = (struct handles){0};
}

/* ---- opening ---- */

/* Only a large blocked layer begins young, and only a string that no other layer has joined. */
static bool may_be_young(const struct descriptor *descriptor, uint32_t home, size_t dense) {
    const struct layer *layer = &descriptor->layers[home];
    return layer->kind == LAYER_BLOCKED && young_begins(&layer->layout) &&
           dense == layout_shard_bytes(&layer->layout);
}

/* Is this the right string? If so, sets where the shard's body is. Adopted strings have no header
 * to check and may be of any length up to that of their highest bit. */
static bool accept(struct access *access, struct shard *shard, uint32_t home, uint32_t number,
                   uint8_t *string, size_t length) {
    const struct descriptor *descriptor = access->descriptor;
    const struct layer *layer = &descriptor->layers[home];
    const size_t dense = descriptor_string_bytes(descriptor, home);
    size_t skipped = HEADER_BYTES;
    shard->capacity = 0;
    if (layer->adoption) {
        if (length > dense) return false;
        skipped = 0;
    } else {
        if (length < HEADER_BYTES || !header_fits(descriptor, home, number, string)) return false;
        const size_t nbytes = length - HEADER_BYTES;
        if (header_form(string) == FORM_DENSE) {
            if (nbytes != dense) return false;
        } else {
            if (!may_be_young(descriptor, home, dense)) return false;
            shard->capacity = young_capacity(&layer->layout, nbytes);
            if (shard->capacity == 0) return false;
        }
    }
    shard->body = string + skipped;
    shard->nbytes = (uint32_t)(length - skipped);
    return true;
}

static struct shard *keep_open(struct access *access, struct shard *shard) {
    set_lost(access->supplier, shard, false);
    shard->next_open = access->open;
    access->open = shard;
    return shard;
}

/* Others may have created an adopted string that was never seen, so its absence must be certain. */
static enum shard_status absent_status(struct access *access, uint32_t layer, uint32_t number) {
    if (layer_shard_created(&access->descriptor->layers[layer], number)) return SHARD_MISSING;
    return access->supplier->absence_is_certain(access) ? SHARD_NONE : SHARD_MISSING;
}

struct shard *access_open_new(struct access *access, uint32_t layer, uint32_t number) {
    const struct layer *at = &access->descriptor->layers[layer];
    if (!layer_shard_created(at, number) && !at->adoption) {
        access->status = SHARD_NONE;
        /* An item may extend a string of which only expired layers were created. No search looks
         * at those, but if it is lost, that must be known before anything changes (law I2). */
        if (layer_is_joined(at) && at->home < access->first && access->writes)
            access_open(access, at->home, number);
        return NULL;
    }
    struct shard *shard = handle_of(access, at->home, number);
    size_t nbytes;
    bool there = false;
    uint8_t *string = access->supplier->open(access, shard, at->home, number, &nbytes, &there);
    if (string) {
        if (accept(access, shard, at->home, number, string, nbytes))
            return keep_open(access, shard);
        there = true;
        access->supplier->close(access, shard);
    }
    access->status = there ? SHARD_FOREIGN : absent_status(access, layer, number);
    access->bad_layer = layer;
    access->bad_shard = number;
    set_lost(access->supplier, shard, access->status != SHARD_NONE);
    return NULL;
}

void access_close(struct access *access) {
    for (struct shard *shard = access->open; shard;) {
        struct shard *next = shard->next_open;
        access->supplier->close(access, shard);
        shard->key = NULL;
        shard->next_open = NULL;
        shard = next;
    }
    access->open = NULL;
}

enum shard_status access_check(struct access *access, uint32_t layer, uint32_t number) {
    if (!access_open(access, layer, number)) return access->status;
    access_close(access);
    return SHARD_READY;
}

/* ---- making and replacing strings ---- */

/* Puts an empty string of nbytes in a shard's place: header, then zeros. */
static void renew(struct access *access, uint32_t home, uint32_t number, struct shard *shard,
                  enum shard_form form, size_t nbytes) {
    const bool was_open = shard->key != NULL;
    uint8_t *string = access->supplier->renew(access, shard, home, number, HEADER_BYTES + nbytes);
    header_write(access->descriptor, home, number, form, string);
    shard->body = string + HEADER_BYTES;
    shard->nbytes = (uint32_t)nbytes;
    shard->capacity = form == FORM_YOUNG ? (uint32_t)(nbytes / YOUNG_ENTRY_BYTES) : 0;
    if (!was_open) keep_open(access, shard);
}

/* A layer's strings have grown or shrunk by this much. The old total may have been wrong, if
 * strings were lost or a descriptor was forged, so the new one is kept within its limits. */
static void account(struct access *access, struct layer *layer, int64_t nstrings, int64_t nbytes) {
    const int64_t before = (int64_t)layer->nstored, most = (int64_t)layer_most_stored(layer);
    int64_t after = before + nbytes;
    if (after < 0) after = 0;
    if (after > most) after = most;
    layer->nstored = (uint64_t)after;
    access->supplier->count(nstrings, after - before, 0);
}

/* Marks a shard as created; nbytes of its string belong to this layer. */
static void mark_created(struct access *access, struct layer *layer, uint32_t number,
                         size_t nbytes) {
    if (layer_shard_created(layer, number)) return;
    layer_mark_created(layer, number);
    account(access, layer, !layer_is_joined(layer), (int64_t)nbytes);
}

static struct shard *create_string(struct access *access, uint32_t home, uint32_t number) {
    struct layer *layer = &access->descriptor->layers[home];
    struct shard *shard = handle_of(access, home, number);
    const size_t dense = descriptor_string_bytes(access->descriptor, home);
    const size_t own = layout_shard_bytes(&layer->layout);
    const bool young = may_be_young(access->descriptor, home, dense);
    const size_t nbytes = young ? young_bytes(YOUNG_FIRST) : dense;
    mark_created(access, layer, number, HEADER_BYTES + (young ? nbytes : own));
    renew(access, home, number, shard, young ? FORM_YOUNG : FORM_DENSE, nbytes);
    return shard;
}

/* A copy of a body that is about to be replaced, for descriptor_allocator.free. */
static uint8_t *copy_body(const struct shard *shard) {
    uint8_t *copy = descriptor_allocator.need(shard->nbytes + 1u);
    memcpy(copy, shard->body, shard->nbytes);
    return copy;
}

/* Replaces an open young shard with its bitmap. `table` is a copy of the table it had. */
static void pour(struct access *access, uint32_t layer, uint32_t number, struct shard *shard,
                 const uint8_t *table, uint32_t capacity) {
    const struct layer *at = &access->descriptor->layers[layer];
    renew(access, layer, number, shard, FORM_DENSE, layout_shard_bytes(&at->layout));
    young_pour(&at->layout, table, capacity, shard->body);
    access->turned = layer + 1;
}

void access_turn(struct access *access, uint32_t layer, uint32_t number, struct shard *shard) {
    uint8_t *table = copy_body(shard);
    const size_t before = shard->nbytes;
    pour(access, layer, number, shard, table, shard->capacity);
    descriptor_allocator.free(table);
    account(access, &access->descriptor->layers[layer], 0,
            (int64_t)shard->nbytes - (int64_t)before);
}

/* Is there memory for a bitmap that nobody could expect to be needed? */
static bool may_turn(struct access *access) {
    return access->has_memory || access->supplier->may_allocate(access);
}

/* Moves the items of a young shard to a larger table. If an item finds no place in it, the shard
 * becomes its bitmap; without memory for that, it stays as it was and the answer is false. */
static bool enlarge(struct access *access, uint32_t layer, uint32_t number, struct shard *shard) {
    struct layer *at = &access->descriptor->layers[layer];
    uint8_t *table = copy_body(shard);
    const uint32_t capacity = shard->capacity;
    const size_t before = shard->nbytes;
    uint32_t nitems = header_nitems(shard->body - HEADER_BYTES), nmoved;
    bool done = true;
    renew(access, layer, number, shard, FORM_YOUNG, 2 * before);
    if (young_rehash(&at->layout, table, capacity, shard->body, shard->capacity, &nmoved)) {
        nitems = nmoved;
    } else if (may_turn(access)) {
        pour(access, layer, number, shard, table, capacity);
    } else {
        renew(access, layer, number, shard, FORM_YOUNG, before);
        memcpy(shard->body, table, before);
        done = false;
    }
    if (shard->capacity) header_set_nitems(shard->body - HEADER_BYTES, nitems);
    descriptor_allocator.free(table);
    account(access, at, 0, (int64_t)shard->nbytes - (int64_t)before);
    return done;
}

bool access_would_turn(const struct access *access, uint32_t layer, uint32_t number,
                       const struct shard *shard) {
    const struct layout *layout = &access->descriptor->layers[layer].layout;
    const uint32_t nitems = header_nitems(shard->body - HEADER_BYTES);
    return nitems >= (access->turned == layer + 1 ? young_last_limit(layout, number)
                                                  : young_limit(layout, number));
}

/* The more shards there are, the more of them may turn within a short time. */
#define SHARDS_PER_SPARE 8

/* Work done ahead of time must not slow down a large batch. */
#define MOST_ANNOUNCED 256

/* Called when a young shard has got another item. Past half of its limit, the supplier may prepare
 * memory for its bitmap. */
static void announce(struct access *access, uint32_t layer, uint32_t number, uint32_t nitems) {
    const struct layer *at = &access->descriptor->layers[layer];
    if (nitems <= young_limit(&at->layout, number) / 2 || access->nannounced >= MOST_ANNOUNCED)
        return;
    const size_t dense = HEADER_BYTES + layout_shard_bytes(&at->layout);
    const uint32_t nshards = at->layout.nshards;
    const uint64_t nturned = at->nstored / dense;
    const uint32_t nyoung = nturned < nshards ? nshards - (uint32_t)nturned : 1;
    const uint32_t many = 1 + nshards / SHARDS_PER_SPARE, each = nshards / nyoung;
    access->nannounced += each;
    access->supplier->soon(dense, many < nyoung ? many : nyoung, each);
}

/* This ends whatever the header and the table contain, because a table that can't grow becomes a
 * bitmap. An item that was not in the table is new even if other items have set its bits in the
 * bitmap: replicas must hear of it to turn the shard too. */
enum answer access_add_young(struct access *access, uint32_t layer, uint32_t number,
                             struct shard *shard, uint32_t block, uint64_t bits) {
    const struct layer *at = &access->descriptor->layers[layer];
    if (young_find(shard->body, shard->capacity, block, bits)) return ANSWER_KNOWN;
    if (!access_would_turn(access, layer, number, shard)) {
        uint32_t nitems = header_nitems(shard->body - HEADER_BYTES);
        if (!young_has_room(shard->capacity, nitems) &&
            young_capacity(&at->layout, 2 * (size_t)shard->nbytes) != 0) {
            if (!enlarge(access, layer, number, shard)) return ANSWER_OOM;
            nitems = header_nitems(shard->body - HEADER_BYTES);
        }
        if (shard->capacity && young_insert(shard->body, shard->capacity, block, bits)) {
            header_set_nitems(shard->body - HEADER_BYTES, nitems + 1);
            announce(access, layer, number, nitems);
            return ANSWER_NEW;
        }
        if (shard->capacity && !may_turn(access)) return ANSWER_OOM;
    }
    if (shard->capacity) access_turn(access, layer, number, shard);
    layout_set(&at->layout, shard->body + block * layout_block_bytes(&at->layout), bits);
    return ANSWER_NEW;
}

/* Extends a string for a joined layer, and for the layers between it and its home. */
static struct shard *append_layer(struct access *access, uint32_t layer) {
    struct layer *layers = access->descriptor->layers;
    const uint32_t home = layers[layer].home;
    struct shard *shard = layer_shard_created(&layers[home], 0) ? access_open(access, home, 0)
                                                                : create_string(access, home, 0);
    if (!shard || layer_shard_created(&layers[layer], 0)) return shard;
    if (shard->capacity) access_turn(access, home, 0, shard);
    for (uint32_t i = home; i <= layer; i++)
        mark_created(access, &layers[i], 0, layout_shard_bytes(&layers[i].layout));
    uint8_t *old = copy_body(shard);
    const size_t nbytes = shard->nbytes;
    renew(access, home, 0, shard, FORM_DENSE, descriptor_string_bytes(access->descriptor, home));
    memcpy(shard->body, old, nbytes);
    descriptor_allocator.free(old);
    return shard;
}

struct shard *access_create(struct access *access, uint32_t layer, uint32_t number) {
    return layer_is_joined(&access->descriptor->layers[layer])
               ? append_layer(access, layer)
               : create_string(access, layer, number);
}

struct shard *access_extend(struct access *access, uint32_t layer, uint32_t number, size_t nbytes) {
    struct shard *shard = access_open(access, layer, number);
    if (!shard || shard->nbytes < nbytes) {
        const bool was_open = shard != NULL;
        shard = handle_of(access, layer, number);
        shard->body = access->supplier->extend(access, shard, layer, number, nbytes);
        shard->nbytes = (uint32_t)nbytes;
        shard->capacity = 0;
        if (!was_open) keep_open(access, shard);
    }
    layer_mark_created(&access->descriptor->layers[layer], number);
    return shard;
}

/* ---- bodies from elsewhere ---- */

static const char *fill_young(struct access *access, uint32_t layer, uint32_t number,
                              const uint8_t *table, size_t nbytes) {
    struct layer *at = &access->descriptor->layers[layer];
    const uint32_t capacity = young_capacity(&at->layout, nbytes);
    const size_t dense = descriptor_string_bytes(access->descriptor, layer);
    if (capacity == 0 || !may_be_young(access->descriptor, layer, dense))
        return "a young shard of an impossible length";
    mark_created(access, at, number, HEADER_BYTES + nbytes);
    struct shard *shard = handle_of(access, layer, number);
    renew(access, layer, number, shard, FORM_YOUNG, nbytes);
    uint32_t nitems;
    if (young_is_sound(&at->layout, table, capacity, &nitems))
        memcpy(shard->body, table, nbytes);
    else
        young_rehash(&at->layout, table, capacity, shard->body, capacity, &nitems);
    header_set_nitems(shard->body - HEADER_BYTES, nitems);
    return NULL;
}

/* For an adopted string that became the filter's own. Replaces what was there. */
static const char *fill_adopted(struct access *access, uint32_t layer, uint32_t number,
                                const uint8_t *body, size_t nbytes) {
    struct layer *at = &access->descriptor->layers[layer];
    if (nbytes == 0 || nbytes > descriptor_string_bytes(access->descriptor, layer))
        return "a string of the wrong length";
    struct shard *shard = handle_of(access, layer, number);
    shard->body = access->supplier->renew(access, shard, layer, number, nbytes);
    shard->nbytes = (uint32_t)nbytes;
    shard->capacity = 0;
    keep_open(access, shard);
    layer_mark_created(at, number);
    memcpy(shard->body, body, nbytes);
    return NULL;
}

const char *access_fill(struct access *access, uint32_t layer, uint32_t number, bool young,
                        const uint8_t *body, size_t nbytes) {
    struct layer *at = &access->descriptor->layers[layer];
    if (at->adoption) return fill_adopted(access, layer, number, body, nbytes);
    if (young) return fill_young(access, layer, number, body, nbytes);
    if (nbytes != descriptor_string_bytes(access->descriptor, layer))
        return "a shard of the wrong length";
    mark_created(access, at, number, HEADER_BYTES + layout_shard_bytes(&at->layout));
    struct shard *shard = handle_of(access, layer, number);
    renew(access, layer, number, shard, FORM_DENSE, nbytes);
    memcpy(shard->body, body, nbytes);
    return NULL;
}

void access_fill_joined(struct access *access, uint32_t layer) {
    struct layer *at = &access->descriptor->layers[layer];
    mark_created(access, at, 0, layout_shard_bytes(&at->layout));
}

void access_mark_lost(struct access *access, uint32_t layer, uint32_t number) {
    struct layer *at = &access->descriptor->layers[layer];
    if (at->adoption)
        layer_mark_created(at, number);
    else
        mark_created(access, at, number, 0);
}

/* A string without a header counts as lost. */
void access_spoil(struct access *access, uint32_t layer, uint32_t number) {
    const uint32_t home = access->descriptor->layers[layer].home;
    struct shard *shard = handle_of(access, home, number);
    const bool was_open = shard->key != NULL;
    access->supplier->renew(access, shard, home, number, 1);
    if (!was_open) keep_open(access, shard);
    access_close(access);
    for (uint32_t i = home; i <= layer; i++) access_mark_lost(access, i, number);
}

/* Each joined layer has its own blocks in the string; the rest belongs to the home layer. */
bool access_recount(struct access *access, uint32_t home, uint64_t nbytes) {
    const struct descriptor *descriptor = access->descriptor;
    bool changed = false;
    for (uint32_t i = descriptor->nlayers; i-- > home;) {
        struct layer *layer = &descriptor->layers[i];
        if (layer->home != home) continue;
        uint64_t own = nbytes;
        if (i > home) {
            own = layer_shard_created(layer, 0) ? layout_shard_bytes(&layer->layout) : 0;
            nbytes -= own;
        }
        changed |= own != layer->nstored;
        account(access, layer, 0, (int64_t)(own - layer->nstored));
    }
    return changed;
}
