/* The Redis side of chunk.h and classic.h: reads bits from shards and writes them into new ones.
 *
 * While a filter is being loaded, its descriptor says which chunk must come next; RDB files, the
 * AOF and replicas carry that along. The header is replicated as the resulting descriptor, because
 * that has a random id. All later chunks are replicated as they are, because their effect depends
 * only on the filter. Every chunk is checked as a whole before any of it is written. */
#include "commands/dump.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "commands/config.h"
#include "commands/create.h"
#include "commands/open.h"
#include "commands/reply.h"
#include "commands/words.h"
#include "core/chunk.h"
#include "core/redisbloom.h"
#include "store/datatype.h"
#include "store/identity.h"
#include "store/replication.h"
#include "store/statistics.h"

static bool parse_iterator(RedisModuleCtx *ctx, const RedisModuleString *string,
                           uint64_t *iterator) {
    if (word_to_u64(word_of(string), iterator)) return true;
    RedisModule_ReplyWithError(ctx, ERROR_BAD_ITERATOR);
    return false;
}

/* ---- BF.SCANDUMP ---- */

static void reply_chunk(RedisModuleCtx *ctx, uint64_t next, const uint8_t *bytes, size_t nbytes) {
    RedisModule_ReplyWithArray(ctx, 2);
    RedisModule_ReplyWithLongLong(ctx, (long long)next);
    RedisModule_ReplyWithStringBuffer(ctx, (const char *)bytes, nbytes);
}

static void dump_header(RedisModuleCtx *ctx, const struct descriptor *descriptor) {
    const size_t nbytes = chunk_header_size(descriptor);
    uint8_t *bytes = RedisModule_Alloc(nbytes);
    struct chunk chunk;
    chunk_write_header(descriptor, bytes);
    chunk_open(bytes, nbytes, &chunk);
    reply_chunk(ctx, chunk.to, bytes, nbytes);
    RedisModule_Free(bytes);
}

static void dump_end(RedisModuleCtx *ctx, const struct descriptor *descriptor, uint64_t iterator) {
    const size_t nbytes = chunk_end_size(descriptor);
    uint8_t *bytes = RedisModule_Alloc(nbytes);
    struct chunk chunk;
    chunk_write_end(descriptor, iterator, bytes);
    chunk_open(bytes, nbytes, &chunk);
    reply_chunk(ctx, chunk.to, bytes, nbytes);
    RedisModule_Free(bytes);
}

/* Collects the parts that a chunk for this iterator holds, with their bytes, in shards that stay
 * open. *to is the next iterator. False after replying with an error. */
static bool gather(struct strings *strings, uint64_t iterator, struct part *parts, size_t *nparts,
                   size_t *nbody, uint64_t *to) {
    struct access *access = &strings->access;
    struct part part;
    *nparts = *nbody = 0;
    for (*to = iterator; chunk_next_part(access->descriptor, &iterator, &part); *to = iterator) {
        const struct shard *shard = access_open(access, part.layer, part.shard);
        if (!shard) {
            reply_lost(strings);
            return false;
        }
        const struct layer *layer = &access->descriptor->layers[part.layer];
        if (shard->capacity &&
            !chunk_make_young(access->descriptor, &iterator, &part, shard->nbytes)) {
            RedisModule_ReplyWithError(strings->ctx, ERROR_CHANGED);
            return false;
        }
        part.bytes = shard_blocks(layer, shard) + (size_t)part.part * CHUNK_PART_BYTES;
        if (!chunk_reserve(&part, *nparts, nbody)) break;
        parts[(*nparts)++] = part;
    }
    return true;
}

/* Replies with a chunk of data, or with the end chunk if there is no data left. */
static void dump_data(RedisModuleCtx *ctx, struct filter *filter, uint64_t iterator) {
    const struct descriptor *descriptor = filter->descriptor;
    struct strings strings = strings_of(ctx, filter, REDISMODULE_READ);
    struct part *parts = RedisModule_Alloc(CHUNK_MAX_PARTS * sizeof *parts);
    size_t nparts, nbody;
    uint64_t to;
    if (gather(&strings, iterator, parts, &nparts, &nbody, &to)) {
        if (nparts == 0) {
            dump_end(ctx, descriptor, iterator);
        } else {
            const size_t nbytes = chunk_data_size(nbody);
            uint8_t *bytes = RedisModule_Alloc(nbytes);
            uint8_t *at = chunk_begin_data(descriptor, iterator, to, bytes);
            for (size_t i = 0; i < nparts; i++) at = chunk_put_part(at, &parts[i]);
            chunk_seal(bytes, nbytes);
            reply_chunk(ctx, to, bytes, nbytes);
            RedisModule_Free(bytes);
        }
    }
    access_close(&strings.access);
    RedisModule_Free(parts);
}

