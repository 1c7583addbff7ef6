#include "server.h"
#include "check.h"
#include "client.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    STEP_MS = 20,
    START_MS = 60000, /* a server under a sanitizer, loading its data on a busy machine */
    STOP_MS = 60000,
    INFO_MS = 60000,
    CHECKER_MS = 500, /* for the server's own check of a file that it has refused */
    TAIL_BYTES = 3000,
    /* These, and those of the cluster bus (10000 above), lie below the range from which the kernel
     * takes ports for connections: none is lost while its server is down. */
    FIRST_PORT = 10000,
    NPORTS = 10000,
};

/* Of the running test. The signal handler walks it, so servers are added at the head, complete. */
static Server *servers;

/* For the servers that it starts; 0: the system's clock. */
static uint64_t begin_at_ms;

void pause_ms(unsigned ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* Of a wait for something that takes a moment: short steps first, STEP_MS in the long run. Returns
 * the length of the step. */
static unsigned wait_step(unsigned waited_ms) {
    const unsigned ms = 1 + waited_ms / 4 < STEP_MS ? 1 + waited_ms / 4 : STEP_MS;
    pause_ms(ms);
    return ms;
}

/* ---- files ---- */

static const char *path_in(Server *s, const char *name) {
    static char path[1024];
    snprintf(path, sizeof(path), "%s/%s", s->dir, name);
    return path;
}

char *server_read_file(Server *s, const char *path, size_t *len) {
    FILE *f = fopen(path_in(s, path), "rb");
    if (!f) return NULL;
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    char block[65536];
    for (size_t got; (got = fread(block, 1, sizeof(block), f)) > 0;) fwrite(block, 1, got, out);
    fclose(out);
    fclose(f);
    if (len) *len = n;
    return text;
}

size_t server_aof_nbytes(Server *s) {
    char dirname[512];
    snprintf(dirname, sizeof(dirname), "%s/appendonlydir", s->dir);
    DIR *dir = opendir(dirname);
    size_t nbytes = 0;
    if (!dir) return 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
            nbytes += (size_t)st.st_size;
    }
    closedir(dir);
    return nbytes;
}

static bool file_contains(Server *s, const char *name, const char *text) {
    char *content = server_read_file(s, name, NULL);
    bool found = content && strstr(content, text);
    free(content);
    return found;
}

bool server_logged(Server *s, const char *text) {
    return file_contains(s, "log", text);
}

bool check_logged(Server *s, const char *text, const char *file, int line) {
    if (server_logged(s, text)) return check_that(true, text, file, line);
    check_fail(file, line, "not in the log: %s", text);
    server_print_log(s);
    return false;
}

static void print_tail(Server *s, const char *name) {
    size_t len;
    char *content = server_read_file(s, name, &len);
    if (content && len) {
        const char *tail = len > TAIL_BYTES ? content + len - TAIL_BYTES : content;
        printf("    ---- end of the server's %s\n%s    ----\n", name, tail);
    }
    free(content);
}

/* The whole report of a crash or a sanitizer, if there is one: the tail alone may miss its
 * beginning. */
static bool print_report(Server *s, const char *name, const char *mark) {
    char *content = server_read_file(s, name, NULL);
    const char *report = content ? strstr(content, mark) : NULL;
    if (report)
        printf("    ---- the server's %s, from \"%s\"\n%.4000s\n    ----\n", name, mark, report);
    free(content);
    return report != NULL;
}

void server_print_log(Server *s) {
    print_tail(s, "log");
    print_tail(s, "stderr");
}

static void check_no_crash(Server *s) {
    bool bug = print_report(s, "log", "BUG REPORT START");
    bool sanitizer = print_report(s, "stderr", "ERROR: AddressSanitizer") ||
                     print_report(s, "stderr", "runtime error:");
    bool memcheck =
        print_report(s, "valgrind", "Invalid ") || print_report(s, "valgrind", "ninitialised");
    if (bug || sanitizer || memcheck) CHECK_FAIL("the server on port %d crashed", s->port);
}

