/* Ids: no filter ever gets the id of another, and primary, replica and replay of an AOF agree on
 * every name. */
#include "atomic.h"
#include "check.h"
#include "client.h"
#include "cluster_fixture.h"
#include "primary.h"
#include "snapshot.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* A filter that must grow, so that its descriptor is sent again; its shards are small. */
#define RESERVE "BF.RESERVE %s 0.0001 100 SEED 1 SHARDSIZE 4096"

/* All filters have the same seed: at most a few of these items are taken for known ones. */
static void fill(Client *c, const char *key, const char *prefix, int n) {
    CHECK_RANGE((double)command_batches(c, "BF.MADD", key, prefix, 0, n), n - 3, n);
}

static void check_filled(Client *c, const char *key, const char *prefix, int n) {
    CHECK_INT(command_batches(c, "BF.MEXISTS", key, prefix, 0, n), n);
}

/* A payload that any server makes a filter of: made where DUMP carries the bits. */
static const redisReply *whole_dump(void) {
    Server *s = server_start(NULL);
    EXPECT(s->client, "+OK", RESERVE, "k");
    fill(s->client, "k", "old", 50);
    const redisReply *dump = command(s->client, "DUMP k");
    return dump;
}

static void restore(Client *c, const char *key, const redisReply *dump) {
    EXPECT(c, "+OK", "RESTORE %s 0 %b", key, dump->str, (size_t)dump->len);
}

/* ---- ids that came twice ---- */

/* The count of copies went back to what it was when the source was dumped. */
TEST(copies_of_a_restored_filter_are_new) {
    Cluster *cluster = cluster_start(1, false, NULL);
    REQUIRE(cluster);
    Client *c = cluster->node[0]->client;
    EXPECT(c, "+OK", RESERVE, "{t}a");
    fill(c, "{t}a", "a", 10);
    const redisReply *dump = command(c, "DUMP {t}a");
    EXPECT(c, ":1", "COPY {t}a {t}b");
    fill(c, "{t}b", "b", 40);
    EXPECT(c, "+OK", "RESTORE {t}a 0 %b REPLACE", dump->str, (size_t)dump->len);
    EXPECT(c, ":1", "COPY {t}a {t}c");
    check_filled(c, "{t}b", "b", 40);
    fill(c, "{t}c", "c", 40);
    check_filled(c, "{t}b", "b", 40);
    check_filled(c, "{t}a", "a", 10);
}

/* The count of restored filters was lost with the snapshot that never came, and the data stayed. */
TEST(an_aborted_resync_brings_no_id_back) {
    Server *s = server_start("repl-diskless-load swapdb");
    const redisReply *dump = whole_dump();
    restore(s->client, "{t}a", dump);
    fill(s->client, "{t}a", "a", 40);
    primary_that_breaks_off(s);
    check_filled(s->client, "{t}a", "a", 40);
    restore(s->client, "{t}b", dump);
    fill(s->client, "{t}b", "b", 40);
    check_filled(s->client, "{t}a", "a", 40);
}

/* A rewritten AOF had no place for the count when no filter was there. */
TEST(a_rewritten_aof_replays_to_the_same_ids) {
    Server *s = server_start("appendonly yes\nappendfsync always\naof-use-rdb-preamble no");
    Client *c = s->client;
    const redisReply *dump = whole_dump();
    server_wait_info(s, "aof_rewrite_in_progress", "0");
    restore(c, "gone", dump);
    EXPECT(c, ":1", "DEL gone");
    server_wait_info(s, "bf_sweeps_pending", "0");
    EXPECT(c, "+Background append only file rewriting started", "BGREWRITEAOF");
    server_wait_info(s, "aof_rewrite_in_progress", "0");
    restore(c, "kept", dump);
    fill(c, "kept", "new", 500); /* grows */
    Snapshot *before = snapshot_take(s);
    server_restart(s, STOP_KILL);
    CHECK(!server_logged(s, "item exists"));
    check_filled(s->client, "kept", "new", 500);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
}

/* What a node imports used to bring the other node's count of restores. */
TEST(an_imported_slot_brings_no_id_back) {
    Cluster *cluster = cluster_start(2, false, NULL);
    REQUIRE(cluster);
    const AtomicKind kind = atomic_kind(cluster->node[0]);
    if (kind == ATOMIC_NONE) return;
    const redisReply *dump = whole_dump();
    Client *source = cluster->node[0]->client, *target = cluster->node[1]->client;
    const char *moving = cluster_name(cluster, "m", 0, 8191);
    const char *living = cluster_name(cluster, "t", 8192, 16383);
    char first[64], second[64];
    snprintf(first, sizeof(first), "{%s}a", living);
    snprintf(second, sizeof(second), "{%s}b", living);
    restore(target, first, dump);
    fill(target, first, "a", 3000);
    EXPECT(source, "+OK", RESERVE, moving);
    fill(source, moving, "m", 100);
    REQUIRE(atomic_move(cluster, kind, cluster_slot(cluster, moving), 0, 1));
    check_filled(target, moving, "m", 100);
    restore(target, second, dump);
    fill(target, second, "b", 3000);
    check_filled(target, first, "a", 3000);
}

