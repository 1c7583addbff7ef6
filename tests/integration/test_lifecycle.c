/* Many keys that behave as one: whatever happens to a filter's key happens to its shards, on the
 * primary, on the replica and after a crash. Filters here have a dozen shards, since with one of
 * them little could go wrong. */
#include "audit.h"
#include "check.h"
#include "client.h"
#include "snapshot.h"

#include <stdio.h>
#include <string.h>

enum { NITEMS = 600, NSHARDS = 11 };

static const char *const aof_plain = "appendonly yes\nappendfsync always\naof-use-rdb-preamble no";
static const char *const aof_preamble =
    "appendonly yes\nappendfsync always\naof-use-rdb-preamble yes";

typedef struct {
    Server *primary, *replica;
} Pair;

static Pair start_pair(const char *config) {
    Pair pair = {server_start(config), server_start(config)};
    server_follow(pair.replica, pair.primary);
    return pair;
}

/* A filter with items <name>0 .. in every one of its shards. */
static void fill(Client *c, const char *name) {
    EXPECT(c, "+OK", "BF.RESERVE %s 0.000001 10000 SHARDSIZE 4096 SEED 1", name);
    CHECK_INT(command_batches(c, "BF.MADD", name, name, 0, NITEMS), NITEMS);
    CHECK_UINT(command(c, "BF.SHARDS %s", name)->elements, NSHARDS);
}

/* The filter `name` answers as the one that was filled as `origin`. */
static void check_alive(Client *c, const char *name, const char *origin) {
    CHECK_INT(command_int(c, "BF.CARD %s", name), NITEMS);
    CHECK_INT(command_batches(c, "BF.MEXISTS", name, origin, 0, NITEMS), NITEMS);
    CHECK_INT(command_batches(c, "BF.MEXISTS", name, "other", 0, NITEMS), 0);
}

static void check_pair(Pair pair, size_t nfilters) {
    CHECK_TIDY(pair.primary);
    server_wait_for_replica(pair.primary, pair.replica);
    CHECK_TIDY(pair.replica);
    CHECK_UINT(audit(pair.primary).nfilters, nfilters);
    CHECK_SAME_DATA(pair.primary, pair.replica);
}

static redisReply *dump(Client *c, const char *name) {
    redisReply *r = command(c, "DUMP %s", name);
    CHECK_INT(r->type, REDIS_REPLY_STRING);
    return r;
}

#define PAYLOAD(r) (r)->str, (size_t)(r)->len

/* ---- the ways to die ---- */

static void check_death(const char *config) {
    Pair pair = start_pair(config);
    Client *c = pair.primary->client;
    fill(c, "witness");
    EXPECT(c, "*2 :1 :1", "EVAL %s 0",
           "return {redis.call('SADD', 's', '1'), redis.call('RPUSH', 'l', '1')}");
    fill(c, "donor");
    redisReply *payload = dump(c, "donor");
    EXPECT(c, ":1", "DEL donor");
    static const char *const deaths[] = {
        "DEL k",
        "UNLINK k",
        "EXPIRE k 0",
        "PEXPIRE k 20",
        "PEXPIREAT k 1000",
        "SET k v",
        "SET k v PX 50",
        "SUNIONSTORE k s s",
        "SORT l STORE k",
        "BITOP NOT k str",
        "RENAME str k",
        "COPY str k REPLACE",
        "EVAL redis.call('del','k');return(1) 0",
    };
    for (size_t i = 0; i < sizeof(deaths) / sizeof(*deaths); i++) {
        EXPECT(c, "+OK", "SET str 1");
        fill(c, "k");
        EXPECT(c, i == 5 || i == 6 || i == 10 ? "+OK" : ":1", deaths[i]);
        CHECK_TIDY(pair.primary);
        EXPECT(c, "...", "DEL k");
        check_pair(pair, 1);
    }
    /* Another filter takes the name. */
    fill(c, "k");
    fill(c, "l2");
    EXPECT(c, "+OK", "RENAME l2 k");
    check_alive(c, "k", "l2");
    check_pair(pair, 2);
    EXPECT(c, "+OK", "RESTORE k 0 %b REPLACE", PAYLOAD(payload));
    check_alive(c, "k", "donor");
    check_pair(pair, 2);
    EXPECT(c, ":1", "COPY witness k REPLACE");
    check_alive(c, "k", "witness");
    check_pair(pair, 2);
    check_alive(pair.replica->client, "witness", "witness");
    check_alive(pair.replica->client, "k", "witness");

    server_restart(pair.primary, STOP_KILL);
    CHECK_TIDY(pair.primary);
    check_alive(c, "witness", "witness");
    check_alive(c, "k", "witness");
}

TEST(death_takes_the_shards_along_aof) {
    check_death(aof_plain);
}

TEST(death_takes_the_shards_along_preamble) {
    check_death(aof_preamble);
}

TEST(flush) {
    Pair pair = start_pair(aof_plain);
    Client *c = pair.primary->client;
    static const char *const flushes[] = {"FLUSHDB SYNC", "FLUSHDB ASYNC", "FLUSHALL SYNC",
                                          "FLUSHALL ASYNC"};
    for (size_t i = 0; i < 4; i++) {
        fill(c, "k");
        EXPECT(c, "+OK", "SELECT 3");
        fill(c, "witness");
        EXPECT(c, "+OK", "SELECT 0");
        EXPECT(c, "+OK", flushes[i]);
        EXPECT(c, ":0", "DBSIZE");
        EXPECT(c, ":1", "BF.ADD k x"); /* the name is free at once */
        EXPECT(c, ":1", "DEL k");
        check_pair(pair, i < 2 ? 1 : 0);
        EXPECT(c, "+OK", "SELECT 3");
        if (i < 2) check_alive(c, "witness", "witness");
        EXPECT(c, "+OK", "FLUSHALL");
        EXPECT(c, "+OK", "SELECT 0");
    }
    server_restart(pair.primary, STOP_KILL);
    EXPECT(c, ":0", "DBSIZE");
}

