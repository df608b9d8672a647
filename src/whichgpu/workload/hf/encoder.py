"""Shapes of text encoders (BERT and its descendants) from their configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.workload.hf.decoder import activation
from whichgpu.workload.hf.fields import Fields
from whichgpu.workload.shapes import Transformer


class EncoderFamily(msgspec.Struct, frozen=True):
    """Architecture of an encoder family as far as its config.json does not state it; the defaults are BERT's."""

    token_types: int = 2
    position_offset: int = 0
    pooled: bool = True  # whether the model without its output head ends in a pooler
    relative: bool = False  # whether all layers share a table of relative positions per head (MPNet)
    transform: bool = True  # whether a dense layer and a norm come before the output head


ENCODERS: Mapping[str, EncoderFamily] = {
    "bert": EncoderFamily(),
    "bert-generation": EncoderFamily(token_types=0),
    "big_bird": EncoderFamily(),
    "camembert": EncoderFamily(token_types=1),
    "data2vec-text": EncoderFamily(token_types=1),
    "deberta": EncoderFamily(token_types=0, pooled=False),
    "deberta-v2": EncoderFamily(token_types=0, pooled=False),
    "distilbert": EncoderFamily(token_types=0, pooled=False),
    "ernie": EncoderFamily(),
    "megatron-bert": EncoderFamily(),
    "modernbert": EncoderFamily(token_types=0, pooled=False),
    "mpnet": EncoderFamily(token_types=0, relative=True),
    "nomic_bert": EncoderFamily(pooled=False, transform=False),
    "roberta": EncoderFamily(token_types=1),
    "roberta-prelayernorm": EncoderFamily(token_types=1),
    "roc_bert": EncoderFamily(),
    "roformer": EncoderFamily(),
    "xlm": EncoderFamily(token_types=0, pooled=False, transform=False),
    "xlm-roberta": EncoderFamily(token_types=1),
    "xlm-roberta-xl": EncoderFamily(token_types=1),
    "xlnet": EncoderFamily(token_types=0, pooled=False, transform=False),
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = {"distilbert": {"activation": "gelu"}}


def encoder(fields: Fields, model_type: str) -> Transformer:
    """Return an encoder's shape including its pre-training head, which predicts masked tokens."""
    if model_type == "modernbert":
        return _modern(fields)
    if model_type == "nomic_bert":
        return _nomic(fields)
    family = ENCODERS[model_type]
    hidden = fields.size("hidden_size", "dim", "emb_dim", "d_model")
    heads = fields.heads(hidden, "num_attention_heads", "n_heads", "n_head")
    context = fields.size("max_position_embeddings", default=512)
    shape = Transformer(
        name=fields.name,
        model_type=model_type,
        hidden=hidden,
        layers=fields.layers("num_hidden_layers", "n_layers", "n_layer"),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=fields.size("intermediate_size", "hidden_dim", "d_inner", default=4 * hidden if model_type == "xlm" else None),
        vocab=fields.size("vocab_size", "n_words", high=10**8),
        gated=False,
        norm="layer",
        activation=activation(fields, "gelu"),
        tied=fields.flag("tie_word_embeddings", default=True),
        rope=False,
        positions=context if fields.flag("position_biased_input", default=True) else 0,
        max_context=context - context % 4,  # RoBERTa's table of 514 positions serves 512 tokens.
        causal=fields.flag("is_decoder", "causal", default=False),
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        token_types=fields.size("type_vocab_size", default=family.token_types, low=0),
        lm_transform=family.transform,
        embedding_norm=True,
        dropout=fields.fraction("hidden_dropout_prob", "dropout", default=0.1),
        head_bias=True,
        final_norm=False,
    )
    if model_type in ("deberta", "deberta-v2"):
        return _disentangled(fields, shape, model_type)
    if model_type == "xlm" and fields.flag("use_lang_emb", default=True):
        languages = fields.size("n_langs", default=1)
        return replace(shape, other=languages * hidden if languages > 1 else 0)
    if model_type == "xlnet":
        return _with_relative_keys(shape)
    if family.relative:
        return replace(shape, token_types=0, other=fields.size("relative_attention_num_buckets", default=32) * heads)
    return shape


def _with_relative_keys(shape: Transformer) -> Transformer:
    """Return XLNet's shape (arXiv 1906.08237): no biases, and keys of relative positions and segments with biases per head."""
    projection, biases, segments = shape.hidden**2, 3 * shape.hidden, 2 * shape.hidden
    return replace(
        shape,
        positions=0,
        qkv_bias=False,
        out_bias=False,
        embedding_norm=False,
        layer_other=projection + biases + segments,
        other=shape.hidden,  # vector of the masked token
    )


def _disentangled(fields: Fields, shape: Transformer, model_type: str) -> Transformer:
    """Add DeBERTa's (arXiv 2006.03654) table of relative positions and the projections that attention applies to it."""
    if not fields.flag("relative_attention", default=False):
        return shape
    stated = fields.get("max_relative_positions")
    span = stated if isinstance(stated, int) and 0 < stated <= 10**6 else fields.size("max_position_embeddings", default=512)
    hidden, newer = shape.hidden, model_type == "deberta-v2"
    if newer:
        buckets = fields.get("position_buckets")
        span = buckets if isinstance(buckets, int) and 0 < buckets <= 10**6 else span
    table = 2 * span * hidden
    if newer and "layer_norm" in fields.word("norm_rel_ebd"):
        table += 2 * hidden
    kinds = fields.get("pos_att_type") or ()
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    across = [kind for kind in ("c2p", "p2c") if isinstance(kinds, list | tuple) and kind in kinds]
    if newer:
        square = hidden * (hidden + 1)
        projections = 0 if fields.flag("share_att_key", default=False) else square * len(across)
        kernel = fields.size("conv_kernel_size", default=0, low=0, high=100)
        table += (
            hidden * hidden * kernel + 3 * hidden if kernel else 0
        )  # A convolution parallel to the first layer, and its norm.
        return replace(shape, layer_other=projections, other=table)
    projections = hidden * hidden * len(across) + (hidden if "p2c" in across else 0)
    return replace(shape, key_bias=False, layer_other=projections, other=table)


def _modern(fields: Fields) -> Transformer:
    """Return ModernBERT's shape (arXiv 2412.13663): rotary, gated, without biases, full attention in every third layer."""
    hidden = fields.size("hidden_size")
    return Transformer(
        **encoder_sizes(fields, "modernbert", hidden, fields.size("intermediate_size")),
        vocab=fields.size("vocab_size", high=10**8),
        gated=True,
        norm="layer",
        activation=activation(fields, "gelu"),
        tied=fields.flag("tie_word_embeddings", default=True),
        rope=True,
        positions=0,
        max_context=fields.size("max_position_embeddings", default=8192),
        causal=False,
        lm_transform=True,
        embedding_norm=True,
        window=fields.size("local_attention", default=128),
        global_every=fields.size("global_attn_every_n_layers", default=3),
        head_bias=fields.flag("decoder_bias", default=True),
        norm_bias=fields.flag("norm_bias", default=False),
        other=-hidden,  # The first layer has no norm before attention, since the embedding is normalised already.
    )


def _nomic(fields: Fields) -> Transformer:
    """Return the shape of Nomic's BERT (arXiv 2402.01613): rotary, with a gated MLP and without biases of matrices."""
    hidden = fields.size("hidden_size", "n_embd")
    return Transformer(
        **encoder_sizes(fields, "nomic_bert", hidden, fields.size("intermediate_size", "n_inner")),
        vocab=fields.size("vocab_size", high=10**8),
        gated=True,
        norm="layer",
        activation=activation(fields, "silu"),
        tied=True,
        rope=True,
        positions=0,
        max_context=fields.size("max_position_embeddings", "n_positions", default=2048),
        causal=False,
        token_types=fields.size("type_vocab_size", default=2, low=0),
        embedding_norm=True,
        final_norm=False,
    )


def encoder_sizes(fields: Fields, model_type: str, hidden: int, ffn: int) -> dict[str, Any]:
    """Return the sizes (fields of the shape) that all text encoders state under the same config keys."""
    heads = fields.heads(hidden, "num_attention_heads", "n_head")
    return {
        "name": fields.name,
        "model_type": model_type,
        "hidden": hidden,
        "layers": fields.layers("num_hidden_layers", "n_layer"),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": hidden // heads,
        "ffn": ffn,
    }


def bare(shape: Transformer, model_type: str) -> Transformer:
    """Return the encoder's shape without its output head, as it is used for sentence embeddings."""
    pooled = ENCODERS[model_type].pooled if model_type in ENCODERS else False
    return replace(shape, head=False, lm_transform=False, head_bias=False, pooler=pooled)
