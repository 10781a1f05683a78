# Every target sets up what it needs: `make test` in a fresh clone is enough. Needs Python 3.11 or newer, a
# C++17 compiler and make; nothing else has to be installed.

TORCH_VERSION := 2.13.0
# An index of smaller, CPU-only builds of PyTorch may be named here; pip's own configuration counts too.
TORCH_INDEX ?=
VENV ?= .venv
EXTRAS := dev,torch,onnx,bench
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
RUNTIME_SOURCES := CMakeLists.txt $(wildcard runtime/csrc/*)

# The first of these that is at least 3.11 and can make virtual environments.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

PYTEST_ARGS ?= -q -n 2 --dist loadfile
BENCH_ARGS ?= --suite models

.PHONY: setup demo test pytest lit lint format bench onnx-conformance clean

setup: $(VENV)/.built

$(VENV)/.dependencies: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with the venv module is needed; set PYTHON=/path/to/it"; exit 1; }
	@test -x $(BIN)/python || { echo "setting up $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv $(VENV); }
	$(PIP) install -q --upgrade pip
	$(PIP) install -q $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch==$(TORCH_VERSION)
	$(PIP) install -q scikit-build-core cmake ninja
	$(PIP) install -q --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $@

# Editable: Python changes are seen at once, only the C++ runtime is rebuilt.
$(VENV)/.built: $(VENV)/.dependencies $(RUNTIME_SOURCES)
	$(PIP) install -q --no-build-isolation --no-deps -e .
	@touch $@

demo: setup
	$(BIN)/python -m examples.demo

test: pytest lit

# One thread per worker: two workers of two threads each would only get in each other's way.
pytest: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

lit: setup
	$(BIN)/lit -sv test/lit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/tilewright bench $(BENCH_ARGS)

onnx-conformance: setup
	$(BIN)/python bench/onnx_conformance.py

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
