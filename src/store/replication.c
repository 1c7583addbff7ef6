#include "store/replication.h"

void replicate_descriptor(RedisModuleCtx *ctx, RedisModuleString *name,
                          const struct descriptor *descriptor) {
    size_t nbytes;
    char *bytes = descriptor_bytes(descriptor, &nbytes);
    RedisModule_Replicate(ctx, "BF.SETDESCRIPTOR", "sb", name, bytes, nbytes);
    RedisModule_Free(bytes);
}

/* For a single BF.ADD, replicating verbatim saves a third of the command's time. */
void replicate_items(struct strings *strings, const struct lookup *lookups, size_t n,
                     bool verbatim) {
    RedisModuleString *few[64], **changed = few;
    const size_t first = strings->nsent;
    size_t nchanged = 0;
    strings->nsent = n;
    for (size_t i = first; verbatim && i < n; i++) verbatim = lookups[i].changed;
    if (verbatim && first == 0) {
        RedisModule_ReplicateVerbatim(strings->ctx);
        return;
    }
    if (n - first > sizeof few / sizeof *few)
        changed = RedisModule_Alloc((n - first) * sizeof *changed);
    for (size_t i = first; i < n; i++)
        if (lookups[i].changed) changed[nchanged++] = strings->items[i];
    if (nchanged > 0)
        RedisModule_Replicate(strings->ctx, "BF.MADD", "sv", strings->name, changed, nchanged);
    if (changed != few) RedisModule_Free(changed);
}

void replicate_growth(struct strings *strings, const struct lookup *lookups, size_t n) {
    replicate_items(strings, lookups, n, false);
    replicate_descriptor(strings->ctx, strings->name, strings->access.descriptor);
}

void replicate_healed(RedisModuleCtx *ctx, RedisModuleString *name,
                      const struct descriptor *descriptor, RedisModuleString **pairs,
                      size_t npairs) {
    if (npairs > 0) RedisModule_Replicate(ctx, "BF.HEALED", "sv", name, pairs, 2 * npairs);
    replicate_descriptor(ctx, name, descriptor);
}

void replicate_merged(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleString *source,
                      uint32_t to, uint32_t from, const struct merge_range *range) {
    const struct merge_part *part = &range->part;
    RedisModule_Replicate(ctx, "BF.MERGED", "sslllllll", name, source, (long long)to,
                          (long long)from, (long long)part->shard, (long long)range->nshards,
                          (long long)part->block, (long long)part->nblocks,
                          (long long)range->nitems);
}
