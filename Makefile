# `make demo` and `make test` are all that a newcomer needs; each creates the environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The decoder that the tests of the GBNF grammars ask. Without its dependencies: they are torch for CUDA and transformers,
# of which it needs neither to read a grammar.
DECODER := xgrammar apache-tvm-ffi

.PHONY: setup demo test test-slow test-scale docs calibrate small-model lint types contracts clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps $(DECODER) || \
		echo "no GBNF decoder for this machine: its tests are skipped"
	touch $@

demo: $(STAMP)
	$(BIN)/avo evolve --target attention --hw b200
	$(BIN)/avo report

# A file of tests runs in one process, for its tests share what is dear to set up; `pytest` alone runs all in its own.
# Files come in their order: by the number of their tests, as would be usual, the last to begin are long ones.
test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

# A Ray cluster whose nodes die, several processes at one run, a page of 10,000 candidates: about four minutes.
test-scale: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[ray]'
	$(BIN)/python -m pytest -m slow tests/evaluators/test_cluster.py tests/avo/test_joined.py tests/avo/test_report_browser.py

# The documentation as a site under build/site; a link that leads nowhere fails it.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python -m mkdocs build --quiet

calibrate: $(STAMP)
	$(BIN)/python benchmarks/calibrate.py

small-model:
	benchmarks/agents/small_model.sh

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist *.egg-info
