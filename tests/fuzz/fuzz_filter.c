/* A filter over strings in memory, against an exact set. The input is a program: what the filter is
 * like, then operations, among them everything that others can do to its strings. An item that was
 * answered to be new or known, and whose string nobody has touched since, is never denied; the
 * bytes that are counted are those that are there; nothing crashes. */
#include "fuzz.h"

#include "../unit/memory.c"
#include "core/header.h"
#include "core/merge.h"
#include "core/young.h"

#define FORM_AT   28u /* in the header: form, then the number of items */
#define NNUMBERS  65536u
#define MAX_OPS   200
#define MAX_ITEMS 60000u /* in all batches of a program */

/* check.h's, for memory.c. */
bool check_uint(uint64_t a, uint64_t b, const char *text, const char *file, int line) {
    if (a != b) fprintf(stderr, "%s:%d: %s\n", file, line, text);
    HOLDS(a == b);
    return true;
}

struct world {
    const uint8_t *at, *end; /* of the input */
    struct memory *memory;
    struct filter_options options; /* what it was made for */
    bool known[NNUMBERS];          /* answered to be new or known, in a string that is sound */
    bool touched;                  /* strings were, so that nobody knows how long they should be */
    size_t nasked;
    uint64_t now_ms;             /* of a filter with a window */
    uint64_t latest_ms;          /* the latest time at which it turned */
    uint64_t since_ms[NNUMBERS]; /* when an item was added */
    struct string kept;          /* a string as it once was */
    uint32_t kept_layer, kept_shard;
};

static unsigned take(struct world *world) {
    return world->at < world->end ? *world->at++ : 0;
}

static struct descriptor *descriptor_of(const struct world *world) {
    return world->memory->access.descriptor;
}

static struct memory *make(struct world *world) {
    static const uint64_t capacities[] = {100, 1000, 20000, 60000, 200000, 1000000, 1000000000};
    static const uint64_t shard_bytes[] = {40 << 10,  70 << 10,  80 << 10,
                                           128 << 10, 200 << 10, 1 << 20};
    static const double errors[] = {0.25, 0.01, 1e-4};
    const unsigned a = take(world), b = take(world);
    world->options = (struct filter_options){.error = errors[b % 3],
                                             .capacity = capacities[a % 7],
                                             .expansion = b / 3 % 4,
                                             .seed = b / 12,
                                             .id = 7,
                                             .shard_bytes = shard_bytes[a / 7 % 6],
                                             .window = {.seconds = a >= 170 ? 3600 : 0,
                                                        .nslices = 1 + a % 5,
                                                        .sliding = a >= 210,
                                                        .capacity = capacities[a % 7]},
                                             .now_ms = world->now_ms = 1600000000000};
    return memory_new(&world->options);
}

/* ---- what must hold ---- */

static void check_counts(struct world *world) {
    const struct descriptor *d = descriptor_of(world);
    uint64_t nbytes = 0;
    for (uint32_t i = 0; i < d->nlayers; i++)
        for (uint32_t j = 0; world->memory->strings[i] && j < layer_nstrings(&d->layers[i]); j++)
            nbytes += world->memory->strings[i][j].nbytes;
    HOLDS(descriptor_problem(d) == NULL);
    HOLDS(memory_nbytes == (int64_t)descriptor_nstored(d));
    HOLDS(memory_nstrings == (int64_t)descriptor_nshards(d));
    HOLDS(memory_nlost >= 0);
    HOLDS(world->touched || descriptor_nstored(d) == nbytes);
}

/* Must this item be known? With a window: as long as that lasts, by any clock. */
static bool remembered(const struct world *world, size_t number) {
    const struct window *window = descriptor_of(world)->window;
    if (!window || !world->known[number]) return world->known[number];
    const uint64_t until_ms = world->since_ms[number] + window->seconds * 1000ull;
    return world->now_ms <= until_ms && world->latest_ms <= until_ms;
}

/* Something is to be added. */
static void turn(struct world *world) {
    HOLDS(memory_turn(world->memory, world->now_ms, take(world) % 4 > 0));
    if (world->now_ms > world->latest_ms) world->latest_ms = world->now_ms;
}

/* Later, or earlier: minutes or hours. */
static void pass(struct world *world, unsigned op) {
    const uint64_t ms = take(world) * 60000ull;
    world->now_ms = op / 16 % 4 ? world->now_ms + ms : world->now_ms - ms;
}

