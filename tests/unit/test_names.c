/* What strings are called, and in which cluster slot they lie. */
#include "check.h"
#include "core/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct descriptor *example(const char *tag, uint64_t id, uint32_t nlayers) {
    struct descriptor *d = descriptor_new(tag, strlen(tag));
    const struct layout layout = {.nshards = 1u << 18, .nblocks = 1, .block_log2 = 9, .nprobes = 1};
    d->id = id;
    for (uint32_t i = 0; i < nlayers; i++) CHECK(descriptor_add_layer(d, &layout, 1));
    return d;
}

TEST(names_are_written_and_taken_apart) {
    static const uint64_t ids[] = {0, 1, 0x0496a0144c3fb32d, UINT64_MAX};
    static const uint32_t shards[] = {0, 9, 10, 99, 100, 262143};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct descriptor *d = example("se}en", ids[i], 12);
        for (size_t j = 0; j < sizeof shards / sizeof *shards; j++) {
            char expected[128], text[128];
            const uint32_t layer = (uint32_t)(2 * j + 1);
            snprintf(expected, sizeof expected, "bf:{se}en}:%016" PRIx64 ":%u:%u", ids[i], layer,
                     shards[j]);
            const size_t length = names_string(d, layer, shards[j], text);
            CHECK(length <= names_room(d));
            CHECK_MEM(text, length, expected, strlen(expected));
            uint64_t id;
            uint32_t parsed_layer, parsed_shard;
            CHECK(names_parse(text, length, &id, &parsed_layer, &parsed_shard));
            CHECK_UINT(id, ids[i]);
            CHECK_UINT(parsed_layer, layer);
            CHECK_UINT(parsed_shard, shards[j]);
        }
        descriptor_free(d);
    }
}

TEST(what_is_no_name_of_a_shard) {
    static const char *const names[] = {
        "",
        "bf:{a}",
        "bf:{a}:0123456789abcdef:0",
        "bf:{a}:0123456789abcdef:0:",
        "bf:{a}:0123456789abcdef:00:0",
        "bf:{a}:0123456789abcdef:0:+1",
        "bf:{a}:0123456789abcdeF:0:1",
        "bf:{a}:123456789abcdef:0:1",
        "bf:{a}:0123456789abcdef:0:1 ",
        "xf:{a}:0123456789abcdef:0:1",
        "bf:{a}:0123456789abcdef:4294967296:1",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t id;
        uint32_t layer, shard;
        if (!CHECK(!names_parse(names[i], strlen(names[i]), &id, &layer, &shard)))
            CHECK_FAIL("%s", names[i]);
    }
}

/* The server's own examples: CLUSTER KEYSLOT. */
TEST(slots_are_the_clusters) {
    CHECK_UINT(names_slot("123456789", 9), 12739);
    CHECK_UINT(names_slot("foo", 3), 12182);
    CHECK_UINT(names_slot("{foo}bar", 8), 12182);
    CHECK_UINT(names_slot("a{foo}{bar}", 11), 12182);
    struct descriptor *d = example("foo", 1, 1);
    CHECK_UINT(names_filter_slot(d), 12182);
    CHECK(names_share_slot(d, "x{foo}", 6));
    CHECK(!names_share_slot(d, "fop", 3));
    descriptor_free(d);
    d = example("fo}o", 1, 1);
    CHECK_UINT(names_filter_slot(d), NAMES_NSLOTS);
    descriptor_free(d);
}
