# Installing and packaging; part of the Makefile.
#
# make install puts everything below $(DESTDIR). The module goes to /usr/lib whatever PREFIX is: the
# service files of Debian's redis-server and valkey-server let the server map code from /usr/lib and
# /lib only (NoExecPaths, ExecPaths).

PREFIX ?= /usr/local
MODULEDIR ?= /usr/lib/redis/modules
SYSCONFDIR ?= /etc
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/shardbloom
# Where Debian's python3 looks below this prefix.
PYTHONDIR ?= $(PREFIX)/lib/$(if $(filter /usr,$(PREFIX)),python3,$(PYTHON_VERSION))/dist-packages

PYTHON_VERSION = $(shell /usr/bin/python3 -c \
	'import sys; print("python%d.%d" % sys.version_info[:2])')
VERSION = $(shell scripts/version)
TOOLS := $(notdir $(wildcard scripts/bf*))
PYTHON_FILES := $(patsubst python/%,%,$(wildcard \
	python/shardbloom/*.py python/shardbloom/*/*.py python/shardbloom/py.typed))
DOCS := README.md CHANGELOG.md SECURITY.md $(wildcard docs/*.md examples/scrapy/*.* examples/*.lua)
MAN1 = $(TOOLS:%=build/man/%.1) $(if $(HAS_HIREDIS),build/man/bfworker.1)
CONF := $(DESTDIR)$(SYSCONFDIR)/shardbloom.conf

# The line NAME of the manual pages; the rest is what --help says.
bfread_DOES := query a Bloom filter of shardbloom without the module
bfimport_DOES := stream a Redis set into a Bloom filter
bfcopy_DOES := copy Bloom filters between Redis servers
bforphans_DOES := find shards that no Bloom filter owns
bfstat_DOES := show the Bloom filters of a Redis server
bfworker_DOES := print the input lines that are not in a Bloom filter yet

# What can't be made here is left out: manual pages of the tools without help2man, bfworker without
# hiredis.
ifneq (,$(filter install man,$(MAKECMDGOALS)))
HAS_HELP2MAN := $(shell command -v help2man)
HAS_HIREDIS := $(shell echo '\#include <hiredis/hiredis.h>' | $(CC) -E - >/dev/null 2>&1 && echo y)
endif

.PHONY: install uninstall man deb test-package test-image check-version

install: all $(if $(HAS_HIREDIS),worker) $(if $(HAS_HELP2MAN),man)
	install -d $(DESTDIR)$(MODULEDIR) $(DESTDIR)$(BINDIR) $(DESTDIR)$(SYSCONFDIR)
	install -d $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man7
	@# The server refuses modules that are not executable.
	install -m 755 $(RELEASE)/shardbloom.so $(DESTDIR)$(MODULEDIR)/shardbloom.so
	install -m 755 $(TOOLS:%=scripts/%) $(DESTDIR)$(BINDIR)
	@# In a checkout the tools look for their package beside them.
	sed -i -e 's|^sys.path.insert(.*|sys.path.append("$(PYTHONDIR)")|' \
		-e '2s|^"""\([a-z]*\) from a checkout.*|"""See \1(1)."""|' $(TOOLS:%=$(DESTDIR)$(BINDIR)/%)
	for file in $(PYTHON_FILES); do \
		install -D -m 644 python/$$file $(DESTDIR)$(PYTHONDIR)/$$file || exit 1; done
	$(if $(HAS_HIREDIS),install -m 755 build/worker $(DESTDIR)$(BINDIR)/bfworker)
	$(if $(HAS_HELP2MAN),install -m 644 $(MAN1) $(DESTDIR)$(MANDIR)/man1)
	install -m 644 docs/shardbloom.7 $(DESTDIR)$(MANDIR)/man7
	for file in $(DOCS); do install -D -m 644 $$file $(DESTDIR)$(DOCDIR)/$$file || exit 1; done
	@# A configuration that is there may have been changed: it is the administrator's.
	sed 's|@MODULEDIR@|$(MODULEDIR)|' examples/shardbloom.conf >build/shardbloom.conf
	test -e $(CONF) || install -m 644 build/shardbloom.conf $(CONF)

uninstall:
	rm -f $(DESTDIR)$(MODULEDIR)/shardbloom.so
	rm -f $(patsubst %,$(DESTDIR)$(BINDIR)/%,$(TOOLS) bfworker)
	rm -f $(patsubst %,$(DESTDIR)$(MANDIR)/man1/%.1,$(TOOLS) bfworker)
	rm -f $(DESTDIR)$(MANDIR)/man7/shardbloom.7
	rm -rf $(DESTDIR)$(DOCDIR) $(DESTDIR)$(PYTHONDIR)/shardbloom
	@if sed 's|@MODULEDIR@|$(MODULEDIR)|' examples/shardbloom.conf | cmp -s - $(CONF); then \
		rm $(CONF); elif [ -e $(CONF) ]; then echo 'left: $(CONF), which was changed'; fi

# help2man runs what it describes, by the name it will have, and takes "Usage:" for the synopsis.
define MAN_PAGE
	@mkdir -p build/man/bin
	@printf '#!/bin/sh\nCOLUMNS=2000 %s --help | sed "1s/^usage: [a-z]*/Usage: $*/"\n' \
		'$(CURDIR)/$<' >build/man/bin/$*
	@chmod 755 build/man/bin/$*
	help2man --no-info --section=1 --version-string='$(VERSION)' \
		--source='shardbloom $(VERSION)' --name='$(or $($*_DOES),a tool of shardbloom)' \
		--output=$@ build/man/bin/$*
endef
man: $(MAN1)
$(TOOLS:%=build/man/%.1): build/man/%.1: scripts/% $(PYTHON_FILES:%=python/%) src/module.c
	$(MAN_PAGE)
build/man/bfworker.1: build/man/%.1: build/worker src/module.c
	$(MAN_PAGE)

# Debian packages, in build/deb. The tests install them on a clean Debian, booted in a container,
# and build and run the image of scripts/Containerfile. Both need root.
deb:
	@scripts/deps package
	@scripts/deb
test-package: deb
	@tests/package/run
test-image: deb
	@scripts/deps image
	@tests/package/image

check-version: all
	@scripts/check-version