TEST(swapdb) {
    Pair pair = start_pair(aof_plain);
    Client *c = pair.primary->client;
    fill(c, "k");
    EXPECT(c, "+OK", "SELECT 1");
    fill(c, "l");
    EXPECT(c, "+OK", "SWAPDB 0 1");
    check_alive(c, "k", "k");
    check_pair(pair, 2);
    EXPECT(c, ":1", "DEL k");
    EXPECT(c, "+OK", "SWAPDB 1 9"); /* its shards are in 9 when the sweeper comes */
    check_pair(pair, 1);
    EXPECT(c, "+OK", "SELECT 0");
    check_alive(c, "l", "l");
    server_restart(pair.primary, STOP_KILL);
    check_alive(c, "l", "l");
}

TEST(debug_reload) {
    Pair pair = start_pair(aof_preamble);
    Client *c = pair.primary->client;
    fill(c, "k");
    fill(c, "l");
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "DEL l");
    EXPECT(c, "+QUEUED", "DEBUG RELOAD");
    EXPECT(c, "*2 :1 +OK", "EXEC");
    CHECK_TIDY(pair.primary);
    check_alive(c, "k", "k");
    check_pair(pair, 1);
}

/* The filter's own key is evicted: then all of it goes. */
TEST(eviction_of_the_descriptor) {
    Pair pair = start_pair(aof_plain);
    Client *c = pair.primary->client;
    fill(c, "witness");
    fill(c, "k");
    EXPECT(c, ":1", "EXPIRE k 100000");
    EXPECT(c, "+OK", "CONFIG SET maxmemory-policy volatile-lru");
    EXPECT(c, "+OK", "CONFIG SET maxmemory 1");
    for (int i = 0; i < 6000 && command_int(c, "EXISTS k"); i++) pause_ms(10);
    EXPECT(c, "+OK", "CONFIG SET maxmemory 0");
    EXPECT(c, ":0", "EXISTS k");
    CHECK(server_info(pair.primary, "evicted_keys") >= 1);
    check_pair(pair, 1);
    check_alive(c, "witness", "witness");
}

TEST(memory_returns) {
    Pair pair = start_pair(NULL);
    Client *c = pair.primary->client;
    EXPECT(c, ":1", "BF.ADD warm up");
    long long before = server_info(pair.primary, "used_memory");
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 10000000 SHARDSIZE 1mb SEED 1");
    command_batches(c, "BF.MADD", "k", "k", 0, 60000);
    CHECK(server_info(pair.primary, "used_memory") > before + (20 << 20));
    EXPECT(c, ":1", "DEL k");
    check_pair(pair, 1);
    long long after = 0;
    for (int i = 0; i < 3000; i++) {
        after = server_info(pair.primary, "used_memory");
        if (after < before + (4 << 20)) break;
        pause_ms(20);
    }
    CHECK_RANGE((double)after, 0, (double)(before + (4 << 20)));
}

/* A clean-up that takes several runs of the sweeper leaves snapshots in between that can be loaded.
 * This broke: a layer whose shards were gone still said that it had items, which no reader
 * accepts. */
TEST(snapshot_of_half_a_cleanup) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 1000 EXPANSION 10000 SHARDSIZE 4096 SEED 1");
    command_batches(c, "BF.MADD", "k", "k", 0, 60000);
    CHECK(command_int(c, "DBSIZE") > 5000);
    EXPECT(c, ":1", "DEL k");
    for (int i = 0; i < 15; i++) {
        EXPECT(c, "+OK", "DEBUG RELOAD");
        pause_ms(20);
    }
    CHECK_TIDY(s);
    EXPECT(c, ":0", "DBSIZE");
}

/* ---- crashes between death and clean-up ---- */

/* Deletes k and keeps the sweeper from running, by pausing clients. A server must not write while
 * its clients are paused; it used to abort when the sweeper did. */
static void delete_and_hold(Server *s) {
    Client *c = s->client;
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "DEL k");
    EXPECT(c, "+QUEUED", "CLIENT PAUSE 10000000 WRITE");
    EXPECT(c, "*2 :1 +OK", "EXEC");
    REQUIRE(server_wait_runs(s));
    CHECK_UINT(audit(s).norphans, NSHARDS);
}

TEST(paused_clients_pause_the_sweeper) {
    Pair pair = start_pair(NULL);
    fill(pair.primary->client, "k");
    delete_and_hold(pair.primary);
    EXPECT(pair.primary->client, "+OK", "CLIENT UNPAUSE");
    check_pair(pair, 0);
}

TEST(crash_before_cleanup_rdb) {
    for (int background = 0; background < 2; background++) {
        Server *s = server_start(NULL);
        fill(s->client, "k");
        fill(s->client, "witness");
        delete_and_hold(s);
        EXPECT(s->client, background ? "+Background..." : "+OK", background ? "BGSAVE" : "SAVE");
        server_wait_info(s, "rdb_bgsave_in_progress", "0");
        server_restart(s, STOP_KILL);
        CHECK_TIDY(s);
        check_alive(s->client, "witness", "witness");
    }
}

