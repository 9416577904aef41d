# What a person types is what CI calls. Every target installs what it needs and is safe to run twice.
#
#   make demo         watch Ferrovia carry traffic in a sandbox of network namespaces (KEEP=1: stay up to play with it)
#   make test         every test: unit, property, fuzz (briefly), cases on the real kernel, ipvs in user-mode Linux, faults, the page in a browser
#   make bench        the figures, as tables with ratios measured in the same run, and docs/performance.md of them (BENCH_QUICK=1: the small
#                     sizes only, and no page)
#   make soak         the daemon under faults and load, as a table; docs/faults.md explains it (SOAK_SECONDS=120 of faults, SOAK_MODE=iptables,
#                     SOAK_ONLY=conntrack: some faults, SOAK_BIG=0: no large clusters)
#   make fuzz         every parser for SECONDS=60 each, from another beginning each time
#   make lint         formatting, clippy, docs, licences, tidiness
#   make bless        write what the planner prints and the configuration becomes into the goldens (then review the diff)
#   make chart        the Helm chart, by the helm on your PATH (BLESS=1: keeps what it renders for the other tests)
#   make conformance  the daemon against a real kube-apiserver and etcd, which KUBEBUILDER_ASSETS names (ONLY=outage: some of it);
#                     docs/conformance.md explains it
#   make windows      check that what there is for Windows compiles for it
#   make static       the program as one file that needs no library
#   make dist         an archive with it, manual pages, completions and bill of materials; what container images are made of
#   make deb          a Debian package
#   make sbom         the bill of materials as CycloneDX JSON, on standard output
#   make reproducible build twice in different folders and compare the bytes (two release builds: some minutes)

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
CARGO ?= cargo
KEEP ?=
TARGET := $(or $(CARGO_TARGET_DIR),./target)

.PHONY: demo test bench soak fuzz lint bless chart conformance windows static dist deb sbom reproducible tools test-tools

demo: tools
	$(CARGO) build --quiet --release --bin ferrovia --bin ferrovia-demo
	$(TARGET)/release/ferrovia-demo --ferrovia $(TARGET)/release/ferrovia --manifests examples $(if $(KEEP),--keep)

# Most tests wait most of the time, for a daemon, a packet or a browser.
test: export RUST_TEST_THREADS ?= $(shell expr 2 \* $$(nproc))
test: test-tools
	$(CARGO) test --workspace

bench: test-tools
	$(CARGO) bench --bench proxy
	$(CARGO) bench -p ferrovia-host --bench userspace | tee $(TARGET)/bench/userspace.txt
	$(if $(BENCH_QUICK),,./scripts/performance-page $(TARGET)/bench)

soak: export SOAK_SECONDS ?= 120
soak: export SOAK_BIG ?= 1
soak: test-tools
	$(CARGO) test --quiet -p ferrovia --test soak

fuzz: export FUZZ_SECONDS ?= $(or $(SECONDS),60)
fuzz: test-tools
	$(CARGO) test --quiet -p ferrovia-host --lib hostile -- --nocapture
	$(CARGO) test --quiet -p ferrovia --lib hostile -- --nocapture
	$(CARGO) test --quiet -p ferrovia --test fuzz -- --nocapture

lint:
	./scripts/install-tools lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	$(CARGO) deny --log-level error check bans licenses sources
	./scripts/tidy

bless: test-tools
	BLESS=1 $(CARGO) test -p ferrovia --test cases --test config

chart:
	$(CARGO) test --quiet -p ferrovia --test deploy helm -- --include-ignored --test-threads 1

# Tests do not run in this folder.
conformance: export KUBEBUILDER_ASSETS := $(if $(KUBEBUILDER_ASSETS),$(abspath $(KUBEBUILDER_ASSETS)))
conformance: test-tools
	$(CARGO) test --quiet -p ferrovia --test conformance -- --include-ignored $(ONLY)

# Nothing is linked, so no other tools are needed. Neither the daemon nor the tests are for Windows.
windows: export CARGO_BUILD_TARGET = x86_64-pc-windows-gnu
windows:
	@rustc --print target-libdir --target $$CARGO_BUILD_TARGET | xargs test -d || \
		{ echo "Rust lacks its library for Windows: rustup target add $$CARGO_BUILD_TARGET" >&2; exit 1; }
	$(CARGO) check -p ferrovia-core -p ferrovia-host --lib --examples

static:
	./scripts/build-static

dist:
	./scripts/dist

deb:
	./scripts/build-deb

sbom:
	@./scripts/install-tools static
	@./scripts/sbom

reproducible:
	./scripts/check-reproducible

tools:
	./scripts/install-tools

test-tools:
	./scripts/install-tools test
