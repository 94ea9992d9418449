# `make help` lists the targets. Everything is done by CMake and Ninja; this file only holds the commands to type.

BUILD ?= build
PREFIX ?= /usr/local
CMAKE_FLAGS ?=
JOBS ?= $(shell nproc)
# Tests at once, on two cores: they wait for threads, ranks and the disk for half of their time. A test that holds more
# than one place says so in its source.
TEST_JOBS ?= 4
# For each fuzz target: in make test and make fuzz, and in make check.
FUZZ_SECONDS ?= 5
CHECK_FUZZ_SECONDS ?= 3600
# $(call run_tests,FOLDER,CLASSES): quick tests are under five seconds (scripts/run-tests.sh)
run_tests = scripts/run-tests.sh $(1) "$(2)" -j$(TEST_JOBS)

configure = cmake -G Ninja -S . -B $(1) -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(2) $(CMAKE_FLAGS)
compile = cmake --build $(1) --parallel $(JOBS)

.PHONY: all packages packages-test packages-browser demo test test-quick test-slow test-asan fuzz fuzz-build check bench install format clean help

all: packages
	$(call configure,$(BUILD),-DBALLAST_FUZZ_BUILD=)
	$(call compile,$(BUILD))

packages:
	@scripts/install-packages.sh build

packages-test:
	@scripts/install-packages.sh build test

packages-browser:
	@scripts/install-packages.sh browser

demo: all
	@scripts/install-packages.sh demo
	BALLAST=$(BUILD)/ballast scripts/demo.sh

# Without clang (where packages are not installed for you) the tests run without the fuzz targets.
have_clang = $(shell command -v clang 2>/dev/null)
fuzz_folder = $(if $(have_clang),$(abspath $(BUILD)-fuzz))

fuzz-build: packages-test
	$(if $(have_clang),$(call configure,$(BUILD)-fuzz,-DCMAKE_C_COMPILER=clang -DBALLAST_FUZZ=ON))
	$(if $(have_clang),$(call compile,$(BUILD)-fuzz),@echo "clang was not found: the fuzz targets are left out")

test: fuzz-build
	$(call configure,$(BUILD),-DBALLAST_FUZZ_BUILD=$(fuzz_folder))
	$(call compile,$(BUILD))
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(call run_tests,$(BUILD),quick long) --timeout 300

test-quick: packages-test
	$(call configure,$(BUILD))
	$(call compile,$(BUILD))
	$(call run_tests,$(BUILD),quick) --timeout 300

# What make test leaves out for time, and the page in a browser.
test-slow: packages-test packages-browser
	$(call configure,$(BUILD))
	$(call compile,$(BUILD))
	$(call run_tests,$(BUILD),slow) --timeout 600

test-asan: packages-test
	$(call configure,$(BUILD)-asan,-DBALLAST_SANITIZE=address$(,)undefined)
	$(call compile,$(BUILD)-asan)
	$(call run_tests,$(BUILD)-asan,quick long slow) --timeout 900

fuzz: fuzz-build
	$(call configure,$(BUILD),-DBALLAST_FUZZ_BUILD=$(fuzz_folder))
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(call run_tests,$(BUILD),long) --timeout $$(($(FUZZ_SECONDS) + 60)) -R '^fuzz\.'

check: fuzz-build
	$(call configure,$(BUILD),-DBALLAST_FUZZ_BUILD=$(fuzz_folder))
	$(call compile,$(BUILD))
	BALLAST_LONG=1 FUZZ_SECONDS=$(CHECK_FUZZ_SECONDS) $(call run_tests,$(BUILD),quick long slow) --timeout 7200

# A program that needs arguments says so and ends with status 2.
bench: all
	@for program in $(BUILD)/bench/*; do \
	    if [ -x "$$program" ]; then echo "== $$program"; "$$program" || [ $$? = 2 ] || exit 1; fi; done

install: all
	cmake --install $(BUILD)

format:
	find src include tests bench examples -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' | xargs clang-format -i

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-fuzz

help:
	@echo 'make            install missing packages, configure, build $(BUILD)/ballast'
	@echo 'make demo       train a small model on a real text, and show what it writes'
	@echo 'make test       the quick tests, then the long ones, each fuzz target for FUZZ_SECONDS ($(FUZZ_SECONDS)) among them'
	@echo 'make test-quick the quick tests alone: those under five seconds'
	@echo 'make test-slow  the slow tests, and the page in a browser'
	@echo 'make test-asan  all tests under the address and undefined-behaviour sanitizers'
	@echo 'make fuzz       the fuzz targets alone; $(FUZZ_SECONDS) s each (FUZZ_SECONDS)'
	@echo 'make check      all tests with their long sweeps, and an hour of each fuzz target'
	@echo 'make bench      the benchmarks, one after the other'
	@echo 'make install    program, libballast.so, ballast.h and ballast.pc into PREFIX ($(PREFIX)); DESTDIR is honoured'
	@echo 'make format     clang-format over all sources'
	@echo 'make clean      remove the build folders'
	@echo 'settings        BUILD=folder CMAKE_FLAGS=... JOBS=n TEST_JOBS=n'

, := ,
