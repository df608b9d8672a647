"""Which corrections apply to a step: groups, years between those measured; what feeds a GPU."""

from __future__ import annotations

from math import exp
from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.loading import loading, loading_remark
from whichgpu.estimate.time.calibration import (
    LEVELS,
    Calibration,
    CorrectionKey,
    _interpolate_year,
    correction_key,
    load_calibration,
    power_class,
)
from whichgpu.estimate.time.terms import TERMS

GPUS = Catalog().gpu_by_id
H100 = GPUS["h100-sxm"]
SETTING = CorrectionKey("vllm", 2024, "decode", "half", "h100-sxm", "Hopper", "Hopper 9.0", "datacenter", "GH100", "nvidia")


def calibrated(**multipliers: dict[str, dict[str, float]]) -> Calibration:
    plain = load_calibration()
    return replace(
        plain, multipliers={name.replace("_", "-"): groups for name, groups in multipliers.items()}, multiplier_cache={}
    )


def test_the_groups_of_a_setting() -> None:
    assert {level: SETTING.group(level) for level in LEVELS} == {
        "all": "", "style": "serving", "era": "serving/2024", "engine": "vllm", "year": "vllm/2024", "task": "vllm/decode",
        "platform": "", "architecture": "Hopper", "generation": "Hopper 9.0", "generation-unit": "Hopper 9.0/half",
        "generation-task": "Hopper 9.0/decode", "build": "datacenter", "vendor-engine": "nvidia/vllm", "chip": "GH100",
    }  # fmt: skip
    assert [replace(SETTING, engine=name).style for name in ("pytorch", "tensorrt", "llama.cpp")] == [
        "framework",
        "compiled",
        "serving",
    ]
    with pytest.raises(KeyError):
        _ = replace(SETTING, engine="unheard-of").style


def test_kernels_for_amd_before_they_were_tuned_have_corrections_of_their_own() -> None:
    amd = replace(SETTING, gpu="mi300x", architecture="CDNA3", vendor="amd")
    assert amd.applies("platform")
    assert amd.group("platform") == "rocm-before-2025"
    assert not any(key.applies("platform") for key in (SETTING, replace(amd, year=2025), replace(amd, engine="pytorch")))
    calibration = calibrated(platform={"rocm-before-2025": {"gemm": 0.5}})
    assert [calibration.log_multiplier(key, "gemm") for key in (amd, replace(amd, year=2026), SETTING)] == [0.5, 0.0, 0.0]


@pytest.mark.parametrize("task", ["train", "forward", "prefill"])
def test_compiled_steps_share_the_corrections_of_eager_kernels(task: str) -> None:
    """torch.compile calls the same libraries, and its fused kernels stream memory as others do; gaps and host work differ."""
    compiled = replace(SETTING, engine="pytorch-compile", task=task)
    own = {"gemm": 0.5, "stream": 0.5, "memory": 0.5, "gap": 0.5, "forward_calls": 0.5}
    eager = {"gemm": 0.1, "stream": 0.2, "memory": 0.3, "gap": 0.1, "forward_calls": 0.1}
    calibration = calibrated(engine={"pytorch-compile": own, "pytorch": eager}, style={"framework": {"gemm": 0.05}})
    for key, logs in (
        (compiled, (0.15, 0.2, 0.3, 0.5, 0.5)),
        (replace(compiled, engine="pytorch"), (0.15, 0.2, 0.3, 0.1, 0.1)),
    ):
        assert [calibration.log_multiplier(key, term) for term in own] == pytest.approx(logs)
        factors = dict(zip(TERMS, calibration.factors([key])[:, 0], strict=True))
        assert [factors[term] for term in own] == pytest.approx([exp(one) for one in logs])


def test_logarithms_of_all_groups_add_up() -> None:
    calibration = calibrated(
        all={"": {"gemm": 0.5}}, engine={"vllm": {"gemm": 0.25, "gap": 1.0}, "sglang": {"gemm": 9.0}}, task={}
    )
    assert calibration.log_multiplier(SETTING, "gemm") == 0.75
    assert calibration.log_multiplier(SETTING, "gap") == 1.0
    factors = calibration.factors([SETTING, replace(SETTING, engine="pytorch")])
    assert factors.shape == (len(TERMS), 2)
    assert factors[TERMS.index("gemm")].tolist() == pytest.approx([exp(0.75), exp(0.5)])
    assert factors[TERMS.index("conv")].tolist() == [1.0, 1.0]


