# make bench and make bench-core (bench/README.md). Included by the Makefile at the top level, whose flags it uses.

BENCH := build/bench
BENCH_FLAGS = $(filter-out -MMD -MP,$(FLAGS)) -I. $(RELEASE_FLAGS) $(CFLAGS)

.PHONY: bench bench-core

bench: ./shardbloom.so $(BENCH)/load $(BENCH)/noop.so
	@CFLAGS='$(BENCH_FLAGS)' bench/run.py --module ./shardbloom.so --load $(BENCH)/load --noop $(BENCH)/noop.so

bench-core: $(BENCH)/core
	@bench/core.sh $<

$(BENCH)/load: bench/load.c bench/request.c bench/request.h
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -o $@ bench/load.c bench/request.c -lhiredis

$(BENCH)/noop.so: bench/noop.c redismodule.h
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -shared -o $@ bench/noop.c

$(BENCH)/core: bench/core.c src/core/layout.c src/core/layout.h src/core/sizing.c src/core/sizing.h
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -o $@ bench/core.c src/core/layout.c src/core/sizing.c -lm
