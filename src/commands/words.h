/* words.h: the arguments of a command as the words that core/options.h reads. */
#ifndef WORDS_H
#define WORDS_H

#include "core/options.h"
#include "redismodule.h"

static inline struct word word_of(const RedisModuleString *string) {
    struct word word;
    word.text = RedisModule_StringPtrLen(string, &word.length);
    return word;
}

/* Reads the options among the arguments. Converts only as many words as the options can take. False
 * after replying with an error. */
bool parse_options(RedisModuleCtx *ctx, RedisModuleString **argv, int argc, unsigned allowed,
                   struct options *options);

#endif
