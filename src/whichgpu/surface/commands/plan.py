"""`whichgpu plan`: the fleet in a sentence, its groups in a table, the bill, what saturates first, launch commands."""

from __future__ import annotations

import math

from whichgpu.api.plan import plan_verb as verbs
from whichgpu.api.request.plan import PlanRequest
from whichgpu.base.codec import to_json
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.files import user_path
from whichgpu.base.messages import msg
from whichgpu.base.units import significant
from whichgpu.decide.plan.plan_answer import GroupRow, PlanAnswer
from whichgpu.decide.relax import round_up
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.listing import say_sources
from whichgpu.surface.commands.render.plan_lines import plan_lines
from whichgpu.surface.commands.render.progress import progress
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document, error_document

COLUMNS = ("group", "serves", "machines", "seen", "layout", "use", "cost")
MAX_SOURCES = 6  # Sources listed under an answer.
OBJECTIVES = ("ttft", "tpot", "latency")
STAGES = {  # Start and length of each stage of planning, as shares of the whole time (assumed).
    "reading": (0.0, 0.05),
    "estimates": (0.05, 0.05),
    "solving": (0.1, 0.4),
    "simulating": (0.5, 0.2),
    "telling": (0.7, 0.2),
    "roles": (0.9, 0.1),
}


def plan(session: Session, request: Request) -> PlanAnswer:
    """Return the plan of a fleet, and write deployment files if a folder is given."""
    with progress(session, STAGES, lambda stage, language: language.text(f"plan.progress-{stage}")) as follow:
        answer = verbs.plan(request, session.context(follow))  # type: ignore[arg-type]
    if "export" in request:
        _export(session, answer, str(request["export"]))
    return answer


@command("plan", PlanRequest, ask=plan, chart="plan.plan_chart")
def show(session: Session, answer: PlanAnswer) -> int:
    """Print the plan; exit code 1 if its simulation misses the objectives."""
    error = missed_objectives(answer)
    if session.format == "json":
        failure = error_document(error, session.language) if error else {}
        session.emit({**failure, **document(answer, session.language)})
    else:
        if error:
            session.fail(error)
        _show(session, answer)
    return error.exit_code if error else 0


def missed_objectives(answer: PlanAnswer) -> NoAnswer | None:
    """Return the error for a plan whose simulation misses its objectives; None if it meets them."""
    missed = [one for one in answer.simulation if not one.holds]
    if not missed:
        return None
    reachable = tuple(
        msg("plan.keeps", model=one.model, percentile=f"{one.percentile:g}", **{n: _limit(getattr(one, n)) for n in OBJECTIVES})
        for one in missed
        if math.isfinite(one.latency.value)
    )
    hint = msg("hint.plan-misses", kept=reachable) if len(reachable) == len(missed) else msg("hint.plan-misses-lost")
    return NoAnswer("plan-misses", msg("error.plan-misses", models=tuple(one.model for one in missed)), hint)


def _limit(figure: Figure) -> str:
    """Return a simulated latency as milliseconds for a flag, rounded up so that the limit is not below it."""
    return f"{round_up(figure.value * 1000)}ms"


def _show(session: Session, answer: PlanAnswer) -> None:
    if session.show_data(answer, answer.groups, answer.sentence):
        return
    if session.request.get("hints") is not None:
        session.say(msg("plan.hints-old"))
    if session.request.get("export") is None and session.show_files(answer.emitted):
        return
    if session.request.get("brief"):
        for message in (answer.sentence, *answer.warnings[:1]):
            session.out.write(session.language.render(message) + "\n")
        return
    session.say(answer.sentence)
    text = session.language.text
    session.table([text(f"plan.column-{name}") for name in COLUMNS], [_cells(session, row, answer) for row in answer.groups])
    for line in plan_lines(answer):
        session.say(line)
    say_sources(session, answer.sources, MAX_SOURCES)
    if answer.verify:
        session.say(msg("recommend.verify", command=answer.verify))
    if answer.verify_note is not None:
        session.say(msg("recommend.lacks", what=answer.verify_note))
    session.say(msg("recommend.reproduce", command=answer.reproduce))


def _cells(session: Session, row: GroupRow, answer: PlanAnswer) -> list[str]:
    text = session.language.text
    shares = [f"{one.bucket} {one.share:.0%}" for one in sorted(row.serves, key=lambda one: -one.rate)[:3]]
    what = f"{row.model}: {significant(row.rate)}/s" if row.model else f"{significant(row.rate)}/s"
    if len(answer.groups) > 1 and shares:
        what += f" ({'; '.join(shares)}{'; …' if len(row.serves) > 3 else ''})"
    machine = f"{row.provider} {row.instance}".strip()
    where = session.language.listed(filter(None, (row.region, text(f"term.{row.term}"))))
    sizes = {"copies": row.copies, "tp": row.gpus_per_copy, "precision": row.precision, "batch": row.batch}
    layout = text("plan.layout", **sizes) if row.batch else ""
    count = f"{row.machines}x {machine} ({where})" if machine and row.machines else where
    if row.machines * row.gpus_per_machine > row.gpus:
        count = text("plan.part-of-machines", n=row.gpus, all=row.machines * row.gpus_per_machine, machines=count)
    return [
        f"{row.gpus}x {row.gpu_name}" + ("" if row.role == "both" else f" ({text(f'plan.role-{row.role}')})"),
        what,
        count,
        row.price_observed_at,
        layout,
        f"{row.utilisation:.0%}",
        f"{significant(float(row.cost_per_hour.amount))} {row.cost_per_hour.currency}/h",
    ]


def _export(session: Session, answer: PlanAnswer, folder: str) -> None:
    """Write deployment files, and the plan as JSON in the same folder."""
    target = user_path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in answer.emitted.items():
            (target / name).write_text(text, encoding="utf-8")
        (target / "plan.json").write_text(to_json(document(answer, session.language)), encoding="utf-8")
    except OSError as problem:
        message = msg("error.cannot-write-file", name=folder, why=problem.strerror or str(problem))
        raise UsageError("cannot-write-file", message, msg("hint.cannot-write-file")) from problem
    session.say(msg("plan.exported", n=len(answer.hints), folder=folder))
