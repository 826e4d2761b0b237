# make run: install and train the paper's method.  make test: the checks CI runs.  make test-all: the slow ones too.
# make docs: the documentation site, in site/.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.installed-docs

.PHONY: run test test-all lint docs clean
run: $(STAMP)
	$(BIN)/monotau train

test: lint
	$(BIN)/pytest -n 2 -rs -m "not slow" --ignore=tests/solving
	MONOTAU_SHAPES=0 $(BIN)/pytest -n 2 -m "not slow" tests/solving

test-all: test
	$(BIN)/pytest -n 2 -m slow --timeout=7200 --ignore=tests/solving || test $$? -eq 5
	MONOTAU_SHAPES=0 $(BIN)/pytest -m slow --timeout=7200 tests/solving

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks docs examples
	$(BIN)/ruff format --check src tests benchmarks docs examples
	$(BIN)/mypy

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "monotau needs Python >= 3.11, $(PYTHON) is " + sys.version.split()[0] + "; try make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	touch $(DOCS_STAMP)

clean:
	rm -rf .venv runs site .mypy_cache .ruff_cache .hypothesis
