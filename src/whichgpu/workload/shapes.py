"""Shapes of models: the sizes that determine parameters, operators and memory. The other modules of this package build them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of the MLP: `count` routed experts, `active` of them a token."""

    count: int
    active: int
    ffn: int
    shared_ffn: int = 0  # width of the always-on expert(s) together
    dense_layers: int = 0  # layers, counted from the first, that keep a plain MLP
    every: int = 1  # every n-th layer is a mixture
    bias: bool = False  # each expert's matrices have biases (gpt-oss)
    other: int = 0  # parameters a mixture layer has beside router and experts: the router's bias, the shared expert's gate
    ranks: int = 1  # expert-parallel ranks that hold `count` whole experts between them
    token_groups: int = 1  # data-parallel groups that send their tokens to these ranks

    @property
    def per_rank(self) -> int:
        """Return the number of experts on the expert-parallel rank with the most of them."""
        return -(-self.count // self.ranks)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the cache holds one latent and one rotary part a token."""

    kv_rank: int
    q_rank: int  # 0: queries are projected directly
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Patches:
    """Tokens of an image: squares of `size` pixels, and `extra` tokens such as a class token."""

    image: int
    size: int
    channels: int = 3
    extra: int = 1
    bias: bool = True

    @property
    def tokens(self) -> int:
        """Return the number of tokens that one image becomes."""
        return (self.image // self.size) ** 2 + self.extra


class ModelShape:
    """Base class of model shapes: properties that all have; the defaults are those of models that are no transformers."""

    __slots__ = ()
    is_transformer: ClassVar[bool] = False
    causal: bool = False
    encoder_layers: int = 0
    patches: Patches | None = None
    native: str = ""
    stored_bytes: int = 0

    @property
    def is_language_model(self) -> bool:
        """Whether the model processes tokens of text."""
        return self.is_transformer and self.patches is None

    @property
    def is_generative(self) -> bool:
        """Whether the model generates text token by token."""
        return self.causal and self.patches is None

    @property
    def has_kv_cache(self) -> bool:
        """Whether the model has a KV cache while it decodes."""
        return self.causal or self.encoder_layers > 0

    @property
    def reads_images(self) -> bool:
        """Whether the model's input is an image of a stated size."""
        return self.patches is not None


@dataclass(frozen=True, slots=True)
class Transformer(ModelShape):
    """A transformer model (decoder, encoder or both) by its sizes."""

    is_transformer: ClassVar[bool] = True
    name: str
    model_type: str  # as its config.json says: llama, gpt2, bert, …
    hidden: int
    layers: int  # of the decoder; of the encoder where there is only one
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    gated: bool  # gate and up projections
    norm: Literal["rms", "layer"]
    activation: str  # silu, gelu, gelu_tanh (written out in torch operators), relu
    tied: bool  # output head shares the embedding
    rope: bool
    positions: int  # rows of a learned position table; 0: none
    max_context: int  # tokens it was made for
    causal: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    norms: int = 2  # normalisations a layer
    parallel_block: bool = False  # attention and MLP read the same normed input (GPT-J, NeoX, Falcon, Phi-2)
    token_types: int = 0
    pooler: bool = False
    lm_transform: bool = False  # dense + norm before the output head (BERT)
    embedding_norm: bool = False
    dropout: float = 0.0
    window: int = 0  # sliding-window attention, tokens; 0: none
    global_every: int = 0  # with a window: every n-th layer sees everything; 0: none does
    encoder_layers: int = 0  # encoder-decoder models
    encoder_context: int = 0  # fixed encoder length (Whisper: 1500)
    experts: Experts | None = None
    mla: LatentAttention | None = None
    head: bool = True  # an output over the vocabulary
    head_bias: bool = False
    key_bias: bool = True  # with qkv_bias: keys have one too (not in Whisper)
    norm_affine: bool = True  # normalisations have learned weights (not in OLMo)
    norm_bias: bool = True  # layer normalisations have biases (not in Cohere, MPT, ModernBERT)
    final_norm: bool = True
    embedding: int = 0  # width of the embedding, projected to and from `hidden`; 0: the same
    patches: Patches | None = None  # images in, not tokens
    layer_other: int = 0  # parameters of a layer beyond the above: attention sinks, wide query and key norms, layer scales
    other: int = 0  # parameters outside the layers: a second tower and its projector, relative positions, classifier
    native: str = ""  # precision its weights are published in, where that is not 16 bit: fp8, int4, mxfp4
    stored_bytes: int = 0  # of the weights in the file it was read from; 0: not read from weights


@dataclass(frozen=True, slots=True)
class Mlp(ModelShape):
    """A plain multi-layer perceptron by the units of its layers: mlp:9000x4000x4000x32."""

    name: str
    units: tuple[int, ...]


DENOISERS = ("unet", "transformer")


@dataclass(frozen=True, slots=True)
class TracedShape(ModelShape):
    """A vision, diffusion or other model known only by the stored list of operators that a run of it in torch called."""

    name: str
    table: str
    image: int
    denoiser: str = ""  # one of DENOISERS: the network that a diffusion pipeline runs once or twice a step

    @property
    def reads_images(self) -> bool:
        """Whether the model was traced with images as input."""
        return self.image > 0


@dataclass(frozen=True, slots=True)
class WeightsOnly(ModelShape):
    """A file whose tensors are known but not how they are used: weights can be counted, nothing else."""

    name: str
    parameters: int
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Dlrm(ModelShape):
    """A recommendation model (DLRM, arXiv 1906.00091): embedding tables by their rows, and two perceptrons.

    `bottom` begins with the dense features; `top` holds the units after the interaction, whose width follows.
    """

    name: str
    embedding_dim: int
    tables: tuple[int, ...]
    bottom: tuple[int, ...]
    top: tuple[int, ...]

    @property
    def interaction(self) -> int:
        """Return the input width of the top MLP: the bottom MLP's output and the dot products of all pairs of vectors."""
        vectors = len(self.tables) + 1
        return self.embedding_dim + vectors * (vectors - 1) // 2


Shape = Transformer | Mlp | TracedShape | WeightsOnly | Dlrm


def as_transformer(shape: Shape) -> Transformer:
    """Narrow the type of a shape that the caller knows to be a transformer."""
    assert isinstance(shape, Transformer)
    return shape