/* ---- clocks: build/clock.so, loaded before the server, reads the time from a file ---- */

void server_clocks_begin_at(uint64_t ms) {
    begin_at_ms = ms;
}

void server_set_clock(Server *s, uint64_t ms) {
    const int fd = open(path_in(s, "clock"), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    CHECK(s->clock_ms != 0 && pwrite(fd, &ms, sizeof ms, 0) == sizeof ms);
    close(fd);
    s->clock_ms = ms;
}

/* ---- processes ---- */

const char *server_cli(void) {
    static char path[1000];
    const char *server = getenv("SERVER"), *kind = server ? strrchr(server, '/') : NULL;
    if (!kind || !strstr(kind, "-server")) return "redis-cli";
    snprintf(path, sizeof(path), "%.*s-cli", (int)(strstr(kind, "-server") - server), server);
    return access(path, X_OK) == 0 ? path : "redis-cli";
}

static bool port_is_free(int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    bool is_free = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
    close(fd);
    return is_free;
}

/* Test files run side by side, and a server keeps its port while it is down. A port is claimed by a
 * name that the kernel forgets when the process ends, a socket's; tests/clients/server.py does the
 * same. */
static int claim_port(int port) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int len =
        snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "shardbloom-port-%d", port);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const socklen_t nbytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    if (bind(fd, (struct sockaddr *)&name, nbytes) == 0) return fd;
    close(fd);
    return -1;
}

static void take_port(Server *s) {
    static int last;
    if (!last) last = (int)(((unsigned)getpid() * 7919u) % NPORTS);
    if (s->port_claim > 0) close(s->port_claim);
    s->port = s->port_claim = 0;
    for (int i = 0; i < NPORTS; i++) {
        last = (last + 1) % NPORTS;
        const int port = FIRST_PORT + last, claim = claim_port(port);
        if (claim < 0) continue;
        if (port_is_free(port) && port_is_free(port + 10000)) {
            s->port = port;
            s->port_claim = claim;
            return;
        }
        close(claim);
    }
}

static void write_config(Server *s) {
    FILE *f = fopen(path_in(s, "redis.conf"), "w");
    if (!f) return;
    const char *module = getenv("MODULE");
    char *absolute = realpath(module && *module ? module : "./shardbloom.so", NULL);
    fprintf(f,
            "bind 127.0.0.1\nport %d\ndir %s\nlogfile %s/log\nsave \"\"\nappendonly no\n"
            "enable-debug-command yes\nhz 100\nrepl-diskless-sync-delay 0\nrepl-timeout 7200\n"
            "repl-ping-replica-period 3600\ncrash-memcheck-enabled no\n"
            "shutdown-timeout 0\n",
            s->port, s->dir, s->dir);
    if (s->config) fprintf(f, "%s\n", s->config);
    if (s->module_args)
        fprintf(f, "loadmodule %s %s\n", absolute ? absolute : "shardbloom.so-is-missing",
                s->module_args);
    fclose(f);
    free(absolute);
}

/* The sanitizer's runtime must be the first one. */
static void preload_libraries(Server *s) {
    const char *sanitizer = getenv("SERVER_PRELOAD");
    char libraries[2048], *clock = s->clock_ms ? realpath("build/clock.so", NULL) : NULL;
    snprintf(libraries, sizeof libraries, "%s %s", sanitizer ? sanitizer : "", clock ? clock : "");
    if (strlen(libraries) > 1) setenv("LD_PRELOAD", libraries, 1);
    if (s->clock_ms) setenv("TEST_CLOCK", path_in(s, "clock"), 1);
    free(clock);
}

