"""A comparison of GPUs none of which holds a model as it is published."""

from __future__ import annotations

from typing import Any

from whichgpu.api.context import Context
from whichgpu.api.workloads.compare import compare
from whichgpu.catalog.store import Catalog


def test_a_narrower_precision_is_taken_unless_one_is_stated(catalog: Catalog) -> None:
    request: Any = {"names": ["A100 SXM 80GB", "H100 SXM"], "task": "serve", "model": "llama-3.1-70b"}
    answer = compare(request, Context(catalog))
    assert answer.narrowed_from == "bf16"
    assert {one.estimate.request["precision"] for one in answer.speed or () if one.estimate} == {"fp8"}
    stated = compare(request | {"precision": "bf16"}, Context(catalog))
    assert stated.narrowed_from is None
    assert not any(one.is_held for one in stated.speed or ())
