"""Fleets: an hour of conversations on eight GPUs, aggregated, disaggregated and with failing machines; and dozens of groups.

The published trace is used if it is next to the checkout, else lengths are drawn from a similar distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.serving import RATE, SECONDS, TRACE
from benchmarks.start import Result, table, timed
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.kv_transfer import Port
from whichgpu.estimate.serving.fleet.pools import Fleet, FleetRouting, Interruptions, ReplicaPool
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.server import Server, server_of
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.traces.reader import read_trace

GOAL, LARGE_GOAL = 10.0, 60.0  # seconds
GROUPS, LARGE_RATE = 36, 200.0
MODEL, GPU = "llama-3.1-8b", "h100-sxm"


def results() -> Iterator[Result]:
    """Seconds of each fleet simulation in turn; the engine's tables are made beforehand."""
    server, load = _server(), _load(RATE, SECONDS)
    port = Port(46e9, 46e9, 20e-6, 131072.0)
    disaggregated = (ReplicaPool("read", server, 3, "prefill", port=port), ReplicaPool("write", server, 5, "decode", port=port))
    often = Interruptions(rate=1.0, notice=30.0, warm_up=600.0)
    large = tuple(ReplicaPool(str(place), server, 2, weight=1.0 + place % 3) for place in range(GROUPS))
    fleets = {
        "aggregated": Fleet((ReplicaPool("all", server, 8),)),
        "disaggregated": Fleet(disaggregated),
        "each replica interrupted once an hour": Fleet((ReplicaPool("all", server, 8, spot=8),), FleetRouting(), often),
    }
    for name, fleet in fleets.items():
        yield timed(f"fleet: an hour at {RATE:g}/s of {MODEL} on 8 x {GPU}, {name}", GOAL, _run(fleet, load), 1)
    name = f"fleet: ten minutes at {LARGE_RATE:g}/s on {GROUPS} groups of 2"
    yield timed(name, LARGE_GOAL, _run(Fleet(large), _load(LARGE_RATE, 600.0)), 1)


def _run(fleet: Fleet, load: Load) -> Callable[[], object]:
    return lambda: simulate_fleet(fleet, load.arrivals())


def _load(rate: float, seconds: float) -> Load:
    trace = read_trace(TRACE) if TRACE.is_file() else None
    return Load(rate, Lengths(1155, 1.0), Lengths(211, 0.8), int(rate * seconds), trace=trace)


def _server() -> Server:
    catalog = Catalog()
    shape = find_model(MODEL, catalog)
    assert isinstance(shape, Transformer)
    workload = fill_defaults(from_object({"task": "serve", "model": MODEL, "seq_in": 1155, "seq_out": 211}).workload, shape)
    return server_of(workload, shape, catalog.gpu_by_id[GPU], longest=16384)


if __name__ == "__main__":
    raise SystemExit(table(results()))
