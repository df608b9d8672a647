"""The command that checks a recommendation on its hardware: one step of it, and what that step does not tell."""

from __future__ import annotations

from dataclasses import replace
from shlex import join

from whichgpu.base.messages import Message, msg
from whichgpu.measure.bench.runnable import why_not_runnable
from whichgpu.workload.shapes import Shape
from whichgpu.workload.spelling import fill_defaults, to_argv
from whichgpu.workload.workload import KINDS, Parallel, Workload


def verify_command(told: Workload, shape: Shape, batch: int) -> tuple[str, Message]:
    """The command for a request laid out as recommended, with so many sequences or samples at once on one copy; and its note.

    Loads and engines are not run: of a service or an offline run it is one step, of tokens half-way through their answers; of
    training with accumulation, one of its passes.
    """
    step = _pass(told) if told.training else _step(told, shape, batch)
    words = [word for word in to_argv(step) if not word.startswith(("--task", "--model"))]
    claim = join(["estimate", step.task, KINDS["model"].write_text(step.model), *words])
    why = why_not_runnable(fill_defaults(step, shape), shape)
    note = msg("verify-note.unable", why=why) if why else msg(f"verify-note.{step.task}", n=batch, task=told.task)
    return join(["whichgpu", "measure", "--verify", claim]), note


def _pass(told: Workload) -> Workload:
    """One pass of a training step and its update: gradients accumulate over several alike, which `measure` does not run."""
    if told.accumulation == 1:
        return told
    return replace(told, batch=told.local_batch * told.parallel.dp, micro_batch=None, accumulation=1)


def _step(told: Workload, shape: Shape, batch: int) -> Workload:
    """The step that a copy on its GPUs does over and over."""
    copy = replace(told.parallel, dp=1)
    bare = replace(
        told, engine=None, rate=None, ttft_max=None, tpot_max=None, percentile=95.0, seq_out=None, batch=batch,
        gpus=copy.tp * copy.pp * copy.cp, nodes=1, parallel=copy if copy != Parallel(sp=copy.sp, zero=copy.zero) else Parallel(),
        epochs=None, steps=None, tokens=None, samples=None, micro_batch=None,
    )  # fmt: skip
    if not (told.generating and shape.is_generative):
        return replace(bare, task="forward")
    filled = fill_defaults(replace(told, engine=None), shape)
    return replace(bare, task="decode", seq_in=(filled.seq_in or 1) + (filled.seq_out or 0) // 2)
