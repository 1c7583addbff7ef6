/* The bytes of descriptors and shard headers: pinned, and read with distrust. */
#include "check.h"
#include "core/encoding.h"
#include "core/header.h"
#include "scarce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* Two layers, 11 shards of which some were created, a tag with a NUL and a brace in it. */
static struct descriptor *example(void) {
    struct descriptor *d = descriptor_new("a\0}", 3);
    if (!d) return NULL;
    d->id = 0x0123456789abcdef;
    d->seed = 0xfedcba9876543210;
    d->error = 0.001;
    d->shard_bytes = 1 << 20;
    d->expansion = 2;
    const struct layout first = {1, 2, 9, 7}, second = {10, 300, 11, 14};
    if (!descriptor_add_layer(d, &first, 100) || !descriptor_add_layer(d, &second, 200)) {
        descriptor_free(d);
        return NULL;
    }
    d->layers[0].nitems = 100;
    layer_mark_created(&d->layers[0], 0);
    d->layers[0].nstored = 55 + 2 * 64;
    d->layers[1].nitems = 3;
    d->layers[1].nstored = 55 + 300 * 256 + 151;
    layer_mark_created(&d->layers[1], 1);
    layer_mark_created(&d->layers[1], 9);
    return d;
}

/* docs/format.md shows the same bytes. */
static const uint8_t pinned[] = {
    'B',  'F',  'D',  1,                                              /* magic, version */
    0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01,                   /* id */
    0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe,                   /* seed */
    0xfc, 0xa9, 0xf1, 0xd2, 0x4d, 0x62, 0x50, 0x3f,                   /* error: the double 0.001 */
    0x00, 0x00, 0x10, 0x00, 0,    0,    0,    0,                      /* shard size */
    2,    0,    0,    0,                                              /* expansion */
    3,    0,                                                          /* length of the tag */
    'a',  0,    '}',                                                  /* tag */
    0,    2,                                                          /* flags, layers */
    1,    9,    7,    0,    1,    0,    0,    0,    2,    0,    0, 0, /* kind … blocks */
    100,  0,    0,    0,    0,    0,    0,    0,    100,  0,    0, 0,    0,
    0,    0,    0,    183,  0,    0,    0,    0,    0,    0,    0, 0x01, /* capacity … created */
    1,    11,   14,   0,    10,   0,    0,    0,    0x2c, 0x01, 0, 0,    /* the same of layer 1 */
    200,  0,    0,    0,    0,    0,    0,    0,    3,    0,    0, 0,    0,
    0,    0,    0,    0xce, 0x2c, 1,    0,    0,    0,    0,    0, 0x02, 0x02,
};

static size_t encode(const struct descriptor *d, uint8_t **bytes) {
    const size_t nbytes = descriptor_encoded_size(d);
    *bytes = malloc(nbytes); /* exactly as large: the sanitizer sees a byte too many */
    descriptor_encode(d, *bytes);
    return nbytes;
}

/* Decodes a copy that ends where its memory ends. */
static struct descriptor *decode(const uint8_t *bytes, size_t nbytes, const char **problem) {
    uint8_t *copy = malloc(nbytes ? nbytes : 1);
    memcpy(copy, bytes, nbytes);
    *problem = NULL;
    struct descriptor *d = descriptor_decode(copy, nbytes, problem);
    free(copy);
    CHECK((d == NULL) == (*problem != NULL));
    return d;
}

static bool check_refused(const uint8_t *bytes, size_t nbytes, const char *reason) {
    const char *problem;
    struct descriptor *d = decode(bytes, nbytes, &problem);
    const bool refused = CHECK(d == NULL) && CHECK_STR(problem, reason);
    descriptor_free(d);
    return refused;
}

TEST(encoding_is_the_pinned_one) {
    struct descriptor *d = example();
    uint8_t *bytes;
    const size_t nbytes = encode(d, &bytes);
    CHECK_MEM(bytes, nbytes, pinned, sizeof pinned);
    free(bytes);
    descriptor_free(d);
}

TEST(decoding_gives_back_every_field) {
    const char *problem;
    struct descriptor *d = decode(pinned, sizeof pinned, &problem);
    REQUIRE(d);
    CHECK_UINT(d->id, 0x0123456789abcdef);
    CHECK_UINT(d->seed, 0xfedcba9876543210);
    CHECK(d->error == 0.001);
    CHECK_UINT(d->shard_bytes, 1 << 20);
    CHECK_UINT(d->expansion, 2);
    CHECK_MEM(d->tag, d->tag_length, "a\0}", 3);
    CHECK_UINT(d->nlayers, 2);
    CHECK_UINT(d->layers[1].kind, LAYER_BLOCKED);
    CHECK_UINT(d->layers[1].layout.nshards, 10);
    CHECK_UINT(d->layers[1].layout.nblocks, 300);
    CHECK_UINT(d->layers[1].layout.block_log2, 11);
    CHECK_UINT(d->layers[1].layout.nprobes, 14);
    CHECK_UINT(d->layers[1].capacity, 200);
    CHECK_UINT(d->layers[1].nitems, 3);
    for (uint32_t i = 0; i < 10; i++)
        CHECK(layer_shard_created(&d->layers[1], i) == (i == 1 || i == 9));
    CHECK_UINT(descriptor_capacity(d), 300);
    CHECK_UINT(descriptor_nitems(d), 103);
    CHECK_UINT(descriptor_nshards(d), 3);
    CHECK_UINT(descriptor_nstored(d), (55 + 2 * 64) + 55 + 300 * 256 + 151);
    uint8_t *bytes;
    const size_t nbytes = encode(d, &bytes);
    CHECK_MEM(bytes, nbytes, pinned, sizeof pinned);
    free(bytes);
    descriptor_free(d);
}

