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

/* Takes the n oldest layers away, and lets the sweeper have their strings. */
static void drop(RedisModuleCtx *ctx, struct filter *filter, uint32_t n) {
    struct descriptor *gone = descriptor_split(filter->descriptor, n);
    if (!gone) return;
    handles_drop(&filter->handles, gone, n, &key_supplier);
    garbage_dropped(gone, RedisModule_GetSelectedDb(ctx));
}

/* While the filter's cluster slot is on the move nothing is dropped: some of its strings may be on
 * the other node, or on their way, and nobody would remove them there. They are marked as over
 * instead, so that all servers agree, and dropped by a later turn. */
enum slices_turned slices_turn(RedisModuleCtx *ctx, RedisModuleString *name,
                               struct filter *filter) {
    struct descriptor *descriptor = filter->descriptor;
    if (!descriptor->window || strings_repeat(ctx)) return SLICES_SAME;
    const uint64_t now_ms = clock_wall_ms();
    if (!window_is_due(descriptor, now_ms)) return SLICES_SAME;
    const uint32_t nover = window_nover(descriptor, now_ms);
    if (!window_begin_slice(descriptor, now_ms)) return SLICES_STUCK;
    descriptor->window->nover = nover;
    statistics_leave(descriptor);
    if (nover > 0 && cluster_slot_state(ctx, names_filter_slot(descriptor)) == SLOT_OWNED)
        drop(ctx, filter, nover);
    statistics_join(descriptor);
    replicate_descriptor(ctx, name, descriptor);
    return SLICES_TURNED;
}

void slices_replace(RedisModuleCtx *ctx, struct filter *filter, struct descriptor *descriptor) {
    struct descriptor *old = filter->descriptor;
    const uint32_t first = descriptor_number(descriptor, 0), was = descriptor_number(old, 0);
    const uint32_t n = first <= was ? 0 : first - was < old->nlayers ? first - was : old->nlayers;
    statistics_leave(old);
    if (n > 0) drop(ctx, filter, n);
    statistics_join(old);
    filter_replace(filter, descriptor);
}
