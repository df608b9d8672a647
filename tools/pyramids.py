"""Detectors on feature pyramids for the tracer, without matching and sorting of boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from whichgpu.estimate.trace.framework import load_torch, load_torchvision

SIZES: dict[str, tuple[int, ...]] = {
    "ssd320_resnet50_fpn": (320,),
    "retinanet_resnext50_32x4d_fpn": (800,),
    "maskrcnn_resnet50_fpn": (800,),
    "fasterrcnn_resnet50_fpn": (800,),
}
SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {  # 800 x 1344: COCO's pictures, padded to 32 pixels
    name: lambda side: (3, side, side * 42 // 25) for name in ("maskrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn")
}


def network(name: str) -> Any:
    """Build the network of that name without weights."""
    load_torchvision()
    return NETWORKS[name]()


def backbone(name: str, layers: Sequence[int], extra: Any) -> Any:
    """ResNet with a feature pyramid of 256 channels, all layers trained."""
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    return resnet_fpn_backbone(
        backbone_name=name,
        weights=None,
        norm_layer=load_torch().nn.BatchNorm2d,
        trainable_layers=5,
        returned_layers=list(layers),
        extra_blocks=extra,
    )


def one_stage(trunk: Any, head: Any) -> Any:
    """One-stage detector: returns boxes, and scores with the classes as second dimension."""
    torch = load_torch()

    class OneStage(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.head = trunk, head

        def forward(self, pictures: Any) -> Any:
            boxes, scores = self.head(list(self.trunk(pictures).values()))
            return [boxes, scores.transpose(1, 2)]

    return OneStage()


def per_box(output: Any, values: int) -> Any:
    """The output of a head's last convolution as [batch, boxes, values]."""
    return output.permute(0, 2, 3, 1).reshape(output.shape[0], -1, values)


def shared_head(layers: int, anchors: int, classes: int, norms: int, act: Callable[[], Any]) -> Any:
    """Convolutions shared by all maps, with a batch normalisation per map if `norms` is not 0."""
    torch = load_torch()
    nn = torch.nn

    class Branch(nn.Module):  # type: ignore[misc]
        def __init__(self, values: int) -> None:
            super().__init__()
            self.values, self.act = values, act()
            self.layers = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1, bias=not norms) for _ in range(layers))
            self.norms = nn.ModuleList(nn.ModuleList(nn.BatchNorm2d(256) for _ in range(layers)) for _ in range(norms))
            self.last = nn.Conv2d(256, anchors * values, 3, padding=1)

        def forward(self, maps: list[Any]) -> Any:
            outputs = []
            for level, x in enumerate(maps):
                for depth, layer in enumerate(self.layers):
                    x = layer(x)
                    x = self.act(self.norms[level][depth](x) if norms else x)
                outputs.append(per_box(self.last(x), self.values))
            return torch.cat(outputs, 1)

    class Head(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.boxes, self.scores = Branch(4), Branch(classes)

        def forward(self, maps: list[Any]) -> Any:
            return self.boxes(maps), self.scores(maps)

    return Head()


def retinanet() -> Any:
    """RetinaNet, arXiv 1708.02002, on ResNeXt-50 32x4d, 264 classes: MLPerf inference since 2022."""
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    nn = load_torch().nn
    trunk = backbone("resnext50_32x4d", (2, 3, 4), LastLevelP6P7(256, 256))
    return one_stage(trunk, shared_head(4, 9, 264, 0, lambda: nn.ReLU(inplace=True)))


def ssd320() -> Any:
    """SSD320 of NVIDIA's example: the same pyramid on ResNet-50, 6 boxes per position, 91 classes, heads with normalisation."""
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    nn = load_torch().nn
    trunk = backbone("resnet50", (2, 3, 4), LastLevelP6P7(256, 256))
    return one_stage(trunk, shared_head(4, 6, 91, 5, lambda: nn.ReLU6(inplace=True)))


def mask_rcnn(classes: int = 91, masks: bool = True) -> Any:
    """Mask R-CNN, arXiv 1703.06870, on ResNet-50 with a pyramid: 1000 boxes a picture (512 in training), 100 masks (128).

    Without masks it is Faster R-CNN, arXiv 1506.01497.
    The choice of boxes depends on the data: RoIAlign is traced as one gather of as many features as it writes, on the finest map.
    """
    from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

    torch = load_torch()
    nn = torch.nn

    class MaskRcnn(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.trunk = backbone("resnet50", (1, 2, 3, 4), LastLevelMaxPool())
            self.proposed = nn.Conv2d(256, 256, 3, padding=1)
            self.objectness, self.moved = nn.Conv2d(256, 3, 1), nn.Conv2d(256, 12, 1)
            self.hidden = nn.Sequential(
                nn.Linear(256 * 7 * 7, 1024), nn.ReLU(inplace=True), nn.Linear(1024, 1024), nn.ReLU(inplace=True)
            )
            self.scores, self.boxes = nn.Linear(1024, classes), nn.Linear(1024, 4 * classes)
            layers = [layer for _ in range(4) for layer in (nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True))]
            if masks:
                self.masks = nn.Sequential(
                    *layers, nn.ConvTranspose2d(256, 256, 2, 2), nn.ReLU(inplace=True), nn.Conv2d(256, classes, 1)
                )

        def aligned(self, features: Any, boxes: int, side: int) -> Any:
            batch = features.shape[0]
            places = features.permute(0, 2, 3, 1).reshape(-1, 256)
            indices = torch.zeros(batch * boxes * side * side, dtype=torch.int64, device=features.device)
            return places.index_select(0, indices).view(batch * boxes, side, side, 256).permute(0, 3, 1, 2)

        def forward(self, pictures: Any) -> Any:
            maps = list(self.trunk(pictures).values())
            outputs = []
            for features in maps:
                x = nn.functional.relu(self.proposed(features))
                outputs += [per_box(self.moved(x), 4), per_box(self.objectness(x), 1)]
            inside = self.hidden(self.aligned(maps[0], 512 if self.training else 1000, 7).flatten(1))
            outputs += [self.scores(inside), self.boxes(inside)]
            return [*outputs, self.masks(self.aligned(maps[0], 128 if self.training else 100, 14))] if masks else outputs

    return MaskRcnn()


NETWORKS: dict[str, Callable[[], Any]] = {
    "ssd320_resnet50_fpn": ssd320,
    "retinanet_resnext50_32x4d_fpn": retinanet,
    "maskrcnn_resnet50_fpn": mask_rcnn,
    "fasterrcnn_resnet50_fpn": lambda: mask_rcnn(masks=False),
}
