"""An earlier plan's rented GPUs become the current fleet of a new plan; other files are refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whichgpu.api.context import Context
from whichgpu.api.plan.plan_verb import question_of
from whichgpu.api.plan.previous import previous_fleet
from whichgpu.base.errors import UsageError

BILL = [
    {"provider": "aws", "gpu": "l40s", "machines": 2, "gpus_per_machine": 4},
    {"provider": "runpod", "gpu": "l40s", "machines": 1, "gpus_per_machine": 1},
    {"provider": "owned", "gpu": "a100-sxm-80gb", "machines": 4, "gpus_per_machine": 1},
]


def written(folder: Path, document: Any) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_rented_gpus_of_an_earlier_plan_are_the_current_fleet(tmp_path: Path) -> None:
    path = written(tmp_path, {"bill": BILL})
    assert previous_fleet(path) == "9xl40s"
    question = question_of({"what": ("llama-3.1-8b",), "previous": str(path)}, Context())
    assert question.current == "9xl40s"
    stated = question_of({"what": ("llama-3.1-8b",), "previous": str(path), "current": "2xL4"}, Context())
    assert stated.current == "2xL4"


@pytest.mark.parametrize("document", [[], {}, {"bill": 3}, {"bill": [{"gpu": "l4"}]}, {"bill": BILL[2:]}, {"bill": [None]}])
def test_other_documents_are_refused(document: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        previous_fleet(written(tmp_path, document))
    assert refused.value.kind == "bad-previous"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        previous_fleet(tmp_path / "none.json")
