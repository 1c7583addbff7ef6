/* Any words to the parser of options: the first byte chooses the command, the rest are the words,
 * one on each line. What is accepted lies in range, can be sized, and what was sized can be
 * stored. */
#include "fuzz.h"

#include "core/descriptor.h"
#include "core/encoding.h"
#include "core/filter.h"
#include "core/options.h"
#include "core/sizing.h"
#include "core/window.h"

#define MAX_WORDS 100

/* A filter with a window that was accepted can be made at any time, and turns. */
static void check_window(const struct options *options) {
    const struct filter_options wanted = {.error = options->error,
                                          .capacity = options->capacity,
                                          .expansion = options->expansion,
                                          .seed = options->seed,
                                          .shard_bytes = options->shard_bytes,
                                          .window = options->window,
                                          .now_ms = 1600000000000};
    HOLDS(!window_problem(&options->window));
    struct descriptor *descriptor = filter_new(&wanted, "tag", 3), *gone;
    if (!descriptor) return; /* it can't be sized */
    HOLDS(!descriptor_problem(descriptor));
    const uint64_t piece_ms = window_slice_ms(&options->window);
    HOLDS(piece_ms >= WINDOW_MIN_SLICE_MS &&
          piece_ms * options->window.nslices >= options->window.seconds * 1000ull);
    for (unsigned i = 1; i <= options->window.nslices + 2; i++) {
        HOLDS(window_turn(descriptor, 1600000000000 + i * piece_ms, true, &gone));
        HOLDS(descriptor->nlayers <= options->window.nslices + 1);
        HOLDS(!descriptor_problem(descriptor));
        descriptor_free(gone);
    }
    descriptor_free(descriptor);
}

static void check_sizing(const struct options *options) {
    struct layout layout;
    const double error = sizing_layer_error(options->error, 0, options->expansion > 0);
    if (!sizing_plan(options->capacity, error, options->shard_bytes, options->expansion == 0,
                     &layout))
        return;
    struct descriptor *descriptor = descriptor_new("tag", 3);
    descriptor->error = options->error;
    descriptor->shard_bytes = options->shard_bytes;
    descriptor->expansion = options->expansion;
    HOLDS(descriptor_add_layer(descriptor, &layout, options->capacity));
    const size_t nbytes = descriptor_encoded_size(descriptor);
    uint8_t *bytes = malloc(nbytes);
    descriptor_encode(descriptor, bytes);
    const char *problem;
    struct descriptor *stored = descriptor_decode(bytes, nbytes, &problem);
    HOLDS(stored);
    descriptor_free(stored);
    descriptor_free(descriptor);
    free(bytes);
}

static void check_numbers(struct word word) {
    uint64_t number, nbytes;
    double fraction;
    if (word_to_u64(word, &number)) {
        HOLDS(word_to_bytes(word, &nbytes) && nbytes == number);
        char text[24];
        const int n = snprintf(text, sizeof text, "%llu", (unsigned long long)number);
        HOLDS((size_t)n == word.length && memcmp(text, word.text, word.length) == 0);
    }
    if (word_to_double(word, &fraction)) HOLDS(fraction >= 0);
}

static void check_adoption(const struct adoption *adoption) {
    HOLDS(!recipe_problem(&adoption->recipe));
    HOLDS(adoption->prefix_length >= 1 && adoption->prefix_length <= DESCRIPTOR_MAX_TAG);
    struct descriptor *descriptor = descriptor_new("tag", 3);
    descriptor->error = RECIPE_ERROR;
    descriptor->shard_bytes = 32 << 20;
    HOLDS(descriptor_add_adopted(descriptor, adoption));
    HOLDS(!descriptor_problem(descriptor));
    descriptor_free(descriptor);
}

static void parse(const struct word *words, size_t nwords, unsigned allowed) {
    char prefix[] = "bloomfilter";
    struct options options = {
        .error = 0.01,
        .capacity = 100,
        .expansion = 2,
        .shard_bytes = 32 << 20,
        .adoption = {.recipe = recipe_default, .prefix = prefix, .prefix_length = 11},
        .count = OPTIONS_MAX_COUNT};
    HOLDS(options_max_words(allowed) <= OPTIONS_MAX_WORDS);
    if (nwords > options_max_words(allowed)) nwords = options_max_words(allowed);
    if (!options_parse(&options, words, nwords, allowed)) {
        HOLDS(memchr(options.problem, '\0', sizeof options.problem));
        HOLDS(strncmp(options.problem, "ERR ", 4) == 0 && !strpbrk(options.problem, "\r\n"));
        return;
    }
    HOLDS(!(options.given & ~allowed) && options.nwords <= nwords);
    HOLDS(options.nwords == nwords || options.given & OPTION_ITEMS);
    HOLDS(options.error >= SIZING_MIN_ERROR && options.error <= SIZING_MAX_ERROR);
    HOLDS(options.capacity >= 1 && options.capacity <= SIZING_MAX_CAPACITY);
    HOLDS(options.expansion <= DESCRIPTOR_MAX_EXPANSION);
    HOLDS(options.shard_bytes >= SIZING_MIN_SHARD_BYTES &&
          options.shard_bytes <= SIZING_MAX_SHARD_BYTES);
    HOLDS(options.count >= 1 && options.count <= OPTIONS_MAX_COUNT);
    if (allowed == OPTIONS_ADOPT)
        check_adoption(&options.adoption);
    else if (options.given & OPTION_WINDOW)
        check_window(&options);
    else
        check_sizing(&options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const unsigned commands[] = {OPTIONS_INSERT, OPTIONS_RESERVE, OPTIONS_PLAN,
                                        OPTIONS_ADOPT, OPTIONS_SHARDS};
    struct word words[MAX_WORDS];
    char *copies[MAX_WORDS];
    size_t nwords = 0;
    if (size == 0) return 0;
    const uint8_t *at = data + 1, *end = data + size;
    while (at < end && nwords < MAX_WORDS) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at)),
                      *stop = newline ? newline : end;
        copies[nwords] = fuzz_copy(at, (size_t)(stop - at));
        words[nwords] = (struct word){copies[nwords], (size_t)(stop - at)};
        check_numbers(words[nwords++]);
        at = stop + 1;
    }
    parse(words, nwords, commands[data[0] % (sizeof commands / sizeof *commands)]);
    for (size_t i = 0; i < nwords; i++) free(copies[i]);
    return 0;
}
