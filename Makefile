SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin
READY := .venv/.ready
MODEL := demo/model/config.json

ROWS ?= 256
FRESH ?=
PORT ?= 4200

# Tests, demo and benchmark stay on this machine.
export DO_NOT_TRACK := 1
export VLLM_NO_USAGE_STATS := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false

.PHONY: help setup demo ui down test test-fast chaos check fmt bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | \
		while IFS=$$'\t' read -r target text; do printf '  make %-10s %s\n' "$$target" "$$text"; done

setup: $(READY) ## make .venv/ with CPU vLLM and all tools (PYTHON= names the interpreter)

# Only what these files say can change what is installed, so a second call is instant.
$(READY): pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh
	@touch $@

$(MODEL): | $(READY)
	@$(BIN)/python scripts/build_model.py demo/model

demo: $(READY) $(MODEL) ## run the demo job for real (ROWS=256, FRESH=1 starts over)
	@$(BIN)/python scripts/demo.py --rows $(ROWS) $(if $(filter-out 0,$(FRESH)),--fresh)

ui: $(READY) ## start Prefect here: server with UI, deployments, one worker (PORT=4200)
	@$(BIN)/python scripts/ui.py up --port $(PORT)

down: ## stop what `make ui` started; a flow run stops in order
	@if [ -x $(BIN)/python ]; then $(BIN)/python scripts/ui.py down; fi

test: $(MODEL) test-fast ## run every test (ARGS= goes to pytest)
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "prefect and not engine" $(ARGS)
	@$(BIN)/python -m pytest -m engine $(ARGS)

test-fast: $(READY) ## run the tests that need neither vLLM nor a Prefect server
	@$(BIN)/python -m pytest -n 2 -m "not engine and not prefect" $(ARGS)

chaos: $(READY) $(MODEL) ## 200 kills on the echo engine, 6 on the real one; nothing may be lost
	@$(BIN)/python -m tests.chaos --kills 200
	@$(BIN)/python -m tests.chaos --kills 6 --real

check: $(READY) ## lint, formatting, types and the import contract
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

fmt: $(READY) ## format and fix what can be fixed by itself
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) $(MODEL) ## measure speed and memory, print the tables (ARGS= goes to the benchmark)
	@$(BIN)/python -m bench $(ARGS)

clean: ## remove the demo and all caches; .venv/ stays
	@rm -rf demo build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
