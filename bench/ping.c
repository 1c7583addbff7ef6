/* ping.c: how long a second client has to wait while a server is busy with something else.
 *
 * Sends a PING, waits for the answer, pauses, and so on until it is told to stop. Between two
 * answers the server can have been blocked by anything: a command of another client, a timer, a
 * fork. The longest wait is therefore what users of a server feel, and the only clock that sees
 * what no command is charged for.
 *
 * Lines on standard input steer it: "mark" prints what was seen since the last mark as one line of
 * JSON and begins anew, the end of the input ends it. A wait that begins between two PINGs is
 * measured too short by the pause at most. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    PAUSE_NS = 100000,    /* between an answer and the next PING */
    STALL_SECONDS = 300,  /* a server silent for this long has failed */
    FIRST_WAITS = 1 << 16 /* the list of waits doubles when it is full */
};

struct waits {
    uint32_t *ns100; /* each wait, in units of 100 ns: 7 minutes fit */
    size_t count, capacity;
};

static void die(const char *what) {
    fprintf(stderr, "ping: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int connect_to(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

/* One PING and its answer; the nanoseconds between them. */
static uint64_t ping(int fd) {
    static const char request[] = "PING\r\n", answer[] = "+PONG\r\n";
    char got[sizeof(answer)];
    size_t ngot = 0;
    uint64_t begin = now_ns();
    if (write(fd, request, sizeof(request) - 1) != sizeof(request) - 1) die("write");
    while (ngot < sizeof(answer) - 1) {
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        if (poll(&polled, 1, STALL_SECONDS * 1000) != 1) die("no answer");
        ssize_t n = read(fd, got + ngot, sizeof(answer) - 1 - ngot);
        if (n <= 0) die("read");
        ngot += (size_t)n;
    }
    uint64_t took = now_ns() - begin;
    if (memcmp(got, answer, sizeof(answer) - 1)) {
        errno = EPROTO;
        die("not a PONG");
    }
    return took;
}

static void remember(struct waits *waits, uint64_t ns) {
    if (waits->count == waits->capacity) {
        waits->capacity = waits->capacity ? 2 * waits->capacity : FIRST_WAITS;
        waits->ns100 = realloc(waits->ns100, waits->capacity * sizeof(*waits->ns100));
        if (!waits->ns100) die("out of memory");
    }
    waits->ns100[waits->count++] = (uint32_t)(ns / 100);
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Prints the waits since the last mark, and forgets them. */
static void mark(struct waits *waits) {
    static const double shares[] = {50, 90, 99, 99.9, 99.99, 100};
    qsort(waits->ns100, waits->count, sizeof(*waits->ns100), by_value);
    printf("{\"count\": %zu, \"percentiles_us\": {", waits->count);
    for (size_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
        size_t at = waits->count ? (size_t)(shares[i] / 100 * (double)(waits->count - 1)) : 0;
        printf("%s\"%g\": %.1f", i ? ", " : "", shares[i],
               waits->count ? (double)waits->ns100[at] / 10 : 0.0);
    }
    printf("}}\n");
    fflush(stdout);
    waits->count = 0;
}

/* Pauses; true if standard input has something to say. */
static bool asked(void) {
    struct pollfd polled = {.fd = STDIN_FILENO, .events = POLLIN};
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    return ppoll(&polled, 1, &pause, NULL) == 1;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: ping PORT\n");
        return 2;
    }
    struct waits waits = {0};
    int fd = connect_to(atoi(argv[1]));
    for (;;) {
        remember(&waits, ping(fd));
        if (!asked()) continue;
        char words[64];
        ssize_t n = read(STDIN_FILENO, words, sizeof(words));
        if (n <= 0) return 0;
        for (ssize_t i = 0; i < n; i++)
            if (words[i] == '\n') mark(&waits);
    }
}
