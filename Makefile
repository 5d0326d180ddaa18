# Every target works on a fresh clone: it makes .venv first, and a second call finds it done.
# Paths are relative throughout, so that a directory with a space in its name is no obstacle.

PYTHON ?= python3
BIN := .venv/bin
# The stages call `pipeline` by name, and DVC starts them in a shell of its own. Each is a new process:
# without cached bytecode (some environments switch it off) every one would compile PyTorch's sources again.
ENV := PYTHONDONTWRITEBYTECODE= PATH="$(CURDIR)/.venv/bin:$$PATH"

.PHONY: help setup repro test lint format bench lock clean
help:
	@echo "make repro   set up, run the six stages on the embedded data, write report/index.html"
	@echo "make test    set up, lint, type-check, run the tests"
	@echo "make lint    ruff (lint and format) and mypy"
	@echo "make format  let ruff rewrite what it can"
	@echo "make bench   time the method against its references, on this machine"
	@echo "make lock    resolve requirements.lock anew from pyproject.toml"
	@echo "make clean   remove .venv and caches; data, results and the run store stay"

setup: .venv/ready

.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "Python 3.10 or newer is needed, $$($(PYTHON) --version 2>&1) was found as '$(PYTHON)'. Name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^uv==' requirements.lock)"
	@$(BIN)/python -m uv pip sync --quiet --python $(BIN)/python requirements.lock
	@$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch .venv/ready

repro: setup
	@$(ENV) dvc repro
	@echo "report: report/index.html"

test: lint
	@$(ENV) python -m pytest
	@echo "lint, types and tests passed"

lint: setup
	@$(ENV) ruff check .
	@$(ENV) ruff format --check .
	@$(ENV) mypy

format: setup
	@$(ENV) ruff check --fix .
	@$(ENV) ruff format .

bench: setup
	@$(ENV) python -m bench

lock: setup
	@$(BIN)/python -m uv pip compile --quiet --universal --python-version 3.10 --extra dev \
	  --no-annotate --no-header --no-emit-index-url --upgrade pyproject.toml --output-file requirements.lock

clean:
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
