#include "store/value.h"

#include "core/encoding.h"
#include "store/statistics.h"

RedisModuleType *FilterType;

struct filter *filter_named(RedisModuleCtx *ctx, RedisModuleString *name) {
    RedisModuleKey *key =
        RedisModule_OpenKey(ctx, name, REDISMODULE_READ | REDISMODULE_OPEN_KEY_NOTOUCH);
    struct filter *filter = key && RedisModule_ModuleTypeGetType(key) == FilterType
                                ? RedisModule_ModuleTypeGetValue(key)
                                : NULL;
    RedisModule_CloseKey(key);
    return filter;
}

struct filter *filter_wrap(struct descriptor *descriptor) {
    struct filter *filter = RedisModule_Calloc(1, sizeof *filter);
    filter->descriptor = descriptor;
    return filter;
}

struct descriptor *filter_unwrap(struct filter *filter) {
    struct descriptor *descriptor = filter->descriptor;
    handles_free(&filter->handles, descriptor, &key_supplier);
    RedisModule_Free(filter);
    return descriptor;
}

void filter_forget_handles(struct filter *filter) {
    handles_free(&filter->handles, filter->descriptor, &key_supplier);
}

void filter_replace(struct filter *filter, struct descriptor *descriptor) {
    handles_free(&filter->handles, filter->descriptor, &key_supplier);
    statistics_leave(filter->descriptor);
    statistics_join(descriptor);
    descriptor_free(filter->descriptor);
    filter->descriptor = descriptor;
}

size_t filter_memory(const struct filter *filter) {
    const struct descriptor *descriptor = filter->descriptor;
    const struct handles *handles = &filter->handles;
    size_t nbytes = sizeof *filter + sizeof *descriptor + descriptor->tag_length + 1 +
                    descriptor->nlayers * (sizeof *descriptor->layers + sizeof *handles->parts);
    if (descriptor->window) nbytes += sizeof *descriptor->window;
    if (descriptor->load) nbytes += sizeof *descriptor->load;
    for (uint32_t i = 0; i < descriptor->nlayers; i++) {
        const uint32_t nshards = descriptor->layers[i].layout.nshards;
        nbytes += (nshards + 7) / 8;
        if (descriptor->layers[i].adoption)
            nbytes += sizeof(struct adoption) + descriptor->layers[i].adoption->prefix_length + 1;
        const size_t nhandles = handles_bytes(handles, i, nshards);
        if (nhandles == 0) continue;
        nbytes += nhandles;
        /* A name consists of an object, a string header, the tag, id and numbers. */
        nbytes +=
            layer_count_created(&descriptor->layers[i]) * (48 + (size_t)descriptor->tag_length);
    }
    return nbytes;
}

char *descriptor_bytes(const struct descriptor *descriptor, size_t *nbytes) {
    *nbytes = descriptor_encoded_size(descriptor);
    uint8_t *bytes = RedisModule_Alloc(*nbytes);
    descriptor_encode(descriptor, bytes);
    return (char *)bytes;
}
