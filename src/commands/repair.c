/* BF.HEAL replaces lost shards with empty ones. The user accepts that the items in them count as
 * new again. */
#include "commands/repair.h"

#include <inttypes.h>
#include <stdio.h>

#include "commands/internal.h"
#include "commands/open.h"
#include "commands/reply.h"
#include "commands/words.h"
#include "core/header.h"
#include "core/names.h"
#include "store/cluster.h"
#include "store/replication.h"

/* Limits of one command; the next one continues. */
#define MAX_STRINGS 4096u /* 1 to 3 µs for each */
#define MAX_BYTES   (8u << 20)

/* Where the last unfinished BF.HEAL stopped. */
static struct heal_cursor {
    uint64_t id;     /* of the filter */
    uint32_t number; /* of the layer; its index changes when older layers are dropped */
    uint32_t shard;
    uint64_t nbytes;  /* of the layer's strings before this one */
    uint64_t nstored; /* the layer's nstored when the last command stopped */
    bool changed;     /* nstored has changed since: nbytes can't be trusted */
} unfinished;

struct healing {
    struct strings strings;
    RedisModuleString **pairs; /* layer and shard of each healed shard */
    size_t npairs;
    size_t nstrings; /* checked */
    size_t nbytes;   /* created */
    size_t ncleared; /* missing adopted strings that count as empty again */
    bool recounted;  /* the bytes of a layer differed from what the descriptor said */
    bool full;       /* the server's memory is used up */
};

static RedisModuleString *decimal(uint32_t number) {
    char text[16];
    return RedisModule_CreateString(NULL, text,
                                    (size_t)snprintf(text, sizeof text, "%" PRIu32, number));
}

static void note_healed(struct healing *healing, uint32_t layer, uint32_t number) {
    const size_t n = healing->npairs++;
    if ((n & (n - 1)) == 0) /* room for one, two, four, … */
        healing->pairs =
            RedisModule_Realloc(healing->pairs, (n ? 4 * n : 2) * sizeof *healing->pairs);
    healing->pairs[2 * n] = decimal(layer);
    healing->pairs[2 * n + 1] = decimal(number);
}

/* Heals one string if it is lost; *nbytes is its length afterwards. False if the server has no
 * memory for it. */
static bool heal_string(struct healing *healing, uint32_t index, uint32_t number, size_t *nbytes) {
    struct access *access = &healing->strings.access;
    struct layer *layer = &access->descriptor->layers[index];
    const struct shard *shard = access_open(access, index, number);
    *nbytes = 0;
    if (!shard && access->status != SHARD_NONE) {
        if (layer->adoption) {
            /* A missing string counts as empty again. If there is something else in its place, that
             * may be somebody's data and stays. */
            if (access->status == SHARD_MISSING) layer_mark_absent(layer, number);
            healing->ncleared += access->status == SHARD_MISSING;
            access_check(access, index, number); /* takes it off the list of lost ones */
        } else if (strings_memory_is_full()) {
            return false;
        } else {
            shard = access_create(access, index, number);
            healing->nbytes += shard->nbytes;
            note_healed(healing, index, number);
        }
    }
    if (shard && !layer->adoption) *nbytes = HEADER_BYTES + shard->nbytes;
    access_close(access);
    return true;
}

/* Goes through the strings, from where the last command stopped. True when all were checked. */
static bool heal(struct healing *healing) {
    struct access *access = &healing->strings.access;
    const struct descriptor *descriptor = access->descriptor;
    struct heal_cursor *at = &unfinished;
    const uint32_t first = descriptor_number(descriptor, 0);
    if (at->id != descriptor->id || at->number < first)
        *at = (struct heal_cursor){.id = descriptor->id, .number = first};
    for (; at->number - first < descriptor->nlayers; at->number++, at->shard = 0) {
        const uint32_t index = at->number - first;
        const struct layer *layer = &descriptor->layers[index];
        if (at->shard == 0) {
            at->nbytes = 0;
            at->changed = false;
        } else if (at->nstored != layer->nstored) {
            at->changed = true;
        }
        for (; at->shard < layer_nstrings(layer); at->shard++) {
            if (!layer->adoption) at->shard = layer_next_created(layer, at->shard);
            if (at->shard == layer->layout.nshards) break;
            size_t nbytes;
            if (healing->nstrings++ == MAX_STRINGS || healing->nbytes >= MAX_BYTES ||
                (healing->full = !heal_string(healing, index, at->shard, &nbytes))) {
                at->nstored = layer->nstored;
                /* Until there is memory again, more may be lost: start from the beginning then. */
                if (healing->full) *at = (struct heal_cursor){0};
                return false;
            }
            at->nbytes += nbytes;
        }
        /* The lengths of lost strings were unknown. Now all lengths are known, unless strings
         * changed between commands. */
        if (!at->changed && !layer->adoption && !layer_is_joined(layer))
            healing->recounted |= access_recount(access, index, at->nbytes);
    }
    *at = (struct heal_cursor){0};
    return true;
}

