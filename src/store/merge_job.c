#include "store/merge_job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/bytes.h"
#include "core/names.h"
#include "store/clock.h"
#include "store/cluster.h"
#include "store/datatype.h"
#include "store/identity.h"
#include "store/jobs.h"
#include "store/replication.h"
#include "store/slices.h"
#include "store/statistics.h"

/* Larger shards are united in pieces of this size: half a millisecond of work. */
#define PIECE_BYTES (1u << 20)

#define TEXT_BYTES 640 /* of an error */

enum phase {
    PHASE_COMPARE, /* can these be united? */
    PHASE_CHECK,   /* do all strings exist? */
    PHASE_PREPARE, /* add the layers that the destination lacks */
    PHASE_UNITE,
    PHASE_ENDED,
};

struct source {
    RedisModuleString *name;
    uint64_t id;
    uint32_t last; /* the number of its newest layer when uniting began */
};

struct merge {
    struct merge *next;               /* list of merges running in the background */
    RedisModuleBlockedClient *client; /* NULL: the command has not blocked it yet */
    bool deserted;                    /* the client has disconnected */
    int db;
    RedisModuleString *name; /* of the destination */
    uint64_t id;             /* 0: it did not exist when last looked up */
    size_t nsources;
    enum phase phase;
    size_t at; /* the current source; the check ends with the destination, after the last source */
    struct string_cursor string; /* the next one to check */
    uint32_t number;             /* of the source's layer being united */
    uint32_t shard;
    uint32_t block;
    bool changed; /* the destination has been changed */
    uint64_t nitems;
    char problem[TEXT_BYTES];
    struct source sources[];
};

/* ---- making one ---- */

static void copy_name(const RedisModuleString *name, RedisModuleString **copy) {
    size_t length;
    const char *text = RedisModule_StringPtrLen(name, &length);
    *copy = RedisModule_CreateString(NULL, text, length);
}

struct merge *merge_new(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleString **sources,
                        size_t nsources) {
    struct merge *merge =
        RedisModule_Calloc(1, sizeof *merge + nsources * sizeof merge->sources[0]);
    merge->db = RedisModule_GetSelectedDb(ctx);
    copy_name(name, &merge->name);
    merge->nsources = nsources;
    for (size_t i = 0; i < nsources; i++) copy_name(sources[i], &merge->sources[i].name);
    return merge;
}

void merge_free(struct merge *merge) {
    RedisModule_FreeString(NULL, merge->name);
    for (size_t i = 0; i < merge->nsources; i++)
        RedisModule_FreeString(NULL, merge->sources[i].name);
    RedisModule_Free(merge);
}

const char *merge_problem(const struct merge *merge) {
    return merge->problem[0] ? merge->problem : NULL;
}

uint64_t merge_nitems(const struct merge *merge) {
    return merge->nitems;
}

/* ---- how it ends ---- */

static void show_name(const RedisModuleString *name, char shown[64]) {
    size_t length;
    const char *text = RedisModule_StringPtrLen(name, &length);
    bytes_show(text, length, shown, 64);
}

static bool fail(struct merge *merge, const char *problem) {
    snprintf(merge->problem, sizeof merge->problem, "%s", problem);
    merge->phase = PHASE_ENDED;
    return false;
}

/* The same, naming one of the filters. */
static bool fail_name(struct merge *merge, const char *before, const RedisModuleString *name,
                      const char *after) {
    char shown[64];
    show_name(name, shown);
    snprintf(merge->problem, sizeof merge->problem, "%s'%s'%s", before, shown, after);
    merge->phase = PHASE_ENDED;
    return false;
}

static bool fail_lost(struct merge *merge, struct strings *strings) {
    strings_lost_problem(strings, merge->problem, sizeof merge->problem);
    merge->phase = PHASE_ENDED;
    return false;
}

/* ---- finding the filters again ---- */

/* The filter of this name if it has this id (0: any). NULL after failing. */
static struct filter *find(RedisModuleCtx *ctx, struct merge *merge, RedisModuleString *name,
                           uint64_t id) {
    struct filter *filter = filter_named(ctx, name);
    if (filter && !filter->descriptor->load && (id == 0 || filter->descriptor->id == id))
        return filter;
    if (id == 0 && filter)
        fail_name(merge, "HALFLOADED the filter ", name,
                  " is half loaded: continue with BF.LOADCHUNK, or DEL it");
    else if (id == 0)
        fail_name(merge, "ERR not found: there is no filter ", name, "");
    else
        fail_name(merge, "ERR the filter ", name,
                  " was deleted, renamed or replaced during the merge: part of the union was "
                  "made");
    return NULL;
}

