# `make demo` shows what Terapage does; `make test` checks all of it.

PREFIX ?= /usr/local
SHELL := /bin/bash
CARGO_TEST := cargo test --locked --release
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
SONAME := libterapage.so.$(firstword $(subst ., ,$(VERSION)))
MAN := target/man
COMPLETIONS := target/completions

PROCESSOR := $(shell uname -m)
ARM := aarch64-unknown-linux-gnu
MUSL := x86_64-unknown-linux-musl

.PHONY: help setup build arm musl demo check test fuzz soak guest works-with people-figures install stage wheel deb rpm dist release site

help:
	@echo "make setup    install the packages that building and testing need (as root), check for cargo"
	@echo "make build    build target/release/terapage and its library"
	@echo "make demo     sort a text larger than its memory, with figures (DEMO_MB=60 for a short one)"
	@echo "make check    formatting, lints, tidiness, unit tests: the fast loop; a minute or two"
	@echo "make test     formatting, lints, unit tests, real programs, faults; about 50 minutes on 2 cores"
	@echo "make fuzz     the parsers of what others write, each for an hour (TERAPAGE_FUZZ_S=60 for a minute)"
	@echo "make soak     the real programs at full size, two million guarded calls, and older kernels; hours"
	@echo "make arm      the same for 64-bit Arm, with a cross compiler: target/$(ARM)/release"
	@echo "make musl     the command and its host for Alpine, static: target/$(MUSL)/release"
	@echo "make guest    kernels from Linux 6.1 to the newest, and 64-bit Arm, in emulated machines; an hour"
	@echo "make works-with  the table of docs/results.md: real programs with less memory; an hour and more"
	@echo "make people-figures  what jobs, numpy and containers are promised, measured; a quarter of an hour, as root"
	@echo "make install  into PREFIX ($(PREFIX)), below DESTDIR where set"
	@echo "make wheel    the Python wheel, into dist/"
	@echo "make deb      the Debian packages, into dist/"
	@echo "make rpm      the RPM packages, into dist/"
	@echo "make dist     all of these, an archive, a container image, the debug symbols, the SBOM, and checksums of all"
	@echo "make release  the same of the last commit, for x86-64 and Arm, twice with the same bytes"
	@echo "make site     the docs as a site, target/site/html"

setup:
	tools/setup

build:
	cargo build --workspace --release --locked
	tools/static-host

demo:
	tools/setup build
	cargo build --release --locked --no-default-features -p terapage-cli -p terapage-preload -p terapage-host
	@tools/demo

# The tests of a crate's own modules and its doc examples stay out of the fast loop where they run
# programs, for minutes: those are make test's.
check:
	cargo fmt --all --check
	tools/tidy
	tools/version
	cargo clippy --release --workspace --all-targets --locked -- -D warnings
	$(CARGO_TEST) --workspace --lib --bins --examples
	$(CARGO_TEST) -p terapage-config --test table

define PROGRAMS
set -e
tests/programs/run-all ci
tests/programs/run-all ci guarded
tests/programs/gallery
endef
export PROGRAMS

# Two halves of the cases: about adopted and hosted programs and mapped files, and all others.
define FAULTS_OF_SOME
tests/faults/run $$(tests/faults/run list | grep -E '^(adopt|release|guard-|hosted|mapped)')
endef
define OTHER_FAULTS
tests/faults/run $$(tests/faults/run list | grep -vE '^(adopt|release|guard-|hosted|mapped)')
endef
export FAULTS_OF_SOME OTHER_FAULTS

# Faults wait for disks and timers, and memory servers for one another: they need a third of the
# processors. Meanwhile a build for Arm is tried, and the fuzzers, the report pages and the packages are.
define BESIDE_FAR
set -e
TERAPAGE_FUZZ_S=10 $(MAKE) fuzz
tests/report/run
packaging/stage
packaging/wheel || test $$? = 77
tests/packages/run
endef
export BESIDE_FAR

# The tests' crates turn on features of others, so what is built alone would be built again for them.
test:
	cargo fmt --all --check
	tools/tidy
	tools/version
	cargo clippy --release --workspace --all-targets --locked -- -D warnings
	cargo build --workspace --release --locked --lib --bins --tests --examples
	tools/static-host
	tools/together "$(CARGO_TEST) --workspace" "$$PROGRAMS"
	tests/programs/run-all ci always
	tools/together "$$OTHER_FAULTS" "$$FAULTS_OF_SOME" tests/far/run \
	    "TERAPAGE_PATIENCE=3 nice tests/guest/run short" "$$BESIDE_FAR"

