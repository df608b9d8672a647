"""Targets of `--emit` that make pictures and videos: a script of diffusers, alone or run as a job."""

from __future__ import annotations

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.launch.diffusers_script import (
    EXAMPLE_PROMPT,
    OUTPUT,
    PIPELINES,
    PRECISIONS,
    PROMPTS,
    SCRIPT,
    Pictures,
    generate_script,
    install_line,
)
from whichgpu.decide.launch.disk import weights_disk_gb
from whichgpu.decide.launch.job_targets import JOB_TARGETS, Files, LaunchJob, job_files, node_notes
from whichgpu.decide.launch.placement import Placement
from whichgpu.decide.launch.serve_command import shell_line
from whichgpu.decide.launch.text import comments
from whichgpu.decide.launch.torchrun import torchrun_words

SCRIPT_TARGET = "diffusers"
PICTURE_TARGETS = (SCRIPT_TARGET, *JOB_TARGETS)


class PicturePlan(msgspec.Struct, frozen=True):
    """Pictures to make, the GPUs that each make a share of them, and lines on the estimate for the head of each file."""

    name: str
    pictures: Pictures
    place: Placement
    image: str  # container image with PyTorch; empty if none is known for the GPU
    max_seconds: float | None = None
    header: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    download_bytes: int = 0  # of the weights; 0 if unknown


def picture_files(target: str, plan: PicturePlan) -> Files:
    """Return the files that make pictures with a target, by name; raise an error for what diffusers does not run."""
    pictures, place = plan.pictures, plan.place
    if pictures.table not in PIPELINES:
        message = msg("error.emit-model", target=SCRIPT_TARGET, model=pictures.model[:80])
        raise UsageError("emit-model", message, msg("hint.emit-pictures"))
    if pictures.precision not in PRECISIONS:
        message = msg("error.emit-precision", target=SCRIPT_TARGET, precision=pictures.precision)
        raise UsageError("emit-precision", message, msg("hint.emit-precision"), PRECISIONS)
    is_alone = place.nodes * place.gpus_per_node == 1
    job = LaunchJob(
        plan.name,
        place,
        shell_line([*(["python"] if is_alone else torchrun_words(place)), SCRIPT]),
        plan.image,
        setup=install_line(pictures),
        files={SCRIPT: generate_script(pictures)},
        inputs={PROMPTS: f"{EXAMPLE_PROMPT}\n"},
        output=OUTPUT,
        max_seconds=plan.max_seconds,
        download_bytes=plan.download_bytes,
        disk_gb=weights_disk_gb(plan.download_bytes),
        is_gated=True,
        header=plan.header,
        notes=(*plan.notes, f"{PROMPTS}: a prompt on each line."),
    )
    if target != SCRIPT_TARGET:
        return job_files(target, job)
    head = comments([*plan.header, *job.notes, f"Start it with: {job.command}", *node_notes(job)])
    return {SCRIPT: head + job.files[SCRIPT]}
