"""YOLO detectors for the tracer (versions 5, 8 and 11), without matching and suppression of boxes.

Blocks, widths and depths are those of the published model files of Ultralytics (yolov5*.yaml, yolov8.yaml, yolo11.yaml); the
number of parameters of each network is checked against the published one when it is built.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from whichgpu.estimate.trace.framework import load_torch

CLASSES = 80
BINS = 16  # Bins per box side of version 8 and later (distribution focal loss).
# Depth multiple, width multiple, most channels, and parameters by version and size.
SCALES: dict[str, dict[str, tuple[float, float, int, int]]] = {
    "yolov5": {
        "n": (0.33, 0.25, 1024, 1_872_157),
        "s": (0.33, 0.50, 1024, 7_235_389),
        "m": (0.67, 0.75, 1024, 21_190_557),
        "l": (1.00, 1.00, 1024, 46_563_709),
        "x": (1.33, 1.25, 1280, 86_749_405),
    },
    "yolov8": {
        "n": (0.33, 0.25, 1024, 3_157_200),
        "s": (0.33, 0.50, 1024, 11_166_560),
        "m": (0.67, 0.75, 768, 25_902_640),
        "l": (1.00, 1.00, 512, 43_691_520),
        "x": (1.00, 1.25, 512, 68_229_648),
    },
    "yolo11": {
        "n": (0.50, 0.25, 1024, 2_624_080),
        "s": (0.50, 0.50, 1024, 9_458_752),
        "m": (0.50, 1.00, 512, 20_114_688),
        "l": (1.00, 1.00, 512, 25_372_160),
        "x": (1.00, 1.50, 512, 56_966_176),
    },
}
SIZES: dict[str, tuple[int, ...]] = {version + size: (640,) for version, sizes in SCALES.items() for size in sizes}


def network(name: str) -> Any:
    """Build the network of that name without weights."""
    version, size = name[:-1], name[-1]
    depth, width, most, parameters = SCALES[version][size]
    built = _detector(version, depth, width, most, wide=size in "mlx")
    counted = sum(parameter.numel() for parameter in built.parameters())
    if counted != parameters:
        raise ValueError(f"{name} has {counted} parameters instead of {parameters}")
    return built


def _conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, act: bool = True, pad: int = -1) -> Any:
    nn = load_torch().nn
    padding = kernel // 2 if pad < 0 else pad
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False), nn.BatchNorm2d(outputs, eps=1e-3)]
    return nn.Sequential(*layers, *([nn.SiLU(inplace=True)] if act else []))


def _residual(inner: Any) -> Any:
    class Residual(load_torch().nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return x + self.inner(x)

    return Residual()


def _bottleneck(width: int, shortcut: bool, kernels: tuple[int, int] = (3, 3), share: float = 1.0) -> Any:
    hidden = int(width * share)
    inner = load_torch().nn.Sequential(_conv(width, hidden, kernels[0]), _conv(hidden, width, kernels[1]))
    return _residual(inner) if shortcut else inner


def _c3(inputs: int, outputs: int, count: int, shortcut: bool, kernels: tuple[int, int] = (1, 3)) -> Any:
    """CSP block with three convolutions of versions 5 and 11."""
    torch = load_torch()
    hidden = outputs // 2

    class C3(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = _conv(inputs, hidden), _conv(inputs, hidden), _conv(2 * hidden, outputs)
            self.blocks = torch.nn.Sequential(*(_bottleneck(hidden, shortcut, kernels) for _ in range(count)))

        def forward(self, x: Any) -> Any:
            return self.last(torch.cat((self.blocks(self.first(x)), self.second(x)), 1))

    return C3()


def _c2f(inputs: int, outputs: int, blocks: list[Any], hidden: int) -> Any:
    """CSP block that keeps the output of each inner block, of versions 8 and 11."""
    torch = load_torch()

    class C2f(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = _conv(inputs, 2 * hidden), _conv((2 + len(blocks)) * hidden, outputs)
            self.blocks = torch.nn.ModuleList(blocks)

        def forward(self, x: Any) -> Any:
            parts = list(self.first(x).chunk(2, 1))
            for block in self.blocks:
                parts.append(block(parts[-1]))
            return self.last(torch.cat(parts, 1))

    return C2f()


def _sppf(width: int) -> Any:
    """Three max poolings of five pixels one after another, concatenated."""
    torch = load_torch()

    class Sppf(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = _conv(width, width // 2), _conv(2 * width, width)
            self.pool = torch.nn.MaxPool2d(5, 1, 2)

        def forward(self, x: Any) -> Any:
            parts = [self.first(x)]
            for _ in range(3):
                parts.append(self.pool(parts[-1]))
            return self.last(torch.cat(parts, 1))

    return Sppf()


def _attention(width: int) -> Any:
    """Attention over all positions of a map with heads of 64 channels and keys of half as many (version 11)."""
    torch = load_torch()
    heads = width // 64

    class Attention(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.last = _conv(width, 2 * width, act=False), _conv(width, width, act=False)
            self.positions = _conv(width, width, 3, groups=width, act=False)

        def forward(self, x: Any) -> Any:
            batch, channels, high, wide = x.shape
            q, k, v = self.qkv(x).view(batch, heads, 128, high * wide).split([32, 32, 64], 2)
            weights = ((q.transpose(-2, -1) @ k) * 32**-0.5).softmax(-1)
            mixed = (v @ weights.transpose(-2, -1)).view(batch, channels, high, wide)
            return self.last(mixed + self.positions(v.reshape(batch, channels, high, wide)))

    return Attention()


def _c2psa(width: int, count: int) -> Any:
    """CSP block with attention at the end of version 11's backbone."""
    torch = load_torch()
    hidden = width // 2

    class C2psa(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = _conv(width, width), _conv(width, width)
            ffn = lambda: torch.nn.Sequential(_conv(hidden, 2 * hidden), _conv(2 * hidden, hidden, act=False))  # noqa: E731
            blocks = [block for _ in range(count) for block in (_residual(_attention(hidden)), _residual(ffn()))]
            self.blocks = torch.nn.Sequential(*blocks)

        def forward(self, x: Any) -> Any:
            kept, mixed = self.first(x).chunk(2, 1)
            return self.last(torch.cat((kept, self.blocks(mixed)), 1))

    return C2psa()


def _head(version: str, widths: list[int]) -> Any:
    """Return the head: boxes with four values (anchors) or four times sixteen bins, and scores, as two tensors."""
    torch = load_torch()
    nn = torch.nn

    class Anchored(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.maps = nn.ModuleList(nn.Conv2d(width, 3 * (CLASSES + 5), 1) for width in widths)

        def forward(self, maps: list[Any]) -> Any:
            rows = [
                head(x).reshape(x.shape[0], 3, CLASSES + 5, -1).permute(0, 1, 3, 2).reshape(x.shape[0], -1, CLASSES + 5)
                for head, x in zip(self.maps, maps, strict=True)
            ]
            return [torch.cat(rows, 1)]

    class Free(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            boxes, scores = max(16, widths[0] // 4, BINS * 4), max(widths[0], min(CLASSES, 100))
            self.boxes = nn.ModuleList(
                nn.Sequential(_conv(width, boxes, 3), _conv(boxes, boxes, 3), nn.Conv2d(boxes, 4 * BINS, 1)) for width in widths
            )
            self.scores = nn.ModuleList(nn.Sequential(*self.scored(width, scores)) for width in widths)
            self.bins = nn.Conv2d(BINS, 1, 1, bias=False)

        def scored(self, width: int, scores: int) -> list[Any]:
            if version == "yolov8":
                layers = [_conv(width, scores, 3), _conv(scores, scores, 3)]
            else:
                layers = [_conv(width, width, 3, groups=width), _conv(width, scores)]
                layers += [_conv(scores, scores, 3, groups=scores), _conv(scores, scores)]
            return [*layers, nn.Conv2d(scores, CLASSES, 1)]

        def forward(self, maps: list[Any]) -> Any:
            pairs = zip(self.boxes, self.scores, maps, strict=True)
            rows = [torch.cat((boxes(x), scores(x)), 1).flatten(2) for boxes, scores, x in pairs]
            boxes, scores = torch.cat(rows, 2).split((4 * BINS, CLASSES), 1)
            if self.training:
                return [boxes.transpose(1, 2), scores.transpose(1, 2)]
            bins = boxes.view(boxes.shape[0], 4, BINS, -1).transpose(2, 1).softmax(1)
            return [self.bins(bins).flatten(1, 2).transpose(1, 2), scores.sigmoid().transpose(1, 2)]

    return Anchored() if version == "yolov5" else Free()


def _detector(version: str, depth: float, width: float, most: int, *, wide: bool) -> Any:
    torch = load_torch()
    nn = torch.nn

    def channels(count: int) -> int:
        return ceil(min(count, most) * width / 8) * 8

    def repeats(count: int) -> int:
        return max(round(count * depth), 1) if count > 1 else count

    def block(inputs: int, outputs: int, count: int, shortcut: bool, *, nested: bool = False, share: float = 0.5) -> Any:
        if version == "yolov5":
            return _c3(inputs, outputs, count, shortcut)
        if version == "yolov8":
            return _c2f(inputs, outputs, [_bottleneck(outputs // 2, shortcut) for _ in range(count)], outputs // 2)
        hidden = int(outputs * share)
        nested = nested or wide
        inner = [_c3(hidden, hidden, 2, True, (3, 3)) if nested else _bottleneck(hidden, True, share=0.5) for _ in range(count)]
        return _c2f(inputs, outputs, inner, hidden)

    eleven = version == "yolo11"
    one, two, three, four, five = (channels(count) for count in (64, 128, 256, 512, 1024))
    stem = _conv(3, one, 6, 2, pad=2) if version == "yolov5" else _conv(3, one, 3, 2)
    counts = (2, 2, 2, 2) if eleven else (3, 6, 9, 3) if version == "yolov5" else (3, 6, 6, 3)
    counts = tuple(repeats(count) for count in counts)
    neck = repeats(2 if eleven else 3)

    class Yolo(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            early = three if eleven else two  # Version 11 widens its first blocks at once.
            late = four if eleven else three
            self.early = nn.Sequential(stem, _conv(one, two, 3, 2), block(two, early, counts[0], True, share=0.25))
            self.small = nn.Sequential(_conv(early, three, 3, 2), block(three, late, counts[1], True, share=0.25))
            self.middle = nn.Sequential(_conv(late, four, 3, 2), block(four, four, counts[2], True, nested=True))
            large = [_conv(four, five, 3, 2), block(five, five, counts[3], True, nested=True), _sppf(five)]
            self.large = nn.Sequential(*large, *([_c2psa(five, counts[3])] if eleven else []))
            self.up = nn.Upsample(scale_factor=2, mode="nearest")
            if version == "yolov5":
                self.narrow_large, self.narrow_middle = _conv(five, four), _conv(four, three)
                sums = 2 * four, 2 * three, 2 * three, 2 * four
            else:
                self.narrow_large, self.narrow_middle = nn.Identity(), nn.Identity()
                sums = five + four, four + late, three + four, four + five
            self.down_middle = block(sums[0], four, neck, False)
            self.out_small = block(sums[1], three, neck, False)
            self.shrink_small, self.shrink_middle = _conv(three, three, 3, 2), _conv(four, four, 3, 2)
            self.out_middle = block(sums[2], four, neck, False)
            self.out_large = block(sums[3], five, neck, False, nested=True)
            self.head = _head(version, [three, four, five])

        def forward(self, x: Any) -> Any:
            small = self.small(self.early(x))
            middle = self.middle(small)
            large = self.narrow_large(self.large(middle))
            inner = self.narrow_middle(self.down_middle(torch.cat((self.up(large), middle), 1)))
            fine = self.out_small(torch.cat((self.up(inner), small), 1))
            coarse = self.out_middle(torch.cat((self.shrink_small(fine), inner), 1))
            return self.head([fine, coarse, self.out_large(torch.cat((self.shrink_middle(coarse), large), 1))])

    return Yolo()
