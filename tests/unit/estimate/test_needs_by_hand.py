"""What layouts need, on lines of round numbers; optimizers of traced networks; fits along a curve, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import whichgpu
from whichgpu.base.figure import Figure
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.fit import MemoryCurve, fit, largest_fitting, required_memory, unsupported_dtype, verdict
from whichgpu.estimate.group.layout_memory import COUNTED_PARTS, PART_INDEX, LayoutMemory, _allocated_bytes, apply_layout
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.estimate.memory.traced import traced_memory
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Mlp, TracedShape, Transformer
from whichgpu.workload.workload import Parallel, Workload

CATALOG = Catalog()
GPUS = CATALOG.gpu_by_id
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def line(**parts: float) -> np.ndarray:
    return np.array([parts.get(name, 0.0) for name in COUNTED_PARTS])


# Ends of the model, then each layer; then what each sequence adds, and each sequence in each layer.
LINES = (
    line(weights=100.0, gradients=0.0, optimizer=200.0), line(weights=10.0, optimizer=20.0, adapters=1.0),
    line(temporary=3.0), line(activations=5.0),
)  # fmt: skip


def needs(shape: Transformer = TINY, **fields: Any) -> LayoutMemory:
    return LayoutMemory(Workload("train", "tiny", **({"precision": "bf16"} | fields)), shape)


def part(lines: Any, name: str) -> tuple[float, float]:
    return float(lines[0][PART_INDEX[name]]), float(lines[1][PART_INDEX[name]])


def test_bytes_on_lines() -> None:
    """Four layers at one, two and eight sequences."""
    sizes = _allocated_bytes(LINES, Parallel(), 4.0, np.array([1.0, 2.0, 8.0]), 0.0)
    fixed = (100 + 4 * 10) + (200 + 4 * 20) + 4 * 1
    assert sizes.tolist() == [fixed + many * (3 + 4 * 5) for many in (1, 2, 8)]
    spread = _allocated_bytes(LINES, Parallel(dp=2, zero=1), 4.0, np.array([1.0]), 7.0)
    assert spread.tolist() == [fixed - 140 + 23 + 7]


def test_when_all_gradients_are_there() -> None:
    assert needs()._bytes_at_end(LINES, Parallel(), 4.0) == 140 + 280 + 4 + 140
    assert needs(lora_rank=4)._bytes_at_end(LINES, Parallel(), 4.0) == 140 + 280 + 4 + 4  # of the adapters alone
    assert needs()._bytes_at_end(LINES, Parallel(dp=2, zero=1), 4.0) == 140 + 140 + 4 + 140


def test_a_layer_s_gradients_before_they_are_added() -> None:
    assert [needs()._unadded_gradient_bytes(LINES, Parallel(dp=2, zero=zero)) for zero in range(4)] == [10, 10, 0, 0]
    assert needs(lora_rank=4)._unadded_gradient_bytes(LINES, Parallel()) == 1


def test_zero_temporarily_gathered_bytes() -> None:
    """The larger of a layer and one end: of a table that is also the head all of it, else half."""
    assert [needs()._gathered_bytes(LINES, Parallel(dp=2, zero=zero)) for zero in range(4)] == [0, 0, 50, 2 * 50 + 10]
    tied = needs(replace(TINY, tied=True))
    assert [tied._gathered_bytes(LINES, Parallel(dp=2, zero=zero)) for zero in (2, 3)] == [100, 2 * 100 + 10]
    deep = (line(weights=2.0), *LINES[1:])
    assert needs()._gathered_bytes(deep, Parallel(dp=2, zero=2)) == 10


def test_autocast_copies_held_by_checkpoints() -> None:
    mixed = needs(precision="amp-bf16")
    assert mixed._autocast_bytes(LINES, Parallel(), "full") == 5.0  # half of a layer's fp32 weights
    assert mixed._autocast_bytes(LINES, Parallel(), "none") == 0.0
    assert mixed._autocast_bytes(LINES, Parallel(dp=2, zero=3), "full") == 0.0
    assert mixed._autocast_bytes(LINES, Parallel(dp=2, zero=2), "full") == 5.0
    assert needs()._autocast_bytes(LINES, Parallel(), "full") == 0.0


def test_earlier_rounds_and_ends_of_a_pipeline() -> None:
    assert part(needs()._with_accumulated_gradients(LINES), "gradients") == (100, 10)
    assert part(needs(lora_rank=4)._with_accumulated_gradients(LINES), "gradients") == (0, 1)
    assert part(LINES, "gradients") == (0, 0)  # the lines themselves stay
    parted = needs()._one_pipeline_end(LINES, TINY, Parallel(pp=2))
    assert (part(parted, "weights"), part(parted, "optimizer")) == ((50, 10), (100, 20))
    assert needs()._one_pipeline_end(LINES, TINY, Parallel()) is LINES
    assert needs()._one_pipeline_end(LINES, replace(TINY, tied=True), Parallel(pp=2)) is LINES


def saved_bytes(precision: str, checkpointing: str = "none", **layout: Any) -> float:
    """Bytes a layer keeps of one sequence of 100 tokens."""
    return needs(precision=precision, seq_in=100)._saved_bytes(TINY, Parallel(**layout), checkpointing) / 100


def test_saved_bytes_of_a_layer_per_sequence_in_flight() -> None:
    """As counted for training steps: norms 1032 bytes a token, attention 352, the MLP 2048."""
    assert saved_bytes("bf16") == 1032 + 352 + 2048
    assert saved_bytes("bf16", "full") == saved_bytes("bf16", "selective") == 128
    assert saved_bytes("fp32", "full") == 256
    assert saved_bytes("fp32") > 1.8 * saved_bytes("bf16")
    assert saved_bytes("bf16", cp=2) == (1032 + 352 + 2048) / 2
    assert saved_bytes("bf16", tp=2) == 1032 + 352 / 2 + 2048 / 2


@pytest.mark.parametrize("precision", ["bf16", "fp32", "amp-bf16"])
@pytest.mark.parametrize("layers", [3, 12])
def test_lines_through_a_few_steps_are_near_the_step_itself(precision: str, layers: int) -> None:
    shape = replace(TINY, hidden=512, heads=8, kv_heads=8, head_dim=64, ffn=2048, vocab=4000, layers=layers)
    workload = Workload("train", "tiny", precision=precision, seq_in=256, optimizer="adamw", batch=48, engine="pytorch")
    exact = apply_layout(workload, Parallel(), 24, 1, "none")
    lined = LayoutMemory(workload, shape).of(Parallel(), "none", np.array([24.0]), np.ones(1))[0]
    assert lined == pytest.approx(required_memory(estimate_memory(exact, shape), exact).value, rel=0.05)


def traced(**fields: Any) -> dict[str, float]:
    shape = find_model("resnet18", CATALOG)
    assert isinstance(shape, TracedShape)
    plain: dict[str, Any] = {"precision": "fp32", "batch": 2, "optimizer": "adamw"}
    estimate = traced_memory(Workload("train", "resnet18", **(plain | fields)), shape, None)
    return {name: figure.value for name, figure in estimate.parts.items()}


@pytest.mark.parametrize(
    ("optimizer", "times"),
    [("adamw", 2), ("adam", 2), ("sgd-momentum", 1), ("sgd", 0), ("adamw-8bit", 0.508), ("adafactor", 0.01)],
)
def test_states_of_a_traced_network(optimizer: str, times: float) -> None:
    """11.69 million parameters of four bytes; tensors are rounded up to 512 bytes, and small rests stay with their block."""
    state = traced(optimizer=optimizer).get("optimizer", 0.0)
    assert state == pytest.approx(times * 4 * 11_689_512, rel=0.012, abs=70 * 512)


def test_parts_of_a_traced_network() -> None:
    plain = traced()
    weights = 4 * 11_689_512
    assert plain["weights"] == pytest.approx(weights, rel=0.01)
    assert "optimizer" not in traced(include_optimizer_step=False)
    spread = traced(parallel=Parallel(dp=4, zero=1), gpus=4, batch=8)
    assert spread["optimizer"] == pytest.approx(plain["optimizer"] / 4, rel=0.01)
    half = traced(precision="bf16")
    assert half["weights"] == pytest.approx(weights / 2, rel=0.04)


def figure(value: float, low: float = 0.9, high: float = 1.1) -> Figure:
    return Figure(value, low * value, high * value, "byte", "modelled")


def test_verdicts_at_their_ends() -> None:
    need = Figure(10.0, 9.0, 11.0, "byte", "modelled")
    assert [verdict(need, usable) for usable in (12, 11, 10, 9, 8)] == ["fits", "fits", "tight", "tight", "no"]


def grown(size: float, fixed: float = 100.0) -> Any:
    """Memory of a fixed part and `size` for each sample of a GPU's share."""

    def estimate_memory_of(workload: Workload) -> MemoryEstimate:
        return build_estimate({"weights": int(fixed + size * workload.local_batch)}, (1.0, 1.0), (1.0, 1.0))

    return estimate_memory_of


