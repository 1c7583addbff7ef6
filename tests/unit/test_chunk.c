/* The pieces of a filter on its way: whole filters go through memory here, whole, mixed up and
 * damaged. */
#include "check.h"
#include "core/chunk.h"
#include "core/encoding.h"
#include "core/sizing.h"

#include <stdlib.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* ---- filters in plain memory ---- */

struct memory {
    struct descriptor *descriptor;
    uint8_t **layers; /* all shards of a layer, one behind the other */
};

static void allocate(struct memory *memory) {
    memory->layers = calloc(memory->descriptor->nlayers, sizeof *memory->layers);
    for (uint32_t i = 0; i < memory->descriptor->nlayers; i++) {
        const struct layout *layout = &memory->descriptor->layers[i].layout;
        memory->layers[i] = calloc(layout->nshards, layout_shard_bytes(layout));
    }
}

static void memory_free(struct memory *memory) {
    for (uint32_t i = 0; memory->layers && i < memory->descriptor->nlayers; i++)
        free(memory->layers[i]);
    free(memory->layers);
    descriptor_free(memory->descriptor);
    *memory = (struct memory){0};
}

static uint8_t *shard_of(const struct memory *memory, uint32_t layer, uint32_t shard) {
    return memory->layers[layer] +
           shard * layout_shard_bytes(&memory->descriptor->layers[layer].layout);
}

static void create(struct layer *layer, uint32_t shard) {
    layer_mark_created(layer, shard);
    layer->nstored += 55 + layout_shard_bytes(&layer->layout);
}

/* Three layers. The first has small shards, every third missing. The second has a shard of three
 * parts, the last one short. The third has no shard created. */
static struct memory example_with(uint64_t id, uint32_t nblocks) {
    struct memory memory = {.descriptor = descriptor_new("tag", 3)};
    struct descriptor *d = memory.descriptor;
    const struct layout layouts[] = {{10, 2, 9, 7}, {2, nblocks, 9, 7}, {5, 100, 10, 9}};
    d->id = id;
    d->seed = 42;
    d->error = 0.001;
    d->shard_bytes = 1 << 20;
    d->expansion = 2;
    for (size_t i = 0; i < N(layouts); i++) descriptor_add_layer(d, &layouts[i], 1000);
    allocate(&memory);
    srandom((unsigned)id);
    for (uint32_t i = 0; i < 2; i++) {
        const struct layout *layout = &d->layers[i].layout;
        d->layers[i].nitems = 100 + i;
        for (uint32_t j = 0; j < layout->nshards; j++) {
            if (j % 3 == 1) continue;
            create(&d->layers[i], j);
            uint8_t *shard = shard_of(&memory, i, j);
            for (size_t at = 0; at < layout_shard_bytes(layout); at += 61)
                shard[at] = (uint8_t)random();
        }
    }
    return memory;
}

static struct memory example(uint64_t id) {
    return example_with(id, (2 * CHUNK_PART_BYTES + 4096) / 64);
}

/* ---- chunks ---- */

struct bytes {
    uint8_t *at;
    size_t n;
    uint64_t to; /* the iterator that goes with them */
};

/* Bytes of the parts that the chunk for an iterator holds; *to is the iterator that follows. */
static size_t body_size(const struct descriptor *d, uint64_t iterator, uint64_t *to) {
    size_t nparts = 0, nbody = 0;
    struct part part;
    for (*to = iterator; chunk_next_part(d, &iterator, &part); *to = iterator)
        if (!chunk_reserve(&part, nparts++, &nbody)) break;
    return nbody;
}

