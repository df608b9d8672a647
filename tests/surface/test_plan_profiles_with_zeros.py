"""Profile files with zeros are planned without a Python warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plan_cases import TWO_TYPES
from tests.surface.cli import call


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    "changes",
    [
        {"mix": [[0.2, 0.0], [0.5, 0.3]], "gpus": {"a": {"price": 1.0, "requests_per_second": [[2, 0], [5, 2]]}}},
        {
            "gpus": {
                "free": {"price": 0, "requests_per_second": [[2, 0], [5, 2]]},
                "dear": {"price": 2, "requests_per_second": [[2, 1], [5, 2]]},
            }
        },
    ],
)
def test_zero_weight_buckets_and_free_gpus_give_no_numpy_warnings(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "profiles.json"
    path.write_text(json.dumps(TWO_TYPES | changes))
    answer = call("plan", "--profiles", str(path), "--json")
    assert answer.code == 0, answer.out
    assert sum(group["rate"] for group in answer.json()["groups"]) == pytest.approx(30.0)