TEST(extreme_descriptors_round_trip) {
    char *tag = calloc(1, DESCRIPTOR_MAX_TAG);
    struct descriptor *d = descriptor_new(tag, DESCRIPTOR_MAX_TAG);
    d->id = d->seed = UINT64_MAX;
    d->error = SIZING_MIN_ERROR;
    d->shard_bytes = SIZING_MAX_SHARD_BYTES;
    d->expansion = DESCRIPTOR_MAX_EXPANSION;
    for (unsigned i = 0; i < SIZING_MAX_LAYERS; i++) {
        const struct layout layout = {i % 2 ? LAYOUT_MAX_SHARDS : i + 1, 131071, 15,
                                      LAYOUT_MAX_PROBES};
        descriptor_add_layer(d, &layout, SIZING_MAX_CAPACITY);
        layer_mark_created(descriptor_newest(d), layout.nshards - 1);
        descriptor_newest(d)->nitems = SIZING_MAX_CAPACITY;
    }
    uint8_t *bytes, *again;
    const size_t nbytes = encode(d, &bytes);
    const char *problem;
    struct descriptor *back = decode(bytes, nbytes, &problem);
    REQUIRE(back);
    const size_t nagain = encode(back, &again);
    CHECK_MEM(again, nagain, bytes, nbytes);
    CHECK_UINT(descriptor_nshards(back), SIZING_MAX_LAYERS);
    free(again);
    free(bytes);
    free(tag);
    descriptor_free(back);
    descriptor_free(d);
}

TEST(what_the_sizing_makes_can_be_stored) {
    for (uint64_t capacity = 1; capacity <= SIZING_MAX_CAPACITY; capacity *= 64) {
        struct descriptor *d = descriptor_new("", 0);
        struct layout layout;
        d->error = SIZING_MAX_ERROR;
        d->shard_bytes = SIZING_MIN_SHARD_BYTES;
        if (CHECK(sizing_plan(capacity, 1e-12, d->shard_bytes, true, &layout)) &&
            CHECK(descriptor_add_layer(d, &layout, capacity))) {
            uint8_t *bytes;
            const size_t nbytes = encode(d, &bytes);
            const char *problem;
            struct descriptor *back = decode(bytes, nbytes, &problem);
            CHECK(back != NULL);
            descriptor_free(back);
            free(bytes);
        }
        descriptor_free(d);
    }
}

TEST(every_truncation_is_refused) {
    for (size_t n = 0; n < sizeof pinned; n++) {
        const char *problem;
        struct descriptor *d = decode(pinned, n, &problem);
        if (!CHECK(d == NULL)) CHECK_FAIL("%zu bytes are enough", n);
        descriptor_free(d);
    }
    uint8_t longer[sizeof pinned + 1] = {0};
    memcpy(longer, pinned, sizeof pinned);
    check_refused(longer, sizeof longer, "bytes after the last layer");
}

/* What any reader relies on, whatever the bytes were. */
static void check_valid(const struct descriptor *d) {
    CHECK(isfinite(d->error) && d->error >= SIZING_MIN_ERROR && d->error <= SIZING_MAX_ERROR);
    CHECK(d->shard_bytes >= SIZING_MIN_SHARD_BYTES && d->shard_bytes <= SIZING_MAX_SHARD_BYTES);
    CHECK(d->expansion <= DESCRIPTOR_MAX_EXPANSION);
    CHECK(d->nlayers >= 1 && d->nlayers <= SIZING_MAX_LAYERS);
    for (uint32_t i = 0; i < d->nlayers; i++) {
        const struct layer *layer = &d->layers[i];
        const struct layout *layout = &layer->layout;
        const bool classic = layer->kind == LAYER_CLASSIC;
        CHECK(classic || layer->kind == LAYER_BLOCKED);
        CHECK(layout->block_log2 >= 9 && layout->block_log2 <= 15);
        CHECK(layout->nprobes >= 1 && (classic || layout->nprobes <= LAYOUT_MAX_PROBES));
        CHECK(layout->nshards >= 1 && layout->nshards <= LAYOUT_MAX_SHARDS && layout->nblocks >= 1);
        CHECK(layout_shard_bytes(layout) + HEADER_BYTES <= 512u << 20);
        CHECK(layer->capacity >= 1 && layer->capacity <= SIZING_MAX_CAPACITY);
        CHECK(layer->nitems <= SIZING_MAX_CAPACITY);
        CHECK(!classic || (layer->nbits >= 1 && (layer->nbits - 1) / 8 < layer->nbytes &&
                           layer->nbytes <= layout->nshards * layout_shard_bytes(layout)));
        CHECK(layer_count_created(layer) <= layout->nshards);
    }
}

