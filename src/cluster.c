#include "cluster.h"

#include <stdlib.h>
#include <string.h>

#include "shard.h"

#define NSLOTS 16384u

bool cluster_enabled(RedisModuleCtx *ctx) {
    return RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_CLUSTER;
}

/* CRC-16/XMODEM, the cluster's hash. Bit by bit: it is needed when filters are made, loaded or removed, not when they
 * are used. */
static unsigned crc16(const char *bytes, size_t n) {
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)(unsigned char)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++) crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
    return crc;
}

unsigned cluster_key_slot(const char *name, size_t length) {
    const char *tag;
    size_t tag_length;
    shard_tag(name, length, &tag, &tag_length);
    return crc16(tag, tag_length) & (NSLOTS - 1);
}

unsigned cluster_filter_slot(const struct descriptor *descriptor) {
    return crc16(descriptor->tag, descriptor->tag_length) & (NSLOTS - 1);
}

bool cluster_fits(const struct descriptor *descriptor, const char *name, size_t length) {
    const unsigned slot = cluster_key_slot(name, length);
    bool fits = cluster_filter_slot(descriptor) == slot;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const struct layer *layer = &descriptor->layers[i];
        for (uint32_t j = 0; fits && !layer_owns_shards(layer) && j < layer->layout.nshards; j++) {
            RedisModuleString *shard = shard_name(descriptor, i, j);
            size_t shard_length;
            const char *text = RedisModule_StringPtrLen(shard, &shard_length);
            fits = cluster_key_slot(text, shard_length) == slot;
            RedisModule_FreeString(NULL, shard);
        }
    }
    return fits;
}

/* One word of the slot list of a node: "7", "5-9", "[7->-node]" (migrating) or "[7-<-node]" (importing). */
static enum slot_state state_in_word(const char *word, size_t length, unsigned slot) {
    char text[32];
    const size_t n = length < sizeof text - 1 ? length : sizeof text - 1;
    memcpy(text, word, n);
    text[n] = '\0';
    char *end;
    if (text[0] == '[') return strtoul(text + 1, NULL, 10) == slot ? SLOT_MOVING : SLOT_FOREIGN;
    const unsigned long first = strtoul(text, &end, 10),
                        last = *end == '-' ? strtoul(end + 1, NULL, 10) : first;
    return slot >= first && slot <= last ? SLOT_OWNED : SLOT_FOREIGN;
}

/* The line of CLUSTER NODES that is about this node: id, address, flags, primary, ping, pong, epoch, link, slots. */
static enum slot_state state_in_line(const char *line, size_t length, unsigned slot) {
    enum slot_state state = SLOT_FOREIGN;
    const char *end = line + length;
    for (int field = 0; line < end; field++) {
        const char *space = memchr(line, ' ', (size_t)(end - line)), *stop = space ? space : end;
        const enum slot_state found =
            field < 8 ? SLOT_FOREIGN : state_in_word(line, (size_t)(stop - line), slot);
        if (found == SLOT_MOVING) return SLOT_MOVING;
        if (found == SLOT_OWNED) state = SLOT_OWNED;
        line = stop + 1;
    }
    return state;
}

enum slot_state cluster_slot_state(RedisModuleCtx *ctx, const struct descriptor *descriptor) {
    if (!cluster_enabled(ctx)) return SLOT_OWNED;
    enum slot_state state = SLOT_MOVING; /* when in doubt, touch nothing */
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "CLUSTER", "c", "NODES");
    size_t length = 0;
    const char *text = reply ? RedisModule_CallReplyStringPtr(reply, &length) : NULL;
    for (const char *line = text, *end = text + length; line && line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line)),
                   *stop = newline ? newline : end;
        if (memmem(line, (size_t)(stop - line), "myself", 6)) {
            state = state_in_line(line, (size_t)(stop - line), cluster_filter_slot(descriptor));
            break;
        }
        line = stop + 1;
    }
    if (reply) RedisModule_FreeCallReply(reply);
    return state;
}