/* What BF.SCANDUMP does. */
static struct bytes dump(const struct memory *memory, uint64_t iterator) {
    const struct descriptor *d = memory->descriptor;
    struct bytes bytes = {0};
    struct chunk chunk;
    uint64_t to;
    size_t nbody;
    switch (chunk_wanted(d, iterator)) {
    case WANTED_HEADER:
        bytes.n = chunk_header_size(d);
        bytes.at = malloc(bytes.n);
        chunk_write_header(d, bytes.at);
        break;
    case WANTED_DATA:
        nbody = body_size(d, iterator, &to);
        if (nbody > 0) {
            bytes.n = chunk_data_size(nbody);
            bytes.at = malloc(bytes.n);
            uint8_t *at = chunk_begin_data(d, iterator, to, bytes.at);
            struct part part;
            for (uint64_t i = iterator; i != to && CHECK(chunk_next_part(d, &i, &part));) {
                part.bytes =
                    shard_of(memory, part.layer, part.shard) + (size_t)part.part * CHUNK_PART_BYTES;
                at = chunk_put_part(at, &part);
            }
            CHECK_UINT((size_t)(at - bytes.at), bytes.n - 8);
            chunk_seal(bytes.at, bytes.n);
        } else {
            bytes.n = chunk_end_size(d);
            bytes.at = malloc(bytes.n);
            chunk_write_end(d, iterator, bytes.at);
        }
        break;
    default:
        return bytes;
    }
    CHECK(bytes.n <= CHUNK_MAX_BYTES);
    CHECK(chunk_open(bytes.at, bytes.n, &chunk) == NULL);
    bytes.to = chunk.to;
    CHECK(bytes.to > 0 && bytes.to < (uint64_t)1 << 53);
    return bytes;
}

/* What BF.LOADCHUNK does; the problem, or NULL. The target is made by the first chunk. */
static const char *load(struct memory *memory, const uint8_t *bytes, size_t nbytes) {
    struct chunk chunk;
    const char *problem = chunk_open(bytes, nbytes, &chunk);
    if (problem) return problem;
    if (!memory->descriptor) {
        if (chunk.type != CHUNK_HEADER) return "no header";
        memory->descriptor = chunk_read_header(&chunk, &problem);
        if (memory->descriptor) allocate(memory);
        return memory->descriptor ? NULL : problem;
    }
    struct descriptor *d = memory->descriptor;
    if (!d->load) return "complete";
    if (chunk.type == CHUNK_HEADER) return "header";
    if (chunk.type == CHUNK_END) return chunk_read_end(&chunk, d);
    problem = chunk_check_data(&chunk, d);
    if (problem) return problem;
    struct part part;
    for (size_t at = 0; chunk_read_part(&chunk, &at, &part);) {
        if (part.part == 0) create(&d->layers[part.layer], part.shard);
        memcpy(shard_of(memory, part.layer, part.shard) + (size_t)part.part * CHUNK_PART_BYTES,
               part.bytes, part.nbytes);
        d->load->nbytes += part.nbytes;
    }
    d->load->next = chunk.to;
    return NULL;
}

/* All chunks of a filter. */
static size_t dump_all(const struct memory *memory, struct bytes *chunks, size_t room) {
    size_t n = 0;
    for (uint64_t iterator = 0; n < room; n++) {
        chunks[n] = dump(memory, iterator);
        iterator = chunks[n].to;
        if (!chunks[n].at) break;
    }
    return n;
}

static void free_all(struct bytes *chunks, size_t n) {
    for (size_t i = 0; i < n; i++) free(chunks[i].at);
}

static void check_same(const struct memory *a, const struct memory *b) {
    const struct descriptor *x = a->descriptor, *y = b->descriptor;
    CHECK_UINT(y->seed, x->seed);
    CHECK(y->error == x->error);
    CHECK_UINT(y->expansion, x->expansion);
    CHECK_UINT(y->shard_bytes, x->shard_bytes);
    REQUIRE(CHECK_UINT(y->nlayers, x->nlayers));
    for (uint32_t i = 0; i < x->nlayers; i++) {
        const struct layer *m = &x->layers[i], *n = &y->layers[i];
        CHECK(m->kind == n->kind && m->flags == n->flags && m->nbits == n->nbits);
        CHECK(m->layout.nshards == n->layout.nshards && m->layout.nblocks == n->layout.nblocks &&
              m->layout.block_log2 == n->layout.block_log2 &&
              m->layout.nprobes == n->layout.nprobes);
        CHECK_UINT(n->capacity, m->capacity);
        CHECK_UINT(n->nitems, m->nitems);
        CHECK_MEM(n->created, (m->layout.nshards + 7) / 8, m->created, (m->layout.nshards + 7) / 8);
        CHECK(memcmp(a->layers[i], b->layers[i],
                     m->layout.nshards * layout_shard_bytes(&m->layout)) == 0);
    }
}

