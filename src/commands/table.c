#include "commands/table.h"

#include "commands/adopt.h"
#include "commands/create.h"
#include "commands/docs.h"
#include "commands/dump.h"
#include "commands/inspect.h"
#include "commands/internal.h"
#include "commands/items.h"
#include "commands/merge.h"
#include "commands/repair.h"

static const struct {
    const char *name;
    RedisModuleCmdFunc handler;
    const char *flags;
    int key; /* its position; 0: no key */
} commands[] = {
    {"bf.reserve", BFReserve_RedisCommand, "write deny-oom fast", 1},
    {"bf.adopt", BFAdopt_RedisCommand, "write deny-oom", 1},
    {"bf.add", BFAdd_RedisCommand, "write deny-oom fast", 1},
    {"bf.madd", BFMAdd_RedisCommand, "write deny-oom", 1},
    {"bf.insert", BFInsert_RedisCommand, "write deny-oom", 1},
    {"bf.exists", BFExists_RedisCommand, "readonly fast", 1},
    {"bf.mexists", BFMExists_RedisCommand, "readonly", 1},
    {"bf.card", BFCard_RedisCommand, "readonly fast", 1},
    {"bf.info", BFInfo_RedisCommand, "readonly fast", 1},
    {"bf.debug", BFDebug_RedisCommand, "readonly fast", 1},
    {"bf.plan", BFPlan_RedisCommand, "fast", 0},
    {"bf.shards", BFShards_RedisCommand, "readonly", 1},
    {"bf.heal", BFHeal_RedisCommand, "write deny-oom", 1},
    {"bf.healed", BFHealed_RedisCommand, "write admin", 1},
    {"bf.merge", BFMerge_RedisCommand, "write deny-oom blocking", 1},
    {"bf.merged", BFMerged_RedisCommand, "write admin", 1},
    {"bf.scandump", BFScanDump_RedisCommand, "readonly", 1},
    {"bf.loadchunk", BFLoadChunk_RedisCommand, "write deny-oom", 1},
    {"bf.descriptor", BFDescriptor_RedisCommand, "readonly", 1},
    {"bf.owner", BFOwner_RedisCommand, "readonly fast", 1},
    {"bf.setdescriptor", BFSetDescriptor_RedisCommand, "write deny-oom admin", 1},
    {"bf.nextid", BFNextId_RedisCommand, "write admin fast", 1},
    {"bf.leaves", BFLeaves_RedisCommand, "write admin", 1},
};

bool commands_register(RedisModuleCtx *ctx) {
    docs_start(ctx);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const int key = commands[i].key;
        if (RedisModule_CreateCommand(ctx, commands[i].name, commands[i].handler, commands[i].flags,
                                      key, key, key) != REDISMODULE_OK ||
            !docs_describe(ctx, commands[i].name, commands[i].flags))
            return false;
    }
    return true;
}
