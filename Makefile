# Everything a developer types. Nothing here is needed to use Millrace:
# `go run ./cmd/millrace serve examples/site` and `go test ./...` do without make.

GO       ?= go
FUZZTIME ?= 10s # for each fuzz target
COUNT    ?= 6   # how often each benchmark runs, for benchstat

# The product is pure Go: the same static binary on every Linux machine.
export CGO_ENABLED = 0

# Without this tag the image encoders look for an installed libwebp and libavif,
# and their way to load those makes the binary a dynamically linked one.
STATIC = -tags nodynamic

.PHONY: build release packages test race fuzz lint bench pgo docs clean

build: ## static binaries: bin/millrace, bin/millrace-lab; what CGO_ENABLED=0 go run has compiled is not compiled again
	$(GO) build $(STATIC) -ldflags=-s -o bin/ ./cmd/millrace ./cmd/millrace-lab

release: ## as it is published: without the paths of this machine in it, which compiles everything anew
	GO=$(GO) packaging/compile -o bin/millrace ./cmd/millrace

packages: ## archives, deb, rpm, container images, lists of modules and sums, in dist; docs/install.md
	packaging/build dist

test: ## all tests (what README calls command 2)
	$(GO) test ./...

race: ## all tests under the race detector, which is the one thing that needs a C compiler
	@command -v "$$($(GO) env CC)" >/dev/null || { echo "make race: the race detector needs a C compiler: install gcc"; exit 1; }
	CGO_ENABLED=1 $(GO) test -race ./...

fuzz: ## every fuzz target, FUZZTIME each
	GO=$(GO) packaging/tools/fuzz $(strip $(FUZZTIME))

lint: bin/tools/golangci-lint ## gofumpt, vet, the linters of .golangci.yml; packaging/tools/go.mod pins the versions
	bin/tools/golangci-lint fmt --diff
	bin/tools/golangci-lint run

bench: ## micro-benchmarks; compare two runs with: go tool -modfile=packaging/tools/go.mod benchstat OLD NEW
	$(GO) test -run='^$$' -bench=. -benchmem -count=$(strip $(COUNT)) ./...

pgo: ## record the profile that builds are optimised by: docs/pgo.md says what is measured before it is kept
	GO=$(GO) packaging/tools/pgo

docs: ## what is made from code and results and checked in: docs/config.md, the schema, the man page, the example config, README's chart, the packages in ARCHITECTURE.md
	$(GO) test ./internal/config -run TestDocuments -update
	$(GO) test ./cmd/millrace ./cmd/internal/labcmd -run 'TestManual|TestExample' -update
	$(GO) test . -run 'TestPerformanceChart|TestPackageList' -update

clean: ## everything that was built here
	rm -rf bin dist

# Compiled once per version: it takes minutes.
bin/tools/golangci-lint: packaging/tools/go.mod packaging/tools/go.sum
	$(GO) build -C packaging/tools -trimpath -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@
