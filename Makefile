# The targets of the project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
CARGO ?= cargo
TARGET ?= $(or $(CARGO_TARGET_DIR),target)

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

.PHONY: demo
demo: ## Show step by step how a Git push becomes an applied stack (KEEP=1 keeps it running)
	$(CARGO) build --locked -p sluice -p sluice-tests --bin sluice --bin demo
	$(TARGET)/debug/demo $(if $(KEEP),--keep)

.PHONY: recording
recording: ## Record the first commands in a pseudo-terminal into target/recording, and render docs/images/recording.svg from it
	$(CARGO) build --locked -p sluice -p sluice-tests --bin sluice --bin recording
	env -u TF_CLI_CONFIG_FILE SLUICE_CLI=tofu $(TARGET)/debug/recording --cast $(TARGET)/recording/first-stack.cast --svg docs/images/recording.svg

# The measured program is linked as that of the images.
LINK_ARGS = SLUICE_LINK_ARGS="$$(sh images/link-args.sh $$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //'))"

.PHONY: bench
bench: ## Measure sources, packages, downloads, runs, commands and the API beside other programs, into target/bench (ONLY=head,packages for some parts, ROUNDS=5, STACKS=200, IDLE=1500, SOURCES=300,1000, GIGABYTE=1, AGAINST=another build of sluice)
	$(LINK_ARGS) $(CARGO) build --locked --release -p sluice -p sluice-tests --bin sluice --bin bench
	$(TARGET)/release/bench --output $(TARGET)/bench --rounds $(or $(ROUNDS),5) --stacks $(or $(STACKS),200) --idle $(or $(IDLE),1500) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(SOURCES),--sources $(SOURCES)) $(if $(GIGABYTE),--gigabyte) $(if $(AGAINST),--against $(AGAINST))

# The tests that the page names, each after the name of its program.
SMOKE_PAGE := docs/reference/benchmarks.md
SMOKE_TESTS = $$(sed -n '/^| Statement | Shown by |/,/^$$/p' $(SMOKE_PAGE) | grep -o '`[a-z_]*::[a-z0-9_:]*`' | tr -d '`' | sed 's/^[a-z_]*:://')
.PHONY: bench-smoke
bench-smoke: build ## Check bytes, requests, writes, segments, allocations, events of watches and determinism: what docs/reference/benchmarks.md names, and part of `make test`
	$(CARGO) test --locked --workspace --no-fail-fast --lib --bin bench --test allocations --test cli -- --exact $(SMOKE_TESTS) 2>&1 | tee $(TARGET)/bench-smoke.log
	$(TARGET)/debug/compatibility $(TARGET)/bench-smoke.log $(SMOKE_PAGE)

.PHONY: load
load: ## Measure both controllers with many stacks and sources on a real API server, and after a restart and a change of the leader (STACKS=1500, SOURCES=1000)
	$(LINK_ARGS) $(CARGO) build --locked --release -p sluice -p sluice-tests --bin sluice --test end_to_end
	$(LINK_ARGS) SLUICE_STACKS=$(or $(STACKS),1500) SLUICE_SOURCES=$(or $(SOURCES),1000) SLUICE_CLUSTER=1 \
	  $(CARGO) test --locked --release -p sluice -p sluice-tests --test end_to_end -- load::a_restart --nocapture 2>&1 | tee $(TARGET)/load.log
	$(call one-passed,$(TARGET)/load.log)

# A filter that matches no test succeeds.
define one-passed
	@grep -q '^test result: ok. 1 passed' $(1) || { echo "== The test did not run: was it renamed?"; exit 1; }
endef

# Prints the skipped tests at the end. With CI set, a test that cannot run fails instead.
SKIPPED = $(abspath $(TARGET))/skipped
define print-skipped
	@if [ -s $(SKIPPED) ]; then echo "== Skipped: $$(wc -l < $(SKIPPED))"; cat $(SKIPPED); else echo "== Skipped: nothing"; fi
endef

# Tests wait for processes and nodes, so half as many again as the cores keeps the cores busy.
export RUST_TEST_THREADS ?= $(shell echo $$(( $$(nproc) * 3 / 2 )))

