#include "fixture.h"
#include "check.h"

enum { NITEMS = 5000, NROUND = 700 };

static const char binary_name[] = "\x00{\xff}\r\n \x00";
#define BINARY_NAME binary_name, sizeof(binary_name) - 1

void fixture_fill(Client *c) {
    /* Fixed seeds keep the replies exact. Only `default` has a random one, and a single item: no
     * other is ever asked for. */
    EXPECT(c, "+OK", "BF.RESERVE reserved 0.001 1000000000 SEED 4");
    EXPECT(c, "+OK", "BF.RESERVE sharded 0.0001 20000 SEED 1 SHARDSIZE 4096");
    CHECK_INT(command_batches(c, "BF.MADD", "sharded", "s", 0, NITEMS), NITEMS);
    EXPECT(c, "+OK", "BF.RESERVE growing 0.0001 10 SEED 2");
    CHECK_INT(command_batches(c, "BF.MADD", "growing", "g", 0, NITEMS), NITEMS);
    EXPECT(c, "+OK", "BF.RESERVE full 0.000001 3 NONSCALING SEED 3");
    EXPECT(c, "*5 :1 :1 :1 -ERR... -ERR...", "BF.MADD full a b c d e");
    EXPECT(c, ":1", "BF.ADD default a");
    EXPECT(c, "+OK", "BF.RESERVE %b 0.01 100 SEED 5", BINARY_NAME);
    EXPECT(c, "*3 :1 :1 :0", "BF.MADD %b x y x", BINARY_NAME);
    EXPECT(c, "*2 :1 :1",
           "BF.INSERT expiring CAPACITY 50 ERROR 0.001 EXPANSION 3 SEED 6 ITEMS a %b", "\0",
           (size_t)1);
    EXPECT(c, ":1", "EXPIRE expiring 100000");
    /* Windows of decades: what the time is makes no difference. */
    EXPECT(c, "+OK", "BF.RESERVE window 0.0001 100 WINDOW 1000000000 SLICES 32 SEED 8");
    CHECK_INT(command_batches(c, "BF.MADD", "window", "w", 0, NITEMS), NITEMS);
    EXPECT(c, "*1 :1", "BF.INSERT slides WINDOW 1000000000 SLIDING SEED 9 ITEMS a");
    EXPECT(c, "+OK", "SELECT 5");
    EXPECT(c, "*2 :1 :1", "BF.INSERT elsewhere SEED 7 ITEMS a b");
    EXPECT(c, "+OK", "SELECT 0");
    EXPECT(c, "+OK", "SET unrelated value");
}

void fixture_add(Client *c, int round) {
    long long first = NITEMS + (long long)round * NROUND;
    CHECK_INT(command_batches(c, "BF.MADD", "growing", "g", first, NROUND), NROUND);
    CHECK_INT(command_batches(c, "BF.MADD", "sharded", "s", first, NROUND), NROUND);
    CHECK_INT(command_batches(c, "BF.MADD", "sharded", "s", 0, NITEMS), 0);
    CHECK_INT(command_batches(c, "BF.MADD", "window", "w", first, NROUND), NROUND);
    EXPECT(c, ":0", "BF.ADD slides a");
    EXPECT(c, ":1", "BF.ADD reserved r%d", round);
    EXPECT(c, ":0", "BF.ADD default a");
}

void fixture_check(Client *c, int rounds) {
    long long n = NITEMS + (long long)rounds * NROUND;
    CHECK_INT(command_batches(c, "BF.MEXISTS", "sharded", "s", 0, n), n);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "growing", "g", 0, n), n);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "sharded", "other", 0, 1000), 0);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "growing", "other", 0, 1000), 0);
    CHECK_INT(command_batches(c, "BF.MEXISTS", "window", "w", 0, n), n);
    CHECK_INT(command_int(c, "BF.CARD window"), n);
    EXPECT(c, ":1", "BF.EXISTS slides a");
    CHECK_INT(command_int(c, "BF.CARD sharded"), n);
    CHECK_INT(command_int(c, "BF.CARD growing"), n);
    CHECK_INT(command_int(c, "BF.CARD reserved"), rounds);
    for (int i = 0; i < rounds; i++) EXPECT(c, ":1", "BF.EXISTS reserved r%d", i);
    EXPECT(c, "*5 :1 :1 :1 :0 :0", "BF.MEXISTS full a b c d e");
    EXPECT(c, "*10 +Capacity :3 ... +Number of items inserted :3 +Expansion rate _",
           "BF.INFO full");
    EXPECT(c, ":1", "BF.EXISTS default a");
    EXPECT(c, "*3 :1 :1 :0", "BF.MEXISTS %b x y z", BINARY_NAME);
    EXPECT(c, "*2 :1 :1", "BF.MEXISTS expiring a %b", "\0", (size_t)1);
    EXPECT(c, "*1 :3", "BF.INFO expiring EXPANSION");
    EXPECT(c, "+OK", "SELECT 5");
    EXPECT(c, "*3 :1 :1 :0", "BF.MEXISTS elsewhere a b c");
    EXPECT(c, "+OK", "SELECT 0");
}