YEARS = {"vllm/2022": {"gemm": 1.0}, "vllm/2026": {"gemm": 3.0, "gap": 4.0}, "other/2024": {"gemm": 9.0}}


@pytest.mark.parametrize(
    ("year", "gemm", "gap"),
    [(2020, 1.0, 0.0), (2022, 1.0, 0.0), (2023, 1.5, 1.0), (2025, 2.5, 3.0), (2026, 3.0, 4.0), (2030, 3.0, 4.0)],
)
def test_years_between_those_measured_are_on_a_line(year: int, gemm: float, gap: float) -> None:
    correction = _interpolate_year(YEARS, "vllm", year)
    assert (correction.get("gemm", 0.0), correction.get("gap", 0.0)) == (gemm, gap)
    assert _interpolate_year(YEARS, "nobody", year) == {}
    whole = calibrated(year=YEARS, era={"serving/2024": {"gemm": 10.0}})
    assert whole.log_multiplier(replace(SETTING, year=year), "gemm") == 10.0 + gemm


def test_cards_of_little_power_are_a_build_of_their_own() -> None:
    assert power_class(H100) == "datacenter"
    assert [power_class(replace(H100, tdp_watts=watts)) for watts in (70, 80, 81, None)] == [
        "low-power", "low-power", "datacenter", "datacenter",
    ]  # fmt: skip


def test_unmeasured_generations_use_the_nearest_one() -> None:
    def kin(gpu: str) -> tuple[str, str]:
        key = correction_key(GPUS[gpu], "vllm", 2026, "decode", "half")
        return key.architecture, key.generation

    assert kin("h100-sxm") == ("Hopper", "Hopper 9.0")
    assert kin("b200") == ("Hopper", "Hopper 9.0")
    assert kin("rtx-5090") == ("Ada", "Ada 8.9")


def test_data_loading_rate_by_hand() -> None:
    """A thread of torchvision's: between 1058 / 12 and 1923 / 10 images a second, their geometric mean."""
    middle = (1058 / 12 * 192.3) ** 0.5
    rates = loading(1000.0)
    assert rates.vcpus.value == pytest.approx(1000 / middle)
    assert rates.vcpus.low == pytest.approx(1000 / 250)
    assert rates.vcpus.high == pytest.approx(1000 / (1058 / 12 * 1923 / 2500))
    assert rates.cores.value == pytest.approx(rates.vcpus.value / 2)
    assert (rates.feeds, rates.fed) == (None, None)
    gains = {"dali-cpu": 1816 / 1058, "dali-gpu": 3910 / 1058, "ffcv": 31278 / 96 / (1058 / 12)}
    for loader, gain in gains.items():
        other = loading(1000.0, loader=loader).vcpus
        assert (other.value, other.low, other.high) == pytest.approx(
            [end / gain for end in (1000 / middle, rates.vcpus.low, rates.vcpus.high)]
        )
    host = loading(1000.0, 16.0).fed
    assert host is not None
    assert host.value == pytest.approx(16 * middle)


@pytest.mark.parametrize(("vcpus", "verdict"), [(3.9, "starves"), (4.0, "tight"), (14.7, "tight"), (14.8, "feeds")])
def test_a_host_feeds_it_or_does_not(vcpus: float, verdict: Any) -> None:
    assert loading(1000.0, vcpus).feeds == verdict
    assert loading_remark(1000.0, vcpus).id == f"remark.loading-{verdict}"


def test_loading_remark_has_whole_vcpus() -> None:
    message = loading_remark(1000.0)
    assert (message.id, message.values["vcpus"], message.values["low"], message.values["high"]) == (
        "remark.loading",
        "8",
        "4",
        "15",
    )
    with pytest.raises(ValueError, match="above zero"):
        loading(0.0)
