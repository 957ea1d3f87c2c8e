# Holdfast: what can be made. `make` alone lists it.
#
# Every target runs from a clean clone; nothing is written outside the clone
# but Go's caches and the tools' (scripts/tool.sh), and Docker's images. CI runs
# .ci/run, which is verify, test and the other tests.

SHELL       := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Arguments for `make dev`, as in: make dev ARGS='--addr 127.0.0.1:8080'; for
# `make up` and `make down` Compose's, as in: make down ARGS=-v
ARGS ?=
# How long each fuzz target runs, and which: make fuzz FUZZTIME=5m FUZZ=Envelope
FUZZTIME ?= 10s
FUZZ     ?= .
# Narrow a test run: make test PKG=./services/session/... RUN=TestDecide
PKG ?=
RUN ?=
# The program that measures, and its arguments.
BENCH      ?= ./services/e2e/bench
BENCH_ARGS ?=
# The load's arguments: make load LOAD_ARGS='-soak 20m -rate 2'
LOAD_ARGS  ?=
# The version that the binaries print.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# A test that waits for something that never comes prints its goroutines after
# this long, well before whoever started the run gives up.
TEST_TIMEOUT ?= 8m
# The kills restart whole programs again and again.
FAULT_TIMEOUT ?= 20m

# The suites of services/e2e that take minutes each have a target of their own, and
# one after the other: they fill disks, kill processes and want the whole machine.
SLOW        := agents|baddays|bench|console|isolation|large|processes
# What is tested against a real API server: without KUBEBUILDER_ASSETS, as in make
# test, those tests are skipped, loudly. Nothing of them is taken from Go's cache, which
# sees neither the chart nor the programs of Kubernetes.
KUBE        := internal/kubetest|workload/internal/(agentsandbox|podtemplate|tokenreview)|e2e/(chart|kube)
CLUSTER_PKG := ./events/eventlog/...
FAULT_PKG   := ./services/e2e/faults/...
AGUI_PKG    := ./services/e2e/aguinorth/...
# The image that make images builds, and that make up and test-containers run.
IMAGE         ?= $(or $(HOLDFAST_IMAGE),holdfast:local)
# What an image of this clone's commit is labelled with; of another name's nothing is
# asked, since it was built elsewhere.
FROM_HERE      = $(if $(filter holdfast:local,$(IMAGE)),io.holdfast.version:$(VERSION),map)
CONTAINER_PKG := ./services/e2e/containers/...
NODE_PKG      := ./services/e2e/node

##@ Run

.PHONY: help
help: ## List what can be made
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5); next } \
		/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nVariables: ARGS (dev, up, down), PKG and RUN (test), FUZZ and FUZZTIME (fuzz), BENCH_ARGS (bench)\n'

.PHONY: dev
dev: ## Start everything in one process on this machine
	@scripts/prereq.sh linux go cc postgres
	@exec go run ./services/holdfast dev $(ARGS)

.PHONY: build
build: ## Build bin/holdfast and bin/sandboxd
	@scripts/prereq.sh go
	CGO_ENABLED=0 go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/ ./services/holdfast ./services/sandboxd

##@ Run in containers

.PHONY: images
images: ## Build the image holdfast:local, from public bases or stand-ins for them
	@scripts/prereq.sh linux go docker
	scripts/docker-images.sh $(IMAGE) $(VERSION)

.PHONY: up
up: ## Start every service apart, on a NATS cluster and Postgres (docs/compose.md)
	@scripts/prereq.sh linux go docker
	@docker image inspect --format '{{.Config.Labels}}' $(IMAGE) 2>/dev/null | grep -qF '$(FROM_HERE)' || $(MAKE) --no-print-directory images
	@HOLDFAST_IMAGE=$(IMAGE) scripts/compose.sh up $(ARGS)

.PHONY: down
down: ## Stop what make up started; with ARGS=-v forget its data, too
	@HOLDFAST_IMAGE=$(IMAGE) scripts/compose.sh down $(ARGS)

##@ Test

.PHONY: test
test: ## Run the tests of every module with the race detector, but the slow suites
	@scripts/prereq.sh linux go cc postgres
	go test -race -timeout $(TEST_TIMEOUT) $(if $(RUN),-run '$(RUN)') $(or $(PKG),$$(go list work | grep -vE '/services/e2e/($(SLOW))(/|$$)'))

.PHONY: test-slow
test-slow: ## Run the slow suites: agents, bad days, the bench, the console, isolation, large contents, replicas
	@scripts/prereq.sh linux go cc postgres
	go test -race -p 1 -timeout $(FAULT_TIMEOUT) $(if $(RUN),-run '$(RUN)') $$(go list work | grep -E '/services/e2e/($(SLOW))(/|$$)')
	go test -p 1 -timeout $(FAULT_TIMEOUT) -run '$(or $(RUN),TestManyOpenSessions|TestLongSession|TestOutput|TestMegabytes|TestTheLimit)' ./services/e2e/baddays ./services/e2e/isolation ./services/e2e/large

