"""Memory of traced networks: steps of batch sizes, memory outside the trace, width of the ranges; the formula of 2015."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.base.units import MIB
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.blog2015 import count_weights_and_units, formula_bytes
from whichgpu.estimate.memory.parts import build_estimate
from whichgpu.estimate.memory.traced import (
    MemoryPeak,
    _next_batch,
    _previous_batch,
    _recipe,
    _shards,
    _with_gathered_shards,
    traced_memory,
)
from whichgpu.estimate.memory.training.transformer import NF4_BYTES, lora_projections, shard_sizes
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Dlrm, TracedShape, Transformer
from whichgpu.workload.tables import load_table
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Parallel, Workload

CATALOG = Catalog()
GPUS = CATALOG.gpu_by_id


def shape_of(name: str = "resnet50") -> TracedShape:
    transformer = find_model(name, CATALOG)
    assert isinstance(transformer, TracedShape)
    return transformer


SHAPE = shape_of()
TABLE = load_table(SHAPE.table, None)


def work(task: Task = "train", **fields: Any) -> Workload:
    plain: dict[str, Any] = {"precision": "fp32", "batch": 8, "optimizer": "sgd-momentum"}
    return Workload(task, "resnet50", **(plain | fields))


def test_batch_steps_are_powers_of_two_and_midpoints() -> None:
    rungs = [1]
    while rungs[-1] < 100:
        rungs.append(_next_batch(rungs[-1]))
    assert rungs == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]
    assert [_previous_batch(high) for high in rungs[1:]] == rungs[:-1]


def test_between_rungs_memory_is_on_a_line() -> None:
    low, middle, high = (traced_memory(work(batch=batch), SHAPE, None).allocated.value for batch in (16, 20, 24))
    assert middle == pytest.approx((low + high) / 2, rel=1e-6)
    sizes = [traced_memory(work(batch=batch), SHAPE, None).allocated.value for batch in (1, 2, 3, 4, 6)]
    assert all(one <= other for one, other in pairwise(sizes))


def test_memory_outside_the_trace() -> None:
    h100, a100 = GPUS["h100-sxm"], GPUS["a100-sxm-80gb"]
    trained = {gpu.id: traced_memory(work(), SHAPE, gpu).parts for gpu in (h100, a100)}
    assert trained["h100-sxm"]["context"].value == (4 * 132 + 248) * MIB
    assert trained["a100-sxm-80gb"]["context"].value == (4 * 108 + 248) * MIB
    assert traced_memory(work(), SHAPE, None).parts["context"].value == (4 * 132 + 248) * MIB
    more = trained["h100-sxm"]["workspace"].value - trained["a100-sxm-80gb"]["workspace"].value
    assert more == (66 - 17) * MIB
    forward = [traced_memory(work("forward"), SHAPE, gpu).parts["workspace"].value for gpu in (h100, a100)]
    assert forward[0] - forward[1] == (66 - 17) * MIB / 2  # one library's for a pass without gradients


def ranges(**fields: Any) -> tuple[float, ...]:
    estimate = traced_memory(work(**fields), SHAPE, None)
    return tuple(end / figure.value for figure in (estimate.allocated, estimate.device) for end in (figure.low, figure.high))


def test_ranges_are_wider_for_other_images_and_low_precisions() -> None:
    assert ranges() == pytest.approx((0.98, 1.03, 0.93, 1.06))
    assert ranges(image=320) == pytest.approx((0.88, 1.13, 0.83, 1.16))
    assert ranges(task="forward", precision="int8") == pytest.approx((0.73, 1.28, 0.68, 1.31))
    warned = [one.id for one in traced_memory(work(image=320, checkpointing="full"), SHAPE, None).warnings]
    assert warned == ["warning.image-scaled", "warning.not-in-tables"]
    assert not traced_memory(work(), SHAPE, None).warnings
    cut = traced_memory(work(parallel=Parallel(tp=2)), SHAPE, None).warnings
    assert [one.id for one in cut] == ["warning.not-in-tables"]


def test_workspaces_of_convolutions_by_precision_and_layout() -> None:
    def space(**fields: Any) -> float:
        return _recipe(work(**fields), SHAPE, TABLE).space

    assert [space(precision=name) for name in ("fp32", "tf32", "fp32-default", "amp-bf16")] == [3.0, 0.65, 0.65, 0.0]
    assert space(precision="amp-bf16", memory_format="contiguous") == 1.0
    assert space(precision="tf32", memory_format="contiguous") == 1.0
    assert space(memory_format="contiguous") == 3.0
    for precision, share in (("fp8", 0.5), ("int8", 0.5), ("int4", 0.265), ("nvfp4", 0.285), ("bf16", 1.0)):
        assert _recipe(work("forward", precision=precision), SHAPE, TABLE).weights == pytest.approx(share)
    plain = _recipe(work("forward"), SHAPE, TABLE)
    assert (plain.optimizer, plain.fused, plain.stepped, plain.accumulated) == ("", False, False, False)
    assert _recipe(work(accumulation=2), SHAPE, TABLE).accumulated
    assert not _recipe(work(accumulation=1), SHAPE, TABLE).accumulated


def test_zero_spreads_states_then_gradients_then_weights() -> None:
    names = ("optimizer", "gradients", "weights")
    for zero in range(4):
        assert _shards(work(parallel=Parallel(dp=4, zero=zero))) == tuple((name, 4) for name in names[:zero])
    assert _shards(work(parallel=Parallel(dp=1, zero=3))) == ()
    assert _shards(work("forward", parallel=Parallel(dp=4, zero=3))) == ()
    peak = MemoryPeak({"weights": 1e9, "gradients": 1e9, "temporary": 5.0}, 3e9)
    sizes = sorted(kind.size[0] for kind in TABLE.kinds if kind.label == "weights")
    for zero, more in ((1, 0), (2, sizes[-1]), (3, 2 * sizes[-1] + sizes[-2])):
        gathered = _with_gathered_shards(peak, _recipe(work(parallel=Parallel(dp=4, zero=zero)), SHAPE, TABLE), TABLE)
        assert (gathered.parts["temporary"], gathered.reserved) == (5.0 + more, 3e9 + more)
    tiny = MemoryPeak({"weights": 1.0, "gradients": 2.0}, 3.0)
    small = _with_gathered_shards(tiny, _recipe(work(parallel=Parallel(dp=4, zero=3)), SHAPE, TABLE), TABLE)
    assert small.parts["temporary"] == 3 * (1.0 + 2.0)  # never more than was spread


TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def test_the_formula_counts_weights_and_units() -> None:
    nothing = build_estimate({}, (1.0, 1.0), (1.0, 1.0))
    assert formula_bytes(10, 3, 5) == 12 * 25
    block = 2 * 10 * 8 + 64 + 2 * 256 + 64
    assert count_weights_and_units(work(seq_in=7), TINY, nothing)[1] == 7 * (64 + 4 * block + 1000)
    assert count_weights_and_units(work(seq_in=7), replace(TINY, gated=False, encoder_layers=2), nothing)[1] == 7 * (
        64 + 6 * (block - 256) + 1000
    )
    assert count_weights_and_units(work(), Dlrm("d", 8, (100, 100), (13, 32, 8), (16, 1)), nothing)[1] == 53 + 16 + 17
    estimate = build_estimate({"activations": 4800}, (1.0, 1.0), (1.0, 1.0))
    assert count_weights_and_units(work(), SHAPE, estimate)[1] == 4800 // 4 // 8
    assert count_weights_and_units(work(precision="bf16"), SHAPE, estimate)[1] == 4800 // 2 // 8


def test_adapters_shares_and_four_bits() -> None:
    assert lora_projections("attention") == {"q", "k", "v", "o"}
    assert lora_projections("q, v") == {"q", "v"}
    assert lora_projections("mlp,q") == {"gate", "up", "down", "q"}
    assert lora_projections("all-linear") == frozenset()
    assert shard_sizes([8, 9, 0], 4) == [2, 3, 0]
    bits = 8 * NF4_BYTES
    assert bits == pytest.approx(4 + 8 / 64 + 32 / (64 * 256))  # arXiv 2305.14314: 4.127 bits
