/* load.c: one measured run of one kind of load against one server.
 *
 * Prints one line of JSON: items per second, server CPU and in-command time per item, latency
 * percentiles, and what the server answered. The load is generated in segments before the clock
 * starts, so that neither items per second nor the caches of the server pay for it, and replies
 * are counted without building objects for them.
 *
 * The server's CPU comes from /proc/<pid>/task/<tid>/schedstat (nanoseconds on a CPU, all
 * threads), the in-command time from INFO commandstats, for the command of the run alone.
 * Connections are made and warmed before the measurement. */
#include "request.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum {
    SEGMENT_ITEMS = 500000, /* items generated ahead of the clock */
    MAX_CONNS = 1000,
    STALL_SECONDS = 120, /* a server silent for this long has failed */
};

/* What the command line specifies. */
struct options {
    int port;             /* of the server on 127.0.0.1 */
    int pid;              /* of the server */
    unsigned nconns;      /* connections */
    unsigned pipeline;    /* requests sent before waiting for their replies */
    uint64_t nitems;      /* items in all */
    uint64_t npresent;    /* items 0 … npresent-1 count as known */
    unsigned dup_percent; /* share of items drawn from the known ones */
    uint64_t new_from;    /* number of the first item that is not known */
    uint64_t rate;   /* items per second, 0: as fast as they are answered; one connection only */
    uint64_t seed;   /* of the choices made */
    bool keep_stats; /* leave the server's statistics to others; no cmd_us then */
};

/* What came back, summed by the reply parser. */
struct answers {
    uint64_t hits;          /* sum of all integers; for SETBIT, items answered yes */
    uint64_t nerrors;       /* error replies and error elements */
    char first_error[128];  /* text of the first of them */
    unsigned bits_in_item;  /* SETBIT: bits of the current item seen so far */
    unsigned zeros_in_item; /* SETBIT: zeros among them */
};

/* A burst: up to `pipeline` requests that travel together. */
struct burst {
    size_t start, end;  /* its bytes in the segment */
    unsigned nrequests; /* requests in it */
    unsigned nreplies;  /* replies per request (the last request of a run may be shorter) */
    unsigned nreplies_last;
};

struct conn {
    redisContext *context;
    const struct burst *burst; /* in flight, or NULL */
    unsigned requests_done;    /* of the burst */
    unsigned replies_seen;     /* of the current request */
    uint64_t sent_at;          /* nanoseconds */
    bool writing;              /* not all bytes sent yet */
};

struct run {
    struct options opt;
    struct request req;
    redisContext *control; /* for INFO and the like, outside the measurement */
    struct conn conns[MAX_CONNS];
    struct answers answers;

    struct bytes segment; /* generated requests */
    struct burst *bursts; /* of the segment */
    size_t nbursts, next_burst;

    uint64_t ngenerated;   /* items generated so far */
    uint64_t nnew;         /* of them, new ones */
    uint64_t choice_state; /* of the generator of choices */
    uint64_t started_at;   /* start of the first burst, for the rate */
    uint64_t nsent;        /* items sent, for the rate */

    uint64_t *latencies; /* nanoseconds per request */
    size_t nlatencies;
    uint64_t wall_ns, cpu_ns;
};

static volatile sig_atomic_t stop_asked;

static void on_signal(int number) {
    (void)number;
    stop_asked = 1;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(1);
}

static void *checked_alloc(size_t count, size_t nbytes) {
    void *p = calloc(count, nbytes);
    if (!p) die("out of memory", strerror(errno));
    return p;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- the server's own account ---- */

static uint64_t server_cpu_ns(int pid) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    if (!dir) die(path, strerror(errno));
    uint64_t total = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        char stat[sizeof(path) + sizeof(e->d_name) + 16];
        snprintf(stat, sizeof(stat), "%s/%s/schedstat", path, e->d_name);
        FILE *f = fopen(stat, "r");
        unsigned long long ns;
        if (!f) continue; /* the thread has ended meanwhile */
        if (fscanf(f, "%llu", &ns) == 1) total += ns;
        fclose(f);
    }
    closedir(dir);
    return total;
}

static redisReply *control(struct run *run, int argc, const char **argv) {
    redisReply *reply = redisCommandArgv(run->control, argc, argv, NULL);
    if (!reply) die(argv[0], run->control->errstr);
    if (reply->type == REDIS_REPLY_ERROR) die(argv[0], reply->str);
    return reply;
}

