# Two commands do everything on a machine with Go and Node: `make demo` and `make test`. What test-all runs against
# needs Python as well.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# go.mod names the Go release; an older go fetches it.
export GOTOOLCHAIN := auto

NODE_DIR  := internal/mcptest/node
NODE_DONE := $(NODE_DIR)/node_modules/.installed
PYTHON    ?= python3
PY_DONE   := .deps/python/mcp1/.installed .deps/python/mcp2/.installed
UV_DONE   := .deps/python/packaging/.installed
GO_SERVER := .deps/bin/everything-server
CROSS     := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X main.version=$(VERSION)
FUZZTIME  ?= 10s

.PHONY: help demo build image test test-all test-long test-deploy test-release bench fuzz lint vet staticcheck format cross release deps deps-test node python postgres clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 16

demo: build ## the Crossroads walk-through, served and played on this machine
	./fsm-proxy demo

build: ## ./fsm-proxy for this system
	go build -trimpath -ldflags '$(LDFLAGS)' -o fsm-proxy ./cmd/fsm-proxy

image: ## the image of .ko.yaml for both systems, pushed to KO_DOCKER_REPO
	VERSION='$(VERSION)' go run github.com/google/ko@v0.19.1 build --bare ./cmd/fsm-proxy

test: deps-test ## install what the tests need, then run them with the race detector
	go test -race -timeout 10m ./...

test-all: test test-long test-deploy test-release ## test, and the conformance suite, the client matrix, the long tests, deploy/ and a release

# The long tests stand behind a build tag, so that leaving them out reads as absence and not as a green
# skip. Only they are run here; `test` has run all others. The second half is run though the first fails, so that one
# run shows all that is wrong.
test-long: deps
	set -f; failed=0; \
	raced=$$(.ci/long-tests raced); plain=$$(.ci/long-tests plain); \
	go test -race -tags long -timeout 40m -parallel 4 $$raced || failed=1; \
	go test -tags long -timeout 40m -parallel 8 $$plain || failed=1; \
	exit $$failed

# A module of its own: the libraries of Kubernetes, Helm and Prometheus are none of fsm-proxy's, and take minutes to
# compile for the first time.
test-deploy: deps-test ## what Kubernetes, Kustomize, Helm and Prometheus say of deploy/
	cd deploy/checks && go vet ./... && go test -timeout 15m ./...

# A module of its own, too: what packages are written with is none of fsm-proxy's.
test-release: node python $(UV_DONE) ## what `make release` makes, installed by npm, pip, uv and dpkg
	cd deploy/release && go vet ./... && go test -timeout 15m ./...

bench: ## the table of docs/performance.md
	go run ./internal/bench

fuzz: ## a short run of every fuzz target in the repository
	FUZZTIME=$(FUZZTIME) .ci/fuzz

lint: vet staticcheck format ## go vet, staticcheck, gofmt

vet:
	go vet ./...
	go vet -tags long ./...

staticcheck:
	go tool staticcheck -tags long ./...

format:
	@unformatted=$$("$$(go env GOROOT)/bin/gofmt" -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [[ -n $$unformatted ]]; then echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

cross: ## build for every system that is released
	@for target in $(CROSS); do \
		echo "building for $$target"; \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} go build -trimpath ./...; \
	done

release: ## archives, packages, SBOMs and checksums in dist/, stamped with the version
	@VERSION='$(VERSION)' LDFLAGS='$(LDFLAGS)' CROSS='$(CROSS)' .ci/release

deps: deps-test python $(PY_DONE) postgres ## what all tests run against: npm packages, a Node 22, Python packages, the conformance server, PostgreSQL, PgBouncer

deps-test: node $(NODE_DONE) $(GO_SERVER) # what `make test` needs of it

node:
	@command -v node >/dev/null && command -v npm >/dev/null || { \
		echo "the tests run against real MCP servers and clients, which need Node.js 20 or newer with npm:" >&2; \
		echo "install it from https://nodejs.org or by your package manager, then run make again" >&2; exit 1; }

postgres:
	@.ci/postgres

python:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
		echo "the long tests run against MCP servers and clients in Python, which need Python 3.10 or newer with venv:" >&2; \
		echo "install python3 and python3-venv by your package manager, or from https://www.python.org, then run make again;" >&2; \
		echo "where it has another name: make PYTHON=python3.12 …" >&2; exit 1; }

$(NODE_DONE): $(NODE_DIR)/package.json $(NODE_DIR)/package-lock.json
	cd $(NODE_DIR) && npm ci --no-audit --no-fund --loglevel=error
	$(NODE_DIR)/node_modules/node/bin/node --version
	touch $@

# Each version of the Python SDK has an environment of its own. The files pin everything, so pip resolves nothing.
.deps/python/%/.installed: internal/mcptest/python/%.txt
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes -r $<
	$(@D)/bin/python --version
	touch $@

$(GO_SERVER): go.mod
	go build -o $@ github.com/modelcontextprotocol/go-sdk/conformance/everything-server

clean: ## remove what was installed and built
	rm -rf $(NODE_DIR)/node_modules .deps dist fsm-proxy fsm-proxy.exe
