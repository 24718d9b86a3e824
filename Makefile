# demo and test set up a fresh Debian 12 machine by themselves. Everything else is CMake's.
BUILD ?= build
JOBS ?= 2
# Tests at once. A quarter of their time is spent waiting for processes and clocks.
TEST_JOBS ?= 3

.PHONY: all setup python build demo test lint bench bench-gpu clean

all: build

setup:
	@cmake/setup.sh

# What the Python package is built and tested with; PYTHON=off leaves it out.
PYTHON ?= $(BUILD)/venv/bin/python
python: setup
ifneq ($(PYTHON),off)
	@cmake/setup-python.sh $(PYTHON)
endif

build: python
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$(abspath $(PYTHON)) > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log
	@cmake --build $(BUILD) -j $(JOBS)

# Only what the examples run. DEVICE=cuda:0 and the like: on that device.
DEVICE ?= cpu
demo: setup
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release > /dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target opwire opwire-registry opwire-executor example_programs
	@examples/01_digits/demo.sh $(BUILD) $(DEVICE)

test: build
	@cd $(BUILD) && ctest --output-on-failure -j $(TEST_JOBS)

# Format, lint, types and English of all sources.
lint: python
	@cmake/setup.sh cmake/debian-packages-lint.txt
	@git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs -P $(JOBS) -n 100 clang-format-14 --dry-run -Werror
	@$(dir $(PYTHON))ruff format --check --quiet .
	@$(dir $(PYTHON))ruff check --quiet .
	@cmake/check-types.sh $(PYTHON)
	@python3 tests/prose/check.py

bench: build
	@$(BUILD)/tests/bench/opwire_bench --out $(BUILD)/bench.json --build $(BUILD)

# On a GPU, cuda:0 unless GPU says another; against PyTorch where python3 has it. ARGS="--only add,matmul" and the like go to the program.
GPU ?= cuda:0
bench-gpu: build
	@$(BUILD)/tests/bench/opwire_bench_gpu --out $(BUILD)/bench-gpu.json --build $(BUILD) --device $(GPU) $(ARGS)

clean:
	@rm -rf $(BUILD)
