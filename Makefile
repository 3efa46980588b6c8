# Everything a developer or CI runs. It needs Go, git and make; what else is needed is fetched at a pinned version, and a
# database is found or started by internal/cmd/withdb.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

WITHDB := go run ./internal/cmd/withdb --
LINTER := go tool -modfile=tools/go.mod golangci-lint

# The race detector needs a C compiler.
RACE := $(if $(shell command -v "$$(go env CC)"),-race)
# Shuffling also keeps results from being cached: the suite is about races and a real database.
TEST := go test $(RACE) -shuffle=on -timeout=20m

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: mqctl ## compile every package, and bin/mqctl
	go build ./...

.PHONY: mqctl
mqctl: ## build bin/mqctl, the operator's tool
	go build -o bin/mqctl ./cmd/mqctl

.PHONY: test
test: ## run the whole suite on a real database, with the race detector
	$(if $(RACE),,@echo 'no C compiler: the race detector is off')
	$(WITHDB) $(TEST) ./...

.PHONY: test-servers
test-servers: ## run the conformance suite on servers with other defaults
	MQ_TEST_SERVER=transaction-isolation=READ-COMMITTED $(TEST) -run TestConformance ./backend/mysql
	MQ_TEST_SERVER=innodb-snapshot-isolation=ON $(TEST) -run TestConformance ./backend/mysql

SHARDS := 2
WITHVITESS := go run ./internal/cmd/withvitess -shards $(SHARDS)

.PHONY: vitess-programs
vitess-programs: ## build Vitess's programs from the module vitess, a few minutes the first time
	mkdir -p bin/vitess
	cd vitess && go build -o ../bin/vitess/ vitess.io/vitess/go/cmd/{vtgate,vttablet,vtctldclient}

.PHONY: vitess-up
vitess-up: vitess-programs ## start a Vitess cluster of SHARDS shards that stays, with the tables in TABLES=dir too, and print its DSN
	@$(WITHVITESS) $(addprefix -tables ,$(TABLES)) up

.PHONY: vitess-down
vitess-down: ## stop the cluster of vitess-up
	@$(WITHVITESS) down

.PHONY: test-vitess
test-vitess: vitess-programs ## run the conformance suite, stress, faults and mqctl on a Vitess cluster of SHARDS shards
	$(WITHVITESS) run $(TEST) -p 1 -tags vitess -run TestVitess ./backend/mysql ./internal/vitesstest ./internal/operator ./cmd/mqctl

COUNT := 20
MINUTES := 10
.PHONY: soak
soak: ## run the conformance suite COUNT times, and the stress tests for MINUTES
	$(WITHDB) $(TEST) -timeout=0 -count=$(COUNT) -run TestConformance ./backend/memory ./backend/mysql
	end=$$((SECONDS + 60 * $(MINUTES))); while [ $$SECONDS -lt $$end ]; do \
	  $(WITHDB) $(TEST) -count=5 -run 'TestFenceLosesNoMessage|TestSettlingWhilePublishersRunLosesNothing|TestConcurrentSettlementsOfTwoGroups' ./backend/mysql; done

.PHONY: cover
cover: ## run the suite and write its coverage to coverage.html
	$(WITHDB) $(TEST) -coverpkg=./... -coverprofile=coverage.out ./...
	go tool cover -html=coverage.out -o coverage.html
	go tool cover -func=coverage.out | tail -n 1

# The services keep their tables beside the queue's: on Vitess both are in the keyspace from the start.
WITHDEMO := $(if $(VITESS),$(WITHVITESS) -tables examples/submitqueue -tables examples/stovepipe run,$(WITHDB))

.PHONY: demo
demo: $(if $(VITESS),vitess-programs) ## show a day of landings through the queue; REPLAY=file shows yours, VITESS=1 on SHARDS shards of Vitess
	go build -o bin/demo ./examples/demo
	$(WITHDEMO) bin/demo $(if $(VITESS),-vitess) $(if $(REPLAY),-replay '$(REPLAY)')

.PHONY: bench-program
bench-program:
	cd bench && go build -o ../bin/bench .

.PHONY: bench
bench: bench-program ## measure speed and cost beside other queues on a real database; SCENARIO=a,b picks some
	$(WITHDB) bin/bench $(if $(SCENARIO),-scenario '$(SCENARIO)')

.PHONY: bench-check
bench-check: bench-program ## compare the costs that depend on no machine with bench/check.json; UPDATE=1 renews it
	cd bench && go test .
	$(WITHDB) bin/bench -check bench/check.json $(if $(UPDATE),-update)

.PHONY: bench-vitess
bench-vitess: vitess-programs ## measure four tenants on two shards of Vitess beside one server
	cd bench && go build -o ../bin/bench-vitess ./vitess
	$(WITHDB) bin/bench-vitess

.PHONY: lint
lint: tidy-check ## check format, imports between layers, and what linters know
	go run ./internal/cmd/schema | diff backend/mysql/schema.sql - # else: make generate
	go run ./internal/cmd/configdoc | diff docs/configuration.md - # else: make generate
	$(LINTER) run
	$(LINTER) run --build-tags=vitess ./backend/mysql ./internal/vitesstest ./internal/operator ./cmd/mqctl
	cd bench && go tool -modfile=../tools/go.mod golangci-lint run --config=../.golangci.yml

.PHONY: generate
generate: ## make backend/mysql/schema.sql and docs/configuration.md from the code
	go run ./internal/cmd/schema > backend/mysql/schema.sql
	go run ./internal/cmd/configdoc > docs/configuration.md

.PHONY: fmt
fmt: ## format the code
	$(LINTER) fmt

.PHONY: tidy-check
tidy-check: ## check that each module lists what it uses (not vitess: its graph takes minutes to fetch)
	git ls-files 'go.mod' '*/go.mod' | grep -v '^vitess/' | while read -r mod; do (cd "$$(dirname "$$mod")" && go mod tidy -diff); done

.PHONY: clean
clean: ## remove what the other targets left
	rm -rf bin coverage.out coverage.html
