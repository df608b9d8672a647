"""`instances`, `cpus`, `regions` and `compare`: fields, filters, dates and what an instance's name says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.surface.cli import assert_refused, assert_refused_json, call, rows

INSTANCE_FIELDS = set(
    "provider instance gpu gpus vcpus cpu ram_bytes local_disk_bytes network_gbps interconnect topology "
    "first_seen last_seen sources".split()
)
GIB = 2**30


@pytest.fixture(scope="module")
def instances() -> list[dict[str, Any]]:
    return rows("instances")


def instance(name: str) -> dict[str, Any]:
    matches = rows("instances", name)
    assert len(matches) == 1
    return matches[0]


def names(*argv: str) -> set[str]:
    return {row["instance"] for row in rows("instances", *argv)}


def test_every_instance_has_the_contracts_fields(instances: list[dict[str, Any]]) -> None:
    assert len(instances) > 300
    assert {field for row in instances for field in INSTANCE_FIELDS if field not in row} == set()


def test_every_instance_names_a_known_gpu_and_a_source(instances: list[dict[str, Any]]) -> None:
    gpu_ids = {row["id"] for row in rows("gpus")}
    assert {row["gpu"] for row in instances} <= gpu_ids
    assert [row["instance"] for row in instances if not row["sources"]] == []


def test_instances_cover_the_providers_of_the_issue(instances: list[dict[str, Any]]) -> None:
    expected = "aws gcp azure oci lambda runpod vast coreweave nebius crusoe paperspace autodl colab nvidia".split()
    assert set(expected) - {row["provider"] for row in instances} == set()


def test_ram_and_disk_are_whole_bytes(instances: list[dict[str, Any]]) -> None:
    for row in instances:
        for field in ("ram_bytes", "local_disk_bytes"):
            assert row[field] is None or type(row[field]) is int, row["instance"]
        assert row["ram_bytes"] is None or row["ram_bytes"] >= GIB, row["instance"]


@pytest.mark.parametrize(
    ("name", "gpu", "gpus", "vcpus", "ram_gib", "network"),
    [
        ("p3dn.24xlarge", "v100-sxm-32gb", 8, 96, 768, 100),
        ("p4d.24xlarge", "a100-sxm-40gb", 8, 96, 1152, 400),
        ("p5.48xlarge", "h100-sxm", 8, 192, 2048, 3200),
        ("g4dn.xlarge", "t4", 1, 4, 16, 25),
        ("a2-highgpu-1g", "a100-sxm-40gb", 1, 12, 85, 24),
        ("Standard_ND96asr_v4", "a100-sxm-40gb", 8, 96, 900, None),
    ],
)
def test_published_facts_of_well_known_instances(
    name: str, gpu: str, gpus: int, vcpus: int, ram_gib: int, network: int | None
) -> None:
    row = instance(name)
    assert (row["gpu"], row["gpus"], row["vcpus"]) == (gpu, gpus, vcpus)
    assert row["ram_bytes"] == ram_gib * GIB
    assert network is None or row["network_gbps"] == network


def test_dgx_a100_640gb_can_be_bought_with_eight_gpus() -> None:
    row = instance("dgx-a100-640gb")
    assert (row["provider"], row["gpu"], row["gpus"]) == ("nvidia", "a100-sxm-80gb", 8)


def test_a_slice_of_a_gpu_counts_as_a_fraction(instances: list[dict[str, Any]]) -> None:
    fractions = [row["gpus"] for row in instances if 0 < row["gpus"] < 1]
    assert fractions


def test_whole_counts_are_written_without_a_decimal_point() -> None:
    reply = call("instances", "p3dn.24xlarge", "--csv")
    header, row = reply.csv()
    cells = dict(zip(header, row, strict=True))
    assert (cells["gpus"], cells["vcpus"]) == ("8", "96")


def test_instance_name_is_parsed_and_each_part_explained() -> None:
    parts = call("instances", "p3dn.24xlarge", "--json").json()["name_parts"]
    assert [part["part"] for part in parts] == ["p", "3", "d", "n", "24xlarge"]
    explained = {part["part"]: part["meaning"] for part in parts}
    assert "NVMe" in explained["d"]
    assert "network" in explained["n"]
    assert "96" in explained["24xlarge"]
    assert [part for part, meaning in explained.items() if not meaning] == []


def test_the_parts_of_the_name_also_show_in_a_pipe() -> None:
    text = call("instances", "p3dn.24xlarge").out
    assert "NVMe" in text
    assert "network" in text


def test_instances_of_one_provider_gpu_and_count() -> None:
    matches = rows("instances", "--provider", "gcp", "--gpu", "A100", "--gpus", "1..4")
    assert matches
    assert {row["provider"] for row in matches} == {"gcp"}
    assert {row["gpu"] for row in matches} == {"a100-sxm-40gb", "a100-sxm-80gb"}
    assert all(1 <= row["gpus"] <= 4 for row in matches)
    assert {row["gpus"] for row in rows("instances", "--gpus", "8")} == {8}


def test_min_memory_of_an_instance_is_over_all_its_gpus() -> None:
    matches = names("--min-memory", "320GiB", "--provider", "aws")
    assert "p4d.24xlarge" in matches  # 8 x 40 GiB
    assert "p3dn.24xlarge" not in matches  # 8 x 32 GiB


def test_min_ram_filters() -> None:
    assert min(row["ram_bytes"] for row in rows("instances", "--min-ram", "1000GiB")) >= 1000 * GIB


def test_name_prefix_selects_all_names_that_start_with_it() -> None:
    assert names("p3") >= {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "p3dn.24xlarge"}


def test_a_span_that_runs_backwards_is_bad_input() -> None:
    assert_refused(call("instances", "--gpus", "4..1"), 2)


@pytest.mark.parametrize("span", ["x", "-1", "1..", "..", "1..x", ""])
def test_a_count_that_is_none_is_bad_input(span: str) -> None:
    assert call("instances", f"--gpus={span}").code == 2


def test_instances_as_of_are_those_listed_on_that_day() -> None:
    matches = rows("instances", "--provider", "aws", "--as-of", "2021-05-16")
    assert all(row["first_seen"] is None or row["first_seen"] <= "2021-05-16" for row in matches)
    assert all(row["last_seen"] is None or row["last_seen"] >= "2021-05-16" for row in matches)
    listed = {row["instance"] for row in matches}
    assert {"p3.2xlarge", "p4d.24xlarge"} <= listed
    assert {"p5.48xlarge", "cg1.4xlarge"} & listed == set()


def test_instances_sort_ascending_and_descending() -> None:
    up = [
        row["ram_bytes"] for row in rows("instances", "--provider", "aws", "--sort", "ram_bytes") if row["ram_bytes"] is not None
    ]
    down = [
        row["ram_bytes"] for row in rows("instances", "--provider", "aws", "--sort", "-ram_bytes") if row["ram_bytes"] is not None
    ]
    assert up == sorted(up)
    assert down == sorted(down, reverse=True)
    assert len(set(up)) > 5


def test_a_misspelt_instance_suggests_the_right_one() -> None:
    assert_refused(call("instances", "p3dn.24xlrge"), 2)
    assert "p3dn.24xlarge" in assert_refused_json(call("instances", "p3dn.24xlrge", "--json"), 2)["choices"]


# Host processors


def test_cpus_are_listed_with_cores_threads_and_clocks() -> None:
    matches = rows("cpus")
    assert len(matches) >= 50
    for field in "id name vendor cores threads memory_channels pcie_lanes ecc sources".split():
        assert all(field in row for row in matches), field
    assert all(row["sources"] for row in matches)


def test_every_cpu_of_an_instance_is_in_the_list_of_cpus(instances: list[dict[str, Any]]) -> None:
    cpu_ids = {row["id"] for row in rows("cpus")}
    used = {cpu for row in instances for cpu in (row["cpu"] or [])}
    assert used
    assert used <= cpu_ids


def test_a_cpu_is_found_by_name_and_a_wrong_one_suggests() -> None:
    assert [row["id"] for row in rows("cpus", "xeon-e5-2686-v4")] == ["xeon-e5-2686-v4"]
    choices = assert_refused_json(call("cpus", "xeon-e5-2686-v5", "--json"), 2)["choices"]
    assert [row["id"] for row in rows("cpus", choices[0])] == ["xeon-e5-2686-v4"]


def test_cpus_sort_by_cores() -> None:
    cores = [row["cores"] for row in rows("cpus", "--sort", "-cores") if row["cores"] is not None]
    assert cores == sorted(cores, reverse=True)


# Places


def test_regions_have_place_and_coordinates_on_earth() -> None:
    matches = rows("regions")
    assert len(matches) > 100
    for row in matches:
        assert {"provider", "region", "city", "country", "latitude", "longitude", "sources"} <= set(row)
        assert row["country"] is None or re.fullmatch(r"[A-Z]{2}", row["country"]), row["region"]
        assert row["latitude"] is None or -90 <= row["latitude"] <= 90
        assert row["longitude"] is None or -180 <= row["longitude"] <= 180


def test_a_city_brings_the_regions_there_of_all_providers() -> None:
    matches = {(row["provider"], row["region"]) for row in rows("regions", "Seoul")}
    assert {("aws", "ap-northeast-2"), ("gcp", "asia-northeast3"), ("azure", "koreacentral")} <= matches
    assert rows("regions", "seoul") == rows("regions", "Seoul")


def test_region_has_the_coordinates_of_its_city() -> None:
    row = next(row for row in rows("regions", "ap-northeast-2") if row["region"] == "ap-northeast-2")
    assert (row["city"], row["country"]) == ("Seoul", "KR")
    assert (row["latitude"], row["longitude"]) == (pytest.approx(37.57, abs=0.3), pytest.approx(126.98, abs=0.3))


def test_regions_of_one_provider() -> None:
    assert {row["provider"] for row in rows("regions", "--provider", "aws")} == {"aws"}


def test_regions_as_of_are_those_open_on_that_day() -> None:
    matches = rows("regions", "--provider", "aws", "--as-of", "2007-06-01")
    assert "us-east-1" in {row["region"] for row in matches}  # opened 2006
    assert [row["region"] for row in matches if row["opened"] is not None and row["opened"] > "2007-06-01"] == []


def test_a_misspelt_city_suggests_the_right_one() -> None:
    assert "Seoul" in assert_refused_json(call("regions", "Seul", "--json"), 2)["choices"]


# Side by side


def test_compare_puts_each_gpu_in_its_own_column() -> None:
    header, *facts = call("compare", "H100-SXM", "T4").tsv()
    assert header[1:] == ["H100 SXM", "T4"]
    assert all(len(fact) == 3 for fact in facts)
    assert any(fact[1].startswith("3,350 ") or fact[1].startswith("3350 ") for fact in facts)


def test_compare_lists_all_variants_of_a_family_in_the_order_requested() -> None:
    header = call("compare", "T4", "H100").tsv()[0]
    assert header[1] == "T4"
    assert set(header[2:]) == {"H100 PCIe", "H100 SXM", "H100 NVL"}


def test_compare_accepts_instances_and_gpus_together() -> None:
    document = call("compare", "p4d.24xlarge", "T4", "--json").json()
    text = str(document)
    assert "a100-sxm-40gb" in text
    assert "p4d.24xlarge" in text
    assert "'t4'" in text


def test_compare_json_has_the_same_field_names_as_gpus() -> None:
    compared = call("compare", "T4", "H100 SXM", "--json").json()["compared"]
    assert [entry["gpu"] for entry in compared] == [rows("gpus", "T4")[0], rows("gpus", "H100 SXM")[0]]


def test_compare_csv_is_in_base_units() -> None:
    table = call("compare", "T4", "H100 SXM", "--csv").csv()
    facts = {row[0]: row[1:] for row in table}
    assert facts["memory_bandwidth"] == ["320000000000", "3350000000000"]
    assert all(len(row) == len(table[0]) for row in table)


def test_compare_refuses_an_unknown_name_and_no_name_at_all() -> None:
    assert_refused(call("compare", "T4", "nosuchgpu"), 2)
    assert_refused(call("compare"), 2)
