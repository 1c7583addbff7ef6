#include "cluster_fixture.h"
#include "check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    STEP_MS = 10,
    FORM_MS = 60000,
    SHARDS_MS = 60000,
    SWEEP_MS = 60000,
    ROUTE_MS = 180000,
    BATCH = 200,
    NITEMS = 20000,           /* of a filter of some thirty small shards */
    TIMEOUT_MS = 10000,       /* of the nodes, unless the test's own configuration has another */
    FORMING_TIMEOUT_MS = 500, /* nodes that hear from each other twice as often agree sooner */
};

static long long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

/* ---- forming ---- */

static int first_slot(const Cluster *cluster, int i) {
    return i * CLUSTER_NSLOTS / cluster->nprimaries;
}

int cluster_home(const Cluster *cluster, int slot) {
    int i = 0;
    while (slot >= first_slot(cluster, i + 1)) i++;
    return i;
}

/* Does the node know all nodes, none in handshake? */
static bool knows_all(const Cluster *cluster, Client *c) {
    char known[64];
    const char *info = command_text(c, "CLUSTER INFO"), *nodes = command_text(c, "CLUSTER NODES");
    snprintf(known, sizeof(known), "cluster_known_nodes:%d\\x0d", cluster->nnodes);
    return strstr(info, known) && !strstr(nodes, "handshake");
}

