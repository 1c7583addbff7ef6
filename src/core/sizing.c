/* How many blocks, of which width, and how many bits per item?
 *
 * A blocked Bloom filter (Putze, Sanders, Singler: "Cache-, Hash- and Space-Efficient Bloom
 * Filters") throws each item into one block, and the blocks fill unevenly: the load of a block is
 * binomial around n/nblocks, and the crowded blocks give most of the false positives. The classic
 * formula knows nothing of that and promises too much: at 1e-4, blocks of 512 bits sized by it
 * would answer wrongly 3 times as often. So the rate is computed as what it is, the mixture over
 * all loads j:
 *
 *     rate = sum over j of  P(load = j) * E[(bits set by j items / width)^k]
 *
 * Bits per item of a full layer by this model, by block width, and the overhead over the classic
 * filter:
 *
 *     error  classic       512             1024            2048            4096
 *     1e-2     9.59     9.92  +3.5%     9.76  +1.9%     9.68  +1.0%     9.64  +0.6%
 *     1e-3    14.38    15.55  +8.1%    14.98  +4.2%    14.68  +2.1%    14.53  +1.1%
 *     1e-4    19.17    22.03 +14.9%    20.62  +7.6%    19.90  +3.8%    19.54  +1.9%
 *     1e-5    23.96    29.67 +23.8%    26.83 +12.0%    25.42  +6.1%    24.70  +3.1%
 *     1e-6    28.76    38.83 +35.0%    33.79 +17.5%    31.30  +8.8%    30.04  +4.5%
 *
 * Narrow blocks are faster (one cache line), wide ones smaller: a doubling of the width must save
 * 3%. The overhead halves with each doubling, so that it ends below 6.5%.
 *
 * What a server counts is the memory that the allocator gives, and it rounds up, by 10% on average.
 * Where a layer need not be tight, the rest is used: for narrower blocks if the allocation does for
 * them too, then for more blocks. With those, fewer bits per item do, which is faster, and the rate
 * is better than it must be. And where a further doubling of the width saves an eighth, because a
 * smaller allocation does then, it is taken. */
#include "core/sizing.h"

#include <math.h>
#include <string.h>

#define WIDER       1.03
#define STILL_WIDER 1.15
#define MANY        1e6
#define PRECISION   1e-5
#define NEGLIGIBLE  1e-6
#define NWIDTHS     (LAYOUT_MAX_BLOCK_LOG2 - LAYOUT_MIN_BLOCK_LOG2 + 1)

/* E[(bits set / width)^k] after nthrows independent throws: the k-th moment around the mean, to
 * second order, since the number of distinct bits varies too. `miss` and `pair` are
 * (1-1/width)^nthrows and (1-2/width)^nthrows. */
static double filled(double width, unsigned nprobes, double miss, double pair) {
    const double mean = 1 - miss;
    if (mean <= 0) return 0;
    const double variance = miss / width + (1 - 1 / width) * pair - miss * miss;
    double power = 1, square = mean;
    for (unsigned left = nprobes; left > 0; left >>= 1, square *= square)
        if (left & 1) power *= square;
    const double k = nprobes;
    if (variance > 0) power *= 1 + k * (k - 1) / 2 * variance / (mean * mean);
    return power < 1 ? power : 1;
}

/* The mixture above. nblocks is a double so that the solver may ask for a fraction of a block. */
static double rate_of(double nitems, double nblocks, unsigned block_log2, unsigned nprobes) {
    const double width = (double)(1u << block_log2);
    const double log_miss = nprobes * log1p(-1 / width), log_pair = nprobes * log1p(-2 / width);
    if (nblocks <= 1) return filled(width, nprobes, exp(nitems * log_miss), exp(nitems * log_pair));

    const double p = 1 / nblocks, mean = nitems * p, spread = sqrt(mean);
    const double first = fmax(0, floor(mean - 4.5 * spread)),
                 last = fmin(nitems, ceil(mean + 14 * spread + 40));
    /* For 10^12 items lgamma's differences lose their digits; Poisson, who takes the loads to vary
     * a little more than they do, is exact enough from far earlier on. */
    const bool poisson = nitems > MANY;
    const double chosen = poisson ? first * log(mean) - mean
                                  : lgamma(nitems + 1) - lgamma(nitems - first + 1) +
                                        first * log(p) + (nitems - first) * log1p(-p);
    double chance = exp(chosen - lgamma(first + 1));

    const double odds = p / (1 - p), miss_step = exp(log_miss), pair_step = exp(log_pair);
    double miss = exp(first * log_miss), pair = exp(first * log_pair), rate = 0;
    for (double load = first; load <= last; load++) {
        const double part = chance * filled(width, nprobes, miss, pair);
        rate += part;
        if (part < rate * NEGLIGIBLE && load > mean) break; /* from here on they only get smaller */
        chance *= (poisson ? mean : (nitems - load) * odds) / (load + 1);
        miss *= miss_step;
        pair *= pair_step;
    }
    return rate;
}

