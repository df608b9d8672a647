"""Write the operator tables of vision models: catalog/data/operator_tables.bin.

Run where torch, torchvision, timm and diffusers are installed (CPU builds will do), with src on the path:

    PYTHONPATH=src python tools/trace_vision.py              every model; an hour or two
    PYTHONPATH=src python tools/trace_vision.py resnet50 …   these anew, the others as they were

Each model is traced at two batch sizes, so that every size becomes a + b * batch, and some passes at a third to check that.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from importlib.metadata import version
from itertools import groupby
from math import prod
from typing import Any

import detectors
import diffusion_models
import efficientdet
import library_models
import older_networks
import pyramids
import segmenters

from whichgpu.estimate.trace import ModuleTrace, TracedOperator, trace
from whichgpu.estimate.trace.framework import load_torch
from whichgpu.workload.tables import TABLES_FILE, decode_blocks, decode_versions, encode_tables

BATCHES = 2, 3
CHECKED_AT = 5
PRECISIONS = {"fp32": "fp32", "amp": "amp-bf16", "bf16": "bf16"}
WIDTHS = {"fp32": 4, "amp": 2, "bf16": 2}  # bytes per element of a convolution's operands
CHECKED = ("train/amp", "infer/amp")

FAMILIES = (library_models, older_networks, detectors, pyramids, efficientdet, segmenters, diffusion_models)
SIZES: dict[str, tuple[int, ...]] = {name: sizes for family in FAMILIES for name, sizes in family.SIZES.items()}
SHAPES = pyramids.SHAPES | segmenters.SHAPES  # input shape by image size, of models whose input is no square RGB picture
SCORES = 81, 90, 91, 264  # classes of detectors


def factory(name: str) -> Callable[[], Any]:
    """Function that builds the module without weights."""
    family = next(family for family in FAMILIES if name in family.SIZES)
    return lambda: family.network(name)


def pictures(name: str, image: int, batch: int) -> Callable[[], Any]:
    """Function that builds the input of a model."""
    channels, *sides = SHAPES[name](image) if name in SHAPES else (3, image, image)
    return lambda: load_torch().empty(batch, channels, *sides)


def loss(output: Any) -> Any:
    """Cross-entropy over classes, including auxiliary heads; a mean for anything else."""
    torch = load_torch()
    items = output if isinstance(output, tuple | list) else [output]
    terms = []
    for item in items:
        if item is None:
            continue
        labels = torch.zeros((item.shape[0], *item.shape[2:]), dtype=torch.int64, device=item.device)
        scores = item.dim() != 3 or item.shape[1] in SCORES
        terms.append(
            torch.nn.functional.cross_entropy(item, labels) if scores else torch.nn.functional.smooth_l1_loss(item, item)
        )
    return sum(terms)


class Kinds:
    """Numbering of the kinds of allocation of a model in order of appearance."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], int] = {}

    def number(self, label: str, size: Any, operands: Any) -> int:
        """Number of a kind."""
        return self.known.setdefault((label, size, operands), len(self.known))


def affine(values: Iterable[int]) -> Any:
    """n, or (a, b) with a + b * batch, from the values at the two batch sizes."""
    first, second = values
    slope, rest = divmod(second - first, BATCHES[1] - BATCHES[0])
    assert rest == 0, values
    return (first - slope * BATCHES[0], slope) if slope else first


def moves(run: ModuleTrace) -> list[tuple[int, int]]:
    """Allocations and frees; simultaneous frees are sorted by age, since autocast frees its copies in hash-table order."""
    groups = groupby(run.events, key=lambda event: event[1] > 0)
    return [event for born, group in groups for event in (group if born else sorted(group, reverse=True))]


def operands(run: ModuleTrace, width: int) -> dict[int, int]:
    """Bytes of input, output and filter of each dense convolution wider than 1x1, by the id of its result (not of its bias)."""
    calls = [operator for operator in run.operators if operator.name.startswith("aten.convolution")]
    born = [id for id, size in run.events if size > 0 and run.makers[id].startswith("aten.convolution")]
    results = [(operator, shape) for operator in calls for shape in operator.outputs]
    assert len(results) == len(born), (len(results), len(born))
    bytes_by_id = {}
    for id, (operator, shape) in zip(born, results, strict=True):
        weight = operator.inputs[2 if "backward" in operator.name else 1]
        if len(shape) == 4 and operator.attributes["groups"] == 1 and prod(weight[2:]) > 1:
            others = operator.inputs[0], operator.inputs[1] if "backward" in operator.name else operator.outputs[0]
            bytes_by_id[id] = width * (prod(others[0]) + prod(others[1]) + prod(weight))
    return bytes_by_id


VIEWS = frozenset(
    f"aten.{name}"
    for name in "view _unsafe_view t transpose permute expand unsqueeze squeeze select slice split split_with_sizes unbind "
    "as_strided alias detach chunk unfold".split()
)