static struct filter *find_source(RedisModuleCtx *ctx, struct merge *merge, size_t i) {
    return find(ctx, merge, merge->sources[i].name, merge->sources[i].id);
}

/* The destination; NULL if it does not exist, or after failing. */
static struct filter *find_destination(RedisModuleCtx *ctx, struct merge *merge) {
    if (merge->id == 0 && !filter_named(ctx, merge->name)) return NULL;
    return find(ctx, merge, merge->name, merge->id);
}

/* ---- do all strings exist? ---- */

static bool time_is_up(int64_t deadline_us) {
    return clock_monotonic_us() >= deadline_us;
}

/* Checks the strings of one filter. True when all were checked; false when the time is up, or after
 * failing. */
static bool check_strings(RedisModuleCtx *ctx, struct merge *merge, struct filter *filter,
                          int64_t deadline_us) {
    struct strings strings = strings_of(ctx, filter, REDISMODULE_READ);
    for (unsigned n = 1; descriptor_next_string(filter->descriptor, &merge->string); n++) {
        if (access_check(&strings.access, merge->string.layer, merge->string.shard) != SHARD_READY)
            return fail_lost(merge, &strings);
        if (n % 16 == 0 && time_is_up(deadline_us)) return false;
    }
    merge->string = (struct string_cursor){0};
    return true;
}

static void check(RedisModuleCtx *ctx, struct merge *merge, int64_t deadline_us) {
    struct filter *filter = merge->at < merge->nsources ? find_source(ctx, merge, merge->at)
                                                        : find_destination(ctx, merge);
    if (merge->phase == PHASE_ENDED) return;
    if (filter && !check_strings(ctx, merge, filter, deadline_us)) return;
    if (merge->at++ < merge->nsources) return;
    merge->at = 0;
    merge->phase = PHASE_PREPARE;
}

/* ---- adding the layers that the destination lacks ---- */

/* The destination's future descriptor. NULL after failing. */
static struct descriptor *plan(RedisModuleCtx *ctx, struct merge *merge,
                               const struct filter *destination) {
    struct descriptor *to = NULL;
    if (destination) to = descriptor_copy(destination->descriptor);
    for (size_t i = 0; i < merge->nsources; i++) {
        struct source *source = &merge->sources[i];
        const struct filter *filter = find_source(ctx, merge, i);
        if (!filter) break;
        const struct descriptor *from = filter->descriptor;
        if (!to) {
            size_t length, tag_length;
            const char *name = RedisModule_StringPtrLen(merge->name, &length), *tag;
            names_tag(name, length, &tag, &tag_length);
            to = merge_like(from, tag, tag_length, identity_fresh());
        }
        /* Expired layers need not be copied; but a filter has at least one layer. */
        uint32_t first = slices_first_to_ask(from);
        if (first == from->nlayers && to->nlayers == 0) first--;
        char problem[320];
        source->id = from->id;
        source->last = descriptor_number(from, from->nlayers - 1);
        if (from->id == to->id) continue;
        if (!merge_extend(to, from, first, problem, sizeof problem)) {
            char shown[64], text[420];
            show_name(merge->name, shown);
            snprintf(text, sizeof text, " can't be merged into '%s': %s", shown, problem);
            fail_name(merge, "ERR ", source->name, text);
            break;
        }
    }
    if (merge->phase != PHASE_ENDED) return to;
    descriptor_free(to);
    return NULL;
}

static void compare(RedisModuleCtx *ctx, struct merge *merge) {
    const struct filter *destination = find_destination(ctx, merge);
    if (merge->phase == PHASE_ENDED) return;
    struct descriptor *to = plan(ctx, merge, destination);
    if (!to) return;
    descriptor_free(to);
    if (destination) merge->id = destination->descriptor->id;
    merge->phase = PHASE_CHECK;
}

static void prepare(RedisModuleCtx *ctx, struct merge *merge) {
    struct filter *destination = find_destination(ctx, merge);
    if (merge->phase == PHASE_ENDED) return;
    struct descriptor *to = plan(ctx, merge, destination);
    if (!to) return;
    merge->id = to->id;
    merge->phase = PHASE_UNITE;
    if (destination && to->nlayers == destination->descriptor->nlayers) {
        descriptor_free(to);
        return;
    }
    if (destination) {
        filter_replace(destination, to);
    } else {
        RedisModuleKey *key =
            RedisModule_OpenKey(ctx, merge->name, REDISMODULE_READ | REDISMODULE_WRITE);
        if (RedisModule_KeyType(key) == REDISMODULE_KEYTYPE_EMPTY) type_set(key, filter_wrap(to));
        const bool made = RedisModule_ModuleTypeGetType(key) == FilterType;
        RedisModule_CloseKey(key);
        if (!made) {
            descriptor_free(to);
            fail(merge, REDISMODULE_ERRORMSG_WRONGTYPE);
            return;
        }
        RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.reserve", merge->name);
    }
    merge->changed = true;
    replicate_descriptor(ctx, merge->name, to);
    RedisModule_SignalModifiedKey(ctx, merge->name);
}

