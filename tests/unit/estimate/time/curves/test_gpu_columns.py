"""Columns of a GPU that the curves use: from the catalog's table of architectures, and by hand if a value is not stated."""

from __future__ import annotations

import csv
from math import inf, isinf
from typing import Any

import pytest
from msgspec.structs import replace

from tests.toy_gpu import number as only_number
from whichgpu.catalog.architecture import architecture_named
from whichgpu.catalog.evidence import measurements
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.curves.evaluate import operator_seconds
from whichgpu.estimate.time.curves.gpus import GpuColumns, build_gpu_columns
from whichgpu.estimate.time.operators import gemm

GPUS = Catalog().gpu_by_id
H100, T4 = GPUS["h100-sxm"], GPUS["t4"]


def rows(table: str) -> list[dict[str, str]]:
    with (Catalog().folder / f"{table}.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_flops_per_clock_are_those_of_the_architecture_papers() -> None:
    """The best part of each target in `rates.csv`; architectures without 16-bit units are counted by their fp32 rate."""
    rates = {row["id"]: row for row in rows("rates")}
    by_target: dict[str, list[dict[str, str]]] = {}
    for gpu in rows("gpus"):
        if gpu["rates"]:
            by_target.setdefault(gpu["target"], []).append(rates[gpu["rates"]])
    checked = 0
    for row in (row for row in rows("architectures") if row["rates"]):
        target, chip = row["id"], architecture_named(row["parent"], row["id"])
        best = {name: max((float(row[name] or 0) for row in by_target.get(target, ())), default=0.0)
                for name in ("fp32", "fp32_matrix", "fp16", "fp16_fp16acc", "int8")}  # fmt: skip
        if not best["fp32"]:
            continue
        checked += 1
        assert chip.fp32_flops_per_clock == max(best["fp32"], best["fp32_matrix"]), target
        half = max(best["fp16"], best["fp16_fp16acc"]) or best["int8"] / 2 or best["fp32"]
        assert chip.fp16_flops_per_clock == half, target
    assert checked >= 22
    for name, target, flops in (
        ("Ampere", "sm_87", (256.0, 2048.0)),
        ("Blackwell", "sm_121", (256.0, 1024.0)),
    ):
        chip = architecture_named(name, target)
        assert (chip.fp32_flops_per_clock, chip.fp16_flops_per_clock) == flops


@pytest.mark.parametrize(
    ("gpu", "tflops"),
    [("mi100", 46.1), ("mi210", 45.3), ("mi250", 45.3), ("mi250x", 47.9), ("mi300x", 163.4), ("h100-sxm", 67)],
)
def test_fp32_gemms_of_cdna_run_on_matrix_cores(gpu: str, tflops: float) -> None:
    """AMD's product pages state FP32 matrix peaks, here of one die; on later chips they equal the vector peak."""
    columns = build_gpu_columns([GPUS[gpu]])
    assert number(columns, "peaks", "fp32") == pytest.approx(tflops * 1e12, rel=0.005)
    gemms = gemm(8192.0, 8192.0, 8192.0, "fp32", 4.0)
    rate = float(gemms.flops / operator_seconds([gemms], columns).seconds.item())
    assert 0.7 * tflops * 1e12 < rate < tflops * 1e12


def test_int8_dot_products_of_pascal_are_four_times_fp32() -> None:
    """GP10x has dp4a, GP100 and what came before have no int8; Volta's is slower than its tensor cores in fp16 (white papers)."""
    for gpu in GPUS.values():
        if gpu.target == "sm_61":
            assert gpu.peaks["int8"] == pytest.approx(4 * gpu.peaks["fp32"], rel=0.005), gpu.id
            assert number(build_gpu_columns([gpu]), "peaks", "int8") == gpu.peaks["int8"]
            assert number(build_gpu_columns([gpu]), "native", "int8") == 1.0
        elif gpu.architecture in ("Kepler", "Maxwell") or gpu.target == "sm_60":
            assert "int8" not in gpu.peaks, gpu.id
        elif gpu.architecture == "Volta":
            assert gpu.peaks["int8"] == pytest.approx(4 * gpu.peaks["fp32"], rel=0.02), gpu.id
            assert number(build_gpu_columns([gpu]), "native", "int8") == 0.0
    assert (GPUS["p40"].peaks["int8"], GPUS["p4"].peaks["int8"], GPUS["t4"].peaks["int8"]) == (47e12, 22e12, 130e12)


def test_sustained_rates_depend_on_the_chip_and_its_power_limit() -> None:
    """Published maxima of bf16 GEMMs lie below the rates that floors assume, and near them on the chips these were taken from."""
    for row in (row for row in measurements() if row.source == "stas00" and row.request["dtype"] == "bf16"):
        m, n, k = (float(row.request[name]) for name in ("m", "n", "k"))
        measured = 2 * m * n * k / row.seconds
        columns = build_gpu_columns([GPUS[row.gpu]])
        assert measured <= 1.005 * number(columns, "sustained_peaks", "bf16"), row.gpu
        assert number(columns, "sustained_peaks", "bf16") <= number(columns, "clocked_peaks", "bf16")
        if row.gpu in ("h100-sxm", "b200", "mi355x"):
            assert measured == pytest.approx(number(columns, "sustained_peaks", "bf16"), rel=0.005)

    def share(gpu: str, unit: str = "bf16", **changed: Any) -> float:
        columns = columns_of(GPUS[gpu], **changed)
        return number(columns, "sustained_peaks", unit) / number(columns, "clocked_peaks", unit)

    assert share("h100-sxm", tdp_watts=350) == pytest.approx(share("h100-sxm") * 0.5 ** (1 / 3))
    assert share("h100-pcie") < share("h100-sxm") < share("h20-96gb") == 1.0
    assert share("h100-sxm", "fp8") == share("h100-sxm")
    assert (share("h100-sxm", "fp32"), share("h100-sxm", "tf32"), share("rtx-4090"), share("h100-sxm", tdp_watts=None)) == (
        1,
    ) * 4


@pytest.mark.parametrize("gpu", ["v100-sxm-16gb", "titan-v", "b300"])
@pytest.mark.parametrize("rows", [1.0, 64.0, 200.0, 1000.0, 8192.0])
def test_int8_is_no_faster_than_fp16_without_int8_tensor_cores(gpu: str, rows: float) -> None:
    narrow, wide = (gemm(rows, 4096.0, 4096.0, unit, 2.0) for unit in ("int8", "fp16"))
    timed = operator_seconds([narrow, wide], build_gpu_columns([GPUS[gpu]])).seconds.ravel()
    assert timed[0] >= 0.999 * timed[1]


def columns_of(gpu: Gpu, **changed: Any) -> GpuColumns:
    return build_gpu_columns([replace(gpu, **changed)])


def number(columns: GpuColumns, name: str, unit: str | None = None) -> float:
    value = getattr(columns, name)
    return only_number(value[unit] if unit else value)


PEAKS = {"fp64": 1, "fp64_tensor": 2, "fp32": 80, "tf32": 400, "bf16": 801, "fp16": 800, "fp8": 1600, "int8": 1601, "fp4": 3200}


def rate(unit: str, **peaks: float) -> float:
    return number(columns_of(H100, peaks=peaks), "peaks", unit)


def test_every_unit_has_its_stated_peak() -> None:
    columns = columns_of(H100, peaks=PEAKS)
    for unit, peak in (("fp64", 2), ("fp32", 80), ("tf32", 400), ("bf16", 801), ("fp16", 800), ("fp16_fp16acc", 800),
                       ("fp8", 1600), ("int8", 1601), ("fp4", 3200)):  # fmt: skip
        assert number(columns, "peaks", unit) == peak
        assert number(columns, "native", unit) == float(unit in PEAKS)


def test_missing_units_use_the_peak_of_another() -> None:
    assert rate("fp64", fp32=64) == 1.0
    assert rate("fp64", fp32=64, fp64=32) == 32
    assert rate("tf32", fp32=64) == 64
    assert rate("bf16", fp32=64, fp16=512) == 64  # after a cast
    assert rate("fp16", fp32=64, bf16=512) == 512
    assert rate("fp16", fp32=64) == 64
    assert rate("fp8", fp32=64, fp16=512) == 512  # widened before they are multiplied
    assert rate("fp4", fp32=64, bf16=512) == 512
    assert rate("fp16_fp16acc", fp32=64, fp16=256, fp16_fp16acc=512) == 512
    assert rate("int8", fp32=64, fp16=512, int8=256) == 512  # bytes slower than fp16 are not used
    assert rate("int8", fp32=64, fp16=512, int8=1024) == 1024


def test_peaks_follow_from_narrower_units_if_only_those_are_stated() -> None:
    assert rate("bf16", fp8=1600) == 800
    assert rate("bf16", int8=1600) == 800
    assert rate("fp16", fp4=1600) == 400
    assert rate("fp32", bf16=800) == 100
    assert rate("fp32", bf16=800, bf16_plain=90) == 90
    apple = next(gpu for gpu in GPUS.values() if gpu.vendor == "apple")
    assert number(columns_of(apple, peaks={}, sms=8), "peaks", "fp32") == pytest.approx(2.64e12)


def test_clocks_are_stated_or_those_of_the_architecture() -> None:
    plain: Any = {"segment": "datacenter"}
    assert number(columns_of(H100, tensor_clock_hz=1_700_000_000, boost_clock_hz=1_900_000_000, **plain), "clock") == 1.7e9
    assert number(columns_of(H100, tensor_clock_hz=None, boost_clock_hz=1_900_000_000, **plain), "clock") == 1.9e9
    for architecture, clock in (("Hopper", 1.83e9), ("Blackwell", 1.9e9), ("Ampere", 1.5e9)):
        unknown = columns_of(H100, tensor_clock_hz=None, boost_clock_hz=None, architecture=architecture, **plain)
        assert number(unknown, "clock") == clock


@pytest.mark.parametrize(
    ("architecture", "sustained"),
    [("Kepler", 0.95), ("Maxwell", 1.16), ("Pascal", 1.78), ("Volta", 1.53), ("Turing", 1.80), ("Ampere", 1.82), ("Ada", 2.65)],
)
def test_consumer_cards_sustain_more_than_their_stated_boost(architecture: str, sustained: float) -> None:
    card: Any = {
        "architecture": architecture,
        "form_factor": "pcie",
        "tensor_clock_hz": None,
        "boost_clock_hz": int(sustained * 0.5e9),
        "tdp_watts": 200,
    }
    for segment in ("consumer", "workstation"):
        columns = columns_of(T4, id="a-card", segment=segment, **card)
        assert number(columns, "clock") == pytest.approx(sustained * 1e9)
        assert number(columns, "sustained_rates", "fp32") == pytest.approx(2 * T4.peaks["fp32"])
        assert number(columns, "sm_rates", "fp32") == pytest.approx(128 * sustained * 1e9)
    assert number(columns_of(T4, id="a-card", segment="datacenter", **card), "clock") == sustained * 0.5e9
    assert number(columns_of(T4, id="titan-x", segment="consumer", **card), "clock") == sustained * 0.5e9
    assert (
        number(columns_of(T4, id="a-card", segment="consumer", **(card | {"form_factor": "sxm"})), "clock") == sustained * 0.5e9
    )
    assert number(columns_of(T4, id="a-card", segment="consumer", **(card | {"tdp_watts": 75})), "clock") == sustained * 0.5e9
    fast = columns_of(T4, id="a-card", segment="consumer", **(card | {"boost_clock_hz": 3_000_000_000}))
    assert number(fast, "clock") == 3e9


def test_caches_and_sms_are_stated_or_those_of_the_architecture() -> None:
    assert number(columns_of(H100, l3_bytes=7, l2_bytes=5), "l2") == 7
    assert number(columns_of(H100, l3_bytes=None, l2_bytes=5), "l2") == 5
    for architecture, mib in (("Hopper", 50), ("Blackwell", 96), ("Ada", 48), ("Volta", 4)):
        assert number(columns_of(H100, l3_bytes=None, l2_bytes=None, architecture=architecture), "l2") == mib * 2**20
    for architecture, sms in (("Hopper", 132), ("Blackwell", 148), ("Volta", 64)):
        assert number(columns_of(H100, sms=None, architecture=architecture), "sms") == sms
    assert number(columns_of(H100, sms=99), "sms") == 99
    assert number(columns_of(H100, sms=99, vendor="aws"), "sms") == 132  # their engines are none
    assert number(columns_of(H100, tdp_watts=None), "tdp") == inf


def test_the_rate_of_an_sm_is_that_of_its_architecture() -> None:
    plain: Any = {"tensor_clock_hz": 1_000_000_000, "segment": "datacenter"}
    columns = columns_of(H100, **plain)
    for unit, flops in (("fp32", 256), ("tf32", 2048), ("bf16", 4096), ("fp16", 4096), ("fp8", 8192), ("int8", 8192)):
        assert number(columns, "sm_rates", unit) == flops * 1e9
    assert isinf(number(columns_of(H100, target="sm_999", **plain), "sm_rates", "fp16"))
    volta = columns_of(GPUS["v100-pcie-32gb"], **plain)
    assert number(volta, "sm_rates", "bf16") == 128e9  # in fp32
    assert number(volta, "sm_rates", "fp8") == 1024e9  # in fp16
    rdna = next(gpu for gpu in GPUS.values() if gpu.target == "gfx1100")
    assert number(columns_of(rdna, **plain), "sm_rates", "fp32") == 128e9  # one of the two instructions a clock that peaks count
    assert number(columns_of(rdna, **plain), "sustained_rates", "fp32") == rdna.peaks["fp32"] / 2
    assert number(columns_of(rdna, **plain), "sustained_rates", "fp16") == rdna.peaks["fp16"]


def test_rate_of_an_sm_relative_to_the_h100() -> None:
    assert number(columns_of(H100), "sm_rate_vs_reference", "fp16") == 1.0
    assert number(columns_of(GPUS["a100-sxm-80gb"]), "sm_rate_vs_reference", "fp16") == 0.5
    assert number(columns_of(GPUS["a100-sxm-80gb"]), "sm_rate_vs_reference", "fp32") == 0.5
    assert number(columns_of(GPUS["a100-sxm-80gb"]), "sm_rate_vs_reference", "int8") == 0.5
    assert number(columns_of(T4), "sm_rate_vs_reference", "fp16") == 0.25
    half = next(gpu for gpu in GPUS.values() if gpu.target == "sm_86" and "fp16_fp16acc" in gpu.peaks)
    assert number(columns_of(half), "sm_rate_vs_reference", "fp16") == 0.125  # sums in fp32 at half rate
    assert number(columns_of(half), "sm_rate_vs_reference", "fp16_fp16acc") == 0.25
    assert number(columns_of(H100, target="sm_999"), "sm_rate_vs_reference", "fp16") == 1.0


def test_matrix_units_and_winograd_by_gpu() -> None:
    def properties(gpu: str) -> tuple[float, ...]:
        return tuple(number(columns_of(GPUS[gpu]), name) for name in ("matrix_convolutions", "dot_product_share", "winograd"))

    assert properties("h100-sxm") == (1.0, 1.0, 1.0)
    assert properties("a100-sxm-80gb") == (1.0, 1.0, 1.0)
    assert properties("k80") == (0.0, 1.0, 1.0)
    assert properties("gtx-580-3gb")[2] == 0.0
    assert properties("mi300x") == (1.0, 1.0, 1.0)
    rdna = next(gpu.id for gpu in GPUS.values() if gpu.architecture == "RDNA3")
    assert properties(rdna) == (0.0, 0.5, 1.0)


def test_columns_in_chunks_and_fitted_values_by_architecture() -> None:
    whole = build_gpu_columns([H100, T4, GPUS["k80"]])
    parts = list(whole.parts(2))
    assert [part.ids for part in parts] == [("h100-sxm", "t4"), ("k80",)]
    assert only_number(parts[1].bandwidth) == GPUS["k80"].memory_bandwidth
    assert only_number(parts[1].peaks["fp32"]) == GPUS["k80"].peaks["fp32"]
    assert [len(part) for part in whole.parts(3)] == [3]
    p = {"a.Hopper": 2.0, "a.sm_90": 3.0, "a.Turing": 5.0}
    assert whole.fitted_value(p, "a", whole.tdp).ravel().tolist() == [3.0, 5.0, GPUS["k80"].tdp_watts]
    assert whole.architecture_factor(p, "a").ravel().tolist() == [6.0, 5.0, 1.0]