#define MAX_CHUNKS 20

TEST(a_filter_goes_through_whole) {
    struct memory source = example(1), target = {0};
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump_all(&source, chunks, MAX_CHUNKS);
    CHECK_UINT(n, 6); /* header; small shards; two parts of 8 MiB and a short one; end */
    for (size_t i = 0; i < n; i++) {
        CHECK(load(&target, chunks[i].at, chunks[i].n) == NULL);
        CHECK((!target.descriptor->load) == (i + 1 == n));
        CHECK(descriptor_problem(target.descriptor) == NULL);
    }
    CHECK_UINT(chunk_wanted(source.descriptor, chunks[n - 1].to), WANTED_NOTHING);
    check_same(&source, &target);
    free_all(chunks, n);
    memory_free(&source);
    memory_free(&target);
}

TEST(an_empty_filter_goes_through) {
    struct memory source = example(1), target = {0};
    for (uint32_t i = 0; i < source.descriptor->nlayers; i++) {
        struct layer *layer = &source.descriptor->layers[i];
        memset(layer->created, 0, layer_bitmap_bytes(&layer->layout));
        layer->nstored = 0;
        memset(source.layers[i], 0, layer->layout.nshards * layout_shard_bytes(&layer->layout));
        layer->nitems = 0;
    }
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump_all(&source, chunks, MAX_CHUNKS);
    CHECK_UINT(n, 2);
    for (size_t i = 0; i < n; i++) CHECK(load(&target, chunks[i].at, chunks[i].n) == NULL);
    check_same(&source, &target);
    free_all(chunks, n);
    memory_free(&source);
    memory_free(&target);
}

/* Shards that are created during the dump travel or not, depending on where it is; nothing
 * breaks. */
TEST(a_filter_may_fill_during_the_dump) {
    struct memory source = example(1), target = {0};
    uint64_t iterator = 0;
    for (unsigned step = 0;; step++) {
        struct bytes chunk = dump(&source, iterator);
        if (!chunk.at) break;
        CHECK(load(&target, chunk.at, chunk.n) == NULL);
        iterator = chunk.to;
        free(chunk.at);
        if (step != 1) continue;
        create(&source.descriptor->layers[0], 1); /* behind */
        create(&source.descriptor->layers[2], 4); /* ahead */
        memset(shard_of(&source, 2, 4), 0xaa, 100);
        source.descriptor->layers[2].nitems = 1;
    }
    CHECK(!target.descriptor->load);
    CHECK(!layer_shard_created(&target.descriptor->layers[0], 1));
    CHECK(layer_shard_created(&target.descriptor->layers[2], 4));
    CHECK_UINT(target.descriptor->layers[2].nitems, 1);
    CHECK_INT(shard_of(&target, 2, 4)[99], 0xaa);
    memory_free(&source);
    memory_free(&target);
}