static void check_crash_with_aof(const char *config, bool rewrite) {
    Server *s = server_start(config);
    fill(s->client, "k");
    fill(s->client, "witness");
    delete_and_hold(s);
    if (rewrite) {
        EXPECT(s->client, "+Background...", "BGREWRITEAOF");
        server_wait_info(s, "aof_rewrite_in_progress", "0");
        server_wait_info(s, "aof_last_bgrewrite_status", "ok");
    }
    server_restart(s, STOP_KILL);
    CHECK_TIDY(s);
    check_alive(s->client, "witness", "witness");
    server_restart(s, STOP_KILL);
    CHECK_TIDY(s);
}

TEST(crash_before_cleanup_aof) {
    check_crash_with_aof(aof_plain, false);
    check_crash_with_aof(aof_preamble, false);
}

/* A rewritten AOF that is no snapshot has no place for a list of the dead: their shards must not
 * get into it. */
TEST(crash_before_cleanup_rewritten_aof) {
    check_crash_with_aof(aof_plain, true);
    check_crash_with_aof(aof_preamble, true);
}

/* It expires while the server is down. */
TEST(expiry_while_down) {
    const char *configs[] = {aof_plain, aof_preamble, "save 3600 1"};
    for (int i = 0; i < 3; i++) {
        Server *s = server_start(configs[i]);
        fill(s->client, "k");
        fill(s->client, "witness");
        EXPECT(s->client, ":1", "PEXPIRE k 400");
        server_stop(s, i < 2 ? STOP_KILL : STOP_SAVE);
        pause_ms(500);
        server_up(s);
        EXPECT(s->client, ":0", "EXISTS k");
        CHECK_TIDY(s);
        check_alive(s->client, "witness", "witness");
    }
}

TEST(failover_before_cleanup) {
    const char *configs[] = {NULL, aof_plain, aof_preamble};
    for (int i = 0; i < 3; i++) {
        Pair pair = start_pair(configs[i]);
        fill(pair.primary->client, "k");
        fill(pair.primary->client, "witness");
        delete_and_hold(pair.primary);
        server_wait_for_replica(pair.primary, pair.replica);
        server_stop(pair.primary, STOP_KILL);
        CHECK_UINT(audit(pair.replica).norphans, NSHARDS); /* a replica does not write */
        if (i > 0) {
            EXPECT(pair.replica->client, "+Background...", "BGREWRITEAOF");
            server_wait_info(pair.replica, "aof_rewrite_in_progress", "0");
            server_restart(pair.replica, STOP_KILL); /* comes up as a primary */
        } else {
            EXPECT(pair.replica->client, "+OK", "REPLICAOF NO ONE");
        }
        CHECK_TIDY(pair.replica);
        check_alive(pair.replica->client, "witness", "witness");
    }
}

/* The list of the dead reaches a replica that joins after the death. */
TEST(failover_to_a_replica_that_joined_late) {
    const char *configs[] = {NULL, "repl-diskless-load swapdb"};
    for (int i = 0; i < 2; i++) {
        Server *primary = server_start(NULL), *replica = server_start(configs[i]);
        fill(primary->client, "k");
        delete_and_hold(primary);
        server_follow(replica, primary);
        server_stop(primary, STOP_KILL);
        CHECK_UINT(audit(replica).norphans, NSHARDS);
        EXPECT(replica->client, "+OK", "REPLICAOF NO ONE");
        CHECK_TIDY(replica);
    }
}

/* Regression: a replica that had the filter itself took it for alive as long as its old data set
 * was not freed. A snapshot made in that moment did not know that the filter was dead. Databases
 * are freed one after the other, so a large one before the filter's makes the moment last. */
TEST(snapshot_of_a_replica_that_has_not_freed_its_old_data) {
    const char *configs[] = {"replica-lazy-flush yes",
                             "replica-lazy-flush yes\nrepl-diskless-load swapdb"};
    for (int i = 0; i < 2; i++) {
        Server *primary = server_start("repl-diskless-sync yes\nrepl-diskless-sync-delay 0"),
               *replica = server_start(configs[i]);
        EXPECT(primary->client, "+OK", "SELECT 1");
        fill(primary->client, "k");
        fill(primary->client, "witness");
        server_follow(replica, primary);
        EXPECT(replica->client, "+OK", "REPLICAOF NO ONE");
        EXPECT(replica->client, "+OK", "DEBUG POPULATE 500000");
        delete_and_hold(primary);
        server_follow(replica, primary);
        EXPECT(replica->client, "+OK", "SAVE");
        server_restart(replica, STOP_KILL); /* comes up as a primary */
        EXPECT(replica->client, "+OK", "SELECT 1");
        EXPECT(replica->client, ":0", "EXISTS k");
        CHECK_TIDY(replica);
        check_alive(replica->client, "witness", "witness");
    }
}

TEST(failover_command) {
    Pair pair = start_pair(NULL);
    fill(pair.primary->client, "k");
    fill(pair.primary->client, "witness");
    EXPECT(pair.primary->client, ":1", "DEL k");
    EXPECT(pair.primary->client, "+OK", "FAILOVER");
    server_wait_info(pair.replica, "role", "master");
    server_wait_info(pair.primary, "role", "slave");
    server_wait_info(pair.primary, "master_link_status", "up");
    check_pair((Pair){pair.replica, pair.primary}, 1);
    check_alive(pair.replica->client, "witness", "witness");
}

