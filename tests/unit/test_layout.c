/* The mapping from items to bits. It is a stored format: the vectors below were computed by another
 * implementation of XXH3 and of the arithmetic in docs/format.md, and must never change. */
#include "check.h"
#include "core/layout.h"

#include <stdlib.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t random_state = 1;

/* xorshift64*: the tests are the same in every run. */
static uint64_t random_u64(void) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1du;
}

static struct layout with_block(unsigned block_log2, unsigned nprobes) {
    return (struct layout){.nshards = 7,
                           .nblocks = 1000,
                           .block_log2 = (uint8_t)block_log2,
                           .nprobes = (uint8_t)nprobes};
}

struct vector {
    const char *item;
    size_t nbytes;
    uint64_t seed;
    struct item_hash hash;
    struct item_place place; /* among 7 shards of 1000 blocks */
    uint32_t in512[8], in2048[8], in32768[8];
};

static char all_bytes[256], thousand[1000];

static const struct vector vectors[] = {
    {"",
     0,
     0,
     {0x99aa06d3014798d8, 0x6001c324468d497f},
     {4, 201},
     {192, 440, 79, 86, 173, 196, 353, 504},
     {768, 1761, 319, 344, 692, 786, 1412, 2019},
     {12288, 28186, 5104, 5515, 11084, 12588, 22604, 32316}},
    {"a",
     1,
     0,
     {0xa96faf705af16834, 0xe6c632b61e964e1f},
     {4, 633},
     {461, 262, 193, 274, 456, 218, 325, 401},
     {1846, 1049, 775, 1099, 1827, 874, 1301, 1606},
     {29539, 16799, 12415, 17591, 29241, 13989, 20819, 25696}},
    {"https://example.com/",
     20,
     0,
     {0x503c1beec51db020, 0x9ff1930daa8e5b98},
     {2, 193},
     {319, 54, 340, 486, 483, 361, 296, 381},
     {1279, 216, 1363, 1945, 1934, 1444, 1187, 1526},
     {20472, 3468, 21809, 31130, 30946, 23112, 19005, 24428}},
    {"https://example.com/",
     20,
     42,
     {0x2351f098e382c8de, 0x97ae27a585677c87},
     {0, 965},
     {303, 378, 229, 381, 482, 217, 129, 189},
     {1213, 1515, 918, 1526, 1930, 870, 518, 757},
     {19415, 24244, 14690, 24419, 30892, 13928, 8303, 12127}},
    {all_bytes,
     256,
     UINT64_MAX,
     {0x9649787b3b15f2b7, 0xb572a71ca2bae1e8},
     {4, 109},
     {362, 214, 33, 25, 93, 273, 244, 392},
     {1451, 858, 135, 100, 372, 1092, 979, 1569},
     {23225, 13729, 2173, 1608, 5966, 17487, 15679, 25118}},
    {"\0",
     1,
     7,
     {0x5f2ab574a2753d0c, 0x2c45aa60ff5dc0e5},
     {2, 602},
     {88, 168, 510, 108, 190, 296, 176, 169},
     {354, 673, 2042, 435, 762, 1187, 705, 678},
     {5666, 10769, 32685, 6965, 12203, 19006, 11282, 10856}},
    {thousand,
     1000,
     0x0123456789abcdef,
     {0x851b8e5e14ef4789, 0xc2dfe0af46b8435b},
     {3, 639},
     {389, 169, 241, 303, 100, 26, 371, 259},
     {1558, 678, 965, 1214, 400, 107, 1487, 1037},
     {24943, 10851, 15448, 19435, 6404, 1716, 23795, 16597}},
};

static void fill_items(void) {
    for (unsigned i = 0; i < sizeof all_bytes; i++) all_bytes[i] = (char)i;
    memset(thousand, 'x', sizeof thousand);
}

TEST(hash_is_the_pinned_one) {
    fill_items();
    for (size_t i = 0; i < N(vectors); i++) {
        const struct vector *v = &vectors[i];
        const struct item_hash hash = layout_hash(v->item, v->nbytes, v->seed);
        CHECK_UINT(hash.place, v->hash.place);
        CHECK_UINT(hash.bits, v->hash.bits);
    }
}

