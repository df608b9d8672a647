"""Classifiers of benchmarks that neither torchvision nor timm has, from their papers.

AlexNet of "one weird trick" and VGG-A are torchvision's alexnet and vgg11.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from whichgpu.estimate.trace.framework import load_torch, load_torchvision

SIZES: dict[str, tuple[int, ...]] = {
    "inception_bn": (224,),
    "googlenet_v1": (224,),
    "overfeat_fast": (231,),
    "alexnet_one_tower": (224,),
    "efficientnet_widese_b0": (224,),
    "efficientnet_widese_b4": (380,),
}
CLASSES = 1000


def network(name: str) -> Any:
    """Build the network of that name without weights."""
    return NETWORKS[name]() if name in NETWORKS else efficientnet_widese(name)


def convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, *, padding: int | None = None, norm: bool = False
) -> Any:
    """Convolution with bias, optional batch normalisation, and ReLU."""
    nn = load_torch().nn
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2 if padding is None else padding)]
    if norm:
        layers.append(nn.BatchNorm2d(outputs))
    return nn.Sequential(*layers, nn.ReLU(inplace=True))


def concatenated(*branches: Any) -> Any:
    """Parallel branches with concatenated channels."""
    torch = load_torch()

    class Branches(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.branches = torch.nn.ModuleList(branches)

        def forward(self, x: Any) -> Any:
            return torch.cat([branch(x) for branch in self.branches], 1)

    return Branches()


def googlenet_v1() -> Any:
    """GoogLeNet of arXiv 1409.4842 without its auxiliary heads and local response normalisation, as benchmarks run it."""
    nn = load_torch().nn
    # 1x1; 3x3 after its reduction; 5x5 after its reduction; projection of the pool (table 1 of the paper)
    stages = (
        ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
        (
            (192, 96, 208, 16, 48, 64),
            (160, 112, 224, 24, 64, 64),
            (128, 128, 256, 24, 64, 64),
            (112, 144, 288, 32, 64, 64),
            (256, 160, 320, 32, 128, 128),
        ),
        ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
    )
    layers = [convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, ceil_mode=True), convolution(64, 64, 1), convolution(64, 192, 3)]
    width = 192
    for stage in stages:
        layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        for one, reduced3, three, reduced5, five, pooled in stage:
            layers.append(
                concatenated(
                    convolution(width, one, 1),
                    nn.Sequential(convolution(width, reduced3, 1), convolution(reduced3, three, 3)),
                    nn.Sequential(convolution(width, reduced5, 1), convolution(reduced5, five, 5)),
                    nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(width, pooled, 1)),
                )
            )
            width = one + three + five + pooled
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def inception_bn() -> Any:
    """Inception with batch normalisation, arXiv 1502.03167, in the sizes of MXNet's example."""
    nn = load_torch().nn
    # 1x1; 3x3 after its reduction; double 3x3 after its reduction; projection of the pool. Those without 1x1 halve the sides.
    modules = (
        (64, 64, 64, 64, 96, 32),
        (64, 64, 96, 64, 96, 64),
        (0, 128, 160, 64, 96, 0),
        (224, 64, 96, 96, 128, 128),
        (192, 96, 128, 96, 128, 128),
        (160, 128, 160, 128, 160, 128),
        (96, 128, 192, 160, 192, 128),
        (0, 128, 192, 192, 256, 0),
        (352, 192, 320, 160, 224, 128),
        (352, 192, 320, 192, 224, 128),
    )
    layers = [convolution(3, 64, 7, 2, norm=True), nn.MaxPool2d(3, 2)]
    layers += [convolution(64, 64, 1, norm=True), convolution(64, 192, 3, norm=True), nn.MaxPool2d(3, 2)]
    width = 192
    for number, (one, reduced, three, reduced_twice, twice, pooled) in enumerate(modules):
        stride = 1 if one else 2
        branches = [
            nn.Sequential(convolution(width, reduced, 1, norm=True), convolution(reduced, three, 3, stride, norm=True)),
            nn.Sequential(
                convolution(width, reduced_twice, 1, norm=True),
                convolution(reduced_twice, twice, 3, norm=True),
                convolution(twice, twice, 3, stride, norm=True),
            ),
        ]
        if one:
            pool = nn.MaxPool2d(3, 1, 1) if number == len(modules) - 1 else nn.AvgPool2d(3, 1, 1)
            branches.insert(0, convolution(width, one, 1, norm=True))
            branches.append(nn.Sequential(pool, convolution(width, pooled, 1, norm=True)))
        else:
            branches.append(nn.MaxPool2d(3, 2, 1))
        layers.append(concatenated(*branches))
        width = one + three + twice + (pooled if one else width)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def overfeat_fast() -> Any:
    """The fast network of OverFeat, arXiv 1312.6229, table 1."""
    nn = load_torch().nn
    return nn.Sequential(
        convolution(3, 96, 11, 4, padding=0),
        nn.MaxPool2d(2),
        convolution(96, 256, 5, padding=0),
        nn.MaxPool2d(2),
        convolution(256, 512, 3),
        convolution(512, 1024, 3),
        convolution(1024, 1024, 3),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024 * 6 * 6, 3072),
        nn.ReLU(inplace=True),
        nn.Linear(3072, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, CLASSES),
    )


def alexnet_one_tower() -> Any:
    """AlexNet of 2012 with its two towers merged, as in MXNet's example."""
    nn = load_torch().nn
    hidden = [
        layer for i, o in ((6400, 4096), (4096, 4096)) for layer in (nn.Linear(i, o), nn.ReLU(inplace=True), nn.Dropout(0.5))
    ]
    return nn.Sequential(
        convolution(3, 96, 11, 4, padding=0),
        nn.MaxPool2d(3, 2),
        nn.LocalResponseNorm(5),
        convolution(96, 256, 5),
        nn.MaxPool2d(3, 2),
        nn.LocalResponseNorm(5),
        convolution(256, 384, 3),
        convolution(384, 384, 3),
        convolution(384, 256, 3),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        *hidden,
        nn.Linear(4096, CLASSES),
    )


NETWORKS = {
    "inception_bn": inception_bn,
    "googlenet_v1": googlenet_v1,
    "overfeat_fast": overfeat_fast,
    "alexnet_one_tower": alexnet_one_tower,
}


def efficientnet_widese(name: str) -> Any:
    """NVIDIA's "widese" EfficientNet: squeeze-and-excitation a quarter as wide as the expanded channels, not the input."""
    efficientnet = load_torchvision().models.efficientnet
    width, depth, dropout = {"efficientnet_widese_b0": (1.0, 1.0, 0.2), "efficientnet_widese_b4": (1.4, 1.8, 0.4)}[name]

    def wide(channels: int, _: int, **options: Any) -> Any:
        return efficientnet.SqueezeExcitation(channels, max(1, channels // 4), **options)

    stages, last = efficientnet._efficientnet_conf("efficientnet_b0", width_mult=width, depth_mult=depth)
    for stage in stages:
        stage.block = partial(efficientnet.MBConv, se_layer=wide)
    return efficientnet.EfficientNet(stages, dropout, last_channel=last)
