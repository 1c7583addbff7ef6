/* options: the words on the worker's command line. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "connection.h"
#include "plan.h"

#define EXIT_FAILED 2

struct options {
    const char *key;
    struct plan plan;     /* of the filter to make; npartitions is 0 for an ordinary one */
    struct wanted wanted; /* what of it the user asked for */
    char capacity[24];    /* the plan's, as text */
    const char *window, *slices;
    bool sliding;
    size_t batch;    /* lines in a full batch */
    size_t nlongest; /* bytes of the longest line that is taken */
    bool progress, quiet;
};

/* Reads them, those of the connection too. Ends the program, with a message, if they are wrong or
 * ask for help. */
void options_read(struct options *options, struct connection *connection, int argc, char **argv);

#endif
