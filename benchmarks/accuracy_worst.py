"""The page docs/evidence/worst.md: the ten worst rows of each source, with the reason as far as it is known.

Predictions are those that `make refit` stored, of fits without the row's source (without its GPU if there is no such fit).
Reasons are kept by hand in `worst_reasons.csv`: the first line all of whose patterns match a row gives its reason.
`python -m benchmarks.accuracy_pages` writes the page.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from math import log
from pathlib import Path

import numpy as np

from benchmarks.left_out_rows import OWN, LeftOutRow, grouped, paragraph
from whichgpu.base.units import format_seconds
from whichgpu.catalog.evidence import Measurement, evidence_sources
from whichgpu.estimate.time.left_out import left_out_table

REASONS = Path(__file__).with_name("worst_reasons.csv")
WORST = 10  # rows listed of each source
UNKNOWN = "not known"
USUAL = log(1.15)  # errors below this need no reason
EXPLAINED = 0.4  # a row is extrapolated if the fit that saw its source has less than this share of the log error
SIZES = ("gpus", "batch", "seq_in", "seq_out", "image")
Reasons = Sequence[Mapping[str, str]]


def reasons() -> Reasons:
    """Lines of the table of reasons: patterns of source, GPU, run and off (slow or fast), and the reason."""
    with REASONS.open(newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


def lines(rows: Sequence[LeftOutRow]) -> Iterator[str]:
    """Lines of the page."""
    known = reasons()
    yield "# The ten worst rows of each source"
    yield ""
    yield from paragraph(
        "Made by `python -m benchmarks.accuracy_pages` from the predictions in the fit of "
        f"{left_out_table().date}: each by a fit without "
        "any row of the source (*GPU*: without the GPU, as no fit could be made without the source). The "
        "ratio is predicted over "
        "measured time: above 1 the prediction is too slow. Reasons are kept by hand in "
        "`benchmarks/worst_reasons.csv`. *Outside* is a "
        "row outside its 90% range."
    )
    for source, members in grouped(rows, lambda one: OWN if one.own else one.row.source).items():
        yield f"## {source}"
        yield ""
        yield f"{evidence_sources()[members[0].row.source].publisher}; rows with a prediction: {len(members):,}."
        yield ""
        yield "| GPU | what was run | measured | predicted | ratio | reason |"
        yield "|---|---|---|---|---|---|"
        for one in sorted(members, key=lambda one: -abs(one.errors[fold_of(one)]))[:WORST]:
            yield line(one, known)
        yield ""


def fold_of(one: LeftOutRow) -> str:
    """What the prediction of a row left out: its source, or its GPU (its model) if there is no fit without the source."""
    return next(fold for fold in ("source", "gpu", "model") if fold in one.errors)


def line(one: LeftOutRow, known: Reasons) -> str:
    """A row of the table."""
    fold, row = fold_of(one), one.row
    predicted = one.predicted(fold)
    marks = ("" if one.covered(fold) else ", outside") + ("" if fold == "source" else f" ({fold.replace('gpu', 'GPU')})")
    seconds = f"{format_seconds(row.seconds)} | {format_seconds(predicted)}"
    return f"| {row.gpu} | {described(row)} | {seconds} | {predicted / row.seconds:.2f}{marks} | {reason(one, known)} |"


def described(row: Measurement) -> str:
    """What was run, in a few words: kind, model, engine, precision, parallelism and sizes."""
    request = row.request
    model = request["model"] if isinstance(request["model"], str) else row.family
    software = f"{request.get('engine', '')} {request.get('year', '')}".strip()
    layout = " ".join(f"{name}={degree}" for name, degree in request.get("parallel", {}).items() if degree != 1)
    sizes = [f"{name} {request[name]}" for name in SIZES if request.get(name) and not (name == "gpus" and request[name] == 1)]
    return ", ".join(
        part for part in (f"{row.kind} {model}", software, str(request.get("precision", "")), layout, *sizes) if part
    )


def reason(one: LeftOutRow, known: Reasons) -> str:
    """Why a row is off: the first line of the table that matches it, else what the stored errors say of it."""
    row, error = one.row, one.errors[fold_of(one)]
    texts = {"source": row.source, "gpu": row.gpu, "run": described(row), "off": "slow" if error > 0 else "fast"}
    if abs(error) < USUAL:
        return "a usual error"
    for candidate in known:
        if all(re.search(candidate[name], text) for name, text in texts.items()):
            return candidate["reason"]
    if one.host_bound:
        return "host-bound: the host of this machine decides its time"
    if abs(one.fit) < EXPLAINED * abs(error):
        return f"extrapolated: {np.expm1(one.fit):+.0%} by the fit that saw the source"
    return UNKNOWN
