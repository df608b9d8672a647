"""Decisions against measurements: of several GPUs measured on the same work, did the tool choose the best for the money?

Groups of published rows with the same source, model, engine and sizes on two or more GPUs that were for rent on demand in the
row's year. The tool's choice is the GPU with the most predicted work per dollar, the best one that with the most measured work.
Regret is the share of work per dollar that the choice loses against the best.

    PYTHONPATH=src:tools python -m benchmarks.decisions [--held-out]

The shipped corrections were fitted on these rows; with --held-out every GPU's time is predicted by a fit that never saw that GPU.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache

import numpy as np
from calibration.examples import examples, step_terms
from calibration.fit_steps import Design, folds, left_out
from calibration.scores import gpu_of

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.evidence import Measurement, measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.time.combine import host_mode, step_seconds
from whichgpu.estimate.time.grid import correction_keys
from whichgpu.price.table import price_table, rows_on_day
from whichgpu.workload.spelling import fill_defaults, from_object

GOALS = {0.05: 0.90, 0.10: 0.97}  # share of groups within each regret


@dataclass(frozen=True, slots=True)
class Decision:
    """One group: the GPU chosen, the best GPU, and the regret as a share."""

    source: str
    what: str
    chosen: str
    best: str
    regret: float
    gpus: int


def decisions(held: Mapping[tuple[str, int], float] | None = None) -> Iterator[Decision]:
    """Every group with two or more priced GPUs; `held` are seconds by fits without the row's GPU, by source and row."""
    catalog = Catalog()
    lookups = lookup_cache(catalog, own=False)
    years = _years()
    groups: dict[tuple[str, str], dict[str, list[Measurement]]] = defaultdict(lambda: defaultdict(list))
    for row in steps(measurements()):
        if row.request.get("gpus", 1) == 1 and row.row in years:
            request = {name: value for name, value in row.request.items() if name not in ("gpu", "id", "year")}
            key = json.dumps({**request, "kind": row.kind, "of": years[row.row]}, sort_keys=True, default=str)
            groups[row.source, key][row.gpu].append(row)
    for (source, key), by_gpu in groups.items():
        year = json.loads(key)["of"]
        prices = hourly(year)
        priced = {gpu: rows for gpu, rows in by_gpu.items() if gpu in prices}
        if len(priced) < 2:
            continue
        try:
            predicted = {gpu: float(np.median([_predicted(row, lookups, held) for row in rows])) for gpu, rows in priced.items()}
        except (WhichGpuError, KeyError):
            continue
        true = {gpu: 1.0 / (float(np.median([row.seconds for row in rows])) * prices[gpu]) for gpu, rows in priced.items()}
        chosen = max(predicted, key=lambda gpu: 1.0 / (predicted[gpu] * prices[gpu]))
        best = max(true, key=lambda gpu: true[gpu])
        yield Decision(source, key, chosen, best, 1.0 - true[chosen] / true[best], len(priced))


@cache
def hourly(year: int) -> Mapping[str, float]:
    """The cheapest GPU hour on demand of each GPU at the end of a year, in US dollars."""
    table = price_table(Catalog())
    rows = rows_on_day(table, date(year, 12, 31) if year < 2026 else date(2026, 10, 1))
    part = table.select_rows(rows)
    keep = part.matches("term", ("on-demand",)) & part.matches("currency", ("USD",)) & (part.gpus >= 1)
    prices: dict[str, float] = {}
    for row in np.flatnonzero(keep).tolist():
        gpu, price = part.word("gpu", row), float(part.price[row] / part.gpus[row])
        prices[gpu] = min(price, prices.get(gpu, np.inf))
    return prices


def _years() -> dict[int, int]:
    """The year of each published row that is dated to a year or better."""
    years = {}
    for row in steps(measurements()):
        text = row.date.strip()
        published = not row.source.startswith("h200")
        if published and text[:4].isdigit() and (len(text) == 4 or (len(text) >= 7 and text[4] == "-" and len(text) != 9)):
            years[row.row] = int(text[:4])
    return years


def without_its_gpu() -> dict[tuple[str, int], float]:
    """Seconds of every row by a fit that left its GPU out."""
    design = Design(examples(steps(measurements()), Catalog()))
    theta = design.fit(np.ones(len(design.examples), dtype=bool))
    predicted = np.exp(left_out(folds(design, gpu_of, theta), len(design.examples)))
    return {(one.row.source, one.row.row): float(seconds) for one, seconds in zip(design.examples, predicted, strict=True)}


def _predicted(row: Measurement, lookups: LookupCache, held: Mapping[tuple[str, int], float] | None) -> float:
    return _seconds(row, lookups) if held is None else held[row.source, row.row]


def _seconds(row: Measurement, lookups: LookupCache) -> float:
    """Estimated seconds of a row."""
    shape, gpu = lookups.shape(row.request["model"]), lookups.catalog.gpu_by_id[row.gpu]
    workload = fill_defaults(from_object({name: value for name, value in row.request.items() if name != "id"}).workload, shape)
    terms, kind = step_terms(workload, shape, gpu, row.kind)
    factors = lookups.calibration.factors(correction_keys(workload, kind, terms.unit, [gpu]))
    return float(step_seconds(terms, factors, host_mode(workload.engine, workload.year), workload.host_speed).wall[0, 0])


def report(all_decisions: Sequence[Decision]) -> str:
    """Groups, share within 5% and 10% of the best, and mean regret, by source and in total."""
    lines = ["| source | groups | within 5% | within 10% | mean regret | worst |", "|---|---|---|---|---|---|"]
    sources = sorted({one.source for one in all_decisions})
    for name in (*sources, "all"):
        regrets = np.array([one.regret for one in all_decisions if name in ("all", one.source)])
        within = " | ".join(f"{(regrets <= limit).mean():.0%}" for limit in GOALS)
        lines.append(f"| {name} | {len(regrets)} | {within} | {regrets.mean():.1%} | {regrets.max():.0%} |")
    return "\n".join(lines)


def shares(all_decisions: Sequence[Decision]) -> dict[float, float]:
    """Share of the groups whose regret is within each limit that has a goal."""
    regrets = np.array([one.regret for one in all_decisions])
    return {limit: float((regrets <= limit).mean()) if len(regrets) else 0.0 for limit in GOALS}


if __name__ == "__main__":
    all_decisions = list(decisions(without_its_gpu() if "--held-out" in sys.argv else None))
    print(report(all_decisions) + "\n")
    reached = shares(all_decisions)
    for limit, share in reached.items():
        print(f"within {limit:.0%} of the best in {share:.1%} of {len(all_decisions)} groups; the goal is {GOALS[limit]:.0%}")
    sys.exit(0 if all(share >= GOALS[limit] for limit, share in reached.items()) else 1)
