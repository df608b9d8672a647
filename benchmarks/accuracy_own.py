"""How much a GPU's own measurements lower the errors on cases that were not measured; writes docs/evidence/measured-h200.md.

Two fits are compared with the GPU's rows of the truth, none of which `measure` runs: a fit without any row of the GPU (curves of
operators and corrections of steps alike), and the same fit with the corrections of a record of `whichgpu measure` on top.

    PYTHONPATH=src:tools:. python -m benchmarks.accuracy_own FOLDER --write docs/evidence/measured-h200.md

FOLDER holds the files of a run on the GPU (see `own_page`): `record.json`, and optionally `plain.json`, `verify.jsonl`,
`watch.json`, `diagnosis.json`, `doctor.json`. The tables replace the text between their marks in the page; its other text stays.
Fitting takes minutes; `--curves FILE` saves the curves fitted without the GPU for the next time, `--quick` uses the shipped
curves, which saw the GPU, and says so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from calibration.examples import examples
from calibration.fit_steps import Design, Example
from calibration.scores import Score, by, score

from benchmarks import own_page
from benchmarks.accuracy_speed import h200_task
from whichgpu.catalog.evidence import measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import Calibration, load_calibration
from whichgpu.estimate.time.combine import step_seconds
from whichgpu.estimate.time.curves import parameters as curve_parameters
from whichgpu.estimate.time.own_corrections import OwnCorrections, with_own_corrections
from whichgpu.estimate.time.terms import TimeTerms
from whichgpu.measure.fit import example, fit_steps
from whichgpu.measure.record import Record
from whichgpu.measure.records import read_record

BEGIN, END = "<!-- accuracy_own: begin -->", "<!-- accuracy_own: end -->"
TITLE = "# What was measured on an H200, beside what is predicted"
OWN_SOURCES = "h200-"  # sources of the truth's own measurements


@dataclass(frozen=True, slots=True)
class Compared:
    """Log(predicted / measured) of the truth's rows of a GPU: GPU left out, with the record's corrections, and as shipped."""

    rows: Sequence[Example]
    before: np.ndarray
    after: np.ndarray
    shipped: np.ndarray
    own: OwnCorrections
    bare: Calibration
    fitted_on: int


def without(examples: Sequence[Example], gpu: str) -> Calibration:
    """Corrections of steps fitted without the GPU."""
    others = [one for one in examples if one.setting.gpu != gpu]
    design = Design(others)
    return design.calibration(design.fit(np.ones(len(others), dtype=bool)))


def predicted(examples: Sequence[Example], calibration: Calibration) -> np.ndarray:
    """Log seconds of examples, as the product estimates them."""
    blank = np.zeros((1, 1))
    logs = []
    for one in examples:
        terms = TimeTerms(one.terms[:, None, None], one.floors[:, None, None], blank, blank, one.setting.unit)
        logs.append(step_seconds(terms, calibration.factors([one.setting]), one.host).wall[0, 0])
    return np.asarray(np.log(logs))


def own_of(record: Record, calibration: Calibration, catalog: Catalog) -> OwnCorrections:
    """Corrections of a fit by the record's measurements."""
    gpu = catalog.gpu_by_id[record.where.gpu]
    fit = fit_steps([example(step, gpu, catalog) for step in record.steps], calibration)
    return OwnCorrections(gpu.id, record.source, "measured", fit.kinds, fit.multipliers, fit.spreads)


def use_curves(file: Path | None) -> None:
    """Make every estimate use these curves; without a file, the shipped ones."""
    curve_parameters.PARAMETERS_FILE = file or SHIPPED_CURVES
    curve_parameters.parameters.cache_clear()


SHIPPED_CURVES = curve_parameters.PARAMETERS_FILE


def fit_curves_without(gpu: str, file: Path) -> None:
    """Fit the curves of operators without the GPU's samples."""
    from calibration.fit_curves import fit_all, gpu_columns, usable

    chosen = [sample for sample in usable(measurements()) if sample.gpu != gpu]
    values = fit_all(chosen, gpu_columns(chosen))
    file.write_text("".join(["name,value\n", *(f"{name},{value}\n" for name, value in values.items())]), encoding="utf-8")


def compared(record: Record, curves: Path | None) -> Compared:
    """Errors before and after the record's corrections; with `curves`, all predictions but the shipped one use them."""
    catalog, gpu, rows = Catalog(), record.where.gpu, steps(measurements())
    shipped_rows = _of_truth(examples([row for row in rows if row.gpu == gpu], catalog), gpu)
    shipped = predicted(shipped_rows, load_calibration())
    use_curves(curves)
    try:
        every_example = examples(rows, catalog)
        about = _of_truth(every_example, gpu)
        bare = without(every_example, gpu)
        own = own_of(record, bare, catalog)
        actual = np.log([one.seconds for one in about])
        logs = [predicted(about, one) - actual for one in (bare, with_own_corrections(bare, {gpu: (own,)}))]
    finally:
        use_curves(None)
    count = sum(one.setting.gpu != gpu for one in every_example)
    return Compared(about, logs[0], logs[1], shipped - actual, own, bare, count)


