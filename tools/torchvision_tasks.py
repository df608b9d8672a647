"""Torchvision's networks for segmentation, detection and video for the tracer, without matching and sorting of boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whichgpu.estimate.trace.framework import load_torch, load_torchvision

SEGMENTATION = (
    "fcn_resnet50 fcn_resnet101 deeplabv3_resnet50 deeplabv3_resnet101 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large"
).split()
DETECTION = {"retinanet_resnet50_fpn": 800, "fcos_resnet50_fpn": 800, "ssdlite320_mobilenet_v3_large": 320}
VIDEO = {"r3d_18": 112, "mc3_18": 112}
FRAMES = 16
SIZES: dict[str, tuple[int, ...]] = (
    dict.fromkeys(SEGMENTATION, (520,))
    | {name: (side,) for name, side in DETECTION.items()}
    | {name: (side,) for name, side in VIDEO.items()}
)
SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    **dict.fromkeys(VIDEO, lambda side: (3, FRAMES, side, side)),
    **dict.fromkeys(("retinanet_resnet50_fpn", "fcos_resnet50_fpn"), lambda side: (3, side, side * 42 // 25)),
}


def network(name: str) -> Any:
    """Build the network of that name without weights."""
    models = load_torchvision().models
    if name in VIDEO:
        return getattr(models.video, name)(weights=None)
    if name in DETECTION:
        whole = getattr(models.detection, name)(weights=None, weights_backbone=None, **_trained_layers(name))
        return _one_stage(whole.backbone, whole.head)
    return _segmenter(getattr(models.segmentation, name)(weights=None, weights_backbone=None))


def _trained_layers(name: str) -> dict[str, int]:
    """Return the setting of torchvision's training script: three of five stages of a ResNet are trained."""
    return {} if name.startswith("ssdlite") else {"trainable_backbone_layers": 3}


def _segmenter(whole: Any) -> Any:
    class Segmenter(load_torch().nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, pictures: Any) -> Any:
            return list(self.whole(pictures).values())

    return Segmenter()


def _one_stage(backbone: Any, head: Any) -> Any:
    class OneStage(load_torch().nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = backbone, head

        def forward(self, pictures: Any) -> Any:
            outputs = self.head(list(self.backbone(pictures).values()))
            return [outputs.pop("cls_logits").transpose(1, 2), *outputs.values()]

    return OneStage()
