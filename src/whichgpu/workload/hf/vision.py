"""Shapes of image encoders (ViT, DeiT, DINOv2) and of models with an image and a text encoder (CLIP, SigLIP)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from whichgpu.base.messages import msg
from whichgpu.workload.hf.decoder import activation
from whichgpu.workload.hf.encoder import encoder_sizes
from whichgpu.workload.hf.fields import Fields
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Patches, Transformer

VISION = ("vit", "deit", "dinov2", "clip_vision_model", "siglip_vision_model")
PAIRS = ("clip", "siglip")
TEXT_TOWERS = ("clip_text_model", "siglip_text_model")

# Defaults of the reference implementation, for keys that published config files leave out.
_BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "clip_text_model": {
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "vocab_size": 49408,
        "max_position_embeddings": 77,
        "hidden_act": "quick_gelu",
    },
    "clip_vision_model": {**_BASE, "image_size": 224, "patch_size": 32, "hidden_act": "quick_gelu"},
    "siglip_text_model": {**_BASE, "vocab_size": 32000, "max_position_embeddings": 64, "hidden_act": "gelu_pytorch_tanh"},
    "siglip_vision_model": {**_BASE, "image_size": 224, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh"},
}


def vision_encoder(fields: Fields, model_type: str) -> Transformer:
    """Return an image encoder's sizes (shape) from its config, with a classifier if the config has one."""
    hidden = fields.size("hidden_size")
    image, size = square(fields, "image_size"), square(fields, "patch_size")
    if size > image:
        raise fields.error("patch_size", msg("config.range", value=size, low=1, high=image))
    extra = {"deit": 2, "siglip_vision_model": 0}.get(model_type, 1)
    patches = Patches(image, size, fields.size("num_channels", default=3), extra, bias=model_type != "clip_vision_model")
    swiglu = model_type == "dinov2" and fields.flag("use_swiglu_ffn", default=False)
    ratio = fields.size("mlp_ratio", default=4, high=64)
    ffn = hidden * ratio if model_type == "dinov2" else fields.size("intermediate_size")
    shape = Transformer(
        **encoder_sizes(fields, model_type, hidden, (ffn * 2 // 3 + 7) // 8 * 8 if swiglu else ffn),
        vocab=0,
        gated=swiglu,
        norm="layer",
        activation="silu" if swiglu else activation(fields, "gelu"),
        tied=True,
        rope=False,
        positions=patches.tokens,
        max_context=patches.tokens,
        causal=False,
        qkv_bias=fields.flag("qkv_bias", default=True),
        out_bias=True,
        mlp_bias=True,
        dropout=fields.fraction("hidden_dropout_prob", default=0.0),
        head=False,
        patches=patches,
    )
    if model_type == "clip_vision_model":
        return replace(shape, embedding_norm=True)  # CLIP has a norm before the first layer.
    if model_type == "siglip_vision_model":
        return replace(shape, other=_pooling_head(shape) if fields.flag("vision_use_head", default=True) else 0)
    if model_type == "dinov2":  # DINOv2 has a mask token, and two scale vectors per layer.
        return replace(shape, layer_other=2 * hidden, other=hidden + _classifier(fields, 2 * hidden))
    return replace(
        shape, other=_classifier(fields, hidden), pooler=fields.words("architectures")[:1] in (("ViTModel",), ("DeiTModel",))
    )


def text_tower(fields: Fields, model_type: str) -> Transformer:
    """Return the sizes (shape) of CLIP's or SigLIP's text encoder from its config."""
    hidden = fields.size("hidden_size")
    context = fields.size("max_position_embeddings")
    projection = fields.size("projection_size", default=hidden)
    return Transformer(
        **encoder_sizes(fields, model_type, hidden, fields.size("intermediate_size")),
        vocab=fields.size("vocab_size", high=10**8),
        gated=False,
        norm="layer",
        activation=activation(fields, "gelu"),
        tied=True,
        rope=False,
        positions=context,
        max_context=context,
        causal=model_type == "clip_text_model",
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        head=False,
        other=(hidden + 1) * projection if model_type == "siglip_text_model" else 0,
    )


def pair(fields: Fields, model_type: str) -> Transformer:
    """Return the shape of CLIP's or SigLIP's image encoder; text encoder and projections count as its other parameters."""
    towers = []
    for key, build in (("vision_config", vision_encoder), ("text_config", text_tower)):
        kind = f"{model_type}_{key.removesuffix('_config')}_model"
        inner = fields.nested(key, defaults=DEFAULTS[kind])
        if inner is None:
            raise fields.error(key, msg("config.missing"))
        towers.append(build(inner, kind))
    image, text = towers
    joint = fields.size("projection_dim", default=512)
    projections = joint * (image.hidden + text.hidden) + 1 if model_type == "clip" else 2
    beside = image.other + count_parameters(text).total + projections
    return replace(image, model_type=model_type, other=beside)


def square(fields: Fields, key: str) -> int:
    """Return the side of an image or patch in pixels, stated as one number or as height and width."""
    value = fields.get(key)
    if isinstance(value, list | tuple) and value:
        return Fields({key: value[0]}, fields.name, fields.prefix).size(key, high=100_000)
    return fields.size(key, high=100_000)


def _pooling_head(shape: Transformer) -> int:
    """Parameters of SigLIP's pooling head: a learned query that attends to all patches, a norm and an MLP."""
    hidden = shape.hidden
    return hidden + 4 * hidden * (hidden + 1) + 2 * hidden + 2 * hidden * shape.ffn + shape.ffn + hidden


def _classifier(fields: Fields, width: int) -> int:
    architecture = next(iter(fields.words("architectures")), "")
    if "Classification" not in architecture:
        return 0
    heads = 2 if architecture.endswith("WithTeacher") else 1
    return heads * (width + 1) * labels(fields)


def labels(fields: Fields) -> int:
    """Return the number of classes of a config's classifier; two if it states none, as in the reference implementation."""
    label_names = fields.get("id2label")
    return len(label_names) if isinstance(label_names, Mapping) and label_names else fields.size("num_labels", default=2)
