"""Verdicts, largest sizes and remedies, over a stand-in for the estimate; usable memory; the formula of 2015; the chart."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from whichgpu.api.workloads import fit as verbs
from whichgpu.api.workloads.fit import FitAnswer
from whichgpu.base.errors import UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import english
from whichgpu.base.units import GIB, MIB
from whichgpu.catalog.find import find_gpu
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.fit import BLOCK, GRID, Field, MemoryCurve, fit, largest_fitting, required_memory, verdict
from whichgpu.estimate.memory.blog2015 import formula_bytes
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.estimate.memory.training.transformer import _fullest
from whichgpu.estimate.remedies import FitProblem, gpus_that_fit, remedies
from whichgpu.estimate.usable import usable_bytes
from whichgpu.surface.charts.chart_file import check_chart_file, write_chart
from whichgpu.surface.charts.memory import MAX_BARS, MemoryBar, memory_chart, memory_picture
from whichgpu.workload.shapes import Dlrm, Mlp, Transformer, WeightsOnly
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Parallel, Workload

LLAMA = Transformer("llama", "llama", 4096, 32, 32, 8, 128, 14336, 128256, True, "rms", "silu", False, True, 0, 131072)
WIDTHS = {"fp32": 4, "bf16": 2, "int8": 1, "int4": 0.5}


def figure(value: float, low: float, high: float) -> Figure:
    return Figure(value, low, high, "byte", "modelled")


def simple(workload: Workload) -> MemoryEstimate:
    """8 GiB of weights in bf16 and 1 MiB a token, less with every usual remedy."""
    width = WIDTHS.get(workload.precision or "bf16", 2)
    shards = workload.parallel.tp * (workload.parallel.dp if workload.parallel.zero == 3 else 1)
    weights = int(4 * GIB * (0.5 if workload.qlora else width)) // shards
    tokens = workload.local_batch * (workload.seq_in or 1)
    states = {"adamw": 2, "adamw-8bit": 1}.get(workload.optimizer or "", 0) * weights * (0 if workload.lora_rank else 1)
    saved = tokens * MIB // (8 if workload.checkpointing == "full" else 1) if workload.training else 0
    cache = 0 if workload.training else tokens * MIB // (2 if workload.kv_precision == "fp8" else 1) // shards
    parts = {"weights": weights, "optimizer": states, "activations": saved, "kv_cache": cache, "context": 512 * MIB}
    return build_estimate(parts, (0.95, 1.05), (0.95, 1.05))


def problem_of(workload: Workload, usable: int) -> FitProblem:
    curves = (MemoryCurve(workload, LLAMA, "batch", simple), MemoryCurve(workload, LLAMA, "context", simple))
    return FitProblem(workload, LLAMA, usable, simple, *curves)


@given(st.integers(1, 10**12), st.integers(1, 10**12), st.floats(0, 0.5))
def test_a_verdict_never_improves_on_a_smaller_gpu(one: int, other: int, spread: float) -> None:
    need = figure(10**11, 10**11 * (1 - spread), 10**11 * (1 + spread))
    order = ("no", "tight", "fits")
    assert order.index(verdict(need, min(one, other))) <= order.index(verdict(need, max(one, other)))


@given(st.integers(0, 200 * GIB), st.sampled_from(["serve", "train"]), st.integers(1, 4))
def test_the_largest_size_fits_and_the_next_does_not(usable: int, task: Any, dp: int) -> None:
    layout = Parallel(dp=dp)
    workload = Workload(task, "m", batch=4 * dp, seq_in=2048, parallel=layout, optimizer="adamw", engine="pytorch")
    fields: tuple[Field, ...] = ("batch", "context")
    for field in fields:
        curve = MemoryCurve(workload, LLAMA, field, simple)
        size = curve.largest(usable)
        if size:
            assert simple(curve.at(size)).device.high <= usable
        assert simple(curve.at(size + 1)).device.high > usable or curve.to_user_units(size) in (131072, dp << 20)


def test_one_curve_serves_many_limits_with_few_computations() -> None:
    calls: list[Workload] = []

    def counted(workload: Workload) -> MemoryEstimate:
        calls.append(workload)
        return simple(workload)

    curve = MemoryCurve(Workload("train", "m", batch=8, seq_in=512), LLAMA, "batch", counted)
    sizes = [curve.largest(limit * GIB) for limit in range(10, 300)]
    assert sizes == sorted(sizes)
    assert len(calls) < 120


def test_without_exact_gpus_of_almost_the_same_memory_share_computations_and_no_size_is_too_large() -> None:
    calls: list[Workload] = []

    def stepped(workload: Workload) -> MemoryEstimate:
        """Memory that grows in steps of 768 MiB, as the allocator's segments do."""
        calls.append(workload)
        tokens = workload.local_batch * (workload.seq_in or 1)
        parts = {"weights": 4 * GIB, "activations": -(-tokens * MIB // (768 * MIB)) * 768 * MIB}
        return build_estimate(parts, (0.95, 1.05), (0.95, 1.05))

    workload = Workload("train", "m", batch=1, seq_in=512)
    limits = [GIB * size + GIB // 50 * part for size in (16, 24, 40, 48, 80, 96, 128, 141) for part in range(12)]
    rough = MemoryCurve(workload, LLAMA, "context", stepped, exact=False)
    sizes = [rough.largest(limit) for limit in limits]
    assert len(calls) < 100  # with exact curves 187
    exact = MemoryCurve(workload, LLAMA, "context", stepped)
    for size, best in zip(sizes, map(exact.largest, limits), strict=True):
        assert best * (1 - 2 / GRID) <= size <= best


def test_the_gpus_of_a_listed_lora_run_share_replays_of_its_step() -> None:
    _fullest.cache_clear()
    lora = from_object({"task": "finetune", "model": "gpt2", "seq_in": 512, "batch": 4, "lora_rank": 8, "checkpointing": "none"})
    assert len(verbs.fit_workload(lora, helpful=False).gpus) > 300
    assert _fullest.cache_info().misses < 60  # with exact curves 121


def test_the_largest_batch_is_counted_over_all_gpus_and_the_context_with_the_answer() -> None:
    serve = Workload("serve", "m", batch=1, seq_in=1024, seq_out=256, precision="bf16")
    assert largest_fitting(serve, LLAMA, 64 * GIB, "context", simple) % BLOCK == 0
    assert largest_fitting(serve, LLAMA, 64 * GIB, "context", simple) >= 1280
    assert largest_fitting(serve, LLAMA, 4 * GIB, "context", simple) == 0
    train = replace(serve, task="train", parallel=Parallel(dp=4), gpus=4, accumulation=2)
    assert largest_fitting(train, LLAMA, 64 * GIB, "batch", simple) % 8 == 0


def test_engines_that_preallocate_are_judged_by_their_need() -> None:
    workload = fill_defaults(Workload("serve", "m"), LLAMA)
    estimate = MemoryEstimate(figure(10, 9, 12), figure(73, 73, 73), {"weights": figure(8, 7, 10), "context": figure(2, 2, 2)})
    assert required_memory(estimate, workload) == figure(10, 9, 12)
    assert required_memory(estimate, replace(workload, engine="pytorch")).value == 73


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("V100 SXM 16GB", 15.7, 15.8),
        ("RTX 3090", 23.6, 23.7),
        ("A100 SXM 80GB", 78.7, 79.2),
        ("Apple M1", 10.6, 10.7),
        ("Apple M3 Ultra", 383, 385),
        ("GB10", 115, 116),
    ],
)
def test_usable_memory_is_less_than_the_label(catalog: Catalog, name: str, low: float, high: float) -> None:
    assert low < usable_bytes(find_gpu(catalog, name)) / GIB < high


def test_a_serving_engine_leaves_a_share_unused(catalog: Catalog) -> None:
    gpu = find_gpu(catalog, "H100 SXM")
    assert usable_bytes(gpu, fill_defaults(Workload("serve", "m"), LLAMA)) < 0.93 * gpu.memory_bytes
    assert usable_bytes(gpu, fill_defaults(Workload("train", "m"), LLAMA)) > 0.98 * gpu.memory_bytes


def test_a_gtx_970_is_warned_about_at_three_and_a_half_gigabytes(catalog: Catalog) -> None:
    gpu, workload = find_gpu(catalog, "GTX 970"), Workload("train", "m", precision="fp32")
    slow = fit(figure(3.7 * GIB, 3.6 * GIB, 3.8 * GIB), workload, gpu)
    assert slow.fits == "tight"
    assert "3.5 GiB" in english().render(slow.warnings[0])
    quick = fit(figure(3 * GIB, 2.9 * GIB, 3.2 * GIB), workload, gpu)
    assert quick.fits == "fits"
    assert [warning.id for warning in quick.warnings] == ["warning.slow-part-unused"]


def test_a_gpu_without_the_dtype_is_warned_about(catalog: Catalog) -> None:
    need = figure(1, 1, 1)
    for name, warned in (("T4", True), ("A100 SXM 80GB", False)):
        result = fit(need, Workload("serve", "m", precision="bf16"), find_gpu(catalog, name))
        assert bool(result.warnings) is warned


def test_remedies_are_ordered_by_cost_with_bytes_saved(catalog: Catalog) -> None:
    workload = Workload("finetune", "m", batch=8, seq_in=2048, precision="fp32", optimizer="adamw", attention="sdpa")
    results = remedies(problem_of(workload, 24 * GIB), find_gpu(catalog, "RTX 4090"))
    assert [remedy.id for remedy in results] == [
        "smaller-batch", "checkpointing", "half-precision", "8-bit-optimizer", "lora", "qlora", "more-gpus",
    ]  # fmt: skip
    before = simple(workload).device.value
    for remedy in results:
        assert remedy.saves > 0
        change: dict[str, Any] = {k: Parallel(**v) if k == "parallel" else v for k, v in remedy.change.items()}
        changed = replace(workload, **change)
        assert remedy.saves == pytest.approx(before - simple(changed).device.value, abs=2)
        assert remedy.fits == verdict(simple(changed).device, 24 * GIB)
        assert "{" not in english().render(remedy.what)
    assert results[-1].together == "fits"


def test_a_smaller_micro_batch_keeps_the_global_batch(catalog: Catalog) -> None:
    workload = Workload("train", "m", batch=12, seq_in=2048, precision="bf16")
    change = remedies(problem_of(workload, 20 * GIB), find_gpu(catalog, "L4"))[0].change
    assert change["micro_batch"] * change["accumulation"] == 12


def test_remedies_of_serving(catalog: Catalog) -> None:
    workload = Workload("serve", "m", batch=8, seq_in=2048, seq_out=256, precision="bf16", kv_precision="bf16", engine="pytorch")
    gpu = find_gpu(catalog, "L4")
    able = gpus_that_fit(simple(workload).device, workload, catalog.gpus)
    by_id = {remedy.id: remedy for remedy in remedies(problem_of(workload, 12 * GIB), gpu, able)}
    assert list(by_id) == ["smaller-batch", "kv-cache", "quantise", "more-gpus", "next-gpu"]
    assert by_id["smaller-batch"].change == {"batch": 1}
    assert by_id["more-gpus"].change["parallel"]["tp"] in (2, 4)


def test_only_applicable_remedies_are_offered(catalog: Catalog) -> None:
    lean = Workload("finetune", "m", batch=1, seq_in=256, precision="bf16", optimizer="adamw", checkpointing="full", qlora=True,
                    lora_rank=8)  # fmt: skip
    results = remedies(problem_of(lean, 1 * GIB), find_gpu(catalog, "T4"))
    assert {remedy.id for remedy in results} <= {"more-gpus"}


def test_the_formula_of_2015_gives_its_own_example() -> None:
    shape = Mlp("mlp:9000x4000x4000x32", (9000, 4000, 4000, 32))
    workload = fill_defaults(Workload("train", shape.name, batch=128, method="blog-2015"), shape)
    estimate = estimate_memory(workload, shape)
    assert estimate.allocated.value / GIB == pytest.approx(0.607, abs=0.001)
    assert estimate.allocated.value == formula_bytes(52_128_000, 128, 17_032)
    ids = [warning.id for warning in estimate.warnings]
    assert ids == ["warning.blog-2015", "warning.blog-2015-right", "warning.blog-2015-overhead"]


def test_formula_of_2015_lists_its_limitations() -> None:
    workload = fill_defaults(Workload("serve", "m", method="blog-2015"), LLAMA)
    ids = {warning.id for warning in estimate_memory(workload, LLAMA).warnings}
    assert {"warning.blog-2015-training", "warning.blog-2015-precision", "warning.blog-2015-layers"} <= ids
    dlrm = Dlrm("d", 16, (1000,), (13, 8, 16), (8, 1))
    assert estimate_memory(fill_defaults(Workload("forward", "d", method="blog-2015"), dlrm), dlrm).allocated.value > 12 * 16_000


@pytest.mark.parametrize(
    ("shape", "precision", "kind"),
    [(WeightsOnly("w", 10, 20), "bf16", "weights-only"), (Dlrm("d", 4, (4,), (4, 4), (1,)), "fp32", "no-training"),
     (LLAMA, "int4", "bad-field"), (LLAMA, "q4_k_m", "bad-field")],
)  # fmt: skip
def test_training_that_cannot_be_counted_is_refused(shape: Transformer, precision: str, kind: str) -> None:
    with pytest.raises(UsageError) as caught:
        estimate_memory(fill_defaults(Workload("train", "m", precision=precision), shape), shape)
    assert caught.value.kind == kind
    assert caught.value.hint is not None


@pytest.fixture(scope="module")
def answer() -> FitAnswer:
    return verbs.fit_model("mlp:9000x4000x4000x32", ["T4", "A100"], task="train", batch=128)


def test_the_chart_is_a_stacked_bar_of_parts_with_labels_and_limits(answer: FitAnswer) -> None:
    spec = memory_chart(answer, english())
    room, bars, ranges, ticks, labels = spec["layer"]
    gpus = [row.gpu_name for row in answer.gpus]
    assert [limit["gpu"] for limit in ticks["data"]["values"]] == gpus
    first = [bar["size"] for bar in bars["data"]["values"] if bar["gpu"] == gpus[0]]
    assert sum(first) == pytest.approx(answer.memory_device.value / GIB, abs=0.01)
    scale = bars["encoding"]["color"]["scale"]
    assert len(scale["domain"]) == len(scale["range"]) == len(set(scale["range"])) == len(answer.memory_parts)
    assert all("GiB" in label["text"] for label in labels["data"]["values"])
    assert json.loads(json.dumps(spec)) == spec
    for bar in room["data"]["values"]:  # Headroom is drawn from what is needed to what is usable.
        assert 0 <= bar["needed"] <= bar["size"]
    for one in ranges["data"]["values"]:
        assert (one["low"], one["high"]) == pytest.approx((answer.needed.low / GIB, answer.needed.high / GIB), abs=0.001)


def test_bars_in_percent_are_of_the_usable_memory_of_each_gpu(answer: FitAnswer) -> None:
    bars = [MemoryBar(row.gpu_name, row.fits, answer.needed, row.usable, answer.memory_parts) for row in answer.gpus]
    spec = memory_picture(bars, english(), lambda bar: bar.share, 0, "percent")
    for bar, row in zip(bars, answer.gpus, strict=True):
        total = sum(one["size"] for one in spec["layer"][1]["data"]["values"] if one["gpu"] == bar.gpu_name)
        assert total == pytest.approx(100 * answer.needed.value / row.usable, abs=0.01)
        assert bar.share == f"{total:.0f}%"
    assert {one["size"] for one in spec["layer"][2]["data"]["values"]} == {100}


def test_a_chart_of_every_gpu_shows_those_near_the_need(catalog: Catalog) -> None:
    spec = memory_chart(verbs.fit_model("mlp:90x40", task="train", catalog=catalog), english())
    assert len(spec["layer"][2]["data"]["values"]) == MAX_BARS


def test_plot_needs_a_known_extension_and_the_extra(answer: FitAnswer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError) as caught:
        check_chart_file("parts.jpeg")
    assert caught.value.choices == (".svg", ".png", ".html")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UsageError) as caught:
        check_chart_file("parts.svg")
    assert caught.value.kind == "needs-extra"
    assert "pip install" in english().render(caught.value.hint)  # type: ignore[arg-type]