# All tests: $(1) is their CLI, $(2) whether to include those of the built kube-apiserver.
define every-test
	@cli=$$(SLUICE_CLI=$(1) $(TARGET)/debug/harness-cli); echo "== All tests, with $$cli"
	@mkdir -p $(TARGET); rm -f $(SKIPPED)
	SLUICE_CLI=$(1) SLUICE_CLUSTER=$(2) SLUICE_SKIPPED=$(SKIPPED) $(CARGO) test --locked --workspace --no-fail-fast 2>&1 | tee $(TARGET)/test.log
endef

# Check that every test that a page names exists, ran and passed.
define every-claim
	$(TARGET)/debug/compatibility $(TARGET)/test.log docs/contributing/compatibility*.md docs/security.md $(SMOKE_PAGE)
endef

.PHONY: test
test: fmt typos build check-manifests tools lint lint-fuzz doc audit vectors ## Run everything: format, spelling, lints, documentation, dependencies, all tests with OpenTofu, and those that depend on the CLI with Terraform too (SLUICE_CLI=tofu: OpenTofu only)
	$(call every-test,$(or $(SLUICE_CLI),tofu),1)
	$(every-claim)
	@$(if $(SLUICE_CLI),echo "== No tests with another CLI: SLUICE_CLI is set",$(MAKE) --no-print-directory test-terraform)
	$(print-skipped)

# Cargo runs each test program by the script, in the folder and with the variables that the program expects.
.PHONY: test-busy
test-busy: build tools ## Run each test program with OpenTofu several times in a row beside two busy loops, up to its first failure (ROUNDS=3)
	@loops=(); trap 'kill "$${loops[@]}"' EXIT; for loop in 1 2; do (while :; do :; done) & loops+=($$!); done; \
	echo "== All tests beside two busy loops, $$(date +%T)"; \
	CI=true SLUICE_CLI=tofu SLUICE_CLUSTER=1 ROUNDS=$(or $(ROUNDS),3) $(CARGO) test --locked --workspace --no-fail-fast \
	  --config 'target."cfg(all())".runner = ["sh", "$(CURDIR)/tests/rounds.sh"]' > $(TARGET)/test-busy.log 2>&1 \
	  || { grep -E '^(== Round|failures:|    [a-z_]+::|test .* FAILED)' $(TARGET)/test-busy.log; exit 1; }; \
	grep -E '^test result' $(TARGET)/test-busy.log | awk '{ ok += $$4; failed += $$6; ignored += $$8 } END { print ok " passed, " failed " failed, " ignored " skipped" }'; \
	echo "== The last round ended at $$(date +%T)"

.PHONY: test-fast
test-fast: fmt build check-manifests lint ## As test, with one CLI (SLUICE_CLI, or the first on PATH) and without the tests that need the built kube-apiserver
	$(call every-test,$(SLUICE_CLI),0)
	$(print-skipped)

# The whole workspace with a filter: single packages would be built again with other features.
CLI_TESTS = "--test run --test control" "--lib different_results_of_the_real_cli" "--test it terraform::"
# Modules of `control` whose statements do not depend on the CLI: they run with OpenTofu only.
WITH_ONE_CLI := accounts crd_dir dependencies foreign_sources forged_secrets guard_rails large_inputs leader_loss many_stacks metrics otlp \
  refused_requests repos request_counts requests run_files stored_configurations triggers webhooks
WITHOUT_THESE := $(foreach module,$(WITH_ONE_CLI),--skip $(module)::)
.PHONY: test-terraform
test-terraform: build tools ## Run the tests that depend on the CLI with the Terraform on PATH and a small sample of interruptions; skipped without Terraform, a failure with CI set
	@if ! command -v terraform >/dev/null; then \
	  [ -z "$${CI:-}" ] || { echo "== No test ran with Terraform: it is not on PATH. Install it, or set SLUICE_CLI=tofu"; exit 1; }; \
	  for tests in $(CLI_TESTS); do $(CARGO) test --locked --workspace $$tests -- --list $(WITHOUT_THESE) 2>/dev/null; done \
	    | sed -n 's/^\(.*\): test$$/skipped: \1: no terraform is on PATH/p' >> $(SKIPPED); exit; \
	fi; \
	export SLUICE_CLI=terraform SLUICE_STOPS=$(or $(SLUICE_STOPS),2) SLUICE_SKIPPED=$(SKIPPED); \
	cli=$$($(TARGET)/debug/harness-cli); echo "== Tests that start a CLI, with $$cli"; \
	for tests in $(CLI_TESTS); do $(CARGO) test --locked --workspace --no-fail-fast $$tests -- $(WITHOUT_THESE); done 2>&1 | tee $(TARGET)/test-terraform.log; \
	grep -q 'different_results_of_the_real_cli.* ok$$' $(TARGET)/test-terraform.log || { echo "== The soundness test of the closure did not run: was it renamed?"; exit 1; }

