#include "store/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "core/names.h"
#include "store/clock.h"

bool cluster_enabled(RedisModuleCtx *ctx) {
    return RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_CLUSTER;
}

/* ---- whose slot is it, and is it moving? ----
 * The modules API does not say. But the server refuses a call for missing keys in a slot that it
 * does not own or is migrating (or importing, if there are several keys). That takes a microsecond
 * and is always up to date. Only if it refuses, CLUSTER NODES must be read, which takes tens of
 * microseconds with a few nodes and milliseconds with a thousand. So all slots are read at once. */

/* Two bytes with this CRC-16: runs the sixteen steps of the CRC backwards. */
static unsigned uncrc16(unsigned crc) {
    for (int bit = 0; bit < 16; bit++) crc = crc & 1 ? (crc ^ 0x1021) >> 1 | 0x8000 : crc >> 1;
    return crc;
}

/* Does the server accept commands for missing keys in this slot? */
static bool is_served(RedisModuleCtx *ctx, unsigned slot) {
    unsigned tag = '}';
    for (unsigned high = 0; high < 4 && (tag >> 8 == '}' || (tag & 0xff) == '}'); high++)
        tag = uncrc16(high << 14 | slot);        /* one of the four has no brace */
    char names[2][8] = {"bf:{..}0", "bf:{..}1"}; /* unused names; not NUL-terminated */
    for (int i = 0; i < 2; i++) {
        names[i][4] = (char)(tag >> 8);
        names[i][5] = (char)tag;
    }
    RedisModuleCallReply *reply =
        RedisModule_Call(ctx, "EXISTS", "bb", names[0], sizeof names[0], names[1], sizeof names[1]);
    const bool served = reply && RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_INTEGER &&
                        RedisModule_CallReplyInteger(reply) == 0;
    if (reply) RedisModule_FreeCallReply(reply);
    return served;
}

static uint8_t slots[NAMES_NSLOTS + 1]; /* enum slot_state of each; the last is for "no slot" */
static int64_t read_us;                 /* when CLUSTER NODES was read */

/* How long a state without lasting effects may be reused. "Moving" only makes clients try again,
 * which they do soon. */
#define OLD_US 100000

/* One word of a node's slot list: "7", "5-9", "[7->-node]" (migrating) or "[7-<-node]"
 * (importing). */
static void read_word(const char *word, size_t length) {
    char text[32], *end;
    const size_t n = length < sizeof text - 1 ? length : sizeof text - 1;
    memcpy(text, word, n);
    text[n] = '\0';
    const bool moving = text[0] == '[';
    const unsigned long first = strtoul(text + moving, &end, 10),
                        last =
                            !moving && *end == '-' && end[1] ? strtoul(end + 1, NULL, 10) : first;
    for (unsigned long slot = first; slot <= last && slot < NAMES_NSLOTS; slot++)
        slots[slot] = moving ? SLOT_MOVING : SLOT_OWNED;
}

/* Does a comma-separated list contain the flag as a whole word? A host name may also contain it. */
static bool has_flag(const char *list, size_t length, const char *flag) {
    const size_t n = strlen(flag);
    for (const char *end = list + length; list < end;) {
        const char *comma = memchr(list, ',', (size_t)(end - list)), *stop = comma ? comma : end;
        if ((size_t)(stop - list) == n && memcmp(list, flag, n) == 0) return true;
        list = stop + 1;
    }
    return false;
}

/* Reads a line of CLUSTER NODES: id, address, flags, primary, ping, pong, epoch, link, slots.
 * Moving slots come last and so override the range that contains them. True if the line was about
 * this node. */
static bool read_line(const char *line, const char *end) {
    for (int field = 0; line < end; field++) {
        const char *space = memchr(line, ' ', (size_t)(end - line)), *stop = space ? space : end;
        if (field == 2 && !has_flag(line, (size_t)(stop - line), "myself")) return false;
        if (field >= 8 && stop > line) read_word(line, (size_t)(stop - line));
        line = stop + 1;
    }
    return true;
}

static void read_slots(RedisModuleCtx *ctx) {
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
    if (!found) memset(slots, SLOT_MOVING, sizeof slots); /* if in doubt, don't touch anything */
    if (reply) RedisModule_FreeCallReply(reply);
    read_us = clock_monotonic_us();
}

/* `may_be_old`: a state that may be used even if it was read a moment ago. */
static enum slot_state slot_state(RedisModuleCtx *ctx, unsigned slot, enum slot_state may_be_old) {
    if (!cluster_enabled(ctx)) return SLOT_OWNED;
    if (!(RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_MASTER) || slot >= NAMES_NSLOTS)
        return SLOT_FOREIGN;
    if (is_served(ctx, slot)) return SLOT_OWNED;
    const bool old = clock_monotonic_us() - read_us > OLD_US;
    if (old || (slots[slot] != SLOT_MOVING && slots[slot] != may_be_old)) read_slots(ctx);
    return slots[slot];
}

enum slot_state cluster_slot_state(RedisModuleCtx *ctx, unsigned slot) {
    return slot_state(ctx, slot, SLOT_MOVING);
}

enum slot_state cluster_slot_state_to_sweep(RedisModuleCtx *ctx, unsigned slot) {
    return slot_state(ctx, slot, SLOT_FOREIGN);
}
