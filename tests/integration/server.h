/* Servers for the integration tests: real processes on free ports, each in a directory of its own.
 *
 * The server is $SERVER or redis-server, the module $MODULE or ./shardbloom.so. Whatever a test
 * starts is stopped, examined and removed after it, also when the test leaves early; when the test
 * itself dies, the kernel kills its servers. A server that crashed, or left a sanitizer's report,
 * fails the test that started it. With VALGRIND=1 servers run under valgrind's memcheck, and its
 * errors fail the test too. */
#ifndef SERVER_H
#define SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct Client Client;

typedef struct Server {
    int port;
    int port_claim;      /* keeps the port from other tests while the server is down */
    pid_t pid;           /* 0 while it is down */
    char dir[256];       /* data, log and configuration */
    Client *client;      /* the usual connection (RESP2, db 0); survives restarts */
    char *config;        /* lines of the test, after those of the harness */
    char *module_args;   /* after the module's path, or NULL for a server without the module */
    uint64_t clock_ms;   /* what the time is for filters with a window; 0: the system's */
    struct Server *next; /* all servers of the running test */
} Server;

typedef enum {
    STOP_NOSAVE, /* SHUTDOWN NOSAVE FORCE: also while a first AOF is being written */
    STOP_SAVE,   /* SHUTDOWN SAVE */
    STOP_KILL,   /* kill -9, if nobody has done so yet */
} Stop;

/* Starts a server with the module. config: lines of redis.conf, or NULL. The harness's own lines
 * come first: no RDB save points, no AOF, no keep-alive pings to replicas (offsets stand still),
 * DEBUG allowed, hz 100 (the end of a fork is seen within 10 ms). Never NULL; if the server does
 * not come up the test has failed and every command on it answers an error. */
Server *server_start(const char *config);
/* The same with arguments to the module ("" for none; NULL: without the module). */
Server *server_start_with(const char *module_args, const char *config);
/* Starts a server that must refuse to start. Checks that it does, and that its log contains the
 * word. */
#define SERVER_REFUSES(module_args, config, word)                                                  \
    server_refuses(module_args, config, word, __FILE__, __LINE__)
bool server_refuses(const char *module_args, const char *config, const char *word, const char *file,
                    int line);

/* Sets the time for filters with a window, in milliseconds since 1970, on every server that the
 * test starts from now on. Their clocks stand still. */
void server_clocks_begin_at(uint64_t ms);
/* Sets the clock of such a server, which may be down. */
void server_set_clock(Server *s, uint64_t ms);

/* Stops the server and checks that it ended as requested. The directory stays. */
void server_stop(Server *s, Stop how);
/* Starts a stopped server again: same port, same directory. */
void server_up(Server *s);
/* The same for one that may refuse: false if it ended by itself. A crash fails the test all the
 * same. */
bool server_try_up(Server *s);
void server_restart(Server *s, Stop how);
/* The same while its replica is stopped. The replica then finds the new server at once, instead of
 * at its next attempt a second later. */
void server_restart_unseen(Server *s, Stop how, Server *replica);
/* Takes effect at the next start. NULL leaves that part as it is. */
void server_reconfigure(Server *s, const char *module_args, const char *config);

/* Whether the log has a line with this text. The log spans restarts. */
bool server_logged(Server *s, const char *text);
#define CHECK_LOGGED(s, text) check_logged(s, text, __FILE__, __LINE__)
bool check_logged(Server *s, const char *text, const char *file, int line);
/* Prints the end of the log (and of stderr), for the reader of a failed test. */
void server_print_log(Server *s);

/* The content of a file below the server's directory; len may be NULL. To be freed; NULL if there
 * is no such file. */
char *server_read_file(Server *s, const char *path, size_t *len);
/* Bytes in all files of the append-only directory. With appendfsync always nothing is pending after
 * a reply. */
size_t server_aof_nbytes(Server *s);

/* Makes `replica` follow `primary`, waits until the link is up and both are at the same offset. */
void server_follow(Server *replica, Server *primary);
/* Waits until the replica has everything the primary has written. */
void server_wait_for_replica(Server *primary, Server *replica);

/* A number from INFO, or -1. */
long long server_info(Server *s, const char *field);
/* Waits until the INFO field starts with this value, at most a minute; the test fails if it never
 * does. */
bool server_wait_info(Server *s, const char *field, const char *value);

/* Waits until the module's timer has run some more times: the sweeper has come by, also where it
 * may do nothing. */
bool server_wait_runs(Server *s);

/* The command-line client that came with the server under test, or else redis-cli. */
const char *server_cli(void);

void pause_ms(unsigned ms);

#endif
