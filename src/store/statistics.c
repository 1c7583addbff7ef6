#include "store/statistics.h"

struct statistics statistics;

/* Adopted strings are not counted: others create and remove them. */
static uint64_t count_shards(const struct descriptor *descriptor) {
    uint64_t nshards = 0;
    for (uint32_t i = 0; i < descriptor->nlayers; i++)
        if (!descriptor->layers[i].adoption && !layer_is_joined(&descriptor->layers[i]))
            nshards += layer_count_created(&descriptor->layers[i]);
    return nshards;
}

void statistics_join(const struct descriptor *descriptor) {
    statistics.nshards += count_shards(descriptor);
    statistics.nbytes += descriptor_nstored(descriptor);
    statistics.nitems += descriptor_nitems(descriptor);
}

void statistics_leave(const struct descriptor *descriptor) {
    statistics.nshards -= count_shards(descriptor);
    statistics.nbytes -= descriptor_nstored(descriptor);
    statistics.nitems -= descriptor_nitems(descriptor);
}

void statistics_count(int64_t nstrings, int64_t nbytes, int64_t nlost) {
    statistics.nshards += (uint64_t)nstrings;
    statistics.nbytes += (uint64_t)nbytes;
    statistics.nlost += (uint64_t)nlost;
}

static struct work before_loading;

void statistics_loading_starts(void) {
    before_loading = statistics.work;
}

void statistics_loading_ends(void) {
    statistics.work = before_loading;
}
