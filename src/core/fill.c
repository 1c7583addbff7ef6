#include "core/fill.h"

#include "core/bytes.h"
#include "core/header.h"

/* In a large layer every block is on another memory page, and with 10 GB each access takes
 * microseconds. So the number of blocks must be limited, not only that of bytes. */
#define SAMPLE_BLOCKS 1024u
#define RUN_BYTES     4096u /* counted at a time in an adopted string: a page */

/* How many blocks of a shard are counted. A small layer is read whole. */
static uint32_t sample_size(const struct layout *layout) {
    if (layout->nshards * (uint64_t)layout_shard_bytes(layout) <= FILL_SAMPLE_BYTES)
        return layout->nblocks;
    const uint32_t fit = (uint32_t)(FILL_SAMPLE_BYTES / layout_block_bytes(layout)),
                   most = fit < SAMPLE_BLOCKS ? fit : SAMPLE_BLOCKS, share = most / layout->nshards,
                   wanted = share < 2 ? 2 : share;
    return wanted < layout->nblocks ? wanted : layout->nblocks;
}

/* An item sets at most k bits. While there are few items, hardly any two share a bit. */
static double young_fill(const struct layout *layout, const struct shard *shard) {
    const uint32_t nitems = header_nitems(shard->body - HEADER_BYTES);
    const double known = nitems < shard->capacity ? nitems : shard->capacity;
    return known * layout->nprobes / ((double)layout_shard_bytes(layout) * 8);
}

double fill_of_shard(const struct layer *layer, const struct shard *shard, double *sampled) {
    const struct layout *layout = &layer->layout;
    *sampled = 1;
    if (shard->capacity) return young_fill(layout, shard);
    const uint32_t nsamples = sample_size(layout);
    const size_t block_bytes = layout_block_bytes(layout);
    const uint8_t *blocks = shard_blocks(layer, shard);
    uint64_t nset = 0;
    for (uint32_t i = 0; i < nsamples; i++)
        nset += bytes_popcount(blocks + (uint64_t)i * layout->nblocks / nsamples * block_bytes,
                               block_bytes);
    *sampled = (double)nsamples / layout->nblocks;
    return (double)nset / ((double)nsamples * (double)block_bytes * 8);
}

double fill_of_adopted(const struct layer *layer, const struct shard *shard, size_t max_bytes,
                       double *sampled) {
    const double full = (double)layout_shard_bytes(&layer->layout) * 8;
    const size_t nruns = shard->nbytes / RUN_BYTES, wanted = max_bytes / RUN_BYTES + 1;
    *sampled = 1;
    if (nruns <= wanted) return (double)bytes_popcount(shard->body, shard->nbytes) / full;
    uint64_t nset = 0;
    for (size_t i = 0; i < wanted; i++)
        nset += bytes_popcount(shard->body + i * nruns / wanted * RUN_BYTES, RUN_BYTES);
    *sampled = (double)(wanted * RUN_BYTES) / (double)shard->nbytes;
    return (double)nset / *sampled / full;
}
