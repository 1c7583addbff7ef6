/* No name, id, tag or prefix that a client chose reaches a key that the client has no right to.
 * SECURITY.md has the table of all ways in; each names its test here. */
#include "check.h"
#include "client.h"
#include "cluster_fixture.h"
#include "corrupt.h"
#include "primary.h"

#include "core/chunk.h"
#include "core/encoding.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A connection of a user with these rules. */
static Client *user(Server *s, const char *name, const char *rules) {
    char line[512];
    snprintf(line, sizeof(line), "ACL SETUSER %s on nopass %s", name, rules);
    EXPECT(s->client, "+OK", line);
    Client *c = client_new(s);
    EXPECT(c, "+OK", "AUTH %s x", name);
    return c;
}

/* All that a careful administrator takes away from a user of filters, besides the keys. */
static Client *limited_user(Server *s) {
    return user(s, "limited", "~seen* +@all -@admin -@dangerous");
}

/* The same, who may RESTORE nevertheless. */
static Client *restoring_user(Server *s) {
    return user(s, "restoring", "~seen* +@all -@admin -@dangerous +restore");
}

static const char *config_with_caller(const char *config) {
    static char text[PATH_MAX + 256];
    char path[PATH_MAX];
    if (!CHECK(realpath("build/caller.so", path) != NULL)) return config;
    snprintf(text, sizeof(text), "loadmodule %s\n%s", path, config);
    return text;
}

/* ---- forged descriptors ---- */

/* A filter of one bit per item, in a string called `secret`: whoever has it can ask for every bit,
 * and set it. */
static struct descriptor *forged_adoption(const char *tag, const char *prefix, bool owned) {
    struct descriptor *descriptor = descriptor_new(tag, strlen(tag));
    struct adoption adoption = {
        .recipe = {.digest = RECIPE_NONE, .nstrings = 1, .log2_bits = 9, .nseeds = 1, .seeds = {0}},
        .owned = owned,
        .prefix = (char *)prefix,
        .prefix_length = owned ? 0 : (uint32_t)strlen(prefix)};
    descriptor->id = 0x0123456789abcdef;
    descriptor->error = 0.01;
    descriptor->shard_bytes = 4096;
    CHECK(descriptor_add_adopted(descriptor, &adoption));
    CHECK_STR(descriptor_problem(descriptor) ? descriptor_problem(descriptor) : "", "");
    return descriptor;
}

static Bytes encode(const struct descriptor *descriptor) {
    Bytes bytes = {malloc(descriptor_encoded_size(descriptor)),
                   descriptor_encoded_size(descriptor)};
    descriptor_encode(descriptor, bytes.data);
    return bytes;
}

static void append(Bytes *bytes, const void *data, size_t nbytes) {
    bytes->data = realloc(bytes->data, bytes->nbytes + nbytes);
    memcpy(bytes->data + bytes->nbytes, data, nbytes);
    bytes->nbytes += nbytes;
}

/* As the server writes it: a length of 32 bits. */
static void append_string(Bytes *bytes, const void *data, size_t nbytes) {
    const uint8_t head[6] = {5,
                             0x80,
                             (uint8_t)(nbytes >> 24),
                             (uint8_t)(nbytes >> 16),
                             (uint8_t)(nbytes >> 8),
                             (uint8_t)nbytes};
    append(bytes, head, sizeof(head));
    append(bytes, data, nbytes);
}

/* A payload for RESTORE: form 0 is the descriptor alone, form 1 goes on with the bits of one
 * string. What the server writes around it is taken from a dump of its own. */
