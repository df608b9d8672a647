"""Models named by a size or a family: the newest member, unless members differ in size."""

from __future__ import annotations

import pytest

from whichgpu.base.errors import UnknownName
from whichgpu.catalog.store import Catalog
from whichgpu.workload.models import built_in_member, family_member, find_model


@pytest.mark.parametrize(
    ("typed", "model"),
    [("70b", "llama-3.3-70b"), ("llama 70b", "llama-3.3-70b"), ("Gemma 27B", "gemma-3-27b"), ("405b", "llama-3.1-405b")],
)
def test_newest_member_is_meant(typed: str, model: str) -> None:
    assert find_model(typed, Catalog()).name == model
    assert built_in_member(typed, Catalog()) == model


def test_family_of_several_sizes_is_an_error_with_choices() -> None:
    assert family_member("llama", Catalog()) is None
    with pytest.raises(UnknownName) as caught:
        find_model("llama", Catalog())
    assert any(choice.startswith("llama-") for choice in caught.value.choices)


def test_own_name_of_a_model_is_no_family() -> None:
    assert built_in_member("llama-3.1-70b", Catalog()) is None
    assert find_model("stable diffusion", Catalog()).name == "stable-diffusion-xl"
