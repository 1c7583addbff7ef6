/* A test harness in two files: tests register themselves, checks count.
 *
 *     #include "check.h"
 *
 *     TEST(addition_works) {
 *         CHECK_INT(1 + 1, 2);
 *     }
 *
 * check.c holds main(): it runs every test (or those whose name contains the first argument, or the
 * one with exactly this name), prints each name with ok or FAILED, ends with "N passed, N failed",
 * and exits non-zero if one failed. A failed check prints file, line and values and lets the test
 * go on; REQUIRE leaves the test. A test that checked nothing fails. One that draws numbers prints
 * SEED=n, which scripts/run-tests puts into the command that repeats it. */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEST(name)                                                                                 \
    static void test_##name(void);                                                                 \
    __attribute__((constructor)) static void register_##name(void) {                               \
        check_register(#name, test_##name);                                                        \
    }                                                                                              \
    static void test_##name(void)

#define CHECK(cond)      check_that((cond), #cond, __FILE__, __LINE__)
#define CHECK_INT(a, b)  check_int((a), (b), #a, __FILE__, __LINE__)
#define CHECK_UINT(a, b) check_uint((a), (b), #a, __FILE__, __LINE__)
#define CHECK_STR(a, b)  check_str((a), (b), #a, __FILE__, __LINE__)
/* Bytes, with a hex dump of both sides on failure. */
#define CHECK_MEM(a, alen, b, blen) check_mem((a), (alen), (b), (blen), #a, __FILE__, __LINE__)
/* lo <= a <= hi; false for NaN. */
#define CHECK_RANGE(a, lo, hi) check_range((a), (lo), (hi), #a, __FILE__, __LINE__)
/* A failure in the words of the caller, printf style. */
#define CHECK_FAIL(...) check_fail(__FILE__, __LINE__, __VA_ARGS__)

/* Leaves the test (a void function) if the condition is false. */
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!CHECK(cond)) return;                                                                  \
    } while (0)

void check_register(const char *name, void (*run)(void));
/* Runs after every test, also after one that left early; servers are stopped and examined there.
 * There may be several. The last one runs first. */
void check_after_each(void (*cleanup)(void));
/* The checks failed so far in the test that is running. */
unsigned check_failures(void);

/* Each returns whether the check passed. a is the actual value, b the expected one. */
bool check_that(bool held, const char *text, const char *file, int line);
bool check_int(int64_t a, int64_t b, const char *text, const char *file, int line);
bool check_uint(uint64_t a, uint64_t b, const char *text, const char *file, int line);
bool check_str(const char *a, const char *b, const char *text, const char *file, int line);
bool check_mem(const void *a, size_t alen, const void *b, size_t blen, const char *text,
               const char *file, int line);
bool check_range(double a, double lo, double hi, const char *text, const char *file, int line);
bool check_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