/* The number of blocks at which the error is met, from a first guess. The rate falls with the
 * number of blocks almost like a power, so a secant in logarithms converges in a few steps; `slope`
 * is that power, as guessed and as found. */
static double meet(double nitems, double error, unsigned block_log2, unsigned nprobes, double guess,
                   double *slope) {
    const double target = log(error);
    double x0 = log(guess), y0 = log(rate_of(nitems, guess, block_log2, nprobes)) - target;
    for (int step = 0; step < 12 && isfinite(y0) && fabs(y0) >= 10 * PRECISION; step++) {
        const double move = y0 / *slope;
        const double x1 = fmax(0, x0 - (move > 1 ? 1 : move < -1 ? -1 : move));
        if (fabs(exp(x1) - exp(x0)) < 0.2) return exp(x1);
        const double y1 = log(rate_of(nitems, exp(x1), block_log2, nprobes)) - target;
        if (fabs(y1 - y0) < 1e-12) return exp(x1);
        *slope = (y1 - y0) / (x1 - x0);
        x0 = x1;
        y0 = y1;
    }
    return exp(x0);
}

/* What many items need at one error rate: for each width, the best number of probes and blocks. The
 * load of a block is Poisson's then, and the blocks are as many times more as the items. Fewer
 * items need nearly the same, so that this is where to begin for any capacity. */
struct demand {
    double error;     /* 0: nothing is known yet */
    double lost;      /* the part of all items that is not counted: items_to_come */
    unsigned nwidths; /* for which the rest is known */
    struct {
        double per_item; /* blocks */
        double slope;    /* how the rate falls with the number of blocks */
        unsigned nprobes;
    } widths[NWIDTHS];
};

/* The best number of probes for one width. The classic optimum is log2(1/error); blocks want a
 * little less. Among nearly equal ones the fewest are taken, because each costs time. */
static void find_demand(struct demand *demand, unsigned width) {
    const unsigned block_log2 = LAYOUT_MIN_BLOCK_LOG2 + width;
    const double error = demand->error;
    unsigned k = (unsigned)fmin(LAYOUT_MAX_PROBES, fmax(1, round(log2(1 / error))));
    /* The table above: what blocks need beyond the classic filter grows with the square of the
     * error's logarithm. */
    const double beyond = 0.94 * log(error) * log(error) / (double)(1u << block_log2);
    double guess =
               2 * MANY * sizing_classic_bits(error) / (double)(1u << block_log2) * (1 + beyond),
           least = INFINITY;
    for (double slope = -(double)k; k > 0; k--) {
        guess = meet(2 * MANY, error, block_log2, k, guess, &slope);
        least = fmin(least, guess);
        if (guess > least * 1.005) break;
        demand->widths[width].per_item = guess / (2 * MANY);
        demand->widths[width].slope = slope;
        demand->widths[width].nprobes = k;
    }
}

/* The fewest probes with which so many blocks keep the error. */
static void lower_probes(double nitems, double nblocks, double error, unsigned block_log2,
                         unsigned *nprobes) {
    while (*nprobes > 1 && rate_of(nitems, nblocks, block_log2, *nprobes - 1) <= error) --*nprobes;
}

/* What few items need is found by trying: one block more or less is much, and so near to each other
 * blocks fill more evenly, which lets the classic number of probes be the best one. A filter that
 * fits into one block has it anyway, and uses it: with the fewest probes that keep the promise, one
 * for 3 items at 0.01 would be wrong for 0.6% of all items instead of 2e-8%. */
