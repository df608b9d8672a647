"""Names as people type them."""

from __future__ import annotations

import pytest

from whichgpu.base.errors import AmbiguousName, UnknownName, UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.names import nearest, split_count, words
from whichgpu.catalog.find import find_cpus, find_gpu, find_gpus, find_instances, find_provider, find_regions, join_names
from whichgpu.catalog.store import Catalog


@pytest.mark.parametrize(
    ("typed", "id"),
    [
        ("H100 SXM", "h100-sxm"),
        ("h100-sxm", "h100-sxm"),
        ("H100 SXM5", "h100-sxm"),
        ("8xA100-SXM-80GB", "a100-sxm-80gb"),
        ("A100-SXM-80GB:8", "a100-sxm-80gb"),
        ("nvidia a100 sxm4 80 gb", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm-16gb"),
        ("GeForce RTX 3090 Ti", "rtx-3090-ti"),
        ("3090ti", "rtx-3090-ti"),
        ("rtx4090", "rtx-4090"),
        ("titan x pascal", "titan-x-pascal"),
        ("GTX Titan X", "gtx-titan-x"),
        ("quadro rtx 6000", "quadro-rtx-6000"),
        ("RTX 6000 Ada", "rtx-6000-ada"),
        ("mi300x", "mi300x"),
        ("T4", "t4"),
        ("p3.2xlarge", "v100-sxm-16gb"),
        ("Tesla M4", "tesla-m4"),
        ("Apple M4", "apple-m4"),
    ],
)
def test_one_variant_by_many_spellings(catalog: Catalog, typed: str, id: str) -> None:
    assert find_gpu(catalog, typed).id == id


@pytest.mark.parametrize(
    ("typed", "ids"),
    [
        ("H100", {"h100-pcie", "h100-sxm", "h100-nvl"}),
        ("A100 80GB", {"a100-pcie-80gb", "a100-sxm-80gb"}),
        ("RTX 3080", {"rtx-3080-10gb", "rtx-3080-12gb"}),
        ("titan x", {"gtx-titan-x", "titan-x-pascal"}),
        ("V100 PCIe", {"v100-pcie-16gb", "v100-pcie-32gb"}),
    ],
)
def test_a_family_is_all_its_variants_and_no_other_product(catalog: Catalog, typed: str, ids: set[str]) -> None:
    matches = {gpu.id for gpu in find_gpus(catalog, typed)}
    assert ids <= matches
    assert {gpu.family for gpu in find_gpus(catalog, typed)} == {find_gpus(catalog, typed)[0].family}


def test_an_architecture_or_vendor_names_all_of_it(catalog: Catalog) -> None:
    assert {gpu.architecture for gpu in find_gpus(catalog, "hopper")} == {"Hopper"}
    assert {gpu.vendor for gpu in find_gpus(catalog, "AMD")} == {"amd"}


def test_ambiguity_is_answered_with_the_choices(catalog: Catalog) -> None:
    with pytest.raises(AmbiguousName) as caught:
        find_gpu(catalog, "H100")
    assert "H100 SXM" in caught.value.choices


@pytest.mark.parametrize("typed", ["H101 SXM", "gtx 99999", "", "   ", "💥", "a" * 10_000, "'; drop table"])
def test_an_unknown_name_is_never_guessed(catalog: Catalog, typed: str) -> None:
    with pytest.raises(UsageError):
        find_gpus(catalog, typed)


def test_a_near_miss_is_suggested(catalog: Catalog) -> None:
    with pytest.raises(UnknownName) as caught:
        find_gpus(catalog, "H100 SMX")
    assert "H100 SXM" in caught.value.choices


def test_words_without_quotes_join_to_the_longest_name(catalog: Catalog) -> None:
    names = {"titan x", "t4"}
    assert join_names(["titan", "x", "t4", "nope"], names.__contains__) == ("titan x", "t4", "nope")


def test_instances_by_name_by_beginning_and_by_provider(catalog: Catalog) -> None:
    p3 = {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "p3dn.24xlarge"}
    assert {row.instance for row in find_instances(catalog, "p3")} == p3
    assert [row.provider for row in find_instances(catalog, "aws/p3dn.24xlarge")] == ["aws"]
    assert find_instances(catalog, "NC6s_v3")[0].instance == "Standard_NC6s_v3"
    with pytest.raises(UnknownName) as caught:
        find_instances(catalog, "p3.3xlarge")
    assert "p3.2xlarge" in caught.value.choices


def test_processors_regions_and_providers(catalog: Catalog) -> None:
    assert {cpu.vendor for cpu in find_cpus(catalog, "epyc")} == {"amd"}
    assert [cpu.id for cpu in find_cpus(catalog, "Xeon E5-2686 v4")] == ["xeon-e5-2686-v4"]
    assert {region.country for region in find_regions(catalog, "Seoul")} == {"KR"}
    assert {region.region for region in find_regions(catalog, "us-east-1")} == {"us-east-1"}
    assert find_provider(catalog, "AWS") == "aws"
    for find, name in ((find_cpus, "itanium"), (find_regions, "atlantis"), (find_regions, "$(id)"), (find_provider, "acme")):
        with pytest.raises(UnknownName):
            find(catalog, name)


def test_counts_before_and_after() -> None:
    assert split_count("16 x K80") == (16, "K80")
    assert split_count("K80:16") == (16, "K80")
    assert split_count("x100") == (None, "x100")


def test_nearest_prefers_a_common_prefix() -> None:
    assert nearest("a100", ["A10", "A100 SXM 80GB", "H100"])[0] in ("A100 SXM 80GB", "A10")
    assert nearest("", ["A"]) == ()


def test_figure_is_within_its_range() -> None:
    assert Figure.exact(3.0, "s").relative_range == (1, 1)
    with pytest.raises(ValueError, match="range"):
        Figure(5, 6, 7, "s", "modelled")


def test_words_keep_the_marks_on_their_letters() -> None:
    """Without them Mỹ (America) would be an m, which Mäntsälä has too."""
    assert words("Mỹ") == ("mỹ",)
    assert words("Mäntsälä, Phần Lan") == ("mäntsälä", "phần", "lan")
    assert words("gb200_nvl2 (v1.5)") == ("gb200", "nvl2", "v1.5")
