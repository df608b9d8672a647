"""Vision models with random weights: torchvision's if installed, else our own ResNets."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from whichgpu.base.messages import msg
from whichgpu.measure.bench.case import CannotRun

# Number of blocks in each stage, and whether they are bottlenecks (arXiv 1512.03385).
RESNETS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
    "resnet152": ((3, 8, 36, 3), True),
}


def vision_model(torch: Any, name: str) -> Any:
    """Build a vision model with random weights, as a torch module that maps images to class logits."""
    try:
        models = import_module("torchvision.models")
    except Exception:  # torchvision is missing or built for another torch.
        if name in RESNETS:
            return residual_network(torch, *RESNETS[name])
        raise CannotRun(msg("verify.no-torchvision", model=name)) from None
    try:
        return models.get_model(name.removeprefix("torchvision:"), weights=None)
    except (ValueError, KeyError):
        raise CannotRun(msg("verify.model", model=name)) from None


def residual_network(torch: Any, stages: tuple[int, ...], bottleneck: bool) -> Any:
    """Build a ResNet with these numbers of blocks per stage, strides in the 3x3 convolutions, as a torch module."""
    nn = torch.nn
    module: Any = nn.Module

    def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[Any]:
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]

    class ResidualBlock(module):  # type: ignore[misc]
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            outputs = 4 * width if bottleneck else width
            relu = nn.ReLU(inplace=True)
            if bottleneck:
                parts = [*conv(inputs, width, 1), relu, *conv(width, width, 3, stride), relu, *conv(width, outputs, 1)]
            else:
                parts = [*conv(inputs, width, 3, stride), relu, *conv(width, outputs, 3)]
            self.body = nn.Sequential(*parts)
            self.beside = nn.Sequential(*conv(inputs, outputs, 1, stride)) if stride > 1 or inputs != outputs else nn.Identity()
            self.relu = relu

        def forward(self, x: Any) -> Any:
            out = self.body(x)
            out += self.beside(x)
            return self.relu(out)

    layers = [*conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(stages):
        width = 64 << stage
        for place in range(count):
            layers.append(ResidualBlock(inputs, width, 2 if stage and not place else 1))
            inputs = 4 * width if bottleneck else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))