# Replies of servers, ELF headers, configuration, traces of blocks and of devices: one test at a time.
# Other crates have none; without them, cargo would build what they share in another way, again.
fuzz:
	TERAPAGE_FUZZ_S=$${TERAPAGE_FUZZ_S:-3600} $(CARGO_TEST) --workspace --lib --bins --test fuzz \
	    -- fuzzed --nocapture --test-threads 1

soak: build
	TERAPAGE_SEED=$$RANDOM TERAPAGE_RUNS=20000 $(CARGO_TEST) -p terapage-model
	TERAPAGE_SEED=$$RANDOM TERAPAGE_RUNS=500 $(CARGO_TEST) -p terapage-far --lib protocol
	TERAPAGE_FUZZ_S=60 $(MAKE) fuzz
	TERAPAGE_SEED=$$RANDOM TERAPAGE_RUNS=1000000 tests/faults/run guarded-calls guarded-calls-static
	tests/far/run soak
	TERAPAGE_SEED=$$RANDOM TERAPAGE_RUNS=100 tests/faults/run adopt-loop
	tests/programs/run-all soak
	TERAPAGE_IO=aio tests/programs/run-all ci
	TERAPAGE_IO=threads tests/programs/run-all ci
	TERAPAGE_IO=aio tests/far/run
	tests/programs/run-all soak always
	$(MAKE) dist
	tests/packages/run soak
	$(MAKE) guest

# The lab, the simulators and the pager's crates are part of the command.
arm:
	tools/setup arm
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc cargo build --release --locked \
	    --target $(ARM) -p terapage-cli -p terapage-preload -p terapage-host -p terapage-capi

musl:
	tools/setup musl
	tools/static-host
	cargo build --release --locked --target $(MUSL) -p terapage-cli

guest: build arm
	tests/guest/run

works-with: build
	tests/programs/works-with

people-figures: build
	tests/programs/people-figures

stage: build
	packaging/stage

# 77: the build backend could not be installed, and a line has said so.
wheel: stage
	packaging/wheel

deb: stage
	packaging/deb

rpm: stage
	packaging/rpm

# A host, and so the command for musl, is there on x86-64 only.
dist: stage $(if $(filter x86_64,$(PROCESSOR)),musl)
	packaging/archive
	packaging/wheel
	if [ $(PROCESSOR) = x86_64 ]; then for step in stage archive wheel; do TARGET=$(MUSL) packaging/$$step || exit; done; fi
	packaging/deb
	packaging/rpm
	packaging/image
	cd dist && sha256sum *.whl *.deb *.rpm *.tar.xz *.tar *.json > SHA256SUMS
	@cat dist/SHA256SUMS

release:
	packaging/release --twice

site:
	packaging/site

# Without building: root, who may install, often has no Rust.
install:
	@test -x target/release/terapage || { echo "nothing is built yet: make build" >&2; exit 1; }
	mkdir -p $(MAN) $(COMPLETIONS)
	target/release/terapage man --dir $(MAN)
	for shell in bash zsh fish; do target/release/terapage completions $$shell > $(COMPLETIONS)/$$shell; done
	install -D -m 755 target/release/terapage $(DESTDIR)$(PREFIX)/bin/terapage
	install -D -m 644 target/release/libterapage_preload.so $(DESTDIR)$(PREFIX)/lib/terapage/libterapage_preload.so
	install -D -m 755 target/release/terapage-host $(DESTDIR)$(PREFIX)/lib/terapage/terapage-host
	if [ -e target/release/terapage-host-musl ]; then \
	    install -m 755 target/release/terapage-host-musl $(DESTDIR)$(PREFIX)/lib/terapage/; \
	else echo "terapage adopt will not work: the static host is not built (tools/static-host says why)" >&2; fi
	install -D -m 755 target/release/libterapage.so $(DESTDIR)$(PREFIX)/lib/libterapage.so.$(VERSION)
	ln -sf libterapage.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(PREFIX)/lib/libterapage.so
	install -D -m 644 target/release/libterapage.a $(DESTDIR)$(PREFIX)/lib/libterapage.a
	install -D -m 644 crates/paging/capi/include/terapage.h $(DESTDIR)$(PREFIX)/include/terapage.h
	mkdir -p $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' crates/paging/capi/terapage.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/terapage.pc
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 $(MAN)/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -D -m 644 $(COMPLETIONS)/bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/terapage
	install -D -m 644 $(COMPLETIONS)/zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_terapage
	install -D -m 644 $(COMPLETIONS)/fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/terapage.fish
