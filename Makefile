# Everything runs in .venv, which this file creates; PYTHON is the interpreter it is created from.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 2
TEST_FLAGS ?= -q

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-gpu lint bench clean environment

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

environment: .venv/.installed

.venv/.installed: requirements.txt requirements-dev.txt constraints.txt
	@echo "== making the environment in .venv (a few minutes, several GB: PyTorch with its GPU libraries)"
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed: make PYTHON=python3.11 …')"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt -c constraints.txt
	@touch $@

demo: environment  ## environment, then the main job on the embedded glyphs, with table and pictures
	@echo "== training on the embedded data set: 250 characters train, 251 others are searched"
	$(BIN)/python main.py --config demo_glyphs --group Demo

test: environment  ## environment and all tests but the slow ones
	@echo "== running the tests"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(TEST_FLAGS) -n $(JOBS) -m "not long"

test-long: environment  ## the slow tests: kills and resumes, whole protocols
	$(BIN)/python -m pytest $(TEST_FLAGS) -m long

test-gpu: environment  ## the tests that need a CUDA device
	$(BIN)/python -m pytest $(TEST_FLAGS) -m gpu -rs

lint: environment  ## ruff
	$(BIN)/ruff check .

bench: environment  ## the quick benchmarks: start-up, input, loop
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/input.py
	$(BIN)/python benchmarks/loop.py

clean:  ## remove the environment and caches; runs and data stay
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
