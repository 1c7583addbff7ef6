#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BATCH   10000
#define MAX_LINE    (512L << 20) /* proto-max-bulk-len of a server, if nobody has changed it */
#define MAX_SECONDS (1L << 40)   /* of a window: the server says what it takes */

static const char usage[] =
    "usage: worker [options] < lines > new-lines\n"
    "Prints the lines that are not in the filter yet, and adds them to it.\n"
    "  -k, --key NAME        name of the filter (seen)\n"
    "  -e, --error RATE      for a new filter: share of new lines that may be missed (1e-6)\n"
    "  -c, --capacity N      for a new filter: number of lines to plan for (10000000)\n"
    "      --partitions N    spread the filter over N keys, on the nodes of a cluster or on one\n"
    "                        server; all workers must agree (docs/partitions.md)\n"
    "      --window SECONDS  for a new filter: forget lines after this time\n"
    "      --slices N        for a new filter: number of slices in the window\n"
    "      --sliding         for a new filter: count from the last time a line came, not the "
    "first\n"
    "  -b, --batch N         lines per command, or for all partitions together (1000)\n"
    "  -m, --max-line BYTES  skip longer lines, with a message (64 MB)\n"
    "  -P, --progress        show progress on stderr, even if it is not a terminal\n"
    "  -q, --quiet           no progress, and no message when the filter is created\n"
    "  -h, --help            show this help\n";

static const char ending[] =
    "Exit status: 0 if all lines were handled, 1 if some were too long, 2 after "
    "an error, 130 if interrupted.\n";

static _Noreturn void refuse(const char *problem, const char *value) {
    fprintf(stderr, "worker: %s%s%s\n", problem, value ? ": " : "", value ? value : "");
    exit(EXIT_FAILED);
}

static long number(const char *text, long max) {
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 1 || value > max) {
        fprintf(stderr, "worker: '%s' is not a number from 1 to %ld\n", text, max);
        exit(EXIT_FAILED);
    }
    return value;
}

static double rate(const char *text) {
    char *rest;
    const double value = strtod(text, &rest);
    if (rest == text || *rest || !(value > 0 && value < 1))
        refuse("not an error rate between 0 and 1", text);
    return value;
}

/* Options without a letter. */
enum { OPTION_PARTITIONS = 256, OPTION_WINDOW, OPTION_SLICES, OPTION_SLIDING };

static void take_option(struct options *options, struct connection *connection, int option) {
    const char *problem;
    if (connection_option(connection, option, optarg, &problem)) {
        /* A URL may hold a password: it is not shown. */
        if (problem) refuse(problem, option == 'u' || option == 'T' ? NULL : optarg);
    } else if (option == 'k') {
        options->key = optarg;
    } else if (option == 'e') {
        plan_set_error(&options->plan, rate(optarg));
        /* As it was written, in messages and for the server; if that is not absurdly long. */
        if (strlen(optarg) < sizeof options->plan.error) strcpy(options->plan.error, optarg);
        options->wanted.error = true;
    } else if (option == 'c') {
        options->plan.capacity = (unsigned long long)number(optarg, (long)PLAN_MAX_CAPACITY);
        options->wanted.capacity = true;
    } else if (option == OPTION_PARTITIONS) {
        options->plan.npartitions = (unsigned)number(optarg, PLAN_MAX_PARTITIONS);
        options->wanted.partitions = true;
    } else if (option == OPTION_WINDOW) {
        number(optarg, MAX_SECONDS);
        options->window = optarg;
    } else if (option == OPTION_SLICES) {
        number(optarg, INT_MAX);
        options->slices = optarg;
    } else if (option == OPTION_SLIDING) {
        options->sliding = true;
    } else if (option == 'b') {
        options->batch = (size_t)number(optarg, MAX_BATCH);
    } else if (option == 'm') {
        options->nlongest = (size_t)number(optarg, MAX_LINE);
    } else if (option == 'P') {
        options->progress = true;
    } else if (option == 'q') {
        options->quiet = true;
    } else if (option == 'h') {
        printf("%s%s%s", usage, connection_usage, ending);
        exit(0);
    } else {
        fprintf(stderr, "%s%s%s", usage, connection_usage, ending);
        exit(EXIT_FAILED);
    }
}

/* The words for a filter with a window, and what does not go together. */
static void check(struct options *options, struct connection *connection) {
    const char **words = options->plan.words;
    const char *problem = connection_check(connection);
    if (!problem && (options->slices || options->sliding) && !options->window)
        problem = "--slices and --sliding are for filters with a --window";
    if (!problem && options->plan.npartitions > 0) problem = plan_check_name(options->key);
    if (problem) refuse(problem, NULL);
    size_t n = 0;
    if (options->window) words[n++] = "WINDOW", words[n++] = options->window;
    if (options->slices) words[n++] = "SLICES", words[n++] = options->slices;
    if (options->sliding) words[n++] = "SLIDING";
    options->wanted.words = n > 0;
    /* Words of a plan are separated by blanks, and others read them. */
    if (options->plan.npartitions > 0) plan_set_error(&options->plan, rate(options->plan.error));
    snprintf(options->capacity, sizeof options->capacity, "%llu", options->plan.capacity);
    if (options->quiet) options->progress = false;
}

void options_read(struct options *options, struct connection *connection, int argc, char **argv) {
    static const struct option table[] = {
        CONNECTION_LONG,
        {"key", required_argument, NULL, 'k'},
        {"error", required_argument, NULL, 'e'},
        {"capacity", required_argument, NULL, 'c'},
        {"partitions", required_argument, NULL, OPTION_PARTITIONS},
        {"window", required_argument, NULL, OPTION_WINDOW},
        {"slices", required_argument, NULL, OPTION_SLICES},
        {"sliding", no_argument, NULL, OPTION_SLIDING},
        {"batch", required_argument, NULL, 'b'},
        {"max-line", required_argument, NULL, 'm'},
        {"progress", no_argument, NULL, 'P'},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    *options = (struct options){.key = "seen",
                                .plan = {.error = "1e-6", .capacity = 10000000},
                                .batch = 1000,
                                .nlongest = 64 << 20,
                                .progress = isatty(STDERR_FILENO)};
    int option;
    while ((option = getopt_long(argc, argv, CONNECTION_SHORT "k:e:c:b:m:Pqh", table, NULL)) != -1)
        take_option(options, connection, option);
    if (optind < argc) take_option(options, connection, '?');
    check(options, connection);
}
