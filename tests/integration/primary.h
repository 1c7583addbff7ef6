/* A stand-in for a primary: a server under test follows it, and does what it sends. The only way,
 * besides files, to send the commands that no client may. */
#ifndef PRIMARY_H
#define PRIMARY_H

#include "server.h"

typedef struct Primary {
    Server *replica;
    int fd;        /* the connection that the replica has opened; -1 if there is none */
    size_t nbytes; /* sent since the full resync */
} Primary;

/* Makes the server follow a primary without any keys; its own are gone. The server can be written
 * to by clients, too, if its configuration has "replica-read-only no". */
Primary primary_start(Server *replica);
/* Makes the server follow a primary whose snapshot breaks off, waits until it has tried again, and
 * ends that. */
void primary_that_breaks_off(Server *replica);
/* Sends a command, as for hiredis, and waits until the replica has run it. What it answers nobody
 * hears. */
void primary_send(Primary *primary, const char *format, ...);
/* The server is a primary again. */
void primary_stop(Primary *primary);

#endif