static Bytes payload(Client *c, uint8_t form, const Bytes *descriptor, const char *bits) {
    EXPECT(c, ":1", "BF.ADD pattern x");
    const redisReply *dump = command(c, "DUMP pattern");
    EXPECT(c, ":1", "DEL pattern");
    Bytes bytes = bytes_copy(dump->str, 10); /* type and its number */
    const uint8_t number[2] = {2, form}, dense[2] = {2, 1}, end = 0, checksum[8] = {0};
    append(&bytes, number, sizeof(number));
    append_string(&bytes, descriptor->data, descriptor->nbytes);
    if (bits) {
        append(&bytes, dense, sizeof(dense));
        append_string(&bytes, bits, strlen(bits));
    }
    append(&bytes, &end, 1);
    append(&bytes, dump->str + dump->len - 10, 2); /* version of the format */
    append(&bytes, checksum, sizeof(checksum));
    crc64_seal(&bytes);
    return bytes;
}

/* Waits until the sweeper has dealt with all that died so far. */
static void wait_for_sweeper(Server *s) {
    EXPECT(s->client, ":1", "BF.ADD swept x");
    EXPECT(s->client, ":1", "DEL swept");
    server_wait_info(s, "bf_sweeps_pending", "0");
}

/* ---- BF.DESCRIPTOR ---- */

/* It used to be accepted from anybody who may use filters, which was a way to read and write every
 * string of the server. */
TEST(no_client_can_set_a_descriptor) {
    Server *s = server_start(config_with_caller(""));
    struct descriptor *descriptor = forged_adoption("seen1", "secret", false);
    Bytes bytes = encode(descriptor);
    EXPECT(s->client, "+OK", "SET secret xyz");
    Client *clients[] = {s->client, limited_user(s),
                         strstr(command_text(s->client, "ACL CAT"), "\"bloom\"")
                             ? user(s, "bloomer", "-@all +@bloom ~seen*")
                             : s->client};
    for (size_t i = 0; i < 3; i++) {
        Client *c = clients[i];
        EXPECT(c, "-...", "BF.DESCRIPTOR seen1 %b", bytes.data, bytes.nbytes);
        EXPECT(c, "-...", "BF.DESCRIPTOR seen1 %b 7", bytes.data, bytes.nbytes);
        EXPECT(c, "-...", "BF.SETDESCRIPTOR seen1 %b", bytes.data, bytes.nbytes);
        EXPECT(c, "-...", "BF.NEXTID seen1 0123456789abcdef");
        EXPECT(c, "-...", "BF.HEALED seen1 0 0");
        EXPECT(c, "-...", "BF.MERGED seen1 seen1 0 0 0 1 0 1 1");
        EXPECT(c, "-...", "BF.LEAVES seen1");
        EXPECT(c, ":0", "BF.EXISTS seen1 a");
    }
    EXPECT(s->client, ":0", "EXISTS seen1");
    EXPECT(s->client, "\"xyz\"", "GET secret");
    bytes_free(&bytes);
    descriptor_free(descriptor);
}

/* Even users with all rights are refused, by the command itself: in a transaction, by a script, by
 * another module. */
