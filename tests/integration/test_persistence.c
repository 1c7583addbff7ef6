/* What is stored survives: snapshots, append-only files of every kind, crashes, transactions,
 * scripts. "Same" always means the same keys, the same bytes in them and the same BF.INFO. */
#include "check.h"
#include "client.h"
#include "fixture.h"
#include "snapshot.h"

#include <stdio.h>
#include <string.h>

static const char *const aof_plain = "appendonly yes\nappendfsync always\naof-use-rdb-preamble no";
static const char *const aof_preamble =
    "appendonly yes\nappendfsync always\naof-use-rdb-preamble yes";

/* Restarts and checks that nothing changed; then that the filters still work. */
static void check_survives(Server *s, Stop how, int rounds) {
    Snapshot *before = snapshot_take(s);
    CHECK(snapshot_nkeys(before) > 20);
    server_restart(s, how);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    fixture_check(s->client, rounds);
}

/* ---- RDB ---- */

TEST(save_and_restart) {
    Server *s = server_start(NULL);
    fixture_fill(s->client);
    EXPECT(s->client, "+OK", "SAVE");
    check_survives(s, STOP_KILL, 0);
    fixture_add(s->client, 0);
    EXPECT(s->client, "+OK", "SAVE");
    check_survives(s, STOP_KILL, 1);
}

TEST(bgsave_and_restart) {
    Server *s = server_start(NULL);
    fixture_fill(s->client);
    EXPECT(s->client, "+Background saving started", "BGSAVE");
    server_wait_info(s, "rdb_bgsave_in_progress", "0");
    server_wait_info(s, "rdb_last_bgsave_status", "ok");
    check_survives(s, STOP_KILL, 0);
}

TEST(shutdown_saves) {
    Server *s = server_start(NULL);
    fixture_fill(s->client);
    fixture_add(s->client, 0);
    check_survives(s, STOP_SAVE, 1);
    fixture_add(s->client, 1);
    check_survives(s, STOP_SAVE, 2);
}

/* The child writes the filter as it was at the fork, descriptor and shards alike. */
TEST(writes_during_bgsave_are_not_in_it) {
    Server *s = server_start(NULL);
    Snapshot *before = NULL;
    int rounds = -1;
    bool during = false;
    fixture_fill(s->client);
    /* On a busy machine the child may be done before we are; then it gets more time. */
    for (int delay_us = 5000; !during && delay_us < 2000000; delay_us *= 4) {
        EXPECT(s->client, "+OK", "CONFIG SET rdb-key-save-delay %d", delay_us);
        before = snapshot_take(s);
        EXPECT(s->client, "+Background saving started", "BGSAVE");
        fixture_add(s->client, ++rounds);
        during = server_info(s, "rdb_bgsave_in_progress") == 1;
        server_wait_info(s, "rdb_bgsave_in_progress", "0");
    }
    CHECK(during);
    server_restart(s, STOP_KILL);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    fixture_check(s->client, rounds);
}

TEST(debug_reload) {
    Server *s = server_start(NULL);
    fixture_fill(s->client);
    Snapshot *before = snapshot_take(s);
    EXPECT(s->client, "+OK", "DEBUG RELOAD");
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    fixture_add(s->client, 0);
    fixture_check(s->client, 1);
}

/* ---- AOF ---- */

static void check_aof(const char *config) {
    Server *s = server_start(config);
    fixture_fill(s->client);
    check_survives(s, STOP_KILL, 0);
    fixture_add(s->client, 0);
    check_survives(s, STOP_NOSAVE, 1);

    EXPECT(s->client, "+Background append only file rewriting...", "BGREWRITEAOF");
    server_wait_info(s, "aof_rewrite_in_progress", "0");
    server_wait_info(s, "aof_last_bgrewrite_status", "ok");
    check_survives(s, STOP_KILL, 1);
    fixture_add(s->client, 1); /* on top of the rewritten file */
    check_survives(s, STOP_KILL, 2);
}

TEST(aof_without_preamble) {
    check_aof(aof_plain);
}

TEST(aof_with_preamble) {
    check_aof(aof_preamble);
}