/* Refused, or a valid descriptor that encodes to exactly these bytes: nothing is silently
 * dropped. */
static bool check_corrupted(const uint8_t *bytes, size_t nbytes) {
    const char *problem;
    struct descriptor *d = decode(bytes, nbytes, &problem);
    if (!d) return false;
    check_valid(d);
    uint8_t *again;
    const size_t nagain = encode(d, &again);
    CHECK_MEM(again, nagain, bytes, nbytes);
    free(again);
    descriptor_free(d);
    return true;
}

TEST(every_corruption_of_one_byte_is_refused_or_valid) {
    unsigned naccepted = 0, nrefused = 0;
    for (size_t at = 0; at < sizeof pinned; at++) {
        for (unsigned value = 0; value < 256; value++) {
            uint8_t bytes[sizeof pinned];
            memcpy(bytes, pinned, sizeof pinned);
            bytes[at] = (uint8_t)value;
            if (value == pinned[at]) continue;
            if (check_corrupted(bytes, sizeof bytes))
                naccepted++;
            else
                nrefused++;
        }
    }
    CHECK(nrefused > sizeof pinned * 255 / 3);
    CHECK(naccepted > 0); /* another id, another seed */
}

TEST(corruption_of_several_bytes_is_refused_or_valid) {
    srandom(1);
    for (int round = 0; round < 100000; round++) {
        uint8_t bytes[sizeof pinned];
        memcpy(bytes, pinned, sizeof pinned);
        for (int n = 0; n < 4; n++) bytes[(size_t)random() % sizeof bytes] = (uint8_t)random();
        const size_t nbytes = sizeof bytes - (round % 3 ? 0 : (size_t)random() % 20);
        check_corrupted(bytes, nbytes);
    }
    CHECK(true);
}

/* A layer that came from RedisBloom, half loaded. */
static const uint8_t pinned_half[] = {
    'B',  'F',  'D',  1,                            /* magic, version */
    8,    7,    6,    5,    4,    3,    2,    1,    /* id */
    0,    0,    0,    0,    0,    0,    0,    0,    /* seed: not used by this kind of layer */
    0xfc, 0xa9, 0xf1, 0xd2, 0x4d, 0x62, 0x50, 0x3f, /* error: 0.001 */
    0x00, 0x10, 0,    0,    0,    0,    0,    0,    /* shard size */
    2,    0,    0,    0,                            /* expansion */
    1,    0,    'k',                                /* tag */
    1,    1,                                        /* flags: half loaded; layers */
    2,    9,    10,   1,    2,    0,    0,    0,
    60,   0,    0,    0,                         /* kind, width, probes, wide, shards, blocks */
    100,  0,    0,    0,    0,    0,    0,    0, /* capacity */
    101,  0,    0,    0,    0,    0,    0,    0, /* items: RedisBloom's own count */
    0x37, 0x0f, 0,    0,    0,    0,    0,    0, /* bytes of its strings: 3895 */
    0x40, 0x9c, 0,    0,    0,    0,    0,    0, /* bits: 40000 */
    0x88, 0x13, 0,    0,    0,    0,    0,    0, /* bytes: 5000 */
    0x01,                                        /* created */
    2,                                           /* loaded from RedisBloom */
    0,    0,    0,    0,    0,    0,    0,    0, /* id of the source: none */
    0xe9, 0x03, 0,    0,    0,    0,    0,    0, /* iterator: 1001 */
    0xe8, 0x03, 0,    0,    0,    0,    0,    0, /* bytes loaded: 1000 */
    0x88, 0x13, 0,    0,    0,    0,    0,    0, /* of 5000 */
};

TEST(half_loaded_encoding_is_the_pinned_one) {
    struct descriptor *d = descriptor_new("k", 1);
    REQUIRE(d);
    const struct layer layer = {.kind = LAYER_CLASSIC,
                                .flags = LAYER_WIDE,
                                .layout = {2, 60, 9, 10},
                                .capacity = 100,
                                .nitems = 101,
                                .nstored = HEADER_BYTES + 60 * 64,
                                .nbits = 40000,
                                .nbytes = 5000};
    d->id = 0x0102030405060708;
    d->error = 0.001;
    d->shard_bytes = 4096;
    d->expansion = 2;
    REQUIRE(descriptor_begin_load(d, &(struct load){LOAD_REDISBLOOM, 0, 1001, 1000, 5000}));
    REQUIRE(descriptor_append(d, &layer));
    layer_mark_created(&d->layers[0], 0);
    uint8_t *bytes;
    const size_t nbytes = encode(d, &bytes);
    CHECK_MEM(bytes, nbytes, pinned_half, sizeof pinned_half);
    free(bytes);
    CHECK(check_corrupted(pinned_half, sizeof pinned_half));
    descriptor_free(d);
}