static void exec_server(Server *s) {
    const char *server = getenv("SERVER"), *sanitizer = getenv("SERVER_PRELOAD");
    if (!server || !*server) server = "redis-server";
    int out = open(path_in(s, "stderr"), O_WRONLY | O_CREAT | O_APPEND, 0666);
    dup2(out, 1);
    dup2(out, 2);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    preload_libraries(s);
    if (sanitizer && *sanitizer) {
        /* Leaks: a server frees little at exit. Null: it asks for absurd sizes with "try" and
         * copes. */
        setenv("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1", 1);
        setenv("UBSAN_OPTIONS", "print_stacktrace=1", 1);
    }
    const char *valgrind = getenv("VALGRIND");
    if (valgrind && *valgrind) {
        char log[512];
        snprintf(log, sizeof(log), "--log-file=%s/valgrind", s->dir);
        execlp("valgrind", "valgrind", "--quiet", "--soname-synonyms=somalloc=*jemalloc*",
               "--suppressions=tests/integration/valgrind.supp", log, server,
               path_in(s, "redis.conf"), (char *)NULL);
    }
    execlp(server, server, path_in(s, "redis.conf"), (char *)NULL);
    dprintf(2, "cannot start %s: %s\n", server, strerror(errno));
    _exit(127);
}

static void spawn(Server *s) {
    write_config(s);
    pid_t parent = getpid();
    s->pid = fork();
    if (s->pid != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it died before prctl */
    exec_server(s);
}

/* Whether the process has ended; then its status. */
static bool has_ended(Server *s, int *status) {
    if (!s->pid) return true;
    if (waitpid(s->pid, status, WNOHANG) != s->pid) return false;
    s->pid = 0;
    return true;
}

static bool wait_for_end(Server *s, int *status, unsigned ms) {
    for (unsigned waited = 0; waited <= ms; waited += wait_step(waited))
        if (has_ended(s, status)) return true;
    return false;
}

static void kill_now(Server *s) {
    int status;
    if (!s->pid) return;
    kill(s->pid, SIGKILL);
    waitpid(s->pid, &status, 0);
    s->pid = 0;
}

static void kill_and_remove(Server *s) {
    if (s->pid > 0) kill(s->pid, SIGKILL);
    pid_t rm = fork();
    if (rm == 0) {
        execl("/bin/rm", "rm", "-rf", s->dir, (char *)NULL);
        _exit(127);
    }
    waitpid(rm, NULL, 0);
}

static void on_signal(int sig) {
    for (Server *s = servers; s; s = s->next) kill_and_remove(s);
    _exit(128 + sig);
}

static void after_test(void);

static void install_cleanup(void) {
    static bool installed;
    if (installed) return;
    installed = true;
    check_after_each(after_test);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, on_signal);
    signal(SIGPIPE, SIG_IGN);
}

static Server *server_new(const char *module_args, const char *config) {
    install_cleanup();
    Server *s = calloc(1, sizeof(*s));
    const char *tmp = getenv("TMPDIR");
    snprintf(s->dir, sizeof(s->dir), "%s/shardbloom-server-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(s->dir)) {
        perror(s->dir);
        exit(1);
    }
    s->config = config ? strdup(config) : NULL;
    s->module_args = module_args ? strdup(module_args) : NULL;
    s->clock_ms = begin_at_ms;
    if (begin_at_ms) server_set_clock(s, begin_at_ms);
    s->next = servers;
    servers = s;
    s->client = client_new(s);
    return s;
}

/* Whether it answers PONG; a server that is still loading answers an error, and one that hangs
 * answers nothing. */
static bool answers(Server *s, int ms) {
    if (!client_connect(s->client)) return false;
    redisSetTimeout(s->client->redis, (struct timeval){ms / 1000, ms % 1000 * 1000});
    redisReply *r = redisCommand(s->client->redis, "PING");
    redisSetTimeout(s->client->redis, (struct timeval){0});
    bool pong = r && r->type == REDIS_REPLY_STATUS && strcmp(r->str, "PONG") == 0;
    if (r) freeReplyObject(r);
    if (!pong) client_disconnect(s->client);
    return pong;
}