static double few_blocks_needed(double nitems, double error, unsigned block_log2,
                                unsigned *nprobes) {
    const unsigned classic = (unsigned)fmin(LAYOUT_MAX_PROBES, fmax(1, round(log2(1 / error))));
    double nblocks = nitems * sizing_classic_bits(error) / (double)(1u << block_log2);
    for (nblocks = fmax(1, floor(nblocks));; nblocks++) {
        const bool enough = rate_of(nitems, nblocks, block_log2, *nprobes) <= error;
        if (enough && nblocks > 1) break;
        if (rate_of(nitems, nblocks, block_log2, classic) <= error)
            *nprobes = classic;
        else if (!enough)
            continue;
        break;
    }
    if (nblocks > 1) lower_probes(nitems, nblocks, error, block_log2, nprobes);
    return nblocks;
}

#define FEW 8

/* The least number of blocks that keeps the error, never below the promise, and the probes. */
static double blocks_needed(const struct demand *demand, unsigned width, double nitems,
                            unsigned *nprobes) {
    const unsigned block_log2 = LAYOUT_MIN_BLOCK_LOG2 + width;
    const double error = demand->error;
    double nblocks = nitems * demand->widths[width].per_item, slope = demand->widths[width].slope;
    *nprobes = demand->widths[width].nprobes;
    if (nblocks < FEW) return few_blocks_needed(nitems, error, block_log2, nprobes);
    if (nitems <= MANY) nblocks = meet(nitems, error, block_log2, *nprobes, nblocks, &slope);
    nblocks = ceil(nblocks * (1 + PRECISION));
    double rate = rate_of(nitems, nblocks, block_log2, *nprobes);
    while (rate > error) {
        nblocks += ceil(nblocks / 4096);
        rate = rate_of(nitems, nblocks, block_log2, *nprobes);
    }
    /* Of less than a hundred blocks, the last one may be hardly needed: then fewer probes do. */
    if (nblocks < 100 && rate < 0.97 * error)
        lower_probes(nitems, nblocks, error, block_log2, nprobes);
    return nblocks;
}

uint64_t sizing_size_class(uint64_t nbytes) {
    uint64_t step = 16;
    while (nbytes > step * 8) step *= 2;
    return (nbytes + step - 1) / step * step;
}

static uint64_t allocated(const struct layout *layout) {
    return layout->nshards * sizing_size_class(layout_shard_bytes(layout) + SIZING_SHARD_OVERHEAD);
}

/* Cuts nblocks into shards. Of the few smallest numbers of shards that one is taken for which the
 * allocator wastes least: a shard one byte above a size class would pay for a quarter of a doubling
 * more. All shards are equal, so that some numbers of them need more blocks than others: what goes
 * beyond 1% counts first. */
static bool cut(uint64_t nblocks, uint64_t shard_bytes, struct layout *layout) {
    const uint64_t block_bytes = layout_block_bytes(layout);
    uint64_t per_shard = (shard_bytes - SIZING_SHARD_OVERHEAD) / block_bytes;
    while ((nblocks + per_shard - 1) / per_shard > LAYOUT_MAX_SHARDS) {
        if (shard_bytes >= SIZING_MAX_SHARD_BYTES) return false;
        shard_bytes =
            shard_bytes * 2 < SIZING_MAX_SHARD_BYTES ? shard_bytes * 2 : SIZING_MAX_SHARD_BYTES;
        per_shard = (shard_bytes - SIZING_SHARD_OVERHEAD) / block_bytes;
    }
    const uint64_t fewest = (nblocks + per_shard - 1) / per_shard;
    const uint64_t most = fewest == 1 && nblocks * block_bytes < 1 << 20 ? 1 : fewest + 7;
    const uint64_t limit = nblocks + nblocks / 110;
    uint64_t least = UINT64_MAX, least_excess = UINT64_MAX;
    for (uint64_t nshards = fewest; nshards <= most && nshards <= LAYOUT_MAX_SHARDS; nshards++) {
        const uint64_t share = (nblocks + nshards - 1) / nshards;
        const uint64_t excess = nshards * share > limit ? nshards * share - limit : 0;
        const struct layout this = {.nshards = (uint32_t)nshards,
                                    .nblocks = (uint32_t)share,
                                    .block_log2 = layout->block_log2,
                                    .nprobes = layout->nprobes};
        const uint64_t total = allocated(&this);
        if (excess > least_excess) continue;
        /* A batch opens every shard: each further one must save 2%. */
        const uint64_t price = total + (nshards - fewest) * total / 50;
        if (excess == least_excess && price >= least) continue;
        least = price;
        least_excess = excess;
        *layout = this;
    }
    return true;
}

