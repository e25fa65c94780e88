# The verbs of the project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
CARGO ?= cargo
TARGET ?= $(or $(CARGO_TARGET_DIR),target)

.PHONY: help
help: ## List the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

.PHONY: demo
demo: ## One Git push becomes an applied stack, shown step by step (KEEP=1 leaves it up)
	$(CARGO) build --locked --workspace --bins
	$(TARGET)/debug/demo $(if $(KEEP),--keep)

.PHONY: bench
bench: ## Overhead over the bare CLI, unchanged stacks at a new revision, idle stacks (STACKS=200 IDLE=1500; release build)
	$(CARGO) build --locked --release --workspace --bins
	$(TARGET)/release/bench --stacks $(or $(STACKS),200) --idle $(or $(IDLE),1500)

.PHONY: test
test: fmt build check-manifests tools lint ## Everything: format, lints, unit, reconcilers, conformance, the story on a real API server
	SLUICE_CLUSTER=1 $(CARGO) test --locked --workspace --no-fail-fast 2>&1 | tee $(TARGET)/test.log
	$(TARGET)/debug/compatibility $(TARGET)/test.log docs/compatibility*.md

.PHONY: test-fast
test-fast: fmt build check-manifests lint ## As test, without what needs the built kube-apiserver
	SLUICE_CLUSTER=0 $(CARGO) test --locked --workspace --no-fail-fast 2>&1 | tee $(TARGET)/test.log
	$(TARGET)/debug/compatibility $(TARGET)/test.log docs/compatibility*.md

# One build of everything: whatever runs afterwards finds its dependencies compiled.
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
lint: ## Clippy, warnings denied
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

.PHONY: manifests
manifests: ## Generate config/crd/bases from the types
	$(CARGO) run --locked -q -p sluice-api --bin crdgen

.PHONY: check-manifests
check-manifests: build ## Fail when config/crd/bases is not what the types say
	$(TARGET)/debug/crdgen --check

.PHONY: tools
tools: build ## Build etcd, kube-apiserver, its controller manager, OpenTofu and the trial provider from pinned Go modules (cached under target/)
	$(TARGET)/debug/harness-build terraform-provider-trial tofu etcd kube-apiserver kube-controller-manager
