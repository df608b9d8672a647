"""What layouts send: counts and bytes against the papers' own."""

from __future__ import annotations

from typing import Any

import pytest

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.collectives import Communicator
from whichgpu.estimate.group.traffic import Collective, communicator_of, step_collectives
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Parallel

CATALOG = Catalog()


def collectives_of(task: str, model: str, **fields: Any) -> list[Collective]:
    shape = find_model(model, CATALOG)
    workload = fill_defaults(from_object({"task": task, "model": model, **fields}).workload, shape)
    return step_collectives(workload, shape, float(workload.local_batch))


def volume(messages: list[Collective], kind: str) -> float:
    return float(sum(one.size * one.count for one in messages if one.kind == kind))


def test_tensor_parallel_adds_up_twice_a_layer() -> None:
    """arXiv 1909.08053, section 3: two all-reduces a layer in the forward pass; and one for the embedding."""
    shape = find_model("llama-2-70b", CATALOG)
    assert isinstance(shape, Transformer)
    collectives = [one for one in collectives_of("decode", "llama-2-70b", gpus=8, batch=16) if one.kind == "all_reduce"]
    assert sum(one.count for one in collectives) == 2 * shape.layers + 1
    assert {one.size for one in collectives} == {16 * shape.hidden * 2.0}


def test_training_adds_up_as_often_backward_and_again_when_recomputed() -> None:
    fields = {"gpus": 4, "batch": 4, "parallel": {"tp": 4}, "seq_in": 1024}
    plain = volume(collectives_of("train", "llama-3.1-8b", **fields), "all_reduce")
    again = volume(collectives_of("train", "llama-3.1-8b", **fields, checkpointing="full"), "all_reduce")
    assert again == pytest.approx(1.5 * plain)


def test_sequence_parallel_sends_the_same_bytes_as_reduce_scatter_and_all_gather() -> None:
    fields: dict[str, Any] = {"gpus": 4, "batch": 4, "seq_in": 1024}
    plain = collectives_of("train", "llama-3.1-8b", **fields, parallel={"tp": 4})
    cut = collectives_of("train", "llama-3.1-8b", **fields, parallel={"tp": 4, "sp": True})
    layers = volume(plain, "all_reduce") - volume(cut, "all_reduce")
    assert volume(cut, "all_gather") == volume(cut, "reduce_scatter") == pytest.approx(layers)


@pytest.mark.parametrize(("precision", "width"), [("fp32", 4), ("amp-bf16", 4), ("bf16", 2)])
def test_data_parallel_reduces_every_gradient_once(precision: str, width: int) -> None:
    collectives = collectives_of("train", "resnet50", gpus=8, batch=256, precision=precision)
    assert volume(collectives, "all_reduce") == pytest.approx(25.56e6 * width, rel=0.01)
    assert all(one.overlap == "backward" for one in collectives)


def test_zero_3_sends_half_as_much_again_as_zero_1() -> None:
    """arXiv 1910.02054, section 7: parameters are gathered twice and gradients scattered once."""
    fields: dict[str, Any] = {"gpus": 8, "batch": 8, "precision": "bf16", "seq_in": 512}
    size = count_parameters(find_model("llama-3.1-8b", CATALOG)).total * 2.0
    first = collectives_of("train", "llama-3.1-8b", **fields, parallel={"dp": 8, "zero": 1})
    third = collectives_of("train", "llama-3.1-8b", **fields, parallel={"dp": 8, "zero": 3})
    assert volume(first, "reduce_scatter") + volume(first, "all_gather") == pytest.approx(2 * size)
    assert volume(third, "reduce_scatter") + volume(third, "all_gather") == pytest.approx(3 * size)


def test_zero_3_gathers_every_micro_step_and_data_parallel_reduces_once() -> None:
    fields: dict[str, Any] = {"gpus": 8, "batch": 32, "seq_in": 512, "accumulation": 4}
    once = collectives_of("train", "llama-3.1-8b", gpus=8, batch=8, seq_in=512, parallel={"dp": 8, "zero": 3})
    often = collectives_of("train", "llama-3.1-8b", **fields, parallel={"dp": 8, "zero": 3})
    assert volume(often, "all_gather") == pytest.approx(4 * volume(once, "all_gather"))
    plain = collectives_of("train", "llama-3.1-8b", **fields, parallel={"dp": 8})
    assert volume(plain, "all_reduce") == pytest.approx(volume(once, "reduce_scatter"))


def test_stages_hand_on_the_stream_of_every_micro_batch() -> None:
    collectives = collectives_of("train", "llama-3.1-8b", gpus=4, batch=8, seq_in=1024, accumulation=8, parallel={"pp": 4})
    sent = [one for one in collectives if one.axis == "pp"]
    assert [(one.kind, one.count, one.size) for one in sent] == [("send", 16.0, 1024 * 4096 * 2.0)]


def test_experts_exchange_tokens_there_and_back() -> None:
    collectives = collectives_of("train", "mixtral-8x7b", gpus=8, batch=8, seq_in=1024, parallel={"dp": 8, "ep": 8})
    assert volume(collectives, "all_to_all") == pytest.approx(32 * 4 * 1024 * 2 * 4096 * 2.0)  # 32 layers, 2 experts a token


def test_serving_replicas_do_not_communicate() -> None:
    assert collectives_of("batch", "llama-3.1-8b", gpus=4, parallel={"dp": 4}) == []
    assert collectives_of("forward", "resnet50", gpus=4) == []


def test_threads_send_weights_out_and_take_gradients_back() -> None:
    collectives = collectives_of("train", "resnet50", gpus=4, batch=48, precision="fp32", parallel={"dp": 4, "threads": True})
    assert [(one.kind, one.overlap) for one in collectives] == [("broadcast", ""), ("broadcast", "")]


@pytest.mark.parametrize(
    ("layout", "axis", "communicator"),
    [
        (Parallel(tp=8, dp=2), "tp", Communicator(8, 8)),
        (Parallel(tp=8, dp=2), "dp", Communicator(2, 1)),
        (Parallel(tp=2, dp=8), "dp", Communicator(8, 4)),
        (Parallel(dp=16), "dp", Communicator(16, 8)),
        (Parallel(tp=8, pp=2), "pp", Communicator(2, 1)),
        (Parallel(tp=4, pp=4), "pp", Communicator(2, 2)),
    ],
)
def test_tensor_ranks_are_adjacent_and_pipeline_stages_far_apart(layout: Parallel, axis: Any, communicator: Communicator) -> None:
    assert communicator_of(layout, axis, 16, 2) == communicator