TEST(place_is_the_pinned_one) {
    const struct layout layout = with_block(9, 8);
    for (size_t i = 0; i < N(vectors); i++) {
        const struct item_place place = layout_place(&layout, vectors[i].hash.place);
        CHECK_UINT(place.shard, vectors[i].place.shard);
        CHECK_UINT(place.block, vectors[i].place.block);
    }
}

TEST(positions_are_the_pinned_ones) {
    const struct layout narrow = with_block(9, 8), wide = with_block(11, 8),
                        page = with_block(15, 8);
    for (size_t i = 0; i < N(vectors); i++) {
        for (unsigned probe = 0; probe < 8; probe++) {
            const struct vector *v = &vectors[i];
            CHECK_UINT(layout_position(&narrow, v->hash.bits, probe), v->in512[probe]);
            CHECK_UINT(layout_position(&wide, v->hash.bits, probe), v->in2048[probe]);
            CHECK_UINT(layout_position(&page, v->hash.bits, probe), v->in32768[probe]);
        }
    }
}

/* Bit 0 is the most significant one of byte 0, as for GETBIT. */
TEST(bits_are_in_the_order_of_getbit) {
    const struct layout one = with_block(9, 1);
    for (uint64_t position = 0; position < 512; position++) {
        uint8_t block[64] = {0}, expected[64] = {0};
        expected[position / 8] = (uint8_t)(128 >> position % 8);
        CHECK(!layout_test(&one, block, position << 55));
        CHECK(layout_set(&one, block, position << 55));
        CHECK(!layout_set(&one, block, position << 55));
        CHECK(layout_test(&one, block, position << 55));
        CHECK_MEM(block, sizeof block, expected, sizeof expected);
    }
}

/* For every width and number of probes: set sets exactly the bits that layout_position names, and
 * test needs them all. */
TEST(set_and_test_use_the_named_positions) {
    static uint8_t block[4096], expected[4096];
    for (unsigned log2 = LAYOUT_MIN_BLOCK_LOG2; log2 <= LAYOUT_MAX_BLOCK_LOG2; log2++) {
        for (unsigned nprobes = 1; nprobes <= LAYOUT_MAX_PROBES; nprobes++) {
            const struct layout layout = with_block(log2, nprobes);
            const size_t nbytes = layout_block_bytes(&layout);
            const uint64_t bits = random_u64();
            memset(block, 0, nbytes);
            memset(expected, 0, nbytes);
            for (unsigned i = 0; i < nprobes; i++) {
                const uint32_t position = layout_position(&layout, bits, i);
                expected[position / 8] |= (uint8_t)(128 >> position % 8);
            }
            CHECK(layout_set(&layout, block, bits));
            CHECK_MEM(block, nbytes, expected, nbytes);
            for (unsigned i = 0; i < nprobes; i++) {
                const uint32_t position = layout_position(&layout, bits, i);
                block[position / 8] ^= (uint8_t)(128 >> position % 8);
                CHECK(!layout_test(&layout, block, bits));
                block[position / 8] ^= (uint8_t)(128 >> position % 8);
            }
            CHECK(layout_test(&layout, block, bits));
            layout_prefetch(&layout, block,
                            bits); /* must not leave the block: the sanitizer watches */
        }
    }
}