def called(runs: tuple[ModuleTrace, ...]) -> list[Any]:
    """Operators without repeats; views cost nothing but the call, so their shapes are left out."""
    counts: dict[str, int] = {}
    operators: dict[str, Any] = {}
    for pair in zip(*(run.operators for run in runs), strict=True):
        one: TracedOperator = pair[0]
        shapes: list[Any] = [[], []]
        if one.name.rpartition(".")[0] not in VIEWS:
            shapes = [
                [[affine(dims) for dims in zip(*same, strict=True)] for same in zip(*sides, strict=True)]
                for sides in ([o.inputs for o in pair], [o.outputs for o in pair])
            ]
        row = [one.phase, one.name, one.dtype, *shapes, dict(one.attributes)]
        key = repr(row)
        counts[key] = counts.get(key, 0) + 1
        operators.setdefault(key, row)
    return [[*row[:3], counts[key], *row[3:]] for key, row in operators.items()]


def traced_pass(runs: tuple[ModuleTrace, ...], kinds: Kinds, width: int) -> dict[str, Any]:
    """Encode one pass."""
    sequences = [moves(run) for run in runs]
    assert all(len(sequence) == len(sequences[0]) for sequence in sequences)
    workspaces = [operands(run, width) for run in runs]
    births: dict[int, int] = {}
    written = []
    for pair in zip(*sequences, strict=True):
        id, size = pair[0]
        assert len({move[0] for move in pair}) == 1
        if size > 0:
            bytes_ = affine(move[1] for move in pair)
            label = runs[0].labels[id]
            if label == "activations" and isinstance(bytes_, int) and runs[0].makers[id] == "aten._to_copy.default":
                label = "cast_weights"
            needs = affine(space.get(id, 0) for space in workspaces)
            births[id] = len(births)
            written.append(2 * kinds.number(label, bytes_, needs))
        else:
            written.append(2 * (len(births) - 1 - births[id]) + 1)
    operators = json.dumps(called(runs), separators=(",", ":"))
    return {"before": runs[0].marks["forward 0"], "moves": written, "operators": operators}


def table(name: str, image: int) -> dict[str, Any]:
    """Table of a model at an image size."""
    make, kinds = factory(name), Kinds()
    flat = len(SHAPES[name](image)) == 3 if name in SHAPES else True  # volumes keep their memory format
    passes: dict[str, Any] = {}
    for training in (True, False):
        for key, precision in PRECISIONS.items():
            pass_name = f"{'train' if training else 'infer'}/{key}"

            def run(batch: int, precision: str = precision, training: bool = training) -> ModuleTrace:
                return trace(
                    make,
                    pictures(name, image, batch),
                    precision=precision,
                    training=training,
                    optimizer="none",
                    steps=1,
                    channels_last=flat,
                    loss=loss,
                )

            runs = tuple(run(batch) for batch in BATCHES)
            passes[pass_name] = traced_pass(runs, kinds, WIDTHS[key])
            if pass_name in CHECKED:
                check(passes[pass_name], kinds, run(CHECKED_AT), name)
    return {"parameters": runs[0].parameters, "kinds": [list(kind) for kind in kinds.known], "passes": passes}


def check(one: dict[str, Any], kinds: Kinds, run: ModuleTrace, name: str) -> None:
    """Verify the table's sizes at a third batch size against a trace."""
    sizes = [size if isinstance(size, int) else size[0] + size[1] * CHECKED_AT for _, size, _ in kinds.known]
    expected = [sizes[move // 2] for move in one["moves"] if not move % 2]
    measured = [size for _, size in moves(run) if size > 0]
    if expected != measured:
        raise ValueError(f"{name}: sizes are not affine in the batch")


def _job(task: tuple[str, int]) -> tuple[str, dict[str, Any] | str]:
    try:
        return f"{task[0]}@{task[1]}", table(*task)
    except Exception as problem:  # A model that cannot be traced must not stop the others.
        return f"{task[0]}@{task[1]}", repr(problem)


def _write(blocks: dict[str, Any], earlier: dict[str, str]) -> None:
    ordered = {key: blocks[key] for name, sizes in SIZES.items() for image in sizes if (key := f"{name}@{image}") in blocks}
    versions = {
        package: ", ".join(sorted({version(package).partition("+")[0], *filter(None, earlier.get(package, "").split(", "))}))
        for package in ("torch", "torchvision", "timm")
    }
    written = TABLES_FILE.with_suffix(".new")
    written.write_bytes(encode_tables(ordered, date.today().isoformat(), versions))
    written.replace(TABLES_FILE)


def main() -> int:
    """Trace the given models and write the file; return 1 if one could not be traced."""
    parser = argparse.ArgumentParser(description="Write the operator tables.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if unknown := set(options.names) - set(SIZES):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    tasks = [(name, image) for name in options.names or SIZES for image in SIZES[name]]
    content = TABLES_FILE.read_bytes() if options.names and TABLES_FILE.exists() else b""
    blocks, earlier = (decode_blocks(content), decode_versions(content)) if content else ({}, {})
    failed = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(_job, task) for task in tasks]):
            key, block = done.result()
            if isinstance(block, str):
                failed += 1
                print(f"{key}\tfailed: {block}", file=sys.stderr, flush=True)
                continue
            blocks[key] = block
            print(f"{key}\t{block['parameters']}\t{sum(len(one['moves']) for one in block['passes'].values())}", flush=True)
            if len(blocks) % 32 == 0:
                _write(blocks, earlier)
    _write(blocks, earlier)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
