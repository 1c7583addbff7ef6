/* fuzz.h: what the fuzz targets share. A target is one file fuzz_<name>.c that defines
 * LLVMFuzzerTestOneInput for one pure decoder; its seeds lie in seeds/<name>/, its words in
 * <name>.dict. Nothing else is needed to add one. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that must hold for every input: says which did not, and stops where the fuzzer can see
 * it. */
#define HOLDS(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A copy that ends where its memory ends, so that the sanitizer sees a byte read too many. */
static inline void *fuzz_copy(const void *bytes, size_t nbytes) {
    void *copy = malloc(nbytes ? nbytes : 1);
    if (nbytes) memcpy(copy, bytes, nbytes);
    return copy;
}

#endif
