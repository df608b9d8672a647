"""Checks of what concerns speed: engines, what precisions cost, the reference mix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.files import RecordLine, read_records
from whichgpu.catalog.engines.registry import build_record
from whichgpu.catalog.reference_mix import parse_request
from whichgpu.catalog.tables import Finding, Row, Table

Tables = Mapping[str, Table]
Fault = tuple[str, str, Message]

TASKS = ("train", "prefill", "decode", "forward", "serve", "batch")
INTERFACES = ("cuda", "rocm", "oneapi", "metal", "habana", "xla", "neuron", "vulkan")
SOURCED = ("memory", "limits", "host")  # sections of a record whose values need a source
STATED = ("https://", "assumed: ")  # sources that are no row of the table of sources
LOWER_IS_BETTER = ("perplexity",)
ROUNDING = Decimal("0.03")  # scores are published with two or three decimals
LOSS = (-10, 100)


def engines(tables: Tables) -> list[Finding]:
    """Tasks and interfaces are known words, AMD targets exist, and no capability is below the lowest ever."""
    targets = {row["id"] for row in tables["targets"].rows}
    return [Finding("engines", row["id"], *fault) for row in tables["engines"].rows for fault in _engine(row, targets)]


def records(tables: Tables) -> list[Finding]:
    """Every line of a record can be read in every year, and what decides memory, limits and host costs has a source."""
    entries = read_records(tables["engines"].path.parent)
    sources = {row["id"] for row in tables["sources"].rows}
    return [Finding("engines", id, *fault) for id in entries for fault in _record(id, entries, sources)]


def _record(id: str, entries: Mapping[str, Sequence[RecordLine]], sources: set[str]) -> Iterator[Fault]:
    try:
        for year in {int(line.since) if line.since else None for line in entries[id]}:
            build_record(id, entries, year)
    except (ValueError, KeyError) as problem:
        yield "bad-record", "value", msg("finding.bad-record", why=str(problem))
    for line in entries[id]:
        section, _, name = line.field.partition(".")
        if section in SOURCED and name != "like" and line.source not in sources and not line.source.startswith(STATED):
            yield "unknown-source", line.field, msg("finding.unknown-reference", id=line.source, table="sources")


def _engine(row: Row, targets: set[str]) -> Iterator[Fault]:
    for column, known in (("tasks", TASKS), ("interfaces", INTERFACES), ("amd_targets", tuple(targets))):
        for word in row[column]:
            if word not in known:
                yield "unknown-word", column, msg("finding.unknown-word", word=word)
    least, ever = row["min_capability"], row["min_capability_ever"]
    if least and ever and Decimal(ever) >= Decimal(least):
        yield "capability-order", "min_capability_ever", msg("finding.capability-order", ever=ever, least=least)


def accuracy(tables: Tables) -> list[Finding]:
    """The loss is that of the two scores, and one a model can have."""
    return [Finding("accuracy", row["id"], *fault) for row in tables["accuracy"].rows for fault in _accuracy(row)]


def _accuracy(row: Row) -> Iterator[Fault]:
    before, after, loss = row["baseline"], row["score"], row["loss_percent"]
    if loss is None:
        return
    if not LOSS[0] <= loss <= LOSS[1]:
        yield "implausible", "loss_percent", msg("finding.implausible", value=loss, low=LOSS[0], high=LOSS[1])
    if before and after is not None:
        change = (after - before) if row["metric"] in LOWER_IS_BETTER else (before - after)
        if abs(change / before * 100 - loss) > ROUNDING:
            yield "loss-arithmetic", "loss_percent", msg("finding.loss", stated=loss, found=round(change / before * 100, 2))


def mix(tables: Tables) -> list[Finding]:
    """Requests can be read, and the weights of every index add up to 1."""
    found, weights = [], dict.fromkeys((row["index"] or "" for row in tables["reference_mix"].rows), Decimal(0))
    for row in tables["reference_mix"].rows:
        weights[row["index"] or ""] += row["weight"] or 0
        try:
            parse_request(row["request"] or "")
        except ValueError:
            found.append(Finding("reference_mix", row["id"], "bad-request", "request", msg("finding.bad-request")))
    wrong = [(index, total) for index, total in weights.items() if total != 1]
    return found + [
        Finding("reference_mix", index, "weights", "weight", msg("finding.weights", index=index, total=total))
        for index, total in wrong
    ]
