"""Single-shot detectors for the tracer, without matching and sorting of boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whichgpu.estimate.trace.framework import load_torch, load_torchvision

SIZES: dict[str, tuple[int, ...]] = {
    "ssd300_vgg16": (300,),
    "ssd300_resnet50": (300,),
    "ssd_resnet34": (1200,),
}
ANCHORS = 4, 6, 6, 6, 4, 4  # boxes per position of each feature map
CLASSES = 81


def network(name: str) -> Any:
    """Build the network of that name without weights."""
    return NETWORKS[name](load_torchvision().models)


def detector(backbone: Any, head: Any) -> Any:
    """Detector of a backbone and a head; the scores have the classes as second dimension."""
    torch = load_torch()

    class Detector(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = backbone, head

        def forward(self, pictures: Any) -> Any:
            outputs = self.head(list(self.backbone(pictures).values()))
            return [outputs["bbox_regression"], outputs["cls_logits"].transpose(1, 2)]

    return Detector()


def ssd300_vgg16(models: Any) -> Any:
    """SSD, arXiv 1512.02325, from torchvision."""
    whole = models.detection.ssd300_vgg16(weights=None, weights_backbone=None)
    return detector(whole.backbone, whole.head)


def ssd(trunk: Any, extras: list[Any], widths: list[int], stride: int = 1) -> Any:
    """SSD on a ResNet backbone and further blocks, with 3x3 convolutions for boxes and scores on each feature map."""
    torch = load_torch()
    nn = torch.nn

    class Ssd(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.extras = trunk, nn.ModuleList(extras)
            self.boxes, self.scores = (
                nn.ModuleList(nn.Conv2d(w, n * outputs, 3, stride, 1) for w, n in zip(widths, ANCHORS, strict=True))
                for outputs in (4, CLASSES)
            )

        def forward(self, x: Any) -> Any:
            maps = [self.trunk(x)]
            for block in self.extras:
                maps.append(block(maps[-1]))
            boxes, scores = (
                torch.cat([h(m).reshape(m.shape[0], outputs, -1) for h, m in zip(heads, maps, strict=True)], 2)
                for outputs, heads in ((4, self.boxes), (CLASSES, self.scores))
            )
            return [boxes.transpose(1, 2), scores]

    return Ssd()


def resnet_trunk(whole: Any) -> Any:
    """ResNet up to its third stage, which keeps the resolution of the second."""
    nn = load_torch().nn
    for part in whole.layer3[0].modules():
        if isinstance(part, nn.Conv2d):
            part.stride = (1, 1)
    return nn.Sequential(whole.conv1, whole.bn1, whole.relu, whole.maxpool, whole.layer1, whole.layer2, whole.layer3)


def shrinking(inputs: int, middle: int, outputs: int, stride: int, padding: int, *, norm: bool) -> Any:
    """Extra block of SSD: a 1x1, then a 3x3 convolution."""
    nn = load_torch().nn
    layers = []
    for convolution in (
        nn.Conv2d(inputs, middle, 1, bias=not norm),
        nn.Conv2d(middle, outputs, 3, stride, padding, bias=not norm),
    ):
        layers += [convolution, *([nn.BatchNorm2d(convolution.out_channels)] if norm else []), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def ssd300_resnet50(models: Any) -> Any:
    """SSD300 on ResNet-50 as in NVIDIA's example: 81 classes, maps of 38, 19, 10, 5, 3 and 1."""
    widths = [1024, 512, 512, 256, 256, 256]
    middles, strides = (256, 256, 128, 128, 128), (2, 2, 2, 1, 1)
    extras = [
        shrinking(i, m, o, s, s - 1, norm=True) for i, m, o, s in zip(widths[:-1], middles, widths[1:], strides, strict=True)
    ]
    return ssd(resnet_trunk(models.resnet50()), extras, widths)


def ssd_resnet34(models: Any) -> Any:
    """SSD on ResNet-34 at 1200 pixels as in MLPerf inference to 2021, with heads of stride three."""
    widths = [256, 512, 512, 256, 256, 256]
    middles, strides, paddings = (256, 256, 128, 128, 128), (2, 2, 2, 2, 1), (1, 1, 1, 0, 0)
    extras = [
        shrinking(i, m, o, s, p, norm=False)
        for i, m, o, s, p in zip(widths[:-1], middles, widths[1:], strides, paddings, strict=True)
    ]
    return ssd(resnet_trunk(models.resnet34()), extras, widths, stride=3)


NETWORKS: dict[str, Callable[[Any], Any]] = {
    "ssd300_vgg16": ssd300_vgg16,
    "ssd300_resnet50": ssd300_resnet50,
    "ssd_resnet34": ssd_resnet34,
}
