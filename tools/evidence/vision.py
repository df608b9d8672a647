"""Convolutional networks and vision transformers, from published tables."""

from __future__ import annotations

from collections.abc import Mapping

from evidence.published import Published
from evidence.reasons import Reason
from evidence.requests import measured
from whichgpu.catalog.evidence import Measurement, StochasticDepth

_FP32_PIXEL = 3 * 4.0  # bytes of one RGB pixel
# Networks trained without torchvision's stochastic depth: ConvNeXt of both libraries and timm's EfficientNet have none by
# default, and EfficientNet of transformers has dropout instead.
_TIMM: Mapping[str, StochasticDepth] = {"convnext": "kept", "efficientnet": "kept"}
_TRANSFORMERS: Mapping[str, StochasticDepth] = {"convnext": "kept", "efficientnet": "dropout"}


def torchvision_script(row: Published) -> Measurement | Reason:
    """ryujaehun and lamikr: torchvision at 224 px, batch 12 per GPU; forward and backward without an optimizer step.

    The measured time includes the copy of the images from pageable memory.
    """
    batch = row.batch or 0
    width = 0.5 if row.precision == "fp16" else 1.0
    copied = batch * 224 * 224 * _FP32_PIXEL * width
    more = {"image": 224, "batch": batch}
    if row.task == "train":
        more["include_optimizer_step"] = False
    return measured(row, "train" if row.task == "train" else "forward", row.value / 1e3, more=more, pageable_copy_bytes=copied)


def timm(row: Published) -> Measurement | Reason:
    """timm's benchmark script: images per second under autocast, SGD with momentum in training."""
    image = row.noted(r"img (\d+)")
    if not row.batch or not image:
        return Reason.NO_BATCH
    more: dict[str, object] = {"image": int(image)}
    if row.task == "train":
        more["optimizer"] = "sgd-momentum"
    kind, depth = "train" if row.task == "train" else "forward", _depth(row, "_", _TIMM)
    return measured(row, kind, row.batch / row.value, more=more, stochastic_depth=depth)  # type: ignore[arg-type]


def _depth(row: Published, sign: str, depth_by_family: Mapping[str, StochasticDepth]) -> StochasticDepth:
    return depth_by_family.get(row.model.partition(sign)[0], "")


def mxnet(row: Published) -> Measurement | Reason:
    """MXNet's own table: symbolic inference, and training of synthetic images.

    The page says that AlexNet trains at 8 or 16 times the printed batch.
    """
    if not row.batch:
        return Reason.NO_BATCH
    times = int(row.noted(r"batch is (\d+)x") or 1)
    batch = row.batch * times
    more: dict[str, object] = {"batch": batch, "image": 299 if row.model == "Inception-v3" else 224}
    if row.task == "train":
        more["optimizer"] = "sgd-momentum"
    return measured(row, "train" if row.task == "train" else "forward", batch / row.value, more=more)


def forward_and_backward(row: Published) -> Measurement | Reason:
    """soumith and u39kun: milliseconds of a batch; training is forward and backward without the optimizer."""
    image = int(row.noted(r"(\d+)x\d+"))
    more: dict[str, object] = {"image": image}
    if row.task == "train":
        more["include_optimizer_step"] = False
    return measured(row, "train" if row.task == "train" else "forward", row.value / 1e3, more=more)


def devos50(row: Published) -> Measurement | Reason:
    """CIFAR-10 on AWS: 32 px for convolutional networks, which are often host-bound; resized to 224 for ViT.

    Networks named with hyphens are transformers', the others torchvision's. The script's "backward" ends after the step of SGD
    with momentum. It waits for the device after each of the two.
    """
    more = {"image": 224 if row.model.startswith("vit") else 32, "optimizer": "sgd-momentum"}
    return measured(
        row, "train", row.value, more=more, synchronises_after_forward=True, stochastic_depth=_depth(row, "-", _TRANSFORMERS)
    )
