"""Operator tables of vision models: one block for a model at an image size.

Tensors without data cost nothing, so the batch is a large prime: a size that it divides is proportional to the batch, any other
is constant. A run at a small batch checks that.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import cache
from hashlib import sha256
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
import torchvision_tasks
import transformer_vision
import ultralytics_models
import video_models
import yolo

from whichgpu.estimate.trace import ModuleTrace, trace
from whichgpu.estimate.trace.framework import load_torch

BATCH = 1_000_003  # A prime, so that no product of the sizes of a network is a multiple of it by chance.
CHECKED_BATCH = 2
MAX_PADDING = 64  # Bytes by which strides that are padded change a temporary tensor of a batch.
PRECISIONS = {"fp32": "fp32", "amp": "amp-bf16", "bf16": "bf16"}
WIDTHS = {"fp32": 4, "amp": 2, "bf16": 2}  # bytes per element of a convolution's operands

FAMILIES = (
    library_models,
    older_networks,
    detectors,
    pyramids,
    efficientdet,
    segmenters,
    diffusion_models,
    video_models,
    yolo,
    ultralytics_models,
    transformer_vision,
    torchvision_tasks,
)
SIZES: dict[str, tuple[int, ...]] = {name: sizes for family in FAMILIES for name, sizes in family.SIZES.items()}
# Input shape by image size, of models whose input is no square RGB picture.
SHAPES = {name: shape for family in FAMILIES for name, shape in getattr(family, "SHAPES", {}).items()}
SCORES = 80, 81, 90, 91, 92, 264  # classes of detectors


@cache
def sizes() -> dict[str, tuple[int, ...]]:
    """Image sizes by model: those of `SIZES`, and every other network of timm at the size of its published weights."""
    return SIZES | {name: (side,) for name, side in library_models.timm_sizes().items() if name not in SIZES}


def factory(name: str) -> Callable[[], Any]:
    """Function that builds the module without weights."""
    family = next((family for family in FAMILIES if name in family.SIZES), None)
    return lambda: family.network(name) if family else library_models.timm_model(name)


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


def affine(size: int, padding: int = 0) -> Any:
    """n, or (a, b) with a + b * batch, from the size at the batch; `padding` is the largest a."""
    slope, rest = divmod(size + padding, BATCH)
    return (rest - padding, slope) if slope and rest <= 2 * padding else size


def added(sizes: Iterable[Any]) -> Any:
    """Sum of sizes, each n or (a, b)."""
    pairs = [(size, 0) if isinstance(size, int) else size for size in sizes]
    base, slope = (sum(pair[number] for pair in pairs) for number in (0, 1))
    return (base, slope) if slope else base


def moves(run: ModuleTrace) -> list[tuple[int, int]]:
    """Allocations and frees; simultaneous frees are sorted by age, since autocast frees its copies in hash-table order."""
    groups = groupby(run.events, key=lambda event: event[1] > 0)
    return [event for born, group in groups for event in (group if born else sorted(group, reverse=True))]


def operands(run: ModuleTrace, width: int) -> dict[int, Any]:
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
            bytes_by_id[id] = added(affine(width * prod(shape)) for shape in (*others, weight))
    return bytes_by_id


VIEWS = frozenset(
    f"aten.{name}"
    for name in "view _unsafe_view t transpose permute expand unsqueeze squeeze select slice split split_with_sizes unbind "
    "as_strided alias detach chunk unfold".split()
)


def called(run: ModuleTrace) -> list[Any]:
    """Operators without repeats; views cost nothing but the call, so their shapes are left out."""
    counts: dict[str, int] = {}
    operators: dict[str, Any] = {}
    for one in run.operators:
        shapes: list[Any] = [[], []]
        if one.name.rpartition(".")[0] not in VIEWS:
            shapes = [[[affine(dim) for dim in shape] for shape in side] for side in (one.inputs, one.outputs)]
        row = [one.phase, one.name, one.dtype, *shapes, dict(one.attributes)]
        key = repr(row)
        counts[key] = counts.get(key, 0) + 1
        operators.setdefault(key, row)
    return [[*row[:3], counts[key], *row[3:]] for key, row in operators.items()]


def traced_pass(run: ModuleTrace, kinds: Kinds, width: int) -> dict[str, Any]:
    """Encode one pass."""
    workspaces = operands(run, width)
    births: dict[int, int] = {}
    written = []
    for id, size in moves(run):
        if size > 0:
            label = run.labels[id]
            bytes_ = affine(size, MAX_PADDING if label == "temporary" else 0)
            if label == "activations" and isinstance(bytes_, int) and run.makers[id] == "aten._to_copy.default":
                label = "cast_weights"
            births[id] = len(births)
            written.append(2 * kinds.number(label, bytes_, workspaces.get(id, 0)))
        else:
            written.append(2 * (len(births) - 1 - births[id]) + 1)
    operators = json.dumps(called(run), separators=(",", ":"))
    return {"before": run.marks["forward 0"], "moves": written, "operators": operators}


def fingerprint(run: ModuleTrace) -> str:
    """Digest of a run's operators and allocations: networks with the same one differ in nothing but their weights' values."""
    operators = [(one.name, one.inputs, one.outputs, sorted(one.attributes.items())) for one in run.operators]
    return sha256(repr((run.parameters, run.trainable, run.events, operators)).encode()).hexdigest()


class NetworkRuns:
    """Runs of one network at an image size, built once: copies serve mixed precision, whose runs change the module."""

    def __init__(self, name: str, image: int) -> None:
        self._name, self._image = name, image
        self._flat = len(SHAPES[name](image)) == 3 if name in SHAPES else True  # volumes keep their memory format
        with load_torch().device("meta"):
            self._module = factory(name)()
        self._fresh = deepcopy(self._module)

    def run(self, batch: int, precision: str, training: bool) -> ModuleTrace:
        """Trace one step or forward pass."""
        module = deepcopy(self._fresh) if precision.startswith("amp") else self._module
        for parameter in module.parameters():
            parameter.grad = None
        gc.collect()
        return trace(
            lambda: module,
            pictures(self._name, self._image, batch),
            precision=precision,
            training=training,
            optimizer="none",
            steps=1,
            channels_last=self._flat,
            loss=loss,
        )

    def table(self, checked: ModuleTrace) -> dict[str, Any]:
        """Table of the network; `checked` is its forward pass in fp32 at the small batch."""
        runs = {}
        for key in ("fp32", "amp", "bf16"):  # The module itself becomes bf16 last.
            for mode in ("train", "infer"):
                runs[f"{mode}/{key}"] = self.run(BATCH, PRECISIONS[key], mode == "train")
        kinds = Kinds()
        names = [f"{mode}/{key}" for mode in ("train", "infer") for key in PRECISIONS]
        passes = {name: traced_pass(runs[name], kinds, WIDTHS[name.partition("/")[2]]) for name in names}
        check(passes["infer/fp32"], kinds, checked, self._name)
        return {"parameters": checked.parameters, "kinds": [list(kind) for kind in kinds.known], "passes": passes}


def check(one: dict[str, Any], kinds: Kinds, run: ModuleTrace, name: str) -> None:
    """Verify the table's sizes at the small batch against a trace."""
    sizes = [size if isinstance(size, int) else size[0] + size[1] * CHECKED_BATCH for _, size, _ in kinds.known]
    expected = [sizes[move // 2] for move in one["moves"] if not move % 2]
    measured = [size for _, size in moves(run) if size > 0]
    if expected != measured:
        raise ValueError(f"{name}: sizes are not affine in the batch")
