#include "partitions.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK_S  60 /* how often a plan is read again, lest another has taken its place */
#define HEAD     4  /* words of a BF.INSERT before the lines */
#define ATTEMPTS 16 /* to make what vanishes again and again */

static const struct wanted everything = {true, true, true, true};

__attribute__((format(printf, 2, 3))) static bool fail(struct partitions *partitions,
                                                       const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(partitions->cluster.why, sizeof partitions->cluster.why, format, arguments);
    va_end(arguments);
    return false;
}

static void *allocate(size_t n, size_t nbytes) {
    void *room = calloc(n, nbytes);
    if (!room) abort();
    return room;
}

/* ---- the plan ---- */

/* The reply to a command for the key of the plan; NULL if there is none, or an error. */
static redisReply *ask_plan(struct partitions *partitions, size_t argc, const char **argv) {
    size_t lengths[4];
    for (size_t i = 0; i < argc; i++) lengths[i] = strlen(argv[i]);
    const char *name = partitions->name;
    struct request request = {.slot = plan_crc16(name, strlen(name)) % CLUSTER_SLOTS,
                              .argc = argc,
                              .argv = argv,
                              .lengths = lengths};
    if (!cluster_ask(&partitions->cluster, &request, 1)) return NULL;
    if (request.reply->type != REDIS_REPLY_ERROR) return request.reply;
    if (connection_refused(request.reply, "WRONGTYPE "))
        fail(partitions, "%s is not a partitioned filter", name);
    else
        cluster_explain(&partitions->cluster, &request, request.reply->str, name);
    freeReplyObject(request.reply);
    return NULL;
}

static bool compare(struct partitions *partitions, const struct plan *want,
                    const struct wanted *wanted) {
    if (plan_agrees(&partitions->plan, want, wanted)) return true;
    char there[200], asked[200];
    plan_describe(&partitions->plan, &everything, there, sizeof there);
    plan_describe(want, wanted, asked, sizeof asked);
    return fail(partitions, "filter '%s' has %s; requested: %s", partitions->name, there, asked);
}

/* Reads the plan that is there, or makes the one that is wanted; whoever comes first decides. */
static bool settle_plan(struct partitions *partitions, const struct plan *want,
                        const struct wanted *wanted) {
    char text[PLAN_MAX_BYTES];
    if (!plan_write(want, text)) return fail(partitions, "the options are too long");
    const char *get[] = {"GET", partitions->name}, *set[] = {"SET", partitions->name, text, "NX"};
    for (int i = 0; i < ATTEMPTS; i++) {
        redisReply *reply = ask_plan(partitions, 2, get);
        if (!reply) return false;
        const bool there = reply->type == REDIS_REPLY_STRING;
        const char *problem =
            there ? plan_read(&partitions->plan, reply->str, (size_t)reply->len) : NULL;
        freeReplyObject(reply);
        if (problem) return fail(partitions, "%s can't be used: %s", partitions->name, problem);
        if (there) {
            partitions->checked = time(NULL);
            return compare(partitions, want, wanted);
        }
        reply = ask_plan(partitions, 4, set);
        if (!reply) return false;
        if (reply->type == REDIS_REPLY_STATUS) partitions->made = true;
        freeReplyObject(reply);
    }
    return fail(partitions, "%s vanishes as soon as it is created", partitions->name);
}

/* The plan has to be what it was; if it has vanished, it is made again. */
static bool check_plan(struct partitions *partitions) {
    /* A copy whose words stand elsewhere, since settle_plan() writes over those of the plan. */
    char text[PLAN_MAX_BYTES];
    struct plan want;
    if (!plan_write(&partitions->plan, text) || plan_read(&want, text, strlen(text))) abort();
    return settle_plan(partitions, &want, &everything);
}

/* A plan that no server takes would be in everybody's way. */
static void drop_plan(struct partitions *partitions) {
    char why[sizeof partitions->cluster.why];
    memcpy(why, partitions->cluster.why, sizeof why);
    redisReply *reply = ask_plan(partitions, 2, (const char *[]){"UNLINK", partitions->name});
    if (reply) freeReplyObject(reply);
    memcpy(partitions->cluster.why, why, sizeof why);
}

/* ---- its partitions ---- */

/* A partition that exists is well. A user who may not make any is content with those that do. */
static bool reserved(struct partitions *partitions, const struct request *request,
                     const char *key) {
    const redisReply *reply = request->reply;
    if (reply->type != REDIS_REPLY_ERROR) partitions->nmade++;
    if (reply->type != REDIS_REPLY_ERROR || strcmp(reply->str, "ERR item exists") == 0 ||
        (!partitions->made && connection_refused(reply, "NOPERM ")))
        return true;
    cluster_explain(&partitions->cluster, request, reply->str, key);
    return false;
}

/* BF.RESERVE of these partitions. */
static bool reserve(struct partitions *partitions, const unsigned *which, size_t n) {
    const struct plan *plan = &partitions->plan;
    char capacity[24];
    snprintf(capacity, sizeof capacity, "%llu", plan_share(plan));
    const char *words[4 + PLAN_MAX_WORDS] = {"BF.RESERVE", NULL, plan->error, capacity};
    size_t argc = 4;
    for (size_t i = 0; plan->words[i]; i++) words[argc++] = plan->words[i];
    const char **argv = allocate(n * argc, sizeof *argv);
    size_t *lengths = allocate(n * argc, sizeof *lengths);
    struct request *requests = allocate(n, sizeof *requests);
    for (size_t i = 0; i < n; i++) {
        words[1] = partitions->keys[which[i]];
        for (size_t j = 0; j < argc; j++) {
            argv[i * argc + j] = words[j];
            lengths[i * argc + j] = strlen(words[j]);
        }
        requests[i] = (struct request){.slot = partitions->slots[which[i]],
                                       .argc = argc,
                                       .argv = argv + i * argc,
                                       .lengths = lengths + i * argc};
    }
    bool done = cluster_ask(&partitions->cluster, requests, n);
    for (size_t i = 0; i < n; i++) {
        if (requests[i].reply && done)
            done = reserved(partitions, &requests[i], partitions->keys[which[i]]);
        if (requests[i].reply) freeReplyObject(requests[i].reply);
    }
    free(argv);
    free(lengths);
    free(requests);
    return done;
}

static void name_partitions(struct partitions *partitions) {
    const unsigned n = partitions->plan.npartitions;
    unsigned *tags = allocate(n, sizeof *tags);
    partitions->slots = allocate(n, sizeof *partitions->slots);
    partitions->keys = allocate(n, sizeof *partitions->keys);
    plan_places(&partitions->plan, partitions->slots, tags);
    for (unsigned p = 0; p < n; p++)
        if (asprintf(&partitions->keys[p], "%s:%u{%u}", partitions->name, p, tags[p]) < 0) abort();
    free(tags);
}

bool partitions_open(struct partitions *partitions, const struct connection *entry,
                     const char *name, const struct plan *want, const struct wanted *wanted,
                     size_t batch) {
    cluster_init(&partitions->cluster, entry);
    partitions->name = name;
    if (!settle_plan(partitions, want, wanted)) return false;
    name_partitions(partitions);
    const unsigned n = partitions->plan.npartitions;
    partitions->requests = allocate(n, sizeof *partitions->requests);
    partitions->starts = allocate(n + 1, sizeof *partitions->starts);
    partitions->numbers = allocate(batch, sizeof *partitions->numbers);
    partitions->order = allocate(batch, sizeof *partitions->order);
    partitions->argv = allocate(batch + HEAD * n, sizeof *partitions->argv);
    partitions->lengths = allocate(batch + HEAD * n, sizeof *partitions->lengths);
    unsigned all[PLAN_MAX_PARTITIONS];
    for (unsigned p = 0; p < n; p++) all[p] = p;
    if (reserve(partitions, all, n)) return true;
    if (partitions->made && partitions->nmade == 0 && !connection_stop) drop_plan(partitions);
    return false;
}

void partitions_free(struct partitions *partitions) {
    for (unsigned p = 0; partitions->keys && p < partitions->plan.npartitions; p++)
        free(partitions->keys[p]);
    free(partitions->keys);
    free(partitions->slots);
    free(partitions->requests);
    free(partitions->starts);
    free(partitions->numbers);
    free(partitions->order);
    free(partitions->argv);
    free(partitions->lengths);
    cluster_free(&partitions->cluster);
}

/* ---- lines ---- */

/* Sorts the lines by partition, each partition's in the order in which they came. */
static void sort_lines(struct partitions *partitions, const char **lines, const size_t *lengths,
                       size_t nlines) {
    const unsigned n = partitions->plan.npartitions;
    size_t *starts = partitions->starts;
    uint16_t *numbers = partitions->numbers;
    memset(starts, 0, (n + 1) * sizeof *starts);
    for (size_t i = 0; i < nlines; i++) {
        numbers[i] = (uint16_t)plan_partition(&partitions->plan, lines[i], lengths[i]);
        starts[numbers[i] + 1]++;
    }
    for (unsigned p = 0; p < n; p++) starts[p + 1] += starts[p];
    for (size_t i = 0; i < nlines; i++) partitions->order[starts[numbers[i]]++] = i;
    /* Each start has become the next one's. */
    memmove(starts + 1, starts, n * sizeof *starts);
    starts[0] = 0;
}

/* Makes a BF.INSERT for each partition that has lines; `which` says for which partition. */
static size_t make_requests(struct partitions *partitions, const char **lines,
                            const size_t *lengths, unsigned *which) {
    const char **argv = partitions->argv;
    size_t *nbytes = partitions->lengths, nrequests = 0;
    for (unsigned p = 0; p < partitions->plan.npartitions; p++) {
        const size_t from = partitions->starts[p], to = partitions->starts[p + 1];
        if (from == to) continue;
        const char *const words[HEAD] = {"BF.INSERT", partitions->keys[p], "NOCREATE", "ITEMS"};
        which[nrequests] = p;
        partitions->requests[nrequests++] = (struct request){.slot = partitions->slots[p],
                                                             .argc = HEAD + to - from,
                                                             .argv = argv,
                                                             .lengths = nbytes};
        for (size_t i = 0; i < HEAD; i++) {
            *argv++ = words[i];
            *nbytes++ = strlen(words[i]);
        }
        for (size_t i = from; i < to; i++) {
            *argv++ = lines[partitions->order[i]];
            *nbytes++ = lengths[partitions->order[i]];
        }
    }
    return nrequests;
}

static void report_vanished(struct partitions *partitions, size_t nvanished) {
    char message[400];
    snprintf(
        message, sizeof message,
        "%zu of the %u partitions of filter '%.100s' vanished; creating them again, each for "
        "%llu lines with an error rate of %s. Lines that were printed before may be printed again",
        nvanished, partitions->plan.npartitions, partitions->name, plan_share(&partitions->plan),
        partitions->plan.error);
    partitions->report(partitions->reporter, message);
}

/* Makes partitions again that are not there, as the plan says, and the plan itself. Their requests
 * lose their replies, to be asked again. Sets *nvanished. */
static bool restore(struct partitions *partitions, const unsigned *which, size_t nrequests,
                    size_t *nvanished) {
    unsigned vanished[PLAN_MAX_PARTITIONS];
    *nvanished = 0;
    for (size_t i = 0; i < nrequests; i++) {
        struct request *request = &partitions->requests[i];
        if (request->reply->type != REDIS_REPLY_ERROR ||
            strcmp(request->reply->str, "ERR not found") != 0)
            continue;
        vanished[(*nvanished)++] = which[i];
        freeReplyObject(request->reply);
        request->reply = NULL;
    }
    if (*nvanished == 0) return true;
    report_vanished(partitions, *nvanished);
    return check_plan(partitions) && reserve(partitions, vanished, *nvanished);
}

enum verdict verdict_of(const redisReply *reply) {
    if (reply->type == REDIS_REPLY_ERROR) return REFUSED;
    return reply->integer == 1 ? NEW : SEEN;
}

static void take_answers(struct partitions *partitions, const struct request *request,
                         const size_t *order, struct answer *answers) {
    for (size_t i = 0; i < request->reply->elements; i++) {
        const redisReply *reply = request->reply->element[i];
        struct answer *answer = &answers[order[i]];
        answer->verdict = verdict_of(reply);
        if (answer->verdict != REFUSED) continue;
        cluster_explain(&partitions->cluster, request, reply->str, request->argv[1]);
        snprintf(partitions->refusal, sizeof partitions->refusal, "%s", partitions->cluster.why);
    }
}

bool partitions_ask(struct partitions *partitions, const char **lines, const size_t *lengths,
                    size_t nlines, struct answer *answers) {
    unsigned which[PLAN_MAX_PARTITIONS];
    sort_lines(partitions, lines, lengths, nlines);
    const size_t nrequests = make_requests(partitions, lines, lengths, which);
    bool complete = true;
    size_t nvanished = 0;
    int nattempts = 0;
    if (time(NULL) - partitions->checked >= CHECK_S && !check_plan(partitions)) {
        for (size_t i = 0; i < nlines; i++) answers[i] = (struct answer){UNANSWERED, false};
        return false;
    }
    do {
        complete = cluster_ask(&partitions->cluster, partitions->requests, nrequests) &&
                   restore(partitions, which, nrequests, &nvanished);
    } while (complete && nvanished > 0 && nattempts++ < ATTEMPTS);
    if (complete && nvanished > 0)
        complete = fail(partitions, "%s vanishes as soon as it is created", partitions->name);
    for (size_t i = 0; i < nrequests; i++) {
        const struct request *request = &partitions->requests[i];
        const size_t n = request->argc - HEAD,
                     *order = partitions->order + partitions->starts[which[i]];
        redisReply *reply = request->reply;
        const bool good = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == n;
        const bool strange = reply && reply->type != REDIS_REPLY_ERROR && !good;
        for (size_t j = 0; j < n; j++)
            answers[order[j]] = (struct answer){UNANSWERED, request->doubtful || strange};
        if (good) take_answers(partitions, request, order, answers);
        if (reply && !good && complete)
            cluster_explain(&partitions->cluster, request,
                            strange ? "the server answers something unexpected" : reply->str,
                            request->argv[1]);
        complete = complete && good;
        if (reply) freeReplyObject(reply);
    }
    return complete;
}