static bool try_up(Server *s) {
    spawn(s);
    for (unsigned waited = 0; waited <= START_MS; waited += wait_step(waited)) {
        int status;
        if (has_ended(s, &status)) return false;
        if (answers(s, 2000)) return true;
    }
    return false;
}

/* A child that writes a file outlives a server that was killed, and has its port until it
 * notices. */
static bool port_was_taken(Server *s) {
    return server_logged(s, "ddress already in use");
}

void server_up(Server *s) {
    bool up = try_up(s);
    for (unsigned i = 0; !up && !s->pid && i < START_MS / STEP_MS && port_was_taken(s); i++) {
        pause_ms(STEP_MS);
        up = try_up(s);
    }
    if (up) return;
    CHECK_FAIL("the server on port %d does not come up", s->port);
    server_print_log(s);
    kill_now(s);
}

/* Two things on a bad file are the server's own and no matter of the module: it panics on a key
 * that comes twice, and after it has refused a file its built-in checker may never come to the end
 * of a module's value. */
static bool refused_already(Server *s) {
    return server_logged(s, "Internal error in RDB reading") ||
           server_logged(s, "Short read or OOM loading DB");
}

static void forget_panic(Server *s) {
    if (server_logged(s, "Duplicated key found in RDB file"))
        close(open(path_in(s, "log"), O_WRONLY | O_TRUNC));
}

bool server_try_up(Server *s) {
    int status = 0;
    unsigned nwaited = 0;                               /* since it has refused */
    close(open(path_in(s, "log"), O_WRONLY | O_TRUNC)); /* what it says now counts */
    spawn(s);
    for (unsigned waited = 0; waited <= START_MS; waited += STEP_MS) {
        if (has_ended(s, &status)) {
            if (port_was_taken(s)) {
                close(open(path_in(s, "log"), O_WRONLY | O_TRUNC));
                pause_ms(STEP_MS);
                spawn(s);
                continue;
            }
            const bool panic = server_logged(s, "Duplicated key found in RDB file");
            if (!WIFEXITED(status) && !panic) CHECK_FAIL("ended by signal %d", WTERMSIG(status));
            forget_panic(s);
            check_no_crash(s);
            return false;
        }
        const bool refused = refused_already(s);
        if (refused && (nwaited += STEP_MS) > CHECKER_MS) {
            kill_now(s);
            check_no_crash(s);
            return false;
        }
        if (!refused && answers(s, 300)) return true;
        pause_ms(STEP_MS);
    }
    CHECK_FAIL("the server on port %d neither comes up nor ends", s->port);
    kill_now(s);
    return false;
}

Server *server_start_with(const char *module_args, const char *config) {
    Server *s = server_new(module_args, config);
    /* Somebody else may take the port between the look and the start. */
    for (int attempt = 0; attempt < 5; attempt++) {
        take_port(s);
        if (try_up(s)) return s;
        kill_now(s);
        if (!port_was_taken(s)) break;
    }
    CHECK_FAIL("the server does not start");
    server_print_log(s);
    return s;
}

Server *server_start(const char *config) {
    return server_start_with("", config);
}

bool server_refuses(const char *module_args, const char *config, const char *word, const char *file,
                    int line) {
    Server *s = server_new(module_args, config);
    take_port(s);
    bool up = try_up(s), said = server_logged(s, word);
    client_disconnect(s->client);
    kill_now(s);
    if (!up && said) return check_that(true, word, file, line);
    if (up) return check_fail(file, line, "the server started with: %s", module_args);
    check_fail(file, line, "refused \"%s\", but the log does not say: %s", module_args, word);
    server_print_log(s);
    return false;
}

static void report_early_end(Server *s, int status) {
    if (WIFSIGNALED(status))
        CHECK_FAIL("the server on port %d was ended by signal %d", s->port, WTERMSIG(status));
    else
        CHECK_FAIL("the server on port %d ended with status %d", s->port, WEXITSTATUS(status));
    server_print_log(s);
}

