# Everything runs in .venv, which is made on first use and brought up to date when pyproject.toml
# changes. On a bare machine: `make demo`, `make test`.

PYTHON ?= python3
SHELL := /bin/bash

version := $(shell $(PYTHON) -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
recent := $(shell $(PYTHON) -c 'import sys; print("yes" if sys.version_info >= (3, 11) else "")' 2>/dev/null)
ifneq ($(recent),yes)
$(error MSI needs Python 3.11 or newer and $(PYTHON) is $(or $(version),not there); name another, such as: make $(MAKECMDGOALS) PYTHON=python3.12)
endif

venv := .venv
bin := $(venv)/bin
pip := $(bin)/python -m pip --disable-pip-version-check --no-input
# Another PYTHON makes another .venv.
made := $(venv)/.python-$(version)

# pip prints a great deal; this keeps the name and size of what it fetches.
fetched := while read -r word file size; do case "$$word $$file" in \
  "Downloading "*|"Using cached") file="$${file\#\#*/}"; echo "  $${file%%-[0-9]*} $$size";; \
  "Installing collected") echo "  installing";; esac; done

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint bench clean

help: ## Show this
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /	/' | expand -t 8

demo: $(venv)/.demo ## Install MSI, fetch the embedded model and ask it a question
	@$(bin)/llm msi pull embedded
	@echo
	@echo '$$ llm -m msi -o max_tokens 128 "Why is the sky blue?"'
	@$(bin)/llm -m msi --no-log -o max_tokens 128 "Why is the sky blue?"

test: $(venv)/.test ## Run the tests
	@OPENBLAS_NUM_THREADS=$${OPENBLAS_NUM_THREADS:-1} $(bin)/python -m pytest

lint: $(venv)/.lint ## Check style, types and the direction of imports
	@$(bin)/ruff check
	@$(bin)/ruff format --check
	@$(bin)/mypy
	@$(bin)/lint-imports

bench: $(venv)/.test ## Run the benchmarks
	@$(bin)/python -m benchmarks

clean: ## Remove .venv and what the tools left behind; models stay in the cache
	@rm -rf $(venv) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# Debian splits ensurepip off; its own pip can then fill the environment.
$(made):
	@echo "Making .venv with Python $(version)"
	@rm -rf $(venv)
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(venv); \
	else $(PYTHON) -m venv --without-pip $(venv) && $(PYTHON) -m pip --python $(bin)/python -q install pip; fi \
	|| { rm -rf $(venv); echo "Python $(version) lacks venv or pip: install python3-venv" >&2; exit 1; }
	@$(pip) install -q --upgrade "pip>=25.1"
	@touch $@

$(venv)/.demo: $(made) pyproject.toml
	@echo "Installing MSI and what it stands on (a minute or two the first time)"
	@set -o pipefail; $(pip) install -e . | $(fetched)
	@touch $@

$(venv)/.%: $(venv)/.demo
	@echo "Installing what '$*' needs"
	@set -o pipefail; $(pip) install --group $* | $(fetched)
	@touch $@