/* BF.SCANDUMP key iterator */
int BFScanDump_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 3) return RedisModule_WrongArity(ctx);
    uint64_t iterator;
    if (!parse_iterator(ctx, argv[2], &iterator)) return REDISMODULE_OK;
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_existing(ctx, argv[1], REDISMODULE_READ, &key, &filter)) return REDISMODULE_OK;
    if (filter->descriptor->layers[0].adoption) {
        RedisModule_CloseKey(key);
        return RedisModule_ReplyWithError(ctx, ERROR_ADOPTED);
    }
    switch (chunk_wanted(filter->descriptor, iterator)) {
    case WANTED_HEADER:
        dump_header(ctx, filter->descriptor);
        break;
    case WANTED_DATA:
        dump_data(ctx, filter, iterator);
        break;
    case WANTED_NOTHING:
        reply_chunk(ctx, 0, (const uint8_t *)"", 0);
        break;
    case WANTED_UNKNOWN:
        RedisModule_ReplyWithError(ctx, ERROR_CHANGED);
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* ---- BF.LOADCHUNK: the first chunk ---- */

static bool reply_bad_chunk(RedisModuleCtx *ctx, const char *problem) {
    char text[200];
    snprintf(text, sizeof text, "ERR received bad data: %s", problem);
    RedisModule_ReplyWithError(ctx, text);
    return false;
}

/* The chunk itself may be sound: say which one was expected. */
static bool reply_bad_next(RedisModuleCtx *ctx, const char *problem, const struct load *load) {
    char text[300];
    snprintf(text, sizeof text,
             "ERR received bad data: %s; the filter needs the chunk that BF.SCANDUMP returns for "
             "iterator "
             "%" PRIu64,
             problem, load->next);
    RedisModule_ReplyWithError(ctx, text);
    return false;
}

/* The filter that a first chunk describes, ours or RedisBloom's; NULL after replying with an
 * error. */
static struct descriptor *read_first(RedisModuleCtx *ctx, uint64_t iterator, const uint8_t *bytes,
                                     size_t nbytes) {
    const char *problem;
    struct descriptor *descriptor = NULL;
    if (chunk_is_ours(bytes, nbytes)) {
        struct chunk chunk;
        problem = chunk_open(bytes, nbytes, &chunk);
        if (!problem && chunk.type != CHUNK_HEADER) {
            RedisModule_ReplyWithError(ctx, ERROR_NO_HEADER);
            return NULL;
        }
        if (!problem && chunk.to != iterator) {
            RedisModule_ReplyWithError(ctx, ERROR_OTHER_ITERATOR);
            return NULL;
        }
        if (!problem) descriptor = chunk_read_header(&chunk, &problem);
    } else if (iterator == 1) {
        descriptor =
            redisbloom_decode_header(bytes, nbytes, (uint64_t)config.shard_bytes, &problem);
    } else {
        RedisModule_ReplyWithError(ctx, ERROR_NO_HEADER);
        return NULL;
    }
    if (!descriptor) {
        reply_bad_chunk(ctx, problem);
    } else if (descriptor->layers[0].adoption) {
        descriptor_free(descriptor);
        RedisModule_ReplyWithError(ctx, ERROR_ADOPTED);
        return NULL;
    }
    return descriptor;
}

static bool load_first(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleKey *key,
                       uint64_t iterator, const uint8_t *bytes, size_t nbytes) {
    const char *tag;
    size_t tag_length;
    if (!tag_for(ctx, name, &tag, &tag_length)) return false;
    struct descriptor *descriptor = read_first(ctx, iterator, bytes, nbytes);
    if (!descriptor) return false;
    if (!descriptor_set_tag(descriptor, tag, tag_length)) {
        descriptor_free(descriptor);
        RedisModule_ReplyWithError(ctx, ERROR_MEMORY);
        return false;
    }
    descriptor->id = identity_fresh();
    struct filter *filter = filter_wrap(descriptor);
    type_set(key, filter);
    replicate_descriptor(ctx, name, filter->descriptor);
    return true;
}

/* ---- BF.LOADCHUNK: the others ---- */

/* Writes into a dense shard, which is created if necessary. False if it is lost. */
static bool write_shard(struct access *access, uint32_t layer, uint32_t number, size_t offset,
                        const uint8_t *bytes, size_t nbytes) {
    const struct layer *at = &access->descriptor->layers[layer];
    struct shard *shard = layer_shard_created(at, number) ? access_open(access, layer, number)
                                                          : access_create(access, layer, number);
    if (!shard) return false;
    if (shard->capacity) access_turn(access, layer, number, shard);
    memcpy(shard_blocks(at, shard) + offset, bytes, nbytes);
    return true;
}

/* Only the first part of a chunk can be in a shard that exists already and so may be lost. Nothing
 * has been written then. */
static bool load_data(struct strings *strings, const struct chunk *chunk) {
    struct access *access = &strings->access;
    struct load *load = access->descriptor->load;
    struct part part;
    for (size_t at = 0; chunk_read_part(chunk, &at, &part);) {
        if (part.young) {
            access_fill(access, part.layer, part.shard, true, part.bytes, part.nbytes);
        } else if (!write_shard(access, part.layer, part.shard,
                                (size_t)part.part * CHUNK_PART_BYTES, part.bytes, part.nbytes)) {
            reply_lost(strings);
            return false;
        }
        load->nbytes += part.nbytes;
    }
    load->next = chunk->to;
    return true;
}

/* The counts of the last chunk become the filter's. */
static const char *load_end(struct descriptor *descriptor, const struct chunk *chunk) {
    statistics_leave(descriptor);
    const char *problem = chunk_read_end(chunk, descriptor);
    statistics_join(descriptor);
    return problem;
}

static bool load_ours(struct strings *strings, uint64_t iterator, const uint8_t *bytes,
                      size_t nbytes) {
    struct descriptor *descriptor = strings->access.descriptor;
    struct chunk chunk;
    const char *problem = chunk_open(bytes, nbytes, &chunk);
    if (problem) return reply_bad_chunk(strings->ctx, problem);
    if (chunk.to != iterator) {
        RedisModule_ReplyWithError(strings->ctx, ERROR_OTHER_ITERATOR);
        return false;
    }
    if (chunk.type == CHUNK_HEADER)
        problem = "it is the first one";
    else if (chunk.type == CHUNK_DATA)
        problem = chunk_check_data(&chunk, descriptor);
    else
        problem = load_end(descriptor, &chunk);
    if (problem) return reply_bad_next(strings->ctx, problem, descriptor->load);
    return chunk.type == CHUNK_END || load_data(strings, &chunk);
}

static bool all_zero(const uint8_t *bytes, size_t nbytes) {
    return nbytes == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, nbytes - 1) == 0);
}