/* ---- all servers agree ---- */

static void copy_and_restore(Client *c, const redisReply *dump) {
    EXPECT(c, "+OK", RESERVE, "a");
    fill(c, "a", "a", 300);
    EXPECT(c, ":1", "COPY a b");
    EXPECT(c, ":1", "COPY a c DB 3");
    restore(c, "d", dump);
    EXPECT(c, "+OK", "RESTORE d 0 %b REPLACE", dump->str, (size_t)dump->len);
    /* Dead and born again within one transaction, by a command that frees later, and by a
     * script. */
    EXPECT(c, "+OK", "MULTI");
    static const char *const lines[] = {
        "UNLINK b", "COPY a b",         "DEL d",         "COPY a d", "COPY a e", "RENAME e f",
        "COPY f e", "COPY a b REPLACE", "COPY a g DB 5", "SELECT 5", "COPY g h", "SELECT 0"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) EXPECT(c, "+QUEUED", lines[i]);
    EXPECT(c, "+QUEUED", "RESTORE r 0 %b", dump->str, (size_t)dump->len);
    EXPECT(c, "*13...", "EXEC");
    EXPECT(c, ":1", "EVAL %s 0",
           "redis.call('COPY', 'a', 's') redis.call('UNLINK', 's') return redis.call('COPY', 'b', "
           "'s')");
    /* What fails leaves no trace. */
    EXPECT(c, ":0", "COPY a b");
    EXPECT(c, "-BUSYKEY...", "RESTORE d 0 %b", dump->str, (size_t)dump->len);
    EXPECT(c, "-ERR...", "RESTORE z 0 %b", dump->str, (size_t)dump->len - 1);
    static const char *const keys[] = {"a", "b", "d", "e", "f", "r", "s"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        fill(c, keys[i], "more", 300); /* grows: the id is sent again */
        check_filled(c, keys[i], "more", 300);
    }
    EXPECT(c, "+OK", "FLUSHDB ASYNC");
    EXPECT(c, "+OK", RESERVE, "a");
    EXPECT(c, ":1", "COPY a b");
    restore(c, "d", dump);
    fill(c, "b", "b", 300);
    fill(c, "d", "d", 300);
}

TEST(replicas_and_replay_agree_on_ids) {
    Server *s = server_start("appendonly yes\nappendfsync always"),
           *replica = server_start("appendonly yes\nappendfsync always"),
           *second = server_start(NULL);
    const redisReply *dump = whole_dump();
    server_follow(replica, s);
    server_follow(second, replica);
    copy_and_restore(s->client, dump);
    server_wait_info(s, "bf_sweeps_pending", "0");
    server_wait_for_replica(s, replica);
    server_wait_for_replica(s, second);
    Snapshot *before = snapshot_take(s);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(replica));
    CHECK_SAME_SNAPSHOT(before, snapshot_take(second));
    server_restart(s, STOP_KILL);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
    server_restart(replica, STOP_KILL);
    CHECK_SAME_SNAPSHOT(before, snapshot_take(replica));
}

/* The id is sent before the command, and only if the command did something. */
TEST(ids_are_told_ahead) {
    Server *s = server_start(NULL);
    const redisReply *dump = whole_dump();
    EXPECT(s->client, ":1", "BF.ADD a x");
    Client *stream = stream_new(s);
    stream_read(stream);
    EXPECT(s->client, ":1", "COPY a b");
    const char *text = stream_read(stream);
    CHECK(text_matches(text, "...MULTI\nBF.NEXTID b ...\nCOPY a b\nEXEC\n"));
    restore(s->client, "c", dump);
    text = stream_read(stream);
    CHECK(text_matches(text, "MULTI\nBF.NEXTID c ...\nRESTORE c 0 ...\nEXEC\n"));
    EXPECT(s->client, ":0", "COPY a b");
    EXPECT(s->client, "-ERR...", "RESTORE z 0 %b", dump->str, (size_t)dump->len - 1);
    EXPECT(s->client, "+OK", "SET string x");
    EXPECT(s->client, ":1", "COPY string z");
    CHECK(!strstr(stream_read(stream), "NEXTID"));
}

