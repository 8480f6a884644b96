# What a newcomer needs: `make demo` and `make test`. Everything else is for working on hpcflow.
#
# Set-up is done by the targets themselves, in .venv; a target runs again what changed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The first Python from 3.10 on that can make virtual environments. The system's comes first: the
# test users of the cluster are ordinary users, and must be able to run it too.
PYTHON ?= $(shell for python in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	"$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
	&& { command -v "$$python"; break; }; done)
# Container images set it. Every process of the tests would compile all of hpcflow again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt
CLUSTER := $(BIN)/python -m hpcflow.testing.cluster
TESTS := $(BIN)/python -m tests.unit -q --dist=loadgroup --no-loadscope-reorder

.PHONY: help demo test test-slurm lint unit packages cluster-up cluster-down bench soak docs golden clean

help: ## show this
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

demo: .venv/.demo-ready ## the main job: train on real data, with Slurm or without
	@examples/demo.sh $(BIN)

test: packages .venv/.dev-ready lint unit ## linters, types and all tests, on real servers

lint: .venv/.dev-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

unit: .venv/.dev-ready
	$(TESTS) -m "not soak" --durations=15 --numprocesses=4

test-slurm: packages .venv/.dev-ready ## all tests of the cluster on another Slurm: VERSION=26.05
	@[ -n "$(VERSION)" ] || { echo "which version? make test-slurm VERSION=26.05" >&2; exit 2; }
	$(TESTS) -m "cluster and not soak" --slurm $(VERSION) --numprocesses=2

# Debian's packages come first, because python3-venv is one of them. As root they are installed,
# otherwise it is said which are missing.
packages:
	@if [ -x $(BIN)/python ]; then python=$(BIN)/python; else python=python3; fi; \
	PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 "$$python" -m hpcflow.testing.cluster packages \
		$$([ "$$(id -u)" != 0 ] || echo --install)

cluster-up: packages .venv/.dev-ready ## start the development cluster: Slurm, MariaDB; SLURM=26.05
	$(CLUSTER) up $(if $(SLURM),--slurm $(SLURM))
	$(CLUSTER) software

cluster-down: ## stop the development cluster
	$(CLUSTER) down

bench: packages .venv/.dev-ready ## measure the performance goals
	$(BIN)/python -m tests.benchmarks

soak: packages .venv/.dev-ready ## run the soak tests: thousands of damaged files and kills, some hours
	$(BIN)/python -m tests.soak
	$(BIN)/python -m pytest -q -m soak --numprocesses=2 --dist=loadgroup --no-loadscope-reorder

docs: .venv/.dev-ready ## write the generated parts of docs/, and build the site in build/site
	$(BIN)/python -m docs.generator
	$(BIN)/sphinx-build -W -q docs build/site

golden: .venv/.dev-ready ## write the golden scripts and the tables of SQLite again, to be looked at before a commit
	$(BIN)/python -m tests.rendering.golden
	$(BIN)/python -m tests.ledger.sqlite_tables

clean: ## remove what the targets made, the environment too
	rm -rf .venv .demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache

.venv/bin/pip:
	@[ -n "$(PYTHON)" ] || { echo "no Python from 3.10 on that can make virtual environments;" \
		"install one: apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv .venv

.venv/.demo-ready: setup.cfg .ci/constraints.txt | .venv/bin/pip
	@echo "setting up .venv (PyTorch takes a minute) ..."
	$(PIP) --editable '.[train]'
	@touch $@

.venv/.dev-ready: setup.cfg .ci/constraints.txt | .venv/bin/pip
	@echo "setting up .venv with the tools for development ..."
	$(PIP) --editable '.[dev]'
	@touch $@