TEST(internal_commands_are_refused_by_themselves) {
    Server *s = server_start(config_with_caller(""));
    Client *c = s->client;
    EXPECT(c, ":1", "BF.ADD seen a");
    const redisReply *bytes = command(c, "BF.DESCRIPTOR seen");
    static const char *const lines[][2] = {
        {"BF.SETDESCRIPTOR", NULL}, {"BF.NEXTID", "0123456789abcdef"}, {"BF.LEAVES", ""}};
    for (size_t i = 0; i < 3; i++) {
        const char *name = lines[i][0], *rest = lines[i][1] ? lines[i][1] : bytes->str;
        const size_t nrest = lines[i][1] ? strlen(rest) : bytes->len;
        const char *argv[6] = {"EVAL", "return redis.call(unpack(ARGV))", "0", name, "seen", rest};
        size_t lens[6] = {4, 31, 1, strlen(name), 4, nrest};
        const int argc = *rest ? 6 : 5;
        const char *refused = "-ERR only replication, the append-only file and slot migration...";
        char *text = keep(reply_text(command_argv(c, argc, argv, lens)));
        if (!text_matches(text, refused)) CHECK_FAIL("%s in a script answers %s", name, text);
        argv[2] = "CALLER.CALL";
        lens[2] = strlen(argv[2]);
        text = keep(reply_text(command_argv(c, argc - 2, argv + 2, lens + 2)));
        if (!text_matches(text, refused)) CHECK_FAIL("%s by a module answers %s", name, text);
        EXPECT(c, "+OK", "MULTI");
        command_argv(c, argc - 3, argv + 3, lens + 3);
        EXPECT(c, "*1 -ERR only replication, the append-only file and slot migration...", "EXEC");
    }
    static const char refused[] = "only replication, the append-only file and slot migration";
    EXPECT_ERROR(c, "ERR", refused, "EVAL %s 0", "return redis.call('BF.HEALED','seen','0','0')");
    EXPECT_ERROR(c, "ERR", refused, "CALLER.CALL BF.HEALED seen 0 0");
    EXPECT_ERROR(c, "ERR", refused, "CALLER.CALL BF.MERGED seen seen 0 0 0 1 0 1 1");
    EXPECT_ERROR(c, "ERR", refused, "EVAL %s 0",
                 "return redis.call('BF.MERGED','seen','seen','0','0','0','1','0','1','1')");
    /* Another module that calls in its own right could not be answered later. */
    EXPECT_ERROR(c, "ERR", "works in steps", "CALLER.CALL BF.MERGE seen seen");
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "BF.HEALED seen 0 0");
    EXPECT(c, "*1 -ERR only replication, the append-only file and slot migration...", "EXEC");
    EXPECT(c, ":1", "BF.EXISTS seen a"); /* the shard was not emptied */
    /* It stayed: a filter that is leaving would leave its shard behind. */
    EXPECT(c, ":1", "DEL seen");
    wait_for_sweeper(s);
    EXPECT(c, ":0", "DBSIZE");
}

/* What tools need works wherever reading works. */
TEST(descriptors_can_be_read_everywhere) {
    Server *s = server_start(NULL), *replica = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, ":1", "BF.ADD seen a");
    server_follow(replica, s);
    const char *bytes = command_text(c, "BF.DESCRIPTOR seen");
    CHECK(strncmp(bytes, "\"BFD", 4) == 0);
    EXPECT(replica->client, bytes, "BF.DESCRIPTOR seen");
    static const char script[] = "return redis.call('BF.DESCRIPTOR', KEYS[1])";
    EXPECT(c, bytes, "EVAL_RO %s 1 seen", script);
    EXPECT(replica->client, bytes, "EVAL_RO %s 1 seen", script);
    Client *reader = user(s, "reader", "-@all %%R~seen +bf.descriptor");
    EXPECT(reader, bytes, "BF.DESCRIPTOR seen");
    EXPECT(reader, "-NOPERM...", "BF.DESCRIPTOR other");
    EXPECT(user(s, "writer", "-@all %%W~seen +bf.descriptor"), "-NOPERM...", "BF.DESCRIPTOR seen");
    EXPECT(c, "+OK", "CONFIG SET maxmemory 1");
    EXPECT(c, bytes, "BF.DESCRIPTOR seen");
    EXPECT(c, "-OOM...", "BF.ADD seen b");
}

/* From the primary they are taken. */
TEST(descriptors_come_from_the_primary) {
    Server *s = server_start(NULL);
    EXPECT(s->client, "+OK", "BF.RESERVE seen 0.01 1000 SEED 5");
    const redisReply *bytes = command(s->client, "BF.DESCRIPTOR seen");
    Primary primary = primary_start(s);
    EXPECT(s->client, ":0", "EXISTS seen");
    primary_send(&primary, "BF.SETDESCRIPTOR seen %b", bytes->str, (size_t)bytes->len);
    primary_send(&primary, "BF.MADD seen a b c");
    EXPECT(s->client, ":3", "BF.CARD seen");
    primary_stop(&primary);
    EXPECT(s->client, ":1", "BF.EXISTS seen a");
    EXPECT(s->client, "-ERR only...", "BF.SETDESCRIPTOR seen %b", bytes->str, (size_t)bytes->len);
}

/* ---- RESTORE ---- */

