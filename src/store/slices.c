#include "store/slices.h"

#include "core/names.h"
#include "core/window.h"
#include "store/clock.h"
#include "store/cluster.h"
#include "store/garbage.h"
#include "store/replication.h"
#include "store/statistics.h"

uint32_t slices_first_to_ask(const struct descriptor *descriptor) {
    return descriptor->window ? window_nover(descriptor, clock_wall_ms()) : 0;
}

uint64_t slices_nitems(const struct descriptor *descriptor) {
    uint64_t nitems = 0;
    for (uint32_t i = slices_first_to_ask(descriptor); i < descriptor->nlayers; i++)
        nitems += descriptor->layers[i].nitems;
    return nitems;
}

uint64_t slices_age_ms(const struct descriptor *descriptor) {
    const uint64_t now_ms = clock_wall_ms();
    const uint32_t first = window_nover(descriptor, now_ms);
    const uint64_t began_ms =
        first < descriptor->nlayers ? descriptor->layers[first].began_ms : now_ms;
    return now_ms > began_ms ? now_ms - began_ms : 0;
}

/* The filter has dropped these layers: hands their strings to the sweeper. */
static void hand_over(RedisModuleCtx *ctx, struct filter *filter, struct descriptor *gone) {
    handles_drop(&filter->handles, gone, gone->nlayers, &key_supplier);
    garbage_dropped(gone, RedisModule_GetSelectedDb(ctx));
}

/* Nothing is dropped while the filter's cluster slot is moving: some of its strings may be on the
 * other node, or on their way, and nobody would remove them there. Instead, layers are marked as
 * expired, so that all servers agree, and are dropped by a later turn. */
enum slices_turned slices_turn(RedisModuleCtx *ctx, RedisModuleString *name,
                               struct filter *filter) {
    struct descriptor *descriptor = filter->descriptor;
    if (!descriptor->window || strings_repeat(ctx)) return SLICES_SAME;
    const uint64_t now_ms = clock_wall_ms();
    if (!window_is_due(descriptor, now_ms)) return SLICES_SAME;
    const bool drops = cluster_slot_state(ctx, names_filter_slot(descriptor)) == SLOT_OWNED;
    struct descriptor *gone;
    statistics_leave(descriptor);
    const bool turned = window_turn(descriptor, now_ms, drops, &gone);
    statistics_join(descriptor);
    if (!turned) return SLICES_STUCK;
    if (gone) hand_over(ctx, filter, gone);
    replicate_descriptor(ctx, name, descriptor);
    return SLICES_TURNED;
}

void slices_replace(RedisModuleCtx *ctx, struct filter *filter, struct descriptor *descriptor) {
    struct descriptor *old = filter->descriptor, *gone = NULL;
    const uint32_t first = descriptor_number(descriptor, 0), was = descriptor_number(old, 0);
    const uint32_t n = first > was ? descriptor_whole_strings(old, first - was) : 0;
    if (old->window && n > 0) {
        statistics_leave(old);
        gone = descriptor_split(old, n);
        statistics_join(old);
    }
    if (gone) hand_over(ctx, filter, gone);
    filter_replace(filter, descriptor);
}
