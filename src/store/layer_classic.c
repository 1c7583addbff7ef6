/* The kind LAYER_CLASSIC: bits of an item lie anywhere in the layer, in up to k shards. Until it is full, a layer that
 * came from RedisBloom takes new items as it would have done there; all layers after it are our own. */
#include "core/classic.h"
#include "store/layer.h"

static struct classic_hash hash_of(const struct layer *layer, struct lookup *lookup) {
    if (lookup->own_for != LAYER_CLASSIC) {
        size_t length;
        const char *item = RedisModule_StringPtrLen(lookup->item, &length);
        const struct classic_hash hash = classic_hash(item, length, layer->flags & LAYER_WIDE);
        lookup->own[0] = hash.a;
        lookup->own[1] = hash.b;
        lookup->own_for = LAYER_CLASSIC;
    }
    return (struct classic_hash){lookup->own[0], lookup->own[1]};
}

static struct classic_place place_of(const struct layer *layer, struct classic_hash hash,
                                     unsigned probe) {
    return classic_place(&layer->layout, classic_position(hash, probe, layer->nbits));
}

static bool classic_ops_locate(struct shards *shards, uint32_t index, struct lookup *lookup) {
    const struct layer *layer = &shards->filter->descriptor->layers[index];
    const struct classic_hash hash = hash_of(layer, lookup);
    for (unsigned i = 0; i < layer->layout.nprobes; i++) {
        const struct classic_place place = place_of(layer, hash, i);
        const struct shard_slot *slot = shards_open(shards, index, place.shard);
        if (slot)
            __builtin_prefetch(slot->blocks + place.byte);
        else if (shards->status != SHARD_NONE)
            return false;
    }
    return true;
}

static bool classic_ops_contains(struct shards *shards, uint32_t index, struct lookup *lookup) {
    const struct layer *layer = &shards->filter->descriptor->layers[index];
    const struct classic_hash hash = hash_of(layer, lookup);
    for (unsigned i = 0; i < layer->layout.nprobes; i++) {
        const struct classic_place place = place_of(layer, hash, i);
        const struct shard_slot *slot = shards_open(shards, index, place.shard);
        if (!slot || !(slot->blocks[place.byte] & place.mask)) return false;
    }
    return true;
}

static bool classic_ops_insert(struct shards *shards, uint32_t index, struct lookup *lookup) {
    struct layer *layer = &shards->filter->descriptor->layers[index];
    const struct classic_hash hash = hash_of(layer, lookup);
    bool changed = false;
    for (unsigned i = 0; i < layer->layout.nprobes; i++) {
        const struct classic_place place = place_of(layer, hash, i);
        struct shard_slot *slot = layer_shard_created(layer, place.shard)
                                      ? shards_open(shards, index, place.shard)
                                      : shards_create(shards, index, place.shard);
        changed |= !(slot->blocks[place.byte] & place.mask);
        slot->blocks[place.byte] |= place.mask;
    }
    layer->nitems += changed;
    return changed;
}

const struct layer_ops layer_classic_ops = {classic_ops_locate, classic_ops_contains,
                                            classic_ops_insert};
