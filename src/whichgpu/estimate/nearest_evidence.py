"""The measurements nearest to a question, by a distance over engine, year, GPU, model, precision, layout, batch and context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import log
from statistics import median

import msgspec
import numpy as np

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.evidence_search.index import EvidenceIndex, WordColumn, evidence_index
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.left_out import left_out_table
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Dlrm, Mlp, Shape, TracedShape, Transformer
from whichgpu.workload.workload import Workload

# Distances are in units of about one change that matters: another engine, another generation of GPU (all set by judgement).
OTHER_ENGINE, OTHER_STYLE = 0.7, 0.6  # Another engine, and one that runs operators in another manner (eager, compiled, fused).
YEAR, MAX_YEARS = 0.15, 5  # A year between the releases of the software, and the number of years that count.
OTHER_GPU, OTHER_GENERATION, OTHER_MAKER = 0.3, 0.7, 1.0  # These add up.
OTHER_MODEL, OTHER_STRUCTURE, SIZE = 0.2, 1.2, 0.25  # Another model, another kind of model, and a factor e in its parameters.
OTHER_PRECISION, OTHER_FORMAT = 0.1, 0.6  # Another precision, and another number format.
OTHER_LAYOUT, GPU_COUNT = 0.3, 0.3  # Another kind of parallelism, and a factor e in the number of GPUs.
BATCH, CONTEXT = 0.15, 0.1  # A factor e in the batch and in the context or image.
OTHER_PHASE = 1.0  # Generation (prefill and decode) against one of its phases.
OTHER_TASK = 4.0  # Training, inference and the phases of generation: farther than any other difference.
MIN_ROWS, MAX_ROWS = 3, 5  # Measurements listed with an estimate.
NEAR = 3.0  # Distance within which more than the first few rows are listed.
NEIGHBOURS = 20  # Measurements whose median error is that of the neighbourhood.
TASKS = {
    "train": "train", "finetune": "train", "forward": "forward", "embed": "forward", "prefill": "prefill", "decode": "decode",
    "batch": "generate", "serve": "generate",
}  # fmt: skip
GENERATION = ("prefill", "decode", "generate")
WORDS = ("source", "date", "model", "task", "precision", "layout", "kind")  # Columns that a listed measurement has.


class NearMeasurement(msgspec.Struct, frozen=True):
    """A measurement near a question: how long it took, what the model estimates there, and on what it differs.

    `error` is that of the estimate as a share of the measured time. Times are seconds of what `kind` names, as in the evidence.
    """

    source: str
    date: str
    gpu: str
    gpus: int
    software: str
    model: str
    task: str
    precision: str
    layout: str
    batch: int | None
    seq_in: int | None
    seq_out: int | None
    kind: str
    measured: float
    estimated: float | None
    error: float | None
    differs_on: tuple[str, ...]


class NearEvidence(msgspec.Struct, frozen=True):
    """The measurements nearest to a question, and the median error of the model on more of them (a share; None if unknown)."""

    nearest: tuple[NearMeasurement, ...] = ()
    error: float | None = None
    rows: int = 0


class Runs:
    """Columns of the measured runs (no single operators), prepared for distances."""

    def __init__(self, index: EvidenceIndex) -> None:
        self.index = index
        self.rows = np.flatnonzero(~index.operators)

    def column(self, name: str) -> WordColumn:
        """Return a column of words of the runs, with only their words."""
        column = self.index.words(name)
        used, codes = np.unique(column.codes[self.rows], return_inverse=True)
        return WordColumn(tuple(column.words[code] for code in used.tolist()), codes)

    @cached_property
    def words(self) -> Mapping[str, WordColumn]:
        """Columns of words by name."""
        return {name: self.column(name) for name in ("gpu", "task", "model", "structure", "engine", "precision", "layout")}

    @cached_property
    def logs(self) -> Mapping[str, np.ndarray]:
        """Logarithms of the columns of numbers, 0 where a row has none."""
        numbers = {name: self.index.numbers(name)[self.rows].astype(float) for name in ("batch", "gpus", "parameters")}
        context = self.index.numbers("seq_in")[self.rows].astype(float) + self.index.numbers("seq_out")[self.rows]
        numbers["context"] = np.where(context > 0, context, self.index.numbers("image")[self.rows])
        return {name: np.log(np.maximum(values, 1.0)) for name, values in numbers.items()}

    @cached_property
    def years(self) -> np.ndarray:
        """Years of the software."""
        return self.index.numbers("year")[self.rows].astype(float)


_RUNS: list[Runs] = []


def measured_runs() -> Runs:
    """Return the measured runs of the bundled evidence, prepared once."""
    if not _RUNS:
        _RUNS.append(Runs(evidence_index()))
    return _RUNS[0]


def nearest_evidence(workload: Workload, shape: Shape, gpu: Gpu, catalog: Catalog) -> NearEvidence:
    """Return the measurements nearest to a workload (defaults filled in) on GPUs of a kind; none if no such model was run."""
    runs = measured_runs()
    if structure_of(shape) not in runs.words["structure"].words:
        return NearEvidence()
    by_axis = axis_distances(runs, workload, shape, gpu, catalog)
    distance = sum(by_axis.values())
    assert isinstance(distance, np.ndarray)
    if not len(distance):
        return NearEvidence()
    neighbours = np.argpartition(distance, min(NEIGHBOURS, len(distance) - 1))[:NEIGHBOURS]
    neighbours = neighbours[np.lexsort((neighbours, distance[neighbours]))]
    logs = left_out_table().log_errors(runs.rows[neighbours])
    finite = logs[np.isfinite(logs)]
    listed = [place for rank, place in enumerate(neighbours[:MAX_ROWS].tolist()) if rank < MIN_ROWS or distance[place] < NEAR]
    names = {one.id: one.name for one in catalog.gpus}
    return NearEvidence(
        tuple(
            _measurement(
                runs, place, float(logs[rank]), [axis for axis, amounts in by_axis.items() if amounts[place] > 0.05], names
            )
            for rank, place in enumerate(listed)
        ),
        round(median(np.abs(np.expm1(finite)).tolist()), 3) if len(finite) else None,
        len(finite),
    )


def axis_distances(runs: Runs, workload: Workload, shape: Shape, gpu: Gpu, catalog: Catalog) -> dict[str, np.ndarray]:
    """Return for each axis the distances of all measured runs from a workload."""
    words, logs = runs.words, runs.logs
    task, engine = TASKS[workload.task], workload.engine or ""
    degrees = workload.parallel
    kinds = [f"{name}={getattr(degrees, name)}" for name in ("dp", "tp", "pp", "ep", "cp") if getattr(degrees, name) > 1]
    batch = max(1, workload.batch or 1)
    context = (workload.seq_in or 0) + ((workload.seq_out or 0) if task == "generate" else 0) or workload.image or 1
    gpus = {one.id: one for one in catalog.gpus}
    return {
        "task": _by_word(words["task"], lambda word: _task_distance(task, TASKS.get(word, ""))),
        "engine": _by_word(words["engine"], lambda word: _engine_distance(engine, word)),
        "year": np.minimum(np.abs(runs.years - (workload.year or runs.years.max())), MAX_YEARS) * YEAR,
        "gpu": _by_word(words["gpu"], lambda word: _gpu_distance(gpu, gpus.get(word))),
        "model": _by_word(words["model"], lambda word: 0.0 if word == workload.model else OTHER_MODEL)
        + _by_word(words["structure"], lambda word: 0.0 if word == structure_of(shape) else OTHER_STRUCTURE)
        + np.where(logs["parameters"] > 0, np.abs(logs["parameters"] - log(max(count_parameters(shape).active, 1))) * SIZE, SIZE),
        "precision": _by_word(words["precision"], lambda word: _precision_distance(workload.precision or "", word)),
        "layout": _by_word(words["layout"], lambda word: _layout_distance(kinds, word))
        + np.abs(logs["gpus"] - log(workload.gpus)) * GPU_COUNT,
        "batch": np.abs(logs["batch"] - log(batch)) * BATCH,
        "context": np.abs(logs["context"] - log(context)) * CONTEXT,
    }


def structure_of(shape: Shape) -> str:
    """Return the kind of a model by what it computes: dense, MoE or MLA decoder, encoder, ViT, convolutional network, …"""
    if isinstance(shape, Transformer):
        if shape.patches:
            return "ViT"
        if shape.mla or shape.experts:
            return "MLA" if shape.mla else "MoE"
        return "encoder-decoder" if shape.encoder_layers else "decoder" if shape.causal else "encoder"
    if isinstance(shape, TracedShape):
        return "diffusion" if shape.denoiser else "vision"
    return {Mlp: "MLP", Dlrm: "recommender"}.get(type(shape), "")


def _by_word(column: WordColumn, distance: Callable[[str], float]) -> np.ndarray:
    return np.asarray(np.array([distance(word) for word in column.words], dtype=float)[column.codes])


def _task_distance(task: str, other: str) -> float:
    if task == other:
        return 0.0
    return OTHER_PHASE if "generate" in (task, other) and {task, other} <= set(GENERATION) else OTHER_TASK


def _engine_distance(engine: str, other: str) -> float:
    if engine == other:
        return 0.0
    return OTHER_ENGINE + (0.0 if engine_record(engine or None).style == engine_record(other).style else OTHER_STYLE)


def _gpu_distance(gpu: Gpu, other: Gpu | None) -> float:
    if other is None:
        return OTHER_GPU + OTHER_GENERATION + OTHER_MAKER
    if gpu.id == other.id:
        return 0.0
    same = gpu.architecture == other.architecture and gpu.compute_capability == other.compute_capability
    return OTHER_GPU + (0.0 if same else OTHER_GENERATION) + (0.0 if gpu.vendor == other.vendor else OTHER_MAKER)


def _precision_distance(precision: str, other: str) -> float:
    if precision == other:
        return 0.0
    one, two = PRECISION_BY_NAME.get(precision), PRECISION_BY_NAME.get(other)
    return OTHER_PRECISION if one and two and one.evidence_format == two.evidence_format else OTHER_FORMAT


def _layout_distance(kinds: Sequence[str], layout: str) -> float:
    other = [part for part in layout.split(",") if part.partition("=")[0] in ("dp", "tp", "pp", "ep", "cp")]
    if sorted(kinds) == sorted(other):
        return 0.0
    return OTHER_LAYOUT / 3 if {part[:2] for part in kinds} == {part[:2] for part in other} else OTHER_LAYOUT


def _measurement(runs: Runs, place: int, log_error: float, axes: Sequence[str], names: Mapping[str, str]) -> NearMeasurement:
    """Return one of the nearest measurements; without an estimate if there was none when the model was last fitted."""
    index, row = runs.index, int(runs.rows[place])
    measured = float(f"{index.numbers('seconds')[row]:.6g}")
    error = float(np.expm1(log_error))
    is_estimated = bool(np.isfinite(log_error))
    gpu = index.words("gpu").of(row)
    return NearMeasurement(
        **{name: index.words(name).of(row) for name in WORDS},  # type: ignore[arg-type]
        **{name: index.number(name, row) for name in ("batch", "seq_in", "seq_out")},  # type: ignore[arg-type]
        gpu=names.get(gpu, gpu),
        gpus=index.number("gpus", row) or 1,
        software=index.software(row),
        measured=measured,
        estimated=float(f"{measured * (1 + error):.4g}") if is_estimated else None,
        error=round(error, 3) if is_estimated else None,
        differs_on=tuple(axes),
    )
