# The two commands that matter: make demo, make test.

PYTHON ?= $(shell command -v python3.11 || echo python3)
BIN := .venv/bin
# Beam and TensorFlow must not find what other projects installed for the user: it would change what is tested here.
export PYTHONNOUSERSITE := 1
# matplotlib prints warnings if another environment left an incomplete font list. So it keeps its list here.
export MPLCONFIGDIR := $(CURDIR)/.venv/matplotlib

# The name of the image (as in components/image.py), and which TensorFlow it holds: for cpu, gpu or tpu.
IMAGE ?= calopipe-python:0.2.0
ACCELERATOR ?= cpu
# More options of `docker build`: --build-arg BASE=..., or --network and --secret id=ca,src=FILE behind a proxy.
BUILD ?=

.PHONY: help install demo demo-vortex test test-slow test-image check docs lock audit image base-image clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: .venv/installed  ## make the environment in .venv

.venv/installed: requirements/build.txt requirements/common.txt requirements/cpu.txt requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import platform as p, sys; sys.exit(not ((3, 11) <= sys.version_info < (3, 13) and p.system() == "Linux" and p.machine() == "x86_64"))' \
		|| { echo "error: $(PYTHON) is not Python 3.11 or 3.12 on Linux (x86-64); give PYTHON=python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/build.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation \
		--requirement requirements/common.txt --requirement requirements/cpu.txt --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@# TensorFlow then loads in half the time; pip does not compile where PYTHONDONTWRITEBYTECODE is set
	$(BIN)/python -m compileall -q -j 0 .venv/lib || true
	@touch $@

demo: install  ## run the whole pipeline on the Geant4 sample, into runs/demo
	$(BIN)/python pipelines/submit.py

demo-vortex: install  ## train on simulated flows, roll out a vortex street and judge it, into runs/vortex
	$(BIN)/python pipelines/submit.py run --pipeline vortex --floor 'data/vortex/floor/*.h5'

# TensorFlow keeps what it traces and compiles until its process ends. So each group of files has its own process.
JOBS ?= 2
GROUPS := 26
test: install  ## run the tests, in groups of files, JOBS at a time
	$(MAKE) --no-print-directory --jobs $(JOBS) --output-sync --keep-going $(addprefix test-group-,$(shell seq $(GROUPS)))

test-group-%:
	$(BIN)/python -m pytest $(shell ls tests/test_*.py | split --number r/$*/$(GROUPS))

test-slow: install  ## run the tests that take minutes each, or need an API server or a container engine
	$(BIN)/python -m pytest -m slow

check: install  ## lint, format (Python, C++), types, spelling, shell, YAML: .pre-commit-config.yaml
	PRE_COMMIT_HOME=.venv/pre-commit $(BIN)/pre-commit run --all-files

API ?= build/api
# Warnings of pdoc are errors, except for types that it cannot link, as their modules are imported only when needed.
docs: install  ## build the API pages from the docstrings, into build/api
	PDOC_ALLOW_EXEC=1 TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/python -W error::UserWarning \
		-W 'ignore:Error parsing type annotation:UserWarning' -m pdoc --docformat google --no-show-source \
		--output-directory $(API) calopipe preprocessing training validation components pipelines

# build.txt and common.txt lock the packages that all need. The file of each extra locks only what the extra adds.
COMPILE := uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
named = $$(sed -n 's/^\([^ =]*\)==.*/--no-emit-package \1/p' $(1))

lock: install  ## compile requirements/ anew from pyproject.toml; needs uv
	printf 'setuptools>=77\nwheel\n' | $(COMPILE) - --output-file requirements/build.txt
	$(COMPILE) pyproject.toml --extra cpu --extra dask --constraint requirements/build.txt --no-emit-package tensorflow-cpu \
		$(call named,requirements/build.txt) --output-file requirements/common.txt
	for extra in cpu gpu tpu dev; do \
		$(COMPILE) pyproject.toml --extra $$extra --constraint requirements/build.txt --constraint requirements/common.txt \
			$(call named,requirements/build.txt requirements/common.txt) --output-file requirements/$$extra.txt || exit; \
	done

audit:  ## check the locked packages for known vulnerabilities; needs pip-audit
	for names in "build common cpu" gpu tpu dev; do \
		pip-audit --strict --disable-pip --require-hashes \
			$$(printf -- '--requirement requirements/%s.txt ' $$names) || exit; \
	done

image:  ## build the container image; ACCELERATOR=cpu, gpu or tpu
	DOCKER_BUILDKIT=1 docker build --file deploy/Dockerfile --build-arg ACCELERATOR=$(ACCELERATOR) --tag $(IMAGE) $(BUILD) .

base-image:  ## make the image's base by debootstrap, where no container registry can be reached; needs root
	deploy/base-image.sh

test-image: install image  ## build the image and run the pipeline in it
	$(BIN)/python -m pytest -m slow tests/test_image.py

clean:  ## remove the environment and what tools left; runs/ is kept
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
