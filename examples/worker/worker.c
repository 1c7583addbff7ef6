/* worker: copies the lines that nobody has seen before, from stdin to stdout.
 *
 *     zcat urls.gz | worker --key seen > new.txt
 *
 * Lines are asked for in batches, with one BF.INSERT each, which asks and marks at once: of several
 * workers that run at the same time, on whatever machines, exactly one prints a line. A batch is
 * sent when it is full or when the input pauses, so that the worker may stand in a pipeline whose
 * input trickles. New lines are written before the next batch is asked for. Lines are bytes; they
 * end with \n or \r\n. Empty ones are passed over, and so are those that are longer than
 * --max-line, with a message.
 *
 * No line is lost without a word:
 *
 * The filter is asked with NOCREATE. If it is not there, the worker says so and makes it, as large
 * and as exact as it was told: also when it had been there and has vanished, by DEL, by expiry, by
 * a restart of a server that saves nothing. A filter that the server made by itself would be for
 * 100 lines, and wrong in 1 of 100 cases.
 *
 * When the connection breaks, the batch at hand is sent again over a new one. The server may have
 * marked it already: then it answers "seen" to lines that nobody has printed, so they are printed,
 * and counted as doubtful. A line may come twice in that case. The same when the worker gives up,
 * or is interrupted, before there is an answer.
 *
 * SIGINT and SIGTERM: the batch at hand is finished and printed. A second signal ends the wait for
 * the server, the third one the worker.
 *
 * Ends with 0 when all input was dealt with; with 1 when it was, but for lines that are too long;
 * with 2 when the server or the output failed, or the worker was called wrongly; with 130 when it
 * was interrupted. Whenever it ends before the input does, it says how many lines were dealt with:
 * the first so many of the input. */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "connection.h"
#include "input.h"

#define MAX_BATCH        10000
#define MAX_LINE         (512L << 20) /* proto-max-bulk-len of a server, if nobody has changed it */
#define MAX_CAPACITY     (1L << 40)
#define HEAD             12 /* words of a command before the first line, at most */
#define EXIT_TOO_LONG    1
#define EXIT_FAILED      2
#define EXIT_INTERRUPTED 130
#define TOLD_TOO_LONG    10 /* lines that are too long, of which each gets a message */

/* Lines, each counted once. */
struct totals {
    unsigned long long nnew, nseen, nempty, ntoo_long, nrefused;
    unsigned long long ndoubtful; /* of the new ones: may have been printed before */
};

struct worker {
    struct connection connection;
    struct input input;
    const char *key, *error, *capacity;
    size_t batch; /* lines in a full batch */
    bool progress, quiet;

    const char **argv; /* HEAD words for the command, then the lines */
    size_t *lengths;
    unsigned long long *numbers; /* of the lines in the input */
    size_t nlines;               /* in the batch */
    struct totals skipped;       /* with the batch: what is not asked for */

