# `make demo` and `make test` need Python 3.11, git and make; each installs what it needs into .venv first.
# ARGS reaches the command: make test ARGS="tests/rollout -x"; make demo ARGS="--seed 1".

BIN := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help

.PHONY: demo test check docs wheel-test openenv-test oracle-test bench-horizon bench-algorithms results format java shim clean help

help:
	@echo "make demo        train an agent and watch it get better (ten minutes on two cores)"
	@echo "make test        run the tests"
	@echo "make check       ruff, mypy, import-linter"
	@echo "make docs        build the documentation into site/"
	@echo "make wheel-test  build the wheel, install it in a clean environment, serve, play and evaluate from it"
	@echo "make openenv-test  the openenv package's client and validator, from an environment of their own, on our dialect"
	@echo "make oracle-test   verl's and TRL's numbers again, from an environment of their own, against those our tests hold"
	@echo "make bench-serve  an environment server under load: speed, CPU time, memory (ARGS=--quick)"
	@echo "make bench-soak  thousands of episodes: does the server's memory come back (ARGS=--quick)"
	@echo "make bench-horizon   schedules of the horizon compared, cell by cell (ARGS=\"--hours 1\"; under three hours in all on two cores)"
	@echo "make bench-algorithms  algorithms compared, likewise"
	@echo "make results     the tables and plots of docs/results.md, from the cells that are there"
	@echo "make format      let ruff rewrite the sources"
	@echo "make java        install a Java runtime for SciWorld (root on Debian; otherwise says what is missing)"
	@echo "make shim        compile SciWorld's two Java classes anew (needs a JDK 17)"

.venv/.installed: pyproject.toml constraints.txt scripts/bootstrap.sh
	@bash scripts/bootstrap.sh

demo: .venv/.installed
	$(BIN)/sojourn demo $(ARGS)

# One thread a process: the tests are many and small, and two thread pools on two cores only fight.
test: .venv/.installed java
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(ARGS)

check: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: .venv/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel-test: .venv/.installed
	bash scripts/wheel_test.sh

openenv-test: .venv/.installed
	bash scripts/openenv_test.sh

oracle-test: .venv/.installed
	bash scripts/oracle_test.sh

bench-serve: .venv/.installed java
	for env in textcraft babyai sciworld; do $(BIN)/python benchmarks/serve.py --env $$env $(ARGS) || exit; done

bench-soak: .venv/.installed java
	$(BIN)/python benchmarks/soak.py $(ARGS)

bench-horizon: .venv/.installed
	$(BIN)/python -m benchmarks.horizon $(ARGS)

bench-algorithms: .venv/.installed
	$(BIN)/python -m benchmarks.algorithms $(ARGS)

results: .venv/.installed
	$(BIN)/python -m benchmarks.results

format: .venv/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Without Java the tests of SciWorld are skipped, hence no failure here.
java:
	@command -v java >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "sojourn: installing openjdk-17-jre-headless" >&2 && \
	  apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless >/dev/null; } || \
	  echo "sojourn: SciWorld needs a Java runtime: sudo apt-get install openjdk-17-jre-headless" >&2

SCIWORLD := src/sojourn/envs/sciworld
shim: .venv/.installed
	cd $(SCIWORLD) && javac --release 11 -g:none -Xlint:all -Werror -d . \
	  -cp "$$($(CURDIR)/$(BIN)/python -c 'from sojourn.envs.sciworld.java import find_jar; print(find_jar())')" Shim.java Parser.java
	cd $(SCIWORLD) && sha256sum Shim.java Parser.java Shim.class Parser.class > Shim.sha256

clean:
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