def _of_truth(examples: Sequence[Example], gpu: str) -> list[Example]:
    return [one for one in examples if one.setting.gpu == gpu and one.groups["source"].startswith(OWN_SOURCES)]


def _task(example: Example) -> str:
    return h200_task(example.groups["source"], example.groups.get("kind", ""), example.groups["task"].partition("-")[2])


def error_lines(errors: Compared, record: Record, without_curves: bool) -> Iterator[str]:
    """The table of errors before and after."""
    curves = "curves and corrections" if without_curves else "corrections (the curves had seen it)"
    yield "## Errors on cases that `measure` does not run"
    yield ""
    yield f"Never seen: {curves} fitted on {errors.fitted_on:,} measured steps of other GPUs, none of this one."
    yield f"Corrected: the same, with what the record's {len(record.steps)} steps say. Fitted: the product's own fit, which"
    yield "these rows are part of. Shares of the measured time."
    yield ""
    yield "| task | rows | mean, never seen | corrected | median, never seen | corrected | p90, never seen | corrected | fitted |"
    yield "|---|---|---|---|---|---|---|---|---|"
    tables = [by(_task, errors.rows, logs) for logs in (errors.before, errors.after, errors.shipped)]
    for task in tables[0]:
        yield _row(task, *(table[task] for table in tables))
    everything = [score(logs) for logs in (errors.before, errors.after, errors.shipped)]
    yield _row("**all**", *everything)
    yield ""
    lower = 1 - everything[1].mean / everything[0].mean
    nearer = np.mean(np.abs(errors.after) < np.abs(errors.before))
    yield f"The mean error falls by {lower:.0%}; {nearer:.0%} of the rows come nearer to what was measured."
    widths = [errors.own.log_factor_range(one.setting.task)[1] for one in errors.rows]
    inside = np.mean([abs(log) <= width for log, width in zip(errors.after, widths, strict=True)])
    mean_width = float(np.exp(np.mean(widths)))
    yield f"{inside:.0%} of them lie inside the range that the record's own residuals give (on average ×/÷ {mean_width:.2f})."


def _row(task: str, before: Score, after: Score, shipped: Score) -> str:
    pairs = ((before.mean, after.mean), (before.median, after.median), (before.p90, after.p90))
    cells = " | ".join(f"{first:.1%} | {second:.1%}" for first, second in pairs)
    return f"| {task} | {before.rows} | {cells} | {shipped.mean:.1%} |"


def never_seen(record: Record, bare: Calibration, curves: Path | None) -> list[float]:
    """Seconds of the record's steps by the fit that never saw the GPU."""
    catalog = Catalog()
    use_curves(curves)
    try:
        gpu = catalog.gpu_by_id[record.where.gpu]
        examples = [example(step, gpu, catalog) for step in record.steps]
    finally:
        use_curves(None)
    rows = [Example(one.seconds, one.terms, one.floors, one.setting, one.host, {}) for one in examples]
    return [float(seconds) for seconds in np.exp(predicted(rows, bare))]


def page(folder: Path, curves: Path | None) -> Iterator[str]:
    """Lines of every section."""
    record = read_record(folder / "record.json")
    errors = compared(record, curves)
    yield from own_page.where_lines(record, folder)
    yield from own_page.reach_lines(record, folder)
    yield from own_page.step_lines(record, never_seen(record, errors.bare, curves))
    yield from error_lines(errors, record, curves is not None)
    yield ""
    yield from own_page.verify_lines(folder)
    yield from own_page.watch_lines(folder)
    yield from own_page.diagnosis_lines(folder)


def put(lines: Sequence[str], file: Path) -> None:
    """Put lines between the marks of a page; the text around them stays."""
    text = file.read_text(encoding="utf-8") if file.exists() else f"{TITLE}\n\n{BEGIN}\n{END}\n"
    first, _, rest = text.partition(BEGIN)
    file.write_text("\n".join([first + BEGIN, "", *lines, "", END]) + rest.partition(END)[2], encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the sections, and write them to the page if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--curves", type=Path, help="file for the curves fitted without the GPU")
    parser.add_argument("--quick", action="store_true", help="use the shipped curves")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        curves = None if options.quick else options.curves or Path(scratch) / "curves.csv"
        if curves and not curves.exists():
            fit_curves_without(read_record(options.folder / "record.json").where.gpu, curves)
        text = list(page(options.folder, curves))
    print("\n".join(text))
    if options.write:
        put(text, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
