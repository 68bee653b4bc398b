# Shortcuts. All targets only call scripts/, cmake and ctest; use those directly for anything
# unusual.

BUILD ?= build
# Parallel compiler processes: one per core, limited by memory, because a file that includes
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
.PHONY: help setup build demo test check test-long test-setup test-bare pytorch-suite clients \
        bench results calibration learning zero servers federated install clean format tidy \
        sanitize fuzz releases wheel test-wheel

help:
	@echo 'make demo     install missing requirements, build, train Fashion-MNIST on 4 processes,'
	@echo '              write a report page'
	@echo 'make test     install missing requirements, build, run every test'
	@echo 'make check LAYER=engine  build and run the tests of one layer (less than a minute)'
	@echo 'make test-long   make test, more simulations, and the training run of README.md'
	@echo 'make test-setup  test the set-up in a minimal root of this distribution (as root)'
	@echo 'make test-bare   the same, with make test as a user and as root, and make install (an hour)'
	@echo 'make build    install missing requirements, build $(BUILD)/bin/gradwire'
	@echo 'make bench    install missing requirements, build, compare all-reduce with Gloo and Open MPI'
	@echo 'make results  measure everything in bench/RESULTS.md, and write it (an hour)'
	@echo 'make calibration compare the planner with measurements, for docs/accuracy.md (10 minutes)'
	@echo 'make learning train with every codec and with local steps, for docs/compression.md (an hour)'
	@echo 'make zero     compare ZeRO with PyTorch'"'"'s, for docs/zero.md (half an hour, as root)'
	@echo 'make servers  compare a parameter server with PyTorch'"'"'s RPC and Gloo, for docs/servers.md (10'
	@echo '              minutes, as root)'
	@echo 'make federated compare federated learning with FedSGD, Flower and pfl, for docs/federated.md'
	@echo '              (an hour)'
	@echo 'make install  install programs, libraries, headers and CMake files under PREFIX ($(PREFIX))'
	@echo 'make releases compile and test with RELEASES of PyTorch, 2.11 to 2.15 (hours, 6 GB each)'
	@echo 'make wheel    build dist/gradwire-*.whl for RELEASES of PyTorch, 2.11 to 2.15 (20 minutes; 5 GB)'
	@echo 'make test-wheel  install that wheel in a minimal root with RELEASES of PyTorch (as root)'
	@echo 'make pytorch-suite   PyTorch'"'"'s own tests of a c10d backend, on gradwire (half a minute)'
	@echo 'make clients  accelerate, transformers and Lightning over gradwire; installs them (a minute)'
	@echo 'make setup    only install missing requirements, of all of the above'
	@echo 'make format   format the sources'
	@echo 'make tidy     run clang-tidy over the layers that need no libtorch'
	@echo 'make sanitize the tests of transports, communicators and exchanges under SANITIZE=thread,'
	@echo '              or of all that needs no libtorch under address,undefined (half an hour)'
	@echo 'make fuzz     run each fuzz target with EXECUTIONS=1000000 inputs, generated from SEED=1'
	@echo 'make clean    remove build results ($(BUILD), $(DEMO_OUTPUT)); .venv stays'
	@echo
	@echo 'Variables: BUILD=$(BUILD) JOBS=$(JOBS) CMAKE_ARGS= PREFIX=$(PREFIX)'
	@echo 'GRADWIRE_PYTHON=/path/to/python uses the libtorch of that Python'"'"'s PyTorch.'

setup:
	@scripts/setup.sh

# The first configuration omits the tests, which require more packages; `make test` adds them.
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
	  echo 'Open $(DEMO_OUTPUT)/report.html in a browser: charts of the training run.' || \
	  echo 'Training succeeded, but its report page failed.'

TEST_BUILD = cmake -S . -B $(BUILD) -G Ninja $$(scripts/host_tests.sh 2>/dev/null) \
  -DGRADWIRE_TESTS=ON $(CMAKE_ARGS)
CTEST = ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j4

# ctest prints the number of passed tests last.
test:
	@scripts/host_tests.sh >/dev/null
	@scripts/setup.sh build demo test
	@$(TEST_BUILD)
	@$(COMPILE)
	@echo 'Less than everything: make test-long runs more simulations and the training of README.md,'
	@echo 'make fuzz more inputs, make sanitize the tests with sanitizers (CONTRIBUTING.md).'
	@$(CTEST)

test-long: test
	@GRADWIRE_LONG=1 $(CTEST) -R 'Simulation|cli.readme'

# One layer's library, test program and tests, and what stands below it.
check:
	@$(if $(filter undefined,$(origin LAYER)),$(error make check LAYER=engine))
	@$(TEST_BUILD) >/dev/null
	@$(COMPILE) --target test_$(LAYER)
	@$(CTEST) -R '^$(LAYER)\.'

test-setup:
	@scripts/bare.sh setup

test-bare:
	@scripts/bare.sh test

test-wheel:
	@scripts/bare.sh wheel $(RELEASES)

