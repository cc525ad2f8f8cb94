# onbeat from a checkout. Needs Python 3.11 or newer and nothing else.

.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
DATA := var/onbeat.sqlite3
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Some images set it. Hundreds of processes start here, and each would compile all of onbeat anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test check bench bench-full format lock clean

help: ## What can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 18

run: $(VENV)/.runtime ## Start a scheduler with a demo receiver and two jobs
	@mkdir -p $(dir $(DATA))
	@$(BIN)/onbeat dev --demo --data $(DATA) $(ARGS)

test: $(VENV)/.dev ## Everything: format, lint, types, layers, all tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@# More processes than processors: the slow ones wait for processes and databases, not for the processor.
	$(BIN)/pytest -n 4 --dist worksteal

check: $(VENV)/.dev ## The same with the fast tests only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not slow" -n 3 --dist worksteal

bench: $(VENV)/.dev ## Benchmarks in half an hour: tables, and JSON in var/bench
	$(BIN)/python -m bench --plan quick $(ARGS)

bench-full: $(VENV)/.dev ## Benchmarks in hours, with the sizes that were asked for
	$(BIN)/python -m bench --plan full $(ARGS)

format: $(VENV)/.dev ## Put the code into its format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## Resolve pyproject.toml into requirements/*.lock again (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --upgrade \
		--group build -o requirements/runtime.lock pyproject.toml
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --upgrade \
		--group dev -o requirements/dev.lock pyproject.toml

clean: ## Remove everything that was made, also the demo's data
	rm -rf $(VENV) var build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamp files: an environment is made again only when a lock or pyproject.toml changed.
$(VENV)/bin/python:
	@python=""; for name in python3 python3.14 python3.13 python3.12 python3.11; do \
		if command -v $$name >/dev/null && $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
			python=$$name; break; fi; done; \
	if [ -z "$$python" ]; then \
		echo "onbeat needs Python 3.11 or newer; no python3 on the PATH is." >&2; exit 1; fi; \
	$$python -m venv $(VENV) || { \
		echo "$$python cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; \
		rm -rf $(VENV); exit 1; }

$(VENV)/.runtime: requirements/runtime.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing onbeat into $(VENV) …"
	@$(PIP_INSTALL) --require-hashes -r requirements/runtime.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.runtime
	@echo "installing the tools of the tests into $(VENV) …"
	@$(PIP_INSTALL) --require-hashes -r requirements/dev.lock
	@touch $@
