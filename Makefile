# CI runs the same targets as people do. Every target installs what it needs and can be run again at any time. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
CARGO ?= cargo
KEEP ?=
TARGET := $(or $(CARGO_TARGET_DIR),./target)

.PHONY: help demo check test bench soak fuzz lint advisories msrv bless chart conformance windows static dist deb sbom reproducible tools test-tools

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 } /^#\+/ { printf "%-13s %s\n", "", substr($$0, 4) }' $(firstword $(MAKEFILE_LIST))

# Without optimisation, which builds fastest: the kernel forwards the packets.
demo: tools ## Show Ferrovia forwarding traffic between network namespaces
#+ (KEEP=1: stay up to try things)
	$(CARGO) build --profile demo --bin ferrovia --bin ferrovia-demo
	$(TARGET)/demo/ferrovia-demo --ferrovia $(TARGET)/demo/ferrovia --manifests examples $(if $(KEEP),--keep)

# Unit tests that run nft.
NEED_PACKAGES := other_tools_cannot_take_it_or_keep_it
check: ## The tests that need neither root nor packages, and tidy: a few minutes. Run it while you work
#+ Unit and property tests, simulators, goldens, configuration, manifests, the API client, and every
#+ case file in nftables mode. Kernel tests run in a user namespace
	$(CARGO) test -p ferrovia-core -p ferrovia-host -p ferrovia-lab -p ferrovia --lib -- $(addprefix --skip ,$(NEED_PACKAGES))
	$(CARGO) test -p ferrovia-core --doc
	$(CARGO) test -p ferrovia-core --test "*"
	$(CARGO) test -p ferrovia --test config --test manifest --test kube
	MODES=nftables $(CARGO) test -p ferrovia --test cases
	./scripts/tidy

# Most tests spend most of their time waiting for a daemon, a packet or a browser.
test: export RUST_TEST_THREADS ?= $(shell expr 2 \* $$(nproc))
test: test-tools ## Every test, on the real kernel, in user-mode Linux and in a browser. Run it before a pull request
	$(CARGO) test --workspace

lint: ## Formatting, clippy, docs, licences, tidy. Run it before a pull request
	./scripts/install-tools lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	$(CARGO) deny --log-level error check bans licenses sources
	./scripts/tidy

advisories: ## Known vulnerabilities of dependencies (needs a network)
	./scripts/install-tools lint
	$(CARGO) deny check advisories

msrv: ## Check that everything compiles with the oldest supported Rust (needs rustup, and a network once)
	$(CARGO) +$(shell sed -n 's/^rust-version = "\(.*\)"$$/\1/p' Cargo.toml) check --workspace --all-targets --locked

bless: test-tools ## Update the goldens of plans and configuration; then review the diff
	BLESS=1 $(CARGO) test -p ferrovia --test cases --test config

# With the profile of the packages, so that the figures are those of the program people install.
bench: test-tools ## Measure the `dist` build, print tables and write docs/performance.md
#+ (BENCH_QUICK=1: small sizes only, and docs/performance.md is kept)
	$(CARGO) bench --profile dist --bench proxy
	$(CARGO) bench --profile dist -p ferrovia-host --bench userspace | tee $(TARGET)/bench/userspace.txt
	$(if $(BENCH_QUICK),,./scripts/performance-page $(TARGET)/bench)

soak: export SOAK_SECONDS ?= 120
soak: export SOAK_BIG ?= 1
soak: test-tools ## Inject faults into the daemon under load and report; see docs/faults.md
#+ (SOAK_SECONDS=120, SOAK_MODE=iptables, SOAK_ONLY=conntrack: some faults, SOAK_BIG=0: no large clusters)
	$(CARGO) test -p ferrovia --test soak

fuzz: export FUZZ_SECONDS ?= $(or $(SECONDS),60)
fuzz: test-tools ## Fuzz every parser for SECONDS=60 each, with a new seed each time
	$(CARGO) test -p ferrovia-host --lib hostile -- --nocapture
	$(CARGO) test -p ferrovia --lib hostile -- --nocapture
	$(CARGO) test -p ferrovia --test fuzz -- --nocapture

chart: ## Test the Helm chart with the helm on your PATH
#+ (BLESS=1: update the rendered chart that the other tests use)
	$(CARGO) test -p ferrovia --test deploy helm -- --include-ignored --test-threads 1

# Tests run in the folder of their crate, so a relative path would not be found.
conformance: export KUBEBUILDER_ASSETS := $(if $(KUBEBUILDER_ASSETS),$(abspath $(KUBEBUILDER_ASSETS)))
conformance: test-tools ## Test against a real kube-apiserver and etcd in KUBEBUILDER_ASSETS; see docs/conformance.md
#+ (ONLY=outage: some of the tests)
	$(CARGO) test -p ferrovia --test conformance -- --include-ignored $(ONLY)

# Nothing is linked, so no linker for Windows is needed. The daemon and the tests do not support Windows.
windows: export CARGO_BUILD_TARGET = x86_64-pc-windows-gnu
windows: ## Check that the code for Windows compiles
	@rustc --print target-libdir --target $$CARGO_BUILD_TARGET | xargs test -d || \
		{ echo "the Rust toolchain lacks the Windows target: rustup target add $$CARGO_BUILD_TARGET" >&2; exit 1; }
	$(CARGO) check -p ferrovia-core -p ferrovia-host --lib --examples

static: ## Build the program as one static binary, with the `dist` profile like all packages
	./scripts/build-static

dist: ## Build an archive with the static binary, manual pages, completions and bill of materials, and the image context
	./scripts/dist

deb: ## Build a Debian package
	./scripts/build-deb

sbom: ## Print the bill of materials as CycloneDX JSON
	@./scripts/install-tools static
	@./scripts/sbom

reproducible: ## Build the packages twice in different folders and compare the bytes
	./scripts/check-reproducible

tools:
	./scripts/install-tools

test-tools:
	./scripts/install-tools test
