# The commands of this project. `make demo` and `make test` need nothing but Python 3.11 and a network to PyPI.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
PEERS := $(VENV)/.peers
# Two processes halve the time on two cores; `make test PARALLEL=` runs the tests in one, in order.
PARALLEL ?= -n 2 --dist worksteal
# Options of the benchmarks: `make bench BENCH='--records 1000000'`, and of some columns, into another
# place: `make bench BENCH='--columns kvmodels floor --results /tmp/r.json --docs /tmp/bench-docs'`.
BENCH ?=
# The two must name parametrised tests alike, and some names show a set.
export PYTHONHASHSEED ?= 0
# The tests start hundreds of processes. Where the environment forbids to keep what is compiled, as images of Python for
# containers do, each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test servers test-servers test-pythons check format lint types docs soak bench bench-growth clean

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Stamped last, so that an installation that was interrupted is made again from nothing.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import ensurepip, sqlite3, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "kvmodels needs Python 3.11 or newer with ensurepip, venv and sqlite3. On Debian and Ubuntu:" >&2; \
		echo "  apt-get update && apt-get install -y python3 python3-venv" >&2; \
		echo "or name another interpreter: make PYTHON=/path/to/python3.12" >&2; \
		exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,cli,connect,demo,fastapi,lmdb,otel,postgres,v8-codec]'
	@touch $(STAMP)

# `make demo DATABASE=postgresql://user@host/db` hands the URL over in the environment, where no list of processes shows it.
demo: $(STAMP) ## load 28,298 airports into one file, or into a server with DATABASE=postgresql://..., and query them
	$(BIN)/python examples/airports.py

# A third process runs while the others wait for timeouts and processes.
test: PARALLEL := -n 3 --dist worksteal
test: $(STAMP) ## run the tests (under 5 minutes)
	$(BIN)/python -m pytest $(PARALLEL)

servers: $(STAMP) ## install what check needs: PostgreSQL 15, pgbouncer, etcd 3.4, debootstrap (as root, on Debian 12), and Deno's backend
	@.ci/servers
	@DENO_DIR=$(VENV)/denokv $(BIN)/deno cache --quiet --no-lock --no-config npm:@deno/kv-linux-x64-gnu@0.14.0

test-servers: $(STAMP) ## run the tests on PostgreSQL and etcd that are not among those of `make test` (needs `make servers`)
	$(BIN)/python -m pytest $(PARALLEL) -m 'servers and not soak' --hypothesis-profile=check

test-pythons: ## run the tests on Python 3.13, 3.14 and 3.15 (as root, on Debian)
	.ci/pythons 3.13 3.14 3.15

# The libraries that kvmodels is compared with are nobody else's business.
$(PEERS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $(PEERS)

bench: $(PEERS) ## measure against peers and hand-written code, and write docs/benchmarks.md (20 minutes)
	$(BIN)/python -m benchmarks $(BENCH)

bench-growth: $(PEERS) ## measure at 10,000, 100,000 and 1,000,000 records, and write the page again
	$(BIN)/python -m benchmarks growth page $(BENCH)

soak: $(STAMP) ## run the long versions of the tests, and the tests on Python 3.13, 3.14 and 3.15
	$(BIN)/python -m pytest $(PARALLEL) -m soak --hypothesis-profile=soak
	$(MAKE) test-pythons

# Debian trixie, which has Python 3.13, does not move; 3.14 and 3.15 are those of sid, and belong to the soak.
check: format lint types docs ## everything that continuous integration runs
	.ci/pythons 3.13 -- tests/unit
	$(BIN)/python -m pytest $(PARALLEL) -m 'not soak' --hypothesis-profile=check

format: $(STAMP) ## refuse what the formatter would change
	$(BIN)/ruff format --check .

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/python tools/unasync.py --check

types: $(STAMP) ## mypy strict and pyright strict
	$(BIN)/mypy
	$(BIN)/pyright

docs: $(STAMP) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## remove everything that was made
	rm -rf $(VENV) site build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
