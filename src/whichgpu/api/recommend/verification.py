"""The command that measures one step of a recommended configuration, and a note on what the measurement covers."""

from __future__ import annotations

from shlex import join

from msgspec.structs import replace

from whichgpu.base.messages import Message, msg
from whichgpu.measure.bench.runnable import why_not_runnable
from whichgpu.workload.shapes import Shape
from whichgpu.workload.spelling import fill_defaults, to_argv
from whichgpu.workload.workload import KINDS, Parallel, Workload


def verify_command(workload: Workload, shape: Shape, batch: int) -> tuple[str, Message]:
    """Return the command that measures a workload in the recommended layout with one replica's batch, and a note.

    It measures neither a load nor an engine, but one decode step half-way through the answers of generation, or one pass of
    training that accumulates gradients.
    """
    step = _training_pass(workload) if workload.training else _inference_step(workload, shape, batch)
    words = [word for word in to_argv(step) if not word.startswith(("--task", "--model"))]
    claim = join(["estimate", step.task, KINDS["model"].write_text(step.model), *words])
    why = why_not_runnable(fill_defaults(step, shape), shape)
    note = msg("verify-note.unable", why=why) if why else msg(f"verify-note.{step.task}", n=batch, task=workload.task)
    return join(["whichgpu", "measure", "--verify", claim]), note


def _training_pass(workload: Workload) -> Workload:
    """Return the training workload with a single pass per update, since `measure` does not accumulate gradients."""
    if workload.accumulation == 1:
        return workload
    return replace(workload, batch=workload.local_batch * workload.parallel.dp, micro_batch=None, accumulation=1)


def _inference_step(workload: Workload, shape: Shape, batch: int) -> Workload:
    """Return one step of a replica as a workload: a decode step, or a forward pass if no tokens are generated."""
    replica = replace(workload.parallel, dp=1)
    alone = replica == Parallel(sp=replica.sp, zero=replica.zero)
    bare = replace(
        workload, engine=None, rate=None, ttft_max=None, tpot_max=None, percentile=95.0, seq_out=None, batch=batch,
        gpus=replica.tp * replica.pp * replica.cp, nodes=1, parallel=Parallel() if alone else replica,
        epochs=None, steps=None, tokens=None, samples=None, micro_batch=None,
    )  # fmt: skip
    if not (workload.generating and shape.is_generative):
        return replace(bare, task="forward")
    filled = fill_defaults(replace(workload, engine=None), shape)
    return replace(bare, task="decode", seq_in=(filled.seq_in or 1) + (filled.seq_out or 0) // 2)