/* A descriptor alone names keys that it did not bring. Outside a cluster no DUMP is like that. */
TEST(restore_takes_no_descriptor_without_its_shards) {
    Server *s = server_start(NULL);
    Client *c = restoring_user(s), *admin = s->client;
    EXPECT(admin, "+OK", "SET secret xyz");
    EXPECT(admin, ":1", "BF.ADD victim a");
    const redisReply *theirs = command(admin, "BF.DESCRIPTOR victim");
    const Bytes victim = {(uint8_t *)theirs->str, theirs->len};
    struct descriptor *descriptor = forged_adoption("seen1", "secret", false);
    Bytes adopting = encode(descriptor), stolen = payload(admin, 0, &victim, NULL),
          spying = payload(admin, 0, &adopting, NULL);
    EXPECT(c, "-ERR Bad data format", "RESTORE seen1 0 %b", spying.data, spying.nbytes);
    EXPECT(c, "-ERR Bad data format", "RESTORE seen2 0 %b", stolen.data, stolen.nbytes);
    EXPECT(c, "-ERR Bad data format", "RESTORE seen{victim} 0 %b", stolen.data, stolen.nbytes);
    CHECK_LOGGED(s, "it comes without its shards");
    EXPECT(admin, ":0", "EXISTS seen1 seen2 seen{victim}");
    wait_for_sweeper(s);
    EXPECT(admin, ":1", "BF.EXISTS victim a");
    EXPECT(admin, "\"xyz\"", "GET secret");
    /* Nor is anything swept that a refused descriptor names: here, shards whose filter is on its
     * way. */
    const char *shard = command(admin, "BF.SHARDS victim")->element[0]->element[1]->str;
    const redisReply *bits = command(admin, "GET %s", shard);
    EXPECT(admin, ":1", "DEL victim");
    wait_for_sweeper(s);
    EXPECT(admin, "+OK", "SET %s %b", shard, bits->str, (size_t)bits->len);
    EXPECT(c, "-ERR Bad data format", "RESTORE seen2 0 %b", stolen.data, stolen.nbytes);
    wait_for_sweeper(s);
    EXPECT(admin, ":1", "EXISTS %s", shard);
    bytes_free(&adopting);
    bytes_free(&stolen);
    bytes_free(&spying);
    descriptor_free(descriptor);
}

/* A whole filter brings all that it names, under names that the server chooses. */
TEST(restored_bits_get_names_of_their_own) {
    Server *s = server_start(NULL);
    Client *c = restoring_user(s), *admin = s->client;
    EXPECT(admin, "+OK", "SET secret xyz");
    struct descriptor *descriptor = forged_adoption("victim", "secret", false);
    Bytes bytes = encode(descriptor), whole = payload(admin, 1, &bytes, "abc");
    EXPECT(c, "+OK", "RESTORE seen1 0 %b", whole.data, whole.nbytes);
    EXPECT(c, "+OK", "RESTORE seen2 0 %b", whole.data, whole.nbytes);
    EXPECT(c, "...\"bf:{seen1}:...", "BF.SHARDS seen1");
    EXPECT(c, "...\"bf:{seen2}:...", "BF.SHARDS seen2");
    CHECK(strcmp(command_text(c, "BF.SHARDS seen1"), command_text(c, "BF.SHARDS seen2")) != 0);
    EXPECT(c, ":1", "BF.ADD seen1 something");
    EXPECT(c, ":2", "DEL seen1 seen2");
    wait_for_sweeper(s);
    EXPECT(admin, "\"xyz\"", "GET secret");
    EXPECT(admin, ":1", "DBSIZE");
    bytes_free(&bytes);
    bytes_free(&whole);
    descriptor_free(descriptor);
}

