# Everything runs in .venv, which this file creates; PYTHON is the interpreter it is created from.
PYTHON ?= python3
# TORCH=cpu leaves the GPU libraries out, by PyTorch's own index of wheels; TORCH_INDEX names another index, such as a mirror of it.
TORCH ?= gpu
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
BIN := .venv/bin
JOBS ?= 2
TEST_FLAGS ?= -q

PACKAGES_gpu = -r requirements.txt -r requirements/dev.txt
PACKAGES_cpu = -r requirements/cpu.txt -r requirements/dev.txt --extra-index-url $(TORCH_INDEX)
SIZE_gpu = downloads 4.1 GB and takes 7.7 GB of disk on Linux (PyTorch with its GPU libraries; without them, by make TORCH=cpu: 0.4 GB and 2 GB)
SIZE_cpu = downloads 0.4 GB and takes 2 GB of disk (PyTorch without GPU libraries)

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-gpu docs wheel completion lint bench study-data objects-data referee clean environment

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

environment: .venv/.installed

.venv/.installed: requirements.txt requirements/cpu.txt requirements/dev.txt requirements/docs.txt requirements/notebook.txt requirements/constraints.txt
	@case "$(TORCH)" in gpu|cpu) ;; *) echo "TORCH=$(TORCH): gpu or cpu" >&2; exit 2;; esac
	@echo "== making the environment in .venv: $(SIZE_$(TORCH)); data and weights: nothing for the demo"
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed: make PYTHON=python3.11 …')"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PACKAGES_$(TORCH)) -c requirements/constraints.txt
	@touch $@

demo: environment  ## environment, then the main job on the embedded glyphs, with table and pictures
	@echo "== training on the embedded data set: 250 characters train, 251 others are searched"
	$(BIN)/python main.py --config demo_glyphs --group Demo

test: environment  ## environment and all tests but the slow ones
	@echo "== running the tests"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(TEST_FLAGS) -n $(JOBS) -m "not long"

test-long: environment  ## the slow tests, about an hour: kills and resumes, whole protocols
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(TEST_FLAGS) -n $(JOBS) -m long

test-gpu: environment  ## the tests that need a CUDA device
	$(BIN)/python -m pytest $(TEST_FLAGS) -m gpu -rs

docs: environment  ## the documentation site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "== build/site/index.html: open it in a browser; no server is needed"

completion: environment  ## scripts by which bash and zsh complete flags, in build/completion
	@mkdir -p build/completion
	$(BIN)/python -m tools.completion bash > build/completion/dmlkit.bash
	$(BIN)/python -m tools.completion zsh > build/completion/_dmlkit
	@echo "== source build/completion/dmlkit.bash; for zsh copy build/completion/_dmlkit to a folder of fpath"

wheel: environment  ## the package dmlkit in dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

lint: environment  ## ruff
	$(BIN)/ruff check .

bench: environment  ## the quick benchmarks: start-up, input, loop
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/input.py
	$(BIN)/python benchmarks/loop.py

study-data: environment  ## fetch what docs/study.md trains on (npm, pip; 350 MB) and lay it out in Datasets/
	$(BIN)/python -m experiments.study.data

objects-data: environment  ## fetch 3D models (apt-get; 730 MB) and render the objects of docs/data.md in Datasets/, in 20 minutes on one core
	$(BIN)/python -m experiments.objects.data

referee:  ## ask other programs for exact cases (docs/referee.md), in .venv-referee: as large as .venv, and 1.5 GB for the programs
	$(PYTHON) -m venv .venv-referee
	.venv-referee/bin/python -m pip install --quiet --disable-pip-version-check $(PACKAGES_$(TORCH)) -c requirements/constraints.txt
	.venv-referee/bin/python -m pip install --quiet --disable-pip-version-check -r referee/requirements.txt
	.venv-referee/bin/python -m pip install --quiet --disable-pip-version-check --no-deps open-metric-learning==4.0.0 fastreid==1.4.0
	.venv-referee/bin/python -m referee

clean:  ## remove the environment and caches; runs and data stay
	rm -rf .venv .venv-referee .pytest_cache .ruff_cache .hypothesis build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
