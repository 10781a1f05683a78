# Every target sets up what it needs: `make test` in a fresh clone is enough. Needs Python 3.11 or newer, a
# C++17 compiler and make; nothing else has to be installed.

TORCH_VERSION := 2.13.0
# An index of smaller, CPU-only builds of PyTorch may be named here; pip's own configuration counts too.
TORCH_INDEX ?=
VENV ?= .venv
EXTRAS := dev,torch,onnx,bench,tune,remote
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
RUNTIME_SOURCES := CMakeLists.txt $(wildcard runtime/csrc/*)

# The first of these that is at least 3.11 and can make virtual environments.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# A crash ends the run: with a new worker in its place, `loadfile` waits forever.
PYTEST_ARGS ?= -q -n 2 --dist loadfile --max-worker-restart=0
# What is compared by default: matrix products, convolutions, what memory bounds, and whole models.
BENCH_ARGS ?= --suite gemm,resnet18-conv,memory,models --against eager,inductor-autotuned,onnxruntime,openvino

.PHONY: setup demo test pytest lit lint format bench bench-all bench-device bench-tables onnx-conformance fuzz clean

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

# Everything, an hour or more: all contenders on all suites, then products in bf16.
bench-all: setup
	$(BIN)/tilewright bench --suite gemm,resnet18-conv,memory,models,roller119 \
		--against eager,inductor,inductor-autotuned,onnxruntime,openvino,iree,tvm --compile-limit 120
	$(BIN)/tilewright bench --suite gemm,models --precision bf16 --against eager,inductor-autotuned,openvino

# On a machine with an NVIDIA GPU: checks every kind of kernel, then times, ten minutes in all.
bench-device: setup
	$(BIN)/python -m bench.device

# The newest records in bench/results, into the README between its marks.
bench-tables: setup
	$(BIN)/python -m tilewright.bench.result_tables --write README.md docs/benchmarks.md

# Random programs against eager PyTorch; stops after PROGRAMS or SECONDS, and after 1000 programs unless told either.
PROGRAMS ?= 0
SECONDS ?= 0
FUZZ_ARGS ?=
fuzz: setup
	OMP_NUM_THREADS=1 $(BIN)/python test/fuzz --programs $(PROGRAMS) --seconds $(SECONDS) --processes 2 $(FUZZ_ARGS)

onnx-conformance: setup
	$(BIN)/python bench/onnx_conformance.py

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
