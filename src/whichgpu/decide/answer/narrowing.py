"""The measurement that would narrow the range of a recommendation most, and the command that takes it."""

from __future__ import annotations

from shlex import join

from msgspec.structs import replace

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import significant
from whichgpu.decide.candidate import Candidate
from whichgpu.workload.spelling import to_argv
from whichgpu.workload.workload import KINDS, Workload

LIMITS = ("max_sequences", "max_batched_tokens")  # Scheduler limits that a candidate may set.
ENDPOINT = "http://localhost:8000"  # Usual address of a server under test.


def narrowing(best: Candidate, replica: Workload, step_command: str | None) -> Message | None:
    """Return a message with the command whose measurement of the answer narrows its range most; None if it was measured here.

    A service is measured at its server, which includes engine and load; other work by one step (`step_command`, None if `measure`
    cannot run it). `replica` is the workload of one replica.
    """
    if best.tier == "here":
        return None
    served = best.tpot is not None
    command = endpoint_command(replica, best) if served else step_command
    if command is None:
        return None
    low, high = best.time.relative_range
    id = "recommend.narrow-service" if served else "recommend.narrow"
    return msg(id, gpu=best.gpu_name, low=significant(low, 2), high=significant(high, 2), command=command)


def endpoint_command(replica: Workload, best: Candidate) -> str:
    """Return the command that loads a running server of one replica and compares it with the estimate."""
    rate = None if replica.rate is None else replica.rate / max(1, best.copies)
    claimed = replace(replica, task="serve", rate=rate, batch=None if rate else best.batch, ttft_max=None, tpot_max=None)
    words = [word for word in to_argv(claimed) if not word.startswith(("--task", "--model"))]
    words += [f"--{name.replace('_', '-')}={limit}" for name in LIMITS if (limit := getattr(best, name)) is not None]
    claim = join(["estimate", "serve", KINDS["model"].write_text(replica.model), *words])
    return join(["whichgpu", "measure", "--endpoint", ENDPOINT, "--verify", claim])