bench results calibration:
	@scripts/setup.sh build demo test bench
	@$(CONFIGURE) -DGRADWIRE_BENCH=ON
	@$(COMPILE) --target $@

releases:
	@scripts/setup.sh build
	@scripts/releases.sh $(RELEASES)

wheel:
	@scripts/setup.sh build wheel
	@JOBS=$(JOBS) scripts/wheel.sh $(RELEASES)

pytorch-suite:
	@scripts/setup.sh build demo test
	@$(CONFIGURE) -DGRADWIRE_TESTS=ON
	@$(COMPILE) --target $@

clients:
	@scripts/setup.sh build test
	@$(CONFIGURE)
	@$(COMPILE) --target gradwire_package
	@scripts/clients.sh $(BUILD)

learning: build
	@scripts/setup.sh demo
	@bench/learning.py --gradwire $(BUILD)/bin/gradwire

zero: build
	@scripts/setup.sh test
	@.venv/bin/python bench/zero.py $(BUILD)/bin/gradwire $(BUILD)/zero.json --rounds 2 --steps 6

servers: build
	@scripts/setup.sh test
	@PYTHONPATH=tests/hosts .venv/bin/python bench/servers.py $(BUILD)/bin/gradwire \
	  $(BUILD)/servers.json

federated: build
	@scripts/setup.sh demo test
	@scripts/federated_peers.sh $(BUILD)/federated-peers
	@$(CONFIGURE) -DGRADWIRE_BENCH=ON
	@$(COMPILE) --target secure_sum
	@$(BUILD)/bin/secure_sum
	@.venv/bin/python bench/federated.py rounds $(BUILD)/bin/gradwire $(BUILD)/federated-rounds.json
	@.venv/bin/python bench/federated.py stragglers $(BUILD)/bin/gradwire \
	  $(BUILD)/federated-stragglers.json
	@PYTHONPATH=$(BUILD)/python .venv/bin/python bench/federated.py simulators \
	  $(BUILD)/bin/gradwire $(BUILD)/federated-simulators.json \
	  --python $(BUILD)/federated-peers/bin/python

# Only the steps that need root run as root: build results stay their owner's.
install:
	@scripts/install.sh prepare $(PREFIX)
	@scripts/install.sh as-owner $(MAKE) --no-print-directory build
	@scripts/install.sh copy $(BUILD) $(PREFIX)

format:
	@scripts/setup.sh test
	@git ls-files -co --exclude-standard '*.cpp' '*.h' | xargs .venv/bin/clang-format -i

tidy:
	@scripts/setup.sh build test tidy
	@cmake -S . -B $(BUILD)/tidy -G Ninja -DGRADWIRE_TORCH=OFF -DGRADWIRE_UNITY=OFF
	@scripts/tidy.sh $(BUILD)/tidy $(JOBS)

# Excludes simulations, which are single-threaded and take ten times as long under ThreadSanitizer.
# setarch -R: ThreadSanitizer needs an address space without randomization.
sanitize: SANITIZE ?= thread
sanitize: FOLDER = $(BUILD)-$(firstword $(subst $(comma), ,$(SANITIZE)))
sanitize: LAYERS = net engine bootstrap comm exchange servers step emulation federated \
	$(if $(filter-out thread,$(SANITIZE)),base topology schedule codec trace report checkpoint workload plan)
sanitize:
	@scripts/setup.sh build test
	@cmake -S . -B $(FOLDER) -G Ninja -DGRADWIRE_TORCH=OFF -DGRADWIRE_TESTS=ON \
	  -DGRADWIRE_HOST_TESTS=OFF -DGRADWIRE_SANITIZE=$(SANITIZE)
	@setarch -R cmake --build $(FOLDER) --parallel $(JOBS) --target $(addprefix test_,$(LAYERS))
	@setarch -R ctest --test-dir $(FOLDER) --output-on-failure --no-tests=error -j2 \
	  -R '^($(subst $(space),|,$(strip $(LAYERS))))\.' -E 'Sim|Conformance|EveryRule|report.page|plan.page'

# Inputs that fail are kept in $(BUILD)/fuzz. The tests run each target for two seconds.
fuzz: SEED ?= 1
fuzz: EXECUTIONS ?= 1000000
fuzz: CORPORA = $(CURDIR)/tests/fuzz/corpora
fuzz:
	@scripts/setup.sh build test
	@$(CONFIGURE) -DGRADWIRE_TESTS=ON
	@$(COMPILE) --target fuzzers
	@cd $(BUILD)/fuzz && ls ../bin/fuzz_* | grep -v fuzz_planted | \
	  sed 's,.*/fuzz_,,' | xargs -P $(JOBS) -I '{}' env ../bin/fuzz_'{}' --seed $(SEED) \
	    --executions $(EXECUTIONS) --corpus $(CORPORA)/'{}'.corpus \
	    --write-corpus $(CORPORA)/'{}'.corpus

clean:
	@rm -rf $(BUILD) $(DEMO_OUTPUT)
