# One command a chore. `make run` and `make test` set everything up by themselves on a fresh Debian with Python 3.11.
# A recipe line is one process, so that Ctrl-C reaches the program that runs.

PYTHON ?= python3
TARGET ?=
PORT ?= 9847
WORKERS ?= 2
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help run test check quick coverage compatible bench bench-scale bench-prometheus figures exported-rules soak weeks e2e docs clean

# The rooms that touch nothing but their arguments, and what they stand on.
CORE := $(addprefix tests/,diagnosis facts history language remedy rule settings signals test_architecture.py \
	test_strict_yaml.py test_text.py test_words.py) \
	$(wildcard tests/faults/test_f51_*.py tests/faults/test_f59_*.py)
# Tests of the same rooms that drive them from outside: a whole life, a command. Too slow for each save.
WHOLE := tests/lives/test_restarts.py tests/cli/test_explain.py tests/cli/test_size.py \
	tests/contract/test_exported_rules.py
# What stands on a library: its tests see what a version of it changes. The one against the API's document wants
# newer versions than our lowest.
EDGES := $(addprefix tests/,cli notify report scrape service state test_entries.py test_logs.py) \
	$(wildcard tests/faults/test_f01_*.py tests/faults/test_f78_*.py) \
	$(filter-out %/test_openapi.py %/test_browser.py,$(wildcard tests/web/test_*.py))

help: ## say what can be made
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/'

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

quick: .venv/.develops ## tests of the core, lint and format, in half a minute: for each save
	$(BIN)/python -m pytest -m "not slow" --numprocesses $(WORKERS) --dist loadfile $(CORE) $(ARGS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

coverage: .venv/.develops ## how much of the core its tests run; fails below the gate in pyproject.toml
	$(BIN)/python -m pytest --cov --numprocesses $(WORKERS) --dist loadfile $(CORE) $(WHOLE) $(ARGS)

compatible: ## quick tests and those of what stands on a library, with lowest and newest versions
	$(PYTHON) -m tests.compatible $(CORE) $(EDGES)

bench: .venv/.develops ## what a scrape, a verdict and a resident service cost
	$(BIN)/python -m tests.bench

bench-scale: .venv/.develops ## what serve costs by its number of targets (TARGETS="1 1000"), a tenth of them firing
	$(BIN)/python -m tests.bench.scale $(TARGETS)

bench-prometheus: .venv/.develops ## what serve costs on a Prometheus and a VictoriaMetrics that scrape 200 servers (SERVERS=20)
	$(BIN)/python -m tests.bench.prometheus $(SERVERS)

figures: .venv/.develops ## measure serve, on a quiet machine, and write the figures into the documents
	$(BIN)/python -m tests.bench.figures

exported-rules: .venv/.develops ## score the exported rules in a real Prometheus, and write their page
	$(BIN)/python -m tests.bench.exported

soak: .venv/.develops ## 10,000 cycles on a fake clock: memory, open files, threads
	$(BIN)/python -m tests.soak

weeks: .venv/.develops ## days of simulated servers: what is named, how soon, and what is false (SEEDS="1 2 3")
	$(BIN)/python -m tests.lives.weeks $(if $(SEEDS),--seeds $(SEEDS))

e2e: .venv/.develops system-tools ## real vLLM servers on this CPU: 4 GB and half an hour (SCENES="python pool" PLACE=/tmp/e2e)
	$(BIN)/python -m tests.e2e $(SCENES) $(if $(PLACE),--place "$(PLACE)")

docs: .venv/.runs ## make the generated pages in docs/ again: causes, signals, rule keys, settings
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
