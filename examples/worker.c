/* worker: copies the lines that nobody has seen before, from stdin to stdout.
 *
 *     zcat urls.gz | worker --key seen > new.txt
 *
 * Lines are asked for in batches, with one BF.MADD each, which asks and marks at once: of several workers that run at
 * the same time, on whatever machines, exactly one prints a line. A batch is sent when it is full or when the input
 * pauses, so that the worker may stand in a pipeline whose input trickles. New lines are written before the next batch
 * is asked for. Lines are bytes, of any length; empty ones are skipped.
 *
 * When the connection breaks, the batch at hand is sent again over a new one. The server may have marked it already: then
 * it answers "seen" to lines that nobody has printed, so they are printed, and counted as doubtful. A line may come
 * twice in that case; none is lost. When the worker itself is killed, the lines of its last batch may be marked and not
 * printed.
 *
 * Ends with 0 when all input was dealt with, with 1 when the server or the output failed (stderr tells after how many
 * lines), with 2 when it was called wrongly. */
#include <errno.h>
#include <getopt.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_BATCH  10000
#define READ_BYTES (256u << 10)
#define RETRIES    6

struct worker {
    const char *host, *key, *error, *capacity;
    int port;
    size_t batch; /* lines in a full batch */
    bool progress;
    redisContext *redis; /* NULL while there is no connection */

    char *buffer; /* input; lines of the batch at hand, then what was read behind them */
    size_t nbuffer, room;
    size_t parsed; /* bytes of the buffer that are lines of the batch */
    bool ended;    /* no more input */

    const char **argv; /* BF.MADD, the key, the lines */
    size_t *lengths;
    size_t nlines; /* in the batch */

    unsigned long long ntotal, nnew, ndoubtful; /* lines so far */
    double began, shown;
};

static void fail(const struct worker *worker, const char *what, const char *why) {
    fprintf(stderr, "worker: %s: %s; %llu lines were dealt with\n", what, why, worker->ntotal);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the server ---- */

static bool connected(struct worker *worker) {
    const struct timeval patience = {10, 0};
    if (worker->redis) return true;
    worker->redis = redisConnectWithTimeout(worker->host, worker->port, patience);
    if (worker->redis && !worker->redis->err) {
        redisSetTimeout(worker->redis, patience);
        return true;
    }
    return false;
}

static void disconnect(struct worker *worker) {
    if (worker->redis) redisFree(worker->redis);
    worker->redis = NULL;
}

/* A server that has just come up, or a cluster slot that is on its way: the command was not carried out. */
static bool soon(const redisReply *reply) {
    return reply->type == REDIS_REPLY_ERROR &&
           (strncmp(reply->str, "LOADING ", 8) == 0 || strncmp(reply->str, "TRYAGAIN ", 9) == 0);
}

/* The reply to a command, sent again while there is none, at most RETRIES times. *doubtful: it may have been carried
 * out before. */
static redisReply *ask(struct worker *worker, size_t argc, const char **argv, const size_t *lengths,
                       bool *doubtful) {
    *doubtful = false;
    for (int attempt = 0;; attempt++) {
        char why[128];
        redisReply *reply = NULL;
        if (connected(worker)) {
            reply = redisCommandArgv(worker->redis, (int)argc, argv, lengths);
            if (reply && !soon(reply)) return reply;
            if (!reply) *doubtful = true;
        }
        if (reply) {
            snprintf(why, sizeof why, "%s", reply->str);
            freeReplyObject(reply);
        } else {
            snprintf(why, sizeof why, "%s", worker->redis ? worker->redis->errstr : "no memory");
            disconnect(worker);
        }
        if (attempt == RETRIES) fail(worker, "no answer from the server", why);
        const long ms = 100L << attempt;
        fprintf(stderr, "worker: %s, trying again in %.1f s\n", why, (double)ms / 1000);
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
    }
}

/* Makes the filter, if it is not there. */
static void reserve(struct worker *worker) {
    const char *argv[] = {"BF.RESERVE", worker->key, worker->error, worker->capacity};
    const size_t lengths[] = {10, strlen(worker->key), strlen(worker->error),
                              strlen(worker->capacity)};
    bool doubtful;
    redisReply *reply = ask(worker, 4, argv, lengths, &doubtful);
    if (reply->type == REDIS_REPLY_ERROR && !strstr(reply->str, "item exists"))
        fail(worker, "the server refuses to make the filter", reply->str);
    freeReplyObject(reply);
}

/* ---- a batch ---- */

static void print_line(const struct worker *worker, size_t i) {
    fwrite(worker->argv[i], 1, worker->lengths[i], stdout);
    putchar('\n');
}

/* In doubt a line may be the echo of an earlier one of the same batch: then that one was printed. */
static bool earlier_in_batch(const struct worker *worker, size_t i) {
    for (size_t j = 2; j < i; j++)
        if (worker->lengths[j] == worker->lengths[i] &&
            memcmp(worker->argv[j], worker->argv[i], worker->lengths[i]) == 0)
            return true;
    return false;
}

static void send_batch(struct worker *worker) {
    bool doubtful;
    redisReply *reply = ask(worker, worker->nlines + 2, worker->argv, worker->lengths, &doubtful);
    if (reply->type == REDIS_REPLY_ERROR) fail(worker, "the server answers", reply->str);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != worker->nlines)
        fail(worker, "the server answers", "something unexpected");
    const char *refused = NULL;
    for (size_t i = 0; i < worker->nlines; i++) {
        const redisReply *answer = reply->element[i];
        const bool echo = doubtful && answer->integer == 0 && !earlier_in_batch(worker, i + 2);
        if (answer->type == REDIS_REPLY_ERROR) {
            refused = answer->str;
        } else if (answer->integer == 1 || echo) {
            print_line(worker, i + 2);
            worker->nnew++;
            worker->ndoubtful += echo;
        }
    }
    if (fflush(stdout) != 0) fail(worker, "can't write", strerror(errno));
    if (refused) fail(worker, "the server refuses lines", refused);
    worker->ntotal += worker->nlines;
    freeReplyObject(reply);
}

