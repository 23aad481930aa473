# The commands of a newcomer; each does the set-up it needs. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# TORCH_PYTHON=/path/python uses the torch installed there; default: one in .venv.
export TORCH_PYTHON ?=
torch_python := $(abspath $(or $(TORCH_PYTHON),.venv/bin/python))
# Objects compiled in one checkout serve another.
export CCACHE_BASEDIR := $(CURDIR)

.PHONY: help setup setup-test build compile demo test bench fuzz lint format clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## (.*)/make \1\t\2/' | expand -t 14

setup:  ## system packages and the Python environment; the other targets do it by themselves
	@tools/setup.sh

setup-test:
	@tools/setup.sh test

build: setup compile  ## build/release/bin/yard and yard-train

compile:
	@cmake --preset release -DTORCH_PYTHON=$(torch_python) >build/.setup/configure.log \
	  || { tail -n 30 build/.setup/configure.log; exit 1; }
	@cmake --build --preset release -j "$$(tools/build_jobs.sh)"

demo: build  ## trains a small text-to-image model on this machine; writes demo/report.html
	@demo/run.sh

test: setup-test compile  ## all tests
	@failed=; \
	ctest --preset release || failed=1; \
	.venv/bin/python -m pytest -q -rs tests || failed=1; \
	[ -z "$$failed" ]

bench: setup-test compile  ## every claim measured beside its peer, on this machine
	@bench/run all

fuzz: setup  ## every parser of foreign bytes under libFuzzer; FUZZ_SECONDS=60 each
	@tools/fuzz.sh

lint: setup-test  ## format and layers
	@tools/lint.sh

format: setup-test  ## puts the C++ files into the project's format
	@tools/lint.sh --fix

clean:  ## removes build/, keeps .venv
	@rm -rf build
