"""Write the operator tables of vision models: catalog/data/operator_tables.bin.

Run where torch and torchvision are installed (their CPU builds will do), with src on the path:

    PYTHONPATH=src python tools/trace_vision.py              every model; some minutes
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

import diffusion_models

from whichgpu.estimate.trace import Operator, Trace, images, trace
from whichgpu.estimate.trace.framework import load_torch, load_torchvision
from whichgpu.workload.tables import TABLES_FILE, decode_blocks, encode_tables

BATCHES = 2, 3
CHECKED_AT = 5
PRECISIONS = {"fp32": "fp32", "amp": "amp-bf16", "bf16": "bf16"}
WIDTHS = {"fp32": 4, "amp": 2, "bf16": 2}  # bytes of a convolution's operands
CHECKED = ("train/amp", "infer/amp")

# Image sizes, the usual one first: what the published weights were evaluated at; and 224, which many benchmarks use throughout.
TORCHVISION: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        "alexnet vgg11 vgg16 vgg19 resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d resnext101_32x8d "
        "wide_resnet50_2 wide_resnet101_2 googlenet densenet121 densenet169 densenet201 mobilenet_v2 mobilenet_v3_large "
        "mobilenet_v3_small efficientnet_b0 regnet_y_400mf regnet_y_8gf regnet_y_16gf convnext_tiny convnext_small "
        "convnext_base convnext_large swin_t swin_s swin_b vit_b_16 vit_b_32 vit_l_16 squeezenet1_1 shufflenet_v2_x1_0".split(),
        (224,),
    ),
    "inception_v3": (299,),
    "efficientnet_b1": (240, 224),
    "efficientnet_b2": (288, 224),
    "efficientnet_b3": (300, 224),
    "efficientnet_b4": (380, 224),
    "efficientnet_b5": (456, 224),
    "efficientnet_b6": (528, 224),
    "efficientnet_b7": (600, 224),
    "efficientnet_v2_s": (384, 224),
    "efficientnet_v2_m": (480, 224),
}
OTHERS: dict[str, tuple[int, ...]] = {"ssd300_vgg16": (300,), "unet": (256,)}
SIZES = TORCHVISION | OTHERS | diffusion_models.SIZES  # the last need the diffusers package too


def factory(name: str) -> Callable[[], Any]:
    """What makes the module, without weights."""
    if name in diffusion_models.SIZES:
        return lambda: diffusion_models.diffusion(name)
    models = load_torchvision().models
    if name == "unet":
        return lambda: unet()
    if name == "ssd300_vgg16":
        return lambda: ssd(models)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    if name.startswith("regnet"):  # reads its own widths back from a tensor, so it has to be made where tensors have bytes
        return lambda: on_meta(lambda: getattr(models, name)(**options))
    return lambda: getattr(models, name)(**options)


def on_meta(make: Callable[[], Any]) -> Any:
    """A module made on the cpu, then stripped of its bytes."""
    with load_torch().device("cpu"):
        module = make()
    return module.to("meta")


def ssd(models: Any) -> Any:
    """Backbone and head of SSD on tensors; matching of boxes is left out, it holds next to nothing."""
    torch = load_torch()
    whole = models.detection.ssd300_vgg16(weights=None, weights_backbone=None)

    class Ssd(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = whole.backbone, whole.head

        def forward(self, pictures: Any) -> Any:
            found = self.head(list(self.backbone(pictures).values()))
            return [found["bbox_regression"], found["cls_logits"].transpose(1, 2)]

    return Ssd()


def unet(base: int = 64, classes: int = 2) -> Any:
    """The U-Net of arXiv 1505.04597 with padding and batch normalisation, as it is used today."""
    torch = load_torch()
    nn = torch.nn

    def double(inputs: int, outputs: int) -> Any:
        layers = []
        for width in (inputs, outputs):
            layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    class Unet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            widths = [base * 2**level for level in range(5)]
            self.down = nn.ModuleList(double(i, o) for i, o in zip([3, *widths], widths, strict=False))
            pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
            self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, stride=2) for i, o in pairs)
            self.merge = nn.ModuleList(double(2 * o, o) for _, o in pairs)
            self.head = nn.Conv2d(base, classes, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for level, block in enumerate(self.down):
                x = block(nn.functional.max_pool2d(x, 2) if level else x)
                kept.append(x)
            kept.pop()
            for up, merge in zip(self.up, self.merge, strict=True):
                x = merge(torch.cat([kept.pop(), up(x)], 1))
            return self.head(x)

    return Unet()


def loss(output: Any) -> Any:
    """Cross-entropy over classes, the auxiliary heads' too; a plain mean for anything else."""
    torch = load_torch()
    items = output if isinstance(output, tuple | list) else [output]
    terms = []
    for item in items:
        if item is None:
            continue
        labels = torch.zeros((item.shape[0], *item.shape[2:]), dtype=torch.int64, device=item.device)
        scores = item.dim() != 3 or item.shape[1] == 91
        terms.append(
            torch.nn.functional.cross_entropy(item, labels) if scores else torch.nn.functional.smooth_l1_loss(item, item)
        )
    return sum(terms)


