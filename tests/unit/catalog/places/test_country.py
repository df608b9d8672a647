"""A country means all its regions by whatever name, a continent all its countries."""

from __future__ import annotations

from unicodedata import normalize

import pytest

from whichgpu.api.prices.offers import OffersQuery, list_offers
from whichgpu.base.errors import UnknownName
from whichgpu.base.messages import language
from whichgpu.catalog.find import find_regions
from whichgpu.catalog.places.country import countries, countries_named, is_group
from whichgpu.catalog.store import Catalog


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog()


@pytest.mark.parametrize(
    "names",
    [
        ("DE", "de", "Germany", "germany", "Deutschland"),
        ("GB", "UK", "United Kingdom", "Great Britain"),
        ("US", "USA", "United States", "U.S."),
        ("NL", "Netherlands", "Holland", "the Netherlands"),
        ("KR", "Korea", "South Korea"),
        ("FI", "Finland"),
    ],
)
def test_every_name_of_a_country_means_all_its_regions(catalog: Catalog, names: tuple[str, ...]) -> None:
    there = {(row.provider, row.region) for row in catalog.regions if row.country == names[0]}
    assert there
    for name in names:
        assert {(row.provider, row.region) for row in find_regions(catalog, name)} == there, name


def test_continents_and_unions_are_their_countries_not_letters(catalog: Catalog) -> None:
    europe = {row.country for row in find_regions(catalog, "Europe")}
    union = {row.country for row in find_regions(catalog, "EU")}
    assert {"DE", "GB", "NO", "CH"} <= europe
    assert "US" not in europe
    assert not {"GB", "NO", "CH"} & union
    assert {"DE"} <= union < europe
    assert {row.country for row in find_regions(catalog, "eu-west-2")} == {"GB"}  # a region's own name stays one


def test_every_country_of_the_regions_has_a_name(catalog: Catalog) -> None:
    assert {row.country for row in catalog.regions if row.country} <= {one.code for one in countries()}
    assert len(countries_named("EU")) == 27


def test_country_without_regions_is_not_matched_to_another_name(catalog: Catalog) -> None:
    with pytest.raises(UnknownName):
        find_regions(catalog, "Malta")


def test_offers_list_the_countries_of_a_union(catalog: Catalog) -> None:
    answer = list_offers(OffersQuery(gpu="A100", region="EU,Korea"), catalog=catalog)
    assert answer.countries == {"EU": countries_named("EU")}
    by_code = list_offers(OffersQuery(gpu="A100", region=(*countries_named("DE"), "KR")), catalog=catalog)
    by_name = list_offers(OffersQuery(gpu="A100", region="Germany, Korea"), catalog=catalog)
    assert by_code.matching == by_name.matching


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("KR", ("한국", "대한민국", "韩国", "韓國", "Hàn Quốc", "hàn quốc", "Han Quoc")),
        ("US", ("미국", "美国", "Mỹ", "Hoa Kỳ")),
        ("JP", ("일본", "日本", "Nhật Bản")),
        ("MY", ("MY", "my", "말레이시아", "马来西亚")),  # and not Mỹ without its mark
        ("DE", ("독일", "德国", "Đức")),
    ],
)
def test_countries_have_names_in_every_language_composed_or_not(code: str, names: tuple[str, ...]) -> None:
    for name in names:
        assert countries_named(name) == (code,), name
        assert countries_named(normalize("NFD", name)) == (code,), name


def test_every_country_is_called_something_else_in_every_other_script() -> None:
    for one in countries():
        for other in ("ko", "zh"):
            name = language(other).fact(one.name)
            assert name != one.name
            assert countries_named(name) == (one.code,)


def test_continents_are_groups_in_every_language() -> None:
    for name in ("유럽", "欧洲", "Châu Âu"):
        assert (countries_named(name), is_group(name)) == (countries_named("Europe"), True)
    assert not is_group("한국")
    assert countries_named("m") == ()


def test_cities_may_be_typed_letter_by_letter(catalog: Catalog) -> None:
    assert find_regions(catalog, normalize("NFD", "서울")) == find_regions(catalog, "Seoul")
