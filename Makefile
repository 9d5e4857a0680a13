# make test     everything CI runs, from nothing but Python >= 3.11 and a C/C++ compiler
# make check    the same checks with PYTHON as it is (PYTHONPATH=src after `make native`)
# make native   build the runtime's Python module in place, for work with PYTHONPATH=src
# make demo     the demo, in the environment of `make test`

VENV ?= .venv
PYTHON ?= $(VENV)/bin/python
# The first that runs and is new enough: a name on the PATH may be a shim of nothing.
BOOTSTRAP ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
TORCH ?= torch==2.13.0
JOBS ?= 2
EXTRAS ?= test,onnx,demo,export
TAG = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
CMAKE = PATH="$(dir $(abspath $(PYTHON))):$$PATH" cmake

.PHONY: test emulator check native native-tests lint pytest demo clean

test:
	$(MAKE) --no-print-directory -j $(JOBS) $(VENV)/.installed emulator
	$(MAKE) --no-print-directory check PYTHON=$(VENV)/bin/python

# The stamp names what was installed, so a change of either file installs again. Most modules of the
# packages are never imported; those that are, are compiled then.
$(VENV)/.installed: pyproject.toml CMakeLists.txt $(wildcard src/pliant/runtime/native/*)
	@test -n "$(BOOTSTRAP)" || { echo "Python 3.11 or newer is needed" >&2; exit 1; }
	test -x $(VENV)/bin/python || $(BOOTSTRAP) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet --no-compile $(TORCH)
	$(VENV)/bin/python -m pip install --quiet --no-compile -e '.[$(EXTRAS)]'
	touch $@

# To run code for AArch64 here; its tests are skipped, and say so, where it cannot be had.
emulator:
	@command -v qemu-aarch64 >/dev/null || \
	  timeout 300 sh -c "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends qemu-user" >/dev/null 2>&1 || \
	  echo "WARNING: no qemu-aarch64 (Debian: apt-get install qemu-user, as root): code for AArch64 will not be run" >&2

check:
	$(MAKE) --no-print-directory -j $(JOBS) --output-sync lint native-tests
	$(MAKE) --no-print-directory pytest

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(PYTHON) -c 'from importlinter.cli import lint_imports_command as main; main()'

native-tests:
	$(CMAKE) -S . -B build/tests -DPLIANT_PYTHON=OFF -DPLIANT_TESTS=ON -DCMAKE_BUILD_TYPE=Debug >/dev/null
	$(CMAKE) --build build/tests -j $(JOBS)
	cd build/tests && PATH="$(dir $(abspath $(PYTHON))):$$PATH" ctest --output-on-failure -j $(JOBS)

# Processes that tests begin need not compile all of Pliant's Python again.
unexport PYTHONDONTWRITEBYTECODE

# Last, so that pytest's summary ends the output.
pytest:
	$(PYTHON) -m pytest -n $(JOBS) --dist worksteal tests

native:
	$(CMAKE) -S . -B build/native$(TAG) -DPython_EXECUTABLE=$(abspath $(PYTHON)) >/dev/null
	$(CMAKE) --build build/native$(TAG) -j $(JOBS)
	install -m 755 build/native$(TAG)/_native*.so src/pliant/runtime/

demo: $(VENV)/.installed
	$(VENV)/bin/pliant demo

clean:
	rm -rf build src/pliant/runtime/_native*.so
