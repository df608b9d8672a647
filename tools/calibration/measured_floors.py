"""Physical floors of measured rows: bytes over bandwidth, FLOPs over peak, bytes sent over links, before any fitted parameter.

A row measured faster than its floor is a wrong peak, a wrong byte count, a wrong lowering or a wrong row. Those known are counted
in `floor_exceptions.csv` with the reason; the list may only shrink.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from calibration.curve_rows import Sample, operator_sample
from calibration.examples import replace_stochastic_depth
from calibration.fit_collectives import ELEMENT_BYTES, SOURCE
from calibration.group_examples import workload_of
from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.evidence import Measurement
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.ranks import pipeline_schedule, rank_ops, rank_pass
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.time.curves.evaluate import floor_totals, floors_by_operator
from whichgpu.estimate.time.curves.gpus import cached_gpu_columns
from whichgpu.estimate.time.lower import lower, lower_prefill_at_depth
from whichgpu.estimate.time.lower.traced import lower_model
from whichgpu.estimate.time.lower.traced_model import traced_model
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.shapes import Shape, TracedShape, Transformer
from whichgpu.workload.workload import Workload

EXCEPTIONS_FILE = Path(__file__).with_name("floor_exceptions.csv")
TOLERANCE = 1.02  # ratio of floor to measured seconds beyond which a row counts: stated rates and times have two or three digits
SATURATING_BATCH = 16384  # sequences of a GPU at which weights cost a token nothing: assumed for rates at maximum load


class RowFloor(msgspec.Struct, frozen=True):
    """A measured row and the seconds it cannot physically be faster than."""

    row: Measurement
    seconds: float

    @property
    def ratio(self) -> float:
        """Floor over measured seconds; above 1 something is wrong."""
        return self.seconds / self.row.seconds

    @property
    def group(self) -> tuple[str, str, str]:
        """Source, GPU and family of models or operators, by which rows below their floors have a common cause."""
        return self.row.source, self.row.gpu, self.row.request["kind"] if self.row.kind == "op" else self.row.family


class FloorException(msgspec.Struct, frozen=True):
    """Rows of one group that are known to be faster than their floors: how many at most, the class of the reason, the reason."""

    source: str
    gpu: str
    family: str
    rows: int
    cause: str
    reason: str


def exceptions() -> list[FloorException]:
    """Return the known rows that beat their floors, by group."""
    with EXCEPTIONS_FILE.open(newline="", encoding="utf-8") as text:
        return [msgspec.convert(row, FloorException, strict=False) for row in csv.DictReader(text)]


def too_fast(floors: Iterable[RowFloor]) -> list[RowFloor]:
    """Return the rows measured faster than their floors by more than the tolerance, the worst first."""
    return sorted((one for one in floors if one.ratio > TOLERANCE), key=lambda one: -one.ratio)


def unexplained(floors: Iterable[RowFloor]) -> list[str]:
    """Return a sentence for each group with more rows below their floors than the exceptions have, or fewer."""
    known = {(one.source, one.gpu, one.family): one.rows for one in exceptions()}
    found = Counter(one.group for one in too_fast(floors))
    return [
        f"{' '.join(group)}: {found[group]} rows are faster than their floors, {known.get(group, 0)} are known"
        for group in sorted(found.keys() | known.keys())
        if found[group] != known.get(group, 0)
    ]


def row_floors(rows: Sequence[Measurement], catalog: Catalog) -> Iterator[RowFloor]:
    """Yield the floor of every row that has one: operators, collectives, steps and served rows."""
    yield from _operator_floors([row for row in rows if row.kind == "op" and row.source != SOURCE], catalog)
    for row in rows:
        if row.source == SOURCE:
            yield RowFloor(row, collective_floor(row, catalog.gpu_by_id[row.gpu]))
    lookups = LookupCache(catalog)
    for alike in _by_request(row for row in rows if row.kind != "op"):
        try:
            workload, shape = workload_of(alike[0], lookups)
            passes = _passes(alike[0], workload, shape)
        except WhichGpuError:
            continue  # The tool refuses the request; `calibration.fit` names such rows.
        columns = cached_gpu_columns([catalog.gpu_by_id[row.gpu] for row in alike])
        seconds = sum(times * floor_totals(ops, columns).max(axis=1) for times, ops in passes)
        yield from (RowFloor(row, float(least)) for row, least in zip(alike, np.atleast_1d(seconds), strict=True))


def _operator_floors(rows: Sequence[Measurement], catalog: Catalog) -> Iterator[RowFloor]:
    """Yield the floors of single operators, which are computed for all rows of a GPU at once."""
    by_gpu: dict[str, list[tuple[Measurement, Sample]]] = {}
    for row in rows:
        if sample := operator_sample(row):
            by_gpu.setdefault(row.gpu, []).append((row, sample))
    for gpu, pairs in by_gpu.items():
        ops = [op for _, sample in pairs for op in sample.ops]
        seconds = floors_by_operator(ops, cached_gpu_columns([catalog.gpu_by_id[gpu]]), burst=True)[0].max(axis=1)
        starts = np.cumsum([0, *(len(sample.ops) for _, sample in pairs)])[:-1]
        for (row, _), least in zip(pairs, np.add.reduceat(seconds, starts), strict=True):
            yield RowFloor(row, float(least))


def _by_request(rows: Iterable[Measurement]) -> Iterator[list[Measurement]]:
    """Yield the rows in groups that differ in GPU and seconds alone, so that each request is lowered once."""
    groups: dict[str, list[Measurement]] = {}
    for row in rows:
        request = {name: value for name, value in row.request.items() if name not in ("gpu", "id")}
        measured = [row.kind, row.stochastic_depth, row.cached_tokens, row.micro_batch_tokens, request]
        groups.setdefault(json.dumps(measured, sort_keys=True), []).append(row)
    yield from groups.values()


def _passes(row: Measurement, workload: Workload, shape: Shape) -> list[tuple[float, Sequence[Op]]]:
    """Return the operators of each pass that was timed and how often it ran within the row's seconds."""
    if row.kind == "max-load":
        whole = replace(workload, batch=SATURATING_BATCH * workload.gpus)
        tokens = whole.local_batch * max(1, whole.seq_out or 1) * workload.parallel.dp
        return [(times / tokens, ops) for times, ops in _generation(whole, shape, "generate")]
    if row.kind in ("generate", "serve"):
        return _generation(workload, shape, row.kind)
    if (row.cached_tokens or row.micro_batch_tokens) and isinstance(shape, Transformer):
        return [(1.0, lower_prefill_at_depth(workload, shape, row.cached_tokens, row.micro_batch_tokens).ops)]
    batch = float(workload.local_batch)
    if row.stochastic_depth and workload.training and isinstance(shape, TracedShape):
        return [(1.0, lower_model(workload, replace_stochastic_depth(traced_model(workload, shape), row.stochastic_depth)).ops)]
    micro_batch, stages = pipeline_schedule(workload, batch)
    return [(float(np.max(stages)), rank_ops(workload, shape, micro_batch).ops)]