def train_workload(**fields: Any) -> Workload:
    return Workload("train", "net", **({"batch": 1} | fields))


NET = Mlp("net", (8, 4))


@pytest.mark.parametrize("room", [109, 110, 111, 119, 120, 1000, 1009, 1010, 10_000, 123_456])
def test_the_largest_batch_is_the_last_that_fits(room: int) -> None:
    assert largest_fitting(train_workload(), NET, room, "batch", grown(10.0)) == max(0, (room - 100) // 10)


def test_batches_count_replicas_and_accumulation_steps() -> None:
    assert largest_fitting(train_workload(parallel=Parallel(dp=3), batch=3), NET, 150, "batch", grown(10.0)) == 3 * 5
    assert largest_fitting(train_workload(accumulation=4, batch=4), NET, 150, "batch", grown(10.0)) == 4 * 5
    serving = Workload("forward", "net", batch=1, accumulation=4)
    assert largest_fitting(serving, NET, 150, "batch", grown(10.0)) == 5
    assert largest_fitting(train_workload(), NET, 10**9, "batch", grown(1e-6)) == 1 << 20  # no one runs more


def stairs(workload: Workload) -> MemoryEstimate:
    """A need that leaps at every seventh sample."""
    return build_estimate({"weights": 100 + 50 * (workload.local_batch // 7)}, (1.0, 1.0), (1.0, 1.0))


@pytest.mark.parametrize(("room", "limit"), [(99, 0), (100, 6), (149, 6), (150, 13), (1099, 139), (1100, 146)])
def test_needs_that_leap_are_computed_not_read_off(room: int, limit: int) -> None:
    assert largest_fitting(train_workload(), NET, room, "batch", stairs) == limit


def test_contexts_are_whole_blocks_with_their_answers() -> None:
    def estimate_memory_of(workload: Workload) -> MemoryEstimate:
        return build_estimate({"kv_cache": (workload.seq_in or 0) + (workload.seq_out or 0)}, (1.0, 1.0), (1.0, 1.0))

    serve = Workload("serve", "tiny", seq_in=10, seq_out=40, engine="pytorch")
    assert largest_fitting(serve, TINY, 1000, "context", estimate_memory_of) == 1000 // 16 * 16
    assert largest_fitting(serve, TINY, 10**6, "context", estimate_memory_of) == 4096  # the model's own
    assert MemoryCurve(serve, TINY, "context", estimate_memory_of).at(10).seq_in == 160 - 40
    assert MemoryCurve(serve, TINY, "context", estimate_memory_of).at(1).seq_in == 1
    train = Workload("train", "tiny", seq_in=10, seq_out=40)
    assert MemoryCurve(train, TINY, "context", estimate_memory_of).at(10).seq_in == 160


def test_engines_that_fill_the_gpu_need_the_sum_of_their_parts() -> None:
    estimate = build_estimate({"weights": 300, "context": 400}, (0.9, 1.1), (0.8, 1.2))
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        figure = required_memory(estimate, Workload("serve", "x", engine=engine))
        assert figure.value == 700
        ranged = [estimate.parts[name] for name in ("weights", "context")]
        assert figure.value - figure.low == pytest.approx(sum((one.value - one.low) ** 2 for one in ranged) ** 0.5)
        assert figure.high - figure.value == pytest.approx(sum((one.high - one.value) ** 2 for one in ranged) ** 0.5)
    for engine in ("llama.cpp", "pytorch"):
        assert required_memory(estimate, Workload("serve", "x", engine=engine)) is estimate.device
    assert required_memory(estimate, Workload("train", "x", engine="vllm")) is estimate.device


def test_units_a_gpu_lacks() -> None:
    t4 = GPUS["t4"]
    assert (
        unsupported_dtype(t4, train_workload(precision="bf16"))
        == unsupported_dtype(t4, train_workload(precision="amp-bf16"))
        == "bf16"
    )
    assert unsupported_dtype(t4, train_workload(precision="fp8")) == "fp8"
    assert unsupported_dtype(t4, train_workload(precision="fp16")) is None
    assert unsupported_dtype(GPUS["h100-sxm"], train_workload(precision="fp8")) is None
    result = fit(figure(1e9), train_workload(precision="bf16"), t4)
    assert [one.id for one in result.warnings] == ["warning.no-dtype"]
    assert result.headroom == result.usable - 10**9


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", "warning.emulated-better"), ("fp8", "warning.stored-only")])
def test_missing_units_of_a_gpu_are_reported_once(precision: str, dtype: str) -> None:
    answer = whichgpu.estimate("prefill", "llama-3.1-8b", gpu="t4", precision=precision, engine="vllm")
    warned = [one.id for one in answer.warnings]
    assert warned.count(dtype) == 1
    assert "warning.no-dtype" not in warned


def test_a_card_with_a_slow_part() -> None:
    slow = next(gpu for gpu in GPUS.values() if gpu.id == "gtx-970")
    fast = 3.5 * 2**30
    fits = fit(figure(3e9), train_workload(), slow)
    assert (fits.fits, [one.id for one in fits.warnings]) == ("fits", ["warning.slow-part-unused"])
    over = fit(figure(fast / 1.1 + 2**20), train_workload(), slow)
    assert (over.fits, [one.id for one in over.warnings]) == ("tight", ["warning.slow-part"])