.PHONY: vectors
vectors: ## Generate the vectors of other programs and the examples of docs/reference/plan-id.md again, and compare
	@sh tests/vectors.sh

.PHONY: doctor
doctor: ## List the required programs, which of them are missing, and what to install
	@sh tests/doctor.sh

# Programs are installed once, from the registry; without optimisation and debug information, because each runs for seconds.
CARGO_INSTALL := CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --locked --debug

DENY_VERSION := 0.20.2
DENY_HOME := $(abspath $(TARGET))/tools/cargo-deny-$(DENY_VERSION)
DENY := $(DENY_HOME)/bin/cargo-deny

$(DENY):
	$(CARGO_INSTALL) cargo-deny --version $(DENY_VERSION) --root $(DENY_HOME)

.PHONY: audit
audit: $(DENY) ## Check the dependencies against deny.toml (licences, versions, sources) and, if it can be fetched, the RustSec database
	$(DENY) --locked check licenses bans sources
	@output=$$($(DENY) --locked fetch db 2>&1) || { echo "$$output" | tail -3; \
	  echo "== Skipped: advisories: the RustSec database (github.com/RustSec/advisory-db) cannot be fetched from here"; exit 0; }; \
	  $(DENY) --locked check --disable-fetch advisories

TYPOS_VERSION := $(shell sed -n 's/^typos==\([0-9.]*\).*/\1/p' tests/typos.txt)
TYPOS_HOME := $(abspath $(TARGET))/tools/typos-$(TYPOS_VERSION)
TYPOS := $(TYPOS_HOME)/bin/typos

# The published program where pip has one: to build it takes minutes.
$(TYPOS):
	@python3 -m pip --disable-pip-version-check install --quiet --no-deps --only-binary :all: --require-hashes --requirement tests/typos.txt \
	  --target $(TYPOS_HOME) 2>/dev/null && $@ --version || $(CARGO_INSTALL) typos-cli --version $(TYPOS_VERSION) --root $(TYPOS_HOME)

.PHONY: typos
typos: $(TYPOS) ## Check the spelling of code and pages with typos.toml
	$(TYPOS) --format brief

# Not part of `test`, where Clippy reports what the standard library of that compiler lacks, and a test compares the versions that the
# dependencies name. A separate target directory: in the shared one, the two compilers would rebuild everything each time.
MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
.PHONY: msrv
msrv: ## Check the programs with the oldest compiler that Cargo.toml permits
	rustup toolchain install $(MSRV) --profile minimal --no-self-update
	$(CARGO) +$(MSRV) check --locked --workspace --target-dir $(abspath $(TARGET))/msrv

.PHONY: doc
doc: ## Build the documentation of all crates, warnings denied
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc --locked --workspace --no-deps --document-private-items

MDBOOK_VERSION := 0.5.4
MDBOOK_HOME := $(abspath $(TARGET))/tools/mdbook-$(MDBOOK_VERSION)
MDBOOK := $(MDBOOK_HOME)/bin/mdbook

$(MDBOOK):
	$(CARGO_INSTALL) mdbook --version $(MDBOOK_VERSION) --no-default-features --features search --root $(MDBOOK_HOME)

.PHONY: docs
docs: $(MDBOOK) ## Build the documentation site into target/book
	$(MDBOOK) build --dest-dir $(abspath $(TARGET))/book

