"""Parameters of the vision tower and projector of a multimodal model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from whichgpu.workload.hf.fields import Fields
from whichgpu.workload.hf.vision import DEFAULTS, square, vision_encoder
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Transformer

Tower = Callable[[Fields, int], int]


def tower_parameters(fields: Fields, model_type: str, hidden: int) -> int:
    """Return the parameters of a config's vision tower and projector, for a language model of width `hidden`; 0 if unknown."""
    count = TOWERS.get(model_type)
    return count(fields, hidden) if count and fields.nested("vision_config") else 0


def _inner(fields: Fields, kind: str = "") -> Fields:
    inner = fields.nested("vision_config", defaults=DEFAULTS.get(kind, {}))
    return inner or Fields({}, fields.name, "vision_config.")


def _siglip(fields: Fields) -> Transformer:
    kind = "siglip_vision_model"
    inner = _inner(fields, kind)
    shape = vision_encoder(inner, kind)
    return shape if inner.flag("vision_use_head", default=False) else replace(shape, other=0)


def _gemma3(fields: Fields, hidden: int) -> int:
    tower = _siglip(fields)
    return count_parameters(tower).total + tower.hidden * (hidden + 1)  # The projector is one matrix and one norm.


def _paligemma(fields: Fields, hidden: int) -> int:
    tower = _siglip(fields)
    return count_parameters(tower).total + (tower.hidden + 1) * hidden


def _llava(fields: Fields, hidden: int) -> int:
    inner = _inner(fields)
    if inner.word("model_type") not in ("clip_vision_model", ""):
        return 0
    tower = vision_encoder(_inner(fields, "clip_vision_model"), "clip_vision_model")
    return count_parameters(tower).total + (tower.hidden + 1) * hidden + (hidden + 1) * hidden


def _llava_next(fields: Fields, hidden: int) -> int:
    """Parameters of LLaVA's tower and projector, and the vector that separates the rows of an image's tiles."""
    tower = _llava(fields, hidden)
    return tower + hidden if tower else 0


