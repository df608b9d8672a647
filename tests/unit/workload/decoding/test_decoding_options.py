"""Speculative decoding, prefix cache share and weights in host memory: how they are read, and what they change."""

from __future__ import annotations

from typing import Any

import pytest

import whichgpu as wg
from whichgpu.base.kinds import InvalidValue
from whichgpu.workload.decoding.offload import Offload, OffloadValue
from whichgpu.workload.decoding.speculative import Speculative, SpeculativeValue

DRAFT = {"method": "draft", "draft": "llama-3.2-1b", "tokens": 4, "acceptance": 0.7}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (DRAFT, Speculative("draft", "llama-3.2-1b", 4, 0.7)),
        ("draft=llama-3.2-1b,tokens=4,acceptance=0.7", Speculative("draft", "llama-3.2-1b", 4, 0.7)),
        ("mtp", Speculative("mtp", "", 1, 0.85)),
        ({"method": "ngram", "tokens": 2}, Speculative("ngram", "", 2, 0.3)),
    ],
)
def test_speculative_decoding_is_an_object_or_a_text(value: Any, expected: Speculative) -> None:
    kind = SpeculativeValue()
    assert kind.read(value) == expected == kind.read(kind.write(expected)) == kind.read_text(kind.write_text(expected))


@pytest.mark.parametrize("value", ["draft", "medusa", {"method": "draft"}, {"method": "mtp", "tokens": 0}, 4, "mtp,acceptance=2"])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(InvalidValue):
        SpeculativeValue().read(value)


def test_weights_in_host_memory_are_experts_layers_or_automatic() -> None:
    kind = OffloadValue()
    for value in (Offload(experts=True), Offload(experts=True, layers=7), Offload(layers=20), Offload(automatic=True)):
        assert kind.read(kind.write(value)) == value == kind.read_text(kind.write_text(value))
    for wrong in ("disk", {"layers": 0}, {"experts": "disk"}, {"experts": 0}, 3):
        with pytest.raises(InvalidValue):
            kind.read(wrong)


def seconds(task: str, model: str, **fields: Any) -> float:
    time = wg.estimate(task, model, **fields).time
    assert time is not None
    return time.value


def test_drafting_pays_for_one_user_and_less_as_the_batch_grows() -> None:
    gains = []
    for batch in (1, 256):
        fields: dict[str, Any] = {"gpu": "H100 SXM", "batch": batch, "seq_in": 512, "engine": "vllm"}
        gains.append(seconds("decode", "llama-3.1-8b", **fields) / seconds("decode", "llama-3.1-8b", speculative=DRAFT, **fields))
    assert 1.2 < gains[0] < 2.78  # A step gives (1 - 0.7^5) / 0.3 = 2.77 tokens on average.
    assert gains[1] < gains[0]
    plain, drafted = (wg.estimate("decode", "llama-3.1-8b", gpu="H100 SXM", speculative=one) for one in (None, DRAFT))
    assert drafted.memory_parts["weights"].value - plain.memory_parts["weights"].value == pytest.approx(1.236e9 * 2, rel=0.01)
    assert "note.speculative-gain" in [one.id for one in drafted.warnings]


def test_a_prefix_hit_shortens_the_first_token_only() -> None:
    cold, warm = (wg.estimate("serve", "llama-3.1-8b", gpu="H100 SXM", seq_in=8192, prefix_hit=share) for share in (0.0, 0.9))
    assert cold.ttft is not None
    assert warm.ttft is not None
    assert warm.ttft.value < 0.4 * cold.ttft.value
    assert warm.memory == cold.memory
    loaded, cached = (
        wg.estimate("serve", "llama-3.1-8b", gpu="H100 SXM", seq_in=4096, rate=2, prefix_hit=share) for share in (0.0, 0.9)
    )
    assert loaded.ttft is not None
    assert cached.ttft is not None
    assert cached.ttft.value < loaded.ttft.value


def test_experts_in_host_memory_fit_a_card_that_the_model_exceeds() -> None:
    fields: dict[str, Any] = {"gpu": "RTX 4090", "engine": "llama.cpp"}
    whole, hosted = (wg.estimate("serve", "gpt-oss-120b", offload=one, **fields) for one in (None, {"experts": "host"}))
    assert (whole.fits, hosted.fits) == ("no", "fits")
    assert hosted.time is not None
    assert whole.time is not None
    # Four experts of 3 x 2880 x 2880 weights at 4.25 bits in 36 layers, read at 67.2 GB/s.
    read_seconds = 4 * 36 * 3 * 2880 * 2880 * 4.25 / 8 / 67.2e9
    assert read_seconds < hosted.time.value < 3 * read_seconds
    assert hosted.bound == "bandwidth"  # of the host's memory, not the launches of small kernels
    automatic = wg.estimate("serve", "gpt-oss-120b", offload="auto", **fields)
    assert 18 < automatic.request["offload"]["experts"] < 36  # The card has room for the experts of some layers.
    layers = wg.estimate("serve", "llama-3.1-70b", gpu="RTX 4090", precision="q4_k_m", offload="auto")
    assert layers.fits == "fits"
    assert 20 < layers.request["offload"]["layers"] < 80
    remedies = wg.fit("gpt-oss-120b", gpu="RTX 4090", engine="llama.cpp").gpus[0].remedies
    assert "offload" in [one.id for one in remedies]


def test_llama_cpp_shares_layers_and_one_user_waits_for_each_card_in_turn() -> None:
    one, two = (wg.estimate("serve", "llama-3.1-8b", gpu="RTX 4090", precision="q8_0", gpus=gpus) for gpus in (1, 2))
    assert two.request["parallel"]["pp"] == 2
    assert one.time is not None
    assert two.time is not None
    assert one.time.value < two.time.value < 1.3 * one.time.value
    assert two.memory.value < 0.7 * one.memory.value


def test_engines_that_run_operator_by_operator_refuse_them() -> None:
    with pytest.raises(wg.UsageError, match="pytorch"):
        wg.estimate("decode", "llama-3.1-8b", gpu="H100 SXM", engine="pytorch", speculative="mtp")


def test_automatic_offload_leaves_as_many_experts_on_the_gpu_as_fit() -> None:
    fields: dict[str, Any] = {"gpu": "RTX 4090", "engine": "llama.cpp", "precision": "q8_0", "seq_in": 2048}
    answers = {one: wg.estimate("decode", "qwen3-30b-a3b", offload=one, **fields) for one in ("auto", "experts")}
    chosen = answers["auto"].request["offload"]["experts"]
    assert 0 < chosen < 48
    assert answers["auto"].fits == "fits"
    fewer = wg.estimate("decode", "qwen3-30b-a3b", offload={"experts": chosen - 1}, **fields)
    assert fewer.fits != "fits"
    times = [one.time.value for one in (fewer, answers["auto"], answers["experts"]) if one.time]
    assert times == sorted(times)
    assert times[1] < 0.8 * times[2]
    [line] = wg.estimate("serve", "qwen3-30b-a3b", offload="auto", emit="llama.cpp", **fields).emitted.values()
    assert f"--n-gpu-layers 999 --n-cpu-moe {chosen}" in line