/* Adds the blocks that the shards' allocations have room for. What that gains is spent on fewer
 * probes as long as the rate stays at three quarters of what it may be. */
static void fill(double nitems, double error, uint64_t shard_bytes, struct layout *layout) {
    const uint64_t least = layout_shard_bytes(layout) + SIZING_SHARD_OVERHEAD;
    const uint64_t class = sizing_size_class(least),
                   room = class < shard_bytes ? class : shard_bytes;
    if (room > least)
        layout->nblocks = (uint32_t)((room - SIZING_SHARD_OVERHEAD) / layout_block_bytes(layout));
    const double nblocks = (double)layout->nshards * layout->nblocks;
    while (layout->nprobes > 1 &&
           rate_of(nitems, nblocks, layout->block_log2, layout->nprobes - 1u) <= 0.75 * error)
        layout->nprobes--;
}

/* How many different items must come until `counted` of them were new? One that is a false positive
 * when it comes is not counted, sets no bit, and makes room for one more that does: a layer is full
 * only after more than its capacity came, and it is then that the promise must hold. It matters for
 * high rates: at 0.25 a layer sized without this would be wrong for 0.297 of all items, at 0.01 for
 * 0.0101. A well-sized layer is half full in the end, thus 1-2^-t full after the part t of all
 * items. */
static double part_lost(double error) {
    enum { NSTEPS = 32 };
    const double k = floor(log2(1 / error));
    double lost = 0;
    for (int i = 0; i < NSTEPS; i++)
        lost += error * pow(2 - 2 * exp2(-(i + 0.5) / NSTEPS), k) / NSTEPS;
    return lost;
}

/* Of layouts by width, up to one more than the `base`, that with the least allocation. */
static const struct layout *least_allocated(const struct layout *widths, unsigned n,
                                            unsigned base) {
    const struct layout *best = NULL;
    double least = INFINITY;
    for (unsigned i = 0; i < n; i++) {
        const double price = (double)allocated(&widths[i]) * (i > base ? STILL_WIDER : 1);
        if (widths[i].nshards == 0 || price >= least) continue;
        least = price;
        best = &widths[i];
    }
    return best;
}

/* Most filters of a server have the same few error rates, and grow by the same steps. */
#define NDEMANDS 64u /* a power of two */

static uint64_t hash_of(double error) {
    uint64_t hash;
    memcpy(&hash, &error, sizeof hash);
    return hash * 0xbf58476d1ce4e5b9u;
}

static struct demand *demand_of(double error) {
    static _Thread_local struct demand remembered[NDEMANDS];
    struct demand *at = &remembered[(hash_of(error) >> 32) % NDEMANDS];
    if (at->error != error) *at = (struct demand){.error = error, .lost = part_lost(error)};
    return at;
}

static bool plan(uint64_t capacity, double error, uint64_t shard_bytes, bool tight,
                 struct layout *layout) {
    struct demand *demand = demand_of(error);
    const double nitems = ceil((double)capacity / (1 - demand->lost));
    struct layout widths[NWIDTHS];
    double least = INFINITY, factor = 1;
    unsigned n = 0, base = 0;
    for (; n < NWIDTHS && n < base + 2; n++, factor *= WIDER) {
        const unsigned log2 = LAYOUT_MIN_BLOCK_LOG2 + n;
        if ((1u << (log2 - 3)) + SIZING_SHARD_OVERHEAD > shard_bytes) break; /* not even one fits */
        if (demand->nwidths == n) find_demand(demand, demand->nwidths++);
        unsigned nprobes;
        const double nblocks = blocks_needed(demand, n, nitems, &nprobes),
                     price = ldexp(nblocks, (int)log2) * factor;
        widths[n] = (struct layout){.block_log2 = (uint8_t)log2, .nprobes = (uint8_t)nprobes};
        if (!cut((uint64_t)nblocks, shard_bytes, &widths[n]) || price >= least) continue;
        least = price;
        base = n;
    }
    if (!isfinite(least)) return false;
    *layout = tight ? widths[base] : *least_allocated(widths, n, base);
    if (!tight) fill(nitems, error, shard_bytes, layout);
    return true;
}

