#include "scarce.h"

#include <stdlib.h>

#include "core/descriptor.h"

long scarce_nalive;

static int nleft;
static struct allocator usual;

static void *scarce_alloc(size_t nbytes) {
    if (nleft-- <= 0) return NULL;
    scarce_nalive++;
    return malloc(nbytes);
}

static void *scarce_realloc(void *old, size_t nbytes) {
    if (nleft-- <= 0) return NULL;
    scarce_nalive += (old == NULL);
    return realloc(old, nbytes);
}

static void *plain_need(size_t nbytes) {
    scarce_nalive++;
    return malloc(nbytes);
}

static void *plain_need_zeroed(size_t n, size_t nbytes) {
    scarce_nalive++;
    return calloc(n, nbytes);
}

static void scarce_free(void *memory) {
    scarce_nalive -= (memory != NULL);
    free(memory);
}

void scarce_begin(int nallocations) {
    usual = descriptor_allocator;
    scarce_nalive = 0;
    nleft = nallocations;
    descriptor_allocator = (struct allocator){scarce_alloc, scarce_realloc, plain_need,
                                              plain_need_zeroed, scarce_free};
}

void scarce_end(void) {
    descriptor_allocator = usual;
}
