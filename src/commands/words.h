/* words.h: the server's strings as the words that options.h reads. */
#ifndef WORDS_H
#define WORDS_H

#include "core/options.h"
#include "redismodule.h"

static inline struct word word_of(const RedisModuleString *string) {
    struct word word;
    word.text = RedisModule_StringPtrLen(string, &word.length);
    return word;
}

#endif
