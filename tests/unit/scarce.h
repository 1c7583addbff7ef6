/* scarce.h: an allocator for the core that runs out of memory when a test wants it to. */
#ifndef SCARCE_H
#define SCARCE_H

/* From now on n allocations succeed. All later ones fail, except those that must not. */
void scarce_begin(int nallocations);
/* The core has its usual allocator again. */
void scarce_end(void);

/* Allocated since scarce_begin and not freed yet. */
extern long scarce_nalive;

#endif
