/* Random commands against filters whose false positives are too rare to happen, each reply compared with an exact set.
 * A replica follows, an append-only file is written, and the server is killed now and then: all must agree with the
 * set. The sequence is the same in every run. */
#include "check.h"
#include "client.h"
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NIDS = 6000, MAX_BATCH = 150 };

typedef struct {
    const char *key;
    const char *reserve; /* how it is created; NULL: by the first item, with CONFIG's defaults */
    long long capacity;  /* of a filter that does not grow, else 0 */
    int nids;            /* items are drawn from 0 .. nids-1 */
    long long nitems;    /* in the set */
    bool contains[NIDS]; /* the set */
} Model;

static Model models[] = {
    {.key = "growing", .reserve = "BF.RESERVE growing 1e-9 10 SEED 11", .nids = NIDS},
    {.key = "creeping", .reserve = "BF.RESERVE creeping 1e-9 1 EXPANSION 1 SEED 12", .nids = 200},
    {.key = "sharded",
     .reserve = "BF.RESERVE sharded 1e-9 2000 SHARDSIZE 4096 SEED 13",
     .nids = NIDS},
    {.key = "fixed",
     .reserve = "BF.RESERVE fixed 1e-9 400 NONSCALING SHARDSIZE 4096 SEED 14",
     .capacity = 400,
     .nids = 700},
    {.key = "tiny",
     .reserve = "BF.RESERVE tiny 1e-9 3 NONSCALING SEED 15",
     .capacity = 3,
     .nids = 6},
    {.key = "automatic", .nids = 1000},
    {.key = "young"}, /* a new one again and again: see renew() */
};
enum { NMODELS = sizeof(models) / sizeof(models[0]) };

static uint64_t random_state;

static unsigned draw(unsigned below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % below;
}

/* What the filter must answer, and what it then holds. */
static const char *add_to_model(Model *m, int id) {
    if (m->contains[id]) return ":0";
    if (m->capacity && m->nitems == m->capacity) return "-ERR non scaling filter is full";
    m->contains[id] = true;
    m->nitems++;
    return ":1";
}

static const char *item_name(int id, char name[64]) {
    snprintf(name, 64, "https://example.com/%d", id);
    return name;
}

/* One batch by one of the commands; true if all replies are as the set says. */
static bool step(Client *c, Model *m) {
    static const char *const names[] = {"BF.MADD", "BF.INSERT", "BF.MEXISTS", "BF.ADD",
                                        "BF.EXISTS"};
    unsigned kind = draw(5);
    bool single = kind >= 3, reads = kind == 2 || kind == 4;
    int n = single ? 1 : 1 + (int)draw(draw(4) ? 10 : MAX_BATCH), argc = 0;
    const char *argv[MAX_BATCH + 3];
    static char items[MAX_BATCH][64];
    char *want = NULL;
    size_t len;
    FILE *out = open_memstream(&want, &len);
    argv[argc++] = names[kind];
    argv[argc++] = m->key;
    if (kind == 1) argv[argc++] = "ITEMS";
    if (!single) fprintf(out, "*%d ", n);
    for (int i = 0; i < n; i++) {
        int id = (int)draw((unsigned)m->nids);
        argv[argc++] = item_name(id, items[i]);
        fprintf(out, "%s%s", i ? " " : "",
                reads ? (m->contains[id] ? ":1" : ":0") : add_to_model(m, id));
    }
    fclose(out);
    redisReply *r = c->redis ? redisCommandArgv(c->redis, argc, argv, NULL) : NULL;
    char *text = r ? reply_text(r) : strdup("no reply");
    if (r) freeReplyObject(r);
    bool ok = CHECK_STR(text, want);
    if (!ok) printf("    %s %s %s... (%d items)\n", argv[0], argv[1], argv[argc - n], n);
    free(text);
    free(want);
    return ok;
}

static void check_models(Client *c) {
    for (int i = 0; i < NMODELS; i++) {
        Model *m = &models[i];
        CHECK_INT(command_int(c, "BF.CARD %s", m->key), m->nitems);
        for (int id = 0; id < m->nids; id++) {
            char name[64], want[3] = {':', m->contains[id] ? '1' : '0', '\0'};
            if (!EXPECT(c, want, "BF.EXISTS %s %s", m->key, item_name(id, name)))
                CHECK_FAIL("%s %d", m->key, id);
        }
    }
}

static void reset(Client *c, uint64_t seed) {
    random_state = seed;
    EXPECT(c, "+OK", "CONFIG SET bf.error-rate 1e-9");
    for (int i = 0; i < NMODELS; i++) {
        models[i].nitems = 0;
        memset(models[i].contains, 0, sizeof(models[i].contains));
        if (models[i].reserve) EXPECT(c, "+OK", models[i].reserve);
    }
}

/* The last model is replaced by a new, small filter every few steps: much happens at a filter's first items, when
 * shards and layers are made in the middle of a batch. */
static void renew(Client *c) {
    static char key[32], reserve[128];
    static int n;
    Model *m = &models[NMODELS - 1];
    bool grows = draw(2);
    int capacity = 1 + (int)draw(8);
    snprintf(key, sizeof(key), "young%d", n++);
    snprintf(reserve, sizeof(reserve), "BF.RESERVE %s 1e-9 %d SEED 16 %s", key, capacity,
             grows ? "EXPANSION 2" : "NONSCALING");
    *m = (Model){.key = key, .capacity = grows ? 0 : capacity, .nids = 2 * capacity + 4};
    EXPECT(c, "+OK", reserve);
}

static void run(uint64_t seed, const char *config) {
    Server *s = server_start(config), *replica = server_start(NULL);
    server_follow(replica, s);
    reset(s->client, seed);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 1500; i++) {
            if (i % 16 == 0) renew(s->client);
            if (!step(s->client, &models[draw(NMODELS)])) return;
        }
        server_wait_for_replica(s, replica);
        CHECK_SAME_DATA(s, replica);
        Snapshot *before = snapshot_take(s);
        if (round == 1) {
            EXPECT(s->client, "+Background append only file rewriting...", "BGREWRITEAOF");
            server_wait_info(s, "aof_rewrite_in_progress", "0");
        }
        server_restart(s, STOP_KILL);
        CHECK_SAME_SNAPSHOT(before, snapshot_take(s));
        EXPECT(s->client, "+OK", "CONFIG SET bf.error-rate 1e-9");
        server_wait_info(replica, "master_link_status", "up");
    }
    check_models(s->client);
}

TEST(random_commands_with_a_plain_aof) {
    run(1, "appendonly yes\nappendfsync everysec\naof-use-rdb-preamble no");
}

TEST(random_commands_with_a_preamble) {
    run(2, "appendonly yes\nappendfsync everysec\naof-use-rdb-preamble yes");
}