static int reply_unfinished(RedisModuleCtx *ctx, const struct healing *healing) {
    char text[200];
    if (healing->full)
        snprintf(text, sizeof text,
                 "OOM 'maxmemory' is used up: %zu lost shards were healed, others are not",
                 healing->npairs);
    else
        snprintf(text, sizeof text,
                 "TRYAGAIN %zu lost shards were healed, but not all were checked yet: send BF.HEAL "
                 "again",
                 healing->npairs);
    return RedisModule_ReplyWithError(ctx, text);
}

static void heal_and_reply(RedisModuleCtx *ctx, RedisModuleString *name, struct filter *filter) {
    struct healing healing = {.strings =
                                  strings_of(ctx, filter, REDISMODULE_READ | REDISMODULE_WRITE)};
    const bool finished = heal(&healing);
    if (healing.npairs + healing.ncleared > 0 || healing.recounted) {
        replicate_healed(ctx, name, filter->descriptor, healing.pairs, healing.npairs);
        RedisModule_SignalModifiedKey(ctx, name);
        RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.heal", name);
    }
    if (finished)
        RedisModule_ReplyWithLongLong(ctx, (long long)(healing.npairs + healing.ncleared));
    else
        reply_unfinished(ctx, &healing);
    for (size_t i = 0; i < 2 * healing.npairs; i++) RedisModule_FreeString(NULL, healing.pairs[i]);
    RedisModule_Free(healing.pairs);
}

/* BF.HEAL key */
int BFHeal_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_existing(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE, &key, &filter))
        return REDISMODULE_OK;
    if (cluster_slot_state(ctx, names_filter_slot(filter->descriptor)) == SLOT_MOVING)
        RedisModule_ReplyWithError(ctx, ERROR_MIGRATING);
    else
        heal_and_reply(ctx, argv[1], filter);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* The shard that a pair of arguments names; false if there is none. */
static bool read_pair(const struct descriptor *descriptor, RedisModuleString **argv,
                      uint32_t *layer, uint32_t *number) {
    uint64_t first, second;
    if (!word_to_u64(word_of(argv[0]), &first) || !word_to_u64(word_of(argv[1]), &second) ||
        first >= descriptor->nlayers || second >= layer_nstrings(&descriptor->layers[first]) ||
        descriptor->layers[first].adoption)
        return false;
    *layer = (uint32_t)first;
    *number = (uint32_t)second;
    return true;
}

/* BF.HEALED key layer shard [layer shard ...]
 * Tells replicas and the AOF which shards start again empty. They have lost other shards, if any,
 * so they must not decide themselves. */
int BFHealed_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc % 2 != 0) return RedisModule_WrongArity(ctx);
    if (!internal_only(ctx)) return RedisModule_ReplyWithError(ctx, ERROR_INTERNAL);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_existing(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE, &key, &filter))
        return REDISMODULE_OK;
    struct strings strings = strings_of(ctx, filter, REDISMODULE_READ | REDISMODULE_WRITE);
    for (int i = 2; i + 1 < argc; i += 2) {
        uint32_t layer, number;
        if (read_pair(filter->descriptor, argv + i, &layer, &number))
            access_create(&strings.access, layer, number);
        access_close(&strings.access);
    }
    RedisModule_CloseKey(key);
    RedisModule_ReplicateVerbatim(ctx);
    RedisModule_SignalModifiedKey(ctx, argv[1]);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}
