# One command a chore. `make run` and `make test` set everything up by themselves on a fresh Debian with Python 3.11.
# A recipe line is one process, so that Ctrl-C reaches the program that runs.

PYTHON ?= python3
TARGET ?=
PORT ?= 9847
WORKERS ?= 2
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help run test check bench soak docs clean

help: ## say what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

run: .venv/.runs ## watch TARGET=http://host:8000/metrics, or without TARGET the embedded demo
ifeq ($(strip $(TARGET)),)
	@exec $(BIN)/vllm-watchdog demo --port $(PORT)
else
	@exec $(BIN)/vllm-watchdog serve --target "$(TARGET)" --port $(PORT)
endif

test: .venv/.develops system-tools ## every test, in $(WORKERS) processes
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(ARGS)

check: .venv/.develops ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.develops ## what a scrape, a verdict and a resident service cost
	$(BIN)/python -m tests.bench

soak: .venv/.develops ## 10,000 cycles on a fake clock: memory, open files, threads
	$(BIN)/python -m tests.soak

docs: .venv/.runs ## make docs/causes.md, docs/signals.md and docs/settings.md anew
	$(BIN)/python -m watchdog.rule.docs docs
	$(BIN)/python -m watchdog.settings.page > docs/settings.md

clean: ## forget the environment and every cache
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

# The tests run against the real Prometheus, Alertmanager and a browser.
.PHONY: system-tools
system-tools:
	@.ci/system-tools

.venv/bin/python:
	@$(PYTHON) -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || .ci/system-python
	$(PYTHON) -m venv .venv

.venv/.runs: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing into .venv: a minute, the first time."
	$(INSTALL) --editable .
	@touch $@

.venv/.develops: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev]'
	@touch $@ .venv/.runs

# What is deployed: image, manifests, the stack without containers.
include deploy/targets.mk