    char *output; /* what the batch prints */
    size_t noutput, output_room, nprinted;
    bool known; /* there was a filter */
    struct totals totals;
    double began, shown;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- totals ---- */

static unsigned long long sum(const struct totals *totals) {
    return totals->nnew + totals->nseen + totals->nempty + totals->ntoo_long + totals->nrefused;
}

static void add_skipped(struct worker *worker) {
    worker->totals.nempty += worker->skipped.nempty;
    worker->totals.ntoo_long += worker->skipped.ntoo_long;
    worker->skipped = (struct totals){0};
}

static void print_totals(const struct totals *totals, const char *end) {
    fprintf(stderr, "%llu lines, %llu new, %llu seen", sum(totals), totals->nnew, totals->nseen);
    if (totals->nempty > 0) fprintf(stderr, ", %llu empty", totals->nempty);
    if (totals->ntoo_long > 0) fprintf(stderr, ", %llu too long", totals->ntoo_long);
    if (totals->nrefused > 0) fprintf(stderr, ", %llu refused", totals->nrefused);
    if (totals->ndoubtful > 0)
        fprintf(stderr, "; %llu of the new ones may have been printed before", totals->ndoubtful);
    fputs(end, stderr);
}

static void show_progress(struct worker *worker) {
    const double t = now();
    if (!worker->progress || t - worker->shown < 0.5) return;
    worker->shown = t;
    fprintf(stderr, "\r\033[K%llu lines, %llu new, %.0f lines/s", sum(&worker->totals),
            worker->totals.nnew, (double)sum(&worker->totals) / (t - worker->began + 1e-9));
}

/* Begins a message: a line of progress is wiped away first. */
static void say(struct worker *worker) {
    if (worker->shown > 0) fputs("\r\033[K", stderr);
    fputs("worker: ", stderr);
}

/* The end, before that of the input. */
static _Noreturn void stop(struct worker *worker, int status) {
    say(worker);
    fputs(status == EXIT_INTERRUPTED ? "interrupted after " : "stopped after ", stderr);
    print_totals(&worker->totals, "\n");
    exit(status);
}

static _Noreturn void fail(struct worker *worker, const char *what, const char *why) {
    say(worker);
    fprintf(stderr, "%s%s%s\n", what, why ? ": " : "", why ? why : "");
    stop(worker, EXIT_FAILED);
}

/* ---- signals ---- */

static void on_signal(int signal) {
    static const char message[] = "worker: killed; lines may be marked that were not printed\n";
    static volatile sig_atomic_t nsignals;
    (void)signal;
    connection_stop = 1;
    nsignals = nsignals + 1;
    if (nsignals == 2) connection_cut();
    if (nsignals < 3) return;
    if (write(STDERR_FILENO, message, sizeof message - 1) < 0) _exit(EXIT_INTERRUPTED);
    _exit(EXIT_INTERRUPTED);
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* ---- output ---- */

static const char output_closed[] = "the output was closed before all was written";

static void print_line(struct worker *worker, size_t i) {
    memcpy(worker->output + worker->noutput, worker->argv[HEAD + i], worker->lengths[HEAD + i]);
    worker->noutput += worker->lengths[HEAD + i];
    worker->output[worker->noutput++] = '\n';
    worker->nprinted++;
}

/* Room for all lines of a batch, before they are asked for: later it would be too late to find that
 * there is none. */
static void make_room(struct worker *worker) {
    size_t need = 0;
    for (size_t i = 0; i < worker->nlines; i++) need += worker->lengths[HEAD + i] + 1;
    worker->noutput = worker->nprinted = 0;
    if (need <= worker->output_room) return;
    free(worker->output);
    worker->output = malloc(need);
    if (!worker->output) fail(worker, "cannot go on", "no memory");
    worker->output_room = need;
}

/* An output that nobody reads any more, as far as that can be seen: asked before the lines are
 * marked. */
static void check_output(struct worker *worker) {
    struct pollfd output = {.fd = STDOUT_FILENO, .events = 0};
    if (poll(&output, 1, 0) > 0 && (output.revents & POLLERR)) fail(worker, output_closed, NULL);
}

static void write_output(struct worker *worker) {
    size_t at = 0;
    while (at < worker->noutput) {
        const ssize_t n = write(STDOUT_FILENO, worker->output + at, worker->noutput - at);
        if (n >= 0) {
            at += (size_t)n;
        } else if (errno == EAGAIN) {
            poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, -1);
        } else if (errno != EINTR) {
            break;
        }
    }
    if (at == worker->noutput) return;
    const int error = errno;
    size_t nwritten = 0;
    for (size_t i = 0; i < at; i++) nwritten += worker->output[i] == '\n';
    say(worker);
    fprintf(stderr, error == EPIPE ? "%s\n" : "cannot write: %s\n",
            error == EPIPE ? output_closed : strerror(error));
    say(worker);
    fprintf(stderr, "%zu new lines of %llu to %llu are marked as seen and were not written\n",
            worker->nprinted - nwritten, worker->numbers[0], worker->numbers[worker->nlines - 1]);
    stop(worker, EXIT_FAILED);
}

/* ---- a batch ---- */

static void say_too_long(struct worker *worker) {
    if (worker->totals.ntoo_long + worker->skipped.ntoo_long > TOLD_TOO_LONG) return;
    say(worker);
    fprintf(stderr, "line %llu is passed over: it has more than %zu bytes (--max-line)\n",
            worker->input.number, worker->input.nlongest);
}

/* In doubt a line may be the echo of an earlier one of the same batch: then that one was printed.
 * */
static bool earlier_in_batch(const struct worker *worker, size_t i) {
    const size_t length = worker->lengths[HEAD + i];
    for (size_t j = HEAD; j < HEAD + i; j++)
        if (worker->lengths[j] == length &&
            memcmp(worker->argv[j], worker->argv[HEAD + i], length) == 0)
            return true;
    return false;
}

static void take_new(struct worker *worker, size_t i, bool doubtful) {
    print_line(worker, i);
    worker->totals.nnew++;
    worker->totals.ndoubtful += doubtful;
}

/* No answer, and never will be. What the server may have marked is printed. */
static _Noreturn void end_unanswered(struct worker *worker, bool doubtful) {
    for (size_t i = 0; doubtful && i < worker->nlines; i++) {
        if (earlier_in_batch(worker, i))
            worker->totals.nseen++;
        else
            take_new(worker, i, true);
    }
    if (doubtful) add_skipped(worker);
    write_output(worker);
    if (connection_stop) stop(worker, EXIT_INTERRUPTED);
    fail(worker, worker->connection.why, NULL);
}

static _Noreturn void end_unexpected(struct worker *worker) {
    connection_explain(&worker->connection, "the server answers something unexpected", worker->key);
    end_unanswered(worker, true);
}

/* Asks with these words before the lines. */
static redisReply *ask(struct worker *worker, const char *const *words, bool *doubtful) {
    size_t nwords = 0;
    while (words[nwords]) nwords++;
    for (size_t i = 0; i < nwords; i++) {
        worker->argv[HEAD - nwords + i] = words[i];
        worker->lengths[HEAD - nwords + i] = strlen(words[i]);
    }
    return connection_ask(&worker->connection, nwords + worker->nlines,
                          worker->argv + HEAD - nwords, worker->lengths + HEAD - nwords, doubtful);
}

static void say_missing(struct worker *worker) {
    if (worker->known || !worker->quiet) say(worker);
    if (worker->known)
        fprintf(stderr,
                "filter '%s' has vanished, after %llu lines; making it anew, for %s lines with an "
                "error "
                "rate of %s. Lines that were printed before may come again\n",
                worker->key, sum(&worker->totals), worker->capacity, worker->error);
    else if (!worker->quiet)
        fprintf(stderr,
                "there is no filter '%s' yet; making it, for %s lines with an error rate of %s\n",
                worker->key, worker->capacity, worker->error);
}

/* The answers to a batch. The filter is made only when it is known to be missing, and that is said.
 * */
static redisReply *ask_for_lines(struct worker *worker, bool *doubtful) {
    const char *const insert[] = {"BF.INSERT", worker->key, "NOCREATE", "ITEMS", NULL};
    const char *const create[] = {"BF.INSERT", worker->key,   "CAPACITY", worker->capacity,
                                  "ERROR",     worker->error, "ITEMS",    NULL};
    bool again = false;
    redisReply *reply = ask(worker, insert, doubtful);
    if (reply && reply->type == REDIS_REPLY_ERROR && strcmp(reply->str, "ERR not found") == 0) {
        say_missing(worker);
        freeReplyObject(reply);
        reply = ask(worker, create, &again);
    }
    *doubtful = *doubtful || again;
    if (reply && reply->type == REDIS_REPLY_ERROR)
        connection_explain(&worker->connection, reply->str, worker->key);
    if (!reply || reply->type == REDIS_REPLY_ERROR) end_unanswered(worker, *doubtful);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != worker->nlines)
        end_unexpected(worker);
    worker->known = true;
    return reply;
}