/* In a cluster the descriptor alone is what MIGRATE sends. */
TEST(restore_in_a_cluster_reaches_no_other_keys) {
    Cluster *cluster = cluster_start(1, false, NULL);
    REQUIRE(cluster);
    Server *s = cluster->node[0];
    Client *c = restoring_user(s), *admin = s->client;
    EXPECT(admin, "+OK", "SET {victim}secret xyz");
    EXPECT(admin, ":1", "BF.ADD {victim}f a");
    const redisReply *theirs = command(admin, "BF.DESCRIPTOR {victim}f");
    const Bytes victim = {(uint8_t *)theirs->str, theirs->len};
    struct descriptor *descriptor = forged_adoption("victim", "{victim}secret", false);
    Bytes adopting = encode(descriptor), stolen = payload(admin, 0, &victim, NULL),
          spying = payload(admin, 0, &adopting, NULL);
    EXPECT(c, "-ERR Bad data format", "RESTORE seen{victim} 0 %b", spying.data, spying.nbytes);
    CHECK_LOGGED(s, "it names strings that it adopted");
    EXPECT(c, "-ERR Bad data format", "RESTORE seen{victim} 0 %b", stolen.data, stolen.nbytes);
    CHECK_LOGGED(s, "under another name");
    EXPECT(c, "-ERR Bad data format", "RESTORE seen1 0 %b", stolen.data, stolen.nbytes);
    CHECK_LOGGED(s, "another cluster slot");
    EXPECT(admin, "*0", "KEYS seen*");
    /* In its own place the same filter may come again; but not if it names other strings now. */
    EXPECT(admin, "+OK", "BF.ADOPT {victim}adopted PREFIX {victim}secret BITS 9");
    const redisReply *dump = command(admin, "DUMP {victim}adopted");
    EXPECT(admin, "+OK", "RESTORE {victim}adopted 0 %b REPLACE", dump->str, (size_t)dump->len);
    struct descriptor *other = forged_adoption("victim", "{victim}other", false);
    const redisReply *own = command(admin, "BF.DESCRIPTOR {victim}adopted");
    const char *problem;
    struct descriptor *same = descriptor_decode((uint8_t *)own->str, own->len, &problem);
    REQUIRE(same);
    other->id = same->id;
    Bytes moved = encode(other), elsewhere = payload(admin, 0, &moved, NULL);
    EXPECT(admin, "-ERR Bad data format", "RESTORE {victim}adopted 0 %b REPLACE", elsewhere.data,
           elsewhere.nbytes);
    EXPECT(admin, ":1", "BF.EXISTS {victim}f a");
    EXPECT(admin, "\"xyz\"", "GET {victim}secret");
    Bytes *all[] = {&adopting, &stolen, &spying, &moved, &elsewhere};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) bytes_free(all[i]);
    descriptor_free(descriptor);
    descriptor_free(other);
    descriptor_free(same);
}

/* ---- chunks ---- */

TEST(chunks_bring_no_names) {
    Server *s = server_start(NULL);
    Client *c = limited_user(s), *admin = s->client;
    EXPECT(admin, "+OK", "SET secret xyz");
    EXPECT(admin, ":1", "BF.ADD victim a");
    struct descriptor *descriptor = forged_adoption("victim", "secret", false);
    struct chunk chunk;
    Bytes bytes = {malloc(chunk_header_size(descriptor)), chunk_header_size(descriptor)};
    chunk_write_header(descriptor, bytes.data);
    chunk_open(bytes.data, bytes.nbytes, &chunk);
    EXPECT(c, "-ERR this filter has adopted strings...", "BF.LOADCHUNK seen1 %lld %b",
           (long long)chunk.to, bytes.data, bytes.nbytes);
    /* Another filter's header gives neither its id nor its tag. */
    const redisReply *head = command(admin, "BF.SCANDUMP victim 0");
    EXPECT(c, "+OK", "BF.LOADCHUNK seen2 %lld %b", head->element[0]->integer, head->element[1]->str,
           (size_t)head->element[1]->len);
    const redisReply *mine = command(c, "BF.DESCRIPTOR seen2"),
                     *theirs = command(admin, "BF.DESCRIPTOR victim");
    CHECK(memcmp(mine->str + 4, theirs->str + 4, 8) != 0);
    EXPECT(c, ":1", "DEL seen2");
    wait_for_sweeper(s);
    EXPECT(admin, ":1", "BF.EXISTS victim a");
    EXPECT(admin, "\"xyz\"", "GET secret");
    bytes_free(&bytes);
    descriptor_free(descriptor);
}