TEST(places_are_in_range_and_even) {
    static const struct layout layouts[] = {{1, 1, 9, 1},
                                            {1, 64, 9, 1},
                                            {3, 21, 9, 1},
                                            {64, 1, 9, 1},
                                            {LAYOUT_MAX_SHARDS, UINT32_MAX, 9, 1}};
    for (size_t i = 0; i < N(layouts); i++) {
        const struct layout *layout = &layouts[i];
        static uint32_t counts[64];
        const uint32_t ncells = layout->nshards * layout->nblocks, per_cell = 2000;
        const bool small = i + 1 < N(layouts);
        memset(counts, 0, sizeof counts);
        for (uint32_t n = 0; n < (small ? ncells * per_cell : 100000); n++) {
            const struct item_place place = layout_place(layout, random_u64());
            CHECK(place.shard < layout->nshards && place.block < layout->nblocks);
            if (small) counts[place.shard * layout->nblocks + place.block]++;
        }
        for (uint32_t cell = 0; small && cell < ncells; cell++)
            CHECK_RANGE(counts[cell], per_cell - 270, per_cell + 270); /* 6 sigma */
    }
    /* The extremes of the hash reach the first and the last block, not beyond. */
    const struct layout layout = {262144, 1000, 9, 1};
    CHECK_UINT(layout_place(&layout, 0).shard, 0);
    CHECK_UINT(layout_place(&layout, 0).block, 0);
    CHECK_UINT(layout_place(&layout, UINT64_MAX).shard, 262143);
    CHECK_UINT(layout_place(&layout, UINT64_MAX).block, 999);
}

/* ---- a layer in memory against an exact set ---- */

struct memory_layer {
    struct layout layout;
    uint8_t *bytes;
};

static uint8_t *block_of(const struct memory_layer *layer, struct item_hash hash) {
    const struct item_place place = layout_place(&layer->layout, hash.place);
    return layer->bytes + place.shard * layout_shard_bytes(&layer->layout) +
           place.block * layout_block_bytes(&layer->layout);
}

static bool contains(const struct memory_layer *layer, uint32_t item, uint64_t seed) {
    const struct item_hash hash = layout_hash(&item, sizeof item, seed);
    return layout_test(&layer->layout, block_of(layer, hash), hash.bits);
}

/* Naive model: a set of (block, position) pairs as one flag each. */
static bool naive(const struct memory_layer *layer, const uint8_t *flags, struct item_hash hash,
                  uint8_t *set) {
    const struct layout *layout = &layer->layout;
    const struct item_place place = layout_place(layout, hash.place);
    const size_t first = ((size_t)place.shard * layout->nblocks + place.block)
                         << layout->block_log2;
    bool all = true;
    for (unsigned i = 0; i < layout->nprobes; i++) {
        const size_t at = first + layout_position(layout, hash.bits, i);
        all = all && flags[at];
        if (set) set[at] = 1;
    }
    return all;
}

TEST(random_layouts_agree_with_a_naive_set) {
    enum { NITEMS = 1000 };
    for (int round = 0; round < 150; round++) {
        struct memory_layer layer = {{.nshards = 1 + (uint32_t)(random_u64() % 5),
                                      .nblocks = 1 + (uint32_t)(random_u64() % 9),
                                      .block_log2 = (uint8_t)(9 + random_u64() % 7),
                                      .nprobes = (uint8_t)(1 + random_u64() % 64)},
                                     NULL};
        const size_t nbytes = layer.layout.nshards * layout_shard_bytes(&layer.layout);
        const uint64_t seed = random_u64();
        layer.bytes = calloc(nbytes, 1);
        uint8_t *flags = calloc(nbytes, 8);
        static bool added[2 * NITEMS];
        memset(added, 0, sizeof added);
        for (int n = 0; n < NITEMS; n++) {
            const uint32_t item = (uint32_t)(random_u64() % (2 * NITEMS));
            const struct item_hash hash = layout_hash(&item, sizeof item, seed);
            const bool known = naive(&layer, flags, hash, flags);
            if (added[item]) CHECK(known);
            CHECK(layout_set(&layer.layout, block_of(&layer, hash), hash.bits) == !known);
            added[item] = true;
        }
        for (uint32_t item = 0; item < 2 * NITEMS; item++) {
            const struct item_hash hash = layout_hash(&item, sizeof item, seed);
            const bool found = contains(&layer, item, seed);
            if (added[item]) CHECK(found); /* no false negative, ever */
            CHECK(found == naive(&layer, flags, hash, NULL));
        }
        free(flags);
        free(layer.bytes);
    }
}