/* ---- uniting ---- */

/* Sets the layer's new count. */
static void recount(struct layer *layer, uint64_t nitems) {
    if (nitems > SIZING_MAX_CAPACITY) nitems = SIZING_MAX_CAPACITY;
    statistics_recounted(layer->nitems, nitems);
    layer->nitems = nitems;
}

/* Unites shards, starting with the part's, until the time is up. *nshards is the most to do, then
 * how many were done. */
static enum merge_outcome unite_shards(struct strings *to, struct strings *from,
                                       struct merge_part part, uint32_t *nshards,
                                       int64_t deadline_us, struct merge_gain *gain) {
    const struct layer *layer = &from->access.descriptor->layers[part.from];
    const uint32_t most = *nshards;
    enum merge_outcome outcome = MERGE_DONE;
    uint32_t n = 0;
    while (n < most && outcome == MERGE_DONE) {
        if (part.shard % 8 == 0 && most - n >= 8 && layer->created[part.shard / 8] == 0) {
            part.shard += 8; /* a filter with few items has few shards */
            n += 8;
            continue;
        }
        outcome = merge_shard(&to->access, &from->access, &part, gain);
        access_close(&to->access);
        access_close(&from->access);
        if (outcome != MERGE_DONE) break;
        part.shard++;
        n++;
        if (time_is_up(deadline_us)) break;
    }
    *nshards = n;
    return outcome;
}

static bool fail_outcome(struct merge *merge, enum merge_outcome outcome, struct strings *to,
                         struct strings *from) {
    if (outcome == MERGE_NO_MEMORY)
        return fail(merge, "OOM 'maxmemory' is used up: part of the union was made");
    return fail_lost(merge, outcome == MERGE_TO_LOST ? to : from);
}

/* The most that one step does in this layer. */
static struct merge_range next_range(const struct merge *merge, const struct layer *layer,
                                     uint32_t to, uint32_t from) {
    const struct layout *layout = &layer->layout;
    struct merge_range range = {
        .part = {.to = to, .from = from, .shard = merge->shard, .nblocks = layout->nblocks},
        .nshards = layout->nshards - merge->shard};
    if (layout_shard_bytes(layout) > PIECE_BYTES) {
        const uint32_t most = (uint32_t)(PIECE_BYTES / layout_block_bytes(layout)),
                       left = layout->nblocks - merge->block;
        range.part.block = merge->block;
        range.part.nblocks = left < most ? left : most;
        range.nshards = 1;
    }
    return range;
}

/* Moves on past the finished range. */
static void advance(struct merge *merge, const struct merge_range *range,
                    const struct layer *layer) {
    merge->block = range->part.block + range->part.nblocks;
    if (range->nshards > 0 && merge->block >= layer->layout.nblocks) {
        merge->block = 0;
        merge->shard += range->nshards;
    }
    if (merge->shard < layer->layout.nshards) return;
    merge->shard = 0;
    merge->number++;
}

/* Unites one range of shards of the current layer and replicates it as one command. */
static void unite_range(RedisModuleCtx *ctx, struct merge *merge, struct filter *destination,
                        struct filter *source, uint32_t target, uint32_t index,
                        int64_t deadline_us) {
    struct strings to = strings_of(ctx, destination, REDISMODULE_READ | REDISMODULE_WRITE),
                   from = strings_of(ctx, source, REDISMODULE_READ);
    struct layer *layer = &destination->descriptor->layers[target];
    struct merge_range range = next_range(merge, layer, target, index);
    struct merge_gain gain = {0};
    const enum merge_outcome outcome =
        unite_shards(&to, &from, range.part, &range.nshards, deadline_us, &gain);
    if (gain.changed) {
        recount(layer, layer->nitems + (uint64_t)llround(gain.nitems));
        range.nitems = layer->nitems;
        replicate_merged(ctx, merge->name, merge->sources[merge->at].name,
                         descriptor_number(destination->descriptor, target), merge->number, &range);
        RedisModule_SignalModifiedKey(ctx, merge->name);
        merge->changed = true;
    }
    if (outcome == MERGE_DONE)
        advance(merge, &range, layer);
    else
        fail_outcome(merge, outcome, &to, &from);
}

static void next_source(struct merge *merge) {
    merge->at++;
    merge->number = merge->shard = merge->block = 0;
}

