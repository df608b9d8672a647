"""Checks of engine records, of published accuracy losses, and of the reference mix, the standard workloads GPUs are ranked by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from whichgpu.base.messages import msg
from whichgpu.catalog.engines.files import RecordLine, read_records
from whichgpu.catalog.engines.registry import build_record
from whichgpu.catalog.reference_mix import parse_request
from whichgpu.catalog.tables import Fault, Finding, Row, Tables, table_findings

TASKS = ("train", "prefill", "decode", "forward", "serve", "batch")
INTERFACES = ("cuda", "rocm", "oneapi", "metal", "habana", "xla", "neuron", "vulkan")
SOURCED = ("memory", "limits", "host")  # Sections of an engine record whose values need a source.
INLINE_SOURCES = ("https://", "assumed: ")  # Prefixes of sources that are not ids of the table of sources.
LOWER_IS_BETTER = ("perplexity",)
LOSS_TOLERANCE = Decimal("0.03")  # in percentage points: rounding of the published scores
LOSS_RANGE = (-10, 100)  # Plausible losses in percent (assumed).


def engines(tables: Tables) -> list[Finding]:
    """Return findings for engines with unknown tasks, interfaces or AMD targets, or minimum capabilities in the wrong order."""
    targets = {row["id"] for row in tables["targets"].rows}
    return table_findings(tables, "engines", lambda row: _engine(row, targets))


def records(tables: Tables) -> list[Finding]:
    """Return findings for engine-file lines that are invalid in some year, and for memory, limit or host values unsourced."""
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
        if section in SOURCED and name != "like" and line.source not in sources and not line.source.startswith(INLINE_SOURCES):
            yield "unknown-source", line.field, msg("finding.unknown-reference", id=line.source, table="sources")


def _engine(row: Row, targets: set[str]) -> Iterator[Fault]:
    for column, allowed in (("tasks", TASKS), ("interfaces", INTERFACES), ("amd_targets", tuple(targets))):
        for word in row[column]:
            if word not in allowed:
                yield "unknown-word", column, msg("finding.unknown-word", word=word)
    minimum, ever = row["min_capability"], row["min_capability_ever"]
    if minimum and ever and Decimal(ever) >= Decimal(minimum):
        yield "capability-order", "min_capability_ever", msg("finding.capability-order", ever=ever, least=minimum)


def accuracy(tables: Tables) -> list[Finding]:
    """Return findings for accuracy losses that are implausible or do not match their two scores."""
    return table_findings(tables, "accuracy", _accuracy)


def _accuracy(row: Row) -> Iterator[Fault]:
    before, after, loss = row["baseline"], row["score"], row["loss_percent"]
    if loss is None:
        return
    low, high = LOSS_RANGE
    if not low <= loss <= high:
        yield "implausible", "loss_percent", msg("finding.implausible", value=loss, low=low, high=high)
    if before and after is not None:
        change = (after - before) if row["metric"] in LOWER_IS_BETTER else (before - after)
        if abs(change / before * 100 - loss) > LOSS_TOLERANCE:
            yield "loss-arithmetic", "loss_percent", msg("finding.loss", stated=loss, found=round(change / before * 100, 2))


def mix(tables: Tables) -> list[Finding]:
    """Return findings for invalid workloads of the reference mix (by which GPUs are ranked), and indexes whose weights miss 1."""
    weights: Counter[str] = Counter()
    for row in tables["reference_mix"].rows:
        weights[row["index"] or ""] += row["weight"] or 0
    return table_findings(tables, "reference_mix", _request) + [
        Finding("reference_mix", index, "weights", "weight", msg("finding.weights", index=index, total=total))
        for index, total in weights.items()
        if total != 1
    ]


def _request(row: Row) -> Iterator[Fault]:
    try:
        parse_request(row["request"] or "")
    except ValueError:
        yield "bad-request", "request", msg("finding.bad-request")