/* ---- input ---- */

/* Appends the next line of the buffer to the batch; false if there is no whole line. */
static bool take_line(struct worker *worker) {
    char *line = worker->buffer + worker->parsed;
    const size_t left = worker->nbuffer - worker->parsed;
    const char *newline = memchr(line, '\n', left);
    if (!newline && !(worker->ended && left > 0)) return false;
    const size_t length = newline ? (size_t)(newline - line) : left;
    worker->parsed += length + (newline != NULL);
    if (length > 0) {
        worker->argv[2 + worker->nlines] = line;
        worker->lengths[2 + worker->nlines++] = length;
    }
    return true;
}

/* Drops what was dealt with, and reads more. Only when the batch is empty, since the buffer moves. */
static void read_more(struct worker *worker) {
    worker->nbuffer -= worker->parsed;
    memmove(worker->buffer, worker->buffer + worker->parsed, worker->nbuffer);
    worker->parsed = 0;
    if (worker->room - worker->nbuffer < READ_BYTES) {
        worker->room = 2 * worker->room + READ_BYTES;
        worker->buffer = realloc(worker->buffer, worker->room);
        if (!worker->buffer) fail(worker, "can't read", "no memory for so long a line");
    }
    ssize_t n;
    while ((n = read(STDIN_FILENO, worker->buffer + worker->nbuffer, READ_BYTES)) < 0)
        if (errno != EINTR) fail(worker, "can't read", strerror(errno));
    worker->nbuffer += (size_t)n;
    worker->ended = n == 0;
}

static void show_progress(struct worker *worker, bool last) {
    const double t = now();
    if (!worker->progress || (!last && t - worker->shown < 0.5)) return;
    worker->shown = t;
    fprintf(stderr, "\r\033[K%llu lines, %llu new, %.0f lines/s%s", worker->ntotal, worker->nnew,
            (double)worker->ntotal / (t - worker->began + 1e-9), last ? "\n" : "");
}