TEST(iterators_of_another_or_grown_filter_are_unknown) {
    struct memory source = example(1), other = example(2);
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump_all(&source, chunks, MAX_CHUNKS);
    for (size_t i = 0; i < n; i++) {
        CHECK(chunk_wanted(source.descriptor, chunks[i].to) != WANTED_UNKNOWN);
        CHECK_INT(chunk_wanted(other.descriptor, chunks[i].to), WANTED_UNKNOWN);
    }
    CHECK_INT(chunk_wanted(source.descriptor, 1), WANTED_UNKNOWN);
    CHECK_INT(chunk_wanted(source.descriptor, chunks[n - 1].to + 1), WANTED_UNKNOWN);
    CHECK_INT(chunk_wanted(source.descriptor, chunks[0].to - 1), WANTED_UNKNOWN);
    CHECK_INT(chunk_wanted(source.descriptor, UINT64_MAX), WANTED_UNKNOWN);
    const struct layout layout = {1, 1, 9, 7};
    REQUIRE(descriptor_add_layer(source.descriptor, &layout, 10));
    for (size_t i = 0; i < n; i++)
        CHECK_INT(chunk_wanted(source.descriptor, chunks[i].to), WANTED_UNKNOWN);
    source.descriptor->nlayers--; /* as memory_free expects it */
    free(source.descriptor->layers[source.descriptor->nlayers].created);
    free_all(chunks, n);
    memory_free(&source);
    memory_free(&other);
}

/* Positions shift when the oldest layers are dropped, which can happen without a new layer if the
 * clock was set back. And a slice that continues has a later time than the header of the dump
 * says. */
TEST(iterators_of_a_filter_that_has_turned_are_unknown) {
    struct memory source = example(1);
    struct descriptor *d = source.descriptor;
    const struct window window = {.seconds = 3600, .nslices = 4, .capacity = 100};
    REQUIRE(descriptor_set_window(d, &window));
    for (uint32_t i = 0; i < d->nlayers; i++) d->layers[i].began_ms = 1000 * (i + 1);
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump_all(&source, chunks, MAX_CHUNKS);
    descriptor_newest(d)->began_ms++;
    for (size_t i = 0; i < n; i++) CHECK_INT(chunk_wanted(d, chunks[i].to), WANTED_UNKNOWN);
    descriptor_newest(d)->began_ms--;
    for (size_t i = 0; i < n; i++) CHECK(chunk_wanted(d, chunks[i].to) != WANTED_UNKNOWN);
    d->window->first_number++; /* as after the oldest layer went and another came … */
    for (size_t i = 0; i < n; i++) CHECK_INT(chunk_wanted(d, chunks[i].to), WANTED_UNKNOWN);
    d->window->first_number--;
    d->nlayers--; /* … and after it went alone */
    d->window->first_number++;
    for (size_t i = 0; i < n; i++) CHECK_INT(chunk_wanted(d, chunks[i].to), WANTED_UNKNOWN);
    d->nlayers++;
    free_all(chunks, n);
    memory_free(&source);
}

TEST(only_the_chunk_that_continues_is_taken) {
    struct memory source = example(1), other = example(2), target = {0};
    struct bytes chunks[MAX_CHUNKS], foreign[MAX_CHUNKS];
    const size_t n = dump_all(&source, chunks, MAX_CHUNKS);
    CHECK_UINT(dump_all(&other, foreign, MAX_CHUNKS), n);
    for (size_t i = 1; i < n; i++) CHECK_STR(load(&target, chunks[i].at, chunks[i].n), "no header");
    for (size_t due = 0; due < n; due++) {
        for (size_t i = 0; i < n && due > 0; i++) {
            if (i != due) CHECK(load(&target, chunks[i].at, chunks[i].n) != NULL);
            CHECK(load(&target, foreign[i].at, foreign[i].n) != NULL);
        }
        CHECK(load(&target, chunks[due].at, chunks[due].n) == NULL);
    }
    for (size_t i = 0; i < n; i++) CHECK_STR(load(&target, chunks[i].at, chunks[i].n), "complete");
    check_same(&source, &target);
    free_all(chunks, n);
    free_all(foreign, n);
    memory_free(&source);
    memory_free(&other);
    memory_free(&target);
}

