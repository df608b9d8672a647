"""Shapes of models: the sizes that determine parameters, operators and memory. The other modules of this package build them."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec


class Experts(msgspec.Struct, frozen=True):
    """Sizes of an MoE layer, which replaces the MLP: `count` routed experts, of which each token uses `active`."""

    count: int
    active: int
    ffn: int
    shared_ffn: int = 0  # total width of the shared experts, which every token uses
    dense_layers: int = 0  # number of first layers that have a plain MLP instead
    every: int = 1  # every n-th layer is an MoE layer
    bias: bool = False  # whether the experts' matrices have biases (gpt-oss)
    other: int = 0  # parameters of an MoE layer besides router and experts: router bias, gate of the shared expert
    ranks: int = 1  # number of expert-parallel ranks over which the experts are distributed
    token_groups: int = 1  # number of data-parallel groups whose tokens these ranks process

    @property
    def per_rank(self) -> int:
        """Return the number of experts on the expert-parallel rank with the most of them."""
        return -(-self.count // self.ranks)

    @property
    def tensor_ranks(self) -> int:
        """Return the number of tensor-parallel ranks of one data-parallel group over which whole experts are distributed."""
        return self.ranks // self.token_groups


class LatentAttention(msgspec.Struct, frozen=True):
    """Sizes of MLA (DeepSeek-V2, arXiv 2405.04434), which caches one latent vector and one rotary key per token and layer."""

    kv_rank: int
    q_rank: int  # 0 if queries are projected without compression
    nope_dim: int
    rope_dim: int
    value_dim: int


class SparseIndexer(msgspec.Struct, frozen=True):
    """Sizes of the indexer that picks the tokens each query attends to (DeepSeek sparse attention, arXiv 2512.02556)."""

    heads: int
    dim: int  # elements of an index key, which is cached per token and layer
    top_tokens: int  # tokens that attention reads at most


class RecurrentMixer(msgspec.Struct, frozen=True):
    """Sizes of a linear-attention or state-space layer, which stores a state of fixed size per sequence and no KV cache.

    Each of `heads` heads has a state of `key_dim` x `value_dim` elements: gated DeltaNet (arXiv 2412.06464), Kimi delta attention
    (2510.26692), Mamba-2 (2405.21060), lightning attention (2501.08313), mLSTM (2405.04517). Mamba (2312.00752), RG-LRU
    (2402.19427) and RWKV-4 (2305.13048) have states per channel; a short convolution (LFM2) has none beside its window.
    """

    kind: str  # gated_delta, kda, mamba2, mamba, lightning, mlstm, rg_lru, wkv, short_conv
    inward: int  # outputs of the projections of the hidden state
    outward: int  # inputs of the output projection
    heads: int
    key_dim: int
    value_dim: int
    conv_channels: int = 0
    conv_taps: int = 0
    inner: tuple[tuple[int, int], ...] = ()  # further matrices, such as Mamba's projections to its step sizes
    other: int = 0  # parameters beside the matrices: convolution, decay, step biases, norm
    state_bytes: int | None = None  # bytes of a state's element; None: the config states no type, and engines choose it

    @property
    def state(self) -> int:
        """Elements of the state of one sequence."""
        return self.heads * self.key_dim * self.value_dim

    @property
    def conv_state(self) -> int:
        """Elements of the convolution's window of one sequence."""
        return self.conv_channels * max(0, self.conv_taps - 1)


class Patches(msgspec.Struct, frozen=True):
    """Division of an image into tokens: squares with sides of `size` pixels, and `extra` tokens such as a class token."""

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
    """Base class of model shapes (the sizes of a model): properties that all have; defaults are for non-transformers."""

    __slots__ = ()
    is_transformer: ClassVar[bool] = False
    causal: bool = False
    head: bool = True
    encoder_layers: int = 0
    patches: Patches | None = None
    native: str = ""
    unknown_quantisation: str = ""
    file_format: str = ""
    stored_bytes: int = 0
    stored_widths: tuple[tuple[str, float], ...] = ()

    @property
    def is_language_model(self) -> bool:
        """Whether the model processes tokens of text."""
        return self.is_transformer and self.patches is None

    @property
    def is_generative(self) -> bool:
        """Whether the model generates text token by token; a decoder without an output head makes embeddings."""
        return self.causal and self.patches is None and self.head

    @property
    def has_kv_cache(self) -> bool:
        """Whether the model has a KV cache while it decodes."""
        return self.causal or self.encoder_layers > 0

    @property
    def reads_images(self) -> bool:
        """Whether the model's input is an image of a stated size."""
        return self.patches is not None


class FullHeads(msgspec.Struct, frozen=True):
    """Heads of the layers with full attention if those with a sliding window have others (Gemma 4)."""

    head_dim: int
    kv_heads: int
    keys_are_values: bool = False


