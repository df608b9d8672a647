"""YOLO networks of the Ultralytics package and RT-DETR for the tracer, without matching and suppression of boxes.

The networks are built from the package's own model files (version 8.4 was used), so `ultralytics` must be installed.
"""

from __future__ import annotations

from typing import Any

from library_models import on_meta

from whichgpu.estimate.trace.framework import load_torch, load_torchvision

DETECTORS = (
    *(f"yolov9{size}" for size in "tsmce"),
    *(f"yolov10{size}" for size in "nsmblx"),
    *(f"yolo12{size}" for size in "nsmlx"),
    "rtdetr-l",
    "rtdetr-x",
)
# Names of the package for networks of versions 8 and 11 with another head, and the class that builds them.
HEADS = {"seg": "SegmentationModel", "pose": "PoseModel", "obb": "OBBModel", "cls": "ClassificationModel"}
CLASSES = {"pose": 1, "obb": 15, "cls": 1000}  # of the published weights: people, DOTA, ImageNet; else COCO's 80
HEADED = tuple(f"{version}{size}-{head}" for version in ("yolov8", "yolo11") for head in HEADS for size in "nsmlx")
DECODER_LAYERS = 6
CLASSIFIED_SIDE, ORIENTED_SIDE, SIDE = 224, 1024, 640  # pixels at which the published weights were trained
SIZES: dict[str, tuple[int, ...]] = {
    name: (CLASSIFIED_SIDE if name.endswith("-cls") else ORIENTED_SIDE if name.endswith("-obb") else SIDE,)
    for name in (*DETECTORS, *HEADED)
}


def network(name: str) -> Any:
    """Build the network of that name without weights; it returns the maps of its head as a list in training and inference."""
    load_torchvision()
    from ultralytics.nn import tasks  # type: ignore[import-not-found, unused-ignore]

    torch = load_torch()
    _, _, head = name.partition("-")
    kind = "RTDETRDetectionModel" if name.startswith("rtdetr") else HEADS.get(head, "DetectionModel")
    whole = on_meta(lambda: getattr(tasks, kind)(f"{name}.yaml", nc=CLASSES.get(head, 80), verbose=False))

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = whole.model
            self.saved = set(whole.save)

        def forward(self, pictures: Any) -> list[Any]:
            outputs: list[Any] = []
            x = pictures
            for layer in self.layers:
                if layer.f != -1:
                    x = outputs[layer.f] if isinstance(layer.f, int) else [x if at == -1 else outputs[at] for at in layer.f]
                if layer is self.layers[-1]:
                    layer.training = True  # The head returns its maps, without decoding boxes.
                x = layer(x)
                outputs.append(x if layer.i in self.saved else None)
            return _tensors(x)

    return Network()


def _tensors(output: Any) -> list[Any]:
    """Return the tensors in a head's output, whatever they are nested in, without the maps that it was given."""
    torch = load_torch()
    if isinstance(output, torch.Tensor):
        layered = output.dim() == 4 and output.shape[0] == DECODER_LAYERS  # RT-DETR's layers come before the batch.
        return [output.transpose(0, 1).flatten(1, 2) if layered else output]
    if isinstance(output, dict):
        return [tensor for key, part in output.items() if key != "feats" for tensor in _tensors(part)]
    return (
        [tensor for part in output if part is not None for tensor in _tensors(part)] if isinstance(output, list | tuple) else []
    )