static void check_writes_during_rewrite(const char *config) {
    Server *s = server_start(config);
    fixture_fill(s->client);
    EXPECT(s->client, "+OK", "CONFIG SET rdb-key-save-delay 2000");
    EXPECT(s->client, "+Background append only file rewriting...", "BGREWRITEAOF");
    fixture_add(s->client, 0);
    EXPECT(s->client, "+OK", "CONFIG SET rdb-key-save-delay 0");
    fixture_add(s->client, 1);
    server_wait_info(s, "aof_rewrite_in_progress", "0");
    server_wait_info(s, "aof_last_bgrewrite_status", "ok");
    check_survives(s, STOP_KILL, 2);
}

TEST(writes_during_aof_rewrite) {
    check_writes_during_rewrite(aof_plain);
    check_writes_during_rewrite(aof_preamble);
}

TEST(aof_switched_on_later) {
    Server *s = server_start(NULL);
    fixture_fill(s->client);
    EXPECT(s->client, "+OK", "CONFIG SET appendfsync always");
    EXPECT(s->client, "+OK", "CONFIG SET appendonly yes");
    server_wait_info(s, "aof_rewrite_in_progress", "0");
    server_wait_info(s, "aof_last_bgrewrite_status", "ok");
    fixture_add(s->client, 0);
    server_reconfigure(s, NULL, "appendonly yes\nappendfsync always");
    check_survives(s, STOP_KILL, 1);
}

/* Whatever was answered before the crash is there after it. */
TEST(kill_loses_nothing_that_was_answered) {
    Server *s = server_start(aof_preamble);
    EXPECT(s->client, "+OK", "BF.RESERVE k 0.0000001 50 SEED 9 SHARDSIZE 4096");
    long long n = 0;
    for (int crash = 0; crash < 5; crash++) {
        for (int i = 0; i < 150; i++) EXPECT(s->client, ":1", "BF.ADD k i%lld", n++);
        CHECK_INT(command_batches(s->client, "BF.MADD", "k", "i", n, 137), 137);
        n += 137;
        server_restart(s, STOP_KILL);
        CHECK_INT(command_int(s->client, "BF.CARD k"), n);
        CHECK_INT(command_batches(s->client, "BF.MEXISTS", "k", "i", 0, n), n);
        CHECK_INT(command_batches(s->client, "BF.MADD", "k", "i", 0, n), 0);
    }
}

/* ---- transactions and scripts ---- */

TEST(transactions) {
    Server *s = server_start(aof_plain);
    Client *c = s->client;
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "BF.RESERVE k 0.0001 2 SEED 4");
    EXPECT(c, "+QUEUED", "BF.MADD k a b a");
    EXPECT(c, "+QUEUED", "BF.ADD k c");
    EXPECT(c, "+QUEUED", "BF.ADD k c");
    EXPECT(c, "+QUEUED", "BF.RESERVE k 0.1 1");
    EXPECT(c, "+QUEUED", "BF.ADD automatic x");
    EXPECT(c, "+QUEUED", "BF.MEXISTS k a b c d");
    EXPECT(c, "*7 +OK *3 :1 :1 :0 :1 :0 -ERR item exists :1 *4 :1 :1 :1 :0", "EXEC");
    Snapshot *before = snapshot_take(s);
    server_restart(s, STOP_KILL);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    EXPECT(c, "*1 :2", "BF.INFO k FILTERS");
    EXPECT(c, "*4 :1 :1 :1 :0", "BF.MEXISTS k a b c d");

    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "BF.ADD k discarded");
    EXPECT(c, "+OK", "DISCARD");
    EXPECT(c, ":0", "BF.EXISTS k discarded");
}

