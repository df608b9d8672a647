"""Transformers in plain torch, with the operators of the `transformers` library and random weights."""

from __future__ import annotations

from typing import Any

from whichgpu.workload.shapes import Transformer

EPSILON = 1e-6  # Added to the variance in norms; the default of Llama and Qwen configs.
GELU_SCALE = 0.7978845608028654  # sqrt(2 / pi)
POST_NORM = ("bert", "roberta", "xlm-roberta", "camembert", "electra")


def transformer(torch: Any, shape: Transformer, checkpointing: bool = False) -> Any:
    """Build a transformer with random weights as a torch module that maps token ids to logits."""
    nn, functional = torch.nn, torch.nn.functional
    module: Any = nn.Module
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    joined = shape.model_type == "gpt2"
    post = shape.model_type in POST_NORM

    class RmsNorm(module):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x: Any) -> Any:
            wide = x.to(torch.float32)
            wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
            return self.weight * wide.to(x.dtype)

    def norm(width: int) -> Any:
        return RmsNorm(width) if shape.norm == "rms" else nn.LayerNorm(width)

    def activate(x: Any) -> Any:
        if shape.activation == "gelu_tanh":
            return 0.5 * x * (1.0 + torch.tanh(GELU_SCALE * (x + 0.044715 * torch.pow(x, 3.0))))
        return getattr(functional, shape.activation)(x)

    class AttentionModule(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            if joined:
                self.qkv = nn.Linear(shape.hidden, queries + 2 * keys, bias=shape.qkv_bias)
            else:
                self.q = nn.Linear(shape.hidden, queries, bias=shape.qkv_bias)
                self.k = nn.Linear(shape.hidden, keys, bias=shape.qkv_bias)
                self.v = nn.Linear(shape.hidden, keys, bias=shape.qkv_bias)
            self.o = nn.Linear(queries, shape.hidden, bias=shape.out_bias)
            if shape.qk_norm:
                self.q_norm, self.k_norm = RmsNorm(shape.head_dim), RmsNorm(shape.head_dim)

        def forward(self, x: Any, turn: Any) -> Any:
            batch, tokens, _ = x.shape
            parts = self.qkv(x).split((queries, keys, keys), dim=2) if joined else (self.q(x), self.k(x), self.v(x))
            q, k, v = (part.view(batch, tokens, -1, shape.head_dim) for part in parts)
            if shape.qk_norm:
                q, k = self.q_norm(q), self.k_norm(k)
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            if turn is not None:
                q, k = _turned(torch, q, *turn), _turned(torch, k, *turn)
            grouped = {"enable_gqa": True} if shape.kv_heads < shape.heads else {}
            share = shape.dropout if self.training else 0.0
            out = functional.scaled_dot_product_attention(q, k, v, dropout_p=share, is_causal=shape.causal, **grouped)
            return self.o(out.transpose(1, 2).reshape(batch, tokens, queries))

    class MlpModule(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(shape.hidden, shape.ffn, bias=shape.mlp_bias)
            if shape.gated:
                self.gate = nn.Linear(shape.hidden, shape.ffn, bias=shape.mlp_bias)
            self.down = nn.Linear(shape.ffn, shape.hidden, bias=shape.mlp_bias)

        def forward(self, x: Any) -> Any:
            return self.down(activate(self.gate(x)) * self.up(x) if shape.gated else activate(self.up(x)))

    class Layer(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.mlp = AttentionModule(), MlpModule()
            self.first, self.second = norm(shape.hidden), norm(shape.hidden)

        def forward(self, x: Any, turn: Any) -> Any:
            if post:
                x = self.first(x + self.drop(self.attention(x, turn)))
                return self.second(x + self.drop(self.mlp(x)))
            x = x + self.drop(self.attention(self.first(x), turn))
            return x + self.drop(self.mlp(self.second(x)))

        def drop(self, x: Any) -> Any:
            return functional.dropout(x, shape.dropout, True) if self.training and shape.dropout else x

    class TransformerModule(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(shape.vocab, shape.hidden)
            self.positions = nn.Embedding(shape.positions, shape.hidden) if shape.positions else None
            self.types = nn.Embedding(shape.token_types, shape.hidden) if shape.token_types else None
            self.embedded = norm(shape.hidden) if shape.embedding_norm else None
            self.layers = nn.ModuleList([Layer() for _ in range(shape.layers)])
            self.last = norm(shape.hidden) if shape.final_norm and not post else None
            self.dense = nn.Linear(shape.hidden, shape.hidden) if shape.lm_transform else None
            self.dense_norm: Any = norm(shape.hidden) if shape.lm_transform else None
            self.head = nn.Linear(shape.hidden, shape.vocab, bias=shape.head_bias) if shape.head else None
            if self.head is not None and shape.tied:
                self.head.weight = self.tokens.weight

        def forward(self, ids: Any, last_only: bool = False) -> Any:
            x = self.tokens(ids)
            places = torch.arange(ids.shape[1], device=ids.device)
            if self.positions is not None:
                x = x + self.positions(places)
            if self.types is not None:
                x = x + self.types(torch.zeros_like(ids))
            if self.embedded is not None:
                x = self.embedded(x)
            turn = _angles(torch, shape, places, x.dtype) if shape.rope else None
            for layer in self.layers:
                if checkpointing and self.training:
                    x = torch.utils.checkpoint.checkpoint(layer, x, turn, use_reentrant=False)
                else:
                    x = layer(x, turn)
            if self.last is not None:
                x = self.last(x)
            if self.head is None or (post and not self.training):
                return x
            if last_only:
                x = x[:, -1:]
            if self.dense is not None:
                x = self.dense_norm(functional.gelu(self.dense(x)))
            return self.head(x)

    return TransformerModule()


def _angles(torch: Any, shape: Transformer, places: Any, dtype: Any) -> tuple[Any, Any]:
    steps = torch.arange(0, shape.head_dim, 2, device=places.device).float() / shape.head_dim
    angles = places.float()[:, None] * (10000.0**-steps)[None]
    both = torch.cat((angles, angles), dim=-1)
    return both.cos().to(dtype)[None, None], both.sin().to(dtype)[None, None]


def _turned(torch: Any, x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin
