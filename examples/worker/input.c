#include "input.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connection.h"

#define READ_BYTES (1u << 20)

enum line input_take(struct input *input, const char **line, size_t *length) {
    char *start = input->buffer + input->taken;
    const size_t nleft = input->nbuffer - input->taken;
    /* What was searched once is not searched again, so that a line that comes in many pieces takes
     * linear time. */
    const char *newline =
        memchr(input->buffer + input->scanned, '\n', input->nbuffer - input->scanned);
    if (!newline) {
        input->scanned = input->nbuffer;
        if (nleft > input->nlongest + 1) input->skipping = true;
        if (input->skipping && !input->ended) input->taken = input->nbuffer;
        if (!input->ended || (nleft == 0 && !input->skipping)) return LINE_NONE;
    }
    size_t n = newline ? (size_t)(newline - start) : nleft;
    input->taken += n + (newline != NULL);
    input->scanned = input->taken;
    input->number++;
    if (n > 0 && start[n - 1] == '\r') n--;
    *line = start;
    *length = n;
    const bool too_long = input->skipping || n > input->nlongest;
    input->skipping = false;
    return too_long ? LINE_TOO_LONG : n > 0 ? LINE_TAKEN : LINE_EMPTY;
}

/* False if a signal came, now or before. The signals are let through while it waits and at no other
 * moment, so that none can slip in between the look at the flag and the wait. */
static bool wait_for_input(void) {
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, &before);
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!connection_stop && ppoll(&input, 1, NULL, &before) < 0 && errno == EINTR)
        ;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return !connection_stop;
}

static ssize_t read_some(struct input *input, size_t room) {
    const ssize_t n = read(STDIN_FILENO, input->buffer + input->nbuffer, room);
    if (n > 0) input->nbuffer += (size_t)n;
    input->ended = n == 0;
    return n;
}

static bool is_ready(void) {
    return poll(&(struct pollfd){.fd = STDIN_FILENO, .events = POLLIN}, 1, 0) > 0;
}

bool input_read(struct input *input) {
    if (input->taken > 0) {
        input->nbuffer -= input->taken;
        memmove(input->buffer, input->buffer + input->taken, input->nbuffer);
        input->scanned -= input->taken;
        input->taken = 0;
    }
    if (input->room - input->nbuffer < READ_BYTES) {
        const size_t room = 2 * input->room + READ_BYTES;
        char *buffer = realloc(input->buffer, room);
        if (!buffer) return false;
        input->buffer = buffer;
        input->room = room;
    }
    ssize_t n;
    do {
        errno = 0;
        if (!wait_for_input()) return false;
        n = read_some(input, READ_BYTES);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n < 0) return false;
    /* A pipe gives 64 kB at a time: what is there already need not wait for the next batch. An
     * error will come again. */
    for (size_t nread = (size_t)n; n > 0 && nread < READ_BYTES && is_ready(); nread += (size_t)n) {
        n = read_some(input, READ_BYTES - nread);
        if (n < 0) break;
    }
    return true;
}