/* An id that was sent but not used is not used later for something else. */
TEST(told_ids_are_for_one_name) {
    Server *s = server_start("replica-read-only no");
    Primary primary = primary_start(s);
    primary_send(&primary, "BF.NEXTID b 00000000000000aa");
    primary_send(&primary, "BF.NEXTID c 00000000000000bb");
    primary_send(&primary, "BF.NEXTID c 00000000000000cc");
    primary_send(&primary, "BF.NEXTID d rubbish");
    primary_send(&primary, "BF.ADD a x");
    primary_send(&primary, "COPY a c");
    primary_send(&primary, "COPY a d");
    EXPECT(s->client, "...\"bf:{c}:00000000000000cc:0:0\"...", "BF.SHARDS c");
    CHECK(!strstr(command_text(s->client, "BF.SHARDS d"), "00000000000000"));
    primary_send(&primary, "COPY a c REPLACE");
    CHECK(!strstr(command_text(s->client, "BF.SHARDS c"), "00000000000000"));
    primary_send(&primary, "COPY a b");
    EXPECT(s->client, "...\"bf:{b}:00000000000000aa:0:0\"...", "BF.SHARDS b");
    primary_stop(&primary);
    CHECK_INT(server_logged(s, "bad id"), true);
}

/* ---- filters that leave, and filters that only seem to ---- */

/* Regression: a filter that was dumped and renamed at the same moment was permanently taken for one
 * that MIGRATE moves away. */
TEST(a_dumped_and_renamed_filter_is_removed_with_its_shards) {
    Cluster *cluster = cluster_start(2, true, NULL);
    REQUIRE(cluster);
    const char *x = cluster_name(cluster, "x", 0, 8191);
    const int slot = cluster_slot(cluster, x);
    const char *y = cluster_name(cluster, "y", slot, slot);
    Server *s = cluster->node[0], *replica = cluster->node[2];
    for (int moving = 0; moving < 2; moving++) {
        EXPECT(s->client, "+OK", RESERVE, x);
        fill(s->client, x, "x", 500);
        EXPECT(s->client, "+OK", "SET %s x", y); /* else the server asks the other node for it */
        if (moving) cluster_open_slot(cluster, slot, 0, 1);
        EXPECT(s->client, "+OK", "MULTI");
        EXPECT(s->client, "+QUEUED", "DUMP %s", x);
        EXPECT(s->client, "+QUEUED", "RENAME %s %s", x, y);
        EXPECT(s->client, "*2...", "EXEC");
        for (int i = 0; moving && i < 2; i++)
            EXPECT(cluster->node[i]->client, "+OK", "CLUSTER SETSLOT %d STABLE", slot);
        check_filled(s->client, y, "x", 500);
        EXPECT(s->client, ":1", "DEL %s", y);
        CHECK_SHARDS(s, 0);
        CHECK_SHARDS(replica, 0);
        server_wait_info(replica, "bf_sweeps_pending", "0");
    }
}

/* ---- atomic slot migration ---- */

/* Stops the thread that frees what the server has put aside, and only that; returns its number, or
 * -1. */
static pid_t stop_freeing(const Server *s) {
    char path[64], name[32];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)s->pid);
    DIR *tasks = opendir(path);
    pid_t found = -1;
    for (const struct dirent *task; tasks && found < 0 && (task = readdir(tasks));) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/comm", (int)s->pid, task->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof(name), file) && strcmp(name, "bio_lazy_free\n") == 0)
            found = (pid_t)atoi(task->d_name);
        if (file) fclose(file);
    }
    if (tasks) closedir(tasks);
    if (found < 0 || ptrace(PTRACE_SEIZE, found, NULL, NULL) != 0) return -1;
    return ptrace(PTRACE_INTERRUPT, found, NULL, NULL) == 0 && waitpid(found, NULL, __WALL) == found
               ? found
               : -1;
}

/* Redis frees what has left a slot in the background. Until then its id counted as alive, and the
 * filter that came back was refused, with a line in the log and nothing else. */
TEST(a_filter_comes_back_before_it_was_freed) {
    Cluster *cluster = cluster_start(2, false, NULL);
    REQUIRE(cluster);
    const AtomicKind kind = atomic_kind(cluster->node[0]);
    if (kind == ATOMIC_NONE) return;
    const char *name = cluster_name(cluster, "seen", 0, 8191);
    const int slot = cluster_slot(cluster, name);
    Client *c = cluster->node[0]->client;
    EXPECT(c, "+OK", RESERVE, name);
    fill(c, name, "x", 2000);
    const pid_t thread = stop_freeing(cluster->node[0]);
    REQUIRE(thread > 0);
    REQUIRE(atomic_move(cluster, kind, slot, 0, 1));
    REQUIRE(atomic_move(cluster, kind, slot, 1, 0));
    check_filled(c, name, "x", 2000);
    fill(c, name, "y", 2000);
    /* All of it goes, also what was made after it came back. */
    EXPECT(c, ":1", "DEL %s", name);
    CHECK_INT(ptrace(PTRACE_DETACH, thread, NULL, NULL), 0);
    for (int i = 0; i < 2; i++) CHECK_SHARDS(cluster->node[i], 0);
}

