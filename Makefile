# make test        everything a change must pass; does all its own set-up
# make test-long   what takes minutes, and how much of the code the tests run: before a release
# make format      lay the code out
# make benchmarks  the tool's own speed
.PHONY: test test-long lint format benchmarks environment clean
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

test: lint
	@"$(ROOT)tools/chromium"
	@cd "$(ROOT)" && "$(BIN)/python" -m pytest -m "not long"

test-long: lint
	@"$(ROOT)tools/chromium"
	@cd "$(ROOT)" && "$(BIN)/python" -m pytest --cov --cov-branch --cov-report=term

format: environment
	@cd "$(ROOT)" && "$(BIN)/ruff" check --fix . && "$(BIN)/ruff" format .

benchmarks: environment
	@cd "$(ROOT)" && "$(BIN)/python" -m benchmarks

clean:
	@if [ -e "$(VENV)/.whichgpu" ]; then rm -rf "$(VENV)" "$(VENV).lock"; fi
