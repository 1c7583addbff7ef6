/* The kind LAYER_ADOPTED: strings that other programs also write.
 *
 * No bits are copied. The filter only remembers which strings it has seen, since the old workers
 * may set bits at any time. As with shards, a string that was seen and is gone is lost. As with
 * SETBIT, one that was never seen is empty until somebody writes it. The strings still belong to
 * others: the filter never removes them, and a copy of the filter gets its own copies. */
#include <string.h>

#include "core/layer.h"

static const struct recipe *recipe_of(const struct access *access, uint32_t index) {
    return &access->descriptor->layers[index].adoption->recipe;
}

static struct recipe_item item_of(const struct recipe *recipe, struct lookup *lookup) {
    struct recipe_item item;
    _Static_assert(sizeof lookup->own == sizeof item.md5, "the digest is kept in the lookup");
    item.bytes = lookup->item;
    item.nbytes = lookup->nbytes;
    if (lookup->own_for == LAYER_ADOPTED) {
        memcpy(item.md5, lookup->own, sizeof item.md5);
    } else {
        memset(item.md5, 0, sizeof item.md5);
        recipe_hash(recipe, &item);
        memcpy(lookup->own, item.md5, sizeof item.md5);
        lookup->own_for = LAYER_ADOPTED;
    }
    return item;
}

static bool adopted_ops_locate(struct access *access, uint32_t index, struct lookup *lookup) {
    const struct recipe *recipe = recipe_of(access, index);
    const struct recipe_item item = item_of(recipe, lookup);
    const struct shard *shard = access_open(access, index, recipe_string(recipe, &item));
    if (!shard) return access->status == SHARD_NONE;
    recipe_prefetch(recipe, &item, shard->body, shard->nbytes);
    return true;
}

static bool adopted_ops_contains(struct access *access, uint32_t index, struct lookup *lookup) {
    const struct recipe *recipe = recipe_of(access, index);
    const struct recipe_item item = item_of(recipe, lookup);
    const struct shard *shard = access_open(access, index, recipe_string(recipe, &item));
    return shard && recipe_test(recipe, &item, shard->body, shard->nbytes);
}

/* The empty item is never contained, so it gets here every time; it is new if it changes a bit.
 * Others may watch or cache the strings, so the server is told about the change. */
static enum answer adopted_ops_insert(struct access *access, uint32_t index,
                                      struct lookup *lookup) {
    const struct recipe *recipe = recipe_of(access, index);
    const struct recipe_item item = item_of(recipe, lookup);
    struct layer *layer = &access->descriptor->layers[index];
    struct shard *shard =
        access_extend(access, index, recipe_string(recipe, &item), recipe_length(recipe, &item));
    if (!recipe_set(recipe, &item, shard->body)) return ANSWER_KNOWN;
    layer->nitems++;
    if (!layer_owns_shards(layer)) access->supplier->changed(access, shard);
    return ANSWER_NEW;
}

/* As with SETBIT, an item makes its string as long as its highest bit requires: up to half a
 * gigabyte. */
static bool adopted_ops_allocates(struct access *access, uint32_t index, struct lookup *lookup) {
    const struct recipe *recipe = recipe_of(access, index);
    const struct recipe_item item = item_of(recipe, lookup);
    const struct shard *shard = access_open(access, index, recipe_string(recipe, &item));
    return !shard || shard->nbytes < recipe_length(recipe, &item);
}

const struct layer_ops layer_adopted_ops = {adopted_ops_locate, adopted_ops_contains,
                                            adopted_ops_allocates, adopted_ops_insert};