/* A replica with filters of its own that becomes a copy of another server. */
TEST(resync_leaves_nothing) {
    const char *configs[] = {NULL, "repl-diskless-load swapdb", "replica-lazy-flush yes"};
    for (int i = 0; i < 3; i++) {
        Server *primary = server_start(NULL), *replica = server_start(configs[i]);
        fill(replica->client, "old");
        fill(primary->client, "k");
        server_follow(replica, primary);
        check_pair((Pair){primary, replica}, 1);
        EXPECT(replica->client, "+OK", "REPLICAOF NO ONE");
        CHECK_TIDY(replica);
        check_alive(replica->client, "k", "k");
    }
}

/* ---- other names, other places ---- */

TEST(rename) {
    Pair pair = start_pair(aof_plain);
    Client *c = pair.primary->client;
    fill(c, "k");
    EXPECT(c, "+OK", "RENAME k l");
    check_alive(c, "l", "k");
    EXPECT(c, ":0", "BF.EXISTS k k1");
    EXPECT(c, ":1", "RENAMENX l {m}");
    fill(c, "k"); /* the old name again, while its first shards live on */
    EXPECT(c, ":0", "RENAMENX k {m}");
    EXPECT(c, ":1", "BF.ADD k more");
    EXPECT(c, "+OK", "RENAME k k"); /* onto itself */
    EXPECT(c, ":1", "BF.EXISTS k more");
    EXPECT(c, ":0", "BF.EXISTS {m} more");
    check_alive(c, "{m}", "k");
    check_pair(pair, 2);
    check_alive(pair.replica->client, "{m}", "k");
    EXPECT(c, ":1", "DEL k");
    check_pair(pair, 1);
    check_alive(c, "{m}", "k");
    server_restart(pair.primary, STOP_KILL);
    check_alive(c, "{m}", "k");
}

TEST(copy) {
    Pair pair = start_pair(aof_plain);
    Client *c = pair.primary->client;
    fill(c, "k");
    EXPECT(c, ":1", "COPY k l");
    EXPECT(c, ":0", "COPY k l");
    EXPECT(c, ":1", "COPY k l REPLACE");
    EXPECT(c, ":1", "COPY k l DB 4");
    EXPECT(c, ":1", "COPY k k DB 4");
    check_alive(c, "l", "k");
    check_pair(pair, 4);
    /* Independent: of additions, and of the death of the other. */
    EXPECT(c, ":1", "BF.ADD l more");
    EXPECT(c, ":0", "BF.EXISTS k more");
    EXPECT(c, ":1", "COPY l m");
    EXPECT(c, ":1", "DEL k");
    check_pair(pair, 4);
    EXPECT(c, "*2 :1 :1", "BF.MEXISTS m k1 more");
    EXPECT(pair.replica->client, "*2 :1 :1", "BF.MEXISTS m k1 more");
    EXPECT(c, "+OK", "SELECT 4");
    check_alive(c, "k", "k");
    check_alive(c, "l", "k");
    server_restart(pair.primary, STOP_KILL);
    CHECK_TIDY(pair.primary);
    EXPECT(c, "+OK", "SELECT 4");
    check_alive(c, "k", "k");
    check_alive(c, "l", "k");
}

static void check_move(const char *config) {
    Pair pair = start_pair(config);
    Client *c = pair.primary->client, *r = pair.replica->client;
    fill(c, "k");
    fill(c, "stays");
    EXPECT(c, ":1", "EXPIRE k 100000");
    EXPECT(c, ":1", "MOVE k 5");
    EXPECT(c, "+OK", "SELECT 5");
    CHECK_UINT(audit(pair.primary).norphans + audit(pair.primary).nlost, 0); /* at once */
    check_alive(c, "k", "k");
    CHECK(command_int(c, "TTL k") > 0);
    check_pair(pair, 2);
    EXPECT(r, "+OK", "SELECT 5");
    check_alive(r, "k", "k");
    EXPECT(c, ":1", "BF.ADD k more");

    fill(c, "stays"); /* the name is taken there: nothing moves */
    EXPECT(c, "+OK", "SELECT 0");
    EXPECT(c, ":0", "MOVE stays 5");
    EXPECT(c, "+OK", "FLUSHDB"); /* where it came from */
    EXPECT(c, "+OK", "SELECT 5");
    CHECK_INT(command_batches(c, "BF.MEXISTS", "k", "k", 0, NITEMS), NITEMS);
    EXPECT(c, ":1", "BF.EXISTS k more");
    check_pair(pair, 2);

    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "MOVE k 2");
    EXPECT(c, "+QUEUED", "SELECT 2");
    EXPECT(c, "+QUEUED", "BF.MADD k more yetmore");
    EXPECT(c, "+QUEUED", "RENAME k l");
    EXPECT(c, "*4 :1 +OK *2 :0 :1 +OK", "EXEC");
    EXPECT(c, "*2 :1 :1", "EVAL %s 0",
           "local a = redis.call('MOVE', 'l', 7) redis.call('SELECT', 7) "
           "return {a, redis.call('BF.EXISTS', 'l', 'yetmore')}");
    check_pair(pair, 2);
    server_restart(pair.primary, STOP_KILL);
    CHECK_TIDY(pair.primary);
    EXPECT(c, "+OK", "SELECT 7");
    EXPECT(c, "*3 :1 :1 :1", "BF.MEXISTS l k1 more yetmore");
    EXPECT(c, ":1", "DEL l");
    CHECK_TIDY(pair.primary);
    CHECK_UINT(audit(pair.primary).nfilters, 1);
}

