/* A stand-in for a primary: a server under test follows it and runs the commands that it sends.
 * Besides files, this is the only way to send commands that clients may not. */
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
/* Sends a command, written as for hiredis, and waits until the replica has run it. There is no
 * reply. */
void primary_send(Primary *primary, const char *format, ...);
/* Makes the server a primary again. */
void primary_stop(Primary *primary);

#endif