static void send_batch(struct worker *worker) {
    bool doubtful;
    make_room(worker);
    check_output(worker);
    redisReply *reply = ask_for_lines(worker, &doubtful);
    const char *refusal = NULL;
    unsigned long long first_refused = 0;
    for (size_t i = 0; i < worker->nlines; i++) {
        const redisReply *answer = reply->element[i];
        if (answer->type == REDIS_REPLY_ERROR) {
            if (!refusal) first_refused = worker->numbers[i];
            if (!refusal) refusal = answer->str;
            worker->totals.nrefused++;
        } else if (answer->integer == 1) {
            take_new(worker, i, false);
        } else if (doubtful && !earlier_in_batch(worker, i)) {
            take_new(worker, i, true);
        } else {
            worker->totals.nseen++;
        }
    }
    add_skipped(worker);
    write_output(worker);
    if (refusal) {
        connection_explain(&worker->connection, refusal, worker->key);
        say(worker);
        fprintf(stderr, "line %llu was refused: %s\n", first_refused, worker->connection.why);
        stop(worker, EXIT_FAILED);
    }
    freeReplyObject(reply);
}

/* Takes lines until the batch is full. False if there are no more at the moment. */
static bool fill_batch(struct worker *worker) {
    worker->nlines = 0;
    while (worker->nlines < worker->batch) {
        const size_t i = worker->nlines;
        size_t *length = &worker->lengths[HEAD + i];
        switch (input_take(&worker->input, &worker->argv[HEAD + i], length)) {
        case LINE_TAKEN:
            worker->numbers[worker->nlines++] = worker->input.number;
            break;
        case LINE_EMPTY:
            worker->skipped.nempty++;
            break;
        case LINE_TOO_LONG:
            worker->skipped.ntoo_long++;
            say_too_long(worker);
            break;
        case LINE_NONE:
            return false;
        }
    }
    return true;
}

