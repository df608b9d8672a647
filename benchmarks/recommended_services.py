"""Whether a recommended service still meets its objectives when many more requests are simulated than it was chosen by.

    python -m benchmarks.recommended_services [QUESTIONS]

asks `recommend serve` random questions from a fixed seed, half of them with an objective, and `estimate serve` with 4,000
requests on the recommended configuration; prints how many are overloaded and how many miss their objective at the 95th
percentile.
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
    """A random model and question."""
    question: dict[str, Any] = {
        "rate": float(draw.choice((0.5, 1, 2, 4, 6))),
        "seq_in": draw.choice((100, 500, 1000, 8000)),
        "seq_out": draw.choice((30, 100, 300, 600, 1000)),
    }
    return draw.choice(MODELS), question | ({"tpot_max": draw.choice((0.03, 0.04, 0.05, 0.08))} if objective else {})


def check_answer(model: str, fields: dict[str, Any], catalog: Catalog) -> tuple[bool, float | None]:
    """Whether the recommended configuration sustains the rate, and the share of requests that met the objective."""
    best = recommend("serve", model, catalog=catalog, own=False, **fields).answer
    layout, rate = best.parallel, fields["rate"] / (best.copies * best.parallel.dp)
    simulated = serve(
        model, LoadOptions(requests=REQUESTS, curve=False), catalog=catalog, gpu=best.gpu, gpus=layout.tp * layout.pp,
        precision=best.precision, parallel=f"tp={layout.tp},pp={layout.pp}", **{**fields, "rate": rate, "percentile": PERCENTILE},
    ).serving  # fmt: skip
    assert simulated is not None
    return not simulated.saturated and rate <= simulated.sustainable_rate.value, simulated.met


def main(questions: int = QUESTIONS) -> int:
    """Print a row for each recommendation that fails, then the counts."""
    catalog, draw = Catalog(), random.Random(29)
    counted = {True: [0, 0, 0], False: [0, 0, 0]}  # questions, overloaded, missed
    for number in range(questions):
        objective = number % 2 == 0
        model, question = drawn(draw, objective)
        try:
            sustains, met = check_answer(model, question, catalog)
        except WhichGpuError:  # no configuration serves this question
            continue
        missed = objective and met is not None and met < PERCENTILE / 100
        counted[objective] = [one + more for one, more in zip(counted[objective], (1, not sustains, missed), strict=True)]
        if missed or not sustains:
            print(
                model,
                question,
                "sustained" if sustains else "overloaded",
                "" if met is None else f"{met:.1%} met",
                sep="\t",
                flush=True,
            )
    print("objective\tquestions\toverloaded\tmissed")
    for objective, counts in counted.items():
        print("yes" if objective else "no", *counts, sep="\t")
    return int(any(overloaded or missed for _, overloaded, missed in counted.values()))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else QUESTIONS))
