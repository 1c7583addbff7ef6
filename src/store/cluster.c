#include "store/cluster.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/strings.h"

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
    /* Made outside of a cluster, a tag may be one that does not keep the shards together. */
    if (descriptor->tag_length == 0 || memchr(descriptor->tag, '}', descriptor->tag_length))
        return NSLOTS;
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

/* ---- what this node says of its slots ----
 * The modules API does not tell which slots a node owns, nor which are on the move; CLUSTER NODES does. The server
 * needs longer to write it than we to read it (tens of microseconds for a few nodes, milliseconds for a thousand), so
 * all slots are read at once, and the sweeper asks once per run however many filters died. */

static uint8_t slots[NSLOTS + 1];  /* enum slot_state of each; the last stands for no slot */
static struct timespec slots_read; /* when */

/* For how long "on the move" may be believed without asking again: clients that are told to try again do so soon. The
 * other answers have consequences and are never old. */
#define MOVING_MS 100

/* One word of the slot list of a node: "7", "5-9", "[7->-node]" (migrating) or "[7-<-node]" (importing). */
static void read_word(const char *word, size_t length) {
    char text[32], *end;
    const size_t n = length < sizeof text - 1 ? length : sizeof text - 1;
    memcpy(text, word, n);
    text[n] = '\0';
    const bool moving = text[0] == '[';
    const unsigned long first = strtoul(text + moving, &end, 10),
                        last =
                            !moving && *end == '-' && end[1] ? strtoul(end + 1, NULL, 10) : first;
    for (unsigned long slot = first; slot <= last && slot < NSLOTS; slot++)
        slots[slot] = moving ? SLOT_MOVING : SLOT_OWNED;
}

/* Whether a comma-separated list has the word: a host name may contain it, too. */
static bool has_flag(const char *list, size_t length, const char *flag) {
    const size_t n = strlen(flag);
    for (const char *end = list + length; list < end;) {
        const char *comma = memchr(list, ',', (size_t)(end - list)), *stop = comma ? comma : end;
        if ((size_t)(stop - list) == n && memcmp(list, flag, n) == 0) return true;
        list = stop + 1;
    }
    return false;
}

/* A line of CLUSTER NODES: id, address, flags, primary, ping, pong, epoch, link, slots. Moving slots come last, and
 * so override the range that they are in. True if it was about this node. */
static bool read_line(const char *line, const char *end) {
    for (int field = 0; line < end; field++) {
        const char *space = memchr(line, ' ', (size_t)(end - line)), *stop = space ? space : end;
        if (field == 2 && !has_flag(line, (size_t)(stop - line), "myself")) return false;
        if (field >= 8 && stop > line) read_word(line, (size_t)(stop - line));
        line = stop + 1;
    }
    return true;
}

void cluster_read_slots(RedisModuleCtx *ctx) {
    if (!cluster_enabled(ctx)) return; /* all zero: owned */
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "CLUSTER", "c", "NODES");
    size_t length = 0;
    const char *text = reply ? RedisModule_CallReplyStringPtr(reply, &length) : NULL;
    bool found = false;
    memset(slots, SLOT_FOREIGN, sizeof slots);
    for (const char *line = text, *end = text + length; line && line < end && !found;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line)),
                   *stop = newline ? newline : end;
        found = read_line(line, stop);
        line = stop + 1;
    }
    if (!found) memset(slots, SLOT_MOVING, sizeof slots); /* when in doubt, touch nothing */
    if (reply) RedisModule_FreeCallReply(reply);
    clock_gettime(CLOCK_MONOTONIC_COARSE, &slots_read);
}

enum slot_state cluster_slot_state_read(const struct descriptor *descriptor) {
    return slots[cluster_filter_slot(descriptor)];
}

enum slot_state cluster_slot_state(RedisModuleCtx *ctx, unsigned slot) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    const int64_t age_ms =
        (now.tv_sec - slots_read.tv_sec) * 1000 + (now.tv_nsec - slots_read.tv_nsec) / 1000000;
    if (slots[slot] != SLOT_MOVING || age_ms > MOVING_MS) cluster_read_slots(ctx);
    return slots[slot];
}
