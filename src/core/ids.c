#include "core/ids.h"

#include <string.h>

#include "core/descriptor.h"

#define MIN_PLACES 8u

/* The last step of splitmix64. */
static uint64_t hash_of(const struct ids *ids, uint64_t id) {
    uint64_t x = id ^ ids->salt;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static struct ids_part *part_of(const struct ids *ids, uint64_t hash) {
    return (struct ids_part *)&ids->parts[hash >> 54];
}

/* Where the search for an id begins. It goes on to the end of the part, then from its beginning. */
static uint32_t first_place(const struct ids_part *part, uint64_t hash) {
    return (uint32_t)((hash & UINT32_MAX) * part->nplaces >> 32);
}

static uint32_t next_place(const struct ids_part *part, uint32_t place) {
    return place + 1 == part->nplaces ? 0 : place + 1;
}

static void put(struct ids_part *part, uint64_t hash, uint64_t id) {
    uint32_t place = first_place(part, hash);
    while (part->places[place]) place = next_place(part, place);
    part->places[place] = id;
}

static bool resize(const struct ids *ids, struct ids_part *part, uint32_t nplaces) {
    uint64_t *places = descriptor_allocator.alloc(nplaces * sizeof *places);
    if (!places) return false;
    memset(places, 0, nplaces * sizeof *places);
    const struct ids_part old = *part;
    part->places = places;
    part->nplaces = nplaces;
    for (uint32_t i = 0; i < old.nplaces; i++)
        if (old.places[i]) put(part, hash_of(ids, old.places[i]), old.places[i]);
    descriptor_allocator.free(old.places);
    return true;
}

uint64_t ids_count(const struct ids *ids, uint64_t id) {
    if (id == 0) return ids->nzero;
    const uint64_t hash = hash_of(ids, id);
    const struct ids_part *part = part_of(ids, hash);
    uint64_t count = 0;
    if (part->nused == 0) return 0;
    for (uint32_t place = first_place(part, hash); part->places[place];
         place = next_place(part, place))
        count += part->places[place] == id;
    return count;
}

bool ids_add(struct ids *ids, uint64_t id) {
    const bool first = ids_count(ids, id) == 0;
    if (id == 0) {
        ids->nzero++;
    } else {
        const uint64_t hash = hash_of(ids, id);
        struct ids_part *part = part_of(ids, hash);
        /* At least one place stays empty, because searches end there. */
        if (part->nused + 1 >= part->nplaces - part->nplaces / 8 &&
            !resize(ids, part,
                    part->nplaces < MIN_PLACES ? MIN_PLACES : part->nplaces + part->nplaces / 2))
            return false;
        put(part, hash, id);
        part->nused++;
    }
    ids->ndifferent += first;
    return true;
}

/* Closes the gap, so that searches that passed over it still succeed. */
static void take_out(const struct ids *ids, struct ids_part *part, uint32_t gap) {
    for (uint32_t place = next_place(part, gap); part->places[place];
         place = next_place(part, place)) {
        const uint32_t first = first_place(part, hash_of(ids, part->places[place]));
        /* Does its search begin after the gap and not after this place, going round? Then it
         * stays. */
        if (gap <= place ? gap < first && first <= place : gap < first || first <= place) continue;
        part->places[gap] = part->places[place];
        gap = place;
    }
    part->places[gap] = 0;
}

void ids_remove(struct ids *ids, uint64_t id) {
    if (id == 0) {
        ids->nzero--;
    } else {
        const uint64_t hash = hash_of(ids, id);
        struct ids_part *part = part_of(ids, hash);
        uint32_t place = first_place(part, hash);
        while (part->places[place] != id) place = next_place(part, place);
        take_out(ids, part, place);
        if (--part->nused == 0) {
            descriptor_allocator.free(part->places);
            *part = (struct ids_part){0};
        } else if (part->nplaces > MIN_PLACES && part->nused < part->nplaces / 4) {
            resize(ids, part, part->nplaces / 2); /* not a problem if there is no memory for it */
        }
    }
    ids->ndifferent -= ids_count(ids, id) == 0;
}

void ids_clear(struct ids *ids) {
    for (unsigned i = 0; i < IDS_NPARTS; i++) descriptor_allocator.free(ids->parts[i].places);
    *ids = (struct ids){.salt = ids->salt};
}
