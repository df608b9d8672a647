"""Shapes of encoder-decoder models (T5, BART, Whisper): encoder and decoder have the same width but may differ in depth."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.workload.hf.decoder import activation
from whichgpu.workload.hf.fields import Fields
from whichgpu.workload.shapes import Transformer

T5_LIKE = ("t5", "mt5", "umt5")
BART_LIKE = ("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mvp", "pegasus", "plbart")
FINAL_NORM = ("bigbird_pegasus", "blenderbot", "mbart", "pegasus")
FIXED_POSITIONS = ("marian", "pegasus")  # Their positions are sines, which are not learned.
SEQ2SEQ = (*T5_LIKE, *BART_LIKE, "whisper")


def seq2seq(fields: Fields, model_type: str) -> Transformer:
    """Return the sizes (shape) of an encoder-decoder model from its config."""
    if model_type in T5_LIKE:
        return _t5(fields, model_type)
    return _whisper(fields) if model_type == "whisper" else _bart(fields, model_type)


def _t5(fields: Fields, model_type: str) -> Transformer:
    """Return T5's shape (arXiv 1910.10683); version 1.1 and later variants have a gated MLP and untied embeddings."""
    projection = fields.word("feed_forward_proj", default="relu" if model_type == "t5" else "gated-gelu")
    gated = projection.startswith("gated-")
    encoder_layers = fields.layers("num_layers", "num_hidden_layers")
    decoder_layers = fields.layers("num_decoder_layers", default=encoder_layers)
    heads = fields.size("num_heads", "num_attention_heads", high=100_000)
    relative = fields.size("relative_attention_num_buckets", default=32) * heads
    own = model_type == "umt5"  # In UMT5 every layer has its own table of relative positions.
    context = fields.size("n_positions", default=512)
    shape = Transformer(
        name=fields.name,
        model_type=model_type,
        hidden=fields.size("d_model", "hidden_size"),
        layers=decoder_layers,
        heads=heads,
        kv_heads=heads,
        head_dim=fields.size("d_kv", "head_dim", default=64),
        ffn=fields.size("d_ff"),
        vocab=fields.size("vocab_size", high=10**8),
        gated=gated,
        norm="rms",
        activation="gelu_tanh" if gated else projection[:32],
        tied=fields.flag("tie_word_embeddings", default=True),
        rope=False,
        positions=0,
        max_context=context,
        dropout=fields.fraction("dropout_rate", default=0.1),
        encoder_layers=encoder_layers,
        layer_other=relative if own else 0,
        other=0 if own else 2 * relative,
    )
    if fields.words("architectures")[:1] == (f"{shape.model_type.upper()}EncoderModel",):
        return replace(
            shape, layers=encoder_layers, encoder_layers=0, head=False, tied=True, causal=False, other=shape.other // 2
        )
    return shape


def _bart(fields: Fields, model_type: str) -> Transformer:
    """Return BART's shape (arXiv 1910.13461), with norms after each block; mBART has them before it, and a final one."""
    shape = _encoded(fields, model_type)
    rows = 0 if model_type in FIXED_POSITIONS else shape.max_context + 2
    return replace(
        shape,
        positions=rows,
        other=rows * shape.hidden,  # The encoder has its own table of positions.
        embedding_norm=True,
        final_norm=model_type in FINAL_NORM,
    )


def _whisper(fields: Fields) -> Transformer:
    """Return Whisper's shape (arXiv 2212.04356): two convolutions turn 30 s of audio into 1,500 tokens."""
    shape = _encoded(fields, "whisper")
    hidden, mels = shape.hidden, fields.size("num_mel_bins", default=80)
    sounds = fields.size("max_source_positions", default=1500)
    convolutions = 3 * hidden * (mels + hidden) + 2 * hidden
    return replace(
        shape, positions=shape.max_context, encoder_context=sounds, key_bias=False, other=convolutions + sounds * hidden
    )


def _encoded(fields: Fields, model_type: str) -> Transformer:
    hidden = fields.size("d_model", "hidden_size")
    heads = fields.heads(hidden, "decoder_attention_heads", "num_attention_heads", whole="d_model")
    return Transformer(
        name=fields.name,
        model_type=model_type,
        hidden=hidden,
        layers=fields.layers("decoder_layers"),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=fields.size("decoder_ffn_dim"),
        vocab=fields.size("vocab_size", high=10**8),
        gated=False,
        norm="layer",
        activation=activation(fields, "gelu"),
        tied=fields.flag("tie_word_embeddings", default=True),
        rope=False,
        positions=0,
        max_context=fields.size("max_target_positions", "max_position_embeddings"),
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        dropout=fields.fraction("dropout", default=0.1 if model_type != "whisper" else 0.0),
        encoder_layers=fields.layers("encoder_layers"),
    )
