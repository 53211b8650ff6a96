# Every target sets up what it needs: a fresh machine wants only Python 3.11+ and make. `make help` lists the targets.
PYTHON ?= python3
# An interpreter that is named, as in `make test PYTHON=python3.13`, gets an environment of its own.
ifeq ($(origin PYTHON),file)
VENV := .venv
else
VENV := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
endif
BIN := $(VENV)/bin
PACKAGES := webhook_verify booking_core booking_server booking_sdk booking_cli
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The processes of a run, and the next run, find the modules that one of them has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install run dev messages browser nginx caddy pgbouncer prometheus inspector test test-all explore mutants test-pythons test-cells versions check check-types check-style check-imports check-public-types bench isolation openapi sync-client resource docs pictures format lock release clean

install: $(VENV)/.test ## set up .venv with the pinned packages of every target

# A target installs the set of packages that it needs: a group of pyproject.toml, with its lock.
$(VENV)/.%: locks/%.txt scripts/install.py $(PACKAGES:%=%/pyproject.toml)
	$(PYTHON) scripts/install.py $(VENV) $*

PORT ?= 8000
run: $(VENV)/.run ## serve the demo; PORT=8001 for another port
	$(BIN)/booking demo --port $(PORT)

dev: $(VENV)/.run ## serve the demo, and restart it when the code changes
	$(BIN)/booking demo --port $(PORT) --reload

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | sort | expand -t 16

# In several processes, each with a PostgreSQL of its own: one more than the cores, since tests also wait. At most six,
# since a container sees the cores of its host.
TEST_PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() + 1, 6))')
PYTEST := $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist worksteal
test: install ## run the tests, on SQLite and PostgreSQL
	$(PYTEST) --part quick

# What is exhaustive: kills by the dozen, generated requests, upgrades, the command line on PostgreSQL.
# Random examples are the same in every run, so that a failure is caused by a change; SEED=4711 tries others.
SEED ?=
test-all: install ## run the exhaustive tests, which `make test` leaves out, and `versions`; SEED=4711 for other examples
	$(if $(SEED),BOOKING_TEST_MONEY_FROM=$(SEED) )$(PYTEST) --part exhaustive $(if $(SEED),--hypothesis-seed=$(SEED))
	$(BIN)/python -m scripts.versions

versions: install ## try each distribution with the lowest and the newest versions of its requirements
	$(BIN)/python -m scripts.versions

# More examples, kills and days than a change can wait for. The hosted workflow runs it weekly.
EXPLORED := EXAMPLES=50 ALL_DAYS=1 RESTORES=5 EVENTS=1000 BOOKINGS=200 REFUNDS=150 REFUND_KILLS=30 \
    DELIVERY_KILLS=20 ROLLING=60 MONEY=20 MAIL_BOOKINGS=200 MAIL_KILLS=20 FAILOVER=30 \
    OCTO_ORDERS=420 OCTO_KILLS=20
explore: install ## run all tests with a new seed and larger numbers, for an hour or more; SEED=4711 repeats a run
	@seed=$(or $(SEED),$$(date +%s)); echo "== repeat this run with: make explore SEED=$$seed"; \
	    export $(EXPLORED:%=BOOKING_TEST_%) BOOKING_TEST_MONEY_FROM=$$seed; $(PYTEST) --hypothesis-seed=$$seed

# In one process at a time, on SQLite, for an hour or more. `python -m scripts.mutants --help` has the random sample.
mutants: $(VENV)/.mutants ## change each decision of the modules that decide, and fail when tests find less than 90 %
	$(BIN)/python -m scripts.mutants

# The guest's page is looked at in Chromium, which no wheel carries: a Debian package brings it, where that can be installed.
browser:
	@command -v chromedriver >/dev/null || ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ] \
	    || { apt-get -qq update && apt-get -qq install --no-install-recommends chromium chromium-driver >/dev/null; } \
	    || echo "chromium could not be installed: its tests are skipped"

# The proxy of deploy/proxies, which the service is tested behind. Its package must not start it.
nginx:
	@command -v nginx >/dev/null || ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ] \
	    || { apt-get -qq update && RUNLEVEL=1 apt-get -qq install --no-install-recommends nginx-light >/dev/null; } \
	    || echo "nginx could not be installed: its tests are skipped"

# The other proxy of deploy/proxies. Its package must not start it.
caddy:
	@command -v caddy >/dev/null || ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ] \
	    || { apt-get -qq update && RUNLEVEL=1 apt-get -qq install --no-install-recommends caddy >/dev/null; } \
	    || echo "Caddy could not be installed: its tests are skipped"

