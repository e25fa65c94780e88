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
	$(CARGO) build --locked -p sluice -p sluice-tests --bins
	$(TARGET)/debug/demo $(if $(KEEP),--keep)

.PHONY: test
test: fmt lint check-manifests tools ## Everything: format, lints, unit, reconcilers, conformance, the story on a real API server
	SLUICE_CLUSTER=1 $(CARGO) test --locked --workspace --no-fail-fast

.PHONY: test-fast
test-fast: fmt lint check-manifests ## As test, without what needs the built kube-apiserver
	SLUICE_CLUSTER=0 $(CARGO) test --locked --workspace --no-fail-fast

.PHONY: fmt
fmt: ## Check the format
	$(CARGO) fmt --all -- --check

.PHONY: lint
lint: ## Clippy, warnings denied
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

.PHONY: manifests
manifests: ## Generate config/crd/bases from the types
	$(CARGO) run --locked -q -p sluice-api --bin crdgen

.PHONY: check-manifests
check-manifests: ## Fail when config/crd/bases is not what the types say
	$(CARGO) run --locked -q -p sluice-api --bin crdgen -- --check

.PHONY: tools
tools: ## Build etcd and kube-apiserver from pinned Go modules (cached under target/)
	$(CARGO) run --locked -q -p sluice-harness --bin harness-build -- etcd kube-apiserver

.PHONY: fmt-fix
fmt-fix: ## Format the code
	$(CARGO) fmt --all
