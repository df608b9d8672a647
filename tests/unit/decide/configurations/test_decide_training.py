"""Which layouts and micro-batches a training run is tried with, and the reasons against GPUs that are not the answer."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit import shapes
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message
from whichgpu.base.money import Money
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.explain import why_not
from whichgpu.decide.configurations import training
from whichgpu.decide.configurations.configuration import Infeasibility
from whichgpu.decide.configurations.training import ScreenedSteps
from whichgpu.estimate.group.layout_times import LayoutStep
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.training_defaults import STAGE_PASSES
from whichgpu.workload.workload import Parallel, Workload


def question(*stated: str) -> Any:
    return SimpleNamespace(stated=frozenset(stated), shape=shapes.LLAMA_3_8B)


def micro(workload: Workload, *stated: str, **parallel: int) -> tuple[list[float], list[float]]:
    sizes, rounds = training._micro(question(*stated), workload, Parallel(**parallel))  # type: ignore[arg-type]
    return sizes.tolist(), rounds.tolist()


def test_default_batch_is_shared_and_fills_pipelines() -> None:
    plain = Workload("train", "m")
    assert micro(plain) == ([1.0], [8.0])
    assert micro(plain, "accumulation", dp=4) == ([1.0], [1.0])
    assert micro(Workload("train", "m", accumulation=2), "accumulation") == ([1.0], [2.0])
    assert micro(Workload("train", "m", micro_batch=3), "micro_batch") == ([3.0], [1.0])
    assert micro(plain, pp=4)[1][0] == training.MAX_STAGE_PASSES * 4.0
    long = Workload("finetune", "m", seq_in=65536)
    assert micro(long, pp=4) == ([1.0], [STAGE_PASSES * 4.0])  # A step has few tokens in fine-tuning, but fills the pipeline.
    assert micro(Workload("train", "m", accumulation=1000), "accumulation", pp=4)[1] == [1000.0]


def test_micro_batch_is_searched_on_several_gpus_up_to_the_tokens_of_a_step() -> None:
    assert micro(Workload("train", "m", seq_in=2048), dp=4) == ([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [2.0] * 6)
    assert micro(Workload("train", "m", seq_in=2048), dp=512)[0] == [1.0, 2.0, 4.0]
    assert micro(Workload("finetune", "m", seq_in=2048), dp=16)[0] == [1.0, 2.0, 4.0, 8.0]
    assert micro(Workload("finetune", "m", seq_in=8192), dp=512)[0] == [1.0]
    assert micro(Workload("finetune", "m", seq_in=2048, lora_rank=16), dp=4)[0] == [1.0]
    assert micro(Workload("train", "m", micro_batch=2), "micro_batch", dp=4)[0] == [2.0]


def test_near_ties_go_to_the_step_without_checkpointing_and_the_smaller_batch() -> None:
    rows = ((16.0, "full", 16.0), (4.0, "none", 4.1), (1.0, "none", 2.0))
    layouts = [LayoutStep(Parallel(dp=8), checkpointing, np.array([micro]), np.ones(1)) for micro, checkpointing, _ in rows]
    steps = ScreenedSteps.of(layouts, [np.ones(1)] * 3, [np.array([[seconds]]) for *_, seconds in rows], 1.0)
    large, plain, small = range(3)
    assert training._simplest_fast_step(steps, np.array([large, plain, small]), 0) == plain
    assert training._simplest_fast_step(steps, np.array([large, small]), 0) == large


@pytest.mark.parametrize(
    ("batch", "dp", "own", "sizes", "rounds"),
    [
        (12, 2, None, [1.0, 2.0, 3.0, 6.0], [6.0, 3.0, 2.0, 1.0]),
        (1023, 1, None, [1.0, 3.0, 11.0, 31.0, 33.0, 93.0], [1023.0, 341.0, 93.0, 33.0, 31.0, 11.0]),
        (8, 1, None, [1.0, 2.0, 4.0, 8.0], [8.0, 4.0, 2.0, 1.0]),
        (7, 2, None, [], []),
        (1, 2, None, [], []),
        (12, 2, 3, [3.0], [2.0]),
        (12, 2, 4, [], []),
    ],
)
def test_requested_batch_is_divided_exactly_or_rejected(
    batch: int, dp: int, own: int | None, sizes: list[float], rounds: list[float]
) -> None:
    assert micro(Workload("train", "m", batch=batch, micro_batch=own), "batch", dp=dp) == (sizes, rounds)


@pytest.fixture
def llama(catalog: Catalog) -> Transformer:
    shape = find_model("llama-3.1-8b", catalog)
    assert isinstance(shape, Transformer)
    return shape


def families(shape: Transformer, group: int, machines: int, *stated: str, **fields: Any) -> list[list[Parallel]]:
    return list(training._families(question(*stated), Workload("train", "m", **fields), shape, group, machines))


def test_requested_layout_is_the_only_one_and_fixes_the_gpu_count(llama: Transformer) -> None:
    layout = Parallel(dp=2, tp=4)
    assert families(llama, 8, 1, "parallel", gpus=8, parallel=layout) == [[layout]]
    assert families(llama, 4, 1, "parallel", gpus=8, parallel=layout) == [[]]


def test_every_layout_tried_uses_all_gpus_and_tensor_ranks_stay_within_a_machine(llama: Transformer) -> None:
    assert families(llama, 1, 1) == [[Parallel()], []]
    for gpus, machines in ((8, 1), (16, 2), (32, 4)):
        first, second = families(llama, gpus, machines)
        for layout in (*first, *second):
            assert layout.dp * layout.tp * layout.pp == gpus
            assert layout.tp <= gpus // machines
            assert layout.pp <= machines
        assert {layout.tp for layout in second} == {2, 4, 8}
        assert len(set(first)) == len(first)
    assert any(layout.pp > 1 for layout in families(llama, 16, 2)[0])
    assert not any(layout.pp > 1 for layout in families(llama, 16, 1)[0])


def test_checkpointing_is_tried_on_and_off_unless_set() -> None:
    workload = Workload("train", "m", checkpointing="selective")
    assert training._checkpointings(question(), workload) == ("none", "full")
    assert training._checkpointings(question("checkpointing"), workload) == ("selective",)


def test_rejection_reason_is_memory_or_layout(llama: Transformer) -> None:
    room = np.array([10.0, 40.0])
    layout = LayoutStep(Parallel(), "none", np.ones(1), np.ones(1))
    tried = ScreenedSteps.of([layout], [np.array([20.0])], [np.ones((2, 1))], 20.0)
    workload = Workload("train", "m", seq_in=8, precision="bf16")
    assert training._best(workload, llama, 0, room, tried) == Infeasibility("memory", 1.0)
    refused = training._best(workload, llama, 0, room, ScreenedSteps.of([], [], [], np.inf))
    assert isinstance(refused, Infeasibility)
    assert refused.reason == "layout"


# why not


def candidate(gpu: str, gpus: int, cost: str, hours: float) -> Any:
    return SimpleNamespace(
        gpu=gpu, gpu_name=gpu.upper(), gpus=gpus, cost=Money(Decimal(cost), "USD"), bound="bandwidth",
        run_time=Figure.exact(hours * 3600, "s"),
    )  # fmt: skip


def reason_for(gpu: str, outcomes: list[Any], missed: dict[str, list[bool]], one: Any = None, serving: bool = False) -> Message:
    """Of groups l4, l4, t4 and their candidates, one each."""
    groups = SimpleNamespace(groups=[SimpleNamespace(gpu=SimpleNamespace(id=name)) for name in ("l4", "l4", "t4")])
    candidates = SimpleNamespace(group=np.array([0, 1, 2]), missed={name: np.array(lost) for name, lost in missed.items()})
    (message,) = why_not(gpu, gpu.upper(), candidates, groups, outcomes, candidate("h100", 1, "10", 1.0), one, serving)  # type: ignore[arg-type]
    return message


def test_gpus_without_offers_or_beyond_limits_list_reasons_commonest_first() -> None:
    configurations: list[Any] = ["way", "way", "way"]
    assert reason_for("a100", configurations, {}).id == "why-not.no-offer"
    removed = reason_for(
        "l4", [Infeasibility("memory", 1.0), "way", "way"], {"budget": [False, True, True], "deadline": [False, False, True]}
    )
    assert removed.id == "why-not.removed"
    why = removed.values["why"]
    assert isinstance(why, tuple)
    assert Counter(one.id for one in why) == {"rejected.memory": 1, "rejected.budget": 1}
    both = reason_for("l4", [Infeasibility("memory", 1.0)] * 2 + ["way"], {"budget": [True, True, True]})
    assert [one.id for one in both.values["why"]] == ["rejected.memory"]  # type: ignore[attr-defined]


def test_suitable_gpu_is_compared_with_the_answer() -> None:
    worse = reason_for("l4", [], {}, candidate("l4", 2, "25", 4.0))
    assert (worse.id, worse.values["cost"], worse.values["time"]) == ("why-not.worse", "2.5", "4")
    service = reason_for("l4", [], {}, candidate("l4", 2, "25", 4.0), serving=True)
    assert (service.id, service.values["cost"]) == ("why-not.worse-service", "2.5")
    assert "time" not in service.values
    assert reason_for("h100", [], {}, candidate("h100", 1, "10", 1.0)).id == "why-not.is-answer"
    assert reason_for("h100", [], {}, candidate("h100", 2, "20", 1.0)).id == "why-not.worse"
