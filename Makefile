# Needs: make, Python 3.11 or newer with venv, and a package index. Everything else goes into .venv.
# Variables: PYTHON (which Python makes the environment), JOBS (test processes), ARGS (more arguments for the tool),
# FUZZ_SECONDS.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed-dev
BENCH_STAMP := $(VENV)/.installed-bench
JOBS ?= 2
ARGS ?=
FUZZ_SECONDS ?= 300
SOURCES := src tests $(wildcard examples benchmarks)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format types docs fuzz bench coverage clean distclean

help:  ## this list
	@echo "make ..."
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

# A Python is good if it is new enough and can make environments (Debian splits that into python3-venv).
GOOD := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

$(STAMP): pyproject.toml
	@python="$(PYTHON)"; \
	for p in $$python $(if $(PYTHON),,python3 python3.13 python3.12 python3.11 python3.14 /usr/bin/python3 python); do \
	    if $$p -c '$(GOOD)' >/dev/null 2>&1; then found=$$p; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "Tiercel needs Python 3.11 or newer with the venv module; found none ($${python:-python3, python3.11 to python3.14} tried)."; \
	    echo "Install one (Debian, Ubuntu: apt install python3 python3-venv) or say which: make PYTHON=/path/to/python3"; \
	    exit 1; \
	fi; \
	if ! $(PY) -c '$(GOOD)' >/dev/null 2>&1; then \
	    echo "Creating $(VENV) with $$($$found --version)"; \
	    $$found -m venv --clear $(VENV) || exit 1; \
	fi
	@echo "Installing Tiercel and its development tools into $(VENV) (once, a minute or two)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(BENCH_STAMP): $(STAMP)
	@echo "Installing the packages that benchmarks compare with into $(VENV) (once, large)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@touch $@

setup: $(STAMP)  ## create .venv with everything in it

demo: $(STAMP)  ## run the main job: an LSTM whose batch and length change from call to call
	@$(PY) -m tiercel demo $(ARGS)

test: $(STAMP)  ## run the tests
	@$(PY) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

lint: $(STAMP)  ## check style and formatting
	@$(PY) -m ruff check $(SOURCES)
	@$(PY) -m ruff format --check $(SOURCES)

format: $(STAMP)  ## format the code, and mend what can be mended by itself
	@$(PY) -m ruff check --fix --quiet $(SOURCES) || true
	@$(PY) -m ruff format $(SOURCES)

types: $(STAMP)  ## check types: mypy on the package and the examples, pyright on the examples
	@$(PY) -m mypy src/tiercel
	$(if $(wildcard examples/*.py),@$(PY) -m mypy examples && $(PY) -m pyright)

docs: $(STAMP)  ## write the generated pages in docs/ again
	@$(PY) -m tiercel.tools.docs $(ARGS)

fuzz: $(STAMP)  ## feed damaged files to the bytecode reader for FUZZ_SECONDS
	@$(PY) -m tests.bytecode.fuzz --seconds $(FUZZ_SECONDS) $(ARGS)

bench: $(BENCH_STAMP)  ## compare with other systems: all cases of the suite (ARGS="--quick", ARGS="softmax lstm --peers torch")
	@$(PY) -m tiercel bench $(ARGS)

coverage: $(STAMP)  ## run the tests and show which lines they miss
	@$(PY) -m coverage erase
	@$(PY) -m coverage run -m pytest $(ARGS)
	@$(PY) -m coverage combine --quiet
	@$(PY) -m coverage report

clean:  ## remove caches and build products
	@rm -rf build dist htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean  ## remove .venv too
	@rm -rf $(VENV)
