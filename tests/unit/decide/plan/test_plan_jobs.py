"""A plan may have jobs and no served models."""

from __future__ import annotations

from datetime import date

from whichgpu.api.plan.plan import plan
from whichgpu.api.plan.plan_file import from_document


def test_a_plan_of_jobs_alone_has_a_timeline_without_requests() -> None:
    job = {"name": "tune", "task": "finetune", "model": "llama-3.1-8b", "tokens": "10M", "deadline": "24h"}
    question = from_document({"provider": "aws", "term": "on-demand", "curve": False, "job": [job]})
    answer = plan(question, date(2026, 10, 1), own_measurements=False)
    assert [row.name for row in answer.jobs] == ["tune"]
    assert {point.rate for point in answer.timeline} == {0.0}
