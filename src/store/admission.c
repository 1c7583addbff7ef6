/* A descriptor without shards names keys that it did not bring: shards by its tag and id, adopted
 * strings by their prefix. Whoever could bring in any such descriptor could read and write keys
 * that he has no right to. RESTORE does not tell a module who runs it, so all that can be looked at
 * is the descriptor and the server:
 *
 * - Files and the primary are believed. They may name anything, and a refusal would lose data.
 * - Outside a cluster DUMP never makes one, and none is taken.
 * - In a cluster it is how MIGRATE and slot migration move a filter. All keys that it names must
 *   lie in the slot of its own name. It must not be a filter that lives here under another name,
 *   whose shards it would share. And it may bring adopted strings only while its slot is between
 *   nodes, or in the place of the same filter.
 *
 * A slot that is not ours can't be written by clients: there it is slot migration that restores,
 * the server does no more than log a refusal, and a filter of the same id may still wait to be
 * freed by a background thread. */
#include "store/admission.h"

#include <string.h>

#include "core/names.h"
#include "store/cluster.h"
#include "store/value.h"
#include "store/living.h"

/* The filter that has this name now, or NULL. */
static const struct filter *present(RedisModuleCtx *ctx, const RedisModuleString *name) {
    /* A copy: while RESTORE loads a value, the server has the name on its stack, where it can't be
     * kept. */
    size_t length;
    const char *text = RedisModule_StringPtrLen(name, &length);
    RedisModuleString *copy = RedisModule_CreateString(NULL, text, length);
    const struct filter *filter = filter_named(ctx, copy);
    RedisModule_FreeString(NULL, copy);
    return filter;
}

/* The adoption by which a descriptor names strings of others, or NULL. Only the first layer can
 * have one. */
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
        return "it lives, with the same shards, under another name; use COPY";
    if (adopts && state == SLOT_OWNED)
        return "it names strings that it adopted, and its cluster slot is not on the move";
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