/* RedisBloom's data has no frame. A shard whose bits are all zero is not created. */
static bool load_classic(struct strings *strings, uint64_t iterator, const uint8_t *bytes,
                         size_t nbytes) {
    struct descriptor *descriptor = strings->access.descriptor;
    struct load *load = descriptor->load;
    uint32_t layer;
    uint64_t offset;
    if (nbytes == 0 || nbytes > CHUNK_MAX_BYTES)
        return reply_bad_chunk(strings->ctx, "it is empty or longer than 16 MiB");
    if (iterator < nbytes || iterator - nbytes != load->next)
        return reply_bad_next(strings->ctx, "it is truncated or out of order", load);
    if (!redisbloom_locate(descriptor, load->next, nbytes, &layer, &offset))
        return reply_bad_next(strings->ctx, "it is longer than its layer", load);
    const size_t shard_bytes = layout_shard_bytes(&descriptor->layers[layer].layout);
    for (size_t done = 0, n; done < nbytes; done += n) {
        const uint32_t shard = (uint32_t)((offset + done) / shard_bytes);
        const size_t from = (size_t)((offset + done) % shard_bytes);
        n = nbytes - done < shard_bytes - from ? nbytes - done : shard_bytes - from;
        if (!layer_shard_created(&descriptor->layers[layer], shard) && all_zero(bytes + done, n))
            continue;
        if (!write_shard(&strings->access, layer, shard, from, bytes + done, n)) {
            reply_lost(strings);
            return false;
        }
    }
    load->nbytes += nbytes;
    load->next = iterator;
    if (load->nbytes == redisbloom_total_bytes(descriptor)) descriptor_end_load(descriptor);
    return true;
}

static bool load_next(RedisModuleCtx *ctx, struct filter *filter, uint64_t iterator,
                      const uint8_t *bytes, size_t nbytes) {
    const struct load *load = filter->descriptor->load;
    if (!load) {
        RedisModule_ReplyWithError(ctx, ERROR_COMPLETE);
        return false;
    }
    struct strings strings = strings_of(ctx, filter, REDISMODULE_READ | REDISMODULE_WRITE);
    const bool loaded = load->origin == LOAD_OURS ? load_ours(&strings, iterator, bytes, nbytes)
                                                  : load_classic(&strings, iterator, bytes, nbytes);
    access_close(&strings.access);
    if (loaded) RedisModule_ReplicateVerbatim(ctx);
    return loaded;
}

/* BF.LOADCHUNK key iterator data */
int BFLoadChunk_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 4) return RedisModule_WrongArity(ctx);
    uint64_t iterator;
    if (!parse_iterator(ctx, argv[2], &iterator)) return REDISMODULE_OK;
    size_t nbytes;
    const uint8_t *bytes = (const uint8_t *)RedisModule_StringPtrLen(argv[3], &nbytes);
    RedisModuleKey *key;
    struct filter *filter;
    if (!open_any(ctx, argv[1], REDISMODULE_READ | REDISMODULE_WRITE, &key, &filter))
        return REDISMODULE_OK;
    if (filter ? load_next(ctx, filter, iterator, bytes, nbytes)
               : load_first(ctx, argv[1], key, iterator, bytes, nbytes)) {
        RedisModule_SignalModifiedKey(ctx, argv[1]);
        RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, "bf.loadchunk", argv[1]);
        RedisModule_ReplyWithSimpleString(ctx, "OK");
    }
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}