/* Sends a batch; what was added or found is known from now on. */
static void batch(struct world *world, bool add) {
    const unsigned size = take(world), first = take(world) << 8 | take(world);
    const size_t n = 1 + (size % 4 == 0 ? 0 : size % 4 == 1 ? size / 4 : size * 8);
    const unsigned step = take(world) % 4; /* 0: the same item again and again */
    char *text = malloc(n * ITEM_ROOM);
    struct lookup *lookups = calloc(n, sizeof *lookups);
    world->nasked += n;
    for (size_t i = 0; i < n; i++) {
        lookups[i].item = text + i * ITEM_ROOM;
        lookups[i].nbytes = (size_t)snprintf(text + i * ITEM_ROOM, ITEM_ROOM, "i%zu",
                                             (first + i * step) % NNUMBERS);
    }
    struct access *access = &world->memory->access;
    size_t nadded = 0, nnew = 0;
    const struct window *window = descriptor_of(world)->window;
    if (window && add) turn(world);
    if (window && !add) memory_ask_at(world->memory, world->now_ms);
    const uint64_t before = descriptor_nitems(descriptor_of(world));
    const bool done =
        add ? filter_add(access, lookups, n, &nadded) : filter_check(access, lookups, n);
    memory_end(world->memory);
    for (size_t i = 0; done && i < n; i++) {
        const size_t number = (first + i * step) % NNUMBERS;
        const enum answer answer = lookups[i].answer;
        HOLDS(!remembered(world, number) || answer == ANSWER_KNOWN || answer == ANSWER_LOST ||
              (window && answer != ANSWER_NEW)); /* no room in the slice that it should be in now */
        HOLDS(answer != ANSWER_LOST || world->memory->repeats);
        if ((answer == ANSWER_KNOWN && (!window || (add && window->sliding))) ||
            (add && answer == ANSWER_NEW)) {
            world->known[number] = true;
            world->since_ms[number] = world->now_ms;
        }
        nnew += add && answer == ANSWER_NEW;
    }
    const bool sliding = window && window->sliding;
    HOLDS(sliding ? nadded >= nnew : nadded == nnew);
    HOLDS(sliding || descriptor_nitems(descriptor_of(world)) == before + nnew);
    free(lookups);
    free(text);
}

/* ---- what others do to strings ---- */

/* Whatever may lie in this string is not known any more. */
static void forget(struct world *world, uint32_t home, uint32_t shard) {
    const struct descriptor *d = descriptor_of(world);
    world->touched = true;
    for (size_t number = 0; number < NNUMBERS; number++) {
        if (!world->known[number]) continue;
        char item[ITEM_ROOM];
        const int length = snprintf(item, sizeof item, "i%zu", number);
        const struct item_hash hash = layout_hash(item, (size_t)length, d->seed);
        for (uint32_t i = home; i < d->nlayers; i++)
            if (d->layers[i].home == home &&
                layout_place(&d->layers[i].layout, hash.place).shard == shard)
                world->known[number] = false;
    }
}

/* A string that there is, chosen by the input, or NULL. */
static struct string *choose(struct world *world, uint32_t *layer, uint32_t *shard) {
    const struct descriptor *d = descriptor_of(world);
    *layer = take(world) % d->nlayers;
    *layer = d->layers[*layer].home;
    *shard = take(world) % d->layers[*layer].layout.nshards;
    struct string *string = memory_string(world->memory, *layer, *shard);
    return string->bytes ? string : NULL;
}

static void lose(struct world *world) {
    uint32_t layer, shard;
    struct string *string = choose(world, &layer, &shard);
    if (!string) return;
    free(string->bytes);
    *string = (struct string){0};
    forget(world, layer, shard);
}

/* Any bytes at any place, the header included; or another length. */
static void overwrite(struct world *world) {
    uint32_t layer, shard;
    struct string *string = choose(world, &layer, &shard);
    const size_t n = take(world), where = take(world) << 4 | take(world) % 16, way = take(world);
    if (!string) return;
    if (way % 4 == 0) {
        const size_t nbytes =
            HEADER_BYTES + YOUNG_ENTRY_BYTES * ((size_t)1 << (way / 4 % 14)) + (way > 250);
        uint8_t *bytes = calloc(1, nbytes);
        memcpy(bytes, string->bytes, nbytes < string->nbytes ? nbytes : string->nbytes);
        free(string->bytes);
        *string = (struct string){bytes, nbytes};
    }
    for (size_t i = 0; string->nbytes > 0 && i < n * (way % 4 == 1 ? 64 : 1); i++) {
        const size_t at = way % 4 == 2 ? FORM_AT + i % 5 : where + i;
        if (at < string->nbytes) string->bytes[at] = (uint8_t)take(world);
    }
    forget(world, layer, shard);
}

/* Remembers a string, or puts the remembered one back. */
static void exchange(struct world *world) {
    uint32_t layer, shard;
    struct string *string = choose(world, &layer, &shard), *kept = &world->kept;
    if (take(world) % 2 && string) {
        free(kept->bytes);
        *kept = (struct string){fuzz_copy(string->bytes, string->nbytes), string->nbytes};
        world->kept_layer = layer;
        world->kept_shard = shard;
    } else if (kept->bytes) {
        string = memory_string(world->memory, world->kept_layer, world->kept_shard);
        free(string->bytes);
        *string = (struct string){fuzz_copy(kept->bytes, kept->nbytes), kept->nbytes};
        forget(world, world->kept_layer, world->kept_shard);
    }
}

/* ---- what the module does besides ---- */