TEST(move) {
    check_move(aof_plain);
    check_move(aof_preamble);
}

/* Valkey 9.1 tells a notification the database of the transaction, and Valkey 8.1.1 leaves the
 * client in the database of the notification: here, on the replica and in the AOF, which have
 * scripts as transactions. */
static void check_move_and_stay(const char *config) {
    Pair pair = start_pair(config);
    Client *c = pair.primary->client;
    fill(c, "k");
    EXPECT(c, "*3 +OK :1 :0", "EVAL %s 0",
           "return {redis.call('SET', 'plain', 'x'), redis.call('MOVE', 'k', 5), "
           "redis.call('EXISTS', 'k')}");
    EXPECT(c, ":1", "MOVE plain 3");
    EXPECT(c, "+OK", "SET here x");
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "SET plain x");
    EXPECT(c, "+QUEUED", "MOVE plain 4");
    EXPECT(c, "+QUEUED", "SET too x");
    EXPECT(c, "*3 +OK :1 +OK", "EXEC");
    fill(c, "k");
    EXPECT(c, ":1", "COPY k l DB 6");
    EXPECT(c, "+OK", "SET also x");
    EXPECT(c, ":4", "EXISTS here too also k");
    EXPECT(c, "+OK", "SELECT 5");
    check_alive(c, "k", "k");
    check_pair(pair, 3);
    server_restart(pair.primary, STOP_KILL);
    CHECK_TIDY(pair.primary);
    EXPECT(c, ":4", "EXISTS here too also k");
    EXPECT(c, "+OK", "SELECT 5");
    check_alive(c, "k", "k");
}

TEST(move_leaves_everybody_in_their_database) {
    check_move_and_stay(aof_plain);
    check_move_and_stay(aof_preamble);
}

/* ---- DUMP and RESTORE ---- */

TEST(dump_and_restore) {
    Pair pair = start_pair(aof_plain);
    Client *c = pair.primary->client;
    fill(c, "k");
    redisReply *payload = dump(c, "k");
    EXPECT(c, "-BUSYKEY...", "RESTORE k 0 %b", PAYLOAD(payload));
    EXPECT(c, "+OK", "RESTORE {other} 0 %b", PAYLOAD(payload));
    EXPECT(c, "+OK", "RESTORE expiring 100000 %b", PAYLOAD(payload));
    EXPECT(c, "+OK", "SELECT 2");
    EXPECT(c, "+OK", "RESTORE k 0 %b", PAYLOAD(payload));
    EXPECT(c, "+OK", "RESTORE l 0 %b", PAYLOAD(payload));
    EXPECT(c, "+OK", "RESTORE l 0 %b REPLACE", PAYLOAD(payload));
    EXPECT(c, "+OK", "RESTORE l 0 %b REPLACE", PAYLOAD(payload));
    check_alive(c, "k", "k");
    check_alive(c, "l", "k");
    EXPECT(c, ":1", "BF.ADD k more");
    EXPECT(c, ":0", "BF.EXISTS l more");
    EXPECT(c, ":1", "DEL k");
    check_alive(c, "l", "k");
    check_pair(pair, 4);
    EXPECT(c, "+OK", "SELECT 0");
    check_alive(c, "{other}", "k");
    check_alive(c, "k", "k");

    server_restart(pair.primary, STOP_KILL);
    CHECK_TIDY(pair.primary);
    check_alive(c, "{other}", "k");
    CHECK_UINT(audit(pair.primary).nfilters, 4);
    Server *another = server_start(NULL);
    EXPECT(another->client, "+OK", "RESTORE k 0 %b", PAYLOAD(payload));
    check_alive(another->client, "k", "k");
    CHECK_TIDY(another);
}

/* Regression: the id of a restored filter was sent to the replica a second time, with the event of
 * a string that got the same name in another database. After a promotion the next filter of that
 * name took it. */
TEST(ids_are_told_once) {
    Pair pair = start_pair(NULL);
    Client *c = pair.primary->client, *r = pair.replica->client;
    fill(c, "k");
    redisReply *payload = dump(c, "k");
    EXPECT(c, "+OK", "RESTORE l 0 %b", PAYLOAD(payload));
    EXPECT(c, "+OK", "SET string x");
    redisReply *string = command(c, "DUMP string");
    EXPECT(c, "+OK", "SELECT 2");
    EXPECT(c, "+OK", "RESTORE l 0 %b", PAYLOAD(string));
    EXPECT(c, "+OK", "SELECT 0");
    check_pair(pair, 2);
    EXPECT(r, "+OK", "REPLICAOF NO ONE");
    EXPECT(r, "+OK", "RENAME l m");
    EXPECT(r, "+OK", "RESTORE l 0 %b", PAYLOAD(payload));
    EXPECT(r, ":1", "BF.ADD l more");
    EXPECT(r, ":0", "BF.EXISTS m more");
    CHECK_TIDY(pair.replica);
    EXPECT(r, ":1", "DEL l");
    check_alive(r, "m", "k");
    CHECK_TIDY(pair.replica);
}

/* Ids of copies and of restored filters were drawn from the same series: here two filters shared
 * their shards. */
