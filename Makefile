# Every target sets up .venv when it is missing or older than the files that describe it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.docs-installed

.PHONY: demo test browser lint bench docs clean

demo: $(STAMP)
	$(BIN)/steinscope demo

test: $(STAMP) browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q

# The reports are tested in Chromium. It is installed where that is allowed; elsewhere those tests say that they are skipped.
browser:
	@if { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium chromium-driver >/dev/null \
			|| echo "chromium could not be installed: the tests of reports in a browser are skipped"; \
	else echo "there is no chromium, and no leave to install it: the tests of reports in a browser are skipped"; fi

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# The site, in docs/_build/html. A warning is an error.
docs: $(DOCS_STAMP)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env --doctree-dir docs/_build/doctrees docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean:
	rm -rf .venv results docs/_build

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --build-constraint constraints.txt --group dev --editable .
	touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group docs
	touch $@
