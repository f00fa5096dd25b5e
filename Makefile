# Needs python3 >= 3.11, make and a package index; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PEERS := $(VENV)/.peers
FINRL := 0.3.7 0.3.5

# One thread: on small networks more threads only get in each other's way.
export OMP_NUM_THREADS = 1

.PHONY: help demo docs test test-slow check check-format check-lint check-types format bench bench-learning clean

help:
	@echo "make demo            train an agent on Pendulum-v1, draw its learning curve (a few minutes)"
	@echo "make docs            build docs/ -> docs/_build/index.html"
	@echo "make test            the unit tests without the slow ones"
	@echo "make test-slow       the slow ones"
	@echo "make check           format, lint and types"
	@echo "make format          mend format and what lint can mend"
	@echo "make bench           speed and memory against Stable-Baselines3 -> benchmarks/results/speed.md"
	@echo "make bench-learning  every agent on its tasks, several seeds; a day -> benchmarks/results/{learning,report}.md"
	@echo "make clean           remove .venv, caches and the demo's folder"

# The stamp is written last: an interrupted installation starts afresh, and so does one older than requirements.txt.
$(INSTALLED): requirements.txt requirements-no-deps.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	rm -rf $(VENV)
	@echo "Installing torch and what the tests need into $(VENV), about 2 GB: once, for some minutes, without a word."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-no-deps.txt
	for v in $(FINRL); do $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--target $(VENV)/finrl-$$v finrl==$$v || exit 1; done
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

$(PEERS): benchmarks/requirements.txt $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -r benchmarks/requirements.txt
	touch $@

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

docs: $(INSTALLED)
	$(BIN)/python -m sphinx -W -n -q docs docs/_build

test: $(INSTALLED)
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

check: check-format check-lint check-types

check-format: $(INSTALLED)
	$(BIN)/ruff format --check .

check-lint: $(INSTALLED)
	$(BIN)/ruff check .

check-types: $(INSTALLED)
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(PEERS)
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/env_speed.py

bench-learning: $(PEERS)
	$(BIN)/python benchmarks/learning.py --jobs 2
	$(BIN)/python benchmarks/report.py

clean:
	rm -rf $(VENV) build dist docs/_build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis demo_run
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
