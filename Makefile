# Every target does its own set-up and does it once: `make test` on a clean checkout is enough.
# Needed beforehand: Python 3.11 or newer, make, and the package registries. What only root can install (Node.js
# for what comes from npm, Redis, nginx) is installed by root on Debian; anybody else is told what is missing.
#
#   PYTHON=python3.12   which Python to make .venv with      ARGS="-k gate"   more arguments for pytest and scripts

.DEFAULT_GOAL := help
.SUFFIXES:
MAKEFLAGS += --no-print-directory

FOUND := $(shell sh scripts/find-python.sh $(PYTHON))
PREPARE := $(if $(FOUND),$(FOUND) scripts/prepare.py,@echo "Python 3.11 or newer not found: looked for $(or $(PYTHON),python3)" >&2; exit 3;)
RUN := .venv/bin/python
# twice as many workers as CI has cores: half of what tests do is to wait for processes and sockets
PYTEST := $(RUN) -m pytest -n 4 --dist worksteal
PYRIGHT := PYRIGHT_PYTHON_CACHE_DIR=.cache/pyright PYRIGHT_PYTHON_GLOBAL_NODE=0 PYRIGHT_PYTHON_IGNORE_WARNINGS=1 .venv/bin/pyright
# what a run compiles is there for the processes that its tests start, and for the next run
unexport PYTHONDONTWRITEBYTECODE
CODE := afpool actors tests examples benchmarks scripts
UNFINISHED := TO[D]O|FIX[M]E|XX[X]|HA[C]K

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: ## show the runtime at work: tenants, servers, refusals, all on this machine
	@$(PREPARE) run
	@$(RUN) -m afpool demo $(ARGS)

.PHONY: explain-demo
explain-demo: ## every way in which a call can end, and what the record says of it, checked against what was done
	@$(PREPARE) test
	@$(RUN) -m tests.explain $(ARGS)

.PHONY: test
test: ## all tests, including those against real MCP servers, agent frameworks, Redis and nginx
	@$(PREPARE) test redis nginx peers frameworks browser
	@AFPOOL_REQUIRE_PEERS=1 $(PYTEST) $(ARGS)

.PHONY: test-quick
test-quick: ## the tests that need no other server
	@$(PREPARE) test
	@$(PYTEST) -m "not peer" $(ARGS)

.PHONY: lint
lint: ## style, types, import directions, unfinished marks
	@$(PREPARE) dev
	.venv/bin/ruff check --output-format concise .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	$(PYRIGHT)
	.venv/bin/lint-imports
	@! grep -IrsnwE --exclude-dir=__pycache__ '$(UNFINISHED)' $(CODE) docs README.md

.PHONY: prepared
prepared: ## only put in place what other targets need: FOR="dev redis nginx peers", as in scripts/prepare.py
	@$(PREPARE) $(or $(FOR),dev)

.PHONY: peers
peers: ## only install the real MCP servers that the tests start
	@$(PREPARE) peers

.PHONY: frameworks
frameworks: ## the adapters, each with its real agent framework, in their own environment
	@$(PREPARE) test frameworks
	@AFPOOL_REQUIRE_PEERS=1 $(PYTEST) tests/adapters $(ARGS)

.PHONY: conformance
conformance: ## both sides of the official MCP conformance suite: the pool as a client, `afpool serve` as a server
	@$(PREPARE) test conformance
	@$(RUN) tests/conformance/run.py $(ARGS)

.PHONY: northbound
northbound: ## real MCP clients through `afpool serve`, each as two tenants at once
	@$(PREPARE) test peers northbound
	@$(RUN) tests/northbound/run.py $(ARGS)

.PHONY: servers
servers: ## real MCP servers on each of their transports: writes docs/real-servers.md (ARGS=--quick only compares)
	@$(PREPARE) run peers $(if $(findstring --quick,$(ARGS)),interop-quick,interop)
	@$(RUN) tests/interop/run.py $(ARGS)

.PHONY: browser
browser: ## the console's page in a real browser
	@$(PREPARE) test browser
	@AFPOOL_REQUIRE_PEERS=1 $(RUN) -m pytest tests/browser $(ARGS)

.PHONY: screenshots
screenshots: ## take the pictures of the console's page in the docs anew
	@$(PREPARE) test browser
	@$(RUN) scripts/screenshots.py $(ARGS)

.PHONY: seeds
seeds: ## run the tests that hold the promises the project grew from: writes docs/coverage-of-the-seeds.md
	@$(PREPARE) test redis nginx peers
	@AFPOOL_REQUIRE_PEERS=1 $(RUN) tests/seeds/run.py $(ARGS)

.PHONY: mutants
mutants: ## break the code in known ways and see that a test notices each
	@$(PREPARE) test
	@$(RUN) tests/mutants/run.py $(ARGS)
	@$(RUN) tests/mutation/run.py

