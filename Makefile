# Two commands do everything from a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# uv looks for offered wheels where pip does; TORCH_INDEX may name an index with CPU builds of torch. Bytecode is written
# now: where PYTHONDONTWRITEBYTECODE is set nobody does it later, and every start spends 3 s on compiling torch again.
UV     := UV_FIND_LINKS="$(PIP_FIND_LINKS)" UV_LINK_MODE=copy $(BIN)/uv pip install --compile-bytecode --quiet --python $(BIN)/python -c constraints.txt
TORCH  := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),)
# One thread per process: two torch threads beside a busy core run several times slower than one.
# (nproc would count OMP_NUM_THREADS, which is about threads, not processes.)
JOBS   ?= $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || echo 2)
SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.PHONY: demo test check browser scorers test-long test-cuda coverage lint types docs wheel install clean help

help:
	@echo "make demo       install into .venv and fill in a story"
	@echo "make test       lint, types, the test suite        (about 15 minutes on 2 cores)"
	@echo "make check      its fast part                       (under 2 minutes)"
	@echo "make test-long  kill tests, fuzzing, long statistics (under 40 minutes)"
	@echo "make test-cuda  the CPU against a GPU               (needs a GPU)"
	@echo "make coverage   branches that no test takes"
	@echo "make docs       the documentation as pages, docs/_build/index.html"
	@echo "make wheel      build dist/fabula_stories-*: wheel and sdist, checked"

install: $(READY)

$(READY): pyproject.toml paper/pyproject.toml constraints.txt scorers.txt
	@command -v $(PYTHON) >/dev/null || { echo "fabula: $(PYTHON) was not found; install Python 3.11 or newer, or say make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fabula: Python 3.11 or newer is needed; say make PYTHON=python3.12, for example"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "fabula: could not create $(VENV); on Debian: apt-get install python3-venv"; exit 1; }
	@echo "Installing Fabula into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --upgrade uv
	@$(UV) $(TORCH) torch
	@$(UV) -e '.[studio,mcp,fleet,docs,dev]' -e paper
	@$(UV) --no-deps -r scorers.txt
	@touch $(READY)

# The browser tests want a real Chromium: the one that is there, else Debian's (playwright's own needs a download site).
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || { echo "Installing chromium ..."; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	  || { echo "fabula: the browser tests need chromium; install it, then make test"; exit 1; }

# ROUGE-1.5.5 wants Perl's XML::Parser, METEOR Java. Where they cannot be had, the tests of them are skipped.
scorers:
	@perl -MXML::Parser -MDB_File -e 1 2>/dev/null && command -v java >/dev/null || { echo "Installing libxml-parser-perl, Java ..."; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends libxml-parser-perl default-jre-headless >/dev/null; } \
	  || echo "fabula: the paper's ROUGE and METEOR need Perl's XML::Parser and Java; their tests are skipped"

demo: $(READY)
	@$(BIN)/python -m fabula demo

lint: $(READY)
	$(BIN)/ruff check src paper tests benchmarks plugins schema docs
	$(BIN)/ruff format --check src paper tests benchmarks plugins schema docs

types: $(READY)
	$(BIN)/mypy

check: lint types
	$(PYTEST) -q -m "not long" tests/exact tests/property

test: lint types browser scorers
	$(PYTEST) -q -m "not long"

test-long: $(READY)
	$(PYTEST) -q -m long

# Fails where there is no GPU: a run that compared nothing must not look like one that passed.
test-cuda: $(READY)
	@$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || { echo "fabula: no CUDA device here; the comparisons with a GPU need one"; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/cuda

# A target of its own, for tracing slows the tests; those of pages and servers would add nothing to these folders, those
# of commands, files and settings do: that is where mistakes are met.
coverage: $(READY)
	$(PYTEST) -q -m "not long" tests/exact tests/statistical tests/parity tests/property tests/smoke tests/interface \
	  --ignore-glob='*studio*' --ignore-glob='*judge*' --ignore-glob='*completions*' \
	  $(foreach part,models training infill evaluation,--cov=fabula.$(part)) --cov-branch --cov-report=term-missing:skip-covered

# A warning is an error; the pages of routes and commands are made from the code.
docs: $(READY)
	@rm -rf docs/_build docs/generated
	PYTHONPATH=src $(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

wheel: $(READY)
	@rm -rf dist
	$(BIN)/python -m build --quiet --wheel --sdist --no-isolation
	$(BIN)/twine check --strict dist/*
	@ls -l dist

clean:
	rm -rf $(VENV) dist build docs/_build docs/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis
