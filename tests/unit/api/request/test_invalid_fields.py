"""All invalid fields of a request are reported at once, each with its own message."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from whichgpu.api.context import Context
from whichgpu.api.request.field import fields_of
from whichgpu.api.request.invalid_fields import field_errors, with_all_fields
from whichgpu.api.request.load import EstimateRequest
from whichgpu.api.request.offers import OffersRequest
from whichgpu.api.request.recommend import RecommendRequest
from whichgpu.base.errors import InvalidFields, UsageError
from whichgpu.base.messages import english, msg
from whichgpu.surface.documents import error_body

VALID = {
    "task": "train", "model": "resnet50", "gpu": "A100,T4", "gpus": "1..4", "budget": "5usd/h", "deadline": "24h", "term": "spot",
    "provider": "aws", "region": "Seoul", "near": "Seoul", "needs": "bf16", "min_memory": "24GB", "owned": "8xT4", "batch": "64",
}  # fmt: skip
INVALID = {
    "task": "trn", "model": "resnet5000", "gpu": "H101", "gpus": "some", "budget": "much", "deadline": "soon", "term": "ever",
    "provider": "nobody", "region": "Atlantis", "near": "Atlantis", "needs": "wings", "min_memory": "big", "owned": "8xH101",
    "batch": "-5",
}  # fmt: skip


def test_valid_fields_have_no_errors() -> None:
    assert field_errors(fields_of(RecommendRequest), VALID, Context()) == {}


@pytest.mark.parametrize("name", INVALID)
def test_each_field_is_checked(name: str) -> None:
    assert list(field_errors(fields_of(RecommendRequest), VALID | {name: INVALID[name]}, Context())) == [name]


def test_all_errors_are_in_one_and_in_json() -> None:
    first = UsageError("bad-field", msg("error.bad-field", name="batch", value="-5"))
    error = with_all_fields(first, RecommendRequest, INVALID, Context())
    assert isinstance(error, InvalidFields)
    assert list(error.fields) == list(INVALID)
    body: dict[str, Any] = error_body(pickle.loads(pickle.dumps(error)), english())
    assert list(body["fields"]) == list(INVALID)
    assert body["fields"]["gpu"]["choices"][0] == "H100"
    assert all(one["message"] in body["message"] for one in body["fields"].values())


def test_a_single_error_is_not_changed() -> None:
    first = UsageError("bad-field", msg("error.bad-field", name="batch", value="-5"))
    assert with_all_fields(first, RecommendRequest, VALID | {"batch": "-5"}, Context()) is first


def test_a_family_is_a_filter_of_offers_but_no_single_gpu() -> None:
    assert field_errors(fields_of(OffersRequest), {"gpu": "A100"}, Context()) == {}
    assert field_errors(fields_of(EstimateRequest), {"gpu": "A100"}, Context()).keys() == {"gpu"}
