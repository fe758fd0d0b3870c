# Everything goes through here; `make demo` and `make test` need nothing but Python 3.11 and a network to install from.
# VENV and PYTHON may be overridden: make test VENV=/path/to/venv

PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.trainmaster-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
NAME ?=

export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup packages demo demo-maintenance test check prove bench docs clean

setup: $(STAMP)

$(STAMP):
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --compile --constraint constraints.txt --editable '.[dev]'
	rm -f $(VENV)/.trainmaster-*
	touch $@

demo: setup
	$(RUN) -m trainmaster demo --out build/demo

demo-maintenance: setup
	$(RUN) -m trainmaster demo --maintenance --out build/demo-maintenance

packages:
	./scripts/test-packages.sh

test: setup packages
	$(RUN) -m pytest -m "not real" -n 2
	$(RUN) -m pytest -m real -n 2 --dist loadfile --no-loadscope-reorder

check: setup
	$(RUN) -m ruff format --check src tests bench
	$(RUN) -m ruff check src tests bench
	$(RUN) -m mypy

prove: setup packages
	$(RUN) -m tests.prove $(NAME)

bench: setup
	$(RUN) -m bench $(NAME)

docs: setup
	$(RUN) docs/generate.py

clean:
	rm -rf build .mypy_cache .ruff_cache
