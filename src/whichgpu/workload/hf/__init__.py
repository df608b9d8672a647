"""Read the shape of a model from a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from whichgpu.base.messages import msg
from whichgpu.workload.hf import encoder, families, seq2seq, towers, vision
from whichgpu.workload.hf.decoder import decoder
from whichgpu.workload.hf.fields import Fields, printable
from whichgpu.workload.hf.pipelines import read_pipeline
from whichgpu.workload.hf.published import INNER, published_precision
from whichgpu.workload.shapes import DENOISERS, Dlrm, TracedShape, Transformer

Reader = Callable[[Fields, str], Transformer]

READERS: Mapping[str, Reader] = {
    **dict.fromkeys(encoder.ENCODERS, encoder.encoder),
    **dict.fromkeys(seq2seq.SEQ2SEQ, seq2seq.seq2seq),
    **dict.fromkeys(vision.VISION, vision.vision_encoder),
    **dict.fromkeys(vision.PAIRS, vision.pair),
    **dict.fromkeys(vision.TEXT_TOWERS, vision.text_tower),
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {**families.DEFAULTS, **vision.DEFAULTS}
MAX_NESTING = 3  # Largest number of nested config levels that are read (assumed).


def shape_from_config(config: Mapping[str, Any], name: str) -> Transformer | TracedShape | Dlrm:
    """Return the shape of the model that a config describes; an invalid field raises an error that names it.

    An unknown `model_type` is read as Llama-shaped, which most new models are, if it has Llama's keys.
    """
    fields = Fields(config, name)
    model_type = fields.word("model_type")
    if not model_type:
        raise fields.error("model_type", msg("config.missing"))
    if model_type == "traced":
        image = fields.size("image", default=0, low=0, high=100_000)
        return TracedShape(name, _required(fields, "table"), image, _denoiser(fields), read_pipeline(fields))
    if model_type == "dlrm":
        return _dlrm(fields)
    precision, unknown = published_precision(config)
    return replace(_transformer(config, name), native=precision, unknown_quantisation=unknown)


def _transformer(config: Mapping[str, Any], name: str, prefix: str = "", outer: Fields | None = None) -> Transformer:
    """Return the shape of the transformer in a config.json; for a multimodal model, that of its language model."""
    model_type = Fields(config, name).word("model_type", default=outer.word("model_type") if outer else "")
    family = families.family_name(model_type)
    fields = Fields(_flattened(config, family), name, prefix, DEFAULTS.get(family))
    if model_type in families.UNSUPPORTED:
        raise families.unsupported(name, model_type, families.UNSUPPORTED[model_type])
    if model_type in READERS:
        return _headed(fields, READERS[model_type](fields, model_type), model_type)
    for key in INNER:
        if outer is None or (key == "text_config" and prefix.count(".") < MAX_NESTING):
            inner = config.get(key)
            if isinstance(inner, Mapping) and (key != "thinker_config" or "text_config" in inner):
                return _multimodal(fields, _transformer(inner, name, f"{prefix}{key}.", fields), model_type)
    shape = decoder(fields, model_type)
    shape = _multimodal(fields, shape, model_type) if "vision_config" in fields else shape
    return _headed(fields, shape, model_type)


def _multimodal(fields: Fields, shape: Transformer, model_type: str) -> Transformer:
    """Add the parameters of the vision towers to a language model; the outer config decides whether embeddings are tied."""
    beside = towers.tower_parameters(fields, model_type, shape.hidden)
    tied = fields.flag("tie_word_embeddings", default=shape.tied)
    return replace(shape, tied=tied, other=shape.other + beside)


def _headed(fields: Fields, shape: Transformer, model_type: str) -> Transformer:
    """Return the shape with the output head that the config's `architectures` names: none, a classifier, or the model's usual."""
    architecture = next(iter(fields.words("architectures")), "")
    if not shape.head:
        return shape
    if architecture.endswith("Model") and not architecture.endswith(("LMHeadModel", "EncoderModel")):
        return encoder.bare(shape, model_type) if model_type in encoder.ENCODERS else replace(shape, head=False)
    if architecture.endswith("ForSequenceClassification") and not shape.encoder_layers:
        classifier = shape.hidden * vision.labels(fields)
        if model_type in encoder.ENCODERS:
            classes = vision.labels(fields)
            bare = encoder.bare(shape, model_type)
            return replace(bare, pooler=True, other=shape.other + classifier + classes)
        return replace(shape, head=False, other=shape.other + classifier)
    return shape


def _flattened(config: Mapping[str, Any], family: str) -> Mapping[str, Any]:
    """Merge DBRX's nested attention and expert configs into one level; other configs are returned unchanged."""
    inner = [part for key in ("attn_config", "ffn_config") if isinstance(part := config.get(key), Mapping)]
    if family != "dbrx" or not inner:
        return config
    return {**inner[0], **inner[-1], **config, "intermediate_size": inner[-1].get("ffn_hidden_size")}


def _dlrm(fields: Fields) -> Dlrm:
    shape = Dlrm(
        name=fields.name,
        embedding_dim=fields.size("embedding_dim", high=100_000),
        tables=fields.sizes("tables", high=10**11),
        bottom=fields.sizes("bottom", min_count=2, max_count=64),
        top=fields.sizes("top", max_count=64),
    )
    if shape.bottom[-1] != shape.embedding_dim:
        raise fields.error(
            "bottom", msg("config.not-equal", value=shape.bottom[-1], wanted=shape.embedding_dim, other="embedding_dim")
        )
    return shape


def _denoiser(fields: Fields) -> str:
    """Return the kind of denoising network that a traced model's config states; empty if it is not a denoiser."""
    denoiser_name = fields.get("denoiser")
    if denoiser_name in (None, "", *DENOISERS):
        return denoiser_name or ""
    raise fields.error("denoiser", msg("config.not-choice", value=printable(repr(denoiser_name)), choices=DENOISERS))


def _required(fields: Fields, key: str) -> str:
    word = fields.word(key)
    if not word:
        raise fields.error(key, msg("config.missing"))
    return word
