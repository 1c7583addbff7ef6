/* identity.h: which id a filter gets. An id names a filter's shards, so no two filters may ever have the same one; and a
 * replica, or the replay of an AOF, that runs the same COPY or RESTORE must come to the same id as the primary. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include <stddef.h>
#include <stdint.h>

/* For a filter that is created: random. Replicas are told. */
uint64_t identity_fresh(void);

/* For copy number `ncopies` of the filter `id`. */
uint64_t identity_copied(uint64_t id, uint32_t ncopies);

/* For a filter that is restored from these bytes, under a name with this tag. */
uint64_t identity_restored(const char *bytes, size_t nbytes, const char *tag, size_t tag_length);

/* How many filters came to life by RESTORE. The same on a primary, on its replicas and after a restart, so that each
 * of them gives the next restored filter the same id. */
uint64_t identity_nrestores(void);
void identity_set_nrestores(uint64_t n);

#endif
