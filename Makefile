# make test        everything a change must pass; does all its own set-up
# make test-long   what takes minutes, and how much of the code the tests run: before a release
# make format      lay the code out
# make benchmarks  the tool's own speed
.PHONY: test test-long lint tests tests-long browser format benchmarks environment clean
MAKEFLAGS += --jobs=2 # types are checked while the tests run
.DEFAULT_GOAL := test
ROOT := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))
VENV := $(or $(WHICHGPU_VENV),$(ROOT).venv)
BIN := $(VENV)/bin

environment:
	@"$(ROOT)tools/environment" dev

lint: environment
	@cd "$(ROOT)" && "$(BIN)/ruff" check . && "$(BIN)/ruff" format --check .
	@cd "$(ROOT)" && "$(BIN)/mypy"
	@cd "$(ROOT)src" && "$(BIN)/lint-imports" --no-logo --config ../pyproject.toml

browser: environment
	@"$(ROOT)tools/chromium"

tests: environment browser
	@cd "$(ROOT)" && "$(BIN)/python" -m pytest -m "not long"

tests-long: environment browser
	@cd "$(ROOT)" && "$(BIN)/python" -m pytest --cov --cov-branch --cov-report=term

test: lint tests

test-long: lint tests-long

format: environment
	@cd "$(ROOT)" && "$(BIN)/ruff" check --fix . && "$(BIN)/ruff" format .

benchmarks: environment
	@cd "$(ROOT)" && "$(BIN)/python" -m benchmarks

clean:
	@if [ -e "$(VENV)/.whichgpu" ]; then rm -rf "$(VENV)" "$(VENV).lock"; fi
