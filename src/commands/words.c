#include "commands/words.h"

bool parse_options(RedisModuleCtx *ctx, RedisModuleString **argv, int argc, unsigned allowed,
                   struct options *options) {
    struct word words[OPTIONS_MAX_WORDS];
    const size_t max = options_max_words(allowed), n = (size_t)argc < max ? (size_t)argc : max;
    for (size_t i = 0; i < n; i++) words[i] = word_of(argv[i]);
    if (options_parse(options, words, n, allowed)) return true;
    RedisModule_ReplyWithError(ctx, options->problem);
    return false;
}
