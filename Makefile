# Everything starts here. `make run` and `make test` set themselves up in .venv/ on a machine
# that has python3 (3.11 to 3.13) and make, nothing else. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DRAFT := $(VENV)/.installed-dflash
DEV := $(VENV)/.installed-dev
OUT := out
# The authors' own DFlash inference, which the tests compare ours with; without its dependencies,
# which pin tools that nothing here needs.
ORACLE := dflash==0.1.0

# One thread a process in numerical libraries: pytest runs one process a core.
export OMP_NUM_THREADS = 1
PYTEST := $(BIN)/python -m pytest -n 2

.DEFAULT_GOAL := help
.PHONY: help install run prove test test-slow test-all lint format bench bench-quick \
  peers rivals build docs constraints tree clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 14

install: $(DEV)  ## make .venv/ with the package, its extras and the development tools

# The stamps are written last, so an interrupted installation is done again. pip is brought up to
# the pinned version first: --group needs 25.1 or later.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else "lengthwise needs Python 3.11 to 3.13, $(PYTHON) is %d.%d; try: make PYTHON=python3.12" % v)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable '.[all]'
	@touch $@

# Training brings PyTorch.
$(DRAFT): $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable '.[all,dflash]'
	@touch $@

# The development tools apart: `run` does without.
$(DEV): $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt --group dev
	$(BIN)/python -m pip install --quiet --no-deps $(ORACLE)
	@touch $@

run: $(DRAFT)  ## the main job: plan a real corpus, train a drafter; out/report.html, out/training.html
	$(BIN)/python examples/main_job.py --output-dir $(OUT)
	$(BIN)/python examples/train_job.py --output-dir $(OUT)

prove: $(DEV)  ## DFlash on a CPU: a drafter learns, its output is the target's; writes out/proof.json
	$(BIN)/python examples/prove_drafter.py --output-dir $(OUT)

test: $(DEV)  ## the tests, without those marked slow
	$(PYTEST) -m 'not slow'

test-slow: $(DEV)  ## only the tests marked slow
	$(PYTEST) -m slow

test-all: $(DEV)  ## all tests
	$(PYTEST)

lint: $(DEV)  ## ruff's rules and format, mypy in strict mode on src/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV) tree  ## let ruff format and fix what it can, and write the README's file tree
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV)  ## the benchmarks; prints machine, versions and ratios
	$(BIN)/python benchmarks/run.py

# Only the parts that have a small form; nothing is written.
bench-quick: $(DEV)  ## small forms of the cheap benchmarks, to see that they run
	$(BIN)/python benchmarks/run.py --quick optimiser ordering frontier collating peers \
	  training_peers

peers: $(DEV)  ## an environment with other libraries' batching in out/peers, for `make bench`
	bash benchmarks/peers/install.sh

rivals: $(DEV)  ## an environment with other DFlash trainers in out/rivals, for `make bench`
	bash benchmarks/rivals/install.sh

build: $(DEV)  ## wheel and source archive in dist/
	$(BIN)/python -m build --no-isolation

# The site loads nothing from elsewhere. mkdocs 2 is another program; the notice about it is for
# those who have a choice to make.
docs: $(DEV) tree  ## the documentation as a site in out/site; open out/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Resolves the newest versions afresh in a throwaway environment and writes them down.
constraints:  ## write constraints.txt anew from the newest versions that fit pyproject.toml
	rm -rf $(OUT)/constraints-venv
	$(PYTHON) -m venv $(OUT)/constraints-venv
	$(OUT)/constraints-venv/bin/python -m pip install --quiet --upgrade pip
	$(OUT)/constraints-venv/bin/python -m pip install --quiet '.[all]' --group dev
	grep '^#' constraints.txt > $(OUT)/constraints.txt
	$(OUT)/constraints-venv/bin/python -m pip freeze --all --exclude lengthwise --exclude setuptools | sed 's/+cpu$$//' >> $(OUT)/constraints.txt
	mv $(OUT)/constraints.txt constraints.txt
	rm -rf $(OUT)/constraints-venv

tree: $(DEV)  ## write the file trees and the page of commands anew from the sources
	$(BIN)/python docs/file_tree.py
	$(BIN)/python docs/cli_page.py

clean:  ## remove .venv/, out/, dist/ and the tools' caches
	rm -rf $(VENV) $(OUT) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