/* A batch ends when it is full or the buffer has no more lines; the buffer is as much as the input
 * had ready. */
static void work(struct worker *worker) {
    do {
        if (!input_read(&worker->input)) {
            if (connection_stop) stop(worker, EXIT_INTERRUPTED);
            fail(worker, "cannot read", strerror(errno ? errno : ENOMEM));
        }
        bool more;
        do {
            more = fill_batch(worker);
            if (connection_stop) stop(worker, EXIT_INTERRUPTED);
            if (worker->nlines > 0)
                send_batch(worker);
            else
                add_skipped(worker);
            show_progress(worker);
        } while (more);
    } while (!worker->input.ended);
    if (connection_stop) stop(worker, EXIT_INTERRUPTED);
}

/* Tells now, rather than at the first line, if there is no server, no module or no right to use it.
 * */
static void look(struct worker *worker) {
    const char *argv[] = {"BF.CARD", worker->key};
    const size_t lengths[] = {strlen(argv[0]), strlen(argv[1])};
    bool doubtful;
    redisReply *reply = connection_ask(&worker->connection, 2, argv, lengths, &doubtful);
    /* To add lines is all that a worker must be allowed to do. */
    const bool permitted =
        !reply || reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, "NOPERM ", 7) != 0;
    if (reply && reply->type == REDIS_REPLY_ERROR)
        connection_explain(&worker->connection, reply->str, worker->key);
    if (!reply || (permitted && reply->type == REDIS_REPLY_ERROR)) end_unanswered(worker, false);
    freeReplyObject(reply);
}

/* ---- */

