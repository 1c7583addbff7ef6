/* One entry per command, in the order of docs/commands.md. The server copies these structures. */
#include "commands/docs.h"

#include <stdio.h>
#include <string.h>

/* ---- arguments ---- */

#define ARG(kind, label)                                                                           \
    { .name = label, .type = REDISMODULE_ARG_TYPE_##kind }
#define ARG_TOKEN(kind, label, by)                                                                 \
    { .name = label, .type = REDISMODULE_ARG_TYPE_##kind, .token = by }
#define ARG_OPTION(kind, label, by)                                                                \
    {                                                                                              \
        .name = label, .type = REDISMODULE_ARG_TYPE_##kind, .token = by,                           \
        .flags = REDISMODULE_CMD_ARG_OPTIONAL                                                      \
    }
#define ARG_CHOICE(label, options)                                                                 \
    {                                                                                              \
        .name = label, .type = REDISMODULE_ARG_TYPE_ONEOF, .flags = REDISMODULE_CMD_ARG_OPTIONAL,  \
        .subargs = options                                                                         \
    }
#define ARG_ITEMS(by)                                                                              \
    {                                                                                              \
        .name = "item", .type = REDISMODULE_ARG_TYPE_STRING, .token = by,                          \
        .flags = REDISMODULE_CMD_ARG_MULTIPLE                                                      \
    }
#define END                                                                                        \
    { 0 }

typedef RedisModuleCommandArg Arg;

static Arg growth[] = {ARG_TOKEN(INTEGER, "expansion", "EXPANSION"),
                       ARG_TOKEN(PURE_TOKEN, "nonscaling", "NONSCALING"), END};
static Arg info_field[] = {ARG_TOKEN(PURE_TOKEN, "capacity", "CAPACITY"),
                           ARG_TOKEN(PURE_TOKEN, "size", "SIZE"),
                           ARG_TOKEN(PURE_TOKEN, "filters", "FILTERS"),
                           ARG_TOKEN(PURE_TOKEN, "items", "ITEMS"),
                           ARG_TOKEN(PURE_TOKEN, "expansion", "EXPANSION"),
                           ARG_TOKEN(PURE_TOKEN, "window", "WINDOW"),
                           ARG_TOKEN(PURE_TOKEN, "slices", "SLICES"),
                           ARG_TOKEN(PURE_TOKEN, "sliding", "SLIDING"),
                           ARG_TOKEN(PURE_TOKEN, "age", "AGE"),
                           ARG_TOKEN(PURE_TOKEN, "error", "ERROR"),
                           END};
static Arg window[] = {ARG_TOKEN(INTEGER, "seconds", "WINDOW"),
                       ARG_OPTION(INTEGER, "slices", "SLICES"),
                       ARG_OPTION(PURE_TOKEN, "sliding", "SLIDING"), END};
#define ARG_WINDOW                                                                                 \
    {                                                                                              \
        .name = "window", .type = REDISMODULE_ARG_TYPE_BLOCK,                                      \
        .flags = REDISMODULE_CMD_ARG_OPTIONAL, .subargs = window                                   \
    }

static Arg reserve[] = {ARG(KEY, "key"),
                        ARG(DOUBLE, "error_rate"),
                        ARG(INTEGER, "capacity"),
                        ARG_CHOICE("growth", growth),
                        ARG_OPTION(INTEGER, "seed", "SEED"),
                        ARG_OPTION(INTEGER, "bytes", "SHARDSIZE"),
                        ARG_WINDOW,
                        END};
static Arg insert[] = {ARG(KEY, "key"),
                       ARG_OPTION(INTEGER, "capacity", "CAPACITY"),
                       ARG_OPTION(DOUBLE, "error_rate", "ERROR"),
                       ARG_CHOICE("growth", growth),
                       ARG_OPTION(INTEGER, "seed", "SEED"),
                       ARG_OPTION(INTEGER, "bytes", "SHARDSIZE"),
                       ARG_WINDOW,
                       ARG_OPTION(PURE_TOKEN, "nocreate", "NOCREATE"),
                       ARG_ITEMS("ITEMS"),
                       END};
static Arg plan[] = {ARG(DOUBLE, "error_rate"),
                     ARG(INTEGER, "capacity"),
                     ARG_CHOICE("growth", growth),
                     ARG_OPTION(INTEGER, "bytes", "SHARDSIZE"),
                     ARG_WINDOW,
                     END};
static Arg digest[] = {ARG_TOKEN(PURE_TOKEN, "md5", "MD5"), ARG_TOKEN(PURE_TOKEN, "none", "NONE"),
                       END};
static Arg seeds[] = {
    ARG(INTEGER, "numseeds"),
    {.name = "seed", .type = REDISMODULE_ARG_TYPE_INTEGER, .flags = REDISMODULE_CMD_ARG_MULTIPLE},
    END};
static Arg adopt[] = {ARG(KEY, "key"),
                      ARG_OPTION(STRING, "prefix", "PREFIX"),
                      ARG_OPTION(INTEGER, "blocks", "BLOCKS"),
                      ARG_OPTION(INTEGER, "bits", "BITS"),
                      {.name = "seeds",
                       .type = REDISMODULE_ARG_TYPE_BLOCK,
                       .token = "SEEDS",
                       .flags = REDISMODULE_CMD_ARG_OPTIONAL,
                       .subargs = seeds},
                      {.name = "digest",
                       .type = REDISMODULE_ARG_TYPE_ONEOF,
                       .token = "DIGEST",
                       .flags = REDISMODULE_CMD_ARG_OPTIONAL,
                       .subargs = digest},
                      ARG_CHOICE("growth", growth),
                      END};
static Arg info[] = {ARG(KEY, "key"), ARG_CHOICE("field", info_field), END};
static Arg shards_from[] = {ARG(INTEGER, "layer"), ARG(INTEGER, "shard"), END};
static Arg shards[] = {ARG(KEY, "key"),
                       {.name = "from",
                        .type = REDISMODULE_ARG_TYPE_BLOCK,
                        .token = "FROM",
                        .flags = REDISMODULE_CMD_ARG_OPTIONAL,
                        .subargs = shards_from},
                       ARG_OPTION(INTEGER, "count", "COUNT"),
                       END};
static Arg key_alone[] = {ARG(KEY, "key"), END};
static Arg key_item[] = {ARG(KEY, "key"), ARG(STRING, "item"), END};
static Arg key_items[] = {ARG(KEY, "key"), ARG_ITEMS(NULL), END};
static Arg setdescriptor[] = {ARG(KEY, "key"), ARG(STRING, "bytes"), END};
static Arg healed_shard[] = {ARG(INTEGER, "layer"), ARG(INTEGER, "shard"), END};
static Arg healed[] = {ARG(KEY, "key"),
                       {.name = "healed_shard",
                        .type = REDISMODULE_ARG_TYPE_BLOCK,
                        .flags = REDISMODULE_CMD_ARG_MULTIPLE,
                        .subargs = healed_shard},
                       END};
static Arg merge[] = {
    ARG(KEY, "destination"),
    {.name = "source", .type = REDISMODULE_ARG_TYPE_KEY, .flags = REDISMODULE_CMD_ARG_MULTIPLE},
    END};
static Arg merged[] = {ARG(KEY, "destination"),  ARG(KEY, "source"),
                       ARG(INTEGER, "to_layer"), ARG(INTEGER, "from_layer"),
                       ARG(INTEGER, "shard"),    ARG(INTEGER, "shards"),
                       ARG(INTEGER, "block"),    ARG(INTEGER, "blocks"),
                       ARG(INTEGER, "items"),    END};
static Arg nextid[] = {ARG(KEY, "key"), ARG(STRING, "id"), END};
static Arg scandump[] = {ARG(KEY, "key"), ARG(INTEGER, "iterator"), END};
static Arg loadchunk[] = {ARG(KEY, "key"), ARG(INTEGER, "iterator"), ARG(STRING, "data"), END};

/* ---- keys: the first argument; BF.MERGE also reads those after it ---- */

/* A filter's only data is whether an item was seen. Any command that reveals it, BF.ADD included,
 * requires permission to read the key. */
#define KEY_READ (REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS)
#define KEY_TELL REDISMODULE_CMD_KEY_RO /* about the filter, not about what it contains */
#define KEY_INSERT                                                                                 \
    (REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_INSERT)
#define KEY_CREATE (REDISMODULE_CMD_KEY_OW | REDISMODULE_CMD_KEY_INSERT)
#define KEY_REPAIR (REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_UPDATE)
#define KEY_REPLACE                                                                                \
    (REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE)

/* ---- the table ---- */

#define PER_ITEM  "O(L), where L is the number of layers."
#define PER_BATCH "O(N * L), where N is the number of items and L the number of layers."

static const struct entry {
    const char *name;
    int arity;          /* including the name; negative: at least this many */
    uint64_t key_flags; /* 0: no key */
    Arg *args;
    const char *complexity;
    const char *summary;
} entries[] = {
    {"bf.reserve", -4, KEY_CREATE, reserve, "O(1)", "Creates an empty filter."},
    {"bf.adopt", -2, KEY_CREATE, adopt,
     "O(B), where B is the number of bytes of the strings, up to 8 MiB.",
     "Turns bitmaps that other programs write with SETBIT into a filter, in place."},
    {"bf.add", 3, KEY_INSERT, key_item, PER_ITEM,
     "Adds an item to a filter and returns whether it was new. Creates the filter if it does not "
     "exist."},
    {"bf.madd", -3, KEY_INSERT, key_items, PER_BATCH,
     "Adds items to a filter and returns which were new. Creates the filter if it does not exist."},
    {"bf.insert", -4, KEY_INSERT, insert, PER_BATCH,
     "Adds items to a filter and returns which were new. Creates the filter from the options if "
     "it does not exist."},
    {"bf.exists", 3, KEY_READ, key_item, PER_ITEM, "Returns whether an item may be in a filter."},
    {"bf.mexists", -3, KEY_READ, key_items, PER_BATCH, "Returns which items may be in a filter."},
    {"bf.card", 2, KEY_TELL, key_alone, PER_ITEM,
     "Returns the number of items that were added to a filter."},
    {"bf.info", -2, KEY_TELL, info, "O(L), where L is the number of layers.",
     "Returns the capacity, size, layers, items and growth of a filter, or one of them."},
    {"bf.debug", 2, KEY_TELL, key_alone, PER_ITEM,
     "Returns the items, bits, hashes and capacity of each layer of a filter as lines of text."},
    {"bf.plan", -3, 0, plan, "O(1)", "Returns what a filter would cost, without creating it."},
    {"bf.shards", -2, KEY_TELL, shards, "O(S), where S is the number of shards, up to 1000.",
     "Lists the strings that hold a filter's bits, their state and how full they are."},
    {"bf.heal", 2, KEY_REPAIR, key_alone,
     "O(S + B), where S is the number of shards and B the bytes of those that are replaced.",
     "Replaces the lost shards of a filter with empty ones and returns how many."},
    {"bf.merge", -3, KEY_INSERT, merge,
     "O(B), where B is the number of bytes of the sources' shards; in steps, while the client "
     "waits.",
     "Adds all items of the sources to the destination and returns how many it has, estimated."},
    {"bf.scandump", 3, KEY_READ, scandump, "O(N), where N is the number of bytes returned.",
     "Returns the next part of a filter's dump, for BF.LOADCHUNK."},
    {"bf.loadchunk", 4, KEY_REPAIR, loadchunk, "O(N), where N is the number of bytes given.",
     "Builds a filter from the parts that BF.SCANDUMP returned, here or in RedisBloom."},
    {"bf.descriptor", 2, KEY_READ, key_alone, "O(S), where S is the number of shards.",
     "Returns the stored descriptor of a filter: everything but its bits. For tools."},
    {"bf.owner", 2, KEY_TELL, key_alone, "O(1)",
     "Returns whether a shard's filter exists. For the tool bforphans."},
    {"bf.setdescriptor", 3, KEY_REPLACE, setdescriptor, "O(S), where S is the number of shards.",
     "Sets the descriptor of a filter: everything but its bits. For replication only."},
    {"bf.nextid", 3, KEY_CREATE, nextid, "O(1)",
     "Sets the id of the filter that COPY or RESTORE creates next. For replication only."},
    {"bf.healed", -4, KEY_REPLACE, healed, "O(S), where S is the number of shards.",
     "Replaces the given shards with empty ones. For replication only."},
    {"bf.merged", 10, KEY_REPLACE, merged, "O(B), where B is the number of bytes of the shards.",
     "Unites the given shards of two filters. For replication only."},
    {"bf.leaves", 2, KEY_REPLACE, key_alone, "O(1)",
     "Announces that a filter is about to move to another cluster node. For replication only."},
};

static bool has_category;

void docs_start(RedisModuleCtx *ctx) {
    has_category = RedisModule_AddACLCategory && RedisModule_SetCommandACLCategories &&
                   RedisModule_AddACLCategory(ctx, "bloom") == REDISMODULE_OK;
}

static bool has_word(const char *words, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

/* Setting a category replaces those that the server derives from the flags, so these are set as
 * well. Admin commands are not in @bloom, the category for users of filters. */
static bool set_categories(RedisModuleCommand *command, const char *flags) {
    char categories[64];
    snprintf(categories, sizeof categories, "%s%s%s%s",
             has_word(flags, "admin") ? "admin dangerous" : "bloom",
             has_word(flags, "readonly") ? " read" : "", has_word(flags, "write") ? " write" : "",
             has_word(flags, "fast") ? " fast" : " slow");
    return RedisModule_SetCommandACLCategories(command, categories) == REDISMODULE_OK;
}

static bool set_info(RedisModuleCommand *command, const struct entry *entry) {
    static const RedisModuleCommandInfoVersion version = {1, sizeof(RedisModuleCommandHistoryEntry),
                                                          sizeof(RedisModuleCommandKeySpec),
                                                          sizeof(RedisModuleCommandArg)};
    RedisModuleCommandKeySpec keys[3] = {{.flags = entry->key_flags,
                                          .begin_search_type = REDISMODULE_KSPEC_BS_INDEX,
                                          .bs.index.pos = 1,
                                          .find_keys_type = REDISMODULE_KSPEC_FK_RANGE,
                                          .fk.range = {0, 1, 0}}};
    const Arg *source = &entry->args[1];
    if (source->type == REDISMODULE_ARG_TYPE_KEY) {
        keys[1] = keys[0];
        keys[1].flags = KEY_READ;
        keys[1].bs.index.pos = 2;
        keys[1].fk.range.lastkey = source->flags & REDISMODULE_CMD_ARG_MULTIPLE ? -1 : 0;
    }
    const RedisModuleCommandInfo command_info = {.version = &version,
                                                 .summary = entry->summary,
                                                 .complexity = entry->complexity,
                                                 .since = "1.0.0",
                                                 .arity = entry->arity,
                                                 .key_specs = entry->key_flags ? keys : NULL,
                                                 .args = entry->args};
    return RedisModule_SetCommandInfo(command, &command_info) == REDISMODULE_OK;
}

bool docs_describe(RedisModuleCtx *ctx, const char *name, const char *flags) {
    RedisModuleCommand *command = RedisModule_GetCommand(ctx, name);
    bool ok = command && (!has_category || set_categories(command, flags));
    for (size_t i = 0; ok && i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].name, name) == 0) ok = set_info(command, &entries[i]);
    if (!ok) RedisModule_Log(ctx, "warning", "the server refuses the description of %s", name);
    return ok;
}