TEST(every_corruption_of_a_half_loaded_one_is_refused_or_valid) {
    for (size_t n = 0; n < sizeof pinned_half; n++) check_corrupted(pinned_half, n);
    for (size_t at = 0; at < sizeof pinned_half; at++) {
        for (unsigned value = 0; value < 256; value++) {
            uint8_t bytes[sizeof pinned_half];
            memcpy(bytes, pinned_half, sizeof bytes);
            bytes[at] = (uint8_t)value;
            check_corrupted(bytes, sizeof bytes);
        }
    }
    static const struct {
        size_t at;
        uint8_t value;
        const char *reason;
    } cases[] = {
        {43, 0, "bytes after the last layer"},
        {43, 4, "unknown flags"},
        {44, 0, "number of layers out of range"},
        {48, 2, "unknown flags of a layer"},
        {70, 1, "more items than possible"}, /* 2^40 and some */
        {72, 0x80, "more items than possible"},
        {84, 1, "more bits than bytes"},
        {92, 1, "more bits than bytes"},
        {98, 0, "unknown origin of a half-loaded filter"},
        {98, 3, "unknown origin of a half-loaded filter"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        uint8_t bytes[sizeof pinned_half];
        memcpy(bytes, pinned_half, sizeof bytes);
        bytes[cases[i].at] = cases[i].value;
        if (!check_refused(bytes, sizeof bytes, cases[i].reason)) CHECK_FAIL("case %zu", i);
    }
}

/* docs/format.md shows these, from the flags on: the example with a window. */
static const uint8_t pinned_window[] = {
    2,    2,                                                       /* flags, layers */
    0x10, 0x0e, 0,    0,                                           /* seconds */
    4,    1,    1,                                                 /* slices, sliding, over */
    7,    0,    0,    0,    0x2c, 1,    0,    0,    0,    0, 0, 0, /* first number, capacity */
    1,    9,    7,    0,    1,    0,    0,    0,    2,    0, 0, 0, /* layer 7 */
    100,  0,    0,    0,    0,    0,    0,    0,                   /* capacity */
    100,  0,    0,    0,    0,    0,    0,    0,                   /* items */
    183,  0,    0,    0,    0,    0,    0,    0,                   /* bytes */
    0x00, 0x80, 0x6e, 0x87, 0x74, 0x01, 0x00, 0x00, 1,             /* began, created */
    1,    11,   14,   0,    10,   0,    0,    0,    0x2c, 1, 0, 0, /* layer 8 */
    200,  0,    0,    0,    0,    0,    0,    0,    3,    0, 0, 0,
    0,    0,    0,    0,    0xce, 0x2c, 1,    0,    0,    0, 0, 0,
    0x80, 0x6e, 0xa5, 0x87, 0x74, 0x01, 0x00, 0x00, 2,    2,
};
enum { HEAD = 45, WINDOWED = HEAD + sizeof pinned_window };

static const struct window hour = {
    .seconds = 3600, .nslices = 4, .sliding = true, .first_number = 7, .nover = 1, .capacity = 300};

/* All of its bytes. */
static void windowed(uint8_t bytes[WINDOWED]) {
    memcpy(bytes, pinned, HEAD);
    memcpy(bytes + HEAD, pinned_window, sizeof pinned_window);
}

TEST(encoding_with_a_window_is_the_pinned_one) {
    struct descriptor *d = example();
    REQUIRE(d && descriptor_set_window(d, &hour));
    d->layers[0].began_ms = 1600000000000;
    d->layers[1].began_ms = 1600000000000 + 3600 * 1000;
    uint8_t *bytes, expected[WINDOWED];
    windowed(expected);
    const size_t nbytes = encode(d, &bytes);
    CHECK_MEM(bytes, nbytes, expected, sizeof expected);
    CHECK(check_corrupted(expected, sizeof expected));
    free(bytes);
    uint8_t header[HEADER_BYTES];
    header_write(d, 1, 9, FORM_DENSE, header);
    CHECK_UINT(header[33], 8);
    CHECK(header_fits(d, 1, 9, header));
    d->window->first_number++;
    CHECK(!header_fits(d, 1, 9, header));
    descriptor_free(d);
}

TEST(every_corruption_of_a_window_is_refused_or_valid) {
    uint8_t bytes[WINDOWED];
    windowed(bytes);
    for (size_t n = 0; n < sizeof bytes; n++) CHECK(!check_corrupted(bytes, n));
    for (size_t at = HEAD; at < sizeof bytes; at++) {
        const uint8_t good = bytes[at];
        for (unsigned value = 0; value < 256; value++) {
            bytes[at] = (uint8_t)value;
            check_corrupted(bytes, sizeof bytes);
        }
        bytes[at] = good;
    }
    srandom(2);
    for (int round = 0; round < 100000; round++) {
        windowed(bytes);
        for (int n = 0; n < 3; n++)
            bytes[HEAD + (size_t)random() % sizeof pinned_window] = (uint8_t)random();
        check_corrupted(bytes, sizeof bytes - (round % 3 ? 0 : (size_t)random() % 20));
    }
}

TEST(bad_windows_are_refused_with_the_reason) {
    enum { AT = HEAD + 2, BEGAN = AT + 19 + 36 };
    static const struct {
        size_t at;
        uint8_t bytes[9];
        size_t nbytes;
        const char *reason;
    } cases[] = {
        {HEAD, {4}, 1, "unknown flags"},
        {AT, {0}, 4, "window out of range"},
        {AT, {1, 0xca, 0x9a, 0x3b}, 4, "window out of range"},
        {AT + 4, {0}, 1, "number of slices out of range"},
        {AT + 4, {33}, 1, "number of slices out of range"},
        {AT, {1, 0, 0, 0, 11}, 5, "slices that are too short"},
        {AT + 5, {2}, 1, "unknown flags of a window"},
        {AT + 6, {2}, 1, "a slice that is over in part"}, /* all of them */
        {AT + 6, {3}, 1, "a slice that is over in part"},
        {AT + 7, {0xc0, 0xff, 0xff, 0xff}, 4, "number of a layer out of range"},
        {AT + 11, {0}, 8, "capacity of a window out of range"},
        {AT + 11, {1, 0, 0, 0, 0, 1, 0, 0}, 8, "capacity of a window out of range"},
        {BEGAN, {0}, 8, "a time out of range"},
        {BEGAN, {1, 0, 0, 0, 0, 0, 0x20, 0}, 8, "a time out of range"},
        {BEGAN, {0x81, 0x6e, 0xa5, 0x87, 0x74, 0x01, 0x00, 0x00}, 8, "slices out of order"},
        {BEGAN,
         {0x80, 0x6e, 0xa5, 0x87, 0x74, 0x01, 0x00, 0x00},
         8,
         "a slice that is over in part"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        uint8_t bytes[WINDOWED];
        windowed(bytes);
        memcpy(bytes + cases[i].at, cases[i].bytes, cases[i].nbytes);
        if (!check_refused(bytes, sizeof bytes, cases[i].reason)) CHECK_FAIL("case %zu", i);
    }
    /* One slice of two layers, and two slices of one, in a filter that does not grow. */
    uint8_t bytes[WINDOWED];
    windowed(bytes);
    memset(bytes + 36, 0, 4);
    CHECK(check_corrupted(bytes, sizeof bytes));
    bytes[AT + 6] = 0;
    memcpy(bytes + BEGAN, bytes + sizeof bytes - 10, 8);
    check_refused(bytes, sizeof bytes, "several layers, but no expansion");
    bytes[36] = 2;
    CHECK(check_corrupted(bytes, sizeof bytes));
}

/* Three layers in one string, of 2, 3 and 5 blocks of 64 bytes; the third was not created yet. */
static struct descriptor *joined(void) {
    struct descriptor *d = descriptor_new("tag", 3);
    d->error = 0.001;
    d->shard_bytes = 1 << 20;
    d->expansion = 2;
    for (uint32_t i = 0, nblocks[] = {2, 3, 5}; i < 3; i++) {
        const struct layout layout = {1, nblocks[i], 9, 7};
        CHECK(descriptor_add_layer_joined(d, &layout, 100));
    }
    layer_mark_created(&d->layers[0], 0);
    layer_mark_created(&d->layers[1], 0);
    d->layers[0].nitems = d->layers[1].nitems = 100;
    d->layers[0].nstored = HEADER_BYTES + 128;
    d->layers[1].nstored = 192;
    return d;
}

/* What the table above can't say: kinds and strings of layers. */
TEST(windows_that_can_not_be) {
    struct descriptor *d = joined();
    const struct window fresh = {.seconds = 3600, .nslices = 4, .capacity = 300};
    uint8_t *bytes;
    REQUIRE(descriptor_set_window(d, &fresh));
    for (uint32_t i = 0; i < 3; i++) d->layers[i].began_ms = 1600000000000;
    CHECK(descriptor_problem(d) == NULL);
    d->layers[2].began_ms++; /* a string may belong to two slices, */
    CHECK(descriptor_problem(d) == NULL);
    d->layers[0].began_ms--; /* but not to three */
    size_t nbytes = encode(d, &bytes);
    check_refused(bytes, nbytes, "a string that belongs to three slices");
    free(bytes);
    d->layers[0].began_ms++;
    d->layers[2].began_ms--;
    const struct layer classic = {.kind = LAYER_CLASSIC,
                                  .layout = {2, 60, 9, 10},
                                  .capacity = 100,
                                  .nbits = 40000,
                                  .nbytes = 5000,
                                  .began_ms = 1600000000000};
    CHECK(descriptor_append(d, &classic));
    nbytes = encode(d, &bytes);
    check_refused(bytes, nbytes, "a window over layers of another kind");
    free(bytes);
    descriptor_free(d);
    /* Half loaded, with a window: both blocks are there. */
    d = example();
    REQUIRE(d && descriptor_set_window(d, &fresh));
    d->layers[0].began_ms = d->layers[1].began_ms = 1;
    REQUIRE(descriptor_begin_load(d, &(struct load){LOAD_OURS, 5, 1001, 1000, 5000}));
    nbytes = encode(d, &bytes);
    CHECK(check_corrupted(bytes, nbytes));
    free(bytes);
    descriptor_free(d);
    d = example();
    d->layers[0].began_ms = 1;
    CHECK_STR(descriptor_problem(d), "a slice without a window");
    descriptor_free(d);
}

TEST(bad_values_are_refused_with_the_reason) {
    static const struct {
        size_t at;
        uint8_t bytes[9];
        size_t nbytes;
        const char *reason;
    } cases[] = {
        {0, "X", 1, "not a descriptor"},
        {3, {2}, 1, "written by a newer version of the module"},
        {3, {0xff}, 1, "written by a newer version of the module"},
        {3, {0}, 1, "unknown version"},
        {20, {0, 0, 0, 0, 0, 0, 0xf8, 0x7f}, 8, "error rate out of range"}, /* NaN */
        {20, {0, 0, 0, 0, 0, 0, 0xf0, 0x7f}, 8, "error rate out of range"}, /* infinite */
        {20, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}, 8, "error rate out of range"}, /* 1 */
        {20, {0}, 8, "error rate out of range"},
        {28, {0xff, 0x0f, 0, 0, 0, 0, 0, 0}, 8, "shard size out of range"},
        {28, {1, 0, 0, 0x20, 0, 0, 0, 0}, 8, "shard size out of range"},
        {36, {1, 0x80, 0, 0}, 4, "expansion out of range"},
        {36, {0}, 4, "several layers, but no expansion"},
        {40, {0, 4}, 2, "too short"},
        {40, {1, 4}, 2, "a name that is too long"},
        {40, {0xff, 0xff}, 2, "a name that is too long"},
        {45, {4}, 1, "unknown flags"},
        {46, {0}, 1, "number of layers out of range"},
        {46, {65}, 1, "number of layers out of range"},
        {47, {0}, 1, "unknown kind of layer"},
        {47, {0xff}, 1, "unknown kind of layer"},
        {50, {2}, 1, "unknown flags of a layer"},
        {50, {1}, 1, "a first layer that is joined"},
        {87, {1}, 1, "joined layers with several shards, or of different kinds"},
        {59, {0}, 8, "capacity out of range"},
        {59, {1, 0, 0, 0, 0, 1, 0, 0}, 8, "capacity out of range"},
        {67, {0, 0, 0, 0, 0, 2}, 6, "more items than possible"},
        {75, {0xff}, 1, "more bytes than its shards can have"},
        {75, {0, 0, 0, 0, 0, 0, 0, 0, 0}, 9, "items but no shards"},
        {83, {3}, 1, "marks for shards that do not exist"},
        {55, {0}, 4, "a shard without blocks"},
        {55, {0xff, 0xff, 0xff, 0xff}, 4, "shards larger than a string can be"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        uint8_t bytes[sizeof pinned];
        memcpy(bytes, pinned, sizeof pinned);
        memcpy(bytes + cases[i].at, cases[i].bytes, cases[i].nbytes);
        if (!check_refused(bytes, sizeof bytes, cases[i].reason)) CHECK_FAIL("case %zu", i);
    }
    static const struct {
        size_t at;
        uint8_t value;
    } layouts[] = {{48, 8}, {48, 16}, {49, 0}, {49, 65}, {51, 0}, {54, 1}};
    for (size_t i = 0; i < N(layouts); i++) {
        uint8_t bytes[sizeof pinned];
        memcpy(bytes, pinned, sizeof pinned);
        bytes[layouts[i].at] = layouts[i].value;
        CHECK(!check_corrupted(bytes, sizeof bytes));
    }
}

TEST(joined_layers_share_a_string) {
    struct descriptor *d = joined();
    uint8_t *bytes;
    const size_t nbytes = encode(d, &bytes);
    const char *problem;
    struct descriptor *back = decode(bytes, nbytes, &problem);
    REQUIRE(back);
    static const size_t offsets[] = {0, 128, 320};
    for (uint32_t i = 0; i < 3; i++) {
        const struct layer *layer = &back->layers[i];
        CHECK_UINT(layer->flags, i == 0 ? 0 : LAYER_JOINED);
        CHECK_UINT(layer->home, 0);
        CHECK_UINT(layer->offset, offsets[i]);
        CHECK_INT(layer_is_joined(layer), i > 0);
    }
    CHECK_UINT(descriptor_string_bytes(back, 0), 128 + 192);
    CHECK_UINT(descriptor_nshards(back), 1);
    CHECK_UINT(descriptor_nstored(back), HEADER_BYTES + 128 + 192);
    layer_mark_created(&back->layers[2], 0);
    CHECK_UINT(descriptor_string_bytes(back, 0), 128 + 192 + 320);
    /* The next string begins with a layer of its own. */
    const struct layout layout = {1, 7, 9, 7};
    CHECK(descriptor_add_layer(back, &layout, 100));
    CHECK(descriptor_add_layer_joined(back, &layout, 100));
    CHECK_UINT(back->layers[3].home, 3);
    CHECK_UINT(back->layers[4].home, 3);
    CHECK_UINT(back->layers[4].offset, 7 * 64);
    CHECK_UINT(descriptor_string_bytes(back, 0), 128 + 192 + 320);
    CHECK_UINT(descriptor_string_bytes(back, 3), 7 * 64);
    descriptor_free(back);
    descriptor_free(d);
    free(bytes);
}

/* As long as the string does not get longer than a shard may be, and whatever number of shards the
 * sizing cut it into. */
TEST(layers_join_while_there_is_room) {
    struct descriptor *d = joined();
    d->shard_bytes = SIZING_SHARD_OVERHEAD + (2 + 3 + 5 + 60) * 64;
    const struct layout cut = {3, 20, 9, 7}, one_more = {1, 1, 9, 7}, several = {2, 1 << 20, 9, 7};
    CHECK(descriptor_add_layer_joined(d, &cut, 100));
    CHECK_UINT(d->layers[3].layout.nshards, 1);
    CHECK_UINT(d->layers[3].layout.nblocks, 60);
    CHECK_UINT(d->layers[3].home, 0);
    CHECK(descriptor_add_layer_joined(d, &one_more, 100));
    CHECK_UINT(d->layers[4].flags, 0);
    CHECK_UINT(d->layers[4].home, 4);
    CHECK(descriptor_add_layer_joined(d, &several, 100));
    CHECK_UINT(d->layers[5].layout.nshards, 2);
    CHECK_UINT(d->layers[5].home, 5);
    CHECK(descriptor_add_layer_joined(d, &one_more, 100)); /* not behind one of two shards */
    CHECK_UINT(d->layers[6].home, 6);
    CHECK(descriptor_problem(d) == NULL);
    descriptor_free(d);
}

TEST(joined_layers_that_can_not_be) {
    struct descriptor *d = joined();
    uint8_t *bytes;
    d->layers[0].created[0] = 0;
    d->layers[0].nstored = d->layers[0].nitems = 0;
    size_t nbytes = encode(d, &bytes);
    check_refused(bytes, nbytes, "a joined layer behind one that does not exist");
    free(bytes);
    d->layers[0].created[0] = 1;
    /* Each a legal shard, together longer than a string. */
    d->layers[1].layout.nblocks = 5 << 20;
    d->layers[2].layout.nblocks = 5 << 20;
    nbytes = encode(d, &bytes);
    check_refused(bytes, nbytes, "joined layers that are too long");
    free(bytes);
    d->layers[1].layout.nblocks = 3;
    d->layers[2].kind = LAYER_CLASSIC;
    d->layers[2].nbits = d->layers[2].nbytes = 8;
    const struct layer behind = {
        .kind = LAYER_BLOCKED, .flags = LAYER_JOINED, .capacity = 1, .layout = {1, 1, 9, 1}};
    CHECK(descriptor_append(d, &behind));
    nbytes = encode(d, &bytes);
    check_refused(bytes, nbytes, "joined layers with several shards, or of different kinds");
    free(bytes);
    descriptor_free(d);
}

TEST(shard_header_is_the_pinned_one) {
    static const uint8_t expected[55] = {
        'B',  'F',  'S',  'H',  1,    11,   14,   0,    /* magic, version, width, probes, 0 */
        0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, /* id */
        9,    0,    0,    0,    10,   0,    0,    0,    0x2c,
        0x01, 0,    0,    0,    0,    0,    0,    0, /* shard, shards, blocks, form, items */
        1,    0,    0,    0,                         /* layer; the rest is 0 */
    };
    struct descriptor *d = example();
    uint8_t header[HEADER_BYTES];
    memset(header, 0xff, sizeof header);
    header_write(d, 1, 9, FORM_DENSE, header);
    CHECK_MEM(header, sizeof header, expected, sizeof expected);
    descriptor_free(d);
}

/* Every byte counts: whatever is changed in a header, the shard is not ours any more; nor is any
 * other shard. */
TEST(only_the_own_header_is_accepted) {
    struct descriptor *d = example();
    uint8_t header[HEADER_BYTES];
    header_write(d, 1, 9, FORM_DENSE, header);
    CHECK(header_fits(d, 1, 9, header));
    CHECK(!header_fits(d, 1, 8, header));
    CHECK(!header_fits(d, 0, 0, header));
    for (size_t at = 0; at < sizeof header; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            header[at] ^= (uint8_t)(1u << bit);
            /* The other form of the same shard: then its length decides. */
            const bool young = at == 28 && bit == 0;
            CHECK_INT(header_fits(d, 1, 9, header), young);
            CHECK(!young || header_form(header) == FORM_YOUNG);
            header[at] ^= (uint8_t)(1u << bit);
        }
    }
    d->id ^= 1;
    CHECK(!header_fits(d, 1, 9, header));
    descriptor_free(d);
}

/* ---- lack of memory: the n-th allocation fails, for every n ---- */

TEST(lack_of_memory_leaves_no_trace) {
    int nfailed = 0;
    for (int n = 0; n < 100; n++) {
        scarce_begin(n);
        struct descriptor *built = example();
        CHECK_INT(built ? scarce_nalive > 0 : scarce_nalive, built ? 1 : 0);
        descriptor_free(built);
        CHECK_INT(scarce_nalive, 0);
        scarce_end();

        scarce_begin(n);
        const char *problem = NULL;
        struct descriptor *read = descriptor_decode(pinned, sizeof pinned, &problem);
        if (!read) CHECK_STR(problem, "out of memory");
        nfailed += (read == NULL);
        descriptor_free(read);
        CHECK_INT(scarce_nalive, 0);
        scarce_end();
        CHECK((built == NULL) == (read == NULL));
    }
    CHECK_INT(nfailed, 6); /* descriptor, tag, and for each layer a bitmap and the array */
}

/* A layer that could not be added leaves the descriptor as it was. */
TEST(a_layer_that_cannot_be_added_changes_nothing) {
    for (int n = 0; n < 2; n++) {
        struct descriptor *d = example();
        scarce_begin(n);
        const struct layout layout = {100, 1, 9, 1};
        CHECK(!descriptor_add_layer(d, &layout, 1));
        scarce_end();
        uint8_t *bytes;
        const size_t nbytes = encode(d, &bytes);
        CHECK_MEM(bytes, nbytes, pinned, sizeof pinned);
        free(bytes);
        descriptor_free(d);
    }
    descriptor_free(NULL);
}

/* ---- going over strings ---- */

TEST(strings_one_after_the_other) {
    struct descriptor *d = example();
    REQUIRE(d);
    const struct layout joined = {1, 5, 9, 7};
    REQUIRE(descriptor_add_layer(d, &joined, 300) && descriptor_add_layer_joined(d, &joined, 300) &&
            d->layers[3].home == 2);
    layer_mark_created(&d->layers[2], 0);
    layer_mark_created(&d->layers[3], 0);
    const uint32_t expected[][2] = {{0, 0}, {1, 1}, {1, 9}, {2, 0}};
    struct string_cursor at = {0}, second = {0};
    for (size_t i = 0; i < N(expected); i++) {
        CHECK(descriptor_next_string(d, &at));
        CHECK_UINT(at.layer, expected[i][0]);
        CHECK_UINT(at.shard, expected[i][1]);
        if (i == 1) second = at;
    }
    CHECK(!descriptor_next_string(d, &at));
    CHECK(!descriptor_next_string(d, &at));

    /* One is forgotten without the others, and with the layers that share it. */
    descriptor_forget_string(d, &second);
    CHECK_UINT(descriptor_nshards(d), 3);
    CHECK(!layer_shard_created(&d->layers[1], 1) && layer_shard_created(&d->layers[1], 9));
    for (at = (struct string_cursor){0}; descriptor_next_string(d, &at);)
        descriptor_forget_string(d, &at);
    CHECK_UINT(descriptor_nshards(d), 0);
    CHECK(!layer_shard_created(&d->layers[3], 0));
    descriptor_free(d);
}

/* Strings at the edges of the bytes of marks, and a filter that has none. */
TEST(strings_among_many_that_were_never_created) {
    struct descriptor *d = descriptor_new("t", 1);
    const struct layout wide = {1001, 1, 9, 7};
    REQUIRE(d && descriptor_add_layer(d, &wide, 100));
    struct string_cursor at = {0};
    CHECK(!descriptor_next_string(d, &at));
    const uint32_t shards[] = {0, 7, 8, 15, 500, 999, 1000};
    for (size_t i = 0; i < N(shards); i++) layer_mark_created(&d->layers[0], shards[i]);
    at = (struct string_cursor){0};
    for (size_t i = 0; i < N(shards); i++) {
        CHECK(descriptor_next_string(d, &at));
        CHECK_UINT(at.shard, shards[i]);
    }
    CHECK(!descriptor_next_string(d, &at));
    descriptor_free(d);
}

/* Counting and finding created shards, in bitmaps of all lengths. */
TEST(created_shards_are_counted_and_found) {
    for (uint32_t nshards = 1; nshards < 200; nshards++) {
        struct descriptor *d = descriptor_new("t", 1);
        REQUIRE(descriptor_add_layer(d, &(struct layout){nshards, 2, 9, 7}, 30));
        struct layer *layer = &d->layers[0];
        uint32_t count = 0;
        for (uint32_t j = nshards % 7; j < nshards; j += 1 + j % 29, count++)
            layer_mark_created(layer, j);
        CHECK_UINT(layer_count_created(layer), count);
        for (uint32_t j = 0; j <= nshards; j++) {
            uint32_t next = j;
            while (next < nshards && !layer_shard_created(layer, next)) next++;
            CHECK_UINT(layer_next_created(layer, j), next);
        }
        descriptor_free(d);
    }
}