TEST(copied_and_restored_filters_are_two) {
    Pair pair = start_pair(NULL);
    Client *c = pair.primary->client;
    fill(c, "k");
    EXPECT(c, ":1", "COPY k l");
    EXPECT(c, "+OK", "RENAME l m");
    redisReply *payload = dump(c, "k");
    EXPECT(c, "+OK", "RESTORE l 0 %b", PAYLOAD(payload));
    EXPECT(c, ":1", "BF.ADD l more");
    EXPECT(c, ":0", "BF.EXISTS m more");
    check_pair(pair, 3);
}

/* The number from which a restored filter's id is derived must not start over after a restart, not
 * even from a rewritten AOF. Nor may it differ on the replica, neither because of a failed RESTORE
 * nor because of what the replica did before. */
TEST(restored_ids_are_new_and_the_same_everywhere) {
    const char *configs[] = {aof_plain, aof_preamble};
    for (int i = 0; i < 2; i++) {
        Server *primary = server_start(configs[i]), *replica = server_start(configs[i]);
        Pair pair = {primary, replica};
        Client *c = primary->client;
        fill(c, "k");
        redisReply *payload = dump(c, "k");
        for (int n = 0; n < 3; n++)
            EXPECT(replica->client, "+OK", "RESTORE r%d 0 %b", n, PAYLOAD(payload));
        server_follow(replica, primary);
        EXPECT(c, "+OK", "RESTORE l 0 %b", PAYLOAD(payload));
        EXPECT(c, "+OK", "RESTORE gone 1000 %b ABSTTL", PAYLOAD(payload));
        EXPECT(c, "+OK", "RESTORE l 1000 %b REPLACE ABSTTL", PAYLOAD(payload));
        EXPECT(c, "+OK", "RESTORE l 0 %b", PAYLOAD(payload));
        EXPECT(c, "+OK", "RENAME l m0");
        check_pair(pair, 2);

        EXPECT(c, "+Background...", "BGREWRITEAOF");
        server_wait_info(primary, "aof_rewrite_in_progress", "0");
        EXPECT(c, "+OK", "RESTORE l 0 %b", PAYLOAD(payload));
        EXPECT(c, "+OK", "RENAME l m1");
        server_restart(primary, STOP_KILL);
        EXPECT(c, "+OK", "RESTORE l 0 %b", PAYLOAD(payload));
        EXPECT(c, "+OK", "RENAME l m2");
        server_wait_info(replica, "master_link_status", "up");
        EXPECT(c, "+OK", "RESTORE l 0 %b", PAYLOAD(payload));
        check_pair(pair, 5);
        for (int n = 0; n < 3; n++) EXPECT(c, ":0", "BF.EXISTS m%d more", n);
    }
}

/* The second gets the id of the first, which came to nothing. Here its shards stayed behind, in
 * another database. */
TEST(restore_after_one_that_came_to_nothing) {
    Pair pair = start_pair(NULL);
    Client *c = pair.primary->client;
    fill(c, "k");
    redisReply *payload = dump(c, "k");
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "RESTORE l 1000 %b ABSTTL", PAYLOAD(payload));
    EXPECT(c, "+QUEUED", "SELECT 1");
    EXPECT(c, "+QUEUED", "RESTORE l 0 %b", PAYLOAD(payload));
    EXPECT(c, "*3 +OK +OK +OK", "EXEC");
    check_pair(pair, 2);
    check_alive(c, "l", "k");
}

/* Shards that only this server has, since the RESTORE was never replicated; then it becomes a
 * replica. */
TEST(garbage_that_the_primary_does_not_know) {
    Pair pair = start_pair(NULL);
    Client *c = pair.primary->client;
    fill(c, "k");
    redisReply *payload = dump(c, "k");
    server_wait_for_replica(pair.primary, pair.replica);
    EXPECT(pair.replica->client, "+OK", "REPLICAOF NO ONE");
    EXPECT(c, "+OK", "MULTI");
    EXPECT(c, "+QUEUED", "RESTORE gone 1000 %b ABSTTL", PAYLOAD(payload));
    EXPECT(c, "+QUEUED", "REPLICAOF 127.0.0.1 %d", pair.replica->port);
    EXPECT(c, "*2 +OK +OK", "EXEC");
    server_wait_info(pair.primary, "master_link_status", "up");
    check_pair((Pair){pair.replica, pair.primary}, 1);
    check_alive(c, "k", "k");
}

TEST(payload_beyond_the_servers_limit) {
    Server *s = server_start("proto-max-bulk-len 1mb\nrdbcompression no");
    Client *c = s->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 1000000 SHARDSIZE 65536 SEED 1");
    command_batches(c, "BF.MADD", "k", "k", 0, 60000);
    redisReply *payload = dump(c, "k");
    CHECK(payload->len > 1 << 20);
    /* The server answers an error and hangs up while we are still sending, so the answer may not
     * reach us. */
    redisReply *refused = redisCommand(client_new(s)->redis, "RESTORE l 0 %b", PAYLOAD(payload));
    CHECK(!refused || refused->type == REDIS_REPLY_ERROR);
    if (refused) freeReplyObject(refused);
    EXPECT(c, ":0", "EXISTS l");
    CHECK_TIDY(s);
    Server *larger = server_start(NULL);
    EXPECT(larger->client, "+OK", "RESTORE l 0 %b", PAYLOAD(payload));
    CHECK_INT(command_batches(larger->client, "BF.MEXISTS", "l", "k", 0, 60000), 60000);
}