/* A batch ends when it is full or the buffer has no more lines; the buffer is as much as the input had ready. */
static void work(struct worker *worker) {
    do {
        read_more(worker);
        bool more;
        do {
            worker->nlines = 0;
            while (worker->nlines < worker->batch && (more = take_line(worker)))
                ;
            if (worker->nlines > 0) send_batch(worker);
            show_progress(worker, false);
        } while (more);
    } while (!worker->ended);
    show_progress(worker, true);
    if (worker->ndoubtful > 0)
        fprintf(stderr, "worker: %llu lines may have been printed before the connection broke\n",
                worker->ndoubtful);
}

/* ---- */

static const char usage[] =
    "usage: worker [options] < lines > new-lines\n"
    "  -H, --host NAME       server (127.0.0.1)\n"
    "  -p, --port N          its port (6379)\n"
    "  -k, --key NAME        the filter (seen)\n"
    "  -e, --error RATE      share of new lines that may be missed (1e-6), if the filter is made "
    "now\n"
    "  -c, --capacity N      lines to plan for (10000000), if the filter is made now\n"
    "  -b, --batch N         lines per question (1000)\n"
    "  -P, --progress        show progress on stderr, also if that is no terminal\n"
    "  -q, --quiet           show none\n"
    "  -h, --help            this\n";

static long number(const char *text, long max) {
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 1 || value > max) {
        fprintf(stderr, "worker: '%s' is not a number from 1 to %ld\n", text, max);
        exit(2);
    }
    return value;
}

static void read_arguments(struct worker *worker, int argc, char **argv) {
    static const struct option options[] = {
        {"host", required_argument, NULL, 'H'},     {"port", required_argument, NULL, 'p'},
        {"key", required_argument, NULL, 'k'},      {"error", required_argument, NULL, 'e'},
        {"capacity", required_argument, NULL, 'c'}, {"batch", required_argument, NULL, 'b'},
        {"progress", no_argument, NULL, 'P'},       {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "H:p:k:e:c:b:Pqh", options, NULL)) != -1) {
        switch (option) {
        case 'H':
            worker->host = optarg;
            break;
        case 'p':
            worker->port = (int)number(optarg, 65535);
            break;
        case 'k':
            worker->key = optarg;
            break;
        case 'e':
            worker->error = optarg;
            break;
        case 'c':
            worker->capacity = optarg;
            break;
        case 'b':
            worker->batch = (size_t)number(optarg, MAX_BATCH);
            break;
        case 'P':
            worker->progress = true;
            break;
        case 'q':
            worker->progress = false;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            fputs(usage, stderr);
            exit(2);
        }
    }
    if (optind < argc) {
        fputs(usage, stderr);
        exit(2);
    }
}

int main(int argc, char **argv) {
    struct worker worker = {.host = "127.0.0.1",
                            .port = 6379,
                            .key = "seen",
                            .error = "1e-6",
                            .capacity = "10000000",
                            .batch = 1000,
                            .progress = isatty(STDERR_FILENO),
                            .began = now()};
    read_arguments(&worker, argc, argv);
    worker.argv = malloc((worker.batch + 2) * sizeof *worker.argv);
    worker.lengths = malloc((worker.batch + 2) * sizeof *worker.lengths);
    worker.buffer = malloc(worker.room = READ_BYTES);
    if (!worker.argv || !worker.lengths || !worker.buffer)
        fail(&worker, "can't start", "no memory");
    worker.argv[0] = "BF.MADD";
    worker.lengths[0] = strlen(worker.argv[0]);
    worker.argv[1] = worker.key;
    worker.lengths[1] = strlen(worker.key);
    reserve(&worker);
    work(&worker);
    disconnect(&worker);
    free(worker.buffer);
    free(worker.argv);
    free(worker.lengths);
    return 0;
}