/* As BF.HEAL does: lost strings begin anew, and all are counted. */
static void heal(struct world *world) {
    struct access *access = &world->memory->access;
    const struct descriptor *d = descriptor_of(world);
    for (uint32_t i = 0; i < d->nlayers; i++) {
        uint64_t nbytes = 0;
        for (uint32_t j = 0; j < layer_nstrings(&d->layers[i]); j++) {
            const struct shard *shard = access_open(access, i, j);
            if (!shard && access->status != SHARD_NONE) {
                forget(world, i, j);
                shard = access_create(access, i, j);
            } else if (!shard && memory_string(world->memory, i, j)->bytes) {
                /* Nobody misses it: it goes with the filter. */
                free(memory_string(world->memory, i, j)->bytes);
                *memory_string(world->memory, i, j) = (struct string){0};
            }
            if (shard) nbytes += HEADER_BYTES + shard->nbytes;
        }
        memory_end(world->memory);
        if (!layer_is_joined(&d->layers[i])) access_recount(access, i, nbytes);
    }
    HOLDS(memory_nlost == 0);
    world->touched = false;
}

/* As RESTORE and BF.LOADCHUNK do: a body from elsewhere for a shard that there is not. */
static void fill(struct world *world) {
    const struct descriptor *d = descriptor_of(world);
    const uint32_t layer = d->layers[take(world) % d->nlayers].home;
    const uint32_t shard = take(world) % d->layers[layer].layout.nshards;
    const unsigned kind = take(world);
    size_t nbytes = young_bytes(1u << (kind / 4 % 13)) + (kind == 255);
    if (kind % 4 == 0) nbytes = descriptor_string_bytes(d, layer);
    if (layer_shard_created(&d->layers[layer], shard) || nbytes > 1 << 20) return;
    uint8_t *body = calloc(1, nbytes + 1);
    const size_t n = take(world) * (kind % 4 == 3 ? 16u : 1u);
    const uint8_t *source = world->at;
    const size_t room = (size_t)(world->end - world->at);
    for (size_t i = 0; room && i < n && i < nbytes; i++) body[i] = source[i % room];
    uint8_t *exact = fuzz_copy(body, nbytes);
    access_fill(&world->memory->access, layer, shard, kind % 4 != 0, exact, nbytes);
    free(exact);
    free(body);
    memory_end(world->memory);
}

/* As BF.MERGE does: all that is sound goes into another filter, which has an item or two already
 * and takes the place of this one. What is known of strings that nobody touched must be in it. */
static void merge(struct world *world) {
    if (descriptor_of(world)->window) return; /* tests/unit/test_merge.c has these */
    struct memory *from = world->memory, *to = memory_new(&world->options);
    struct descriptor *source = descriptor_of(world), *target = to->access.descriptor;
    const uint32_t npieces = 1 + take(world) % 5;
    world->nasked += 2000; /* what it costs */
    char problem[320];
    memory_add(to, "other", 0, take(world) % 64);
    HOLDS(merge_extend(target, source, 0, problem, sizeof problem));
    for (uint32_t i = 0; i < source->nlayers; i++) {
        const struct layout *layout = &source->layers[i].layout;
        struct merge_part part = {.to = merge_target(target, source, i), .from = i};
        const uint32_t piece = (layout->nblocks + npieces - 1) / npieces;
        HOLDS(part.to == i);
        for (; part.shard < layout->nshards; part.shard++)
            for (part.block = 0; part.block < layout->nblocks; part.block += part.nblocks) {
                const uint32_t left = layout->nblocks - part.block;
                part.nblocks = left < piece ? left : piece;
                struct merge_gain gain = {0};
                const enum merge_outcome outcome =
                    merge_shard(&to->access, &from->access, &part, &gain);
                HOLDS(outcome == MERGE_DONE || outcome == MERGE_FROM_LOST);
                HOLDS(gain.nitems >= 0 && (gain.changed || gain.nitems == 0));
                target->layers[part.to].nitems += (uint64_t)gain.nitems;
                memory_end(to);
                access_close(&from->access);
                if (outcome != MERGE_DONE) break;
            }
    }
    memory_free(from);
    memory_nlost = 0;
    world->memory = to;
    world->touched = false;
}

static void operate(struct world *world) {
    const unsigned op = take(world);
    switch (op % 16) {
    case 6:
        merge(world);
        break;
    case 8:
    case 9:
        batch(world, false);
        break;
    case 7:
        pass(world, op);
        break;
    case 10:
        world->memory->repeats = op / 16 % 2;
        world->memory->full = op / 32 % 2;
        break;
    case 11:
        lose(world);
        break;
    case 12:
        overwrite(world);
        break;
    case 13:
        exchange(world);
        break;
    case 14:
        heal(world);
        break;
    case 15:
        fill(world);
        break;
    default:
        batch(world, true);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct world *world = calloc(1, sizeof *world);
    world->at = data;
    world->end = data + size;
    world->memory = make(world);
    HOLDS(descriptor_of(world) != NULL);
    for (int i = 0; i < MAX_OPS && world->at < world->end && world->nasked < MAX_ITEMS; i++) {
        operate(world);
        check_counts(world);
    }
    memory_free(world->memory);
    HOLDS(memory_nlost == 0);
    free(world->kept.bytes);
    free(world);
    return 0;
}