# Part of `test`, whose run of the workspace has these tests.
.PHONY: test-node
test-node: build tools ## Run the tests of a real node: images, installation, runs as Jobs, and a sample of faults
	@rm -f $(SKIPPED)
	SLUICE_CLUSTER=1 SLUICE_SKIPPED=$(SKIPPED) $(CARGO) test --locked --workspace --no-fail-fast --test node 2>&1 | tee $(TARGET)/test-node.log
	$(print-skipped)

# The log and the results of a shard. The test prints the table of all shards of which there are results.
CHAOS = $(abspath $(TARGET))/chaos-$(subst /,-of-,$(or $(SHARD),1/1))
.PHONY: chaos
chaos: build tools ## Break each thing at each moment of a run on a real node (SLUICE_TRIALS=300, all: each pair of fault and moment once; SHARD=1/3: a third of them; SLUICE_NODES=4; SLUICE_SEED)
	@rm -f $(CHAOS).jsonl
	SLUICE_TRIALS=$(or $(SLUICE_TRIALS),300) SLUICE_SHARD=$(or $(SHARD),1/1) SLUICE_NODES=$(or $(SLUICE_NODES),4) SLUICE_CLUSTER=1 \
	  SLUICE_RESULTS=$(CHAOS).jsonl $(CARGO) test --locked --workspace --test node -- faults::no_fault --nocapture 2>&1 | tee $(CHAOS).log
	$(call one-passed,$(CHAOS).log)

.PHONY: nightly
nightly: tools msrv audit ## Run the long checks: the oldest compiler, make audit, the closure's soundness suite with all 500 trees, 10,000 writes and 100 kills of the Git store, the bucket on Azurite, and make images-reproducible
	@cli=$$(SLUICE_CLI=$(SLUICE_CLI) $(TARGET)/debug/harness-cli); echo "== All trees, with $$cli"
	SLUICE_TREES=500 $(CARGO) test --locked --workspace --lib different_results_of_the_real_cli -- --nocapture
	@echo "== The Git store: 10,000 writes by eight writers, and 100 kills of a process that writes"
	SLUICE_WRITES=10000 SLUICE_STOPS=100 $(CARGO) test --locked --workspace --test it git_store_writers 2>&1 | tee $(TARGET)/nightly-store.log
	@grep -q '^test git_store_writers::two_servers.* ok$$' $(TARGET)/nightly-store.log || { echo "== The writers of the Git store did not run: was their test renamed?"; exit 1; }
	@echo "== The bucket of artifacts on Azurite, which needs Node.js and npm"
	$(CARGO) test --locked --workspace --lib the_scenarios_hold_on_azure -- --ignored 2>&1 | tee $(TARGET)/nightly-azure.log
	@grep -q '^test .*the_scenarios_hold_on_azure.* ok$$' $(TARGET)/nightly-azure.log || { echo "== The scenarios did not run on Azurite: was their test renamed?"; exit 1; }
	@echo "== The images of a release: reproducible, and within their limit"
	@$(MAKE) --no-print-directory images-reproducible

# One build of everything, so that later targets find their dependencies compiled.
.PHONY: build
build: ## Build all crates, programs and tests
	$(CARGO) build --locked --workspace --all-targets

.PHONY: fmt
fmt: ## Check the format
	$(CARGO) fmt --all -- --check

.PHONY: fmt-fix
fmt-fix: ## Format the code
	$(CARGO) fmt --all

.PHONY: lint
lint: ## Run Clippy, warnings denied
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

