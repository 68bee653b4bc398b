# What a person types. Everything here only calls scripts/, cmake and ctest; use those directly
# for anything unusual.

BUILD ?= build
# As many compilers at once as there are cores, but no more than memory allows: one that includes
# libtorch takes about 1.5 GB.
JOBS ?= $(shell awk -v n="$$(nproc)" '/^MemAvailable/ { m = int($$2 / 1500000); \
          print (m < 1 ? 1 : m < n ? m : n) }' /proc/meminfo)
CMAKE_ARGS ?=
PREFIX ?= /usr/local
DEMO_OUTPUT ?= demo-output

comma = ,
space = $(subst ,, )

CONFIGURE = cmake -S . -B $(BUILD) -G Ninja $(CMAKE_ARGS)
COMPILE = cmake --build $(BUILD) --parallel $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-setup test-bare pytorch-suite clients bench results \
        calibration learning zero install clean format tidy \
        sanitize

help:
	@echo 'make demo     install what is missing, build, train Fashion-MNIST on 4 processes,'
	@echo '              write a report page'
	@echo 'make test     install what is missing, build, run every test'
	@echo 'make test-setup  test the set-up in a minimal root of this distribution (as root)'
	@echo 'make test-bare   the same, with make test as a user and as root, and make install (hours)'
	@echo 'make build    install what is missing, build $(BUILD)/bin/gradwire'
	@echo 'make bench    install what is missing, build, measure all-reduce beside Gloo and Open MPI'
	@echo 'make results  the same for everything in bench/RESULTS.md, which it writes (an hour)'
	@echo 'make calibration hold the planner against measurements, for docs/accuracy.md (10 minutes)'
	@echo 'make learning train with every codec and with local steps, for docs/compression.md (an hour)'
	@echo 'make zero     measure ZeRO beside PyTorch'"'"'s, for docs/zero.md (half an hour, as root)'
	@echo 'make install  install programs, libraries, headers and CMake files under PREFIX ($(PREFIX))'
	@echo 'make pytorch-suite   PyTorch'"'"'s own tests of a c10d backend, on gradwire (half a minute)'
	@echo 'make clients  accelerate, transformers and Lightning over gradwire; installs them (a minute)'
	@echo 'make setup    only install what is missing, for all of the above'
	@echo 'make format   format the sources'
	@echo 'make tidy     run clang-tidy over the layers that need no libtorch'
	@echo 'make sanitize the tests of transports, communicators and averagers under SANITIZE=thread,'
	@echo '              or of all that needs no libtorch under address,undefined (half an hour)'
	@echo 'make clean    remove what was built ($(BUILD), $(DEMO_OUTPUT)); .venv stays'
	@echo
	@echo 'Variables: BUILD=$(BUILD) JOBS=$(JOBS) CMAKE_ARGS= PREFIX=$(PREFIX)'
	@echo 'GRADWIRE_PYTHON=/path/to/python takes libtorch from the PyTorch which that Python has.'

setup:
	@scripts/setup.sh

# The first configuration leaves the tests out, which need more packages; `make test` adds them.
build:
	@scripts/setup.sh build
	@$(CONFIGURE) $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DGRADWIRE_TESTS=OFF)
	@$(COMPILE)

demo:
	@scripts/setup.sh build demo
	@$(CONFIGURE) $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DGRADWIRE_TESTS=OFF)
	@$(COMPILE) --target gradwire gradwire-torch
	@$(BUILD)/bin/gradwire train examples/fashion_mnist.json -n 4 --output $(DEMO_OUTPUT)
	@$(BUILD)/bin/gradwire report $(DEMO_OUTPUT) -o $(DEMO_OUTPUT)/report.html && \
	  echo 'Open $(DEMO_OUTPUT)/report.html in a browser: how training went, as charts.' || \
	  echo 'The demo went well, but for its report page.'

# Last come ctest's own words: how many tests passed.
test:
	@scripts/host_tests.sh >/dev/null
	@scripts/setup.sh build demo test
	@cmake -S . -B $(BUILD) -G Ninja $$(scripts/host_tests.sh 2>/dev/null) -DGRADWIRE_TESTS=ON $(CMAKE_ARGS)
	@$(COMPILE)
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j2

test-setup:
	@scripts/bare.sh setup

test-bare:
	@scripts/bare.sh test

bench results calibration:
	@scripts/setup.sh build demo test bench
	@$(CONFIGURE) -DGRADWIRE_BENCH=ON
	@$(COMPILE) --target $@

pytorch-suite:
	@scripts/setup.sh build demo test
	@$(CONFIGURE) -DGRADWIRE_TESTS=ON
	@$(COMPILE) --target $@

clients:
	@scripts/setup.sh build test
	@$(CONFIGURE)
	@$(COMPILE) --target gradwire_core_module
	@scripts/clients.sh $(BUILD)

learning: build
	@scripts/setup.sh demo
	@bench/learning.py --gradwire $(BUILD)/bin/gradwire

zero: build
	@scripts/setup.sh test
	@.venv/bin/python bench/zero.py $(BUILD)/bin/gradwire $(BUILD)/zero.json --rounds 2 --steps 6

# As root only what needs root: what is built stays its owner's.
install:
	@scripts/install.sh prepare $(PREFIX)
	@scripts/install.sh as-owner $(MAKE) --no-print-directory build
	@scripts/install.sh copy $(BUILD) $(PREFIX)

format:
	@scripts/setup.sh test
	@git ls-files -co --exclude-standard '*.cpp' '*.h' | xargs .venv/bin/clang-format -i

tidy:
	@scripts/setup.sh build test tidy
	@$(CONFIGURE) -DGRADWIRE_TESTS=ON
	@scripts/tidy.sh $(BUILD) $(JOBS)

# Simulations have one thread, and take ten times as long. ThreadSanitizer wants its memory where
# random addresses may be, and is for what has threads.
sanitize: SANITIZE ?= thread
sanitize: FOLDER = $(BUILD)-$(firstword $(subst $(comma), ,$(SANITIZE)))
sanitize: LAYERS = net comm gradient \
	$(if $(filter-out thread,$(SANITIZE)),base topology schedule codec report checkpoint plan)
sanitize:
	@scripts/setup.sh build test
	@cmake -S . -B $(FOLDER) -G Ninja -DGRADWIRE_TORCH=OFF -DGRADWIRE_TESTS=ON \
	  -DGRADWIRE_HOST_TESTS=OFF -DGRADWIRE_SANITIZE=$(SANITIZE)
	@setarch -R cmake --build $(FOLDER) --parallel $(JOBS) --target $(addprefix test_,$(LAYERS))
	@setarch -R ctest --test-dir $(FOLDER) --output-on-failure --no-tests=error -j2 \
	  -R '^($(subst $(space),|,$(strip $(LAYERS))))\.' -E 'Sim|Conformance|report.page|plan.page'

clean:
	@rm -rf $(BUILD) $(DEMO_OUTPUT)
