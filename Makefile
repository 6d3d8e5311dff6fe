# Every target sets up .venv when it is missing or older than the files that describe it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.docs-installed

OLDEST := .venv-oldest
OLDEST_STAMP := $(OLDEST)/.installed

BAYES := .venv-bayes
BAYES_STAMP := $(BAYES)/.installed

.PHONY: demo test soak fuzz test-oldest test-bayes browser lint bench bench-compare docs clean

demo: $(STAMP)
	$(BIN)/steinscope demo

test: $(STAMP) browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q

# Five times as many kills and ten times as many damaged files as `make test` tries.
soak: $(STAMP)
	OMP_NUM_THREADS=1 STEINSCOPE_CAMPAIGN=soak $(BIN)/python -m pytest -q tests/campaigns

# Twenty times as many calls with whatever users might pass as `make test` tries.
fuzz: $(STAMP)
	OMP_NUM_THREADS=1 STEINSCOPE_CAMPAIGN=fuzz $(BIN)/python -m pytest -q tests/campaigns/test_fuzz.py

# The oldest supported version of every dependency, on a part of the tests that calls all of them.
test-oldest: $(OLDEST_STAMP)
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -q -m "not slow" tests/commands tests/data tests/kernels tests/models tests/report \
		--ignore tests/report/test_browser.py

# Real samplers: PyMC, NumPyro and BlackJAX. Warnings of theirs are no errors of ours.
test-bayes: $(BAYES_STAMP)
	OMP_NUM_THREADS=1 $(BAYES)/bin/python -m pytest -n 2 --dist loadscope -q -W default tests_bayes

# The reports are tested in Chromium. It is installed by root; for others those tests say that they are skipped.
browser:
	@if { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium chromium-driver >/dev/null \
			|| echo "chromium could not be installed: the tests of reports in a browser are skipped"; \
	else echo "there is no chromium, and only root can install it: the tests of reports in a browser are skipped"; fi

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# Ratios of the last run of `make bench` beside those of the run before.
bench-compare: $(STAMP)
	$(BIN)/python -m benchmarks.comparison

# The site, in docs/_build/html. A warning is an error.
docs: $(DOCS_STAMP)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env --doctree-dir docs/_build/doctrees docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean:
	rm -rf .venv $(OLDEST) $(BAYES) results docs/_build

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --build-constraint constraints.txt --group dev --editable .
	touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group docs
	touch $@

$(OLDEST_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(OLDEST)
	sed -n 's/^    "\([a-z0-9-]*\)>=\([0-9.]*\)",$$/\1==\2/p' pyproject.toml >$(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --constraint constraints.txt "pip>=25.1"
	$(OLDEST)/bin/python -m pip install --quiet --constraint $(OLDEST)/constraints.txt --build-constraint constraints.txt \
		beartype hypothesis pytest --editable ".[parquet]"
	touch $@

$(BAYES_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(BAYES)
	$(BAYES)/bin/python -m pip install --quiet --constraint constraints.txt "pip>=25.1"
	$(BAYES)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(BAYES)/bin/python -m pip install --quiet --constraint constraints.txt --build-constraint constraints.txt --group bayes \
		--editable ".[arviz,blackjax,numpyro,pymc]"
	touch $@
