/* The kind LAYER_CLASSIC: the bits of an item may be anywhere in the layer, in up to k shards. A
 * layer that came from RedisBloom takes new items until it is full, as it would have there. All
 * layers after it are of our own kind. */
#include "core/classic.h"
#include "core/layer.h"

static struct classic_hash hash_of(const struct layer *layer, struct lookup *lookup) {
    if (lookup->own_for != LAYER_CLASSIC) {
        const struct classic_hash hash =
            classic_hash(lookup->item, lookup->nbytes, layer->flags & LAYER_WIDE);
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

static bool classic_ops_locate(struct access *access, uint32_t index, struct lookup *lookup) {
    const struct layer *layer = &access->descriptor->layers[index];
    const struct classic_hash hash = hash_of(layer, lookup);
    for (unsigned i = 0; i < layer->layout.nprobes; i++) {
        const struct classic_place place = place_of(layer, hash, i);
        const struct shard *shard = access_open(access, index, place.shard);
        if (shard)
            __builtin_prefetch(shard->body + place.byte);
        else if (access->status != SHARD_NONE)
            return false;
    }
    return true;
}

static bool classic_ops_contains(struct access *access, uint32_t index, struct lookup *lookup) {
    const struct layer *layer = &access->descriptor->layers[index];
    const struct classic_hash hash = hash_of(layer, lookup);
    for (unsigned i = 0; i < layer->layout.nprobes; i++) {
        const struct classic_place place = place_of(layer, hash, i);
        const struct shard *shard = access_open(access, index, place.shard);
        if (!shard || !(shard->body[place.byte] & place.mask)) return false;
    }
    return true;
}

static enum answer classic_ops_insert(struct access *access, uint32_t index,
                                      struct lookup *lookup) {
    struct layer *layer = &access->descriptor->layers[index];
    const struct classic_hash hash = hash_of(layer, lookup);
    bool changed = false;
    for (unsigned i = 0; i < layer->layout.nprobes; i++) {
        const struct classic_place place = place_of(layer, hash, i);
        struct shard *shard = layer_shard_created(layer, place.shard)
                                  ? access_open(access, index, place.shard)
                                  : access_create(access, index, place.shard);
        changed |= !(shard->body[place.byte] & place.mask);
        shard->body[place.byte] |= place.mask;
    }
    layer->nitems += changed;
    return changed ? ANSWER_NEW : ANSWER_KNOWN;
}

static bool classic_ops_allocates(struct access *access, uint32_t index, struct lookup *lookup) {
    const struct layer *layer = &access->descriptor->layers[index];
    const struct classic_hash hash = hash_of(layer, lookup);
    for (unsigned i = 0; i < layer->layout.nprobes; i++)
        if (!layer_shard_created(layer, place_of(layer, hash, i).shard)) return true;
    return false;
}

const struct layer_ops layer_classic_ops = {classic_ops_locate, classic_ops_contains,
                                            classic_ops_allocates, classic_ops_insert};