/* ---- adoption ---- */

TEST(adoption_asks_for_the_rights_of_whoever_began_it) {
    Server *s = server_start(NULL);
    Client *c = limited_user(s), *admin = s->client;
    EXPECT(admin, "+OK", "SET secret xyz");
    EXPECT(c, "-NOPERM...", "BF.ADOPT seen1 PREFIX secret BITS 9");
    EXPECT(c, "-NOPERM...", "EVAL %s 1 seen1",
           "return redis.call('BF.ADOPT', KEYS[1], 'PREFIX', 'secret', 'BITS', '9')");
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "BF.ADOPT seen1 PREFIX secret BITS 9");
    EXPECT(c, "*1 -NOPERM...", "EXEC");
    EXPECT(c, "-NOPERM...", "BF.ADOPT seen1 PREFIX secre BLOCKS 3");
    EXPECT(admin, ":0", "EXISTS seen1");
    EXPECT(c, "+OK", "BF.ADOPT seen1 PREFIX seenbits BITS 9");
    EXPECT(c, ":1", "BF.ADD seen1 a");
}

/* Redis 7.0 used to die of it: the command asked for the name of a user where there is none. */
TEST(another_module_can_adopt) {
    Server *s = server_start(config_with_caller(""));
    Client *c = s->client;
    EXPECT(c, "+OK", "SET bits abc");
    EXPECT(c, "+OK", "CALLER.CALL BF.ADOPT seen PREFIX bits BITS 9");
    EXPECT(c, "+OK", "CALLER.CALL EVAL %s 1 seen2",
           "return redis.call('BF.ADOPT', KEYS[1], 'PREFIX', 'bits', 'BITS', '9')");
    EXPECT(c, ":1", "CALLER.CALL BF.ADD seen a");
    EXPECT(c, ":1", "BF.EXISTS seen2 a");
}

/* ---- names ---- */

/* Whatever a filter is called, its shards are its own, and errors about them are one line. */
TEST(names_stay_names) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, ":1", "BF.ADD victim a");
    const char *shard = command(c, "BF.SHARDS victim")->element[0]->element[1]->str;
    char like_a_shard[128];
    snprintf(like_a_shard, sizeof(like_a_shard), "seen%s", shard + 4);
    const struct {
        const char *text;
        size_t length;
    } names[] = {
        {"seen}x{victim", 13},      {"seen{victim}", 12},   {"seen}:0:0", 10},
        {"seen\r\n-ERR x\r\n", 15}, {"seen\0victim", 11},   {"seen{\0}", 7},
        {"seen\xff\x1b[2J", 9},     {"seen{}{victim}", 14}, {like_a_shard, strlen(like_a_shard)}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        EXPECT(c, "*1 :1", "BF.INSERT %b SEED 1 ITEMS mine", names[i].text, names[i].length);
        EXPECT(c, ":0", "BF.EXISTS %b a", names[i].text, names[i].length);
        const redisReply *name =
            command(c, "BF.SHARDS %b", names[i].text, names[i].length)->element[0]->element[1];
        EXPECT(c, ":1", "DEL %b", name->str, (size_t)name->len);
        const redisReply *lost = command(c, "BF.EXISTS %b mine", names[i].text, names[i].length);
        CHECK_INT(lost->type, REDIS_REPLY_ERROR);
        for (size_t j = 0; j < lost->len; j++)
            if (lost->str[j] < ' ' || lost->str[j] > '~')
                CHECK_FAIL("the error about name %zu has control characters", i);
        EXPECT(c, ":1", "BF.HEAL %b", names[i].text, names[i].length);
        EXPECT(c, ":1", "DEL %b", names[i].text, names[i].length);
    }
    wait_for_sweeper(s);
    EXPECT(c, ":1", "BF.EXISTS victim a");
    EXPECT(c, ":2", "DBSIZE");
}