static void unite(RedisModuleCtx *ctx, struct merge *merge, int64_t deadline_us) {
    struct filter *destination = find(ctx, merge, merge->name, merge->id);
    if (!destination) return;
    if (merge->at == merge->nsources) {
        merge->nitems = slices_nitems(destination->descriptor);
        merge->phase = PHASE_ENDED;
        return;
    }
    struct filter *source = find_source(ctx, merge, merge->at);
    if (!source) return;
    const struct descriptor *from = source->descriptor;
    /* Expired slices are not searched, and may have been dropped since. */
    const uint32_t first = descriptor_number(from, slices_first_to_ask(from));
    if (merge->number < first) {
        merge->number = first;
        merge->shard = merge->block = 0;
    }
    if (source == destination || merge->number > merge->sources[merge->at].last) {
        next_source(merge);
        return;
    }
    const uint32_t index = merge->number - descriptor_number(from, 0);
    const uint32_t target = merge_target(destination->descriptor, from, index);
    if (target == MERGE_NO_LAYER) { /* expired, and dropped by the destination */
        merge->number++;
        merge->shard = merge->block = 0;
        return;
    }
    unite_range(ctx, merge, destination, source, target, index, deadline_us);
}

/* A replica can't unite what it has lost or never had. Then the destination's shard must not count
 * as sound. */
void merge_repeat(RedisModuleCtx *ctx, struct filter *to, struct filter *from,
                  const struct merge_range *range) {
    struct strings target = strings_of(ctx, to, REDISMODULE_READ | REDISMODULE_WRITE),
                   source = strings_of(ctx, from, REDISMODULE_READ);
    struct merge_part part = range->part;
    for (uint32_t left = range->nshards; left > 0; left--, part.shard++) {
        struct merge_gain gain = {0};
        const enum merge_outcome outcome =
            merge_shard(&target.access, &source.access, &part, &gain);
        access_close(&target.access);
        access_close(&source.access);
        if (outcome == MERGE_FROM_LOST) access_spoil(&target.access, part.to, part.shard);
    }
    recount(&to->descriptor->layers[part.to], range->nitems);
}

/* ---- steps ---- */

bool merge_step(RedisModuleCtx *ctx, struct merge *merge, int64_t deadline_us) {
    RedisModule_SelectDb(ctx, merge->db);
    size_t length;
    const char *name = RedisModule_StringPtrLen(merge->name, &length);
    if (!(RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_MASTER))
        fail(merge,
             "READONLY the server has become a replica: part of the union may have been made");
    else if (cluster_slot_state(ctx, names_slot(name, length)) != SLOT_OWNED)
        fail(merge, STRINGS_ON_THE_WAY);
    do {
        switch (merge->phase) {
        case PHASE_COMPARE:
            compare(ctx, merge);
            break;
        case PHASE_CHECK:
            check(ctx, merge, deadline_us);
            break;
        case PHASE_PREPARE:
            prepare(ctx, merge);
            break;
        case PHASE_UNITE:
            unite(ctx, merge, deadline_us);
            break;
        case PHASE_ENDED:
            break;
        }
    } while (merge->phase != PHASE_ENDED && !time_is_up(deadline_us));
    if (merge->phase != PHASE_ENDED) return false;
    if (merge->changed)
        RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.merge", merge->name);
    return true;
}

/* ---- in the background ---- */

static struct merge *first, **end = &first;

static void enqueue(struct merge *merge) {
    merge->next = NULL;
    *end = merge;
    end = &merge->next;
}

static struct merge *dequeue(void) {
    struct merge *merge = first;
    if (merge && !(first = merge->next)) end = &first;
    return merge;
}

/* The job: gives one merge after the other a step. */
static bool work(RedisModuleCtx *ctx, int64_t deadline_us) {
    /* As for the sweeper: nothing may change while clients are paused. */
    if (RedisModule_AvoidReplicaTraffic()) return false;
    struct merge *merge = dequeue();
    if (!merge) return false;
    if (merge->deserted || merge_step(ctx, merge, deadline_us))
        RedisModule_UnblockClient(merge->client, merge);
    else
        enqueue(merge);
    return first != NULL;
}

static void on_disconnect(RedisModuleCtx *ctx, RedisModuleBlockedClient *client) {
    (void)ctx;
    for (struct merge *merge = first; merge; merge = merge->next)
        if (merge->client == client) merge->deserted = true;
}

void merge_continue(struct merge *merge, RedisModuleBlockedClient *client) {
    merge->client = client;
    RedisModule_SetDisconnectCallback(client, on_disconnect);
    enqueue(merge);
}

void merge_start(void) {
    jobs_add(work);
}
