"""The verb `check`: whether the workload of a config file still fits the GPUs it is meant for, and a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from math import ceil

import msgspec
from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.prices.offers import list_offers
from whichgpu.api.request.configs import CheckRequest, ExplainRequest
from whichgpu.api.request.read import read
from whichgpu.api.workloads.explain import OWN_CONTEXT_ENGINES, ExplainAnswer, explain_each
from whichgpu.api.workloads.fit import needs
from whichgpu.base.display import Displayable
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money
from whichgpu.base.units import format_memory
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.measure.meter import parse_price
from whichgpu.price.filters import OffersQuery
from whichgpu.workload.spelling import from_object

# Options that lengthen a model's context; what they set is not read.
CONTEXT_OVERRIDES = ("--hf-overrides", "--rope-scaling", "--json-model-override-args")


class CheckedGpu(msgspec.Struct, frozen=True):
    """Whether a workload fits a GPU, and the lowest price per hour of as many of it as it needs, if there is a budget.

    It is `tight` if the usable bytes lie inside the 90% range of what it needs; `needed` is the estimate itself.
    """

    gpu: str
    gpu_name: str
    fits: str
    needed: int = 0
    usable: int = 0
    cost_per_hour: Money | None = None
    offer: str | None = None  # provider and machine
    price_observed_at: str | None = None
    is_within_budget: bool | None = None
    needed_range: Figure | None = None  # the estimate with its 90% range

    @property
    def is_enough(self) -> bool:
        """Whether the estimate is not above the usable memory; the upper end of its range may be."""
        return self.fits != "no" and self.needed <= self.usable


class CheckAnswer(Displayable, msgspec.Struct, frozen=True):
    """A config file's check: `passed` if the estimated memory is usable on every GPU named, within the budget if there is one.

    A file with several workloads passes if each of them does; `gpus` are of the first. `reasons` say why a server would not
    start; `warnings` what may be wrong nevertheless, and what was not read.
    """

    file: str
    passed: bool
    budget: Money | None
    gpus: tuple[CheckedGpu, ...]
    reasons: tuple[Message, ...] = ()
    warnings: tuple[Message, ...] = ()


def check(request: CheckRequest, context: Context) -> CheckAnswer:
    """Return whether the workload of a config file fits every GPU named, and costs no more per hour than the budget."""
    if not request.get("gpu"):
        raise UsageError("missing-gpu", msg("error.check-gpu"), msg("hint.emit-gpu"))
    stated = read(CheckRequest, request, context.spell, ("budget",)).get("budget")
    budget = parse_price(stated) if stated is not None else None
    question: ExplainRequest = {name: value for name, value in request.items() if name != "budget"}  # type: ignore[assignment]
    first, *others = (_checked_workload(one, budget, context) for one in explain_each(question, context))
    reasons = tuple(reason for title, one in others for reason in _other_reasons(title, one))
    warnings = tuple(msg("check.other", name=title, what=one) for title, other in others for one in other.warnings)
    answer = first[1]
    return replace(
        answer,
        passed=answer.passed and not reasons,
        reasons=(*answer.reasons, *reasons),
        warnings=(*answer.warnings, *warnings),
    )


def _other_reasons(title: str, answer: CheckAnswer) -> Iterator[Message]:
    """Yield why a further workload of the file does not pass."""
    over = [msg("check.over-budget", gpu=row.gpu_name) for row in answer.gpus if row.is_within_budget is False]
    yield from (msg("check.other", name=title, what=reason) for reason in (*answer.reasons, *over))


def _checked_workload(explained: ExplainAnswer, budget: Money | None, context: Context) -> tuple[str, CheckAnswer]:
    """Return the tool and model of one workload of a file, and its check."""
    rows = tuple(_checked(explained, place, budget, context) for place in range(len(explained.fit.gpus)))
    ranges = {one.gpu: one.needed for one in needs(from_object(explained.config.fields), [row.gpu for row in rows]).gpus}
    rows = tuple(replace(row, needed_range=ranges[row.gpu]) for row in rows)
    reasons = (*_refusals(explained), *(_memory_message("check.short", row) for row in rows if not row.is_enough))
    passed = not reasons and all(row.is_within_budget is not False for row in rows)
    answer = CheckAnswer(explained.file, passed, budget, rows, reasons, tuple(_warnings(explained, rows)))
    return explained.config.title, answer


def _memory_message(id: str, row: CheckedGpu) -> Message:
    return msg(id, gpu=row.gpu_name, need=format_memory(row.needed), usable=format_memory(row.usable))


def _warnings(explained: ExplainAnswer, rows: Sequence[CheckedGpu]) -> Iterator[Message]:
    """Yield ranges that exceed the memory, a length that the file does not state, and what was not read."""
    yield from (_memory_message("check.tight", row) for row in rows if row.fits != "fits" and row.is_enough)
    yield from (one for one in explained.fit.warnings if one.id == "explain.own-context")
    if explained.config.unread:
        yield msg("explain.unread", names=explained.config.unread)


def _refusals(explained: ExplainAnswer) -> Iterator[Message]:
    """Yield why an engine would not start: a context longer than the model's, or bfloat16 on GPUs without it."""
    config = explained.config
    engine = config.fields.get("engine")
    if engine in OWN_CONTEXT_ENGINES and not any(name.startswith(CONTEXT_OVERRIDES) for name in config.unread):
        beyond = (one for one in explained.fit.warnings if one.id == "warning.beyond-context")
        yield from (msg("check.refuses", engine=engine_record(engine).name, what=one) for one in beyond)
    if engine == "vllm" and config.fields.get("precision") == "bf16":  # It converts only what it chooses itself.
        rows = (row for row in explained.fit.gpus if any(one.id == "warning.no-dtype" for one in row.warnings))
        yield from (msg("check.no-bfloat16", engine=engine_record(engine).name, gpu=row.gpu_name) for row in rows)


def _checked(explained: ExplainAnswer, place: int, budget: Money | None, context: Context) -> CheckedGpu:
    row = explained.fit.gpus[place]
    memory = CheckedGpu(row.gpu, row.gpu_name, row.fits, row.needed, row.usable)
    if budget is None:
        return memory
    offer = cheapest_machines(row.gpu, int(explained.fit.request["gpus"]), budget.currency, context)
    if offer is None:
        return replace(memory, is_within_budget=False)
    cost, name, day = offer
    within = cost.amount <= budget.amount
    return replace(memory, cost_per_hour=cost, offer=name, price_observed_at=day, is_within_budget=within)


def cheapest_machines(
    gpu: str, gpus: int, currency: str, context: Context, exclude: tuple[str, ...] = ()
) -> tuple[Money, str, str] | None:
    """Return the lowest on-demand price per hour of machines with `gpus` GPUs of a kind, their name, and the price's date.

    It is None if there are none; `exclude` are providers that do not count.
    """
    try:
        query = OffersQuery(gpu=(gpu,), term=("on-demand",), currency=currency, exclude_provider=exclude)
        offers = list_offers(query, context.as_of, context.catalog).offers
    except NoAnswer:
        return None
    costs = [(offer.price.amount * Decimal(ceil(gpus / offer.gpus)), offer) for offer in offers if offer.gpus > 0]
    amount, offer = min(costs, key=lambda pair: pair[0])
    return Money(amount, currency), f"{offer.provider} {offer.instance}".strip(), str(offer.observed_at)