.PHONY: faults
faults: ## the fault matrix: what each failure of a server costs
	@$(PREPARE) dev peers
	@$(RUN) benchmarks/faults.py $(ARGS)

.PHONY: soak
soak: ## 50 identities at 5 servers, everything random, for SECONDS=60: isolation by the servers' own logs, and no leak
	@$(PREPARE) test
	@$(RUN) benchmarks/soak.py --seconds $(or $(SECONDS),60) $(ARGS)

.PHONY: neighbours
neighbours: ## what one tenant's trouble costs the others, on the wall clock
	@$(PREPARE) dev
	@$(RUN) benchmarks/neighbours.py $(ARGS)

.PHONY: comparison
comparison: ## the same faults and the same two users, with other MCP clients: writes docs/comparison.md
	@$(PREPARE) test comparison
	@$(RUN) benchmarks/comparison/run.py $(ARGS)

.PHONY: audit
audit: ## known vulnerabilities of what is locked
	@$(PREPARE) dev
	@$(RUN) scripts/audit.py $(ARGS)

.PHONY: explore
explore: ## walk through every order of messages of a key, in small worlds; ARGS=--deep for wider ones
	@$(PREPARE) test
	@$(RUN) tests/pool/explore.py $(ARGS)

.PHONY: simulate
simulate: ## simulated worlds with faults everywhere: SEEDS=300 fresh ones (ARGS="--seed N" shows one)
	@$(PREPARE) test
	@$(RUN) tests/simulation/simulate.py $(or $(SEEDS),300) $(ARGS)

.PHONY: bench-quick
bench-quick: ## the main numbers in about a minute
	@$(PREPARE) dev
	@$(RUN) benchmarks/quick.py $(ARGS)

.PHONY: bench-openings
bench-openings: ## opening a client and making its first call, beside the official SDK
	@$(PREPARE) dev peers
	@$(RUN) benchmarks/openings.py $(ARGS)

.PHONY: bench
bench: ## all measurements beside the loop by hand and other clients, each bar marked as met or not
	@$(PREPARE) dev peers northbound
	@$(RUN) benchmarks/run.py $(ARGS)

.PHONY: bench-instructions
bench-instructions: ## what a warm call takes, counted in instructions
	@$(PREPARE) test
	@$(RUN) benchmarks/instructions.py $(ARGS)

.PHONY: bench-tools
bench-tools: ## the door and what stands around it, each figure beside its limit; fails when one is missed
	@$(PREPARE) dev redis
	@$(RUN) benchmarks/tools.py --all --redis $(ARGS)

.PHONY: bench-artifacts
bench-artifacts: ## artifact stores: puts beside bare commits, pages of long lists
	@$(PREPARE) dev redis
	@$(RUN) benchmarks/artifacts.py --redis $(ARGS)

.PHONY: bench-startup
bench-startup: ## how long the command line takes to begin
	@$(PREPARE) run
	@$(RUN) benchmarks/startup.py $(ARGS)

.PHONY: bench-serve
bench-serve: ## the service beside the official SDK's server and FastMCP's proxy; idle sessions
	@$(PREPARE) dev northbound
	@$(RUN) benchmarks/serve.py $(ARGS)

.PHONY: bench-aio
bench-aio: ## calls from asyncio and from threads, beside the same call on trio's side
	@$(PREPARE) dev
	@$(RUN) benchmarks/aio.py $(ARGS)

.PHONY: bench-console
bench-console: ## what a console that follows everything costs the calls that it follows
	@$(PREPARE) dev
	@$(RUN) benchmarks/console.py $(ARGS)

.PHONY: bench-console-keys
bench-console-keys: ## how long what is asked of 10,000 keys holds the loop
	@$(PREPARE) dev
	@$(RUN) benchmarks/console_keys.py $(ARGS)

.PHONY: bench-record
bench-record: ## what the record costs a call: off, in the ring, with sinks; what hooks cost with nothing on them
	@$(PREPARE) test
	@$(RUN) benchmarks/record.py $(ARGS)

.PHONY: bench-memory
bench-memory: ## memory and descriptors per idle identity
	@$(PREPARE) dev
	@$(RUN) benchmarks/memory.py $(ARGS)

.PHONY: lock
lock: ## resolve the lock files anew (ARGS=--upgrade to take newer versions)
	@$(if $(FOUND),$(FOUND) scripts/lock.py $(ARGS),$(PREPARE))

.PHONY: nightly
nightly: ## the quick tests on every newer Python found on this machine
	@$(if $(FOUND),$(FOUND) scripts/nightly.py $(ARGS),$(PREPARE))

.PHONY: bare-debian
bare-debian: ## demo and test in a bare Debian 12, as root and as another user (needs root)
	@bash scripts/bare-debian.sh $(ARGS)

.PHONY: clean
clean: ## remove everything that make put here
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage* build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
