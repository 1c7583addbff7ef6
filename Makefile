# shardbloom: `make help` lists the targets.
#
# Objects live in build/<compiler>-<release|asan>/, so that sanitizer objects never mix with plain
# ones. The release module is copied to ./shardbloom.so; the one for sanitizers stays in build/,
# since a plain server cannot load it.

ifeq ($(origin CC),default)
CC := gcc
endif
PORT ?= 6379
DIR ?= ./data

CORE := $(wildcard src/core/*.c)
SRC := $(wildcard src/*.c src/*/*.c)
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_HARNESS := $(filter-out $(UNIT_SRC),$(wildcard tests/unit/*.c))
INTEGRATION_SRC := $(wildcard tests/integration/test_*.c)
HARNESS := tests/check.c
SERVER_HARNESS := $(filter-out $(INTEGRATION_SRC),$(wildcard tests/integration/*.c))
FORMATTED := $(wildcard *.h src/*.[ch] src/*/*.[ch] tests/*.[ch] tests/*/*.[ch] bench/*.[ch] \
	examples/*/*.[ch])

FLAGS := -std=c11 -D_GNU_SOURCE -g -Wall -Wextra -Wshadow -Werror -fPIC -fvisibility=hidden \
	-MMD -MP -Isrc -Itests
# The core is compiled without the path to redismodule.h: what it needs of a server it gets through
# core/access.h.
API = $(if $(filter src/core/%,$<),,-I.)
RELEASE_FLAGS := -O3
# MD5, for adopted bitmaps: linked in, so that a server needs no further package, and not exported.
LIBS := -l:libmd.a -Wl,--exclude-libs,ALL -lm
ASAN_FLAGS := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all

# A plain server can load a module built for ASAN only if the sanitizer's runtime was loaded before
# it.
ifneq (,$(findstring clang,$(notdir $(CC))))
ASAN_FLAGS += -shared-libasan
ASAN_RUNTIME = $(shell $(CC) -print-file-name=libclang_rt.asan-$(shell uname -m).so)
else
ASAN_RUNTIME = $(shell $(CC) -print-file-name=libasan.so)
endif

RELEASE := build/$(notdir $(CC))-release
ASAN := build/$(notdir $(CC))-asan

ifeq ($(SANITIZER),)
VARIANT := $(RELEASE)
VARIANT_FLAGS := $(RELEASE_FLAGS)
MODULE := ./shardbloom.so
else ifeq ($(SANITIZER),address)
VARIANT := $(ASAN)
VARIANT_FLAGS := $(ASAN_FLAGS)
MODULE := $(ASAN)/shardbloom.so
export SERVER_PRELOAD = $(ASAN_RUNTIME)
else
$(error SANITIZER=$(SANITIZER) is not known; use SANITIZER=address or nothing)
endif
ifneq (,$(findstring clang,$(notdir $(CC))))
# The shared runtime is not on the loader's path.
ASAN_LINK = -Wl,-rpath,$(dir $(ASAN_RUNTIME))
endif

UNIT := $(UNIT_SRC:%.c=$(ASAN)/%)
FUZZ := $(patsubst tests/fuzz/%.c,build/fuzz/%,$(wildcard tests/fuzz/fuzz_$(TARGET)*.c))
FUZZ_FLAGS := -O1 -fno-omit-frame-pointer -fsanitize=fuzzer,address,undefined \
	-fno-sanitize-recover=all
INTEGRATION := $(INTEGRATION_SRC:%.c=$(VARIANT)/%)
CLIENTS := $(VARIANT)/tests/clients/test_hiredis \
	$(wildcard tests/clients/test_*.py tests/clients/test_*.mjs)
NODE_MODULES := tests/clients/node_modules/.package-lock.json
export CC SANITIZER MODULE SERVER PORT DIR ONLY JOBS
# The tests can't see SECONDS itself: bash, which starts them, has a variable of that name.
export TEST_SECONDS = $(SECONDS)

# One short line for each file; V=1 shows the commands.
ifeq ($(V),)
Q := @
say = @printf '  %-4s %s\n' $(1) '$(2)'
endif

# Of these test files, those that ONLY chooses; and a make that builds, on all cores unless told.
chosen = $(if $(ONLY),$(shell ONLY='$(ONLY)' scripts/run-tests --list $(1)),$(1))
build = +@$(MAKE) --no-print-directory $(if $(V),,-s) \
	$(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(or $(JOBS),$(shell nproc)))

.PHONY: all build-fuzz run test unit integration soak crashtest build-tests test-clients \
	test-servers test-upgrade fuzz fuzz-afl analyze demo demo-cluster worker \
	deps format check-format check-rooms check-lines \
	clean help FORCE
.DELETE_ON_ERROR:
.SECONDARY:

all: $(MODULE)

help:
	@echo 'make               build ./shardbloom.so (CC=clang for clang)'
	@echo 'make run           start redis-server with the module'
	@echo '                   (PORT=6379 DIR=./data SERVER=redis-server)'
	@echo 'make test          unit and integration tests (SERVER=/path/to/redis-or-valkey-server)'
	@echo 'make unit          only the unit tests; make integration: only the others'
	@echo '                   ONLY=file or ONLY=file:test runs some of them, JOBS=n files at a time'
	@echo 'make crashtest     kill a server ROUNDS=100 times during writes, and look for lost items'
	@echo 'make fuzz          run every fuzz target (SECONDS=60 each, TARGET=name for one);'
	@echo '                   make fuzz-afl: for AFL++'
	@echo 'make test-clients  client libraries, tools and the Scrapy filter'
	@echo '                   against a server with the module'
	@echo 'make test-servers  integration tests on six servers, fetched by scripts/server'
	@echo '                   (SERVERS="redis-8.6 valkey-9.1")'
	@echo 'make test-upgrade  RDB and AOF of each of these servers, loaded by every other'
	@echo '                   (SERVERS=...)'
	@echo 'make soak          random commands against an exact set for SECONDS=600'
	@echo '                   (SEED=n repeats a run)'
	@echo 'make demo          several Scrapy workers crawl a local site with one filter'
	@echo '                   (PAGES=3000 WORKERS=3)'
	@echo 'make demo-cluster  the same on a cluster that loses a primary and moves slots'
	@echo '                   (PAGES=10000 WORKERS=3)'
	@echo 'make worker        build build/worker, which prints the input lines that are new'
	@echo '                   (examples/worker)'
	@echo 'make bench         compare with PEER=/path/to/module.so, sets and SETBIT;'
	@echo '                   takes over an hour (bench/README.md)'
	@echo 'make bench-quick   the same on small filters: some minutes;'
	@echo '                   make bench-latency: only the longest pauses'
	@echo 'make bench-compare compare two builds: MODULES="before=/path/to/old.so"'
	@echo 'make bench-cluster a partitioned filter on 1, 2 and 3 nodes'
	@echo '                   (ITEMS=10000000 ROUNDS=3): some minutes'
	@echo 'make bench-window  filters that forget, beside as many layers'
	@echo '                   and beside a filter per slice (PEER=...)'
	@echo 'make bench-core    the core alone, without a server: ns and instructions per item'
	@echo 'make analyze       static analysis: gcc -fanalyzer, cppcheck, clang-tidy'
	@echo 'make format        format the sources; make check-format: fail if they are not,'
	@echo '                   if a line is too long (make check-lines), or if an #include'
	@echo '                   of src/ points up (make check-rooms)'
	@echo 'make install       module, tools, manual pages and docs'
	@echo '                   (DESTDIR, PREFIX=/usr/local); make uninstall'
	@echo 'make deb           Debian packages, in build/deb;'
	@echo '                   make test-package: try them on a clean Debian (root)'
	@echo 'make test-image    build the container image (scripts/Containerfile)'
	@echo '                   with buildah, and run it (root)'
	@echo 'make deps          install the Debian packages needed for all of this'
	@echo 'make clean         remove what make built (data in DIR stays)'
	@echo 'SANITIZER=address  with any target: build and run under ASAN and UBSAN'
	@echo 'V=1                with any target: show the commands of the build'

# The copy is compared, not dated: whichever compiler was asked for last is the one at the top.
# install replaces the file rather than writing into it, since a running server may have the old
# one mapped.
./shardbloom.so: $(RELEASE)/shardbloom.so FORCE
	@cmp -s $< $@ || install -m 755 $< $@

$(VARIANT)/shardbloom.so: $(SRC:%.c=$(VARIANT)/%.o)
	$(call say,LINK,$@)
	$(Q)$(CC) $(VARIANT_FLAGS) -shared -Wl,-z,defs,-z,now $(LDFLAGS) -o $@ $^ \
		$(if $(SANITIZER),$(ASAN_LINK)) $(LIBS)

$(RELEASE)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(FLAGS) $(API) $(RELEASE_FLAGS) $(CFLAGS) -c -o $@ $<

$(ASAN)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(FLAGS) $(API) $(ASAN_FLAGS) $(CFLAGS) -c -o $@ $<

# Unit tests link the core bare, always with sanitizers.
$(ASAN)/tests/unit/test_%: $(ASAN)/tests/unit/test_%.o $(HARNESS:%.c=$(ASAN)/%.o) \
		$(UNIT_HARNESS:%.c=$(ASAN)/%.o) $(CORE:%.c=$(ASAN)/%.o)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ASAN_FLAGS) $(LDFLAGS) -o $@ $^ $(ASAN_LINK) $(LIBS)

