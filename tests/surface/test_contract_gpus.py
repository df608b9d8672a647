"""`gpus`: the contract's fields with their types and units, datasheet figures, names, filters, order and dates."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.surface.cli import assert_refused, call, rows

FIELDS = (
    "id name aliases vendor architecture form_factor memory_bytes memory_label memory_type memory_bandwidth peaks link pcie "
    "l2_bytes sms boost_clock_hz tdp_watts compute_capability launch_date launch_price supports software quirks dies "
    "sources checked"
).split()
DTYPES = set(
    "fp64 fp64_tensor fp32 tf32 fp16 bf16 fp16_plain bf16_plain fp16_fp16acc fp8 fp6 fp4 int8 int4".split()
)  # the contract's own list
DATE = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?")
TERA, GIGA, GIB = 10**12, 10**9, 2**30


@pytest.fixture(scope="module")
def gpus() -> list[dict[str, Any]]:
    return rows("gpus")


def one(name: str) -> dict[str, Any]:
    matches = rows("gpus", name)
    assert len(matches) == 1
    return matches[0]


def ids(*argv: str) -> list[str]:
    return [row["id"] for row in rows("gpus", *argv)]


def test_every_row_has_every_field_of_the_contract(gpus: list[dict[str, Any]]) -> None:
    assert len(gpus) >= 180
    assert {field for row in gpus for field in FIELDS if field not in row} == set()


def test_ids_are_unique_lower_case_slugs(gpus: list[dict[str, Any]]) -> None:
    identifiers = [row["id"] for row in gpus]
    assert len(set(identifiers)) == len(identifiers)
    assert [name for name in identifiers if not re.fullmatch(r"[a-z0-9]+([-.][a-z0-9]+)*", name)] == []


@pytest.mark.parametrize("field", ["memory_bytes", "l2_bytes", "sms", "boost_clock_hz", "dies"])
def test_counts_and_bytes_are_whole_numbers_in_json(gpus: list[dict[str, Any]], field: str) -> None:
    wrong = [(row["id"], row[field]) for row in gpus if row[field] is not None and type(row[field]) is not int]
    assert wrong == []


def test_memory_is_bytes_and_never_above_the_marketed_size(gpus: list[dict[str, Any]]) -> None:
    for row in gpus:
        label = re.fullmatch(r"([\d.]+) GB", row["memory_label"])
        assert label, row["id"]
        marketed = float(label[1]) * GIB
        assert 0.85 * marketed <= row["memory_bytes"] <= 1.001 * marketed, row["id"]


def test_memory_bandwidth_is_in_bytes_per_second(gpus: list[dict[str, Any]]) -> None:
    """Between 40 GB/s and 30 TB/s, except one module: Jetson Orin Nano 4GB, 64 bits of LPDDR5 at 34 GB/s as NVIDIA states."""
    outside = {row["id"]: row["memory_bandwidth"] for row in gpus if not 40 * GIGA <= row["memory_bandwidth"] <= 30 * TERA}
    assert outside == {"jetson-orin-nano-4gb": 34.1 * GIGA}


def test_peaks_are_flops_of_known_dtypes_and_absent_if_unsupported(gpus: list[dict[str, Any]]) -> None:
    for row in gpus:
        assert set(row["peaks"]) <= DTYPES, row["id"]
        for dtype, peak in row["peaks"].items():
            assert isinstance(peak, int | float), (row["id"], dtype)
            assert 10 * GIGA <= peak <= 30_000 * TERA, (row["id"], dtype)


def test_links_have_kind_generation_and_bandwidth_in_bytes(gpus: list[dict[str, Any]]) -> None:
    links = [row["link"] for row in gpus if row["link"] is not None]
    assert len(links) > 20
    for link in links:
        assert {"kind", "generation", "bandwidth"} <= set(link)
        assert isinstance(link["kind"], str)
        assert link["bandwidth"] is None or link["bandwidth"] > GIGA


def test_lists_are_lists_of_words_and_every_row_has_a_source(gpus: list[dict[str, Any]]) -> None:
    for row in gpus:
        for field in ("aliases", "supports", "quirks", "sources"):
            assert isinstance(row[field], list), (row["id"], field)
            assert all(isinstance(word, str) and word for word in row[field]), (row["id"], field)
        assert row["sources"], row["id"]


def test_every_source_of_a_row_is_explained_in_the_same_document() -> None:
    document = call("gpus", "A100", "MI300X", "--json").json()
    cited = {source for row in document["gpus"] for source in row["sources"]}
    sources = {source["id"]: source for source in document["sources"]}
    assert cited <= set(sources)
    assert all(sources[source]["title"] and sources[source]["url"] for source in cited)


def test_dates_are_days_months_or_years_and_checked_is_a_day(gpus: list[dict[str, Any]]) -> None:
    for row in gpus:
        assert DATE.fullmatch(row["launch_date"]), row["id"]
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", row["checked"]), row["id"]


def test_launch_prices_are_money_with_the_amount_as_a_string(gpus: list[dict[str, Any]]) -> None:
    prices = [row["launch_price"] for row in gpus if row["launch_price"] is not None]
    assert len(prices) > 20
    for price in prices:
        assert set(price) == {"amount", "currency"}
        assert re.fullmatch(r"\d+(\.\d+)?", price["amount"])
        assert re.fullmatch(r"[A-Z]{3}", price["currency"])


def test_known_launch_prices() -> None:
    assert one("RTX 4090")["launch_price"] == {"amount": "1599", "currency": "USD"}
    assert one("RTX 3090")["launch_price"] == {"amount": "1499", "currency": "USD"}


@pytest.mark.parametrize(
    ("name", "memory_gib", "bandwidth", "peaks"),
    [
        (
            "A100 SXM 80GB",
            80,
            2.039,
            {"fp64": 9.7, "fp64_tensor": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624},
        ),
        ("A100 SXM 40GB", 40, 1.555, {"fp64": 9.7, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int4": 1248}),
        (
            "H100 SXM",
            80,
            3.35,
            {"fp64": 34, "fp64_tensor": 67, "fp32": 67, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8": 1979, "int8": 1979},
        ),
        ("V100 SXM 16GB", 16, 0.9, {"fp64": 7.8, "fp32": 15.7, "fp16": 125}),
        ("T4", 16, 0.32, {"fp32": 8.1, "fp16": 65, "int8": 130, "int4": 260}),
        ("RTX 4090", 24, 1.008, {"fp32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp16_fp16acc": 330.3, "int8": 660.6}),
        (
            "MI300X",
            192,
            5.3,
            {"fp64": 81.7, "fp64_tensor": 163.4, "fp32": 163.4, "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9},
        ),
    ],
)
def test_datasheet_figures_are_dense_and_in_base_units(
    name: str, memory_gib: int, bandwidth: float, peaks: dict[str, float]
) -> None:
    row = one(name)
    assert 0.9 * memory_gib * GIB <= row["memory_bytes"] <= memory_gib * GIB
    assert row["memory_bandwidth"] == pytest.approx(bandwidth * TERA, rel=0.01)
    for dtype, tera in peaks.items():
        assert row["peaks"][dtype] == pytest.approx(tera * TERA, rel=0.02), dtype


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("V100 SXM 16GB", {"bf16", "tf32", "fp8"}),
        ("T4", {"bf16", "tf32", "fp8"}),
        ("A100 SXM 80GB", {"fp8", "fp4"}),
        ("H100 SXM", {"fp4"}),
    ],
)
def test_a_dtype_the_chip_lacks_is_absent_from_peaks(name: str, absent: set[str]) -> None:
    assert absent & set(one(name)["peaks"]) == set()


@pytest.mark.parametrize(
    ("name", "watts", "capability", "link"),
    [
        ("H100 SXM", 700, "9.0", 900 * GIGA),
        ("A100 SXM 80GB", 400, "8.0", 600 * GIGA),
        ("V100 SXM 16GB", 300, "7.0", 300 * GIGA),
        ("T4", 70, "7.5", None),
        ("RTX 4090", 450, "8.9", None),
    ],
)
def test_power_compute_capability_and_link_of_well_known_cards(name: str, watts: int, capability: str, link: int | None) -> None:
    row = one(name)
    assert row["tdp_watts"] == watts
    assert row["compute_capability"] == capability
    assert (row["link"] or {"bandwidth": None})["bandwidth"] == link


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [
        ("H100 SXM", {"bf16", "fp8", "int8", "tensor-cores", "nvlink", "fp64", "flash-attention"}, {"fp4"}),
        ("A100 SXM 80GB", {"bf16", "int8", "tensor-cores", "nvlink", "fp64", "flash-attention"}, {"fp8"}),
        ("V100 SXM 16GB", {"fp16", "tensor-cores", "nvlink", "fp64"}, {"bf16", "fp8"}),
        ("T4", {"fp16", "int8", "tensor-cores"}, {"bf16", "fp8", "nvlink", "fp64"}),
        ("RTX 4090", {"bf16", "fp8", "tensor-cores", "flash-attention"}, {"nvlink", "fp64"}),
        ("GTX 1080 Ti", set(), {"bf16", "tensor-cores", "nvlink", "flash-attention", "fp64"}),
        ("MI300X", {"bf16", "fp8", "fp64"}, {"nvlink"}),
    ],
)
def test_supports_lists_features_of_the_chip(name: str, has: set[str], lacks: set[str]) -> None:
    supports = set(one(name)["supports"])
    assert has - supports == set()
    assert lacks & supports == set()


def test_software_names_the_last_release_that_runs_on_an_old_card() -> None:
    software = one("K80")["software"]
    assert software is not None
    assert any("pytorch" in key and value for key, value in software.items())


def test_quirk_of_the_gtx_970_is_described() -> None:
    assert any("3.5" in quirk for quirk in one("GTX 970")["quirks"])


# Names


@pytest.mark.parametrize(
    ("spelling", "identity"),
    [
        ("H100 SXM", "h100-sxm"),
        ("h100-sxm", "h100-sxm"),
        ("H100_SXM", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("8xA100-SXM-80GB", "a100-sxm-80gb"),
        ("A100-SXM-80GB:8", "a100-sxm-80gb"),
        ("a100 sxm 80gb", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("p5.48xlarge", "h100-sxm"),
        ("p3dn.24xlarge", "v100-sxm-32gb"),
        ("RTX4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("Tesla T4", "t4"),
    ],
)
def test_every_spelling_of_the_contract_finds_its_gpu(spelling: str, identity: str) -> None:
    assert ids(spelling) == [identity]


def test_family_name_selects_exactly_its_variants() -> None:
    assert set(ids("A100")) == {"a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb"}
    assert set(ids("h100")) == {"h100-pcie", "h100-sxm", "h100-nvl"}


def test_several_names_give_each_gpu_once() -> None:
    matches = ids("T4", "H100 SXM", "t4")
    assert sorted(matches) == ["h100-sxm", "t4"]


def test_one_wrong_name_among_good_ones_is_refused() -> None:
    assert_refused(call("gpus", "T4", "zzz-no-such"), 2)


@pytest.mark.parametrize("name", ["0xT4", "T4:0", "T4:-1", "-2xT4"])
def test_a_count_below_one_is_bad_input(name: str) -> None:
    assert call("gpus", "--", name).code == 2


# Filters


def test_vendor_and_architecture_filter_in_any_case() -> None:
    assert {row["vendor"] for row in rows("gpus", "--vendor", "AMD")} == {"amd"}
    assert {row["architecture"] for row in rows("gpus", "--arch", "hopper")} == {"Hopper"}
    assert set(ids("--arch", "CDNA3")) >= {"mi300x", "mi325x"}


def test_min_memory_compares_the_marketed_size_80gb_finds_80gb_gpus() -> None:
    matches = set(ids("--min-memory", "80GB"))
    assert {"h100-sxm", "a100-sxm-80gb", "mi300x"} <= matches
    assert {"a100-sxm-40gb", "rtx-4090", "t4"} & matches == set()
    assert {"h100-sxm", "a100-sxm-80gb"} <= set(ids("--min-memory", "80GiB"))


def test_min_bandwidth_keeps_only_faster_memory() -> None:
    matches = rows("gpus", "--min-bandwidth", "2TB/s")
    assert min(row["memory_bandwidth"] for row in matches) >= 2 * TERA
    assert {"h100-sxm", "a100-sxm-80gb"} <= {row["id"] for row in matches}
    assert ids("--min-bandwidth", "2000GB/s") == [row["id"] for row in matches]


@pytest.mark.parametrize("features", ["bf16", "fp8", "int8", "tensor-cores", "nvlink", "fp64", "flash-attention"])
def test_supports_filters_by_each_feature_the_contract_names(features: str) -> None:
    matches = rows("gpus", "--supports", features)
    assert matches
    assert all(features in row["supports"] for row in matches)
    assert "h100-sxm" in {row["id"] for row in matches}
    assert len(matches) < len(rows("gpus"))


def test_supports_takes_several_features_and_all_must_hold() -> None:
    matches = set(ids("--supports", "bf16,nvlink"))
    assert matches == set(ids("--supports", "bf16")) & set(ids("--supports", "nvlink"))
    assert "a100-sxm-80gb" in matches
    assert "rtx-4090" not in matches


def test_compute_capability_exact_and_open_ended() -> None:
    exact = rows("gpus", "--compute-capability", "8.0")
    assert {row["compute_capability"] for row in exact} == {"8.0"}
    newer = rows("gpus", "--compute-capability", "8.0+")
    assert min(tuple(map(int, row["compute_capability"].split("."))) for row in newer) == (8, 0)
    assert {"a100-sxm-80gb", "h100-sxm", "b200", "rtx-5090"} <= {row["id"] for row in newer}  # 10.0 and 12.0 are newer than 8.0


def test_form_factor_filters() -> None:
    assert {row["form_factor"] for row in rows("gpus", "--form-factor", "sxm")} == {"sxm"}
    assert ids("H100", "--form-factor", "pcie")[0] == "h100-pcie"


def test_filters_narrow_a_family() -> None:
    assert set(ids("A100", "--min-memory", "80GB")) == {"a100-pcie-80gb", "a100-sxm-80gb"}


# Order


@pytest.mark.parametrize("field", ["memory_bytes", "memory_bandwidth", "tdp_watts", "launch_date", "id"])
def test_sort_ascending_and_descending_with_unknowns_last(field: str) -> None:
    up = [row[field] for row in rows("gpus", "--sort", field)]
    down = [row[field] for row in rows("gpus", "--sort", f"-{field}")]
    present = [value for value in up if value is not None]
    assert present == sorted(present)
    assert len(set(present)) > 10
    assert down[: len(present)] == sorted(present, reverse=True)
    assert all(value is None for value in up[len(present) :] + down[len(present) :])


def test_sort_takes_a_peak() -> None:
    peaks = [row["peaks"]["bf16"] for row in rows("gpus", "--sort", "-bf16") if "bf16" in row["peaks"]]
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) > 10


# Dates


def test_as_of_leaves_out_gpus_launched_later() -> None:
    matches = rows("gpus", "--as-of", "2020-06-01")
    assert all(row["launch_date"] <= "2020-06-01" for row in matches)
    names = {row["id"] for row in matches}
    assert {"v100-sxm-16gb", "a100-sxm-40gb"} <= names
    assert {"h100-sxm", "a100-sxm-80gb"} & names == set()


def test_as_of_includes_the_launch_day_and_takes_months_and_years() -> None:
    assert "a100-sxm-40gb" in ids("--as-of", "2020-05-14")
    assert "a100-sxm-40gb" not in ids("--as-of", "2020-05-13")
    assert "a100-sxm-40gb" in ids("--as-of", "2020-05")
    assert "a100-sxm-40gb" in ids("--as-of", "2020")
    assert "h100-sxm" not in ids("--as-of", "2020")


def test_as_of_before_the_launch_has_no_answer() -> None:
    assert_refused(call("gpus", "H100", "--as-of", "2021-01-01"), 1)


def test_catalog_as_known_uses_only_rows_recorded_by_then() -> None:
    assert_refused(call("gpus", "T4", "--catalog-as-known", "2020-01-01"), 1)
    assert all(row["recorded"] <= "2026-11-15" for row in rows("gpus", "--catalog-as-known", "2026-11-15"))
