#include "atomic.h"

#include "check.h"

#include <stdio.h>
#include <string.h>

enum { PATIENCE_MS = 60000, STEP_MS = 10 };

AtomicKind atomic_kind(Server *s) {
    if (strncmp(command_text(s->client, "COMMAND INFO CLUSTER|MIGRATESLOTS"), "*1 *", 4) == 0)
        return ATOMIC_VALKEY;
    if (strncmp(command_text(s->client, "COMMAND INFO CLUSTER|MIGRATION"), "*1 *", 4) == 0)
        return ATOMIC_REDIS;
    printf("    this server has no atomic slot migration: nothing to test\n");
    return ATOMIC_NONE;
}

/* The target asks for the slot. */
static bool redis_move(Server *target, int slot) {
    const redisReply *task = command(target->client, "CLUSTER MIGRATION IMPORT %d %d", slot, slot);
    if (task->type != REDIS_REPLY_STRING)
        return CHECK_FAIL("CLUSTER MIGRATION IMPORT answers %s", task->str ? task->str : "?");
    for (int i = 0; i < PATIENCE_MS / STEP_MS; i++) {
        const char *text =
            command_text(target->client, "CLUSTER MIGRATION STATUS ID %s", task->str);
        if (strstr(text, "\"completed\"")) return true;
        if (strstr(text, "\"failed\"") || strstr(text, "\"canceled\""))
            return CHECK_FAIL("%s", text);
        pause_ms(STEP_MS);
    }
    return CHECK_FAIL("slot %d does not move", slot);
}

/* The source sends it. The newest migration is shown first. */
static bool valkey_move(Server *source, const char *target_id, int slot) {
    if (!EXPECT(source->client, "+OK", "CLUSTER MIGRATESLOTS SLOTSRANGE %d %d NODE %s", slot, slot,
                target_id))
        return false;
    for (int i = 0; i < PATIENCE_MS / STEP_MS; i++) {
        const redisReply *all = command(source->client, "CLUSTER GETSLOTMIGRATIONS");
        char *text = all->elements > 0 ? keep(reply_text(all->element[0])) : "";
        if (strstr(text, "success")) return true;
        if (strstr(text, "failed") || strstr(text, "cancelled")) return CHECK_FAIL("%s", text);
        pause_ms(STEP_MS);
    }
    return CHECK_FAIL("slot %d does not move", slot);
}

bool atomic_move(Cluster *cluster, AtomicKind kind, int slot, int from, int to) {
    Server *source = cluster->node[from], *target = cluster->node[to];
    return (kind == ATOMIC_REDIS ? redis_move(target, slot)
                                 : valkey_move(source, cluster->id[to], slot)) &&
           cluster_wait(cluster);
}
