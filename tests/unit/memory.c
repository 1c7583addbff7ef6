#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/window.h"

int64_t memory_nstrings, memory_nbytes, memory_nlost;
uint64_t memory_npostponed;

static struct memory *memory_behind(struct access *access) {
    return (struct memory *)access;
}

struct string *memory_string(struct memory *memory, uint32_t layer, uint32_t number) {
    struct string **strings = &memory->strings[layer];
    if (!*strings)
        *strings =
            calloc(memory->access.descriptor->layers[layer].layout.nshards, sizeof **strings);
    return &(*strings)[number];
}

/* A key is any pointer: here, to the string. */
static struct string *open_string(struct access *access, struct shard *shard, uint32_t layer,
                                  uint32_t number) {
    struct string *string = memory_string(memory_behind(access), layer, number);
    if (!shard->key) memory_behind(access)->nopen++;
    shard->key = string;
    return string;
}

static uint8_t *open_memory(struct access *access, struct shard *shard, uint32_t layer,
                            uint32_t number, size_t *nbytes, bool *there) {
    const struct string *string = memory_string(memory_behind(access), layer, number);
    *there = string->bytes != NULL;
    if (!string->bytes) return NULL;
    open_string(access, shard, layer, number);
    *nbytes = string->nbytes;
    return string->bytes;
}

static uint8_t *renew_memory(struct access *access, struct shard *shard, uint32_t layer,
                             uint32_t number, size_t nbytes) {
    struct memory *memory = memory_behind(access);
    struct string *string = open_string(access, shard, layer, number);
    free(string->bytes);
    string->bytes = calloc(1, nbytes);
    string->nbytes = nbytes;
    memory->nrenewed += nbytes;
    if (nbytes > memory->largest) memory->largest = nbytes;
    return string->bytes;
}

static uint8_t *extend_memory(struct access *access, struct shard *shard, uint32_t layer,
                              uint32_t number, size_t nbytes) {
    struct string *string = open_string(access, shard, layer, number);
    string->bytes = realloc(string->bytes, nbytes);
    memset(string->bytes + string->nbytes, 0, nbytes - string->nbytes);
    string->nbytes = nbytes;
    return string->bytes;
}

static void close_memory(struct access *access, struct shard *shard) {
    shard->key = NULL;
    memory_behind(access)->nopen--;
}

static void forget_memory(struct shard *shard) {
    shard->name = NULL;
}

static void postpone(struct shard **parts, uint32_t n);

static bool absence_is_certain(struct access *access) {
    (void)access;
    return true;
}

static bool repeats(struct access *access) {
    return memory_behind(access)->repeats;
}

static bool may_allocate(struct access *access) {
    return !memory_behind(access)->full;
}

static void grown(struct access *access, const struct lookup *lookups, size_t n) {
    (void)lookups;
    (void)n;
    memory_behind(access)->ngrown++;
}

static void changed(struct access *access, struct shard *shard) {
    (void)access;
    (void)shard;
}

static void count(int64_t nstrings, int64_t nbytes, int64_t nlost) {
    memory_nstrings += nstrings;
    memory_nbytes += nbytes;
    memory_nlost += nlost;
}

static void soon(size_t nbytes, uint32_t many, uint32_t each) {
    (void)nbytes, (void)many, (void)each;
}

static const struct supplier supplier = {.open = open_memory,
                                         .renew = renew_memory,
                                         .extend = extend_memory,
                                         .close = close_memory,
                                         .forget = forget_memory,
                                         .postpone = postpone,
                                         .absence_is_certain = absence_is_certain,
                                         .repeats = repeats,
                                         .may_allocate = may_allocate,
                                         .soon = soon,
                                         .grown = grown,
                                         .changed = changed,
                                         .count = count};

/* Frees them at once: a test only counts them. */
static void postpone(struct shard **parts, uint32_t n) {
    memory_npostponed += n;
    for (uint32_t i = 0; i * HANDLES_PER_PART < n; i++) handles_forget(parts, i, n, &supplier);
    free(parts);
}

struct memory *memory_new(const struct filter_options *options) {
    struct memory *memory = calloc(1, sizeof *memory);
    memory_nstrings = memory_nbytes = memory_nlost = 0;
    memory_npostponed = 0;
    memory->access = (struct access){.supplier = &supplier,
                                     .descriptor = filter_new(options, "tag", 3),
                                     .handles = &memory->handles,
                                     .writes = true};
    return memory;
}

static void free_strings(struct memory *memory, const struct descriptor *descriptor) {
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        for (uint32_t j = 0; memory->strings[i] && j < descriptor->layers[i].layout.nshards; j++)
            free(memory->strings[i][j].bytes);
        free(memory->strings[i]);
    }
}

bool memory_turn(struct memory *memory, uint64_t now_ms, bool drops) {
    struct descriptor *descriptor = memory->access.descriptor, *gone = NULL;
    const bool turned =
        !window_is_due(descriptor, now_ms) || window_turn(descriptor, now_ms, drops, &gone);
    if (gone) {
        count(-(int64_t)descriptor_nshards(gone), -(int64_t)descriptor_nstored(gone), 0);
        handles_drop(&memory->handles, gone, gone->nlayers, &supplier);
        free_strings(memory, gone);
        memmove(memory->strings, memory->strings + gone->nlayers,
                (SIZING_MAX_LAYERS - gone->nlayers) * sizeof *memory->strings);
        memset(memory->strings + SIZING_MAX_LAYERS - gone->nlayers, 0,
               gone->nlayers * sizeof *memory->strings);
        descriptor_free(gone);
    }
    memory->access.first = descriptor->window->nover;
    return turned;
}

void memory_ask_at(struct memory *memory, uint64_t now_ms) {
    memory->access.first = window_nover(memory->access.descriptor, now_ms);
}

void memory_free(struct memory *memory) {
    struct descriptor *descriptor = memory->access.descriptor;
    free_strings(memory, descriptor);
    handles_free(&memory->handles, descriptor, &supplier);
    descriptor_free(descriptor);
    free(memory);
}

void memory_end(struct memory *memory) {
    access_close(&memory->access);
    memory->access.turned = 0;
    CHECK_UINT(memory->nopen, 0);
}

#define ITEM_ROOM 48

static struct lookup *lookups_of(const char *prefix, uint64_t first, size_t n, char **text) {
    struct lookup *lookups = calloc(n, sizeof *lookups);
    *text = malloc(n * ITEM_ROOM);
    for (size_t i = 0; i < n; i++) {
        lookups[i].item = *text + i * ITEM_ROOM;
        lookups[i].nbytes = (size_t)snprintf(*text + i * ITEM_ROOM, ITEM_ROOM, "%s%llu", prefix,
                                             (unsigned long long)(first + i));
    }
    return lookups;
}

long memory_add(struct memory *memory, const char *prefix, uint64_t first, size_t n) {
    char *text;
    struct lookup *lookups = lookups_of(prefix, first, n, &text);
    size_t nadded;
    const bool done = filter_add(&memory->access, lookups, n, &nadded);
    memory_end(memory);
    free(lookups);
    free(text);
    return done ? (long)nadded : -1;
}

long memory_count_new(struct memory *memory, const char *prefix, uint64_t first, size_t n) {
    char *text;
    struct lookup *lookups = lookups_of(prefix, first, n, &text);
    long nnew = -1;
    if (filter_check(&memory->access, lookups, n)) {
        nnew = 0;
        for (size_t i = 0; i < n; i++) nnew += lookups[i].answer == ANSWER_NEW;
    }
    memory_end(memory);
    free(lookups);
    free(text);
    return nnew;
}
