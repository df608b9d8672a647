"""Classifiers of torchvision and timm for the tracer, with the image sizes to trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from whichgpu.estimate.trace.framework import load_torch, load_torchvision

# The default size first, at which the published weights were evaluated. Then sizes of benchmarks: 224 throughout, timm's own
# sizes, and 32, the size of CIFAR's pictures.
TORCHVISION: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        "alexnet vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn resnext101_32x8d resnext101_64x4d wide_resnet101_2 "
        "googlenet mobilenet_v2 mobilenet_v3_small mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3 regnet_x_400mf regnet_x_800mf "
        "regnet_x_1_6gf regnet_x_3_2gf regnet_x_8gf regnet_x_16gf regnet_x_32gf regnet_y_400mf regnet_y_800mf regnet_y_1_6gf "
        "regnet_y_8gf regnet_y_16gf regnet_y_32gf swin_t swin_s swin_b vit_b_16 vit_b_32 vit_l_16 vit_l_32 vit_h_14 maxvit_t "
        "squeezenet1_0 squeezenet1_1 shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0".split(),
        (224,),
    ),
    "resnet18": (224, 160, 288, 32),
    "resnet34": (224, 160, 288, 32),
    "resnet50": (224, 160, 176, 288, 32),
    "resnet101": (224, 160, 176, 288, 32),
    "resnet152": (224, 160, 176, 288, 32),
    "resnext50_32x4d": (224, 160, 176, 288),
    "wide_resnet50_2": (224, 176, 288),
    "regnet_y_3_2gf": (224, 288),
    "densenet121": (224, 288, 32),
    "densenet161": (224, 32),
    "densenet169": (224, 32),
    "densenet201": (224, 32),
    "mobilenet_v3_large": (224, 256, 32),
    "inception_v3": (299,),
    "convnext_tiny": (224, 288, 384, 32),
    "convnext_small": (224, 288, 384, 32),
    "convnext_base": (224, 256, 288, 320, 384, 32),
    "convnext_large": (224, 288, 384, 32),
    "efficientnet_b0": (224, 256, 32),
    "efficientnet_b1": (240, 224, 32),
    "efficientnet_b2": (288, 224, 32),
    "efficientnet_b3": (300, 224, 288, 320, 32),
    "efficientnet_b4": (380, 224, 32),
    "efficientnet_b5": (456, 224, 416, 448, 32),
    "efficientnet_b6": (528, 224, 32),
    "efficientnet_b7": (600, 224, 32),
    "efficientnet_v2_s": (384, 224, 300),
    "efficientnet_v2_m": (480, 224),
    "efficientnet_v2_l": (480, 224),
    "swin_v2_t": (256, 224),
    "swin_v2_s": (256, 224),
    "swin_v2_b": (256, 224),
}
# Networks that torchvision lacks or builds differently. Sizes are those of timm's results, that of its weights first.
TIMM: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        "resnext101_32x4d seresnext101_32x4d legacy_senet154 dpn92 hrnet_w32 repvgg_b0 ghostnet_100 levit_256 "
        "vit_tiny_patch16_224 vit_small_patch16_224 vit_base_patch16_224 vit_base_patch32_224 vit_large_patch16_224 "
        "vit_large_patch14_224 vit_huge_patch14_224 deit3_base_patch16_224 deit3_large_patch16_224 beit_base_patch16_224 "
        "beit_large_patch16_224 eva02_base_patch14_224 cait_s24_224 xcit_small_12_p16_224 mixer_b16_224 twins_svt_base pvt_v2_b2 "
        "hiera_base_224 coatnet_0_rw_224 maxvit_tiny_tf_224 maxvit_base_tf_224 swin_tiny_patch4_window7_224 "
        "swin_small_patch4_window7_224 swin_base_patch4_window7_224 swin_large_patch4_window7_224".split(),
        (224,),
    ),
    **dict.fromkeys("inception_v4 xception41".split(), (299,)),
    **dict.fromkeys("mobilevit_s fastvit_t8 swinv2_base_window8_256 vit_so150m_patch16_reg4_gap_256".split(), (256,)),
    "eva_large_patch14_196": (196,),
    "crossvit_base_240": (240,),
    "vit_base_patch16_384": (384,),
    "resnet50d": (224, 160, 288),
    "seresnet50": (224, 160, 288),
    "efficientvit_b1": (224, 256, 288),
    "convnextv2_tiny": (224, 288, 384),
    "convnextv2_base": (224, 288, 384),
    "tresnet_m": (224, 448),
    "dm_nfnet_f0": (192, 256),
    "nf_resnet50": (256, 288),
    "edgenext_small": (256, 320),
    "tf_efficientnetv2_s": (300, 384),
    "tf_efficientnetv2_m": (384, 480),
}
SIZES = TORCHVISION | TIMM


def network(name: str) -> Any:
    """Build the network of that name without weights."""
    models = load_torchvision().models
    if name in TIMM:
        return timm_model(name)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    if name.startswith("regnet"):  # it reads its widths back from a tensor, so it is built on the CPU
        return on_meta(lambda: getattr(models, name)(**options))
    return getattr(models, name)(**options)


def timm_model(name: str) -> Any:
    """Build a network of timm; some read values of tensors while they are built."""
    import timm

    try:
        return timm.create_model(name)
    except (NotImplementedError, RuntimeError):
        return on_meta(lambda: timm.create_model(name))


@cache
def timm_sizes() -> dict[str, int]:
    """Image size of the published weights of each network of timm that takes square RGB pictures."""
    load_torchvision()
    import timm

    sizes = {}
    for name in timm.list_models():
        config = timm.get_pretrained_cfg(name)
        channels, height, width = config.input_size if config else (3, 224, 224)
        if channels == 3 and height == width and not name.startswith("test_"):
            sizes[name] = height
    return sizes


def on_meta(make: Callable[[], Any]) -> Any:
    """Module built on the CPU, then moved to the meta device."""
    with load_torch().device("cpu"):
        module = make()
    return module.to("meta")
