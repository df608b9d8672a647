"""EfficientDet-D0, arXiv 1911.09070: EfficientNet-B0, three layers of BiFPN, separable heads."""

from __future__ import annotations

from typing import Any

from whichgpu.estimate.trace.framework import load_torch, load_torchvision

SIZES: dict[str, tuple[int, ...]] = {"efficientdet_d0": (512,)}
WIDTH, CELLS, DEPTH = 64, 3, 3  # of the pyramid and of the heads, by the paper's table 1
ANCHORS, CLASSES = 9, 90
TAPS = {3: 40, 5: 112, 7: 320}  # stages of the backbone that feed the pyramid, with their channels
LEVELS = 5


def network(_: str) -> Any:
    """Build the network without weights."""
    torch = load_torch()
    nn = torch.nn
    features = load_torchvision().models.efficientnet_b0().features[:8]

    class EfficientDet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.features = features
            self.coarse = nn.Sequential(nn.Conv2d(TAPS[7], WIDTH, 1), nn.BatchNorm2d(WIDTH), nn.MaxPool2d(3, 2, 1))
            self.coarser = nn.MaxPool2d(3, 2, 1)
            self.cells = nn.ModuleList(cell(first=number == 0) for number in range(CELLS))
            self.boxes, self.scores = head(4), head(CLASSES)

        def forward(self, x: Any) -> Any:
            maps = []
            for number, stage in enumerate(self.features):
                x = stage(x)
                if number in TAPS:
                    maps.append(x)
            maps.append(self.coarse(x))
            maps.append(self.coarser(maps[-1]))
            for one in self.cells:
                maps = one(maps)
            return [self.boxes(maps), self.scores(maps).transpose(1, 2)]

    return EfficientDet()


def separable(outputs: int, *, bias: bool) -> Any:
    """A depthwise 3x3 and a 1x1 convolution."""
    nn = load_torch().nn
    return nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH, bias=False), nn.Conv2d(WIDTH, outputs, 1, bias=bias))


def fused(inputs: int) -> Any:
    """Weighted sum of feature maps, activation and convolution."""
    torch = load_torch()
    nn = torch.nn

    class Fused(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.Parameter(torch.ones(inputs))
            self.after = nn.Sequential(nn.SiLU(inplace=True), separable(WIDTH, bias=True), nn.BatchNorm2d(WIDTH))

        def forward(self, *maps: Any) -> Any:
            weights = nn.functional.relu(self.weights)
            weights = weights / (weights.sum() + 1e-4)
            return self.after(sum(weights[number] * one for number, one in enumerate(maps)))

    return Fused()


def cell(*, first: bool) -> Any:
    """Layer of BiFPN: top-down, then bottom-up; the first also projects the backbone's maps to the pyramid's width."""
    nn = load_torch().nn

    def narrowed(channels: int) -> Any:
        return nn.Sequential(nn.Conv2d(channels, WIDTH, 1), nn.BatchNorm2d(WIDTH))

    class Cell(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            fine, middle, coarse = TAPS.values()
            # The middle maps enter twice, each time through a convolution of its own.
            self.down = nn.ModuleList(map(narrowed, (fine, middle, coarse))) if first else None
            self.again = nn.ModuleList(map(narrowed, (middle, coarse))) if first else None
            self.finer = nn.ModuleList(fused(2) for _ in range(LEVELS - 1))
            self.coarser = nn.ModuleList(fused(3 if number < LEVELS - 2 else 2) for number in range(LEVELS - 1))

        def forward(self, maps: list[Any]) -> list[Any]:
            outputs = list(maps)
            if self.down is not None:
                maps = [*(layer(x) for layer, x in zip(self.down, maps, strict=False)), *maps[3:]]
                outputs = [maps[0], *(layer(x) for layer, x in zip(self.again, outputs[1:3], strict=True)), *maps[3:]]
            up = [maps[-1]]
            for layer, x in zip(self.finer, maps[-2::-1], strict=True):
                up.insert(0, layer(x, nn.functional.interpolate(up[0], scale_factor=2, mode="nearest")))
            out = [up[0]]
            for level, layer in enumerate(self.coarser, 1):
                below = nn.functional.max_pool2d(out[-1], 3, 2, 1)
                out.append(layer(outputs[level], up[level], below) if level < LEVELS - 1 else layer(outputs[level], below))
            return out

    return Cell()


def head(values: int) -> Any:
    """Separable convolutions shared by all maps, each with a normalisation per map."""
    torch = load_torch()
    nn = torch.nn

    class Head(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(separable(WIDTH, bias=True) for _ in range(DEPTH))
            self.norms = nn.ModuleList(nn.ModuleList(nn.BatchNorm2d(WIDTH) for _ in range(LEVELS)) for _ in range(DEPTH))
            self.act = nn.SiLU(inplace=True)
            self.last = separable(ANCHORS * values, bias=True)

        def forward(self, maps: list[Any]) -> Any:
            outputs = []
            for level, x in enumerate(maps):
                for layer, norms in zip(self.layers, self.norms, strict=True):
                    x = self.act(norms[level](layer(x)))
                x = self.last(x)
                outputs.append(x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, values))
            return torch.cat(outputs, 1)

    return Head()
