# Short names for CMake and Ninja commands; `make help` lists them.

BUILD ?= build
PREFIX ?= /usr/local
CMAKE_FLAGS ?=
JOBS ?= $(shell nproc)
# Four parallel tests suit two cores, because tests spend half of their time waiting for threads, ranks and the disk. A
# test that needs several slots declares it in its source.
TEST_JOBS ?= 4
# Seconds for each fuzz target, in make test and make fuzz, and in make check.
FUZZ_SECONDS ?= 5
CHECK_FUZZ_SECONDS ?= 3600
# $(call run_tests,DIRECTORY,CLASSES); scripts/run-tests.sh defines the classes.
run_tests = scripts/run-tests.sh $(1) "$(2)" -j$(TEST_JOBS)

# CMakePresets.json holds the settings of each build.
# $(call configure,PRESET,DIRECTORY,SETTINGS)
configure = cmake --preset $(1) -B $(2) -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(3) $(CMAKE_FLAGS)
# $(call compile,DIRECTORY,TARGETS)
compile = cmake --build $(1) --parallel $(JOBS) --target $(2)

.PHONY: all tools deps deps-test deps-browser deps-python demo test test-quick test-slow test-asan fuzz fuzz-build check bench-build bench install docs format clean help

all: tools
	$(call configure,release,$(BUILD))
	$(call compile,$(BUILD),all)

# CMake reports missing libraries. This reports a missing compiler, CMake or Ninja before CMake runs.
tools:
	@scripts/install-packages.sh --check build

deps:
	@scripts/install-packages.sh build

deps-test:
	@scripts/install-packages.sh build test

deps-browser:
	@scripts/install-packages.sh browser

# Downloads some GB: on Linux, torch from PyPI includes the CUDA libraries. To install the CPU build instead, set
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu in the environment.
deps-python: $(BUILD)-venv/installed

$(BUILD)-venv/installed: tests/reference/requirements.txt
	@scripts/install-packages.sh python
	python3 -m venv $(BUILD)-venv
	$(BUILD)-venv/bin/pip install --quiet -r $<
	touch $@

demo:
	@scripts/install-packages.sh build demo
	$(call configure,release,$(BUILD))
	$(call compile,$(BUILD),all)
	BALLAST=$(BUILD)/ballast scripts/demo.sh

# Without clang (on systems whose packages are not installed automatically) the tests run without the fuzz targets.
have_clang = $(shell command -v clang 2>/dev/null)
fuzz_directory = $(if $(have_clang),$(abspath $(BUILD)-fuzz))

fuzz-build: deps-test
	$(if $(have_clang),$(call configure,fuzz,$(BUILD)-fuzz))
	$(if $(have_clang),$(call compile,$(BUILD)-fuzz,all),@echo "clang was not found: the fuzz targets are not built")

test: fuzz-build
	$(call configure,release,$(BUILD),-DBALLAST_FUZZ_BUILD=$(fuzz_directory))
	$(call compile,$(BUILD),all ballast_tests)
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(call run_tests,$(BUILD),quick long) --timeout 300

test-quick: deps-test
	$(call configure,release,$(BUILD))
	$(call compile,$(BUILD),all ballast_tests)
	$(call run_tests,$(BUILD),quick) --timeout 300

# Runs the slow tests, which make test skips, and the page in a browser.
test-slow: deps-test deps-browser
	$(call configure,release,$(BUILD))
	$(call compile,$(BUILD),all ballast_tests)
	$(call run_tests,$(BUILD),slow) --timeout 600

test-asan: deps-test
	$(call configure,asan,$(BUILD)-asan)
	$(call compile,$(BUILD)-asan,all ballast_tests)
	$(call run_tests,$(BUILD)-asan,quick long slow) --timeout 900

fuzz: fuzz-build
	$(call configure,release,$(BUILD),-DBALLAST_FUZZ_BUILD=$(fuzz_directory))
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(call run_tests,$(BUILD),long) --timeout $$(($(FUZZ_SECONDS) + 60)) -R '^fuzz\.'

check: fuzz-build deps-python
	$(call configure,release,$(BUILD),-DBALLAST_FUZZ_BUILD=$(fuzz_directory))
	$(call compile,$(BUILD),all ballast_tests)
	BALLAST_LONG=1 FUZZ_SECONDS=$(CHECK_FUZZ_SECONDS) $(call run_tests,$(BUILD),quick long slow) --timeout 7200
	$(call configure,asan,$(BUILD)-asan)
	$(call compile,$(BUILD)-asan,ballast_program test_mutated_files test_killed_runs)
	BALLAST_LONG=1 $(call run_tests,$(BUILD)-asan,long) --timeout 7200 -R '^cli\.(mutated_files|killed_runs)$$'

bench-build: tools
	$(call configure,release,$(BUILD))
	$(call compile,$(BUILD),ballast_bench)

# A benchmark that needs arguments prints its usage and exits with 2.
bench: bench-build
	@for program in $(BUILD)/bench/*; do \
	    if [ -f "$$program" ] && [ -x "$$program" ]; then echo "== $$program"; "$$program" || [ $$? = 2 ] || exit 1; fi; done

install: all
	cmake --install $(BUILD)

# The web site of the documentation, with mkdocs from PyPI.
docs: $(BUILD)-docs/venv/installed
	$(BUILD)-docs/venv/bin/python scripts/build-site.py $(BUILD)-docs

$(BUILD)-docs/venv/installed: docs/requirements.txt
	@scripts/install-packages.sh python
	python3 -m venv $(BUILD)-docs/venv
	$(BUILD)-docs/venv/bin/pip install --quiet -r $<
	touch $@

format:
	find src include tests bench examples -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' | xargs clang-format -i

clean:
	rm -rf $(BUILD) $(addprefix $(BUILD)-,debug asan tsan fuzz ci venv docs)

help:
	@echo 'make             builds $(BUILD)/ballast, libballast.so and the MPI plugins; names missing packages, installs nothing'
	@echo 'make deps        installs the Debian packages that a build uses (root or sudo)'
	@echo 'make demo        installs missing packages, builds, trains a small model on a real text and generates text'
	@echo 'make test        installs missing packages, builds, runs the quick and long tests; FUZZ_SECONDS ($(FUZZ_SECONDS)) for each fuzz target'
	@echo 'make test-quick  runs the quick tests, which take less than five seconds each'
	@echo 'make deps-python installs the Python packages of tests/reference in $(BUILD)-venv, for a slow test'
	@echo 'make test-slow   runs the slow tests, and the page in a browser'
	@echo 'make test-asan   runs all tests with the address and undefined-behavior sanitizers'
	@echo 'make fuzz        runs only the fuzz targets, FUZZ_SECONDS ($(FUZZ_SECONDS)) each'
	@echo 'make check       runs all tests with their long sweeps, each fuzz target for an hour, and campaigns of mutated'
	@echo '                 files and kills with the sanitizers'
	@echo 'make bench-build builds the benchmarks in $(BUILD)/bench'
	@echo 'make bench       builds and runs the benchmarks'
	@echo 'make install     installs the program, the libraries, ballast.h and package files in PREFIX ($(PREFIX)); honors DESTDIR'
	@echo 'make docs        builds the documentation as a web site in $(BUILD)-docs/site'
	@echo 'make format      formats all sources with clang-format'
	@echo 'make clean       removes the build directories'
	@echo 'Settings: BUILD=directory CMAKE_FLAGS=... JOBS=n TEST_JOBS=n'
