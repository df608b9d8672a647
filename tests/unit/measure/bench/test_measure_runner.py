"""What `measure` runs: in the time and memory there is, none of the truth, only what the GPU can."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conftest import SHARED
from whichgpu.base.messages import msg
from whichgpu.catalog.store import Catalog
from whichgpu.measure.bench.case import CannotRun, Conditions, OperatorCase, PreparedStep, StepCase, Timing, summarise_runs
from whichgpu.measure.bench.operator_cases import operator_cases
from whichgpu.measure.bench.runnable import why_not_runnable
from whichgpu.measure.bench.runner import Runner
from whichgpu.measure.bench.step_cases import step_cases
from whichgpu.workload.models import find_model
from whichgpu.workload.spelling import fill_defaults, from_object

GPU = "h200-sxm"


def request(**fields: Any) -> dict[str, Any]:
    return {"task": "train", "model": "resnet34", "engine": "pytorch", "batch": 64, "precision": "amp-bf16", **fields}


class FakeBench:
    """Takes a second a case by the clock it is given; runs out of memory or fails on demand."""

    def __init__(
        self, free: int = 100 << 30, fails: Mapping[str, Exception] | None = None, slow: Mapping[str, float] | None = None
    ) -> None:
        self.seconds, self.free, self.fails, self.slow = 0.0, free, fails or {}, slow or {}

    def about(self) -> Mapping[str, str]:
        return {"torch": "2.11.0"}

    def free_bytes(self) -> int:
        return self.free

    def micro(self, case: OperatorCase, watch: Any) -> Timing:
        return self._run(case.id, watch)

    def step(self, plan: PreparedStep, watch: Any) -> Timing:
        return self._run(str(plan.workload.model), watch)

    def _run(self, name: str, watch: Any) -> Timing:
        self.seconds += self.slow.get(name, 1.0)
        if name in self.fails:
            raise self.fails[name]
        watch()
        return summarise_runs([0.010, 0.011, 0.012])

    def now(self) -> float:
        return self.seconds


def runner(bench: FakeBench, seconds: float = 1000.0) -> Runner:
    return Runner(bench, seconds, bench.now, lambda: Conditions(10**9, 50, 400.0, ()))


def test_the_runner_stops_in_time(catalog: Catalog) -> None:
    bench = FakeBench()
    run = runner(bench, seconds=20.0)
    run.micros(operator_cases(catalog.gpu_by_id[GPU], bench.free, several=False))
    assert len(run.taken) == 5
    assert {one.why.id for one in run.left_out} == {"measure.no-time"}
    assert run.taken[0].conditions.temperature_celsius == 50


def test_runner_starts_no_case_that_would_exceed_the_time_limit() -> None:
    plan = PreparedStep(from_object(request()).workload, find_model("resnet34", Catalog(), None))
    bench = FakeBench(slow={"resnet34": 40.0})
    run = runner(bench, seconds=100.0)
    run.steps([StepCase(name, request()) for name in "abcd"], lambda _: (plan, 10))
    assert [one.case.id for one in run.taken] == ["a", "b"]
    assert {one.why.id for one in run.left_out} == {"measure.no-time"}
    assert bench.seconds <= 100.0


def test_the_runner_takes_no_more_memory_than_is_free(catalog: Catalog) -> None:
    bench = FakeBench(free=256 << 20)
    run = runner(bench)
    run.micros(operator_cases(catalog.gpu_by_id[GPU], bench.free, several=True))
    assert all(one.case.memory <= 0.9 * bench.free for one in run.taken if isinstance(one.case, OperatorCase))
    assert "measure.no-memory" in {one.why.id for one in run.left_out}


def test_a_case_that_fails_does_not_cost_the_others() -> None:
    plan = PreparedStep(from_object(request()).workload, find_model("resnet34", Catalog(), None))
    bench = FakeBench(fails={"resnet34": CannotRun(msg("measure.out-of-memory"))})
    run = runner(bench)
    run.steps([StepCase("a", request())], lambda _: (plan, 10))
    bench.fails = {"resnet34": RuntimeError("CUDA error")}
    run.steps([StepCase("b", request())], lambda _: (plan, 10))
    bench.fails = {}
    run.steps([StepCase("c", request())], lambda _: (plan, 10))
    assert [one.why.id for one in run.left_out] == ["measure.out-of-memory", "measure.failed"]
    assert [one.case.id for one in run.taken] == ["c"]


def test_steps_are_enough_and_each_its_own(catalog: Catalog) -> None:
    cases = list(step_cases(catalog.gpu_by_id[GPU]))
    assert len(cases) >= 20
    assert len({case.id for case in cases}) == len(cases)


def test_steps_are_none_of_the_truth(catalog: Catalog) -> None:
    """Models of the H200's measurements are left alone, so that they can check what `measure` brings."""
    folder = SHARED / "truth" / "h200"
    if not folder.is_dir():
        pytest.skip(f"no measurements in {folder}")
    files = ("train.jsonl", "infer.jsonl", "quant_moe.jsonl")
    rows = [json.loads(line) for name in files for line in (folder / name).read_text().splitlines()]
    models = {row["model"].replace("mlp-", "mlp:") for row in rows}
    assert len(models) > 20
    cases = list(step_cases(catalog.gpu_by_id[GPU]))
    assert not {case.request["model"] for case in cases if isinstance(case.request["model"], str)} & models


def test_gpus_without_bf16_are_measured_in_supported_precisions(catalog: Catalog) -> None:
    precisions = {case.request["precision"] for case in step_cases(catalog.gpu_by_id["v100-sxm-16gb"])}
    assert not precisions & {"bf16", "amp-bf16", "tf32"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, None),
        ({"engine": "vllm", "task": "decode", "model": "llama-3.1-8b"}, "verify.engine"),
        ({"task": "serve", "model": "llama-3.1-8b", "engine": "vllm"}, "verify.task"),
        ({"task": "decode", "model": "llama-3.1-8b", "engine": "cuda-graphs", "precision": "bf16"}, None),
        ({"task": "decode", "model": "llama-3.1-8b", "engine": "cuda-graphs", "precision": "fp8"}, "verify.precision"),
        ({"task": "decode", "model": "mixtral-8x7b", "engine": "cuda-graphs", "precision": "bf16"}, "verify.model"),
        ({"task": "finetune", "model": "llama-3.1-8b", "lora_rank": 16, "precision": "bf16"}, "verify.adapters"),
        ({"optimizer": "adafactor", "model": "gpt2"}, "verify.optimizer"),
        ({"accumulation": 4}, "verify.schedule"),
        ({"gpus": 8}, "verify.several"),
        ({"model": "mlp:100x100x10", "precision": "fp32"}, None),
        ({"task": "prefill", "model": "bert-base", "engine": "pytorch", "precision": "fp16"}, "verify.model"),
    ],
)
def test_runnable_and_unrunnable_cases(fields: dict[str, Any], why: str | None, catalog: Catalog) -> None:
    parsed = from_object({**request(), "batch": 8, **fields})
    shape = find_model(parsed.workload.model, catalog, None)
    message = why_not_runnable(fill_defaults(parsed.workload, shape), shape)
    assert (message.id if message else None) == why
