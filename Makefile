# make run: install and train the paper's method.  make test: the checks CI runs.  make test-all: the slow ones too.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: run test test-all lint clean
run: $(STAMP)
	$(BIN)/monotau train

test: lint
	$(BIN)/pytest -n 2 -m "not slow" --ignore=tests/solving
	MONOTAU_SHAPES=0 $(BIN)/pytest -n 2 -m "not slow" tests/solving

test-all: test
	$(BIN)/pytest -n 2 -m slow --timeout=7200 --ignore=tests/solving || test $$? -eq 5
	MONOTAU_SHAPES=0 $(BIN)/pytest -m slow --timeout=7200 tests/solving

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/mypy

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "monotau needs Python >= 3.11, $(PYTHON) is " + sys.version.split()[0] + "; try make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

clean:
	rm -rf .venv runs .mypy_cache .ruff_cache .hypothesis
