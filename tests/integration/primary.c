#include "primary.h"

#include "check.h"
#include "client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

static bool send_all(int fd, const char *bytes, size_t nbytes) {
    for (ssize_t n; nbytes > 0; bytes += n, nbytes -= (size_t)n)
        if ((n = send(fd, bytes, nbytes, MSG_NOSIGNAL)) <= 0) return false;
    return true;
}

static bool say(int fd, const char *text) {
    return send_all(fd, text, strlen(text));
}

static bool readable(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, PATIENCE_MS) == 1;
}

/* An RDB file of version 9, without keys and without a checksum: all of it, or the beginning. */
static bool send_snapshot(int fd, size_t nbytes) {
    static const char file[18] = "REDIS0009\xff\0\0\0\0\0\0\0";
    return say(fd, "+FULLRESYNC 0123456789012345678901234567890123456789 0\r\n$18\r\n") &&
           send_all(fd, file, nbytes);
}

/* Answers what a replica says, until it has asked for the data. */
static bool shake_hands(int fd, size_t nbytes) {
    redisReader *reader = redisReaderCreate();
    bool asked = false, ok = true;
    while (ok && !asked) {
        char bytes[4096];
        const ssize_t n = readable(fd) ? recv(fd, bytes, sizeof bytes, 0) : 0;
        void *reply = NULL;
        ok = n > 0 && redisReaderFeed(reader, bytes, (size_t)n) == REDIS_OK;
        while (ok && !asked && redisReaderGetReply(reader, &reply) == REDIS_OK && reply) {
            const redisReply *words = reply;
            const char *name = words->elements > 0 ? words->element[0]->str : "";
            asked = strcasecmp(name, "PSYNC") == 0;
            ok = asked ? send_snapshot(fd, nbytes)
                       : say(fd, strcasecmp(name, "PING") == 0 ? "+PONG\r\n" : "+OK\r\n");
            freeReplyObject(reply);
            reply = NULL;
        }
    }
    redisReaderFree(reader);
    return ok;
}

/* Makes the server connect to a socket of ours, which is returned; -1 if that fails. */
static int attract(Server *replica) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (CHECK(bind(listener, (struct sockaddr *)&address, length) == 0 &&
              listen(listener, 8) == 0 &&
              getsockname(listener, (struct sockaddr *)&address, &length) == 0) &&
        EXPECT(replica->client, "+OK", "REPLICAOF 127.0.0.1 %d", ntohs(address.sin_port)) &&
        CHECK(readable(listener)))
        return listener;
    close(listener);
    return -1;
}

Primary primary_start(Server *replica) {
    Primary primary = {.replica = replica, .fd = -1};
    const int listener = attract(replica);
    if (listener < 0) return primary;
    primary.fd = accept(listener, NULL, NULL);
    close(listener);
    CHECK(primary.fd >= 0 && shake_hands(primary.fd, 18));
    server_wait_info(replica, "master_link_status", "up");
    return primary;
}

void primary_that_breaks_off(Server *replica) {
    const int listener = attract(replica);
    if (listener < 0) return;
    const int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0 && shake_hands(fd, 9));
    close(fd);
    CHECK(readable(listener));
    close(listener);
    EXPECT(replica->client, "+OK", "REPLICAOF NO ONE");
}

void primary_send(Primary *primary, const char *format, ...) {
    char *command;
    va_list args;
    va_start(args, format);
    const int nbytes = redisvFormatCommand(&command, format, args);
    va_end(args);
    if (!CHECK(nbytes > 0)) return;
    CHECK(send_all(primary->fd, command, (size_t)nbytes));
    redisFreeCommand(command);
    primary->nbytes += (size_t)nbytes;
    for (int i = 0; i < PATIENCE_MS; i++) {
        if (server_info(primary->replica, "slave_repl_offset") >= (long long)primary->nbytes)
            return;
        pause_ms(1);
    }
    CHECK_FAIL("the replica does not follow");
}

void primary_stop(Primary *primary) {
    EXPECT(primary->replica->client, "+OK", "REPLICAOF NO ONE");
    if (primary->fd >= 0) close(primary->fd);
    primary->fd = -1;
}