$(VARIANT)/tests/integration/test_%: $(VARIANT)/tests/integration/test_%.o \
		$(HARNESS:%.c=$(VARIANT)/%.o) \
		$(SERVER_HARNESS:%.c=$(VARIANT)/%.o) $(CORE:%.c=$(VARIANT)/%.o)
	$(call say,LINK,$@)
	$(Q)$(CC) $(VARIANT_FLAGS) $(LDFLAGS) -o $@ $^ $(if $(SANITIZER),$(ASAN_LINK)) -lhiredis $(LIBS)

$(VARIANT)/tests/clients/test_%: $(VARIANT)/tests/clients/test_%.o $(HARNESS:%.c=$(VARIANT)/%.o)
	$(call say,LINK,$@)
	$(Q)$(CC) $(VARIANT_FLAGS) $(LDFLAGS) -o $@ $^ $(if $(SANITIZER),$(ASAN_LINK)) -lhiredis

$(NODE_MODULES): tests/clients/package-lock.json
	$(call say,NPM,$<)
	$(Q)cd tests/clients && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# What another module may do to ours.
build/caller.so: tests/modules/caller.c redismodule.h
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(filter-out -MMD -MP,$(FLAGS)) -I. $(RELEASE_FLAGS) -shared -o $@ $<

