/* Access rights: to use a filter, a user needs rights on its name only, and has none on its
 * shards. */
#include "check.h"
#include "client.h"

#include <stdio.h>
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

/* The name of the first shard of a filter. */
static const char *first_shard(Client *c, const char *key) {
    const redisReply *shards = command(c, "BF.SHARDS %s", key);
    if (shards->elements == 0 || shards->element[0]->elements < 2) {
        CHECK_FAIL("%s has no shards", key);
        return "";
    }
    return shards->element[0]->element[1]->str;
}

TEST(rights_on_the_name_are_enough) {
    Server *s = server_start(NULL);
    Client *c = user(s, "crawler",
                     "~seen +bf.add +bf.madd +bf.insert +bf.reserve +bf.exists "
                     "+bf.mexists +bf.card +bf.info +bf.shards +bf.heal +del");
    EXPECT(c, "+OK", "BF.RESERVE seen 0.000001 1000 SEED 1 SHARDSIZE 4096");
    EXPECT(c, ":1", "BF.ADD seen a");
    EXPECT(c, "*2 :0 :1", "BF.MADD seen a b");
    CHECK_INT(command_batches(c, "BF.MADD", "seen", "item", 0, 5000), 5000); /* grows: new layers */
    EXPECT(c, "*1 :1", "BF.INSERT seen ITEMS c");
    EXPECT(c, ":1", "BF.EXISTS seen a");
    EXPECT(c, "*2 :1 :0", "BF.MEXISTS seen b zzz");
    EXPECT(c, ":5003", "BF.CARD seen");
    EXPECT(c, "*10...", "BF.INFO seen");
    EXPECT(c, ":0", "BF.HEAL seen");
    first_shard(c, "seen");
    EXPECT(c, ":1", "DEL seen");
    CHECK_INT(command_int(c, "BF.CARD seen"), 0);
}

TEST(shards_are_out_of_reach) {
    Server *s = server_start(NULL);
    Client *c = user(s, "crawler", "~seen +@all");
    EXPECT(c, ":1", "BF.ADD seen a");
    const char *shard = first_shard(c, "seen");
    EXPECT(c, "-NOPERM...", "GET %s", shard);
    EXPECT(c, "-NOPERM...", "SETBIT %s 1000 1", shard);
    EXPECT(c, "-NOPERM...", "DEL %s", shard);
    EXPECT(c, "-NOPERM...", "RENAME %s seen", shard);
    EXPECT(c, "-NOPERM...", "BF.ADD other a");
    EXPECT(c, "-NOPERM...", "BF.EXISTS other a");
    EXPECT(c, ":1", "BF.EXISTS seen a");
}

TEST(commands_need_rights) {
    Server *s = server_start(NULL);
    Client *c = user(s, "reader", "~seen +bf.exists");
    EXPECT(c, ":0", "BF.EXISTS seen a");
    EXPECT(c, "-NOPERM...", "BF.ADD seen a");
    EXPECT(c, "-NOPERM...", "BF.RESERVE seen 0.01 100");
    EXPECT(c, "-NOPERM...", "BF.MEXISTS seen a");
    EXPECT(c, "-NOPERM...", "BF.DESCRIPTOR seen");
}

/* Reading and writing are told apart by the flags of the key. */
TEST(read_only_and_write_only_keys) {
    Server *s = server_start(NULL);
    EXPECT(s->client, ":1", "BF.ADD seen a");
    Client *reader = user(s, "reader", "%%R~seen +@all");
    EXPECT(reader, ":1", "BF.EXISTS seen a");
    EXPECT(reader, ":1", "BF.CARD seen");
    EXPECT(reader, "-NOPERM...", "BF.ADD seen b");
    EXPECT(reader, "-NOPERM...", "BF.RESERVE seen 0.01 100");
    EXPECT(reader, "-NOPERM...", "BF.HEAL seen");
    Client *writer = user(s, "writer", "%%W~seen +@all");
    EXPECT(writer, "-NOPERM...", "BF.EXISTS seen a");
    EXPECT(writer, "-NOPERM...", "BF.ADD seen a"); /* its answer shows whether "a" was seen */
    EXPECT(writer, "-ERR item exists", "BF.RESERVE seen 0.01 100");
}

static bool has_category(Client *c, const char *category) {
    char name[32];
    snprintf(name, sizeof(name), "\"%s\"", category);
    return strstr(command_text(c, "ACL CAT"), name) != NULL;
}

/* Redis 7.0 gives commands of modules no category at all; newer servers do, and let us add one. */
TEST(categories_where_the_server_has_them) {
    Server *s = server_start(NULL);
    const bool bloom = has_category(s->client, "bloom");
    CHECK(has_category(s->client, "read"));
    if (!bloom) {
        EXPECT(s->client, "-ERR...", "ACL SETUSER crawler on nopass +@bloom");
        return;
    }
    EXPECT(s->client, "...+@write...+@fast...", "COMMAND INFO BF.ADD");
    EXPECT(s->client, "...+@read...+@fast...", "COMMAND INFO BF.EXISTS");
    EXPECT(s->client, "...+@read...", "COMMAND INFO BF.DESCRIPTOR");
    EXPECT(s->client, "...+@write...+@admin...+@dangerous...", "COMMAND INFO BF.SETDESCRIPTOR");
    Client *c = user(s, "crawler", "~seen +@bloom");
    EXPECT(c, ":1", "BF.ADD seen a");
    EXPECT(c, ":1", "BF.EXISTS seen a");
    EXPECT(c, "\"BFD...", "BF.DESCRIPTOR seen");
    EXPECT(c, "-NOPERM...", "BF.SETDESCRIPTOR seen x");
    EXPECT(c, "-NOPERM...", "BF.NEXTID seen 0000000000000000");
    EXPECT(c, "-NOPERM...", "BF.LEAVES seen");
    EXPECT(c, "-NOPERM...", "GET seen");
    Client *reader = user(s, "reader", "~seen +@bloom -@write");
    EXPECT(reader, ":1", "BF.EXISTS seen a");
    EXPECT(reader, "-NOPERM...", "BF.ADD seen b");
}