/* Nor do their capacities differ much. A plan takes 1 to 12 µs, or 7 to 40 µs if its error
 * rate is new; finding it again takes a few nanoseconds. */
#define NREMEMBERED 128u /* a power of two */

bool sizing_plan(uint64_t capacity, double error, uint64_t shard_bytes, bool tight,
                 struct layout *layout) {
    static _Thread_local struct {
        uint64_t capacity; /* 0: nothing is remembered here */
        uint64_t shard_bytes;
        double error;
        struct layout layout;
        bool tight, possible;
    } remembered[NREMEMBERED], *at;
    const uint64_t hash = (hash_of(error) ^ capacity * 0x9e3779b97f4a7c15u ^ shard_bytes ^ tight) *
                          0xbf58476d1ce4e5b9u;
    at = &remembered[(hash >> 32) % NREMEMBERED];
    if (at->capacity != capacity || at->error != error || at->shard_bytes != shard_bytes ||
        at->tight != tight || capacity == 0) {
        at->capacity = capacity;
        at->error = error;
        at->shard_bytes = shard_bytes;
        at->tight = tight;
        at->possible = plan(capacity, error, shard_bytes, tight, &at->layout);
    }
    if (at->possible) *layout = at->layout;
    return at->possible;
}

double sizing_rate(const struct layout *layout, uint64_t nitems) {
    const double nblocks = (double)layout->nshards * layout->nblocks;
    /* A forged layout can have any number of items, and as many loads of a block to add up. */
    if ((double)nitems * layout->nprobes > 16 * ldexp(nblocks, layout->block_log2)) return 1;
    return nitems == 0 ? 0 : rate_of((double)nitems, nblocks, layout->block_log2, layout->nprobes);
}

double sizing_block_items(const struct layout *layout, uint64_t nset) {
    const double width = (double)(1u << layout->block_log2);
    return log1p(-fmin((double)nset, width - 0.5) / width) / (layout->nprobes * log1p(-1 / width));
}

double sizing_classic_rate(uint64_t nbits, unsigned nprobes, uint64_t nitems) {
    const double nthrows = (double)nitems * nprobes;
    return pow(-expm1(nthrows * log1p(-1 / (double)nbits)), nprobes);
}

double sizing_classic_bits(double error) {
    return -log(error) / (M_LN2 * M_LN2);
}

/* 1/(i+1)^2, scaled so that all shares together are 1. Halving the error from layer to layer, as is
 * usual, costs 1.44 bits per item more with every layer; this costs half of that after 4 layers, a
 * quarter after 10, and leaves the first layer, the only one of a well-sized filter, 61% of the
 * promise instead of 50%. */
double sizing_layer_error(double error, unsigned layer, bool scaling) {
    const double rank = layer + 1;
    return scaling ? error * (6 / (M_PI * M_PI)) / (rank * rank) : error;
}

/* RedisBloom halves the error from layer to layer: n of its layers leave 2^-n of the promise, which
 * our own share among themselves. With less than the least there would be more probes than a layer
 * may have. */
double sizing_next_error(double error, unsigned nlayers, unsigned nclassic) {
    const double least = 1e-19;
    return fmax(least, sizing_layer_error(ldexp(error, -(int)nclassic), nlayers - nclassic, true));
}

/* With an expansion of 1, a filter would get slower without end: one more layer for every so many
 * items. From the 16th layer on the capacity at least doubles, so 64 layers are never reached in
 * practice. */
uint64_t sizing_next_capacity(uint64_t last_capacity, uint32_t expansion, unsigned nlayers) {
    const uint64_t factor = nlayers >= 16 && expansion < 2 ? 2 : expansion;
    return last_capacity > SIZING_MAX_CAPACITY / factor ? SIZING_MAX_CAPACITY
                                                        : last_capacity * factor;
}
