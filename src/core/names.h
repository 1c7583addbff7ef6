/* names.h: the names of a filter's strings, and the cluster slot of a name. Only this file knows
 * their form. */
#ifndef NAMES_H
#define NAMES_H

#include "core/descriptor.h"

/* The part of a filter's name that its shards' names have between braces, so that all share one
 * cluster slot: the name's own hash tag, or else the whole name. False if there can't be such a tag
 * in a cluster. */
bool names_tag(const char *name, size_t length, const char **tag, size_t *tag_length);

/* An upper bound on the length of the filter's string names. */
size_t names_room(const struct descriptor *descriptor);

/* Writes the name of a shard, or of an adopted string; returns its length. Not NUL-terminated. */
size_t names_string(const struct descriptor *descriptor, uint32_t layer, uint32_t shard,
                    char *text);

/* Splits the name of a shard into the filter's id, the layer's number and the shard's number. False
 * if it is not one. */
bool names_parse(const char *name, size_t length, uint64_t *id, uint32_t *number, uint32_t *shard);

#define NAMES_NSLOTS 16384u

/* The cluster slot of a key. */
unsigned names_slot(const char *name, size_t length);

/* The slot of all shards of a filter; NAMES_NSLOTS if they have none in common. */
unsigned names_filter_slot(const struct descriptor *descriptor);

/* Are a filter's shards, and the strings it adopted, all in the slot of a key of this name? */
bool names_share_slot(const struct descriptor *descriptor, const char *name, size_t length);

#endif