TEST(truncated_and_damaged_chunks_are_refused) {
    struct memory source = example(1);
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump_all(&source, chunks, MAX_CHUNKS);
    struct chunk chunk;
    srandom(1);
    for (size_t i = 0; i < n; i++) {
        const size_t few = chunks[i].n < 4000 ? chunks[i].n : 4000;
        for (size_t length = 0; length < few; length++) {
            uint8_t *copy = malloc(length ? length : 1); /* ends where its memory ends */
            memcpy(copy, chunks[i].at, length);
            CHECK(chunk_open(copy, length, &chunk) != NULL);
            free(copy);
        }
        if (chunks[i].n > 100000) continue;
        for (unsigned round = 0; round < 500; round++) {
            const size_t at = (size_t)random() % chunks[i].n;
            const uint8_t before = chunks[i].at[at];
            chunks[i].at[at] ^= (uint8_t)(1 + random() % 255);
            CHECK(chunk_open(chunks[i].at, chunks[i].n, &chunk) != NULL);
            chunks[i].at[at] = before;
        }
    }
    chunks[0].at[7] = 2;
    CHECK_STR(chunk_open(chunks[0].at, chunks[0].n, &chunk),
              "it was made by a newer version of the module");
    chunks[0].at[7] = 0;
    CHECK_STR(chunk_open(chunks[0].at, chunks[0].n, &chunk), "unknown version");
    CHECK_STR(chunk_open((const uint8_t *)"RedisBloom", 10, &chunk), "it is not a chunk");
    free_all(chunks, n);
    memory_free(&source);
}

/* A checksum is no protection against somebody who can compute it: damage, then seal again. */
TEST(forged_chunks_are_refused_or_harmless) {
    struct memory source = example_with(1, 3);
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump_all(&source, chunks, MAX_CHUNKS);
    unsigned nrefused = 0, naccepted = 0;
    srandom(1);
    for (unsigned round = 0; round < 6000; round++) {
        struct memory target = {0};
        const size_t victim = round % 3 == 0 ? 0 : round % 3 == 1 ? 1 : n - 1;
        if (victim > 0 && load(&target, chunks[0].at, chunks[0].n) != NULL) CHECK(false);
        if (victim == n - 1) {
            target.descriptor->load->next = chunks[n - 2].to;
            target.descriptor->load->nbytes = target.descriptor->load->total;
        }
        uint8_t *copy = malloc(chunks[victim].n);
        memcpy(copy, chunks[victim].at, chunks[victim].n);
        for (long i = random() % 3; i >= 0; i--) {
            const size_t range = chunks[victim].n < 200 || random() % 2 ? chunks[victim].n : 200;
            copy[(size_t)random() % range] = (uint8_t)random();
        }
        size_t length = chunks[victim].n;
        if (round % 7 == 0) length -= (size_t)random() % (length - 16);
        chunk_seal(copy, length);
        uint8_t *exact = malloc(length);
        memcpy(exact, copy, length);
        /* A forged header may announce more than this test wants to allocate. */
        struct chunk chunk;
        const char *problem = chunk_open(exact, length, &chunk);
        if (victim == 0 && !problem && chunk.type == CHUNK_HEADER) {
            struct descriptor *d = chunk_read_header(&chunk, &problem);
            CHECK((d == NULL) == (problem != NULL));
            if (d) CHECK(descriptor_problem(d) == NULL);
            descriptor_free(d);
        } else if (victim > 0) {
            problem = load(&target, exact, length);
            CHECK(descriptor_problem(target.descriptor) == NULL);
        }
        *(problem ? &nrefused : &naccepted) += 1;
        free(copy);
        free(exact);
        memory_free(&target);
    }
    CHECK(nrefused > 1000);
    CHECK(naccepted > 100); /* other bits, another seed */
    free_all(chunks, n);
    memory_free(&source);
}