class Transformer(ModelShape, msgspec.Struct, frozen=True):
    """A transformer model (decoder, encoder or both) by its sizes."""

    is_transformer: ClassVar[bool] = True
    name: str
    model_type: str  # `model_type` of its config.json: llama, gpt2, bert, …
    hidden: int
    layers: int  # layers of the decoder, or of the encoder in encoder-only models
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    gated: bool  # whether the MLP has a gate projection (SwiGLU, GeGLU)
    norm: Literal["rms", "layer"]
    activation: str  # silu, relu, gelu, or gelu_tanh (several elementwise operators instead of one)
    tied: bool  # whether the output head shares its weights with the embedding
    rope: bool
    positions: int  # rows of the table of learned positions; 0 if there is none
    max_context: int  # longest context in tokens that it was trained for
    causal: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    norms: int = 2  # normalisations per layer
    parallel_block: bool = False  # attention and MLP have the same normalised input (GPT-J, NeoX, Falcon, Phi-2)
    token_types: int = 0
    pooler: bool = False
    lm_transform: bool = False  # whether a dense layer and a norm come before the output head (BERT)
    embedding_norm: bool = False
    dropout: float = 0.0
    window: int = 0  # width of sliding-window attention in tokens; 0 for full attention
    global_every: int = 0  # with a window: every n-th layer has full attention; 0 if none has
    full_heads: FullHeads | None = None
    keys_are_values: bool = False  # values are the keys before their norm and have no projection; both are cached
    kv_shared: int = 0  # last layers that attend to keys and values of earlier layers and compute none of their own (Gemma 3n)
    encoder_layers: int = 0  # layers of the encoder in encoder-decoder models
    encoder_context: int = 0  # fixed input length of the encoder in tokens (Whisper: 1500)
    experts: Experts | None = None
    mla: LatentAttention | None = None
    sparse: SparseIndexer | None = None
    recurrent: RecurrentMixer | None = None
    # One letter per layer, empty if all are alike: A attention, R recurrent mixer, B both side by side (each with an MLP); a, r
    # the same without an MLP; - a dense MLP alone, + an MoE alone.
    pattern: str = ""
    draft: Transformer | None = None  # network that drafts tokens in speculative decoding
    head: bool = True  # whether there is an output head over the vocabulary
    head_bias: bool = False
    key_bias: bool = True  # whether `qkv_bias` includes a bias of keys (not in Whisper)
    norm_affine: bool = True  # normalisations have learned weights (not in OLMo)
    norm_bias: bool = True  # layer normalisations have biases (not in Cohere, MPT, ModernBERT)
    final_norm: bool = True
    embedding: int = 0  # width of the embedding if it differs from `hidden`, to which it is projected; else 0
    patches: Patches | None = None  # set if the input is an image instead of tokens
    layer_other: int = 0  # parameters per layer not counted above: attention sinks, wide query and key norms, layer scales
    other: int = 0  # parameters outside the layers: a second tower and its projector, relative positions, classifier
    native: str = ""  # precision of the published weights or of the file's tensors: fp8, int4, mxfp4, q4_k_m; empty for bf16
    unknown_quantisation: str = ""  # method in which the weights are published if it has no precision here, such as aqlm
    file_format: str = ""  # gguf if read from a GGUF file, which decides the default engine
    stored_bytes: int = 0  # bytes of the weights in the file it was read from; 0 if read from a config only
    stored_widths: tuple[tuple[str, float], ...] = ()  # bytes per weight in that file by the matrices' role, such as attn_q


class Mlp(ModelShape, msgspec.Struct, frozen=True):
    """A plain multi-layer perceptron by the units of its layers: mlp:9000x4000x4000x32."""

    name: str
    units: tuple[int, ...]


DENOISERS = ("unet", "transformer")


class TextEncoder(msgspec.Struct, frozen=True):
    """A text encoder of a picture model and the number of tokens that a prompt is padded to."""

    shape: Transformer
    tokens: int


class Pipeline(msgspec.Struct, frozen=True):
    """Parts of a picture or video model beside its denoiser, and how it is usually run."""

    text_encoders: tuple[TextEncoder, ...]
    decoder: str  # operator table of the VAE's decoder, which makes pixels of latents
    vae_parameters: int  # parameters of the VAE, encoder and decoder
    steps: int  # usual denoising steps of a picture or video
    guidance: bool  # whether classifier-free guidance is usual: two passes a step, with the prompt and without it
    decodes_in_fp32: bool = False  # whether the decoder overflows in fp16, so that it is run in fp32 there
    guides_in_turn: bool = False  # whether the two passes of guidance run one after the other instead of as one batch
    denoisers: int = 1  # networks of the denoiser's sizes that are loaded, each for some of the steps (Wan 2.2: 2)
    frames: int = 0  # frames of a usual video, for which its tables were recorded; 0 if it makes pictures
    frames_per_latent: int = 1  # frames that share one latent frame; the first frame has its own
    decoder_passes: int = 1  # passes of the decoder for a usual video, if it decodes tile by tile
    decodes_in_parts: bool = False  # whether the decoder takes a few frames at a time, so that more frames need no more memory

    def latent_frames(self, frames: int) -> int:
        """Return the number of latent frames of a video.

        >>> Pipeline((), "", 0, 50, True, frames_per_latent=4).latent_frames(81)
        21
        """
        return (frames - 1) // self.frames_per_latent + 1


class TracedShape(ModelShape, msgspec.Struct, frozen=True):
    """A vision, diffusion or other model known only by the stored list of operators that a run of it in torch called."""

    name: str
    table: str
    image: int
    denoiser: str = ""  # kind of network (of DENOISERS) that a diffusion pipeline runs once or twice per step
    pipeline: Pipeline | None = None  # the other parts of a diffusion model

    @property
    def reads_images(self) -> bool:
        """Whether the model was run on images when its operators were recorded."""
        return self.image > 0


class WeightsOnly(ModelShape, msgspec.Struct, frozen=True):
    """A model of unknown architecture whose file lists its tensors: only the memory of its weights can be estimated."""

    name: str
    parameters: int
    weight_bytes: int


class Dlrm(ModelShape, msgspec.Struct, frozen=True):
    """A recommendation model (DLRM, arXiv 1906.00091): embedding tables by their rows, and two perceptrons.

    `bottom` and `top` are the widths of the two: from the dense input features on, and after the interaction of features.
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
    """Return a model's shape that the caller knows to be a transformer, for type checkers."""
    assert isinstance(shape, Transformer)
    return shape
