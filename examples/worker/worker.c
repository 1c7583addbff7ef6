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
 * With --partitions, the lines are spread over many filters, which a cluster has on several nodes
 * (docs/partitions.md). All of the above holds for each of them. When the worker has to stop while
 * some of them do not answer, the lines of the others are printed all the same. The totals count
 * the lines before the first one without an answer: begin again behind them, and what was printed
 * will not come again.
 *
 * SIGINT and SIGTERM: the batch at hand is finished and printed. A second signal ends the wait for
 * the server, the third one the worker.
 *
 * Ends with 0 when all input was dealt with; with 1 when it was, but for lines that are too long;
 * with 2 when the server or the output failed, or the worker was called wrongly; with 130 when it
 * was interrupted. Whenever it ends before the input does, it says how many lines were dealt with:
 * the first so many of the input. */
#include <errno.h>
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
#include "options.h"
#include "partitions.h"

#define HEAD             12 /* words of a command before the first line, at most */
#define EXIT_TOO_LONG    1
#define EXIT_INTERRUPTED 130
#define TOLD_TOO_LONG    10 /* lines that are too long, of which each gets a message */

/* Lines, each counted once. */
struct totals {
    unsigned long long nnew, nseen, nempty, ntoo_long, nrefused;
    unsigned long long ndoubtful; /* of the new ones: may have been printed before */
};

/* Where a line of the batch stands in the input. */
struct place {
    unsigned long long number;
    unsigned long long nempty, ntoo_long; /* of the batch, passed over before it */
};

struct worker {
    struct connection connection;
    struct input input;
    struct options options;
    struct partitions partitions; /* if there are any */

    const char **argv; /* HEAD words for the command, then the lines */
    size_t *lengths;
    struct place *places;   /* of the lines */
    struct answer *answers; /* to the lines */
    size_t nlines;          /* in the batch */
    struct totals skipped;  /* with the batch: what is not asked for */

    char *output; /* what the batch prints */
    size_t noutput, output_room, nprinted;
    bool known;        /* there was a filter */
    char refusal[600]; /* why a line was refused */
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
    if (!worker->options.progress || t - worker->shown < 0.5) return;
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
    /* One after the other: of two that come together, each counts. */
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* ---- output ---- */

static const char output_closed[] = "the output was closed before everything was written";

static void print_line(struct worker *worker, size_t i) {
    memcpy(worker->output + worker->noutput, worker->argv[HEAD + i], worker->lengths[HEAD + i]);
    worker->noutput += worker->lengths[HEAD + i];
    worker->output[worker->noutput++] = '\n';
    worker->nprinted++;
}

/* Allocates room for all lines of a batch before they are sent. Afterwards it would be too late to
 * find that memory is short. */
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
            worker->nprinted - nwritten, worker->places[0].number,
            worker->places[worker->nlines - 1].number);
    stop(worker, EXIT_FAILED);
}

/* ---- a batch ---- */