/* Strings that a filter adopted are keys of the same slot; the filter may name them on the other
 * node, too. */
TEST(adopted_strings_migrate_with_their_filter) {
    Cluster *cluster = cluster_start(2, false, NULL);
    REQUIRE(cluster);
    const AtomicKind kind = atomic_kind(cluster->node[0]);
    if (kind == ATOMIC_NONE) return;
    const char *name = cluster_name(cluster, "seen", 0, 8191);
    const int slot = cluster_slot(cluster, name);
    Client *from = cluster->node[0]->client, *to = cluster->node[1]->client;
    EXPECT(from, "+OK", "BF.ADOPT %s PREFIX {%s}bits BITS 16", name, name);
    fill(from, name, "x", 500);
    REQUIRE(atomic_move(cluster, kind, slot, 0, 1));
    check_filled(to, name, "x", 500);
    EXPECT(to, ":1", "BF.ADD %s another", name);
    CHECK(strstr(command_text(to, "BF.SHARDS %s", name), "}bits\"") != NULL);
}

/* The shards of filters that had just died went along, and nobody knew of them any more. */
TEST(the_dead_do_not_migrate) {
    enum { ROUNDS = 6, NFILTERS = 30 };
    Cluster *cluster = cluster_start(2, true, NULL);
    REQUIRE(cluster);
    const AtomicKind kind = atomic_kind(cluster->node[0]);
    if (kind == ATOMIC_NONE) return;
    const char *name = cluster_name(cluster, "seen", 0, 8191);
    const int slot = cluster_slot(cluster, name);
    EXPECT(cluster->node[0]->client, "+OK", RESERVE, name);
    fill(cluster->node[0]->client, name, "x", 1000);
    const size_t n = cluster_count(cluster_shards_on(cluster->node[0]));
    for (int round = 0; round < ROUNDS; round++) {
        const int from = round % 2, to = 1 - from;
        Client *c = cluster->node[from]->client;
        for (int i = 0; i < NFILTERS; i++) {
            char key[64];
            snprintf(key, sizeof(key), "{%s}%d", name, i);
            EXPECT(c, "+OK", RESERVE, key);
            fill(c, key, "x", 300);
        }
        for (int i = 0; i < NFILTERS; i++) EXPECT(c, ":1", "DEL {%s}%d", name, i);
        REQUIRE(atomic_move(cluster, kind, slot, from, to));
        CHECK_SHARDS(cluster->node[to], n);
        CHECK_SHARDS(cluster->node[from], 0);
        CHECK_SHARDS(cluster->node[2 + to], n);
        CHECK_SHARDS(cluster->node[2 + from], 0);
    }
    check_filled(cluster->node[0]->client, name, "x", 1000);
}

/* Filters come and go while their slot goes from node to node: those that die on one node, die on
 * the other, too. */
TEST(filters_that_die_during_a_migration_leave_nothing) {
    enum { ROUNDS = 8 };
    Cluster *cluster = cluster_start(2, false, NULL);
    REQUIRE(cluster);
    const AtomicKind kind = atomic_kind(cluster->node[0]);
    if (kind == ATOMIC_NONE) return;
    const char *name = cluster_name(cluster, "seen", 0, 8191);
    const int slot = cluster_slot(cluster, name);
    Client *c = cluster->node[0]->client;
    EXPECT(c, "+OK", RESERVE, name);
    fill(c, name, "x", 1000);
    const size_t n = cluster_count(cluster_shards_on(cluster->node[0]));
    const pid_t churner = fork();
    if (churner == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        Router *router = router_new(cluster);
        for (int i = 0;; i++) {
            char key[64];
            snprintf(key, sizeof(key), "{%s}%d", name, i % 50);
            freeReplyObject(router_command(router, RESERVE, key));
            freeReplyObject(router_command(router, "BF.MADD %s a b c", key));
            freeReplyObject(router_command(router, "COPY %s {%s}copy REPLACE", key, name));
            freeReplyObject(router_command(router, "%s %s", i % 2 ? "DEL" : "UNLINK", key));
        }
    }
    for (int round = 0; round < ROUNDS && check_failures() == 0; round++)
        atomic_move(cluster, kind, slot, round % 2, 1 - round % 2);
    kill(churner, SIGKILL);
    waitpid(churner, NULL, 0);
    for (int i = 0; i < 50; i++) command(c, "DEL {%s}%d", name, i);
    command(c, "DEL {%s}copy", name);
    CHECK_SHARDS(cluster->node[0], n);
    CHECK_SHARDS(cluster->node[1], 0);
    check_filled(c, name, "x", 1000);
}
