# make train   train MNIST (makes .venv and installs first)      make test    all tests
# make check   style, types, contracts                            make bench   benchmarks against PyTorch
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
ifneq ($(wildcard ../shared/data),)
export SHOESTRING_DATA ?= $(abspath ../shared/data)
endif
SOURCES = $(shell git ls-files 'src/*' pyproject.toml CMakeLists.txt 2>/dev/null)

.PHONY: train test check bench clean
train: $(VENV)/installed
	$(BIN)/shoestring train mnist --out runs/mnist

test: $(VENV)/tests
	$(BIN)/python -m pytest -q

check: $(VENV)/tests
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	git ls-files 'src/*.cpp' 'src/*.h' 'examples/*.cpp' | xargs $(BIN)/clang-format --dry-run --Werror
	$(BIN)/python -m pytest -q tests/test_contracts.py

bench: $(VENV)/tests
	$(BIN)/python -m pip install -q torch==2.13.0
	$(BIN)/python benchmarks/end_to_end.py --compare torch
	$(BIN)/python benchmarks/kernel_latency.py --compare torch
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/import_time.py

$(VENV)/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q '.[data,plots]'
	touch $@

$(VENV)/tests: $(VENV)/installed pyproject.toml
	$(BIN)/python -m pip install -q '.[data,plots,dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist
