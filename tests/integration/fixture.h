/* A set of filters that has one of everything, for the tests of persistence and replication. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "client.h"

/* Fills an empty server: small, large, growing, full and empty filters, one with an expiry, one in
 * another database, binary names. Leaves the client in database 0. */
void fixture_fill(Client *c);
/* Adds more to the existing filters, so that layers and shards are created. Each `round` has items
 * of its own. */
void fixture_add(Client *c, int round);
/* Checks that everything that was added is found, after `rounds` calls of fixture_add, and that the
 * replies to further additions are right. Changes nothing. */
void fixture_check(Client *c, int rounds);

#endif
