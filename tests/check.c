#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_TESTS = 512,
    MAX_AFTER = 4,
    MAX_SHOWN =
        10, /* failures printed per test; a loop over a million items may fail a million times */
    MAX_DUMP = 64, /* bytes of each side that CHECK_MEM prints */
};

static struct {
    const char *name;
    void (*run)(void);
} tests[MAX_TESTS];
static unsigned ntests;
static void (*after_each[MAX_AFTER])(void);
static unsigned nafter;

/* Of the test that is running. */
static unsigned nchecks, nfailures;

void check_register(const char *name, void (*run)(void)) {
    if (ntests == MAX_TESTS) __builtin_trap();
    tests[ntests].name = name;
    tests[ntests++].run = run;
}

void check_after_each(void (*cleanup)(void)) {
    for (unsigned i = 0; i < nafter; i++)
        if (after_each[i] == cleanup) return;
    if (nafter == MAX_AFTER) __builtin_trap();
    after_each[nafter++] = cleanup;
}

unsigned check_failures(void) {
    return nfailures;
}

bool check_fail(const char *file, int line, const char *format, ...) {
    nchecks++;
    nfailures++;
    if (nfailures > MAX_SHOWN) return false;
    va_list args;
    va_start(args, format);
    printf("    %s:%d: ", file, line);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    return false;
}

static bool passed(void) {
    nchecks++;
    return true;
}

bool check_that(bool held, const char *text, const char *file, int line) {
    return held ? passed() : check_fail(file, line, "not true: %s", text);
}

bool check_int(int64_t a, int64_t b, const char *text, const char *file, int line) {
    if (a == b) return passed();
    return check_fail(file, line, "%s is %lld, expected %lld", text, (long long)a, (long long)b);
}

bool check_uint(uint64_t a, uint64_t b, const char *text, const char *file, int line) {
    if (a == b) return passed();
    return check_fail(file, line, "%s is %llu (0x%llx), expected %llu (0x%llx)", text,
                      (unsigned long long)a, (unsigned long long)a, (unsigned long long)b,
                      (unsigned long long)b);
}

bool check_str(const char *a, const char *b, const char *text, const char *file, int line) {
    if (a && b && strcmp(a, b) == 0) return passed();
    return check_fail(file, line, "%s is\n        %s\n    expected\n        %s", text,
                      a ? a : "(null)", b ? b : "(null)");
}

static const char *hex(const void *bytes, size_t len, char out[2 * MAX_DUMP + 4]) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = bytes;
    char *o = out;
    for (size_t i = 0; i < len && i < MAX_DUMP; i++) {
        *o++ = digits[p[i] >> 4];
        *o++ = digits[p[i] & 15];
    }
    strcpy(o, len > MAX_DUMP ? "..." : "");
    return out;
}

bool check_mem(const void *a, size_t alen, const void *b, size_t blen, const char *text,
               const char *file, int line) {
    if (alen == blen && (alen == 0 || memcmp(a, b, alen) == 0)) return passed();
    char ahex[2 * MAX_DUMP + 4], bhex[2 * MAX_DUMP + 4];
    return check_fail(file, line, "%s is %zu bytes\n        %s\n    expected %zu bytes\n        %s",
                      text, alen, hex(a, alen, ahex), blen, hex(b, blen, bhex));
}

bool check_range(double a, double lo, double hi, const char *text, const char *file, int line) {
    if (a >= lo && a <= hi) return passed();
    return check_fail(file, line, "%s is %.9g, expected %.9g .. %.9g", text, a, lo, hi);
}

static bool run_test(const char *name, void (*run)(void)) {
    struct timespec start, end;
    nchecks = nfailures = 0;
    /* scripts/run-tests needs this line to name the test that crashes or hangs. */
    if (getenv("TEST_ANNOUNCE")) printf("  run     %s\n", name);
    clock_gettime(CLOCK_MONOTONIC, &start);
    run();
    for (unsigned i = nafter; i-- > 0;) after_each[i]();
    if (nchecks == 0) check_fail(__FILE__, __LINE__, "%s checked nothing", name);
    clock_gettime(CLOCK_MONOTONIC, &end);

    double seconds =
        (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    if (nfailures > MAX_SHOWN) printf("    and %u more\n", nfailures - MAX_SHOWN);
    printf("  %-6s  %s (%u checks, %.2f s)\n", nfailures ? "FAILED" : "ok", name, nchecks, seconds);
    return nfailures == 0;
}

static bool is_name(const char *only) {
    for (unsigned i = 0; i < ntests; i++)
        if (strcmp(tests[i].name, only) == 0) return true;
    return false;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was printed before a crash must not be lost */
    const char *only = argc > 1 ? argv[1] : "";
    const bool exactly = is_name(only);
    unsigned npassed = 0, nfailed = 0;
    for (unsigned i = 0; i < ntests; i++) {
        if (exactly ? strcmp(tests[i].name, only) != 0 : !strstr(tests[i].name, only)) continue;
        if (run_test(tests[i].name, tests[i].run))
            npassed++;
        else
            nfailed++;
    }
    printf("%u passed, %u failed\n", npassed, nfailed);
    return nfailed != 0;
}
