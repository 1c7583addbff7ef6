# make bench and its relatives (bench/README.md). Included by the Makefile at the top level, whose
# flags it uses.

BENCH := build/bench
BENCH_FLAGS = $(filter-out -MMD -MP,$(FLAGS)) -I. $(RELEASE_FLAGS) $(CFLAGS)

BENCH_MODULE = $(or $(OURS),./shardbloom.so)
BENCH_RUN = CFLAGS='$(BENCH_FLAGS)' bench/run.py --module $(BENCH_MODULE) --load $(BENCH)/load \
	--noop $(BENCH)/noop.so
BENCH_TOOLS = ./shardbloom.so $(BENCH)/load $(BENCH)/ping $(BENCH)/noop.so

.PHONY: bench bench-quick bench-latency bench-compare bench-instructions bench-core \
	bench-cluster bench-window

bench: $(BENCH_TOOLS)
	@$(BENCH_RUN) --form $(if $(QUICK),quick,full)
bench-quick: $(BENCH_TOOLS)
	@$(BENCH_RUN) --form quick
bench-latency: $(BENCH_TOOLS)
	@$(BENCH_RUN) --form $(if $(QUICK),latency-quick,latency)
bench-compare: $(BENCH_TOOLS)
	@$(BENCH_RUN) --form compare

bench-instructions: $(BENCH_TOOLS)
	@bench/instructions.py --load $(BENCH)/load ours=$(BENCH_MODULE) $(if $(PEER),peer=$(PEER)) \
		$(MODULES)

bench-cluster: ./shardbloom.so build/worker
	@CFLAGS='$(BENCH_FLAGS)' bench/cluster.py --module $(BENCH_MODULE) --worker build/worker

bench-window: $(BENCH_TOOLS) build/clock.so
	@CFLAGS='$(BENCH_FLAGS)' bench/window.py --module $(BENCH_MODULE) --load $(BENCH)/load \
		--clock build/clock.so

bench-core: $(BENCH)/core
	@bench/core.sh $<

$(BENCH)/load: bench/load.c bench/request.c bench/request.h
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -o $@ bench/load.c bench/request.c -lhiredis

$(BENCH)/ping: bench/ping.c
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -o $@ bench/ping.c

$(BENCH)/noop.so: bench/noop.c redismodule.h
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -shared -o $@ bench/noop.c

$(BENCH)/core: bench/core.c src/core/layout.c src/core/layout.h src/core/sizing.c src/core/sizing.h
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -o $@ bench/core.c src/core/layout.c src/core/sizing.c -lm
