# demo and test set up a fresh Debian 12 machine by themselves. Everything else is CMake's.
BUILD ?= build
JOBS ?= 2

.PHONY: all setup build demo test bench clean

all: build

setup:
	@cmake/setup.sh

build: setup
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log
	@cmake --build $(BUILD) -j $(JOBS)

# Only what the demo runs.
demo: setup
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release > /dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target opwire opwire-registry opwire-executor digits
	@examples/01_digits/demo.sh $(BUILD)

test: build
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

bench: build
	@$(BUILD)/tests/bench/opwire_bench --out $(BUILD)/bench.json --build $(BUILD)

clean:
	@rm -rf $(BUILD)
