/* The clock of filters with a window, for tests: loaded before the server (LD_PRELOAD), it answers
 * with the number of milliseconds that the file named by TEST_CLOCK holds, 8 bytes in the machine's
 * order. A test writes the file, and time has passed. Without the variable, the time is that of the
 * system. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) uint64_t shardbloom_test_clock_ms(void);

uint64_t shardbloom_test_clock_ms(void) {
    static int file = -1;
    const char *path = getenv("TEST_CLOCK");
    uint64_t ms;
    if (file < 0 && path) file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && pread(file, &ms, sizeof ms, 0) == sizeof ms) return ms;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
