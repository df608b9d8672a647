"""The OpenAPI document has an example of every reply and every kind of error."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator
from reference.error_table import text

from whichgpu.base.messages import english, language
from whichgpu.surface.web.rest.endpoints import ENDPOINTS, PREFIX, Endpoint
from whichgpu.surface.web.rest.error_catalogue import TABLE
from whichgpu.surface.web.rest.openapi import ERROR_STATUSES, document


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_the_example_of_a_reply_has_the_schema_of_its_endpoint(endpoint: Endpoint) -> None:
    """After a change of an answer's fields: `python -m reference.rest_examples` with `tools` on the path."""
    schema = document(english())
    reply = schema["paths"][f"{PREFIX}/{endpoint.path}"]["get"]["responses"]["200"]["content"]["application/json"]
    name = reply["examples"]["reply"]["$ref"].rpartition("/")[2]
    validator = Draft202012Validator({**reply["schema"], "components": schema["components"]})
    example = schema["components"]["examples"][name]["value"]
    assert example
    assert [problem.message[:200] for problem in validator.iter_errors(example)] == []


def test_the_catalogue_of_errors_has_every_kind_that_the_code_raises() -> None:
    assert TABLE.read_text(encoding="utf-8") == text(), "run tools/digests"


def test_errors_are_examples_of_their_status_in_the_readers_language() -> None:
    for code in ("en", "ko"):
        responses = document(language(code))["components"]["responses"]
        assert set(responses) == {str(status) for status in ERROR_STATUSES}
        content = responses["400"]["content"]["application/json"]["examples"]
        error = content["unknown-gpu"]["value"]["error"]
        assert error["message"] == language(code).text("error.unknown-gpu").replace("!r}", "}")
        assert "--" not in content["batch-mismatch"]["value"]["error"]["message"]