TEST(scripts) {
    Server *s = server_start(aof_plain);
    Client *c = s->client;
    EXPECT(c, ":150", "EVAL %s 1 k",
           "redis.call('BF.RESERVE', KEYS[1], '0.0001', '20', 'SEED', '5') "
           "local n = 0 "
           "for i = 1, 150 do n = n + redis.call('BF.ADD', KEYS[1], 'i' .. i) end "
           "for i = 1, 150 do n = n + redis.call('BF.ADD', KEYS[1], 'i' .. i) end "
           "return n");
    EXPECT(c, "*3 :0 :1 :0", "EVAL %s 1 k",
           "return redis.call('BF.MADD', KEYS[1], 'i1', 'new', 'new')");
    EXPECT(c, ":1", "EVAL %s 1 auto", "return redis.call('BF.ADD', KEYS[1], 'x')");
    EXPECT(c, "\"boolean\"", "EVAL %s 1 k",
           "redis.setresp(3) return type(redis.call('BF.EXISTS', KEYS[1], 'i1'))");
    EXPECT(c, "-...", "EVAL %s 1 k", "return redis.call('BF.RESERVE', KEYS[1], '0.1', '1')");
    Snapshot *before = snapshot_take(s);
    server_restart(s, STOP_KILL);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "i", 1, 150), 150);
    EXPECT(c, ":151", "BF.CARD k");
}

/* ---- configuration that changed in between ---- */

/* Defaults are for filters to come: those that exist keep their shape, also when the AOF is
 * replayed. */
TEST(other_configuration_after_restart) {
    const char *configs[] = {aof_plain, aof_preamble};
    for (int i = 0; i < 2; i++) {
        char other[512];
        Server *s = server_start(configs[i]);
        fixture_fill(s->client);
        fixture_add(s->client, 0);
        snprintf(other, sizeof(other),
                 "%s\nbf.error-rate 0.2\nbf.initial-size 7\nbf.expansion 9\nbf.shard-size 8192",
                 configs[i]);
        server_reconfigure(s, NULL, other);
        check_survives(s, STOP_KILL, 1);
        fixture_add(s->client, 1);
        check_survives(s, STOP_KILL, 2);
    }
}

/* Duplicates cost no bytes in the append-only file. */
TEST(aof_holds_changes_only) {
    Server *s = server_start(aof_plain);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.000001 3 NONSCALING SEED 3");
    EXPECT(c, "*3 :1 :1 :1", "BF.MADD k a b c");
    size_t nbytes = server_aof_nbytes(s);
    CHECK(nbytes > 0);
    EXPECT(c, ":0", "BF.ADD k a");
    EXPECT(c, "*3 :0 :0 :0", "BF.MADD k c b a");
    EXPECT(c, "*2 :0 :0", "BF.INSERT k ITEMS a b");
    EXPECT(c, "-ERR...", "BF.ADD k d");
    EXPECT(c, "*2 -ERR... -ERR...", "BF.MADD k d e");
    EXPECT(c, "-ERR...", "BF.RESERVE k 0.1 100");
    EXPECT(c, "-ERR...", "BF.RESERVE l 0.1 0");
    EXPECT(c, "-ERR...", "BF.INSERT l NOCREATE ITEMS a");
    EXPECT(c, ":1", "BF.EXISTS k a");
    EXPECT(c, "*1 :3", "BF.INFO k ITEMS");
    CHECK_UINT(server_aof_nbytes(s), nbytes);
    EXPECT(c, "+OK", "SET x y");
    CHECK(server_aof_nbytes(s) > nbytes);
}

/* Both ids are derived from the original's; they were the same once. */
TEST(a_copy_and_a_restored_dump_are_two_filters) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "*1 :1", "BF.INSERT {t}original SEED 1 ITEMS a");
    const redisReply *dump = command(c, "DUMP {t}original");
    EXPECT(c, ":1", "COPY {t}original {t}copy");
    EXPECT(c, "+OK", "RESTORE {t}restored 0 %b", dump->str, (size_t)dump->len);
    EXPECT(c, ":1", "BF.ADD {t}copy b");
    EXPECT(c, "*2 :1 :1", "BF.MEXISTS {t}copy a b");
    EXPECT(c, "*2 :1 :0", "BF.MEXISTS {t}restored a b");
    EXPECT(c, "*2 :1 :0", "BF.MEXISTS {t}original a b");
    EXPECT(c, ":6", "DBSIZE");
}
