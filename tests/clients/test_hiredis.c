/* hiredis as an application uses it: types of replies, pipelining, binary arguments. The other
 * tests in C use it too, but see replies as text. */
#include "check.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

static redisContext *redis;
static redisReply *last; /* freed when the next one comes */

static void disconnect(void) {
    if (last) freeReplyObject(last);
    if (redis) redisFree(redis);
    last = NULL;
    redis = NULL;
}

static redisReply *keep_last(redisReply *reply) {
    static redisReply lost = {.type = REDIS_REPLY_ERROR, .str = "LOST connection"};
    if (last) freeReplyObject(last);
    last = reply;
    if (!reply) CHECK_FAIL("no reply: %s", redis->errstr);
    return reply ? reply : &lost;
}

#define ASK(...) keep_last(redisCommand(redis, __VA_ARGS__))

static void connect_and_flush(void) {
    const char *port = getenv("PORT");
    check_after_each(disconnect);
    redis = redisConnectWithTimeout("127.0.0.1", port ? atoi(port) : 6379, (struct timeval){60, 0});
    if (!redis || redis->err) {
        CHECK_FAIL("no connection to port %s", port ? port : "6379");
        exit(1);
    }
    CHECK_STR(ASK("FLUSHALL")->str, "OK");
}

static void check_integer(const redisReply *reply, long long want) {
    CHECK_INT(reply->type, REDIS_REPLY_INTEGER);
    CHECK_INT(reply->integer, want);
}

static void check_integers(const redisReply *reply, size_t n, const long long *want) {
    CHECK_INT(reply->type, REDIS_REPLY_ARRAY);
    REQUIRE(reply->elements == n);
    for (size_t i = 0; i < n; i++) check_integer(reply->element[i], want[i]);
}

static void check_error(const redisReply *reply, const char *text) {
    CHECK_INT(reply->type, REDIS_REPLY_ERROR);
    CHECK_STR(reply->str, text);
}

TEST(reserve) {
    connect_and_flush();
    const redisReply *reply = ASK("BF.RESERVE k 0.01 %d EXPANSION %d", 100, 2);
    CHECK_INT(reply->type, REDIS_REPLY_STATUS);
    CHECK_STR(reply->str, "OK");
    check_error(ASK("BF.RESERVE k 0.01 100"), "ERR item exists");
}

TEST(add_exists_and_card) {
    connect_and_flush();
    check_integer(ASK("BF.EXISTS k a"), 0);
    check_integer(ASK("BF.CARD k"), 0);
    check_integer(ASK("BF.ADD k %s", "a"), 1);
    check_integer(ASK("BF.ADD k %s", "a"), 0);
    check_integer(ASK("BF.EXISTS k a"), 1);
    check_integer(ASK("BF.CARD k"), 1);
}

TEST(batches) {
    connect_and_flush();
    check_integers(ASK("BF.MADD k a b a"), 3, (const long long[]){1, 1, 0});
    check_integers(ASK("BF.MEXISTS k a c"), 2, (const long long[]){1, 0});
    check_integers(ASK("BF.INSERT l CAPACITY 10 ERROR 0.001 SEED 1 ITEMS a b"), 2,
                   (const long long[]){1, 1});
    check_error(ASK("BF.INSERT none NOCREATE ITEMS a"), "ERR not found");
}

TEST(info) {
    static const char *const names[] = {"Capacity", "Size", "Number of filters",
                                        "Number of items inserted", "Expansion rate"};
    connect_and_flush();
    ASK("BF.RESERVE k 0.01 100 NONSCALING");
    const redisReply *info = ASK("BF.INFO k");
    CHECK_INT(info->type, REDIS_REPLY_ARRAY);
    REQUIRE(info->elements == 10);
    for (size_t i = 0; i < 5; i++) CHECK_STR(info->element[2 * i]->str, names[i]);
    check_integer(info->element[1], 100);
    CHECK_INT(info->element[3]->type, REDIS_REPLY_INTEGER);
    check_integer(info->element[5], 1);
    check_integer(info->element[7], 0);
    CHECK_INT(info->element[9]->type, REDIS_REPLY_NIL);
    check_error(ASK("BF.INFO none"), "ERR not found");
}

TEST(an_error_within_an_array) {
    connect_and_flush();
    ASK("BF.RESERVE k 0.001 1 NONSCALING SEED 1");
    const redisReply *reply = ASK("BF.MADD k a b");
    REQUIRE(reply->type == REDIS_REPLY_ARRAY && reply->elements == 2);
    check_integer(reply->element[0], 1);
    check_error(reply->element[1], "ERR non scaling filter is full");
}

TEST(pipelines_and_bytes) {
    connect_and_flush();
    ASK("BF.RESERVE k 0.000001 1000 SEED 1");
    for (int i = 0; i < 100; i++)
        redisAppendCommand(redis, "BF.ADD k %b%d", "\0\r\n", (size_t)3, i);
    for (int i = 0; i < 100; i++) {
        redisReply *reply = NULL;
        REQUIRE(redisGetReply(redis, (void **)&reply) == REDIS_OK);
        check_integer(keep_last(reply), 1);
    }
    check_integer(ASK("BF.EXISTS k %b", "\0\r\n7", (size_t)4), 1);
    check_integer(ASK("BF.EXISTS k %b", "\0\r\n", (size_t)3), 0);
}

/* Only on a server whose module has the commands. */
static void copy_by_chunks(void) {
    connect_and_flush();
    for (int i = 0; i < 2000; i++) ASK("BF.ADD from item%d", i);
    for (long long at = 0;;) {
        redisReply *chunk = redisCommand(redis, "BF.SCANDUMP from %lld", at);
        REQUIRE(chunk && chunk->type == REDIS_REPLY_ARRAY && chunk->elements == 2);
        at = chunk->element[0]->integer;
        if (at != 0)
            CHECK_STR(ASK("BF.LOADCHUNK to %lld %b", at, chunk->element[1]->str,
                          (size_t)chunk->element[1]->len)
                          ->str,
                      "OK");
        freeReplyObject(chunk);
        if (at == 0) break;
    }
    const long long nitems = ASK("BF.CARD from")->integer;
    CHECK(nitems > 1900);
    check_integer(ASK("BF.CARD to"), nitems);
    for (int i = 0; i < 2000; i++) check_integer(ASK("BF.EXISTS to item%d", i), 1);
}

__attribute__((constructor)) static void register_chunks(void) {
    const char *port = getenv("PORT");
    redisContext *probe = redisConnect("127.0.0.1", port ? atoi(port) : 6379);
    redisReply *reply =
        probe && !probe->err ? redisCommand(probe, "COMMAND INFO BF.SCANDUMP") : NULL;
    if (reply && reply->elements == 1 && reply->element[0]->type == REDIS_REPLY_ARRAY)
        check_register("copy_by_chunks", copy_by_chunks);
    if (reply) freeReplyObject(reply);
    if (probe) redisFree(probe);
}
