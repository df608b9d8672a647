"""A plan may have jobs and no served models."""

from __future__ import annotations

from datetime import date

from whichgpu.api.context import Context
from whichgpu.api.launch.emit import with_launch_files
from whichgpu.api.plan.plan import plan
from whichgpu.api.plan.plan_file import from_document


def test_a_plan_of_jobs_alone_has_a_timeline_without_requests() -> None:
    job = {"name": "tune", "task": "finetune", "model": "llama-3.1-8b", "tokens": "10M", "deadline": "24h"}
    question = from_document({"provider": "aws", "term": "on-demand", "curve": False, "job": [job]})
    answer = plan(question, date(2026, 10, 1), own_measurements=False)
    assert [row.name for row in answer.jobs] == ["tune"]
    assert {point.rate for point in answer.timeline} == {0.0}
    [row] = answer.jobs
    for target, name in (("slurm", "tune.sbatch"), ("vllm", "tune-torchrun.sh"), ("docker", "tune-docker.sh")):
        emitted = with_launch_files(answer, {"emit": target}, Context(as_of=date(2026, 10, 1))).emitted
        assert [*emitted] == [name]
        assert f"--per_device_train_batch_size={row.request['micro_batch']}" in emitted[name]
        assert f"on {row.gpus}x {row.request['gpu']}" in emitted[name]
        assert "for the run" in emitted[name]
