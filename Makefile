# The two commands that matter: make demo, make test.

PYTHON ?= $(shell command -v python3.11 || echo python3)
BIN := .venv/bin
# What Beam and TensorFlow find of other projects' settings must not decide what is tested here.
export PYTHONNOUSERSITE := 1

.PHONY: help install demo test test-slow check lock clean

help:  ## say what the targets do
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

install: .venv/installed  ## make the environment in .venv

.venv/installed: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@# TensorFlow loads in half the time; pip leaves this out where PYTHONDONTWRITEBYTECODE is set
	$(BIN)/python -m compileall -q -j 0 .venv/lib || true
	@touch $@

demo: install  ## run the whole pipeline on the Geant4 sample, into runs/demo
	$(BIN)/python pipelines/submit.py

test: install  ## run the tests
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test-slow: install  ## run the tests that take minutes each, or need an API server or a container engine
	$(BIN)/python -m pytest -m slow

check: install  ## lint, format and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lock: install  ## compile requirements.txt anew from pyproject.toml; needs uv
	uv pip compile --quiet --python-version 3.11 --extra cpu --extra dev --generate-hashes --no-emit-index-url \
		--no-header --output-file requirements.txt pyproject.toml

clean:  ## remove the environment and what tools left; runs/ is kept
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
