"""Predicted and measured times of every step that the time model is checked on: the table that the product shows them from.

    PYTHONPATH=src:tools python -m benchmarks.accuracy_pairs HELD_OUT

writes src/whichgpu/estimate/time/data/pairs.csv. HELD_OUT is the file of `calibration.fit --held-out`. Every prediction is by a
fit that never saw its group: the model for our own H200, the GPU for published results; the range is that
of the axes on which it was new to the fit.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from calibration.examples import examples
from calibration.fit import SOURCE_IDS
from calibration.fit_steps import Design, Example
from calibration.scores import HeldOut, load, source_of

from whichgpu.catalog.evidence import measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.confidence.novelty import Measured
from whichgpu.estimate.confidence.spread import SIDES, load_terms, spread
from whichgpu.estimate.time.accuracy_pairs import PAIR_COLUMNS, PAIRS_FILE


def rows(design: Design, held: HeldOut) -> Iterator[list[object]]:
    """One row per example, in the order of the evidence table."""
    terms = load_terms()
    everything = [(example.axes, source_of(example)) for example in design.examples]
    unseen = {gpu: Measured.of(one for one in everything if one[0].gpu != gpu) for gpu in {one.gpu for one, _ in everything}}
    whole = Measured.of(everything)
    for place, example in enumerate(design.examples):
        own = source_of(example) == "h200"
        predicted = float((held.model if own else held.gpu)[place])
        new = (whole if own else unseen[example.axes.gpu]).new_on(example.axes)
        low, high = (spread(example.axes, new, terms[side]) for side in SIDES)
        seconds = [f"{number:.4g}" for number in (example.seconds, *np.exp([predicted, predicted - low, predicted + high]))]
        yield [*_words(example), *seconds]


def _words(example: Example) -> list[object]:
    request, setting = example.row.request, example.setting
    source = source_of(example)
    sizes = [request.get(name, "") for name in ("batch", "seq_in", "seq_out", "image")]
    source_id = SOURCE_IDS.get(source, f"results-{source.lower()}")
    kind, _, field = example.groups["task"].partition("-")
    words = (kind, field, example.groups["model"], setting.engine, request.get("precision", ""))
    return [source_id, setting.gpu, *words, setting.year, *sizes]


def _sort_key(row: list[object]) -> list[str]:
    return [str(cell) for cell in row[:5]]


def main() -> int:
    """Write the table."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    file = Path(sys.argv[1])
    design = Design(examples(steps(measurements()), Catalog()))
    with PAIRS_FILE.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(PAIR_COLUMNS)
        pairs = sorted(rows(design, load(file)), key=_sort_key)
        writer.writerows(pairs)
    print(f"{len(design.examples)} pairs", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
