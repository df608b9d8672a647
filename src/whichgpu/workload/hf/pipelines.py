"""Parts of a picture or video model beside its denoiser, read from the entry `pipeline` of its config.

Text encoders are named; their sizes are those of the published configs: `text_encoder/config.json` of
stable-diffusion-v1-5/stable-diffusion-v1-5, stabilityai/stable-diffusion-2-1, Qwen/Qwen-Image,
Efficient-Large-Model/Sana_1600M_1024px_diffusers, Wan-AI/Wan2.1-T2V-14B-Diffusers and hunyuanvideo-community/HunyuanVideo,
`text_encoder_2/config.json` of stabilityai/stable-diffusion-xl-base-1.0 and of black-forest-labs/FLUX.1-dev.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.base.messages import msg
from whichgpu.workload.hf.fields import Fields, printable
from whichgpu.workload.shapes import Pipeline, TextEncoder, Transformer

MAX_STEPS = 10_000  # assumed: more denoising steps in a file are a mistake
MAX_FRAMES = 100_000  # assumed: more frames of a video in a file are a mistake


def _clip(name: str, hidden: int, layers: int, projection: int) -> Transformer:
    """Return the shape of a CLIP text encoder (arXiv 2103.00020), whose heads have 64 dimensions; `projection` in parameters."""
    return Transformer(
        name=name, model_type="clip_text_model", hidden=hidden, layers=layers, heads=hidden // 64, kv_heads=hidden // 64,
        head_dim=64, ffn=4 * hidden, vocab=49408, gated=False, norm="layer", activation="gelu", tied=True, rope=False,
        positions=77, max_context=77, causal=False, qkv_bias=True, out_bias=True, mlp_bias=True, head=False, other=projection,
    )  # fmt: skip


def _decoder(
    name: str, hidden: int, layers: int, heads: int, kv_heads: int, head_dim: int, ffn: int, vocab: int, **more: Any
) -> Transformer:
    """Return the shape of a language model without its output head, used to encode text."""
    usual: dict[str, Any] = {"activation": "silu", "rope": True}
    return Transformer(
        name=name, model_type="text_encoder", hidden=hidden, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        ffn=ffn, vocab=vocab, gated=True, norm="rms", tied=True, positions=0, max_context=32768, causal=False, head=False,
        **usual | more,
    )  # fmt: skip


TEXT_ENCODERS: Mapping[str, Transformer] = {
    "clip-l": _clip("clip-l", 768, 12, 0),
    "clip-h": _clip("clip-h", 1024, 23, 0),
    "clip-bigg": _clip("clip-bigg", 1280, 32, 1280 * 1280),
    # T5 has one table of relative positions: 32 buckets for each head.
    "t5-xxl": _decoder("t5-xxl", 4096, 24, 64, 64, 64, 10240, 32128, rope=False, activation="gelu_tanh", other=32 * 64),
    # UMT5 has such a table in each of its layers.
    "umt5-xxl": _decoder(
        "umt5-xxl", 4096, 24, 64, 64, 64, 10240, 256_384, rope=False, activation="gelu_tanh", layer_other=32 * 64
    ),
    "gemma-2-2b": _decoder("gemma-2-2b", 2304, 26, 8, 4, 256, 9216, 256_000, activation="gelu_tanh", norms=4),
    "llama-3-8b": _decoder("llama-3-8b", 4096, 32, 32, 8, 128, 14336, 128_320),  # 64 tokens more, those of LLaVA
    # Its vision tower and output head are loaded as well: 676,550,144 and 152,064 x 3,584 parameters.
    "qwen2.5-vl-7b": _decoder(
        "qwen2.5-vl-7b", 3584, 28, 28, 4, 128, 18944, 152_064, qkv_bias=True, other=676_550_144 + 152_064 * 3584
    ),
}


def read_pipeline(fields: Fields) -> Pipeline | None:
    """Return the parts of a picture model beside its denoiser; None if its config states none."""
    config = fields.get("pipeline")
    if config is None:
        return None
    if not isinstance(config, Mapping):
        raise fields.error("pipeline", msg("config.missing"))
    own = Fields(config, fields.name, "pipeline.")
    return Pipeline(
        text_encoders=_text_encoders(own),
        decoder=_decoder_table(own),
        vae_parameters=own.size("vae_parameters", high=10**11),
        steps=own.size("steps", high=MAX_STEPS),
        guidance=own.flag("guidance", default=False),
        decodes_in_fp32=own.flag("vae_fp32", default=False),
        guides_in_turn=own.flag("guidance_in_turn", default=False),
        denoisers=own.size("denoisers", default=1, high=16),
        frames=own.size("frames", default=0, low=0, high=MAX_FRAMES),
        frames_per_latent=own.size("frames_per_latent", default=1, high=64),
        decoder_passes=own.size("vae_passes", default=1, high=100_000),
        decodes_in_parts=own.flag("vae_in_parts", default=False),
    )


def _text_encoders(fields: Fields) -> tuple[TextEncoder, ...]:
    """Return the text encoders that a config names, each with the number of tokens a prompt is padded to."""
    encoders = fields.get("text_encoders")
    if not isinstance(encoders, Mapping):
        raise fields.error("text_encoders", msg("config.missing"))
    for name in encoders:
        if name not in TEXT_ENCODERS:
            raise fields.error(
                "text_encoders", msg("config.not-choice", value=printable(repr(name)), choices=tuple(TEXT_ENCODERS))
            )
    tokens = Fields(encoders, fields.name, "pipeline.text_encoders.")
    return tuple(TextEncoder(TEXT_ENCODERS[name], tokens.size(name, high=100_000)) for name in encoders)


def _decoder_table(fields: Fields) -> str:
    if not (name := fields.word("vae_decoder")):
        raise fields.error("vae_decoder", msg("config.missing"))
    return name
