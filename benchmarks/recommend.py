"""Time of a full recommendation: in a new process, again in the same process, and with many times the offers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from benchmarks.start import Result, process, timed

COLD_SECONDS, WARM_SECONDS = 1.0, 0.3
QUESTIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "serve llama-3.1-70b": ("serve", "llama-3.1-70b", {"rate": 5.0, "seq_in": 1000, "seq_out": 300, "tpot_max": 0.05}),
    "train llama-3.1-8b": ("train", "llama-3.1-8b", {"tokens": 10**9}),
    "train resnet50": ("train", "resnet50", {"epochs": 90.0, "samples": 1_281_167}),
    "batch llama-3.1-8b": ("batch", "llama-3.1-8b", {"samples": 100_000}),
}
FLAGS = {
    "serve llama-3.1-70b": "--rate 5/s --in 1000 --out 300 --tpot 50ms",
    "train llama-3.1-8b": "--tokens 1B",
    "train resnet50": "--epochs 90 --samples 1281167",
    "batch llama-3.1-8b": "--samples 100000",
}
RUNS = 5


def results() -> Iterator[Result]:
    """Seconds of a cold recommendation, a warm one, and one with more offers."""
    for name, flags in FLAGS.items():
        argv = [sys.executable, "-P", "-m", "whichgpu", "recommend", *name.split(), *flags.split()]
        yield timed(f"whichgpu recommend {name}, cold process", COLD_SECONDS, process(*argv), RUNS)
    for name, question in QUESTIONS.items():
        yield timed(f"recommend {name}, warm", WARM_SECONDS, partial(ask, *question), RUNS)
    for times in (10, 100):
        yield timed(f"offers of a day among {times} times as many prices", WARM_SECONDS * times, grown(times), 3)


def ask(task: str, model: str, fields: dict[str, Any]) -> object:
    from whichgpu.api.recommend.recommend import recommend
    from whichgpu.catalog.store import Catalog

    return recommend(task, model, catalog=CATALOG.setdefault("one", Catalog()), own=False, **fields)


CATALOG: dict[str, Any] = {}


def grown(times: int) -> Callable[[], object]:
    """Filter, group and cost the bundled prices multiplied `times`, each copy in regions of its own."""
    import numpy as np

    from whichgpu.catalog.currency import Exchanger
    from whichgpu.catalog.store import Catalog
    from whichgpu.decide.configurations.groups import groups_of
    from whichgpu.decide.constraints import Constraints
    from whichgpu.decide.market import market, terms_of
    from whichgpu.price.run import RunSettings, run_cost
    from whichgpu.price.table import WORDS, price_table

    catalog = Catalog()
    table = price_table(catalog)
    words = (*table.words, *(f"copy-{copy}-{word}" for copy in range(times) for word in table.words))
    places = np.tile(table.places, (1, times))
    rows = len(table)
    for copy in range(times):
        places[WORDS.index("region"), copy * rows : (copy + 1) * rows] += len(table.words) * (copy + 1)
    many = replace(
        table,
        offers=None,
        words=words,
        places=places,
        days=np.tile(table.days, (1, times)),
        numbers=np.tile(table.numbers, (1, times)),
    )
    constraints = Constraints(date(2026, 10, 1) - timedelta(days=1))

    def run() -> object:
        offers = market(many, catalog, constraints, Exchanger(constraints.day, catalog.exchange))
        groups = groups_of(offers, catalog, constraints.span, several=False)
        hours = np.full(len(groups.offer_of), 10.0)
        return run_cost(hours, terms_of(offers).at(groups.offer_of, np.ones(len(hours))), RunSettings(), True)

    return run


if __name__ == "__main__":
    from benchmarks.start import table

    sys.exit(table(results()))
