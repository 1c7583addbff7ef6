/* living.h: which filters are alive. Every value of our type in memory is counted by its id. All
 * functions may be called from any thread. */
#ifndef LIVING_H
#define LIVING_H

#include <stdbool.h>
#include <stdint.h>

/* Call it once, when the module is loaded, before starting anything that calls these functions
 * while holding a lock of its own. */
void living_start(void);

void living_add(uint64_t id);

/* True if it was the last value with this id. */
bool living_remove(uint64_t id);

bool living_has(uint64_t id);

/* The number of living filters. */
uint64_t living_count(void);

#endif
