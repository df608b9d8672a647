"""From the terms of a step to its seconds, and the kinds of steps."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tests.serving_cases import CATALOG
from tests.tiny_transformer import TINY, tiny_workload
from tests.toy_gpu import elementwise
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.calibration import correction_key, load_calibration
from whichgpu.estimate.time.combine import HostMode, host_loop_seconds, soft_maximum, step_seconds
from whichgpu.estimate.time.curves.gpus import cached_gpu_columns
from whichgpu.estimate.time.grid import scheduled_sequences, throttling_slowdown, uncorrected_terms
from whichgpu.estimate.time.lower import lower
from whichgpu.estimate.time.lower.traced import UNET_CALL_COST, lower_model
from whichgpu.estimate.time.lower.traced_model import traced_model
from whichgpu.estimate.time.operators import gemm
from whichgpu.estimate.time.terms import SEQUENCE_SECONDS, TERMS, TimeTerms, dominant_unit_class
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Mlp, Patches, TracedShape
from whichgpu.workload.workload import Workload


def test_terms_add_up_to_device_host_and_wall() -> None:
    """Ten seconds of each term with a correction of 2, and a floor of 30 s for attention."""
    shape = (len(TERMS), 1, 1)
    floors = np.zeros(shape)
    floors[TERMS.index("attention")] = 30.0
    terms = TimeTerms(np.full(shape, 10.0), floors, np.ones((1, 1)), np.ones((1, 1)), "half")
    device_only = step_seconds(terms, np.full((len(TERMS), 1), 2.0), HostMode(launches=False), host_speed=2.0)
    assert device_only.device.item() == 7 * 20 + 30
    assert device_only.wall.item() == 170 + 20  # fixed seconds of the step and of its sequences, on a host of twice the speed
    both = step_seconds(terms, np.full((len(TERMS), 1), 2.0), HostMode(launches=True), host_speed=2.0)
    assert both.host.item() == 20 + 20
    assert both.wall.item() == pytest.approx((170**6 + 20**6) ** (1 / 6) + 20)
    overlapped = step_seconds(terms, np.full((len(TERMS), 1), 2.0), HostMode(launches=True, overlaps=True), host_speed=2.0)
    assert overlapped.wall.item() == pytest.approx(
        (170**6 + 30**6) ** (1 / 6) + 10
    )  # the fixed seconds of the step do not overlap
    looping = step_seconds(terms, np.full((len(TERMS), 1), 2.0), HostMode(launches=True), host_speed=2.0, loop=800.0)
    assert looping.wall.item() == pytest.approx((170**6 + 420**6) ** (1 / 6) + 20)  # the loop outlasts the device
    assert soft_maximum(np.zeros(1), np.zeros(1)).item() == 0.0
    twice = terms + terms * 2.0
    assert (twice.seconds.max(), twice.floors.max(), twice.flop_seconds.item(), twice.byte_seconds.item()) == (30, 90, 3, 3)


def test_dominant_unit_class_has_the_largest_share_of_gemm_flops() -> None:
    ops = (gemm(10.0, 10.0, 10.0, "bf16", 2.0), gemm(10.0, 10.0, 15.0, "fp32", 4.0), gemm(10.0, 10.0, 10.0, "fp16", 2.0))
    assert dominant_unit_class(ops) == "half"
    assert dominant_unit_class(ops[:2]) == "single"
    assert dominant_unit_class((ops[0].times(2.0), ops[1])) == "half"
    assert dominant_unit_class(()) == "half"
    assert dominant_unit_class((gemm(10.0, 10.0, 10.0, "int8", 1.0), elementwise(10.0, 4.0, 4.0))) == "narrow"
    weight_only = replace(gemm(10.0, 10.0, 10.0, "int8", 1.0), kind="weight_only_gemm")
    assert dominant_unit_class((weight_only, elementwise(10.0, 4.0, 4.0))) == "half"
    assert dominant_unit_class((gemm(np.array([1.0, 2.0]), 10.0, 10.0, "tf32", 4.0),)) == "tf32"


def test_kinds_of_steps_and_their_host_terms() -> None:
    assert [tiny_workload(task).traits.step for task in ("train", "finetune", "prefill", "decode", "forward", "serve")] == [
        "train", "train", "prefill", "decode", "forward", "forward",
    ]  # fmt: skip
    assert TINY.is_generative
    assert not replace(TINY, causal=False).is_generative
    assert not replace(TINY, patches=Patches(224, 16)).is_generative
    assert not Mlp("", (8, 4)).is_generative
    assert scheduled_sequences(tiny_workload(engine="vllm", year=2024), 7.0) == 7.0
    assert scheduled_sequences(tiny_workload(engine="vllm", year=2026), 7.0) == pytest.approx(7.0 / 10)  # see the engine's record
    assert scheduled_sequences(tiny_workload(engine="pytorch"), 7.0) == 0.0
    assert throttling_slowdown(np.array(0.0)).item() == 1.0
    assert throttling_slowdown(np.array(1e9)).item() > throttling_slowdown(np.array(0.01)).item() > 1.0


def test_a_serving_engine_s_own_loop_counts_for_decode_steps_by_their_sequences() -> None:
    host = engine_record("vllm", 2026).host
    shape = (len(TERMS), 1, 2)
    seconds = np.zeros(shape)
    seconds[TERMS.index("sequences")] = np.array([[0.0, 64 * host.sequence_work * SEQUENCE_SECONDS]])
    terms = TimeTerms(seconds, np.zeros(shape), np.ones((1, 2)), np.ones((1, 2)), "half")
    none, loop = host_loop_seconds("vllm", 2026, terms)[0]
    assert none == 0.0
    assert loop == pytest.approx(host.loop + 64 * host.sequence_loop)
    assert host_loop_seconds("vllm", 2024, terms).max() == 0.0


def test_attention_over_long_videos_is_a_term_of_its_own() -> None:
    """Corrections of attention were fitted on networks with fewer tokens, so none applies."""
    terms = {}
    for model in ("wan2.1-1.3b", "vit_b_16"):
        shape = find_model(model, CATALOG)
        workload = fill_defaults(Workload("forward", model, gpu="h200-sxm", engine="pytorch", precision="bf16", batch=1), shape)
        lowered = lower(workload, shape, 1.0)
        terms[model] = uncorrected_terms(lowered, cached_gpu_columns([CATALOG.gpu_by_id["h200-sxm"]])).seconds[:, 0, 0]
    short, long = TERMS.index("attention"), TERMS.index("long_attention")
    assert terms["wan2.1-1.3b"][long] > 10 * terms["wan2.1-1.3b"][short]
    assert terms["vit_b_16"][long] == 0
    assert (
        load_calibration().factors([correction_key(CATALOG.gpu_by_id["h200-sxm"], "pytorch", 2026, "forward", "half")])[long] == 1
    )


def test_calls_of_a_unet_cost_the_host_more_than_those_of_a_transformer() -> None:
    calls = {}
    for engine in ("pytorch", "pytorch-compile"):
        shape = find_model("stable-diffusion-1.5", CATALOG)
        workload = fill_defaults(Workload("forward", "stable-diffusion-1.5", engine=engine, precision="bf16", batch=1), shape)
        assert isinstance(shape, TracedShape)
        model = traced_model(workload, shape)
        calls[engine] = lower(workload, shape, 1.0).calls_forward / lower_model(workload, model, 1.0).calls_forward
    assert calls == {"pytorch": pytest.approx(UNET_CALL_COST), "pytorch-compile": pytest.approx(1.0)}
