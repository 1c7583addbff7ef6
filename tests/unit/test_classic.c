/* RedisBloom's filters: its hashes, its chunks (tests/assets), and headers that lie. */
#include "check.h"
#include "core/classic.h"
#include "core/encoding.h"
#include "core/redisbloom.h"
#include "core/sizing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(array)    (sizeof(array) / sizeof((array)[0]))
#define SHARD_BYTES (32u << 20)

/* ---- hashes ---- */

/* MurmurHash2 and MurmurHash64A with the seeds that RedisBloom uses, computed by another program;
 * the dumps below prove that they are the right ones. */
TEST(hashes_are_the_pinned_ones) {
    static const struct {
        const char *item;
        bool wide;
        uint64_t a, b;
    } cases[] = {
        {"", true, 0x1ab11ea5a7b2c56e, 0xbbddcb5ab56dd547},
        {"", false, 0x106e08d9, 0x456d9087},
        {"a", true, 0x4292cee227b9150a, 0x7e9b527031f50c11},
        {"a", false, 0xa2d0b27c, 0x2e36e8b4},
        {"abcdefg", true, 0x9fa0b24601c1e9a9, 0x593e9b0945664832},
        {"abcdefg", false, 0xeb595499, 0x3219f5ed},
        {"abcdefgh", true, 0xd435df7a565a8af1, 0xbf3d673c0b1029cf},
        {"abcdefgh", false, 0xc70d55dd, 0xd8fd56f3},
        {"http://example.com/", true, 0x2614983da7b3d0cf, 0xbc2e17b27b2120b8},
        {"http://example.com/", false, 0xb1cc8175, 0xf18628ea},
    };
    for (size_t i = 0; i < N(cases); i++) {
        const struct classic_hash hash =
            classic_hash(cases[i].item, strlen(cases[i].item), cases[i].wide);
        CHECK_UINT(hash.a, cases[i].a);
        CHECK_UINT(hash.b, cases[i].b);
    }
}

TEST(positions_wrap_as_sums_of_64_bits) {
    const struct classic_hash hash = {UINT64_MAX, 3};
    CHECK_UINT(classic_position(hash, 0, 1000), UINT64_MAX % 1000);
    CHECK_UINT(classic_position(hash, 1, 1000), 2);
    CHECK_UINT(classic_position(hash, 2, 1024), 5);
    CHECK_UINT(classic_position(hash, 7, 1), 0);
    CHECK_UINT(classic_position(hash, 0, (uint64_t)1 << 63), ((uint64_t)1 << 63) - 1);
}

TEST(places_follow_each_other_across_shards) {
    const struct layout layout = {.nshards = 3, .nblocks = 2, .block_log2 = 9, .nprobes = 1};
    for (uint64_t position = 0; position < 3 * 128 * 8; position++) {
        const struct classic_place place = classic_place(&layout, position);
        CHECK_UINT(place.shard, position / 1024);
        CHECK_UINT(place.byte, position % 1024 / 8);
        CHECK_UINT(place.mask, 1u << position % 8);
    }
}

/* ---- dumps that RedisBloom made ---- */

static const struct dump {
    const char *name;
    unsigned nitems; /* item:0 … */
    uint64_t ncounted;
    uint32_t nlayers;
    uint64_t capacity;
    uint32_t expansion;
} dumps[] = {
    {"growing", 150, 159, 4, 300, 2},        {"nonscaling", 40, 56, 1, 60, 0},
    {"power-of-two", 80, 95, 1, 100, 2},     {"hash32", 80, 96, 1, 100, 2},
    {"hash32-unrounded", 80, 96, 1, 100, 2},
};

static uint8_t *read_asset(const char *name, const char *suffix, size_t *nbytes) {
    char path[128];
    snprintf(path, sizeof path, "tests/assets/redisbloom-%s.%s", name, suffix);
    FILE *file = fopen(path, "rb");
    if (!file) {
        CHECK_FAIL("can't read %s", path);
        return NULL;
    }
    uint8_t *bytes = malloc(1 << 16);
    *nbytes = fread(bytes, 1, 1 << 16, file);
    fclose(file);
    return bytes;
}

