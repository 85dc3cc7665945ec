# You need Python >= 3.11, make and a shell; everything else is installed into .venv.
# `make` alone lists the targets.

PY := .venv/bin/python
RUN_READY := .venv/ready
DEV_READY := .venv/ready-dev
# One worker runs all tests of a file, so that what they share is made only once. tests/conftest.py
# says which files come first.
PYTEST := -n 2 --dist loadfile --no-loadscope-reorder --durations 10

.DEFAULT_GOAL := help
# If this were set, every process that a test starts would compile PyTorch's Python files again, in two seconds.
export PYTHONDONTWRITEBYTECODE :=
.PHONY: help setup demo test test-all behaviour lint style types tables format bench bench-grounding bench-encoder bench-build docs wheel lock clean mutants fuzz torture

help: ## list these targets
	@echo "loger: recommendations with reasons that are true"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

setup: $(DEV_READY) ## create .venv with everything for development

demo: $(RUN_READY) ## show loger at work on a small invented shop
	@.venv/bin/loger demo

test: $(DEV_READY) style ## before every commit: style, types and every behaviour (six minutes)
	@$(MAKE) --no-print-directory -j 2 types behaviour

test-all: $(DEV_READY) style ## before a release: also tests that take long and rarely fail (half an hour)
	@$(MAKE) --no-print-directory -j 2 types docs
	OMP_NUM_THREADS=1 LOGER_EXAMPLES=long $(PY) scripts/line_coverage.py 95 $(PYTEST)
	$(PY) scripts/mutants.py --sample 300

# Tests must run at least 90% of the lines of src; test-all requires 95%.
behaviour: $(DEV_READY)
	OMP_NUM_THREADS=1 $(PY) scripts/line_coverage.py 90 $(PYTEST) -m "not long"

lint: style types ## check style (ruff) and types (mypy)

style: $(DEV_READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(DEV_READY)
	$(PY) -m mypy

tables: $(DEV_READY) ## copy the stored figures of docs/tables into the pages
	$(PY) benchmarks/tables.py

mutants: $(DEV_READY) ## change the source in small ways and see whether tests fail (hours; ARGS="--sample 300")
	$(PY) scripts/mutants.py $(ARGS)

fuzz: $(DEV_READY) ## feed the readers a million generated tables (hours; N=1000 for fewer)
	$(PY) tests/torture/fuzz_readers.py $(or $(N),1000000)
	$(PY) tests/torture/fuzz_events.py 1000

torture: $(DEV_READY) ## kill commands at every write, damage 100,000 bundles, serve for two hours (N=1000 for fewer bundles)
	$(PY) tests/torture/kills.py
	$(PY) tests/torture/hostile_bundles.py $(or $(N),100000)
	$(PY) tests/torture/soak.py --soak 7200 --reload 60
	LOGER_HISTORIES=1000 $(PY) -m pytest -m long tests/test_events.py -k forgotten

format: $(DEV_READY) ## format the code
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(DEV_READY) ## measure the speed page's table (half an hour; ARGS="--write" stores it)
	$(PY) benchmarks/speed.py $(ARGS)

bench-grounding: $(DEV_READY) ## count groundings at full size, compared with SciPy, DuckDB and others
	$(PY) benchmarks/grounding.py

bench-encoder: $(DEV_READY) ## train and retrieve at full size, compared with the authors' way, PyKEEN and PyG
	$(PY) benchmarks/encoder.py
	$(PY) benchmarks/encoder_quality.py

bench-build: $(DEV_READY) ## build a data set from a million raw reviews, killed and resumed
	$(PY) benchmarks/build.py --kill

docs: $(DEV_READY) ## build the documentation in docs/_build; warnings are errors
	$(PY) -m sphinx -W --keep-going -q docs docs/_build
	@echo "open docs/_build/index.html"

wheel: $(DEV_READY) ## build the wheel in dist, with a bill of materials (SBOM)
	rm -rf dist
	$(PY) -m hatchling build -t wheel
	$(PY) scripts/sbom.py dist/*.whl

lock: ## write requirements-dev.lock again (needs uv and the network)
	uv pip compile -q pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-annotate --upgrade \
	  --excludes scripts/unlocked.txt --custom-compile-command "make lock" -o requirements-dev.lock

clean: ## remove .venv and everything built
	rm -rf .venv build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# Stamps change only with the requirements, so a second run starts at once.
# The development environment can also run loger.
$(RUN_READY): pyproject.toml scripts/setup.sh
	@scripts/setup.sh
	@touch $@

$(DEV_READY): pyproject.toml scripts/setup.sh
	@scripts/setup.sh dev
	@touch $(RUN_READY) $@