/* ---- all at once ---- */

static void check_mixed(Pair pair) {
    EXPECT(pair.primary->client, "*3 :1 :1 :0", "BF.MEXISTS u a b c");
    EXPECT(pair.primary->client, "*3 :1 :1 :1", "BF.MEXISTS v a b c");
    EXPECT(pair.primary->client, ":0", "EXISTS t");
    check_pair(pair, 2);
    EXPECT(pair.replica->client, "*3 :1 :1 :1", "BF.MEXISTS v a b c");
}

TEST(transaction_and_script) {
    Pair pair = start_pair(aof_plain);
    Client *c = pair.primary->client;
    static const char *const queued[] = {
        "BF.RESERVE t 0.000001 100",
        "BF.ADD t x",
        "DEL t",
        "BF.RESERVE t 0.000001 100 SEED 1",
        "BF.MADD t a b",
        "RENAME t u",
        "COPY u v",
        "BF.ADD v c",
        "COPY u w",
        "DEL w",
        "BF.ADD w y",
        "SET w z",
        "DEL w",
    };
    EXPECT(c, "+OK", "MULTI");
    for (size_t i = 0; i < sizeof(queued) / sizeof(*queued); i++) EXPECT(c, "+QUEUED", queued[i]);
    EXPECT(c, "*13 +OK :1 :1 +OK *2 :1 :1 +OK :1 :1 :1 :1 :1 +OK :1", "EXEC");
    check_mixed(pair);
    EXPECT(c, ":2", "DEL u v");
    check_pair(pair, 0);
    EXPECT(c, ":1", "EVAL %s 0",
           "redis.call('BF.RESERVE', 't', '0.000001', '100') redis.call('BF.ADD', 't', 'x') "
           "redis.call('DEL', 't') redis.call('BF.RESERVE', 't', '0.000001', '100', 'SEED', '1') "
           "redis.call('BF.MADD', 't', 'a', 'b') redis.call('RENAME', 't', 'u') "
           "redis.call('COPY', 'u', 'v') return redis.call('BF.ADD', 'v', 'c')");
    check_mixed(pair);
    server_restart(pair.primary, STOP_KILL);
    CHECK_TIDY(pair.primary);
    EXPECT(c, "*3 :1 :1 :0", "BF.MEXISTS u a b c");
    EXPECT(c, "*3 :1 :1 :1", "BF.MEXISTS v a b c");
}

/* ---- commands that look at keys ---- */

TEST(looking_at_keys) {
    Server *s = server_start(NULL);
    Client *c = s->client;
    fill(c, "k");
    EXPECT(c, "+bf-shards", "TYPE k");
    EXPECT(c, ":1", "TOUCH k");
    EXPECT(c, ":1", "OBJECT REFCOUNT k");
    EXPECT(c, "\"raw\"", "OBJECT ENCODING k");
    EXPECT(c, ":...", "OBJECT IDLETIME k");
    CHECK_RANGE((double)command_int(c, "MEMORY USAGE k"), 100, 10000);
    CHECK_RANGE((double)command_int(c, "MEMORY USAGE %s",
                                    command(c, "BF.SHARDS k")->element[0]->element[1]->str),
                2000, 6000);
    EXPECT(c, "*2 \"0\" *1 \"k\"", "SCAN 0 TYPE bf-shards COUNT 1000");
    EXPECT(c, "-WRONGTYPE...", "GET k");
    EXPECT(c, "-WRONGTYPE...", "GETDEL k");
    EXPECT(c, "-WRONGTYPE...", "APPEND k x");
    check_alive(c, "k", "k");
}

TEST(equal_filters_have_equal_digests) {
    Pair pair = start_pair(NULL);
    Client *c = pair.primary->client;
    EXPECT(c, "+OK", "BF.RESERVE k 0.0001 1000 SEED 1 SHARDSIZE 4096");
    EXPECT(c, "+OK", "BF.RESERVE l 0.0001 1000 SEED 1 SHARDSIZE 4096");
    const char *empty = command_text(c, "DEBUG DIGEST-VALUE k");
    CHECK_STR(command_text(c, "DEBUG DIGEST-VALUE l"), empty);
    EXPECT(c, "*3 :1 :1 :1", "BF.MADD k a b c");
    const char *full = command_text(c, "DEBUG DIGEST-VALUE k");
    CHECK(strcmp(full, empty) != 0);
    CHECK_STR(command_text(c, "DEBUG DIGEST-VALUE l"), empty);
    EXPECT(c, "*3 :1 :1 :1", "BF.MADD l c b a");
    EXPECT(c, ":1", "COPY k m");
    EXPECT(c, "+OK", "RENAME l n");
    server_wait_for_replica(pair.primary, pair.replica);
    CHECK_STR(command_text(c, "DEBUG DIGEST-VALUE m"), full);
    CHECK_STR(command_text(c, "DEBUG DIGEST-VALUE n"), full);
    CHECK_STR(command_text(pair.replica->client, "DEBUG DIGEST-VALUE k"), full);
    CHECK_STR(command_text(pair.replica->client, "DEBUG DIGEST"), command_text(c, "DEBUG DIGEST"));
    EXPECT(c, ":1", "BF.ADD m d");
    CHECK(strcmp(command_text(c, "DEBUG DIGEST-VALUE m"), full) != 0);
    EXPECT(c, "+OK", "BF.RESERVE o 0.0001 1000 SEED 2 SHARDSIZE 4096");
    CHECK(strcmp(command_text(c, "DEBUG DIGEST-VALUE o"), empty) != 0);
}