static uint64_t get(const uint8_t *at, unsigned nbytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < nbytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void put(uint8_t *at, uint64_t value, unsigned nbytes) {
    for (; nbytes > 0; nbytes--, value >>= 8) *at++ = (uint8_t)value;
}

/* A filter in plain memory: shards as they would be strings. */
struct memory {
    struct descriptor *descriptor;
    uint8_t **layers; /* all shards of a layer, one behind the other */
};

static void memory_free(struct memory *memory) {
    for (uint32_t i = 0; memory->layers && i < memory->descriptor->nlayers; i++)
        free(memory->layers[i]);
    free(memory->layers);
    descriptor_free(memory->descriptor);
}

static void store(struct memory *memory, uint64_t from, const uint8_t *bytes, uint64_t nbytes) {
    uint32_t layer;
    uint64_t offset;
    if (CHECK(redisbloom_locate(memory->descriptor, from, nbytes, &layer, &offset)))
        memcpy(memory->layers[layer] + offset, bytes, nbytes);
}

/* Loads a dump whose filter is cut into shards of at most shard_bytes. */
static bool load(const char *name, uint64_t shard_bytes, struct memory *memory) {
    size_t nbytes;
    const char *problem = NULL;
    uint8_t *bytes = read_asset(name, "dump", &nbytes);
    *memory = (struct memory){0};
    if (!bytes) return false;
    for (size_t at = 0; at + 16 <= nbytes;) {
        const uint64_t iterator = get(bytes + at, 8), length = get(bytes + at + 8, 8);
        const uint8_t *data = bytes + at + 16;
        at += 16 + length;
        if (memory->descriptor) {
            store(memory, iterator - length, data, length);
            continue;
        }
        CHECK_UINT(iterator, 1);
        memory->descriptor = redisbloom_decode_header(data, length, shard_bytes, &problem);
        if (!CHECK(problem == NULL) || !memory->descriptor) break;
        memory->layers = calloc(memory->descriptor->nlayers, sizeof *memory->layers);
        for (uint32_t i = 0; i < memory->descriptor->nlayers; i++) {
            const struct layout *layout = &memory->descriptor->layers[i].layout;
            memory->layers[i] = calloc(layout->nshards, layout_shard_bytes(layout));
        }
    }
    free(bytes);
    return memory->descriptor != NULL;
}

static bool contains(const struct memory *memory, const char *item) {
    for (uint32_t i = 0; i < memory->descriptor->nlayers; i++) {
        const struct layer *layer = &memory->descriptor->layers[i];
        const struct classic_hash hash =
            classic_hash(item, strlen(item), layer->flags & LAYER_WIDE);
        unsigned probe = 0;
        for (; probe < layer->layout.nprobes; probe++) {
            const struct classic_place place =
                classic_place(&layer->layout, classic_position(hash, probe, layer->nbits));
            const uint8_t *shard =
                memory->layers[i] + place.shard * layout_shard_bytes(&layer->layout);
            if (!(shard[place.byte] & place.mask)) break;
        }
        if (probe == layer->layout.nprobes) return true;
    }
    return false;
}

static void check_answers(const struct dump *dump, const struct memory *memory) {
    char item[32];
    for (unsigned i = 0; i < dump->nitems; i++) {
        snprintf(item, sizeof item, "item:%u", i);
        if (!contains(memory, item)) CHECK_FAIL("%s lacks %s", dump->name, item);
    }
    for (unsigned i = 1; i <= 16; i++) {
        memset(item, 'x', i);
        item[i] = '\0';
        if (!contains(memory, item)) CHECK_FAIL("%s lacks %s", dump->name, item);
    }
    size_t nbytes;
    char *expected = (char *)read_asset(dump->name, "positives", &nbytes), *next = expected;
    REQUIRE(expected);
    expected[nbytes] = '\0';
    unsigned npositive = 0;
    for (long i = 0; i < 4000; i++) {
        char *end;
        const bool positive = strtol(next, &end, 10) == i && end != next;
        if (positive) next = end;
        npositive += positive;
        snprintf(item, sizeof item, "other:%ld", i);
        if (contains(memory, item) != positive)
            CHECK_FAIL("%s answers %d for %s", dump->name, !positive, item);
    }
    CHECK(npositive > 20); /* else the test would prove little */
    free(expected);
}

TEST(answers_are_those_of_redisbloom) {
    for (size_t i = 0; i < N(dumps); i++) {
        struct memory memory;
        if (!load(dumps[i].name, SHARD_BYTES, &memory)) continue;
        const struct descriptor *d = memory.descriptor;
        CHECK_UINT(d->nlayers, dumps[i].nlayers);
        CHECK_UINT(descriptor_nitems(d), dumps[i].ncounted);
        CHECK_UINT(descriptor_capacity(d), dumps[i].capacity);
        CHECK_UINT(d->expansion, dumps[i].expansion);
        CHECK_INT(d->load->origin, LOAD_REDISBLOOM);
        CHECK_UINT(d->load->next, 1);
        CHECK_UINT(d->load->total, redisbloom_total_bytes(d));
        check_answers(&dumps[i], &memory);
        memory_free(&memory);
    }
}

/* ---- headers ---- */

/* One layer, as all versions from 2.2.x on write it; 73 bytes. */
static void make_header(uint8_t header[73], uint64_t nbits, unsigned log2) {
    const double error = 0.005, bits_per_item = 11.03;
    uint64_t image;
    memset(header, 0, 73);
    put(header, 7, 8);
    put(header + 8, 1, 4);
    put(header + 12, 5, 4);
    put(header + 16, 2, 4);
    put(header + 20, (nbits + 63) / 64 * 8, 8);
    put(header + 28, (nbits + 63) / 64 * 64, 8);
    put(header + 36, 7, 8);
    memcpy(&image, &error, 8);
    put(header + 44, image, 8);
    memcpy(&image, &bits_per_item, 8);
    put(header + 52, image, 8);
    put(header + 60, 8, 4);
    put(header + 64, 100, 8);
    put(header + 72, log2, 1);
}

/* Decodes a copy that ends where its memory ends. */
static struct descriptor *decode(const uint8_t *bytes, size_t nbytes, uint64_t shard_bytes,
                                 const char **problem) {
    uint8_t *copy = malloc(nbytes ? nbytes : 1);
    memcpy(copy, bytes, nbytes);
    *problem = NULL;
    struct descriptor *d = redisbloom_decode_header(copy, nbytes, shard_bytes, problem);
    free(copy);
    CHECK((d == NULL) == (*problem != NULL));
    return d;
}

static void check_refused(const uint8_t *bytes, size_t nbytes, const char *reason) {
    const char *problem;
    struct descriptor *d = decode(bytes, nbytes, SHARD_BYTES, &problem);
    CHECK(d == NULL);
    CHECK_STR(problem, reason);
    descriptor_free(d);
}

TEST(headers_of_older_versions_are_read) {
    uint8_t header[73], older[73];
    const char *problem;
    make_header(header, 1024, 10);
    memcpy(older, header, 64); /* capacity of 4 bytes */
    memcpy(older + 64, header + 64, 4);
    older[68] = header[72];
    struct descriptor *d = decode(older, 69, SHARD_BYTES, &problem);
    REQUIRE(d);
    CHECK_UINT(d->layers[0].capacity, 100);
    CHECK_UINT(d->layers[0].nbits, 1024);
    CHECK_UINT(d->expansion, 2);
    descriptor_free(d);

    memmove(older + 16, older + 20,
            49); /* no growth; bits are 0 where the number is a power of two */
    put(older + 24, 0, 8);
    d = decode(older, 65, SHARD_BYTES, &problem);
    REQUIRE(d);
    CHECK_UINT(d->layers[0].capacity, 100);
    CHECK_UINT(d->layers[0].nbits, 1024);
    CHECK_UINT(d->expansion, 2);
    descriptor_free(d);
}

TEST(bad_headers_are_refused_with_the_reason) {
    static const struct {
        size_t at;
        uint64_t value;
        unsigned nbytes;
        const char *reason;
    } cases[] = {
        {0, 8, 8, "the layers' items do not add up"},
        {8, 0, 4, "not a header of a known length"},
        {8, 2, 4, "not a header of a known length"},
        {8, UINT32_MAX, 4, "not a header of a known length"},
        {12, 16, 4, "unknown options"},
        {12, UINT32_MAX, 4, "unknown options"},
        {16, 32769, 4, "expansion out of range"},
        {20, 0, 8, "number of bits and number of bytes do not match"},
        {20, UINT64_MAX, 8, "number of bits and number of bytes do not match"},
        {20, 127, 8, "number of bits and number of bytes do not match"},
        {20, 137, 8, "number of bits and number of bytes do not match"},
        {28, 0, 8, "number of bits and number of bytes do not match"},
        {28, UINT64_MAX, 8, "number of bits and number of bytes do not match"},
        {28, 1025, 8, "number of bits and number of bytes do not match"},
        {36, UINT64_MAX, 8, "number of items out of range"},
        {44, 0, 8, "error rate out of range"},
        {44, 0x3ff0000000000000, 8, "error rate out of range"},
        {44, 0x7ff8000000000000, 8, "error rate out of range"},
        {44, 0xbff0000000000000, 8, "error rate out of range"},
        {60, 0, 4, "number of hashes out of range"},
        {60, 256, 4, "number of hashes out of range"},
        {60, UINT32_MAX, 4, "number of hashes out of range"},
        {64, 0, 8, "capacity out of range"},
        {64, ((uint64_t)1 << 40) + 1, 8, "capacity out of range"},
        {72, 64, 1, "number of bits out of range"},
        {72, 11, 1, "number of bits and number of bytes do not match"},
        {72, 63, 1, "number of bits and number of bytes do not match"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        uint8_t header[73];
        make_header(header, 1024, 0);
        put(header + cases[i].at, cases[i].value, cases[i].nbytes);
        check_refused(header, sizeof header, cases[i].reason);
    }
}

/* Such a header is 73 bytes long. Whatever size it claims, we must not allocate that much. */
TEST(huge_claims_cost_nothing) {
    uint8_t header[73];
    const char *problem;
    make_header(header, (uint64_t)1 << 46, 0); /* 8 TiB */
    struct descriptor *d = decode(header, sizeof header, SHARD_BYTES, &problem);
    REQUIRE(d);
    CHECK(d->layers[0].layout.nshards <= LAYOUT_MAX_SHARDS);
    CHECK_UINT(descriptor_nshards(d), 0);
    CHECK(descriptor_problem(d) == NULL);
    descriptor_free(d);
    make_header(header, (uint64_t)1 << 62, 62);
    check_refused(header, sizeof header, "too large");
    make_header(header, UINT64_MAX - 63, 0);
    check_refused(header, sizeof header, "too large");
}

TEST(more_layers_than_a_filter_can_have_are_refused) {
    const size_t nbytes = 20 + 53 * 65;
    uint8_t one[73], *header = calloc(1, nbytes);
    make_header(one, 1024, 0);
    memcpy(header, one, 20);
    put(header, 7 * 65, 8);
    put(header + 8, 65, 4);
    for (int i = 0; i < 65; i++) memcpy(header + 20 + 53 * i, one + 20, 53);
    check_refused(header, nbytes, "more than 64 layers");
    put(header, 7 * 64, 8);
    put(header + 8, 64, 4);
    const char *problem;
    struct descriptor *d = decode(header, nbytes - 53, SHARD_BYTES, &problem);
    CHECK(d && d->nlayers == 64);
    descriptor_free(d);
    put(header + 12, 13, 4);
    check_refused(header, nbytes - 53, "several layers, but no expansion");
    free(header);
}

TEST(layers_are_cut_into_shards_that_hold_them) {
    static const uint64_t sizes[] = {1, 8, 64, 65, 4000, 4096, 100000, 12345678, 123456789012};
    for (size_t i = 0; i < N(sizes); i++) {
        uint8_t header[73];
        const char *problem;
        make_header(header, sizes[i] * 8, 0);
        struct descriptor *d = decode(header, sizeof header, SIZING_MIN_SHARD_BYTES, &problem);
        REQUIRE(d);
        const struct layer *layer = &d->layers[0];
        const uint64_t room = layer->layout.nshards * (uint64_t)layout_shard_bytes(&layer->layout);
        CHECK(room >= layer->nbytes && layer->nbits <= layer->nbytes * 8);
        CHECK(room < layer->nbytes + layer->layout.nshards * (uint64_t)64 + 64);
        if (layer->layout.nshards < LAYOUT_MAX_SHARDS / 2)
            CHECK(layout_shard_bytes(&layer->layout) + SIZING_SHARD_OVERHEAD <=
                  SIZING_MIN_SHARD_BYTES);
        const struct classic_place place = classic_place(&layer->layout, layer->nbits - 1);
        CHECK(place.shard < layer->layout.nshards);
        CHECK(place.byte < layout_shard_bytes(&layer->layout));
        descriptor_free(d);
    }
}

TEST(data_lies_within_one_layer) {
    struct memory memory;
    REQUIRE(load("growing", SHARD_BYTES, &memory));
    const struct descriptor *d = memory.descriptor;
    uint64_t from = 1, offset;
    uint32_t layer;
    for (uint32_t i = 0; i < d->nlayers; i++) {
        const uint64_t nbytes = d->layers[i].nbytes;
        CHECK(redisbloom_locate(d, from, nbytes, &layer, &offset) && layer == i && offset == 0);
        CHECK(!redisbloom_locate(d, from, nbytes + 1, &layer, &offset));
        CHECK(!redisbloom_locate(d, from, UINT64_MAX, &layer, &offset));
        CHECK(redisbloom_locate(d, from + nbytes - 1, 1, &layer, &offset) && offset == nbytes - 1);
        from += nbytes;
    }
    CHECK(!redisbloom_locate(d, from, 1, &layer, &offset));
    CHECK(!redisbloom_locate(d, 0, 1, &layer, &offset));
    CHECK(!redisbloom_locate(d, UINT64_MAX, 1, &layer, &offset));
    memory_free(&memory);
}

TEST(corrupted_headers_are_refused_or_valid) {
    size_t nbytes;
    uint8_t *asset = read_asset("growing", "dump", &nbytes);
    REQUIRE(asset);
    const size_t nheader = get(asset + 8, 8);
    uint8_t *header = malloc(nheader);
    unsigned naccepted = 0;
    srandom(1);
    for (int round = 0; round < 50000; round++) {
        memcpy(header, asset + 16, nheader);
        for (int n = round % 4; n >= 0; n--) header[random() % (long)nheader] = (uint8_t)random();
        const char *problem;
        const size_t length = round % 5 ? nheader : (size_t)random() % nheader;
        struct descriptor *d = decode(header, length, SHARD_BYTES, &problem);
        if (!d) continue;
        naccepted++;
        CHECK(descriptor_problem(d) == NULL);
        /* It can be stored and read back, whatever it says. */
        const size_t nencoded = descriptor_encoded_size(d);
        uint8_t *encoded = malloc(nencoded);
        descriptor_encode(d, encoded);
        struct descriptor *again = descriptor_decode(encoded, nencoded, &problem);
        CHECK(again != NULL);
        descriptor_free(again);
        free(encoded);
        descriptor_free(d);
    }
    CHECK(naccepted > 100);
    free(header);
    free(asset);
}

TEST(every_truncation_of_a_header_is_refused) {
    uint8_t header[73];
    make_header(header, 1024, 0);
    for (size_t n = 0; n < sizeof header; n++) {
        if (n == 65 || n == 69) continue; /* the lengths of older versions */
        check_refused(header, n, "not a header of a known length");
    }
}