/* Microseconds spent in the command of the run since CONFIG RESETSTAT. */
static uint64_t command_usec(struct run *run) {
    redisReply *reply = control(run, 2, (const char *[]){"INFO", "commandstats"});
    char wanted[64];
    int n = snprintf(wanted, sizeof(wanted), "cmdstat_%s:", request_command(&run->req));
    unsigned long long usec = 0;
    for (char *line = strtok(reply->str, "\r\n"); line; line = strtok(NULL, "\r\n"))
        if (!strncasecmp(line, wanted, (size_t)n)) sscanf(line + n, "calls=%*u,usec=%llu", &usec);
    freeReplyObject(reply);
    return usec;
}

/* ---- replies, counted as they are parsed ---- */

static char parsed; /* stands for every parsed object */

static void *on_string(const redisReadTask *task, char *text, size_t nbytes) {
    struct answers *answers = task->privdata;
    if (task->type == REDIS_REPLY_ERROR && !answers->nerrors++)
        snprintf(answers->first_error, sizeof(answers->first_error), "%.*s", (int)nbytes, text);
    return &parsed;
}

#if HIREDIS_MAJOR >= 1
static void *on_array(const redisReadTask *task, size_t nelements) {
#else
static void *on_array(const redisReadTask *task, int nelements) {
#endif
    (void)task;
    (void)nelements;
    return &parsed;
}

static void *on_integer(const redisReadTask *task, long long value) {
    struct answers *answers = task->privdata;
    answers->hits += (uint64_t)value;
    answers->zeros_in_item += value == 0;
    answers->bits_in_item++;
    return &parsed;
}

static void *on_nil(const redisReadTask *task) {
    (void)task;
    return &parsed;
}

static void on_free(void *object) {
    (void)object;
}

static redisReplyObjectFunctions counting = {
    .createString = on_string,
    .createArray = on_array,
    .createInteger = on_integer,
    .createNil = on_nil,
    .freeObject = on_free,
};

/* Seven bits make one answer: known if none of them was zero. */
static void fold_bits(struct run *run, uint64_t hits_before) {
    struct answers *answers = &run->answers;
    if (run->req.style->payload != PAYLOAD_SETBIT) return;
    answers->hits = hits_before;
    if (answers->bits_in_item < RECIPE_BITS) return;
    bool known = answers->zeros_in_item == 0;
    answers->hits += known == run->req.exists;
    answers->bits_in_item = answers->zeros_in_item = 0;
}

/* ---- generating ---- */

static uint64_t choose(struct run *run, uint64_t n) {
    run->choice_state += UINT64_C(0x9e3779b97f4a7c15);
    return (uint64_t)(((unsigned __int128)mix64(run->choice_state) * n) >> 64);
}

static uint64_t next_item(struct run *run) {
    const struct options *opt = &run->opt;
    run->ngenerated++;
    if (opt->dup_percent && choose(run, 100) < opt->dup_percent) return choose(run, opt->npresent);
    return opt->new_from + run->nnew++;
}

static void generate_burst(struct run *run, struct burst *burst) {
    unsigned batch = request_nitems(&run->req);
    uint64_t items[batch];
    *burst = (struct burst){.start = run->segment.nbytes,
                            .nreplies = request_nreplies(&run->req, batch)};
    while (burst->nrequests < run->opt.pipeline && run->ngenerated < run->opt.nitems) {
        unsigned n = 0;
        while (n < batch && run->ngenerated < run->opt.nitems) items[n++] = next_item(run);
        request_append(&run->segment, &run->req, items, n);
        burst->nrequests++;
        burst->nreplies_last = request_nreplies(&run->req, n);
    }
    burst->end = run->segment.nbytes;
}

static void generate_segment(struct run *run) {
    uint64_t per_burst = (uint64_t)request_nitems(&run->req) * run->opt.pipeline;
    size_t max = SEGMENT_ITEMS / per_burst + 1;
    if (!run->bursts) run->bursts = checked_alloc(max, sizeof(*run->bursts));
    run->segment.nbytes = 0;
    run->next_burst = 0;
    for (run->nbursts = 0; run->nbursts < max && run->ngenerated < run->opt.nitems; run->nbursts++)
        generate_burst(run, &run->bursts[run->nbursts]);
}

/* ---- running ---- */

static void wait_for_rate(struct run *run) {
    uint64_t due = run->started_at + run->nsent * 1000000000 / run->opt.rate;
    struct timespec t = {.tv_sec = (time_t)(due / 1000000000), .tv_nsec = (long)(due % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void write_some(struct conn *conn) {
    int done = 0;
    if (redisBufferWrite(conn->context, &done) != REDIS_OK) die("write", conn->context->errstr);
    conn->writing = !done;
}

/* Send the next burst, if there is one. */
static void start_burst(struct run *run, struct conn *conn) {
    conn->burst = NULL;
    if (stop_asked || run->next_burst == run->nbursts) return;
    if (run->opt.rate) wait_for_rate(run);
    conn->burst = &run->bursts[run->next_burst++];
    conn->requests_done = conn->replies_seen = 0;
    run->nsent += (uint64_t)conn->burst->nrequests * request_nitems(&run->req);
    redisAppendFormattedCommand(conn->context, run->segment.data + conn->burst->start,
                                conn->burst->end - conn->burst->start);
    conn->sent_at = now_ns();
    write_some(conn);
}

static void on_reply(struct run *run, struct conn *conn) {
    const struct burst *burst = conn->burst;
    bool last = conn->requests_done + 1 == burst->nrequests;
    if (++conn->replies_seen < (last ? burst->nreplies_last : burst->nreplies)) return;
    conn->replies_seen = 0;
    conn->requests_done++;
    run->latencies[run->nlatencies++] = now_ns() - conn->sent_at;
    if (last) start_burst(run, conn);
}

static void read_replies(struct run *run, struct conn *conn) {
    if (redisBufferRead(conn->context) != REDIS_OK) die("read", conn->context->errstr);
    for (;;) {
        void *reply = NULL;
        uint64_t hits = run->answers.hits;
        if (redisGetReplyFromReader(conn->context, &reply) != REDIS_OK)
            die("protocol", conn->context->errstr);
        if (!reply) return;
        fold_bits(run, hits);
        on_reply(run, conn);
    }
}

static void run_segment(struct run *run) {
    struct pollfd polled[MAX_CONNS];
    struct conn *conns[MAX_CONNS];
    for (unsigned i = 0; i < run->opt.nconns; i++) start_burst(run, &run->conns[i]);
    for (;;) {
        nfds_t n = 0;
        for (unsigned i = 0; i < run->opt.nconns; i++) {
            struct conn *conn = &run->conns[i];
            if (!conn->burst) continue;
            conns[n] = conn;
            polled[n++] = (struct pollfd){
                .fd = conn->context->fd, .events = (short)(POLLIN | (conn->writing ? POLLOUT : 0))};
        }
        if (n == 0) return;
        int ready = poll(polled, n, STALL_SECONDS * 1000);
        if (ready == 0) die("server", "no answer");
        if (ready < 0 && errno != EINTR) die("poll", strerror(errno));
        for (nfds_t i = 0; ready > 0 && i < n; i++) {
            if (polled[i].revents & POLLOUT) write_some(conns[i]);
            if (polled[i].revents & ~POLLOUT) read_replies(run, conns[i]);
        }
    }
}

static void run_all(struct run *run) {
    uint64_t nrequests = run->opt.nitems / request_nitems(&run->req) + 1;
    run->latencies = checked_alloc(nrequests, sizeof(*run->latencies));
    if (!run->opt.keep_stats)
        freeReplyObject(control(run, 2, (const char *[]){"CONFIG", "RESETSTAT"}));
    run->started_at = now_ns();
    while (run->ngenerated < run->opt.nitems && !stop_asked) {
        generate_segment(run);
        uint64_t cpu = server_cpu_ns(run->opt.pid), wall = now_ns();
        run_segment(run);
        run->wall_ns += now_ns() - wall;
        /* A thread's account is brought up to date when it goes to sleep: give the server the
         * time to. */
        usleep(2000);
        run->cpu_ns += server_cpu_ns(run->opt.pid) - cpu;
    }
}

/* ---- setting up and reporting ---- */

static redisContext *connect_to(const struct run *run) {
    redisContext *context = redisConnect("127.0.0.1", run->opt.port);
    if (!context || context->err) die("connect", context ? context->errstr : "out of memory");
    return context;
}

/* A connection that has been answered once: the server's side of it exists and its buffers are
 * warm. */
static void open_conn(struct run *run, struct conn *conn) {
    conn->context = connect_to(run);
    freeReplyObject(redisCommand(conn->context, "PING"));
    redisReader *reader = conn->context->reader;
    reader->fn = &counting;
    reader->privdata = &run->answers;
    conn->context->flags &= ~REDIS_BLOCK;
    int flags = fcntl(conn->context->fd, F_GETFL);
    if (fcntl(conn->context->fd, F_SETFL, flags | O_NONBLOCK) < 0) die("fcntl", strerror(errno));
}

static void load_script(struct run *run) {
    const char *script = request_script(&run->req);
    if (!script) return;
    redisReply *reply = control(run, 3, (const char *[]){"SCRIPT", "LOAD", script});
    run->req.script_sha = strdup(reply->str);
    freeReplyObject(reply);
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double percentile_us(const struct run *run, double share) {
    if (!run->nlatencies) return 0;
    return (double)run->latencies[(size_t)(share * (double)(run->nlatencies - 1))] / 1000;
}

static void report(struct run *run) {
    uint64_t nitems = run->nsent < run->opt.nitems ? run->nsent : run->opt.nitems;
    double per_item = nitems ? 1.0 / (double)nitems : 0;
    qsort(run->latencies, run->nlatencies, sizeof(*run->latencies), by_value);
    printf(
        "{\"items\": %llu, \"seconds\": %.6f, \"items_per_s\": %.0f, \"cpu_us\": %.5f, \"cmd_us\": "
        "%.5f, "
        "\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, \"hits\": %llu, "
        "\"new\": %llu, \"errors\": %llu}\n",
        (unsigned long long)nitems, (double)run->wall_ns / 1e9,
        (double)nitems / ((double)run->wall_ns / 1e9), (double)run->cpu_ns / 1000 * per_item,
        (double)command_usec(run) * per_item, percentile_us(run, 0.5), percentile_us(run, 0.99),
        percentile_us(run, 0.999), percentile_us(run, 1), (unsigned long long)run->answers.hits,
        (unsigned long long)run->nnew, (unsigned long long)run->answers.nerrors);
    if (run->answers.nerrors) die("the server answered", run->answers.first_error);
}

static uint64_t number(const char *text) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno || *end || end == text) die("not a number", text);
    return value;
}

static void parse_options(struct run *run, int argc, char **argv) {
    static const struct option known[] = {
        {"port", 1, NULL, 'p'},       {"pid", 1, NULL, 'P'},        {"style", 1, NULL, 's'},
        {"key", 1, NULL, 'k'},        {"exists", 0, NULL, 'e'},     {"batch", 1, NULL, 'b'},
        {"pipeline", 1, NULL, 'l'},   {"conns", 1, NULL, 'c'},      {"items", 1, NULL, 'n'},
        {"present", 1, NULL, 'm'},    {"dup", 1, NULL, 'd'},        {"new-from", 1, NULL, 'f'},
        {"rate", 1, NULL, 'r'},       {"item-bytes", 1, NULL, 'i'}, {"seed", 1, NULL, 'S'},
        {"keep-stats", 0, NULL, 'K'}, {"keys", 1, NULL, 'N'},       {NULL, 0, NULL, 0},
    };
    struct options *opt = &run->opt;
    struct request *req = &run->req;
    *opt = (struct options){.nconns = 1, .pipeline = 1, .nitems = 100000};
    *req =
        (struct request){.style = style_find("bf"), .key = "bench", .nkeys = 1, .item_nbytes = 64};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 'p':
            opt->port = (int)number(optarg);
            break;
        case 'P':
            opt->pid = (int)number(optarg);
            break;
        case 's':
            req->style = style_find(optarg);
            break;
        case 'k':
            req->key = optarg;
            break;
        case 'N':
            req->nkeys = (unsigned)number(optarg);
            break;
        case 'e':
            req->exists = true;
            break;
        case 'b':
            req->batch = (unsigned)number(optarg);
            break;
        case 'l':
            opt->pipeline = (unsigned)number(optarg);
            break;
        case 'c':
            opt->nconns = (unsigned)number(optarg);
            break;
        case 'n':
            opt->nitems = number(optarg);
            break;
        case 'm':
            opt->npresent = number(optarg);
            break;
        case 'd':
            opt->dup_percent = (unsigned)number(optarg);
            break;
        case 'f':
            opt->new_from = number(optarg);
            break;
        case 'r':
            opt->rate = number(optarg);
            break;
        case 'i':
            req->item_nbytes = (unsigned)number(optarg);
            break;
        case 'K':
            opt->keep_stats = true;
            break;
        case 'S':
            opt->seed = number(optarg);
            break;
        default:
            exit(2);
        }
    }
    if (!opt->port || !opt->pid || !req->style || !opt->nconns || opt->nconns > MAX_CONNS ||
        !opt->pipeline || !opt->nitems || !req->nkeys || !request_is_possible(req) ||
        req->item_nbytes < 16 || req->batch > 100000 || (opt->dup_percent && !opt->npresent) ||
        (opt->rate && opt->nconns > 1)) {
        fprintf(stderr,
                "load: --port, --pid and a consistent load are needed; see bench/README.md\n");
        exit(2);
    }
    run->choice_state = mix64(opt->seed);
}

int main(int argc, char **argv) {
    static struct run run;
    parse_options(&run, argc, argv);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    run.control = connect_to(&run);
    load_script(&run);
    for (unsigned i = 0; i < run.opt.nconns; i++) open_conn(&run, &run.conns[i]);
    run_all(&run);
    report(&run);
    return 0;
}