.PHONY: test-kube
test-kube: ## Run what needs Kubernetes against a real API server (docs/kubernetes-tests.md)
	@scripts/prereq.sh linux go cc postgres
	assets=$$(scripts/kube.sh --path) && helm=$$(scripts/tool.sh --path helm) && \
		KUBEBUILDER_ASSETS=$$assets HOLDFAST_HELM=$$helm HOLDFAST_REQUIRE_KUBE=1 \
		go test -race -count=1 -p 1 -timeout $(FAULT_TIMEOUT) $(if $(RUN),-run '$(RUN)') $(or $(PKG),$$(go list work | grep -E '/services/($(KUBE))(/|$$)'))

.PHONY: test-cluster
test-cluster: ## Run the log's suite on three clustered NATS servers
	@scripts/prereq.sh linux go cc
	HOLDFAST_TEST_CLUSTER=1 go test -race -count=1 -timeout $(TEST_TIMEOUT) -tags cluster $(CLUSTER_PKG)

.PHONY: test-faults
test-faults: ## Kill the built binary at every failpoint and look at what is left
	@scripts/prereq.sh linux go cc postgres
	go test -race -count=1 -timeout $(FAULT_TIMEOUT) -tags failpoint $(FAULT_PKG)

.PHONY: test-agui
test-agui: ## Run the official AG-UI client, from npm, against the whole program
	@scripts/prereq.sh linux go cc postgres node
	client=$$(scripts/agui-client.sh) && HOLDFAST_AGUI_CLIENT=$$client go test -race -count=1 -timeout $(TEST_TIMEOUT) $(AGUI_PKG)

.PHONY: test-containers
test-containers: images ## Kill and pause the containers of a whole installation, one after the other
	HOLDFAST_IMAGE=$(IMAGE) HOLDFAST_REQUIRE_DOCKER=1 go test -race -count=1 -timeout $(FAULT_TIMEOUT) -tags containers $(if $(RUN),-run '$(RUN)') $(CONTAINER_PKG)

.PHONY: test-node
test-node: ## As root: run Holdfast by its chart on a real Kubernetes node of this machine
	@scripts/prereq.sh linux go postgres
	scripts/node.sh $(NODE_PKG) -test.v -test.timeout $(FAULT_TIMEOUT) $(if $(RUN),-test.run '$(RUN)')

.PHONY: test-node-policy
test-node-policy: ## The same with network policies enforced, tried from inside a sandbox
	@scripts/prereq.sh linux go postgres
	HOLDFAST_NODE_POLICY=1 scripts/node.sh $(NODE_PKG) -test.v -test.timeout $(FAULT_TIMEOUT) -test.run '$(or $(RUN),TestNetworkPolicy|TestDoctor)'

.PHONY: test-node-gvisor
test-node-gvisor: ## The same with sandboxes in gVisor, which the doctor proves
	@scripts/prereq.sh linux go postgres
	HOLDFAST_NODE_GVISOR=1 HOLDFAST_NODE_POLICY=1 scripts/node.sh $(NODE_PKG) -test.v -test.timeout $(FAULT_TIMEOUT) -test.run '$(or $(RUN),TestDoctor|TestGVisor)'

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (10s)
	@scripts/prereq.sh go
	scripts/fuzz.sh $(FUZZTIME) '$(FUZZ)'

.PHONY: bench
bench: ## Measure, each figure beside its baseline (docs/benchmarks.md)
	@scripts/prereq.sh linux go postgres
	go run $(BENCH) $(BENCH_ARGS)

.PHONY: bench-kube
bench-kube: ## Measure sessions on Kubernetes beside bare claims, on one API server
	@scripts/prereq.sh linux go cc postgres
	assets=$$(scripts/kube.sh --path) && KUBEBUILDER_ASSETS=$$assets HOLDFAST_REQUIRE_KUBE=1 \
		go test -v -count=1 -timeout 40m -run '^TestSpeed$$' ./services/e2e/kube -speed $(BENCH_ARGS)

.PHONY: load
load: ## Load the whole at rising rates, visits that live a session's life
	@scripts/prereq.sh linux go postgres
	go run ./services/e2e/load $(LOAD_ARGS)

##@ Change

.PHONY: generate
generate: ## Write again what comes from the API's specs and the SQL
	@scripts/prereq.sh go
	scripts/generate.sh

.PHONY: fmt
fmt: ## Format every Go file
	@scripts/prereq.sh go
	scripts/gofiles.sh | xargs -0 scripts/tool.sh gofumpt -w

.PHONY: tidy
tidy: ## Tidy every module's go.mod
	@scripts/prereq.sh go
	scripts/each-module.sh go mod tidy

.PHONY: lint
lint: ## Run golangci-lint alone
	@scripts/prereq.sh go
	scripts/verify.sh lint

.PHONY: verify
verify: ## Check all that CI checks besides the tests
	@scripts/prereq.sh go git
	scripts/verify.sh

.PHONY: clean
clean: ## Remove what make build made
	rm -rf bin
