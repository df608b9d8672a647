"""GPU benchmarks, as far as a CPU can check: timing of runs, and that networks match their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.catalog.store import Catalog
from whichgpu.measure.bench.case import OperatorCase, PreparedStep, Timing
from whichgpu.measure.bench.eager_models import transformer
from whichgpu.measure.bench.gpu_timer import MAX_LAUNCHES, MIN_RUNS, WARM_UPS, GpuTimer
from whichgpu.measure.bench.operator_cases import gemm, operator_cases
from whichgpu.measure.bench.operators import TIMERS
from whichgpu.measure.bench.runnable import why_not_runnable
from whichgpu.measure.bench.step_cases import step_cases
from whichgpu.measure.bench.torch_bench import TorchBench
from whichgpu.measure.bench.vision_models import RESNETS, residual_network
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import TracedShape, Transformer
from whichgpu.workload.spelling import fill_defaults, from_object


class PlayedTorch:
    """The parts of torch that timing needs: events read a clock that each launch moves on."""

    def __init__(self, seconds: Iterator[float]) -> None:
        self.now, self.launches, self.seconds = 0.0, 0, seconds
        self.cuda = self

    def launch(self) -> None:
        self.launches += 1
        self.now += next(self.seconds)

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def Event(self, enable_timing: bool) -> PlayedEvent:  # as torch spells it
        return PlayedEvent(self)


class PlayedEvent:
    def __init__(self, torch: PlayedTorch) -> None:
        self.torch, self.at = torch, 0.0

    def record(self) -> None:
        self.at = self.torch.now

    def elapsed_time(self, end: PlayedEvent) -> float:
        return (end.at - self.at) * 1e3


def played(*first: float, then: float) -> Iterator[float]:
    yield from first
    while True:
        yield then


def test_warm_ups_are_excluded_and_the_median_reported() -> None:
    torch = PlayedTorch(played(9.0, 9.0, 9.0, then=0.25))
    looks: list[int] = []
    timing = GpuTimer(torch, lambda: looks.append(torch.launches)).step(torch.launch)
    assert (timing.seconds, timing.low, timing.high) == (0.25, 0.25, 0.25)
    assert timing.runs >= MIN_RUNS
    assert looks == [torch.launches]  # read while the last launches are on their way
    assert torch.launches >= WARM_UPS + timing.runs + 1


def test_an_operators_time_is_that_of_one_launch_of_many() -> None:
    torch = PlayedTorch(played(then=1e-4))
    timing = GpuTimer(torch, lambda: None).block(torch.launch, captured=False)
    assert timing.seconds == pytest.approx(1e-4)
    assert torch.launches > MAX_LAUNCHES / 10


class OnceClock:
    """Runs a case once, without timing it."""

    def block(self, run: Callable[[], Any], captured: bool = True) -> Timing:
        run()
        return Timing(1.0, 1.0, 1.0, 1)

    def host(self, run: Callable[[], Any], launches: int) -> Timing:
        return self.block(run)

    def graph(self, run: Callable[[], Any], launches: int = 1) -> Callable[[], Any]:
        return run


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def plan_of(request: Any, catalog: Catalog) -> PreparedStep:
    spelled = from_object(request)
    shape = find_model(spelled.workload.model, catalog, None)
    return PreparedStep(fill_defaults(spelled.workload, shape), shape)


def all_plans(catalog: Catalog) -> list[tuple[str, PreparedStep]]:
    return [(step.id, plan_of(step.request, catalog)) for step in step_cases(catalog.gpu_by_id["h200-sxm"])]


def test_every_step_is_one_that_can_be_run(catalog: Catalog) -> None:
    for id, plan in all_plans(catalog):
        assert why_not_runnable(plan.workload, plan.shape) is None, id


def test_networks_have_the_parameters_of_those_they_are_named_after(torch: Any, catalog: Catalog) -> None:
    models = {plan.shape.name: plan.shape for _, plan in all_plans(catalog) if isinstance(plan.shape, Transformer)}
    models |= {name: find_model(name, catalog, None) for name in ("gpt2", "bert-base", "llama-3.2-1b", "qwen2.5-0.5b")}  # type: ignore[misc]
    assert len(models) >= 12
    for name, shape in models.items():
        with torch.device("meta"):
            count = sum(one.numel() for one in transformer(torch, shape).parameters())
        assert count == count_parameters(shape).total, name


@pytest.mark.parametrize(("name", "count"), [("resnet18", 11_689_512), ("resnet50", 25_557_032), ("resnet152", 60_192_808)])
def test_residual_networks_have_torchvisions_parameters(torch: Any, name: str, count: int) -> None:
    with torch.device("meta"):
        network = residual_network(torch, *RESNETS[name])
    assert sum(one.numel() for one in network.parameters()) == count


def test_small_versions_of_the_steps_run(torch: Any, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = TorchBench(torch, "cpu")
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda run, **settings: real(run, **{**settings, "backend": "eager"}))
    monkeypatch.setattr(bench, "_compilable", lambda: None)
    kinds: set[tuple[str, str | None]] = set()
    for _, plan in all_plans(catalog):
        kind = plan.workload.task, plan.workload.engine
        if isinstance(plan.shape, TracedShape) or (kind in kinds and plan.workload.checkpointing == "none"):
            continue
        kinds.add(kind)
        workload, shape = replace(plan.workload, batch=2), plan.shape
        if isinstance(shape, Transformer):
            workload, shape = replace(workload, seq_in=16), replace(shape, layers=2, vocab=500)
        small = PreparedStep(workload, shape)
        clock: Any = OnceClock()
        run = bench._training(small) if workload.training else bench._inference(small, clock)
        run()
        run()
    assert {task for task, _ in kinds} == {"train", "decode", "prefill", "forward"}


def test_operators_run(torch: Any, catalog: Catalog) -> None:
    clock: Any = OnceClock()
    small: list[OperatorCase] = [gemm(dtype, 32, 16, 64) for dtype in ("bf16", "fp32")]
    for case in operator_cases(catalog.gpu_by_id["h200-sxm"], 1 << 38, several=False):
        if case.kind in ("copy", "read", "attention", "attention_backward", "launch"):
            small.append(replace(case, sizes={name: min(64, size) for name, size in case.sizes.items()}))
    for case in small:
        assert TIMERS[case.kind](torch, case, clock, "cpu").runs == 1
