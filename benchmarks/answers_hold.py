"""Whether a service's answer holds when many more requests come than it was chosen by.

    python -m benchmarks.answers_hold [QUESTIONS]

asks `recommend serve` random questions from a fixed seed, half of them with an objective, and `estimate serve` with 4,000
requests on what each answer names; prints how many are overloaded and how many keep their objective at the 95th percentile.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from whichgpu.api.recommend.recommend import recommend
from whichgpu.api.workloads.load import LoadOptions
from whichgpu.api.workloads.serve import serve
from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.store import Catalog

MODELS = ("llama-3.1-8b", "qwen2.5-7b", "llama-3.1-70b", "qwen3-30b-a3b")
QUESTIONS, REQUESTS, PERCENTILE = 200, 4000, 95


def drawn(draw: random.Random, objective: bool) -> tuple[str, dict[str, Any]]:
    """A question."""
    asked: dict[str, Any] = {
        "rate": float(draw.choice((0.5, 1, 2, 4, 6))),
        "seq_in": draw.choice((100, 500, 1000, 8000)),
        "seq_out": draw.choice((30, 100, 300, 600, 1000)),
    }
    return draw.choice(MODELS), asked | ({"tpot_max": draw.choice((0.03, 0.04, 0.05, 0.08))} if objective else {})


def held(model: str, asked: dict[str, Any], catalog: Catalog) -> tuple[bool, float | None]:
    """Whether the answer's rate is borne, and the share of the requests that met the objective."""
    best = recommend("serve", model, catalog=catalog, own=False, **asked).answer
    layout, rate = best.parallel, asked["rate"] / (best.copies * best.parallel.dp)
    told = serve(
        model, LoadOptions(requests=REQUESTS, curve=False), catalog=catalog, gpu=best.gpu, gpus=layout.tp * layout.pp,
        precision=best.precision, parallel=f"tp={layout.tp},pp={layout.pp}", **{**asked, "rate": rate, "percentile": PERCENTILE},
    ).serving  # fmt: skip
    assert told is not None
    return not told.saturated and rate <= told.sustainable_rate.value, told.met


def main(questions: int = QUESTIONS) -> int:
    """A row for each that does not hold, then the counts."""
    catalog, draw = Catalog(), random.Random(29)
    counted = {True: [0, 0, 0], False: [0, 0, 0]}  # asked, overloaded, missed
    for number in range(questions):
        objective = number % 2 == 0
        model, asked = drawn(draw, objective)
        try:
            borne, met = held(model, asked, catalog)
        except WhichGpuError:  # nothing serves that
            continue
        missed = objective and met is not None and met < PERCENTILE / 100
        counted[objective] = [one + more for one, more in zip(counted[objective], (1, not borne, missed), strict=True)]
        if missed or not borne:
            print(model, asked, "borne" if borne else "overloaded", "" if met is None else f"{met:.1%} met", sep="\t", flush=True)
    print("objective\tasked\toverloaded\tmissed")
    for objective, counts in counted.items():
        print("yes" if objective else "no", *counts, sep="\t")
    return int(any(overloaded or missed for _, overloaded, missed in counted.values()))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else QUESTIONS))