class Converter:
    """A stand-in for vl-convert that writes the spec itself."""

    @staticmethod
    def vegalite_to_svg(spec: object) -> str:
        return f"<svg>{json.dumps(spec)}</svg>"

    @staticmethod
    def vegalite_to_png(spec: object, scale: float) -> bytes:
        return b"\x89PNG"

    @staticmethod
    def vegalite_to_html(spec: object, bundle: bool) -> str:
        return "<html>"


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<svg>"), ("png", b"\x89PNG"), ("html", b"<html>")])
def test_a_picture_is_written(
    answer: FitAnswer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, start: bytes
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", Converter)
    path = tmp_path / f"parts.{ending}"
    write_chart(memory_chart(answer, english()), str(path))
    assert path.read_bytes().startswith(start)
    with pytest.raises(UsageError) as caught:
        write_chart({}, str(tmp_path / "no" / f"x.{ending}"))
    assert caught.value.kind == "cannot-write-file"


def test_smallest_gpu_comes_first_and_newest_among_equals(catalog: Catalog) -> None:
    need, workload = figure(20 * GIB, 19 * GIB, 21 * GIB), Workload("train", "m", precision="fp32")
    able = gpus_that_fit(need, workload, catalog.gpus)
    assert len(able) > 20

    def size(gpu: Gpu) -> int:
        return usable_bytes(gpu, workload)

    assert all(size(one) <= 1.04 * size(other) for one, other in pairwise(able))