/* A part must not make the target allocate more than it contains: shards arrive whole, in order. */
TEST(parts_out_of_place_are_refused) {
    struct memory source = example(1), target = {0};
    struct descriptor *d = source.descriptor;
    struct bytes header = dump(&source, 0);
    CHECK(load(&target, header.at, header.n) == NULL);
    static const uint8_t zeros[CHUNK_PART_BYTES];
#define PART(l, s, p, n)                                                                           \
    { .layer = l, .shard = s, .part = p, .nbytes = n, .bytes = zeros }
    static const struct {
        struct part parts[2];
        const char *reason;
    } cases[] = {
        {{PART(3, 0, 0, 64)}, "a part of it does not belong to the filter"},
        {{PART(0, 10, 0, 128)}, "a part of it does not belong to the filter"},
        {{PART(0, 0, 1, 128)}, "a part of it does not belong to the filter"},
        {{PART(0, 0, 0, 127)}, "a part of it does not belong to the filter"},
        {{PART(0, 1, 0, 128), PART(0, 0, 0, 128)}, "its parts are out of order"},
        {{PART(0, 1, 0, 128), PART(0, 1, 0, 128)}, "its parts are out of order"},
        {{PART(1, 0, 2, 4096)}, "its parts are out of order"},
        {{PART(1, 0, 0, CHUNK_PART_BYTES), PART(1, 0, 2, 4096)}, "its parts are out of order"},
        {{PART(1, 0, 0, CHUNK_PART_BYTES), PART(1, 1, 0, CHUNK_PART_BYTES)},
         "its parts are out of order"},
        {{PART(0, 2, 0, 128)}, "its parts do not reach its iterator"},
        {{{.bytes = NULL}}, "its parts do not reach its iterator"},
    };
#undef PART
    uint64_t to = header.to;
    struct part first;
    REQUIRE(chunk_next_part(d, &to, &first));
    uint8_t *bytes = malloc(2 * CHUNK_PART_BYTES + 200);
    for (size_t i = 0; i < N(cases); i++) {
        uint8_t *at = chunk_begin_data(d, header.to, to, bytes);
        for (size_t j = 0; j < 2; j++)
            if (cases[i].parts[j].bytes) at = chunk_put_part(at, &cases[i].parts[j]);
        const size_t nbytes = (size_t)(at - bytes) + 8;
        chunk_seal(bytes, nbytes);
        struct chunk chunk;
        if (nbytes > CHUNK_MAX_BYTES) {
            CHECK_STR(chunk_open(bytes, nbytes, &chunk), "it is too long");
            continue;
        }
        CHECK(chunk_open(bytes, nbytes, &chunk) == NULL);
        if (!CHECK_STR(chunk_check_data(&chunk, target.descriptor), cases[i].reason))
            CHECK_FAIL("case %zu", i);
    }
    free(bytes);
    free(header.at);
    memory_free(&source);
    memory_free(&target);
}

/* Each part is a key to make. A chunk of 16 MB has room for the tables of 262,144 shards. */
TEST(a_chunk_has_a_limited_number_of_parts) {
    struct memory source = {.descriptor = descriptor_new("t", 1)}, target = {0};
    const struct layout layout = {2000, 2, 9, 7};
    struct descriptor *d = source.descriptor;
    d->id = 1;
    d->error = 0.01;
    d->shard_bytes = 4096;
    REQUIRE(descriptor_add_layer(d, &layout, 30));
    allocate(&source);
    for (uint32_t j = 0; j < layout.nshards; j++) create(&d->layers[0], j);
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump_all(&source, chunks, MAX_CHUNKS);
    CHECK_UINT(n, 4); /* header, 1024 shards, the others, end */
    CHECK(load(&target, chunks[0].at, chunks[0].n) == NULL);
    uint8_t *bytes = malloc(chunks[1].n + chunks[2].n);
    uint8_t *at = chunk_begin_data(d, chunks[0].to, chunks[2].to, bytes);
    for (size_t i = 1; i <= 2; i++) {
        struct chunk chunk;
        CHECK(chunk_open(chunks[i].at, chunks[i].n, &chunk) == NULL);
        memcpy(at, chunk.body, chunk.nbody);
        at += chunk.nbody;
    }
    const size_t nbytes = (size_t)(at - bytes) + 8;
    chunk_seal(bytes, nbytes);
    struct chunk chunk;
    CHECK(chunk_open(bytes, nbytes, &chunk) == NULL);
    CHECK_STR(chunk_check_data(&chunk, target.descriptor), "it has too many parts");
    CHECK(load(&target, chunks[1].at, chunks[1].n) == NULL);
    CHECK(load(&target, chunks[2].at, chunks[2].n) == NULL);
    free(bytes);
    free_all(chunks, n);
    memory_free(&source);
    memory_free(&target);
}

