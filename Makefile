# What a checkout can do: `make help` lists it. Everything happens in .venv and .relayd below the checkout.

VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
STATE ?= $(CURDIR)/.relayd/state
# A socket's path has at most 107 bytes; a checkout that lies deeper has it elsewhere.
SOCKET ?= $(shell path='$(CURDIR)/.relayd/sock'; [ $$(expr length "$$path") -le 107 ] || path=/tmp/relayd-$$(id -u)/sock; echo "$$path")
WORKERS ?= 2
TESTS ?= tests

.PHONY: help setup run test lint format docs bench chaos clean

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## build .venv with relayd and its tools, once

$(READY): pyproject.toml scripts/make_venv.sh
	@scripts/make_venv.sh $(VENV)
	@touch $@

run: setup ## serve in the foreground, state and socket below .relayd/
	@mkdir -p -m 700 "$$(dirname '$(SOCKET)')"
	@scripts/what_next.sh '$(CURDIR)/$(BIN)' '$(SOCKET)'
	@exec $(BIN)/relayd serve --state '$(STATE)' --socket '$(SOCKET)'

test: lint ## everything that must hold: lint, types, rooms, tests
	@scripts/test_tools.sh
	$(BIN)/python -m pytest -n $(WORKERS) $(TESTS)

lint: setup ## ruff, pyright, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: setup ## let ruff put the source in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup ## write the generated pages of docs/reference/
	$(BIN)/python -m relayd.daemon.settings_page > docs/reference/settings.md
	$(BIN)/python -m relayd.protocol.events_page > docs/reference/events.md
	$(BIN)/python -m relayd.relay.commands_page > docs/internals/commands.md

bench: setup ## measure beside SQLite, and the command lane, about four minutes; BENCH=--quick for half a minute
	$(BIN)/python bench/foundation.py $(BENCH)
	$(BIN)/python bench/commands.py $(BENCH)

chaos: setup ## every fault for half an hour, ending in a table; CHAOS="--minutes 5 --seed 2" for another
	@scripts/test_tools.sh
	$(BIN)/python tests/chaos/campaign.py $(CHAOS)

clean: ## remove what was built; the state of `make run` stays
	rm -rf $(VENV) dist htmlcov .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