static void say_too_long(struct worker *worker) {
    if (worker->totals.ntoo_long + worker->skipped.ntoo_long > TOLD_TOO_LONG) return;
    say(worker);
    fprintf(stderr, "line %llu was skipped: it has more than %zu bytes (--max-line)\n",
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

/* Prints a line if it is new, or might be. False if it was not sent, and never will be. */
static bool take_answer(struct worker *worker, size_t i) {
    const struct answer *answer = &worker->answers[i];
    if (answer->verdict == UNANSWERED && !answer->doubtful) return false;
    if (answer->verdict == REFUSED)
        worker->totals.nrefused++;
    else if (answer->verdict == NEW)
        take_new(worker, i, false);
    else if (answer->doubtful && !earlier_in_batch(worker, i))
        take_new(worker, i, true);
    else
        worker->totals.nseen++;
    return true;
}

/* Deals with the lines from the first one that was not asked for. Others behind it may have been
 * marked in other partitions: they are printed, but not counted, as the input is to be continued
 * before them. */
static void take_behind(struct worker *worker, size_t first) {
    const struct totals counted = worker->totals;
    const size_t nprinted = worker->nprinted;
    worker->skipped = (struct totals){.nempty = worker->places[first].nempty,
                                      .ntoo_long = worker->places[first].ntoo_long};
    for (size_t i = first; i < worker->nlines; i++) take_answer(worker, i);
    worker->totals = counted;
    add_skipped(worker);
    if (worker->nprinted == nprinted) return;
    say(worker);
    fprintf(stderr,
            "%zu new lines after line %llu are printed as well, since their partitions"
            " answered; start again at line %llu, and they will not be printed again\n",
            worker->nprinted - nprinted, worker->places[first].number,
            worker->places[first].number);
}

static void take_answers(struct worker *worker) {
    size_t i = 0;
    while (i < worker->nlines && take_answer(worker, i)) i++;
    if (i < worker->nlines)
        take_behind(worker, i);
    else
        add_skipped(worker);
    write_output(worker);
}

static void set_answers(struct worker *worker, struct answer answer) {
    for (size_t i = 0; i < worker->nlines; i++) worker->answers[i] = answer;
}

/* ---- an ordinary filter ---- */

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
    if (worker->known || !worker->options.quiet) say(worker);
    if (worker->known)
        fprintf(stderr,
                "filter '%s' vanished after %llu lines; creating it again for %s lines with an "
                "error "
                "rate of %s. Lines that were printed before may be printed again\n",
                worker->options.key, sum(&worker->totals), worker->options.capacity,
                worker->options.plan.error);
    else if (!worker->options.quiet)
        fprintf(stderr,
                "there is no filter '%s' yet; creating it for %s lines with an error rate of %s\n",
                worker->options.key, worker->options.capacity, worker->options.plan.error);
}

/* The reply to a batch. The filter is made only when it is known to be missing, and that is said.
 * */
static redisReply *ask_or_make(struct worker *worker, bool *doubtful) {
    const char *const insert[] = {"BF.INSERT", worker->options.key, "NOCREATE", "ITEMS", NULL};
    const char *create[HEAD + 1] = {"BF.INSERT", worker->options.key,
                                    "CAPACITY",  worker->options.capacity,
                                    "ERROR",     worker->options.plan.error};
    size_t n = 6;
    for (size_t i = 0; worker->options.plan.words[i]; i++)
        create[n++] = worker->options.plan.words[i];
    create[n] = "ITEMS";
    bool again = false;
    redisReply *reply = ask(worker, insert, doubtful);
    if (reply && reply->type == REDIS_REPLY_ERROR && strcmp(reply->str, "ERR not found") == 0) {
        say_missing(worker);
        freeReplyObject(reply);
        reply = ask(worker, create, &again);
    }
    *doubtful = *doubtful || again;
    return reply;
}

/* Fills in the answers. Returns why some are missing, or NULL. */
static const char *ask_filter(struct worker *worker) {
    struct connection *connection = &worker->connection;
    bool doubtful;
    redisReply *reply = ask_or_make(worker, &doubtful);
    set_answers(worker, (struct answer){UNANSWERED, doubtful});
    if (!reply) return connection->why;
    if (reply->type == REDIS_REPLY_ERROR) {
        connection_explain(connection, reply->str, worker->options.key);
        freeReplyObject(reply);
        return connection->why;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != worker->nlines) {
        set_answers(worker, (struct answer){UNANSWERED, true});
        connection_explain(connection, "the server answers something unexpected",
                           worker->options.key);
        freeReplyObject(reply);
        return connection->why;
    }
    worker->known = true;
    for (size_t i = 0; i < worker->nlines; i++) {
        const redisReply *answer = reply->element[i];
        worker->answers[i].verdict = verdict_of(answer);
        if (answer->type == REDIS_REPLY_ERROR && !worker->refusal[0]) {
            connection_explain(connection, answer->str, worker->options.key);
            snprintf(worker->refusal, sizeof worker->refusal, "%s", connection->why);
        }
    }
    freeReplyObject(reply);
    return NULL;
}

/* Says it if the key is the plan of a partitioned filter, which is not a filter by itself. */
static void explain_plan(struct worker *worker) {
    const char *argv[] = {"GET", worker->options.key};
    const size_t lengths[] = {strlen(argv[0]), strlen(argv[1])};
    bool doubtful;
    struct plan plan;
    redisReply *reply = connection_ask(&worker->connection, 2, argv, lengths, &doubtful);
    if (reply && reply->type == REDIS_REPLY_STRING &&
        !plan_read(&plan, reply->str, (size_t)reply->len))
        snprintf(worker->connection.why, sizeof worker->connection.why,
                 "%s is a partitioned filter: give --partitions %u", worker->options.key,
                 plan.npartitions);
    if (reply) freeReplyObject(reply);
}

/* Tells now, rather than at the first line, if there is no server, no module or no right to use it.
 * Returns what is wrong, or NULL. */
static const char *look(struct worker *worker) {
    const char *argv[] = {"BF.CARD", worker->options.key};
    const size_t lengths[] = {strlen(argv[0]), strlen(argv[1])};
    bool doubtful;
    redisReply *reply = connection_ask(&worker->connection, 2, argv, lengths, &doubtful);
    if (!reply) return worker->connection.why;
    /* To add lines is all that a worker must be allowed to do. */
    const bool refused = reply->type == REDIS_REPLY_ERROR && !connection_refused(reply, "NOPERM ");
    if (refused) connection_explain(&worker->connection, reply->str, worker->options.key);
    if (connection_refused(reply, "WRONGTYPE ")) explain_plan(worker);
    freeReplyObject(reply);
    return refused ? worker->connection.why : NULL;
}

/* ---- a partitioned filter ---- */

static void report(void *reporter, const char *message) {
    say(reporter);
    fprintf(stderr, "%s\n", message);
}

static const char *open_partitions(struct worker *worker) {
    struct partitions *partitions = &worker->partitions;
    partitions->report = report;
    partitions->reporter = worker;
    if (!partitions_open(partitions, &worker->connection, worker->options.key,
                         &worker->options.plan, &worker->options.wanted, worker->options.batch))
        return partitions->cluster.why;
    if (worker->options.quiet || partitions->nmade == 0) return NULL;
    say(worker);
    if (partitions->made)
        fprintf(
            stderr,
            "there is no filter '%s' yet; creating it with %u partitions for %llu lines with an "
            "error rate of %s\n",
            worker->options.key, partitions->plan.npartitions, partitions->plan.capacity,
            partitions->plan.error);
    else
        fprintf(
            stderr,
            "%zu of the %u partitions of filter '%s' were missing and have been created. Unless "
            "another worker has just begun to use it, lines that were printed before may be "
            "printed again\n",
            partitions->nmade, partitions->plan.npartitions, worker->options.key);
    return NULL;
}

static const char *ask_partitions(struct worker *worker) {
    struct partitions *partitions = &worker->partitions;
    const bool complete = partitions_ask(partitions, worker->argv + HEAD, worker->lengths + HEAD,
                                         worker->nlines, worker->answers);
    snprintf(worker->refusal, sizeof worker->refusal, "%s", partitions->refusal);
    return complete ? NULL : partitions->cluster.why;
}

/* ---- all lines ---- */

static _Noreturn void end(struct worker *worker, const char *why) {
    if (connection_stop) stop(worker, EXIT_INTERRUPTED);
    fail(worker, why, NULL);
}

static void send_batch(struct worker *worker) {
    make_room(worker);
    check_output(worker);
    const char *why =
        worker->options.plan.npartitions > 0 ? ask_partitions(worker) : ask_filter(worker);
    take_answers(worker);
    size_t refused = 0;
    while (refused < worker->nlines && worker->answers[refused].verdict != REFUSED) refused++;
    if (refused < worker->nlines) {
        say(worker);
        fprintf(stderr, "line %llu was refused: %s\n", worker->places[refused].number,
                worker->refusal);
    }
    if (why) end(worker, why);
    if (refused < worker->nlines) stop(worker, EXIT_FAILED);
}

/* Takes lines until the batch is full. False if there are no more at the moment. */
static bool fill_batch(struct worker *worker) {
    worker->nlines = 0;
    while (worker->nlines < worker->options.batch) {
        const size_t i = worker->nlines;
        size_t *length = &worker->lengths[HEAD + i];
        switch (input_take(&worker->input, &worker->argv[HEAD + i], length)) {
        case LINE_TAKEN:
            worker->places[worker->nlines++] = (struct place){
                worker->input.number, worker->skipped.nempty, worker->skipped.ntoo_long};
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

/* ---- */

static void start(struct worker *worker) {
    const size_t n = HEAD + worker->options.batch;
    worker->argv = malloc(n * sizeof *worker->argv);
    worker->lengths = malloc(n * sizeof *worker->lengths);
    worker->places = malloc(worker->options.batch * sizeof *worker->places);
    worker->answers = malloc(worker->options.batch * sizeof *worker->answers);
    if (!worker->argv || !worker->lengths || !worker->places || !worker->answers)
        fail(worker, "cannot start", "no memory");
    catch_signals();
    const char *why = worker->options.plan.npartitions > 0 ? open_partitions(worker) : look(worker);
    if (why) end(worker, why);
}

/* Returns the exit status. */
static int finish(struct worker *worker) {
    const struct totals *totals = &worker->totals;
    if (worker->options.progress || totals->ntoo_long > 0 || totals->ndoubtful > 0) {
        say(worker);
        print_totals(totals, "\n");
    }
    if (worker->options.plan.npartitions > 0) partitions_free(&worker->partitions);
    connection_free(&worker->connection);
    free(worker->input.buffer);
    free(worker->output);
    free(worker->argv);
    free(worker->lengths);
    free(worker->places);
    free(worker->answers);
    return totals->ntoo_long > 0 ? EXIT_TOO_LONG : 0;
}

int main(int argc, char **argv) {
    struct worker worker = {.began = now()};
    connection_init(&worker.connection);
    options_read(&worker.options, &worker.connection, argc, argv);
    worker.input.nlongest = worker.options.nlongest;
    start(&worker);
    work(&worker);
    return finish(&worker);
}