/* The format: other programs may read it, and a dump of today is loaded by the versions of
 * tomorrow. */
TEST(bytes_are_the_pinned_ones) {
    struct memory source = {.descriptor = descriptor_new("t", 1)};
    const struct layout layout = {2, 1, 9, 7};
    struct descriptor *d = source.descriptor;
    d->id = 0x1122334455667788;
    d->error = 0.01;
    d->shard_bytes = 4096;
    REQUIRE(descriptor_add_layer(d, &layout, 30));
    allocate(&source);
    create(&d->layers[0], 1);
    d->layers[0].nitems = 1;
    memset(shard_of(&source, 0, 1), 0x5a, 64);
    struct bytes chunks[MAX_CHUNKS];
    const size_t n = dump_all(&source, chunks, MAX_CHUNKS);
    static const uint8_t data[] = {
        'B',  'F',  'C',  'H',  'U',  'N',  'K',  1,    /* magic, version */
        2,    0,    0,    0,    0,    0,    0,    0,    /* type */
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /* id of the source */
        0x01, 0x00, 0x00, 0x80, 0x37, 0xe2, 0x05, 0x00, /* iterator that was given */
        0x03, 0x00, 0x00, 0x80, 0x37, 0xe2, 0x05, 0x00, /* iterator to go on with */
        0,    0,    0,    0,    1,    0,    0,    0,
        0,    0,    0,    0,    64,   0,    0,    0, /* layer, shard, part, bytes */
    };
    static const uint8_t data_checksum[] = {0x86, 0x93, 0x22, 0x9a, 0x67, 0xc3, 0x68, 0xda};
    static const uint8_t end[] = {
        'B',  'F',  'C',  'H',  'U',  'N',  'K',  1, /* the same, but for the type */
        3,    0,    0,    0,    0,    0,    0,    0,    0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
        0x22, 0x11, 0x03, 0x00, 0x00, 0x80, 0x37, 0xe2, 0x05, 0x00, 0x04, 0x00, 0x00, 0x80,
        0x37, 0xe2, 0x05, 0x00, 1,    0,    0,    0,    0,    0,    0,    0, /* items of layer 0 */
        0x12, 0x63, 0x65, 0x8f, 0x7a, 0xe3, 0x43, 0x77, /* XXH3 of all before */
    };
    static const uint8_t header[] = {
        'B',  'F',  'C',  'H',  'U',  'N',  'K',  1, 1, 0, 0, 0, 0, 0, 0, 0,    0x88,
        0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0x00,
        0x00, 0x80, 0x37, 0xe2, 0x05, 0x00, 64,   0, 0, 0, 0, 0, 0, 0, /* bytes of all shards */
        'B',  'F',  'D',  1, /* and the descriptor, which test_descriptor.c pins */
    };
    REQUIRE(CHECK_UINT(n, 3) && chunks[1].n == sizeof data + 64 + 8);
    CHECK_MEM(chunks[0].at, sizeof header, header, sizeof header);
    CHECK_UINT(chunks[0].n, 48 + descriptor_encoded_size(d) + 8);
    CHECK_MEM(chunks[1].at, sizeof data, data, sizeof data);
    CHECK_MEM(chunks[1].at + sizeof data, 64, shard_of(&source, 0, 1), 64);
    CHECK_MEM(chunks[1].at + sizeof data + 64, 8, data_checksum, 8);
    CHECK_MEM(chunks[2].at, chunks[2].n, end, sizeof end);
    free_all(chunks, n);
    memory_free(&source);
}