# The pooler that the service is tested behind, built from Debian's source where none is installed that is new enough.
pgbouncer:
	@command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && scripts/install_pgbouncer.sh "$(CURDIR)/build/pgbouncer" \
	    || echo "PgBouncer could not be built: its tests are skipped"

# Prometheus and its promtool, which the alert rules and the dashboard are tested with. Its package must not start it.
prometheus:
	@command -v promtool >/dev/null || ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ] \
	    || { apt-get -qq update && RUNLEVEL=1 apt-get -qq install --no-install-recommends prometheus >/dev/null; } \
	    || echo "Prometheus could not be installed: its tests are skipped"

# The public inspector of the protocol of `booking mcp`, without its page: 41 MB, in fifteen seconds.
inspector:
	@command -v npm >/dev/null && npm install --silent --no-audit --no-fund --prefix build/inspector \
	    @modelcontextprotocol/inspector-cli@1.0.3 || echo "the inspector could not be installed: its test is skipped"

# The contract suite in each cell of one PostgreSQL: four schemas of a database, and a database of its own.
CELLS ?= first c2 c3 c4 db
test-cells: install ## run the contract tests in each cell of one PostgreSQL
	@for cell in $(CELLS); do echo "== the cell $$cell"; BOOKING_TEST_CELL=$$cell \
	    $(BIN)/python -m pytest tests/contract -k postgresql --numprocesses 2 --dist worksteal -q || exit; done

# The whole suite with every interpreter of 3.11 and newer that is found: on the PATH, and among pyenv's.
test-pythons: ## run all tests with every Python from 3.11 that is found
	@for python in $$($(PYTHON) scripts/interpreters.py); do \
	    echo "== $$python"; $(MAKE) --no-print-directory test PYTHON=$$python || exit; done

# Two at a time, mypy first: it takes as long as the others together, and uses one core.
check: $(VENV)/.check ## format, lint, types, import contracts
	@$(MAKE) --no-print-directory --jobs 2 check-types check-style check-imports check-public-types

check-types:
	$(BIN)/mypy

check-style:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m scripts.style

check-imports:
	$(BIN)/lint-imports

check-public-types:
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pyright --ignoreexternal --verifytypes booking_sdk
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pyright --ignoreexternal --verifytypes webhook_verify

format: $(VENV)/.check ## format the code and fix what the linter can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.bench ## measure the service beside its floors, and print ratios
	$(BIN)/python -m bench

# What organizations notice of others that misbehave, at full size.
isolation: $(VENV)/.bench ## measure an organization beside others that misbehave (some minutes)
	$(BIN)/python -m bench --only isolation

openapi: $(VENV)/.check ## write openapi.json, its parts for the command line, and the API changelog
	$(BIN)/python -m booking_server.api.openapi > openapi.json
	$(BIN)/python -m scripts.command_data
	$(BIN)/python -m booking_server.api.openapi changelog > docs/api-changelog.md

# Brings the message catalogues in line with the messages of the code.
messages: $(VENV)/.check ## update the message catalogues
	$(BIN)/python scripts/messages.py

# Generates booking_sdk/_sync/ from the async client.
sync-client: $(VENV)/.check ## generate the sync client
	$(BIN)/python scripts/unasync.py

# Writes the files of a resource that is listed and read: make resource NAME=guides FIELDS="name:text phone:text?"
resource: $(VENV)/.check ## write the files of a new resource
	$(BIN)/python -m scripts.new_resource $(NAME) --fields $(FIELDS)

# The documentation site in build/docs/site, without a network: open build/docs/site/index.html.
docs: $(VENV)/.docs ## build the documentation site
	$(BIN)/python -m docsite

pictures: $(VENV)/.docs ## draw the picture of the command line in the README
	$(BIN)/python -m docsite.terminal

release: install ## build, check and try the five distributions with every Python that is found
	$(BIN)/python -m scripts.release build

# Compiles the set of the tests, then the others with its versions. Versions change with UPGRADE="--upgrade-package NAME", or
# UPGRADE=--upgrade for all. A lock has versions and hashes, never an address.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
    --no-emit-index-url $(PACKAGES:%=--no-emit-package %)
lock: install ## compile the locks of the sets of packages
	$(COMPILE) $(UPGRADE) --group test -o locks/test.txt
	for set in uv run check docs bench; do rm -f locks/$$set.txt; \
	    $(COMPILE) --group $$set --constraint locks/test.txt -o locks/$$set.txt || exit; done
	$(COMPILE) $(UPGRADE) --group mutants --constraint locks/test.txt -o locks/mutants.txt

clean: ## remove environments, caches and build output
	rm -rf .venv* .demo .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