static bool is_sound(Client *c) {
    return strstr(command_text(c, "CLUSTER INFO"), "cluster_state:ok");
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Who serves what and who replicates whom, as a node sees it: of each line of CLUSTER NODES the id,
 * the primary's id and the slots (those on the move are shown by their two nodes alone). */
static const char *roles_seen(Client *c) {
    char *text = NULL, *lines[CLUSTER_MAX_NODES], *rest, *after;
    size_t len, n = 0;
    const redisReply *nodes = command(c, "CLUSTER NODES");
    if (nodes->type != REDIS_REPLY_STRING) return "";
    FILE *out = open_memstream(&text, &len);
    for (char *line = strtok_r(nodes->str, "\n", &rest); line && n < CLUSTER_MAX_NODES;
         line = strtok_r(NULL, "\n", &rest))
        lines[n++] = line;
    qsort(lines, n, sizeof(*lines), by_text);
    for (size_t i = 0; i < n; i++) {
        int field = 0;
        for (char *word = strtok_r(lines[i], " ", &after); word;
             word = strtok_r(NULL, " ", &after), field++)
            if (field == 0 || field == 3 || (field >= 8 && *word != '[')) fprintf(out, "%s ", word);
        putc('\n', out);
    }
    fclose(out);
    return keep(text);
}

bool cluster_wait(Cluster *cluster) {
    for (long long end = now_ms() + FORM_MS; now_ms() < end; pause_ms(STEP_MS)) {
        const char *first = NULL;
        bool all = true;
        for (int i = 0; all && i < cluster->nnodes; i++) {
            Client *c = cluster->node[i]->client;
            if (!cluster->node[i]->pid) continue;
            if (!c->redis) return CHECK_FAIL("node %d is not connected", i);
            const char *seen = roles_seen(c);
            if (!first) first = seen;
            all = is_sound(c) && knows_all(cluster, c) && strcmp(seen, first) == 0;
        }
        if (all) return true;
    }
    for (int i = 0; i < cluster->nnodes; i++)
        if (cluster->node[i]->pid)
            printf("    node %d sees\n%s", i, roles_seen(cluster->node[i]->client));
    return CHECK_FAIL("the cluster does not become sound");
}

static bool wait_for_all_known(Cluster *cluster) {
    for (long long end = now_ms() + FORM_MS; now_ms() < end; pause_ms(STEP_MS)) {
        int nknown = 0;
        for (int i = 0; i < cluster->nnodes; i++)
            nknown += knows_all(cluster, cluster->node[i]->client);
        if (nknown == cluster->nnodes) return true;
    }
    return CHECK_FAIL("the nodes do not get to know each other");
}

static void make_replicas(Cluster *cluster) {
    for (int i = 0; i < cluster->nprimaries; i++) {
        Server *replica = cluster->node[cluster->nprimaries + i];
        EXPECT(replica->client, "+OK", "CLUSTER REPLICATE %s", cluster->id[i]);
        server_wait_info(replica, "master_link_status", "up");
    }
}

void cluster_set_timeout(Cluster *cluster, int ms) {
    for (int i = 0; i < cluster->nnodes; i++)
        if (cluster->node[i]->pid)
            EXPECT(cluster->node[i]->client, "+OK", "CONFIG SET cluster-node-timeout %d", ms);
}

static void allow_failover(Cluster *cluster, bool yes) {
    for (int i = 0; i < cluster->nnodes; i++)
        EXPECT(cluster->node[i]->client, "+OK", "CONFIG SET cluster-replica-no-failover %s",
               yes ? "no" : "yes");
}

/* Nodes find a new cluster sound after two seconds at the earliest; all the rest happens
 * meanwhile. */
static bool form(Cluster *cluster) {
    for (int i = 1; i < cluster->nnodes; i++)
        for (int j = 0; j < i; j++)
            EXPECT(cluster->node[i]->client, "+OK", "CLUSTER MEET 127.0.0.1 %d",
                   cluster->node[j]->port);
    if (!wait_for_all_known(cluster)) return false;
    if (cluster->nnodes > cluster->nprimaries) make_replicas(cluster);
    return cluster_wait(cluster);
}

Cluster *cluster_start(int nprimaries, bool replicas, const char *config) {
    char lines[1024];
    int timeout_ms = TIMEOUT_MS;
    Cluster *cluster = keep(calloc(1, sizeof(*cluster)));
    cluster->nprimaries = nprimaries;
    cluster->nnodes = nprimaries * (replicas ? 2 : 1);
    snprintf(lines, sizeof(lines),
             "cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-node-timeout %d\n"
             "repl-diskless-sync yes\n%s",
             timeout_ms, config ? config : "");
    for (int i = 0; i < cluster->nnodes; i++) {
        Server *s = cluster->node[i] = server_start(lines);
        if (!s->client->redis) return NULL;
        snprintf(cluster->id[i], sizeof(cluster->id[i]), "%s",
                 command(s->client, "CLUSTER MYID")->str);
        EXPECT(s->client, "+OK", "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
        if (i < nprimaries)
            EXPECT(s->client, "+OK", "CLUSTER ADDSLOTSRANGE %d %d", first_slot(cluster, i),
                   first_slot(cluster, i + 1) - 1);
    }
    const char *own = config ? strstr(config, "cluster-node-timeout ") : NULL;
    if (own) sscanf(own, "cluster-node-timeout %d", &timeout_ms);
    allow_failover(cluster, false);
    cluster_set_timeout(cluster, FORMING_TIMEOUT_MS);
    const bool formed = form(cluster);
    cluster_set_timeout(cluster, timeout_ms);
    allow_failover(cluster, true);
    return formed ? cluster : NULL;
}

int cluster_slot(Cluster *cluster, const char *key) {
    return (int)command_int(cluster->node[0]->client, "CLUSTER KEYSLOT %s", key);
}

const char *cluster_name(Cluster *cluster, const char *prefix, int from, int to) {
    char *name = keep(malloc(strlen(prefix) + 32));
    for (int i = 0;; i++) {
        sprintf(name, "%s%d", prefix, i);
        const int slot = cluster_slot(cluster, name);
        if (slot < 0 || (slot >= from && slot <= to)) return name;
    }
}

/* ---- moving slots ---- */

void cluster_open_slot(Cluster *cluster, int slot, int from, int to) {
    EXPECT(cluster->node[to]->client, "+OK", "CLUSTER SETSLOT %d IMPORTING %s", slot,
           cluster->id[from]);
    EXPECT(cluster->node[from]->client, "+OK", "CLUSTER SETSLOT %d MIGRATING %s", slot,
           cluster->id[to]);
}

void cluster_move_keys(Cluster *cluster, int from, int to, const char *const *keys) {
    for (; *keys; keys++)
        EXPECT(cluster->node[from]->client, "+OK", "MIGRATE 127.0.0.1 %d %s 0 60000",
               cluster->node[to]->port, *keys);
}

void cluster_close_slot(Cluster *cluster, int slot, int owner) {
    EXPECT(cluster->node[owner]->client, "+OK", "CLUSTER SETSLOT %d NODE %s", slot,
           cluster->id[owner]);
    for (int i = 0; i < cluster->nprimaries; i++)
        if (i != owner)
            EXPECT(cluster->node[i]->client, "+OK", "CLUSTER SETSLOT %d NODE %s", slot,
                   cluster->id[owner]);
}

void cluster_finish_slot(Cluster *cluster, int slot, int from, int to) {
    for (;;) {
        redisReply *keys =
            command(cluster->node[from]->client, "CLUSTER GETKEYSINSLOT %d 100", slot);
        const char *names[101];
        if (keys->type != REDIS_REPLY_ARRAY || keys->elements == 0) break;
        for (size_t i = 0; i < keys->elements; i++) names[i] = keys->element[i]->str;
        names[keys->elements] = NULL;
        cluster_move_keys(cluster, from, to, names);
        if (check_failures()) break;
    }
    cluster_close_slot(cluster, slot, to);
}

/* ---- redis-cli ---- */

static const char *cli_output(Cluster *cluster) {
    static char path[512];
    snprintf(path, sizeof(path), "%s/cli", cluster->node[0]->dir);
    return path;
}

pid_t cluster_cli(Cluster *cluster, const char *const *arguments) {
    const char *argv[32] = {"redis-cli"};
    for (int i = 0; arguments[i] && i < 30; i++) argv[i + 1] = arguments[i];
    const pid_t pid = fork();
    if (pid != 0) return pid;
    int out = open(cli_output(cluster), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(out, 1);
    dup2(out, 2);
    execvp(argv[0], (char **)argv);
    _exit(127);
}

bool cluster_cli_ended(Cluster *cluster, pid_t pid, bool *ok) {
    int status = 0;
    if (pid > 0 && waitpid(pid, &status, WNOHANG) == 0) return false;
    *ok = pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!*ok) {
        char *text = server_read_file(cluster->node[0], "cli", NULL);
        const size_t len = text ? strlen(text) : 0;
        printf("    ---- end of redis-cli's output\n%s\n    ----\n",
               text ? text + (len > 2000 ? len - 2000 : 0) : "");
        free(text);
    }
    return true;
}

/* ---- shards ---- */

static const char **names_of(const redisReply *keys) {
    const char **names = keep(calloc(keys->elements + 1, sizeof(*names)));
    for (size_t i = 0; i < keys->elements; i++) names[i] = keys->element[i]->str;
    return names;
}

const char **cluster_shards_on(Server *node) {
    return names_of(command(node->client, "KEYS bf:{*"));
}

const char **cluster_shards_of(Client *c, const char *filter) {
    redisReply *shards = command(c, "BF.SHARDS %s", filter);
    const char **names = keep(calloc(shards->elements + 1, sizeof(*names)));
    for (size_t i = 0; i < shards->elements; i++) names[i] = shards->element[i]->element[1]->str;
    return names;
}

size_t cluster_count(const char *const *keys) {
    size_t n = 0;
    while (keys[n]) n++;
    return n;
}

bool cluster_wait_shards(Server *node, size_t n, const char *file, int line) {
    size_t seen = 0;
    for (long long end = now_ms() + SHARDS_MS; now_ms() < end; pause_ms(STEP_MS)) {
        seen = cluster_count(cluster_shards_on(node));
        if (seen == n) return check_that(true, "shards", file, line);
    }
    return check_fail(file, line, "the node holds %zu shards, expected %zu", seen, n);
}

static void sweep_decoy(Router *router, const char *name) {
    CHECK_STR(router_text(router, "BF.INSERT %s ITEMS x", name), "*1 :1");
    redisReply *shards = router_command(router, "BF.SHARDS %s", name);
    if (!shards || shards->type != REDIS_REPLY_ARRAY || shards->elements != 1) {
        CHECK_FAIL("BF.SHARDS %s names no shard", name);
    } else {
        const char *shard = shards->element[0]->element[1]->str;
        CHECK_STR(router_text(router, "DEL %s", name), ":1");
        bool gone = false;
        for (long long end = now_ms() + SWEEP_MS; !gone && now_ms() < end; pause_ms(STEP_MS))
            gone = strcmp(router_text(router, "EXISTS %s", shard), ":0") == 0;
        if (!gone) CHECK_FAIL("the sweeper does not come");
    }
    if (shards) freeReplyObject(shards);
}

void cluster_wait_sweepers(Router *router) {
    const bool may_be_down = router->may_be_down;
    router->may_be_down = true; /* for a moment after a failover; it is not the matter here */
    for (int i = 0; i < 2 * router->cluster->nprimaries; i++) {
        const int node = i / 2;
        sweep_decoy(router,
                    cluster_name(router->cluster, "decoy", first_slot(router->cluster, node),
                                 first_slot(router->cluster, node + 1) - 1));
    }
    router->may_be_down = may_be_down;
}

/* ---- the router ---- */

Router *router_new(Cluster *cluster) {
    Router *router = keep(calloc(1, sizeof(*router)));
    router->cluster = cluster;
    return router;
}

static void hang_up(Router *router, int node) {
    if (router->connection[node]) redisFree(router->connection[node]);
    router->connection[node] = NULL;
}

void router_free(Router *router) {
    for (int i = 0; i < router->cluster->nnodes; i++) hang_up(router, i);
}

/* One attempt; NULL if the node can't be reached. */
static redisReply *ask_node(Router *router, int node, bool asking, int argc, const char **argv,
                            const size_t *lens) {
    const struct timeval limit = {120, 0};
    redisContext **c = &router->connection[node];
    if (!*c) {
        *c = redisConnectWithTimeout("127.0.0.1", router->cluster->node[node]->port, limit);
        if (*c && !(*c)->err) redisSetTimeout(*c, limit);
    }
    redisReply *reply = NULL;
    if (*c && !(*c)->err && asking) {
        reply = redisCommand(*c, "ASKING");
        if (reply) freeReplyObject(reply);
    }
    reply = *c && !(*c)->err ? redisCommandArgv(*c, argc, argv, lens) : NULL;
    if (!reply) hang_up(router, node);
    return reply;
}

/* The node that "MOVED slot host:port" or "ASK slot host:port" names, or -1. */
static int node_in(const Router *router, const char *error) {
    const char *colon = strrchr(error, ':');
    for (int i = 0; colon && i < router->cluster->nnodes; i++)
        if (router->cluster->node[i]->port == atoi(colon + 1)) return i;
    return -1;
}

static bool starts(const redisReply *reply, const char *word) {
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, word, strlen(word)) == 0;
}

redisReply *router_argv(Router *router, int argc, const char **argv, const size_t *lens) {
    int node = router->at;
    bool asking = false;
    char last[256] = "";
    for (long long end = now_ms() + ROUTE_MS; now_ms() < end;) {
        redisReply *reply = ask_node(router, node, asking, argc, argv, lens);
        const bool moved = reply && starts(reply, "MOVED "), ask = reply && starts(reply, "ASK "),
                   again = reply && starts(reply, "TRYAGAIN "),
                   down = !reply || starts(reply, "CLUSTERDOWN ");
        if (!moved && !ask && !again && !(down && (!reply || router->may_be_down))) {
            if (!asking) router->at = node;
            return reply;
        }
        if (down && !router->may_be_down) {
            CHECK_FAIL("node %d does not answer %s", node, argv[0]);
            return NULL;
        }
        snprintf(last, sizeof(last), "%s", reply ? reply->str : "no connection");
        router->nmoved += moved;
        router->nask += ask;
        router->ntryagain += again;
        router->ndown += down;
        if (moved || ask) {
            node = node_in(router, reply->str);
            if (node < 0) node = 0;
        } else {
            node = down ? (node + 1) % router->cluster->nnodes : router->at;
            pause_ms(down ? STEP_MS : 2);
        }
        asking = ask;
        if (reply) freeReplyObject(reply);
    }
    CHECK_FAIL("%s has no answer after three minutes; the last was: %s", argv[0], last);
    return NULL;
}

static redisReply *router_va(Router *router, const char *format, va_list args) {
    char *bytes, *at;
    const char *argv[64];
    size_t lens[64];
    int argc = 0;
    /* hiredis has no way from a format to arguments, but the protocol has. */
    if (redisvFormatCommand(&bytes, format, args) < 0) return NULL;
    const int n = (int)strtol(bytes + 1, &at, 10);
    for (at += 2; argc < n && argc < 64; argc++) {
        lens[argc] = strtoul(at + 1, &at, 10);
        argv[argc] = at + 2;
        at += 2 + lens[argc] + 2;
    }
    redisReply *reply = router_argv(router, argc, argv, lens);
    redisFreeCommand(bytes);
    return reply;
}

redisReply *router_command(Router *router, const char *format, ...) {
    va_list args;
    va_start(args, format);
    redisReply *reply = router_va(router, format, args);
    va_end(args);
    return reply;
}

const char *router_text(Router *router, const char *format, ...) {
    va_list args;
    va_start(args, format);
    redisReply *reply = router_va(router, format, args);
    va_end(args);
    if (!reply) return "no reply";
    char *text = keep(reply_text(reply));
    freeReplyObject(reply);
    return text;
}

long long router_batches(Router *router, const char *name, const char *key, const char *prefix,
                         long long first, long long n) {
    static char items[BATCH][128];
    const char *argv[BATCH + 2] = {name, key};
    size_t lens[BATCH + 2] = {strlen(name), strlen(key)};
    long long sum = 0;
    for (long long done = 0; done < n;) {
        const int batch = n - done < BATCH ? (int)(n - done) : BATCH;
        for (int i = 0; i < batch; i++) {
            argv[i + 2] = items[i];
            lens[i + 2] =
                (size_t)snprintf(items[i], sizeof(items[i]), "%s%lld", prefix, first + done + i);
        }
        redisReply *reply = router_argv(router, batch + 2, argv, lens);
        if (!reply) return -1;
        if (reply->type != REDIS_REPLY_ARRAY) {
            CHECK_FAIL("%s answers %s", name, reply->str ? reply->str : "no array");
            freeReplyObject(reply);
            return -1;
        }
        for (size_t i = 0; i < reply->elements; i++) sum += reply->element[i]->integer;
        freeReplyObject(reply);
        done += batch;
    }
    return sum;
}

/* ---- a filter ---- */

void cluster_fill(Router *router, const char *name, const char *prefix) {
    CHECK_STR(
        router_text(router, "BF.RESERVE %s 0.0001 %d SHARDSIZE 4096 SEED 1", name, 2 * NITEMS),
        "+OK");
    const long long added = router_batches(router, "BF.MADD", name, prefix, 0, NITEMS);
    CHECK_RANGE((double)added, NITEMS - 20, NITEMS);
}

void cluster_check(Router *router, const char *name, const char *prefix) {
    CHECK_INT(router_batches(router, "BF.MEXISTS", name, prefix, 0, NITEMS), NITEMS);
    const long long wrong = router_batches(router, "BF.MEXISTS", name, "other", 0, 1000);
    CHECK_RANGE((double)wrong, 0, 20);
}
