# What a person types is what CI calls. Every target installs what it needs and is safe to run twice.
#
#   make demo         watch Ferrovia carry traffic in a sandbox of network namespaces (KEEP=1: stay up to play with it)
#   make test         every test: unit, property, fuzz (briefly), cases on the real kernel, ipvs in user-mode Linux, faults, the page in a browser
#   make bench        the figures, as tables with ratios measured in the same run, and docs/performance.md of them (BENCH_QUICK=1: the small
#                     sizes only, and no page)
#   make lint         formatting, clippy, docs, licences, tidiness
#   make bless        write what the planner prints and the configuration becomes into the goldens (then review the diff)

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
CARGO ?= cargo
KEEP ?=
TARGET := $(or $(CARGO_TARGET_DIR),./target)

.PHONY: demo test bench lint bless tools test-tools

demo: tools
	$(CARGO) build --quiet --release --bin ferrovia --bin ferrovia-demo
	$(TARGET)/release/ferrovia-demo --ferrovia $(TARGET)/release/ferrovia --manifests examples $(if $(KEEP),--keep)

test: test-tools
	$(CARGO) test --workspace

bench: test-tools
	$(CARGO) bench --bench proxy
	$(CARGO) bench -p ferrovia-host --bench userspace | tee $(TARGET)/bench/userspace.txt
	$(if $(BENCH_QUICK),,./scripts/performance-page $(TARGET)/bench)

lint:
	./scripts/install-tools lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	$(CARGO) deny --log-level error check bans licenses sources
	./scripts/tidy

bless: test-tools
	BLESS=1 $(CARGO) test -p ferrovia --test cases --test config

tools:
	./scripts/install-tools

test-tools:
	./scripts/install-tools test
