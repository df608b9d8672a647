"""`whichgpu explain`: what the workload of a config file needs, where it runs and how fast."""

from __future__ import annotations

from typing import Any

from whichgpu.api.request.configs import ExplainRequest
from whichgpu.api.workloads.explain import ExplainAnswer, explain
from whichgpu.base.messages import msg
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.estimate import speed
from whichgpu.surface.commands.fit import COLUMNS, fit_row, nothing_fits, sentence
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document, error_body

LIMITS = ("context", "max_sequences", "max_batched_tokens", "memory_share")


@command("explain", ExplainRequest, explain)
def show(session: Session, answer: ExplainAnswer) -> int:
    """Print the workload of a config file, the memory it needs by GPU, and its speed; exit code 1 if it fits on none."""
    error = nothing_fits(answer.fit) if all(row.fits == "no" for row in answer.fit.gpus) else None
    if session.format == "json":
        failure = {"error": error_body(error, session.language)} if error else {}
        session.emit({"ok": error is None, **document(answer, session.language)} | failure)
        return error.exit_code if error else 0
    fields = ", ".join(f"{name} {_text(value)}" for name, value in stated_fields(answer).items())
    session.say(msg("explain.headline", file=answer.file, tool=answer.config.tool, fields=fields))
    if error:
        session.fail(error)
    else:
        session.say(sentence(answer.fit))
    rows = sorted(answer.fit.gpus, key=lambda row: row.fits == "no")
    session.show(answer.fit, [fit_row(row) for row in rows], [name for name in COLUMNS if name != "largest_context"])
    for estimate in answer.estimates:
        if estimate.time and estimate.request["task"] == "serve":
            session.say(msg("explain.speed", n=estimate.request["batch"], what=speed(estimate)))
        elif estimate.time:
            session.say(speed(estimate))
    for warning in answer.fit.warnings:
        session.say(msg("fit.warning", what=warning))
    if answer.config.unread:
        session.say(msg("explain.unread", names=answer.config.unread))
    return error.exit_code if error else 0


def stated_fields(answer: ExplainAnswer) -> dict[str, Any]:
    """Return what a config file says, as fields of a request and limits of its server."""
    limits = {name: getattr(answer.config, name) for name in LIMITS}
    return {name: value for name, value in (answer.config.fields | limits).items() if value is not None}


def _text(value: Any) -> str:
    return " ".join(f"{name}={item}" for name, item in value.items()) if isinstance(value, dict) else str(value)
