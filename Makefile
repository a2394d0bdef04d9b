# Every target does its own set-up: a virtual environment in .venv with the versions of constraints.txt, in which the demo
# needs holdfast alone, and all others the tools as well.
# ARGS is handed on: make test ARGS="-k slots", make demo ARGS="--workers 4", make bench ARGS="--help".

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
USABLE := $(VENV)/.usable
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test faults pythons bench chaos failures lint format clean more

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST)

demo: $(USABLE) ## bad samples, then speed: torch's loader and ours, side by side
	$(BIN)/python -m holdfast demo $(ARGS)

test: lint ## all checks and all tests but the long ones
	$(BIN)/python -m pytest -m 'not long' $(ARGS)

more: $(INSTALLED) $(VENV)-dgl ## the long tests: most of those that start many new interpreters
	$(BIN)/python -m pytest -m long $(ARGS)

faults: $(INSTALLED) ## every row of the fault table, for hours; a part of it: ARGS="-k 'fork and collate'"
	$(BIN)/python -m pytest tests/faults/test_table.py --all-faults $(ARGS)

pythons: ## the tests that need no torch, on every other Python that is found
	tools/pythons $(ARGS)

bench: $(INSTALLED) $(VENV)-dgl ## the benchmarks: both loaders, interleaved, as ratios
	$(BIN)/python -m benchmarks $(ARGS)

chaos: $(INSTALLED) ## loaders while their workers and supervisors are killed: batch by batch equal to torch's
	$(BIN)/python -m chaos $(ARGS)

failures: $(INSTALLED) ## write docs/failures/index.md again, from the causes
	$(BIN)/python tools/failures.py

lint: $(INSTALLED) ## ruff, mypy and the import rules, without the tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED) ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## remove the environments and the caches
	rm -rf $(VENV) $(VENV)-dgl $(VENV)-3.* build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# For a row of the benchmarks and a test, which say if it is absent. Without what it asks for: that would be another torch.
$(VENV)-dgl: | $(INSTALLED)
	-$(BIN)/python -m pip install --disable-pip-version-check --no-deps --target $@ dgl==1.1.3

# A stamp is touched last: an installation that was interrupted is done again.
$(USABLE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "holdfast needs Python 3.11 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)" >&2; \
	    echo "Name another one: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; \
	    exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(INSTALLED): $(USABLE)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[test,bench]'
	@touch $@