void server_stop(Server *s, Stop how) {
    int status = 0;
    if (!s->pid) return;
    if (has_ended(s, &status)) {
        const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (how != STOP_KILL || !killed) report_early_end(s, status);
    } else if (how == STOP_KILL) {
        kill_now(s);
    } else {
        const char *shutdown = how == STOP_SAVE ? "SHUTDOWN SAVE" : "SHUTDOWN NOSAVE FORCE";
        redisReply *r = s->client->redis ? redisCommand(s->client->redis, shutdown) : NULL;
        if (r) { /* an answer means that it stays */
            CHECK_FAIL("SHUTDOWN answered %s", r->str ? r->str : "something");
            freeReplyObject(r);
            kill_now(s);
        } else if (!wait_for_end(s, &status, STOP_MS)) {
            CHECK_FAIL("the server on port %d does not stop", s->port);
            kill_now(s);
        } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            report_early_end(s, status);
        }
    }
    client_disconnect(s->client);
    check_no_crash(s);
}

void server_restart(Server *s, Stop how) {
    server_stop(s, how);
    server_up(s);
}

void server_restart_unseen(Server *s, Stop how, Server *replica) {
    kill(replica->pid, SIGSTOP);
    server_restart(s, how);
    kill(replica->pid, SIGCONT);
}

void server_reconfigure(Server *s, const char *module_args, const char *config) {
    if (module_args) {
        free(s->module_args);
        s->module_args = strdup(module_args);
    }
    if (config) {
        free(s->config);
        s->config = strdup(config);
    }
}

void client_free_all(void);
static void after_test(void) {
    for (Server *s = servers; s; s = s->next) server_stop(s, STOP_NOSAVE);
    client_free_all();
    begin_at_ms = 0;
    while (servers) {
        Server *s = servers;
        kill_and_remove(s);
        servers = s->next;
        free(s->config);
        free(s->module_args);
        if (s->port_claim > 0) close(s->port_claim);
        free(s);
    }
}

/* ---- INFO and replication ---- */

/* The value of a field of INFO in line (up to its end), or NULL. */
static const char *info_field(redisReply *info, const char *field) {
    size_t len = strlen(field);
    if (info->type != REDIS_REPLY_STRING) return NULL;
    for (const char *line = info->str; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, field, len) == 0 && line[len] == ':') return line + len + 1;
    }
    return NULL;
}

long long server_info(Server *s, const char *field) {
    const char *value = info_field(command(s->client, "INFO everything"), field);
    return value ? atoll(value) : -1;
}

bool server_wait_info(Server *s, const char *field, const char *value) {
    for (unsigned waited = 0; waited <= INFO_MS; waited += wait_step(waited)) {
        const char *now = info_field(command(s->client, "INFO everything"), field);
        if (now && strncmp(now, value, strlen(value)) == 0) return true;
        if (!s->client->redis) break;
    }
    CHECK_FAIL("INFO %s does not become %s", field, value);
    server_print_log(s);
    return false;
}

bool server_wait_runs(Server *s) {
    const long long last = server_info(s, "bf_timer_runs") + 5;
    for (unsigned waited = 0; waited <= INFO_MS; waited += wait_step(waited))
        if (server_info(s, "bf_timer_runs") >= last) return true;
    return CHECK_FAIL("the module's timer does not run");
}

void server_wait_for_replica(Server *primary, Server *replica) {
    for (unsigned waited = 0; waited <= INFO_MS; waited += wait_step(waited)) {
        long long there = server_info(replica, "slave_repl_offset");
        if (there >= 0 && there == server_info(primary, "master_repl_offset")) return;
        if (!primary->client->redis || !replica->client->redis) break;
    }
    CHECK_FAIL("the replica does not reach the primary's offset");
    server_print_log(replica);
}

void server_follow(Server *replica, Server *primary) {
    EXPECT(replica->client, "+OK...", "REPLICAOF 127.0.0.1 %d", primary->port);
    if (server_wait_info(replica, "master_link_status", "up"))
        server_wait_for_replica(primary, replica);
}
