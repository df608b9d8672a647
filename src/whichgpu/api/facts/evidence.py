"""The verb `evidence`: search of the measurements that estimates rest on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from whichgpu.api.context import Context
from whichgpu.api.request.evidence import EvidenceRequest
from whichgpu.api.request.read import read
from whichgpu.base.display import Displayable
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.base.names import squash, unknown_word
from whichgpu.catalog.engines.registry import engine_ids
from whichgpu.catalog.evidence import evidence_sources
from whichgpu.catalog.evidence_search.index import EvidenceIndex, evidence_index
from whichgpu.catalog.evidence_search.search import SORTABLE, EvidenceFilter, distinct, engine_of, search_evidence
from whichgpu.catalog.find import find_gpus
from whichgpu.catalog.store import Catalog

DEFAULT_ROWS = 20  # Rows listed if no limit is given (set by judgement).


class EvidenceRow(msgspec.Struct, frozen=True):
    """A measurement: what was run, on which GPUs and software, how long it took, and where that was published.

    `kind` is what was timed: a training step, a forward pass, the prefill of the batch, a decode step, the whole generation of
    the batch, the time between output tokens when serving, that at full load, or one operator.
    """

    task: str
    model: str
    gpu: str
    gpus: int | None
    software: str
    precision: str
    layout: str
    batch: int | None
    seq_in: int | None
    seq_out: int | None
    image: int | None
    details: str
    kind: str
    measured: float
    unit: str
    source: str
    publisher: str
    licence: str
    url: str
    path: str
    date: str


class EvidenceAnswer(Displayable, msgspec.Struct, frozen=True):
    """Measurements that match a request, whole runs before single operators; `matching` counts those beyond the limit too."""

    evidence: tuple[EvidenceRow, ...]
    matching: int
    rows: int


def evidence(request: EvidenceRequest, context: Context) -> EvidenceAnswer:
    """Return the measurements whose texts contain all words of a request and that pass its filters."""
    catalog, values = context.catalog, read(EvidenceRequest, request, context.spell)
    sort, limit = values.get("sort"), values.get("limit", DEFAULT_ROWS)
    if sort is not None and sort.lstrip("-") not in SORTABLE:
        raise unknown_word("field", sort.lstrip("-"), SORTABLE)
    names = {gpu.id: gpu.name for gpu in catalog.gpus}
    matches = search_evidence(_filter(values, catalog), names, sort)
    index = evidence_index()
    total = len(index.operators)
    if not len(matches.rows):
        alone = tuple(msg("error.leaves", flag=name, n=count) for name, count in matches.alone.items())
        message = msg("error.no-evidence", n=total)
        raise NoAnswer("no-evidence", msg("error.because", what=message, why=alone) if alone else message, msg("hint.loosen"))
    return EvidenceAnswer(tuple(evidence_row(index, int(row), names) for row in matches.rows[:limit]), len(matches.rows), total)


def _filter(values: dict[str, tuple[str, ...]], catalog: Catalog) -> EvidenceFilter:
    """Return the constraints of a request; an unknown GPU, engine or model raises with the nearest names."""
    return EvidenceFilter(
        words=tuple(word for text in values.get("words", ()) for word in text.split()),
        gpu=frozenset(gpu.id for name in values.get("gpu", ()) for gpu in find_gpus(catalog, name)),
        engine=frozenset(_engine(name) for name in values.get("engine", ())),
        model=tuple(_model(name, catalog) for name in values.get("model", ())),
        **{name: frozenset(values.get(name, ())) for name in ("task", "precision", "source")},
    )


def _engine(name: str) -> str:
    ids: Sequence[str] = engine_ids()
    if (id := engine_of(name)) not in ids:
        raise unknown_word("engine", name, ids)
    return id


def _model(name: str, catalog: Catalog) -> str:
    """Return the name of a model, or a part of one, as the evidence table or the catalog has it."""
    key = squash(name)
    names: Iterable[str] = (*distinct("model"), *(id for model in catalog.models for id in model.names))
    if not key or not any(key in squash(one) for one in names):
        raise unknown_word("model", name, distinct("model"))
    return name


def evidence_row(index: EvidenceIndex, row: int, gpu_names: dict[str, str]) -> EvidenceRow:
    """Return one row of the evidence table with the publisher, licence and address of its source."""
    words = {
        name: index.words(name).of(row) for name in ("task", "model", "precision", "layout", "details", "kind", "path", "date")
    }
    numbers = {name: index.number(name, row) for name in ("gpus", "batch", "seq_in", "seq_out", "image")}
    gpu, source = index.words("gpu").of(row), evidence_sources()[index.words("source").of(row)]
    return EvidenceRow(
        **words,  # type: ignore[arg-type]
        **numbers,  # type: ignore[arg-type]
        gpu=gpu_names.get(gpu, gpu),
        software=index.software(row),
        measured=float(f"{index.numbers('seconds')[row]:.6g}"),
        unit="s",
        source=source.id,
        publisher=source.publisher,
        licence=source.licence,
        url=source.url,
    )
