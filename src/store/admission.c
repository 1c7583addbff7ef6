/* A descriptor without shards refers to keys that did not come with it: shards by its tag and id,
 * adopted strings by their prefix. Anyone who could load any such descriptor could read and write
 * keys they have no right to. RESTORE does not tell a module who runs it, so only the descriptor
 * and the state of the server can be checked:
 *
 *   - Files and the primary are trusted. They may name anything, and a refusal would lose data.
 *   - Outside a cluster, DUMP never produces one, and none is accepted.
 *   - In a cluster, MIGRATE and slot migration move a filter this way. All keys that it names must
 *     be in the slot of its own name. It must not be a filter that lives here under another name,
 *     because the two would share shards. And it may bring adopted strings only while its slot is
 *     between nodes, or if it replaces the same filter.
 *
 * Clients can't write to a slot that is not ours, so there only slot migration restores. The server
 * would merely log a refusal, and a filter with the same id may still be waiting to be freed by a
 * background thread. */
#include "store/admission.h"

#include <string.h>

#include "core/names.h"
#include "store/cluster.h"
#include "store/value.h"
#include "store/living.h"

/* The filter that now has this name, or NULL. */
static const struct filter *present(RedisModuleCtx *ctx, const RedisModuleString *name) {
    /* A copy: during RESTORE the name is on the server's stack and can't be kept. */
    size_t length;
    const char *text = RedisModule_StringPtrLen(name, &length);
    RedisModuleString *copy = RedisModule_CreateString(NULL, text, length);
    const struct filter *filter = filter_named(ctx, copy);
    RedisModule_FreeString(NULL, copy);
    return filter;
}

/* The adoption by which a descriptor names other programs' strings, or NULL. Only the first layer
 * can have one. */
static const struct adoption *adoption_of(const struct descriptor *descriptor) {
    return layer_owns_shards(&descriptor->layers[0]) ? NULL : descriptor->layers[0].adoption;
}

static bool same_strings(const struct adoption *a, const struct adoption *b) {
    return a && b && a->numbered == b->numbered && a->recipe.nstrings == b->recipe.nstrings &&
           a->prefix_length == b->prefix_length &&
           memcmp(a->prefix, b->prefix, a->prefix_length) == 0;
}

static const char *client_problem(RedisModuleCtx *ctx, const RedisModuleString *name,
                                  const struct descriptor *descriptor) {
    if (!name || !cluster_enabled(ctx))
        return "it comes without its shards, which can't follow it outside a cluster";
    const struct filter *old = present(ctx, name);
    if (old && old->descriptor->id != descriptor->id) old = NULL;
    const struct adoption *adoption = adoption_of(descriptor);
    const bool second = !old && living_has(descriptor->id),
               adopts = adoption && !(old && same_strings(adoption, adoption_of(old->descriptor)));
    if (!second && !adopts) return NULL;
    const enum slot_state state = cluster_slot_state(ctx, names_filter_slot(descriptor));
    if (second && state != SLOT_FOREIGN)
        return "it exists under another name, with the same shards; use COPY";
    if (adopts && state == SLOT_OWNED)
        return "it names strings that it adopted, and its cluster slot is not moving";
    return NULL;
}

const char *admission_problem(RedisModuleCtx *ctx, RedisModuleIO *rdb,
                              const struct descriptor *descriptor) {
    const RedisModuleString *name = RedisModule_GetKeyNameFromIO(rdb);
    const int flags = RedisModule_GetContextFlags(ctx);
    if (name && cluster_enabled(ctx)) {
        size_t length;
        const char *text = RedisModule_StringPtrLen(name, &length);
        if (!names_share_slot(descriptor, text, length))
            return "its shards lie in another cluster slot than this key";
    }
    const bool believed =
        !(flags & REDISMODULE_CTX_FLAGS_MASTER) ||
        flags & (REDISMODULE_CTX_FLAGS_LOADING | REDISMODULE_CTX_FLAGS_ASYNC_LOADING);
    return believed ? NULL : client_problem(ctx, name, descriptor);
}