# A clock that tests set.
build/clock.so: tests/preload/clock.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(filter-out -MMD -MP,$(FLAGS)) $(RELEASE_FLAGS) -shared -o $@ $<
LOADED := build/caller.so build/clock.so

# TLS where hiredis has it (Debian 13 and newer, with libssl-dev).
WORKER_TLS := $(and $(wildcard /usr/include/hiredis/hiredis_ssl.h),\
	$(wildcard /usr/include/openssl/ssl.h),\
	-DWITH_TLS -lhiredis_ssl -lssl -lcrypto)
worker: build/worker
build/worker: $(wildcard examples/worker/*.[ch])
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(filter-out -MMD -MP -fPIC,$(FLAGS)) $(RELEASE_FLAGS) $(CFLAGS) $(LDFLAGS) -o $@ \
		$(filter %.c,$^) -lhiredis $(WORKER_TLS)
demo:
	@scripts/deps demo
	@$(MAKE) --no-print-directory all
	@examples/demo/demo.py --pages $(or $(PAGES),3000) --workers $(or $(WORKERS),3)
demo-cluster:
	@scripts/deps cluster
	@$(MAKE) --no-print-directory -s all worker
	@examples/demo/cluster.py --pages $(or $(PAGES),10000) --workers $(or $(WORKERS),3)

# Packages are installed before anything is looked at, so the work is a second make.
run:
	@scripts/run
test:
	@scripts/deps test
	$(build) all $(LOADED) $(call chosen,$(UNIT) $(INTEGRATION))
	@scripts/run-tests $(UNIT) $(INTEGRATION)
build-tests: $(UNIT) $(INTEGRATION) $(LOADED)
unit:
	$(build) $(call chosen,$(UNIT))
	@scripts/run-tests $(UNIT)
integration:
	$(build) all $(LOADED) $(call chosen,$(INTEGRATION))
	@scripts/run-tests $(INTEGRATION)
test-clients:
	@scripts/deps clients
	$(build) all worker $(LOADED) $(NODE_MODULES) $(filter-out %.py %.mjs,$(call chosen,$(CLIENTS)))
	@scripts/run-tests --with tests/clients/with-server $(CLIENTS)
test-servers:
	@scripts/deps test
	$(build) all $(LOADED) $(call chosen,$(INTEGRATION))
	@scripts/test-servers $(INTEGRATION)
test-upgrade:
	@scripts/deps test
	$(build) all
	@tests/upgrade/matrix $(SERVERS)
soak: all $(LOADED) $(VARIANT)/tests/integration/test_model
	@SOAK_SECONDS=$(or $(SECONDS),600) SEED=$(SEED) \
		$(VARIANT)/tests/integration/test_model chosen_seed
crashtest: all $(LOADED) $(VARIANT)/tests/integration/test_crash
	@ONLY=test_crash TEST_TIMEOUT=86400 ROUNDS=$(or $(ROUNDS),100) \
		scripts/run-tests $(filter %/test_crash,$^)
deps:
	@scripts/deps dev

# One binary for each tests/fuzz/fuzz_*.c; AFL++'s compiler takes the same sources (afl-fuzz -i
# seeds -o out -- binary).
build/fuzz/%: tests/fuzz/%.c tests/fuzz/fuzz.h $(CORE) $(wildcard src/core/*.h)
	@mkdir -p $(@D)
	$(call say,FUZZ,$@)
	$(Q)clang $(filter-out -MMD -MP,$(FLAGS)) $(FUZZ_FLAGS) -o $@ $< $(CORE) $(LIBS)
build/afl/%: tests/fuzz/%.c tests/fuzz/fuzz.h $(CORE) $(wildcard src/core/*.h)
	@mkdir -p $(@D)
	$(call say,AFL,$@)
	$(Q)AFL_QUIET=1 afl-clang-fast $(filter-out -MMD -MP,$(FLAGS)) -O2 -fsanitize=fuzzer \
		-o $@ $< $(CORE) $(LIBS)
build-fuzz: $(FUZZ)
fuzz: $(FUZZ)
	@tests/fuzz/run $(or $(SECONDS),60) $^
fuzz-afl: $(FUZZ:build/fuzz/%=build/afl/%)

# Three analyzers, which must find nothing. What cppcheck is told to pass over is wrong: it can't
# parse one expression, takes what the server returns for a pointer to what was passed to it, and
# counts shards from 0 where there is at least one. Of clang-tidy the analyzer is used, without its
# dislike of memcpy and of a loop over whole doubles.
TIDY := clang-analyzer-*,-clang-analyzer-security.FloatLoopCounter
TIDY := $(TIDY),-clang-analyzer-security.insecureAPI.Depr*
analyze:
	@for file in $(SRC); do \
		gcc $(filter-out -MMD -MP,$(FLAGS)) -I. -O1 -fanalyzer -c -o /dev/null $$file || \
			exit 1; done
	cppcheck --quiet --std=c11 --enable=warning,performance,portability --error-exitcode=1 \
		-D_GNU_SOURCE -I. -Isrc \
		--suppress=internalAstError:src/commands/info.c \
		--suppress=danglingLifetime:src/store/datatype.c \
		--suppress=returnDanglingLifetime:src/store/strings.c \
		--suppress=zerodiv:src/core/sizing.c src
	clang-tidy --quiet --checks='-*,$(TIDY)' --warnings-as-errors='*' $(SRC) \
		-- -std=c11 -D_GNU_SOURCE -I. -Isrc

format:
	clang-format -i $(FORMATTED)
check-format: check-rooms check-lines
	clang-format --dry-run --Werror $(FORMATTED)
# Includes of src/ point down only.
check-rooms:
	@scripts/check-rooms
# No line of a source or a page is too long; clang-format leaves it so where it can't break it.
check-lines:
	@scripts/check-lines

clean:
	rm -rf build shardbloom.so

include scripts/install.mk
include bench/bench.mk
-include $(wildcard build/*/*/*.d build/*/*/*/*.d build/*/*/*/*/*.d)
