# The README's two commands: `make demo` and `make test`. A clean clone needs Python 3.11, pip and make.
# Every target is a few `python -m` calls, which work without make: see CONTRIBUTING.md.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || command -v python)
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
# Debian removes ensurepip from Python: there the system's pip installs pip into the new environment.
WITHOUT_ENSUREPIP = { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install -qq pip; }

.DEFAULT_GOAL := help
.PHONY: help demo test check javascript fix docs faults bench browser clean

help: ## This list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: $(VENV)/.all ## Install peasy with all extras into .venv and show a worked example
	@$(BIN)/python -m peasy demo
	@echo; $(BIN)/python -m peasy look stories "The pizza came out of the oven and it tasted good" --query it
	@echo; echo "In the browser: $(BIN)/peasy studio"

test: $(VENV)/.dev browser ## Install the test dependencies and run the tests
	@status=0; $(BIN)/python -m pytest -n $(JOBS) --dist worksteal || status=$$?; $(BIN)/python tests/system.py; exit $$status

check: $(VENV)/.dev ## Everything a change must pass: format, lint, types on three systems, import layers, docs, tests
	@$(BIN)/python tests/check.py --without-tests
	@$(MAKE) --no-print-directory javascript test

# Node is for developers only: without it, or without its packages, the JavaScript is not checked.
javascript:
	@if ! command -v npm >/dev/null; then echo "JavaScript was not checked: there is no npm."; \
	elif ! [ node_modules/.package-lock.json -nt package-lock.json ] && ! npm ci --silent --ignore-scripts; then \
		echo "JavaScript was not checked: npm could not install its packages."; \
	else npm run --silent check; fi

fix: $(VENV)/.dev ## Format, fix lint errors and regenerate the generated pages
	$(BIN)/python -m ruff format
	$(BIN)/python -m ruff check --fix
	$(BIN)/python docs/generate.py

docs: $(VENV)/.dev ## Regenerate the generated pages and build the site in site/, with every link checked
	$(BIN)/python docs/generate.py
	$(BIN)/python -m mkdocs build --strict

faults: $(VENV)/.dev ## Fault injection: kills, full disks, thousands of mutations and schedules; docs/reliability.md
	$(BIN)/python -m pytest -m faults -n $(JOBS) --dist worksteal --durations 20

bench: $(VENV)/.dev ## Benchmarks against other libraries
	@for name in $(filter-out __init__ llama measure,$(basename $(notdir $(wildcard bench/*.py)))); do \
		echo "== $$name"; $(BIN)/python -m bench.$$name || exit 1; done

browser: $(VENV)/.dev
	@$(BIN)/python tests/system.py --install

clean: ## Remove .venv and caches
	rm -rf $(VENV) site .pytest_cache .ruff_cache .mypy_cache .import_linter_cache

# Stamp files: nothing is installed again until one of these two files changes.
$(VENV)/.all: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "peasy needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) 2>/dev/null || $(WITHOUT_ENSUREPIP)
	@echo "Installing peasy into $(VENV): some minutes the first time ..."
	@$(INSTALL) --editable ".[all]"
	@touch $@

$(VENV)/.dev: $(VENV)/.all
	@echo "Installing the test dependencies ..."
	@$(INSTALL) --editable ".[dev]"
	@touch $@
