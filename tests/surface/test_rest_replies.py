"""Replies are what the OpenAPI document says they are."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from whichgpu.base.messages import english
from whichgpu.surface.web.rest.endpoints import ENDPOINTS, PREFIX, Endpoint
from whichgpu.surface.web.rest.openapi import document
from whichgpu.surface.web.worker_answers import ANSWERS


@cache
def described() -> dict[str, Any]:
    return document(english())


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_the_reply_to_an_example_has_the_schema_of_its_endpoint(endpoint: Endpoint) -> None:
    reply = ANSWERS["rest"]({"endpoint": endpoint.path, "body": json.dumps(endpoint.example).encode()}, english(), None)
    schema = described()["paths"][f"{PREFIX}/{endpoint.path}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema != {"$ref": "#/components/schemas/Answer"}
    validator = Draft202012Validator({**schema, "components": described()["components"]})
    assert [problem.message[:200] for problem in validator.iter_errors(json.loads(reply.body))] == []


def test_a_field_of_another_type_is_noticed() -> None:
    """The schemas say something: a wrong reply does not pass."""
    schema = described()["components"]["schemas"]["Gpu"]
    validator = Draft202012Validator({**schema, "components": described()["components"]})
    assert list(validator.iter_errors({"id": 5, "memory_bytes": "80 GB"}))
