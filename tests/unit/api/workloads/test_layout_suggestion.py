"""Training estimates on several GPUs suggest a faster layout in one line, unless the user gave one."""

from __future__ import annotations

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import estimate_workload
from whichgpu.api.workloads.layout_suggestion import MIN_GAIN, with_suggestion
from whichgpu.catalog.store import Catalog
from whichgpu.workload.spelling import from_object

TRAINING = {"task": "train", "model": "llama-3.1-8b", "gpu": "H200 SXM", "gpus": 8}


def suggestions(catalog: Catalog, **fields: object) -> list[str]:
    lookups, parsed = lookup_cache(catalog, own=False), from_object({**TRAINING, **fields})
    answer = with_suggestion(estimate_workload(parsed, lookups), parsed, lookups)
    lines = [one for one in answer.warnings if one.id.startswith("note.better-layout")]
    assert all(float(str(one.values["gain"])) >= MIN_GAIN for one in lines)
    return [one.id for one in lines]


def test_a_faster_layout_and_micro_batch_are_suggested(catalog: Catalog) -> None:
    assert suggestions(catalog) == ["note.better-layout"]


def test_nothing_is_suggested_for_a_layout_of_the_user_or_one_gpu(catalog: Catalog) -> None:
    assert suggestions(catalog, parallel={"dp": 8, "zero": 3}) == []
    assert suggestions(catalog, gpus=1, gpu="B200") == []