def _generation(workload: Workload, shape: Shape, kind: str) -> list[tuple[float, Sequence[Op]]]:
    """Return the decode step and the prefill of a generation, each with its number of times per output token or batch."""
    batch, length = float(workload.local_batch), float(max(1, workload.seq_out or 1))
    if not isinstance(shape, Transformer):
        return [(length, lower(workload, shape, batch).ops)]
    prompt = float(workload.seq_in or 1)
    together = batch if kind == "generate" else 1.0
    steps, prefills = (length, 1.0) if kind == "generate" else (1.0, batch / length)
    found: list[tuple[float, Sequence[Op]]] = []
    for task, times, sequences, tokens, context in (
        ("decode", steps, batch, 1.0, prompt + length / 2),
        ("prefill", prefills, together, prompt, None),
    ):
        one = replace(workload, task=task)
        micro_batch, stages = pipeline_schedule(one, sequences)
        found.append((times * float(np.max(stages)), rank_pass(one, shape, micro_batch, tokens, context)))
    return found


def collective_floor(row: Measurement, gpu: Gpu) -> float:
    """Return the bytes that one GPU must send in a collective over the stated one-way bandwidth of its links."""
    request, fabric = row.request, fabric_of(gpu)
    ranks = int(request["gpus"])
    stated = gpu.link.bandwidth if gpu.link and not fabric.kind.startswith("pcie") else gpu.pcie.bandwidth if gpu.pcie else None
    if not stated:
        return 0.0
    remote = (ranks - 1) / ranks
    if request["kind"] in ELEMENT_BYTES:  # At least the tokens whose experts are all elsewhere leave the GPU.
        sent = float(request["tokens"]) * float(request["hidden"]) * ELEMENT_BYTES[request["kind"]] * remote
    else:
        sent = float(request["bytes"]) * remote
    if request["kind"] == "all_reduce":  # A switch that reduces receives every byte once; without one each is sent twice.
        sent *= 1.0 / remote if fabric.has_nvls else 2.0
    return sent / (stated / 2)
