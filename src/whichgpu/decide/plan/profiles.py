"""Plans from measured throughput instead of estimates: a price and requests per second for each request size and GPU.

Two formats are read: `rate, mix, gpus: {name: {price, requests_per_second}}`, and the profiles of AIBrix's optimizer,
`gpu_info: {name: {cost, tputs}}, workload_distribution` with `indexes(out,in)`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from whichgpu.base.errors import UsageError
from whichgpu.base.files import read_regular_file
from whichgpu.base.messages import Message, msg
from whichgpu.decide.plan.solver.problem import Floats, Pool, PriceOption, Problem

MAX_BYTES = 1 << 26  # Largest file accepted, in bytes.


class Profiles(msgspec.Struct, frozen=True):
    """Measured throughput: `mix` is each bucket's share of requests, `rates` requests/s of one GPU by name, `rate` the load."""

    name: str
    prices: Mapping[str, float]
    rates: Mapping[str, Floats]
    mix: Floats
    buckets: tuple[str, ...]
    rate: float | None

    def problem(
        self, rate: float | None, headroom: float, slices: int | None, max_gpus: Mapping[str, float] | None = None
    ) -> Problem:
        """Return the solver's problem at a request rate per second; `slices`: parts a bucket is cut into; `max_gpus`: by name."""
        rate = rate if rate is not None else self.rate
        if rate is None:
            raise UsageError("no-rate", msg("error.no-rate"), msg("hint.no-rate"))
        names = tuple(self.prices)
        limits = max_gpus or {}
        pools = tuple(
            Pool(name, name, 1, (PriceOption(name, self.prices[name], limit=limits.get(name, np.inf)),)) for name in names
        )
        return Problem(
            pools=pools,
            columns=names,
            pool_of=np.arange(len(names)),
            uses=np.ones(len(names), dtype=np.int64),
            rates=np.stack([self.rates[name] for name in names]),
            demand=(rate * self.mix)[None, :],
            hours=np.ones(1),
            headroom=headroom,
            slices=slices,
            buckets=self.buckets,
        )


def read_profiles(path: Path) -> Profiles:
    """Return measured throughput by GPU and request size (profiles) from a JSON file."""
    try:
        content = json.loads(read_regular_file(path, MAX_BYTES))
    except OSError as problem:
        raise _bad(path.name, msg("plan.unreadable", why=problem.strerror or str(problem))) from problem
    except (ValueError, RecursionError) as problem:
        raise _bad(path.name, msg("plan.unreadable", why=str(problem)[:200])) from problem
    if not isinstance(content, dict):
        raise _bad(path.name, msg("plan.profiles-shape"))
    return parse_profiles(path.name, content)


def parse_profiles(name: str, content: Mapping[str, Any]) -> Profiles:
    """Return measured throughput by GPU and request size from a parsed JSON document, in this project's or AIBrix's format."""
    if "gpu_info" in content:
        gpus, price, speed, mix = content["gpu_info"], "cost", "tputs", content.get("workload_distribution")
    else:
        gpus, price, speed, mix = content.get("gpus"), "price", "requests_per_second", content.get("mix")
    if not isinstance(gpus, dict) or not gpus or mix is None:
        raise _bad(name, msg("plan.profiles-shape"))
    shares = _table(name, "mix", mix)
    with np.errstate(over="ignore"):
        whole = float(shares.sum())
    if not 0 < whole < np.inf:
        raise _bad(name, msg("plan.profiles-empty"))
    prices, rates = {}, {}
    for gpu, record in gpus.items():
        if not isinstance(record, dict) or price not in record or speed not in record:
            raise _bad(name, msg("plan.profiles-gpu", gpu=str(gpu), price=price, speed=speed))
        table = _table(name, str(gpu), record[speed])
        if table.shape != shares.shape:
            raise _bad(name, msg("plan.profiles-size", gpu=str(gpu)))
        prices[str(gpu)] = _number(name, str(gpu), record[price])
        rates[str(gpu)] = table.ravel()
    rate = None if content.get("rate") is None else _number(name, "rate", content["rate"]) or None
    return Profiles(name, prices, rates, shares.ravel() / whole, _labels(content, shares.shape), rate)


def _number(name: str, what: str, value: Any) -> float:
    table = _table(name, what, value)
    if table.ndim:
        raise _bad(name, msg("plan.profiles-number", what=what))
    return float(table)


def _table(name: str, what: str, values: Any) -> Floats:
    try:
        table = np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError) as problem:
        raise _bad(name, msg("plan.profiles-number", what=what)) from problem
    if not np.isfinite(table).all() or (table < 0).any():
        raise _bad(name, msg("plan.profiles-number", what=what))
    return table


def _labels(content: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of the buckets of requests: input and output lengths if the file states them, else numbers."""
    match content.get("indexes(out,in)"):
        case [list() as answers, list() as prompts] if (len(answers), len(prompts)) == shape:
            return tuple(f"{prompt} in, {answer} out" for answer in answers for prompt in prompts)
    return tuple(".".join(str(one + 1) for one in place) for place in np.ndindex(*shape))


def _bad(name: str, what: Message) -> UsageError:
    return UsageError("bad-profiles", msg("error.bad-profiles", name=name, what=what), msg("hint.profiles"))