def _internvl(fields: Fields, hidden: int) -> int:
    """Parameters of InternViT, whose blocks have two scales per channel, and of the MLP that merges four patches."""
    inner = _inner(fields)
    width, ffn = inner.size("hidden_size", default=1024), inner.size("intermediate_size", default=4096)
    layer = 4 * width * (width + 1) + 2 * width * ffn + ffn + width + 6 * width
    patches = (square(inner, "image_size") // square(inner, "patch_size")) ** 2
    embedding = width * (inner.size("num_channels", default=3) * square(inner, "patch_size") ** 2 + 2 + patches + 1)
    merged = 4 * width
    projector = 2 * merged + (merged + 1) * hidden + (hidden + 1) * hidden
    return inner.layers("num_hidden_layers", default=24) * layer + embedding + projector


TILE_SHAPES = 9  # arrangements of up to four tiles, and none, for which Llama 3.2 Vision has an embedding each


def _mllama(fields: Fields, hidden: int) -> int:
    """Parameters of Llama 3.2's vision tower: local and gated global blocks, positions of patches and of tiles, projector."""
    inner = _inner(fields)
    width, ffn = inner.size("hidden_size", default=1280), inner.size("intermediate_size", default=5120)
    tokens = (square(inner, "image_size") // square(inner, "patch_size")) ** 2 + 1
    layer = 4 * width * width + 2 * width * ffn + ffn + width + 4 * width
    global_layers = inner.layers("num_global_layers", default=8)
    tiles = TILE_SHAPES * inner.size("max_num_tiles", default=4, high=64) * width
    positions = 1 + tokens * width + tokens * tiles + 2 * (tiles + 1)
    patches = width * (inner.size("num_channels", default=3) * square(inner, "patch_size") ** 2 + 1)
    tower = (inner.layers("num_hidden_layers", default=32) + global_layers) * layer + 2 * global_layers
    return tower + patches + positions + 4 * width + (inner.size("vision_output_dim", default=7680) + 1) * hidden


def _llama4(fields: Fields, hidden: int) -> int:
    """Parameters of Llama 4's ViT, whose patch embedding has no bias, and of its pixel-shuffle MLP and projector."""
    inner = _inner(fields)
    width, ffn = inner.size("hidden_size"), inner.size("intermediate_size")
    tokens = (square(inner, "image_size") // square(inner, "patch_size")) ** 2 + 1
    layer = 4 * width * (width + 1) + 2 * width * ffn + ffn + width + 4 * width
    patches = width * inner.size("num_channels", default=3) * square(inner, "patch_size") ** 2
    tower = inner.layers("num_hidden_layers") * layer + patches + width * (tokens + 1) + 4 * width
    inward, outward = inner.size("projector_input_dim", default=4096), inner.size("projector_output_dim", default=4096)
    return tower + ffn * inward + outward * outward + inner.size("vision_output_dim", default=outward) * hidden


def _qwen2(fields: Fields, hidden: int) -> int:
    inner = _inner(fields)
    width = inner.size("embed_dim", default=1280)
    ffn = width * inner.size("mlp_ratio", default=4, high=64)
    layer = 4 * width * (width + 1) + 2 * width * ffn + ffn + width + 4 * width
    return inner.layers("depth", default=32) * layer + _cubes(inner, width) + _merger(inner, width, hidden) + 2 * width


def _qwen2_5(fields: Fields, hidden: int) -> int:
    inner = _inner(fields)
    width, ffn = inner.size("hidden_size", default=1280), inner.size("intermediate_size", default=3420)
    layer = 4 * width * (width + 1) + 3 * width * ffn + 2 * ffn + width + 2 * width
    return inner.layers("depth", default=32) * layer + _cubes(inner, width) + _merger(inner, width, hidden) + width


def _qwen3(fields: Fields, hidden: int) -> int:
    """Parameters of Qwen3-VL's tower: learned positions, and extra mergers that feed the language model's first layers."""
    inner = _inner(fields)
    width, ffn = inner.size("hidden_size", default=1152), inner.size("intermediate_size", default=4304)
    layer = 4 * width * (width + 1) + 2 * width * ffn + ffn + width + 4 * width
    positions = inner.size("num_position_embeddings", default=2304) * width
    merger = _merger(inner, width, hidden)
    merged = width * inner.size("spatial_merge_size", default=2, high=64) ** 2
    deep = inner.get("deepstack_visual_indexes")
    deep_mergers = (len(deep) if isinstance(deep, list | tuple) else 3) * (merger + 2 * merged)
    patches = _cubes(inner, width) + width
    return inner.layers("depth", default=27) * layer + patches + positions + merger + 2 * width + deep_mergers


def _cubes(inner: Fields, width: int) -> int:
    """Parameters of the patch embedding, a 3D convolution over two frames without bias."""
    frames = inner.size("temporal_patch_size", default=2, high=64)
    return (
        width * inner.size("in_channels", "in_chans", default=3) * frames * inner.size("patch_size", default=14, high=10_000) ** 2
    )


def _merger(inner: Fields, width: int, hidden: int) -> int:
    """Parameters of the two-layer MLP that merges four neighbouring patches; the caller counts its norm."""
    merged = width * inner.size("spatial_merge_size", default=2, high=64) ** 2
    return (merged + 1) * merged + (merged + 1) * hidden


def _mistral3(fields: Fields, hidden: int) -> int:
    """Parameters of Pixtral's encoder, whose blocks are Llama's, and of the projector that merges neighbouring patches."""
    inner = _inner(fields)
    width, ffn = inner.size("hidden_size", default=1024), inner.size("intermediate_size", default=4096)
    layer = 4 * width * width + 3 * width * ffn + 2 * width
    patches = width * inner.size("num_channels", default=3) * square(inner, "patch_size") ** 2
    merge = fields.size("spatial_merge_size", default=2, high=64) ** 2
    bias = 2 * hidden if fields.flag("multimodal_projector_bias", default=False) else 0
    projector = width + merge * width * width + width * hidden + hidden * hidden + bias
    return inner.layers("num_hidden_layers", default=24) * layer + patches + width + projector


# Parameters of Gemma 3n's image tower (MobileNetV5) and audio tower (a conformer), the same in both sizes of the model, as the
# classes of transformers 5.23.0 and timm 1.0.31 have them.
GEMMA_3N_IMAGES, GEMMA_3N_AUDIO = 294_126_912, 681_348_640


def _gemma3n(fields: Fields, hidden: int) -> int:
    """Parameters of both towers with their embedding tables, two norms and projections."""

    def embedder(key: str, rows: int, width: int) -> int:
        inner = fields.nested(key) or Fields({}, fields.name)
        width = inner.size("hidden_size", default=width)
        return width * (inner.size("vocab_size", default=rows) + 2 + hidden)

    return GEMMA_3N_IMAGES + GEMMA_3N_AUDIO + embedder("vision_config", 128, 2048) + embedder("audio_config", 128, 1536)


TOWERS: Mapping[str, Tower] = {
    "gemma3": _gemma3,
    "gemma3n": _gemma3n,
    "paligemma": _paligemma,
    "internvl_chat": _internvl,
    "llava": _llava,
    "llava_next": _llava_next,
    "llama4": _llama4,
    "mistral3": _mistral3,
    "mllama": _mllama,
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
}