TEST(watch) {
    Server *s = server_start(NULL);
    Client *c = s->client, *other = client_new(s);
    static const struct {
        const char *command;
        bool aborts;
    } cases[] = {
        {"BF.ADD k a", false},         {"BF.ADD k b", true},     {"BF.MADD k a b", false},
        {"BF.MADD k a b c", true},     {"BF.EXISTS k z", false}, {"BF.HEAL k", false},
        {"BF.RESERVE k 0.1 1", false}, {"DEL k", true},          {"BF.RESERVE k 0.1 100", true},
    };
    EXPECT(c, "+OK", "BF.RESERVE k 0.01 100 SEED 1");
    EXPECT(c, ":1", "BF.ADD k a");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        EXPECT(c, "+OK", "WATCH k");
        EXPECT(other, "...", cases[i].command);
        EXPECT(c, "+OK", "MULTI");
        EXPECT(c, "+QUEUED", "PING");
        if (!EXPECT(c, cases[i].aborts ? "_" : "*1 +PONG", "EXEC"))
            CHECK_FAIL("after %s", cases[i].command);
    }
}

/* The next message of a subscriber, as text. */
static const char *next_message(Client *c) {
    void *r = NULL;
    if (redisGetReply(c->redis, &r) != REDIS_OK || !r) {
        CHECK_FAIL("no message comes");
        return "";
    }
    const char *text = keep(reply_text(r));
    freeReplyObject(r);
    return text;
}

TEST(client_side_caching) {
    Server *s = server_start(NULL);
    Client *c = s->client, *other = client_new(s), *listener = client_new(s);
    fill(other, "k");
    EXPECT(listener, "*3 \"subscribe\"...", "SUBSCRIBE __redis__:invalidate");
    long long id = 0; /* of the listener: it can't ask any more */
    const char *list = command_text(other, "CLIENT LIST TYPE pubsub");
    CHECK(sscanf(list, "\"id=%lld", &id) == 1);
    EXPECT(c, "+OK", "CLIENT TRACKING ON REDIRECT %lld", id);
    const char *const changes[] = {"BF.ADD k fresh", "DEL k", "BF.RESERVE k 0.01 100"};
    for (int i = 0; i < 3; i++) {
        EXPECT(c, ":...", "BF.EXISTS k k1");
        EXPECT(c, "_", "GET marker");
        EXPECT(other, ":...",
               "BF.ADD k k1"); /* a duplicate, but after the DEL: it makes the filter */
        if (i == 2) EXPECT(other, ":1", "DEL k");
        EXPECT(other, "...", changes[i]);
        CHECK_STR(next_message(listener), "*3 \"message\" \"__redis__:invalidate\" *1 \"k\"");
        EXPECT(other, ":...", "EXISTS k");
    }
    /* What changes nothing invalidates nothing: the next message is the marker's. */
    EXPECT(other, "...", "BF.ADD k x");
    EXPECT(c, ":1", "BF.EXISTS k x");
    EXPECT(other, ":0", "BF.ADD k x");
    EXPECT(c, "_", "GET marker");
    EXPECT(other, "+OK", "SET marker x");
    CHECK_STR(next_message(listener), "*3 \"message\" \"__redis__:invalidate\" *1 \"marker\"");
}

/* All events on the filter's name since the last call. */
static const char *events(Client *listener, Client *c) {
    static char all[512];
    char event[64];
    all[0] = '\0';
    command(c, "SET mark x");
    for (;;) {
        const char *text = next_message(listener), *at = strstr(text, "__:");
        at = at ? strstr(at + 1, "__:") : NULL; /* behind the pattern */
        if (!at || strstr(text, "\"mark\"")) return all;
        if (sscanf(at, "__:%63[^\"]", event) == 1 && strstr(text, "\"k\"")) {
            strcat(all, event);
            strcat(all, " ");
        }
    }
}

TEST(keyspace_events) {
    Server *s = server_start("notify-keyspace-events EAd");
    Client *c = s->client, *listener = client_new(s);
    EXPECT(listener, "*3...", "PSUBSCRIBE __keyevent@0__:*");
    static const struct {
        const char *command, *events;
    } cases[] = {
        {"BF.RESERVE k 0.000001 4 NONSCALING SEED 1", "bf.reserve "},
        {"BF.RESERVE k 0.000001 4", ""},
        {"BF.ADD k a", "bf.add "},
        {"BF.ADD k a", ""},
        {"BF.MADD k a b c", "bf.add "},
        {"BF.MADD k a b c", ""},
        {"BF.EXISTS k a", ""},
        {"BF.MADD k d e", "bf.add "},
        {"BF.ADD k f", ""},
        {"BF.HEAL k", ""},
        {"DEL k", "del "},
        {"BF.EXISTS k a", ""},
        {"BF.ADD k a", "bf.reserve bf.add "},
        {"DEL k", "del "},
        {"BF.INSERT k SEED 1 ITEMS a", "bf.reserve bf.add "},
        {"BF.INSERT k ITEMS a b", "bf.add "},
        {"BF.INSERT k ITEMS a b", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        command(c, cases[i].command);
        if (!CHECK_STR(events(listener, c), cases[i].events))
            CHECK_FAIL("after %s", cases[i].command);
    }
}