static const char usage[] =
    "usage: worker [options] < lines > new-lines\n"
    "Prints the lines that are not in the filter yet, and adds them to it.\n"
    "  -k, --key NAME        name of the filter (seen)\n"
    "  -e, --error RATE      for a new filter: share of new lines that may be missed (1e-6)\n"
    "  -c, --capacity N      for a new filter: number of lines to plan for (10000000)\n"
    "  -b, --batch N         lines per command (1000)\n"
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

static const char *rate(const char *text) {
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value > 0 && value < 1))
        refuse("not an error rate between 0 and 1", text);
    return text;
}

static void take_option(struct worker *worker, int option) {
    const char *problem;
    if (connection_option(&worker->connection, option, optarg, &problem)) {
        /* A URL may hold a password: it is not shown. */
        if (problem) refuse(problem, option == 'u' || option == 'T' ? NULL : optarg);
    } else if (option == 'k') {
        worker->key = optarg;
    } else if (option == 'e') {
        worker->error = rate(optarg);
    } else if (option == 'c') {
        number(optarg, MAX_CAPACITY);
        worker->capacity = optarg;
    } else if (option == 'b') {
        worker->batch = (size_t)number(optarg, MAX_BATCH);
    } else if (option == 'm') {
        worker->input.nlongest = (size_t)number(optarg, MAX_LINE);
    } else if (option == 'P') {
        worker->progress = true;
    } else if (option == 'q') {
        worker->quiet = true;
    } else if (option == 'h') {
        printf("%s%s%s", usage, connection_usage, ending);
        exit(0);
    } else {
        fprintf(stderr, "%s%s%s", usage, connection_usage, ending);
        exit(EXIT_FAILED);
    }
}

static void read_arguments(struct worker *worker, int argc, char **argv) {
    static const struct option options[] = {CONNECTION_LONG,
                                            {"key", required_argument, NULL, 'k'},
                                            {"error", required_argument, NULL, 'e'},
                                            {"capacity", required_argument, NULL, 'c'},
                                            {"batch", required_argument, NULL, 'b'},
                                            {"max-line", required_argument, NULL, 'm'},
                                            {"progress", no_argument, NULL, 'P'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, CONNECTION_SHORT "k:e:c:b:m:Pqh", options, NULL)) !=
           -1)
        take_option(worker, option);
    if (optind < argc) take_option(worker, '?');
    const char *problem = connection_check(&worker->connection);
    if (problem) refuse(problem, NULL);
    if (worker->quiet) worker->progress = false;
}

static void start(struct worker *worker) {
    const size_t n = HEAD + worker->batch;
    worker->argv = malloc(n * sizeof *worker->argv);
    worker->lengths = malloc(n * sizeof *worker->lengths);
    worker->numbers = malloc(worker->batch * sizeof *worker->numbers);
    if (!worker->argv || !worker->lengths || !worker->numbers)
        fail(worker, "cannot start", "no memory");
    catch_signals();
    look(worker);
}

/* Returns the exit status. */
static int finish(struct worker *worker) {
    const struct totals *totals = &worker->totals;
    if (worker->progress || totals->ntoo_long > 0 || totals->ndoubtful > 0) {
        say(worker);
        print_totals(totals, "\n");
    }
    connection_free(&worker->connection);
    free(worker->input.buffer);
    free(worker->output);
    free(worker->argv);
    free(worker->lengths);
    free(worker->numbers);
    return totals->ntoo_long > 0 ? EXIT_TOO_LONG : 0;
}

int main(int argc, char **argv) {
    struct worker worker = {.key = "seen",
                            .error = "1e-6",
                            .capacity = "10000000",
                            .batch = 1000,
                            .input = {.nlongest = 64 << 20},
                            .progress = isatty(STDERR_FILENO),
                            .began = now()};
    connection_init(&worker.connection);
    read_arguments(&worker, argc, argv);
    start(&worker);
    work(&worker);
    return finish(&worker);
}
