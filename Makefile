# make test        everything a change must pass; does all its own set-up
# make test-long   tests that take minutes, and test coverage: before a release
# make coverage    test coverage alone: fails if the branch coverage of a package is below 90%
# make mutation    how many small faults in estimate and price the tests notice (cosmic-ray): an hour or two
# make docs        the documentation as a site (site/), outputs shown in it refreshed
# make refit       fit the model's parameters and corrections on the evidence table, write the accuracy pages: a quarter of an hour
# make format      format the code
# make benchmarks  the tool's own speed
# make release-check  builds, installs into an empty environment, runs the README's examples
.PHONY: release-check test test-long mutation lint tests tests-inside tests-outside tests-surface tests-long browser format docs benchmarks environment environment-long clean
.PHONY: refit coverage coverage-begun coverage-inside coverage-outside coverage-surface
MAKEFLAGS += --jobs=3 # three parts of the tests at once, since they also wait for servers and files; then the types
.DEFAULT_GOAL := test
ROOT := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))
VENV := $(or $(WHICHGPU_VENV),$(ROOT).venv)
BIN := $(VENV)/bin

# Tests start the tool hundreds of times: bytecode of changed modules is written once, also where PYTHONDONTWRITEBYTECODE is set.
environment:
	@"$(ROOT)tools/environment" dev
	@"$(BIN)/python" -m compileall -q "$(ROOT)src"

# Packages of the long tests and of the documentation besides.
environment-long:
	@"$(ROOT)tools/environment" long

lint: environment
	@cd "$(ROOT)" && "$(BIN)/ruff" check . && "$(BIN)/ruff" format --check .
	@cd "$(ROOT)" && "$(BIN)/mypy"
	@cd "$(ROOT)src" && "$(BIN)/lint-imports" --no-logo --config ../pyproject.toml

browser: environment
	@"$(ROOT)tools/chromium"

# Three parts that take about as long: commands and pages; what starts browsers, servers and examples; all others.
SURFACE := tests/surface
OUTSIDE := tests/browser tests/data tests/docs tests/live tests/properties tests/release tests/seeds tests/truth

tests-surface: environment
	@cd "$(ROOT)" && "$(BIN)/python" -m pytest -m "not long" $(SURFACE)

tests-outside: environment browser
	@cd "$(ROOT)" && "$(BIN)/python" -m pytest -m "not long" $(OUTSIDE)

tests-inside: environment
	@cd "$(ROOT)" && "$(BIN)/python" -m pytest -m "not long" $(SURFACE:%=--ignore=%) $(OUTSIDE:%=--ignore=%)

tests: tests-surface tests-outside tests-inside

tests-long: environment environment-long browser
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check pip-audit mcp==2.3.0 || echo "no index: pip-audit and the client of mcp are left out"
	@cd "$(ROOT)" && "$(BIN)/python" -m pytest -m long
	@cd "$(ROOT)" && WHICHGPU_EXAMPLES=10 "$(BIN)/python" -m pytest -m "not long" tests/properties

# The same tests as `make test`, in as many processes, their children counted too; no folder of evidence, as in a fresh clone.
COVERED := PYTHONPATH=src WHICHGPU_SHARED="$(ROOT)no-such-folder" "$(BIN)/python" -m coverage run -m pytest -m "not long"

coverage-begun: environment environment-long
	@cd "$(ROOT)" && "$(BIN)/python" -m coverage erase

coverage-surface: coverage-begun
	@cd "$(ROOT)" && $(COVERED) $(SURFACE)

coverage-outside: coverage-begun browser
	@cd "$(ROOT)" && $(COVERED) $(OUTSIDE)

coverage-inside: coverage-begun
	@cd "$(ROOT)" && $(COVERED) $(SURFACE:%=--ignore=%) $(OUTSIDE:%=--ignore=%)

coverage: coverage-surface coverage-outside coverage-inside
	@cd "$(ROOT)" && "$(BIN)/python" -m coverage combine --quiet && "$(BIN)/python" tools/package_coverage.py

# The types are checked as soon as one part of the tests has ended.
test: tests lint

test-long: lint tests-long coverage

mutation: environment
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check cosmic-ray==8.7.0
	@cd "$(ROOT)" && "$(BIN)/python" tools/mutation --least 0.8 $(MUTATION)

format: environment
	@cd "$(ROOT)" && "$(BIN)/ruff" check --fix . && "$(BIN)/ruff" format .

refit: environment
	@cd "$(ROOT)" && PYTHONPATH=src:tools "$(BIN)/python" -m calibration.refit
	@cd "$(ROOT)" && PYTHONPATH=src:tools "$(BIN)/python" -m benchmarks.accuracy_pages
	@cd "$(ROOT)" && PYTHONPATH=src "$(BIN)/python" tools/digests

docs: environment environment-long
	@cd "$(ROOT)" && PYTHONPATH=src:tools "$(BIN)/python" -m reference.glossary && PYTHONPATH=src:tools "$(BIN)/python" -m reference.outputs
	@cd "$(ROOT)" && NO_MKDOCS_2_WARNING=true "$(BIN)/python" -m mkdocs build --strict --quiet && echo "site/index.html"

benchmarks: environment
	@cd "$(ROOT)" && PYTHONPATH=src "$(BIN)/python" -m benchmarks

release-check: environment environment-long
	@cd "$(ROOT)" && "$(BIN)/python" tools/release_check.py

clean:
	@if [ -e "$(VENV)/.whichgpu" ]; then rm -rf "$(VENV)" "$(VENV).lock"; fi