class Kinds:
    """Numbers the kinds of allocation of a model in order of first sight."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], int] = {}

    def number(self, label: str, size: Any, operands: Any) -> int:
        """The number of a kind."""
        return self.known.setdefault((label, size, operands), len(self.known))


def affine(values: Iterable[int]) -> Any:
    """n, or (a, b), through what was seen at the two batch sizes."""
    first, second = values
    slope, rest = divmod(second - first, BATCHES[1] - BATCHES[0])
    assert rest == 0, values
    return (first - slope * BATCHES[0], slope) if slope else first


def moves(run: Trace) -> list[tuple[int, int]]:
    """Births and deaths; those dying together by age, since autocast drops its copies in the order of a hash table."""
    groups = groupby(run.events, key=lambda event: event[1] > 0)
    return [event for born, group in groups for event in (group if born else sorted(group, reverse=True))]


def operands(run: Trace, width: int) -> dict[int, int]:
    """Bytes of input, output and filter by the id a dense convolution wider than 1x1 made (not its bias)."""
    calls = [operator for operator in run.operators if operator.name.startswith("aten.convolution")]
    born = [id for id, size in run.events if size > 0 and run.makers[id].startswith("aten.convolution")]
    made = [(operator, shape) for operator in calls for shape in operator.outputs]
    assert len(made) == len(born), (len(made), len(born))
    found = {}
    for id, (operator, shape) in zip(born, made, strict=True):
        weight = operator.inputs[2 if "backward" in operator.name else 1]
        if len(shape) == 4 and operator.attributes["groups"] == 1 and prod(weight[2:]) > 1:
            others = operator.inputs[0], operator.inputs[1] if "backward" in operator.name else operator.outputs[0]
            found[id] = width * (prod(others[0]) + prod(others[1]) + prod(weight))
    return found


VIEWS = frozenset(
    f"aten.{name}"
    for name in "view _unsafe_view t transpose permute expand unsqueeze squeeze select slice split split_with_sizes unbind "
    "as_strided alias detach chunk unfold".split()
)


def called(runs: tuple[Trace, ...]) -> list[Any]:
    """Operators without repeats; views cost nothing but the call, so their shapes are left out."""
    counts: dict[str, int] = {}
    known: dict[str, Any] = {}
    for pair in zip(*(run.operators for run in runs), strict=True):
        one: Operator = pair[0]
        shapes: list[Any] = [[], []]
        if one.name.rpartition(".")[0] not in VIEWS:
            shapes = [
                [[affine(dims) for dims in zip(*same, strict=True)] for same in zip(*sides, strict=True)]
                for sides in ([o.inputs for o in pair], [o.outputs for o in pair])
            ]
        row = [one.phase, one.name, one.dtype, *shapes, dict(one.attributes)]
        key = repr(row)
        counts[key] = counts.get(key, 0) + 1
        known.setdefault(key, row)
    return [[*row[:3], counts[key], *row[3:]] for key, row in known.items()]


def traced_pass(runs: tuple[Trace, ...], kinds: Kinds, width: int) -> dict[str, Any]:
    """One pass as the file has it."""
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
    """The block of a model at an image size."""
    make, kinds = factory(name), Kinds()
    passes: dict[str, Any] = {}
    for training in (True, False):
        for key, precision in PRECISIONS.items():
            pass_name = f"{'train' if training else 'infer'}/{key}"

            def run(batch: int, precision: str = precision, training: bool = training) -> Trace:
                options = {"optimizer": "none", "steps": 1, "channels_last": True, "loss": loss}
                return trace(make, images(batch, image), precision=precision, training=training, **options)

            runs = tuple(run(batch) for batch in BATCHES)
            passes[pass_name] = traced_pass(runs, kinds, WIDTHS[key])
            if pass_name in CHECKED:
                check(passes[pass_name], kinds, run(CHECKED_AT), name)
    return {"parameters": runs[0].parameters, "kinds": [list(kind) for kind in kinds.known], "passes": passes}


def check(one: dict[str, Any], kinds: Kinds, run: Trace, name: str) -> None:
    """Sizes read from the table at a third batch size are those traced."""
    known = [size if isinstance(size, int) else size[0] + size[1] * CHECKED_AT for _, size, _ in kinds.known]
    told = [known[move // 2] for move in one["moves"] if not move % 2]
    seen = [size for _, size in moves(run) if size > 0]
    if told != seen:
        raise ValueError(f"{name}: sizes are not affine in the batch")


def _job(task: tuple[str, int]) -> tuple[str, dict[str, Any] | str]:
    try:
        return f"{task[0]}@{task[1]}", table(*task)
    except Exception as problem:  # one model that cannot be traced must not cost the others
        return f"{task[0]}@{task[1]}", repr(problem)


def _write(blocks: dict[str, Any]) -> None:
    ordered = {key: blocks[key] for name, sizes in SIZES.items() for image in sizes if (key := f"{name}@{image}") in blocks}
    versions = {package: version(package) for package in ("torch", "torchvision")}
    TABLES_FILE.write_bytes(encode_tables(ordered, date.today().isoformat(), versions))


def main() -> int:
    """Trace the models asked for and write the file; 1 where one could not be traced."""
    parser = argparse.ArgumentParser(description="Write the operator tables.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    wanted = parser.parse_args()
    if unknown := set(wanted.names) - set(SIZES):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    tasks = [(name, image) for name in wanted.names or SIZES for image in SIZES[name]]
    blocks = decode_blocks(TABLES_FILE.read_bytes()) if wanted.names and TABLES_FILE.exists() else {}
    failed = 0
    with ProcessPoolExecutor(wanted.jobs) as pool:
        for done in as_completed([pool.submit(_job, task) for task in tasks]):
            key, block = done.result()
            if isinstance(block, str):
                failed += 1
                print(f"{key}\tfailed: {block}", file=sys.stderr, flush=True)
                continue
            blocks[key] = block
            print(f"{key}\t{block['parameters']}\t{sum(len(one['moves']) for one in block['passes'].values())}", flush=True)
            if len(blocks) % 8 == 0:
                _write(blocks)
    _write(blocks)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
