"""Published accuracy loss of models in lower precision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.gpu import plain_number
from whichgpu.catalog.host import Source
from whichgpu.catalog.model import Model, model_key
from whichgpu.catalog.tables import Row, record_of

LANGUAGE_BASELINES = ("bf16", "f16")  # Precisions against which losses of language models are published.


class Accuracy(msgspec.Struct, frozen=True):
    """A published accuracy comparison of a model in two precisions; `loss_percent` is relative, negative for a gain."""

    id: str
    models: tuple[str, ...]
    precision: str
    method: str
    metric: str
    dataset: str
    baseline_precision: str
    baseline: float | None
    score: float | None
    loss_percent: float
    note: str | None
    sources: tuple[str, ...]
    recorded: str
    checked: str


class AccuracyNote(msgspec.Struct, frozen=True):
    """A message that states the published accuracy loss of a model in a precision, and the ids of its sources."""

    message: Message
    sources: tuple[str, ...]


def build_accuracy(row: Row) -> Accuracy:
    """Return a published accuracy comparison made from its row of the catalog's table."""
    return record_of(Accuracy, row, **{name: plain_number(row[name]) for name in ("baseline", "score", "loss_percent")})


def accuracy_note(evaluations: Iterable[Accuracy], models: Iterable[Model], model: str, precision: str) -> AccuracyNote | None:
    """Return published accuracy results for a model (by any of its names) in a precision, worst first; None if there are none."""
    rows = [row for row in evaluations if row.precision == precision]
    measured = {id for row in rows for id in row.models}
    key = model_key(model)
    ids = {row.id for row in models if row.id in measured and key in map(model_key, row.names)}
    comparisons = sorted((row for row in rows if ids & set(row.models)), key=lambda row: -row.loss_percent)
    if not comparisons:
        return None
    sources = tuple(dict.fromkeys(id for row in comparisons for id in row.sources))
    figures = tuple(_figure(row) for row in comparisons)
    return AccuracyNote(msg("warning.accuracy", precision=precision, model=model, figures=figures, sources=sources), sources)


def published_loss(
    evaluations: Iterable[Accuracy], models: Iterable[Model], documents: Mapping[str, Source], model: str, precision: str
) -> AccuracyNote | None:
    """Return the published loss of a language model in a precision; that of other language models if none is of this one."""
    rows = [row for row in evaluations if row.precision == precision and row.baseline_precision in LANGUAGE_BASELINES]
    key = model_key(model)
    own = {row.id for row in models if key in map(model_key, row.names)}
    rows = [row for row in rows if own & set(row.models)] or rows
    if not rows:
        return None
    low, high = (f"{end(row.loss_percent for row in rows):g}" for end in (min, max))
    sources = tuple(dict.fromkeys(id for row in rows for id in row.sources))
    first = documents[sources[0]]
    values = {
        "loss": low if low == high else f"{low}-{high}",
        "models": tuple(dict.fromkeys(id for row in rows for id in row.models)),
        "publisher": first.publisher,
        "day": first.published or "",
    }
    return AccuracyNote(msg("accuracy.perplexity" if rows[0].metric == "perplexity" else "accuracy.lower", **values), sources)


def _figure(row: Accuracy) -> Message:
    values = {"metric": row.metric, "dataset": row.dataset, "method": row.method, "loss": f"{row.loss_percent:g}"}
    if row.baseline is None or row.score is None:
        return msg("accuracy.loss", **values)
    return msg("accuracy.scores", before=f"{row.baseline:g}", after=f"{row.score:g}", **values)