.PHONY: manifests
manifests: ## Generate the definitions in config from the types, copy those of config/crd into the chart, and render the overlays for `sluice install`
	$(CARGO) run --locked -q -p sluice-api --bin crdgen
	cp config/crd/bases/infra.*.yaml charts/sluice/crds/
	cp config/crd/bases/source.*.yaml charts/sluice/charts/gitrepositories/crds/
	@for overlay in config/overlays/*/; do name=$$(basename $$overlay); \
	  { echo "# Generated from config/overlays/$$name by make manifests; do not edit."; kubectl kustomize $$overlay; } > cli/manifests/$$name.yaml; \
	done

.PHONY: check-manifests
check-manifests: build ## Fail if a definition in config differs from the types, or the chart from config/crd
	$(TARGET)/debug/crdgen --check
	diff -r -x 'source.*' config/crd/bases charts/sluice/crds
	diff -r -x 'infra.*' config/crd/bases charts/sluice/charts/gitrepositories/crds

.PHONY: tools
tools: build ## Build OpenTofu, the trial provider, Helm, promtool, Flux's source-controller and command-line client, and the programs of a Kubernetes node from pinned Go modules (cached under target/)
	$(TARGET)/debug/harness-build terraform-provider-trial tofu helm promtool dashboard-check artifact-consumer controller-example attack pause etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy coredns flux-source-controller flux

# The program is built with flags of its own, in a directory of its own. CLI is a path; TOOLS has the form of --tools-dir.
IMAGES := $(abspath $(TARGET))/images
HARNESS_BUILD = $(CARGO) run --locked -q -p sluice-harness --bin harness-build --
.PHONY: images
images: ## Pack the images and their SBOMs into target/images (REGISTRY=registry.example.com/sluice, TAG=0.1.0, CLI=/path/of/terraform, TOOLS=directory of more versions)
	@export SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}; \
	cli=$(if $(CLI),$(CLI),$$($(HARNESS_BUILD) tofu)); \
	CARGO=$(CARGO) sh images/build.sh $(IMAGES)/build; \
	$(CARGO) run --locked -q -p sluice-images --bin images -- pack --program $(IMAGES)/build/release/sluice --output $(IMAGES) \
	  --cli $$cli $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(TAG),--tag $(TAG)) $(if $(TOOLS),--tools-dir $(TOOLS))

.PHONY: images-reproducible
images-reproducible: ## Build and pack the images of the last commit twice, in two directories, and compare them, and their sizes with the page; fails too if one of a controller exceeds 60 MB
	@cli=$(if $(CLI),$(abspath $(CLI)),$$($(HARNESS_BUILD) tofu)); sh images/reproducible.sh $$cli

# A snapshot of Debian's archive, from which images/Containerfile takes the packages, is at most six hours behind it.
.PHONY: images-lock
images-lock: ## Lock the newest versions of the Debian packages of the images (on Debian 12)
	$(CARGO) run --locked -q -p sluice-images --bin images -- lock
	sed -i "s/^ARG SNAPSHOT=.*/ARG SNAPSHOT=$$(date -u -d '6 hours' +%Y%m%dT%H0000Z)/" images/Containerfile

# Coverage comes from flags of the stable compiler. With an explicit --target they do not apply to build scripts.
FUZZ = --locked --manifest-path fuzz/Cargo.toml
FUZZ_FLAGS := --cfg fuzzing -Cpasses=sancov-module $(addprefix -Cllvm-args=-sanitizer-coverage-,level=4 inline-8bit-counters pc-table trace-compares)
HOST = $(shell rustc -vV | sed -n 's/^host: //p')

.PHONY: lint-fuzz
lint-fuzz: lint ## Compile and lint the fuzz targets
	$(CARGO) clippy $(FUZZ) --target-dir $(TARGET) --workspace --all-targets -- -D warnings

.PHONY: fuzz-lock
fuzz-lock: ## Generate the lock file of the fuzz targets from that of the workspace
	cp Cargo.lock fuzz/Cargo.lock
	cd fuzz && $(CARGO) metadata --format-version 1 >/dev/null

.PHONY: fuzz
fuzz: ## Run the fuzz targets, 20 s each (FOR=seconds, ONLY="template state" for some); findings are below target/fuzz
	@mkdir -p $(TARGET)/fuzz/found; found=$$(cd $(TARGET)/fuzz && pwd); \
	names=$$(cd fuzz && ls corpus); [ -z "$(ONLY)" ] || names="$(ONLY)"; \
	RUSTFLAGS="$(FUZZ_FLAGS)" $(CARGO) build $(FUZZ) --profile fuzz --workspace --target $(HOST) --target-dir $$found $$(printf -- ' --bin %s' $$names); \
	for name in $$names; do \
	  echo "== $$name"; mkdir -p $$found/corpus/$$name; \
	  $$found/$(HOST)/fuzz/$$name -max_total_time=$(or $(FOR),20) -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
	    -artifact_prefix=$$found/found/$$name- $$found/corpus/$$name fuzz/corpus/$$name; \
	done
