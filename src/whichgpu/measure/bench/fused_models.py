"""Decoder models in plain torch as serving engines run them: fused GEMMs, one function per layer, a preallocated KV cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whichgpu.workload.shapes import Transformer

EPSILON = 1e-6  # Added to the variance in norms; the default of Llama and Qwen configs.
Block = Callable[..., Any]


class Decoder:
    """A decoder with random weights and a KV cache for `batch` sequences of up to `context` tokens."""

    def __init__(self, torch: Any, shape: Transformer, batch: int, context: int, dtype: Any, device: str = "cuda") -> None:
        self._torch, self._shape = torch, shape
        settings = {"dtype": dtype, "device": device}

        def random(*sizes: int) -> Any:
            return torch.empty(*sizes, **settings).normal_(0.0, 0.02)

        def norm(size: int) -> Any:  # Returns the norm's weight and bias tensors.
            return torch.ones(2, size, **settings)

        def bias(size: int, has_bias: bool) -> Any:
            return torch.zeros(size, **settings) if has_bias else None

        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        ups = 2 if shape.gated else 1
        self.embedding = random(shape.vocab, shape.hidden)
        self.head = self.embedding if shape.tied else random(shape.vocab, shape.hidden)
        self.positions = random(shape.positions, shape.hidden) if shape.positions else None
        self.last = norm(shape.hidden)
        self.blocks = [
            (
                norm(shape.hidden),
                random(queries + 2 * keys, shape.hidden),
                bias(queries + 2 * keys, shape.qkv_bias),
                random(shape.hidden, queries),
                bias(shape.hidden, shape.out_bias),
                norm(shape.hidden),
                random(ups * shape.ffn, shape.hidden),
                bias(ups * shape.ffn, shape.mlp_bias),
                random(shape.hidden, shape.ffn),
                bias(shape.hidden, shape.mlp_bias),
                norm(shape.head_dim) if shape.qk_norm else None,
            )
            for _ in range(shape.layers)
        ]
        cache = (batch, shape.kv_heads, context, shape.head_dim)
        self.caches = [(random(*cache), random(*cache)) for _ in range(shape.layers)]
        steps = torch.arange(0, shape.head_dim, 2, device=device).float() / shape.head_dim
        angles = torch.arange(context, device=device).float()[:, None] * (10000.0**-steps)[None]
        self.cos, self.sin = angles.cos()[None, :, None], angles.sin()[None, :, None]
        self.block: Block = block_of(torch, shape)

    def compiled(self) -> None:
        """Replace the function that computes one layer by its TorchInductor compilation for fixed tensor sizes."""
        self.block = self._torch.compile(self.block, dynamic=False, fullgraph=True)

    def prefill(self, ids: Any) -> Any:
        """Run prefill of the prompts `ids`, and return the next token of each sequence."""
        return self._next_tokens(ids, 0, ids.shape[1])

    def decode(self, ids: Any) -> Any:
        """Run one decode step on the tokens `ids`, one per sequence, and return the next tokens."""
        return self.verify(ids)

    def verify(self, ids: Any) -> Any:
        """Run one pass over the last tokens `ids` of each sequence, as after drafting, and return the token after each."""
        context, tokens = self.caches[0][0].shape[2], ids.shape[1]
        return self._next_tokens(ids, context - tokens, context, tokens)

    def _next_tokens(self, ids: Any, first: int, last: int, answered: int = 1) -> Any:
        functional = self._torch.nn.functional
        x = functional.embedding(ids, self.embedding)
        if self.positions is not None:
            x = x + self.positions[first:last]
        cos, sin = self.cos[:, first:last], self.sin[:, first:last]
        for weights, cache in zip(self.blocks, self.caches, strict=True):
            x = self.block(x, weights, cache, cos, sin)
        return functional.linear(_normed(self._torch, self._shape, x[:, -answered:], self.last), self.head).argmax(-1)


def block_of(torch: Any, shape: Transformer) -> Block:
    """Return a function that computes one transformer layer, for prefill or for a few tokens after those in the KV cache."""
    functional = torch.nn.functional
    heads, kv_heads, dim = shape.heads, shape.kv_heads, shape.head_dim
    grouped = {"enable_gqa": True} if kv_heads < heads else {}

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x.float().chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)

    def block(x: Any, weights: Any, cache: Any, cos: Any, sin: Any) -> Any:
        first, qkv, qkv_bias, o, o_bias, second, up, up_bias, down, down_bias, head_norms = weights
        batch, tokens, _ = x.shape
        joined = functional.linear(_normed(torch, shape, x, first), qkv, qkv_bias).view(batch, tokens, -1, dim)
        q, k, v = joined.split((heads, kv_heads, kv_heads), dim=2)
        if head_norms is not None:
            q, k = _rms(torch, q, head_norms[0]), _rms(torch, k, head_norms[1])
        if shape.rope:
            q, k = turned(q, cos, sin), turned(k, cos, sin)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        keys, values = cache
        keys[:, :, -tokens:] = k
        values[:, :, -tokens:] = v
        whole = tokens == keys.shape[2]
        out = functional.scaled_dot_product_attention(
            q, k if whole else keys, v if whole else values, is_causal=whole, **grouped
        )  # fmt: skip
        x = x + functional.linear(out.transpose(1, 2).reshape(batch, tokens, heads * dim), o, o_bias)
        wide = functional.linear(_normed(torch, shape, x, second), up, up_bias)
        return x + functional.linear(_activated(functional, shape, wide), down, down_bias)

    return block


def _activated(functional: Any, shape: Transformer, wide: Any) -> Any:
    gate, up = wide.chunk(2, dim=-1) if shape.gated else (wide, 1.0)
    is_tanh = shape.activation == "gelu_tanh"
    active = functional.gelu(gate, approximate="tanh") if is_tanh else getattr(functional, shape.activation)(gate)
    return active * up if shape.gated else active


def _normed(torch: Any, shape: Transformer, x: Any, weights: Any) -> Any:
    if shape.norm == "rms":
        return _rms(torch, x, weights[0])
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weights[0], weights[1])


def _rms(torch: Any, x: Any, weight: Any) -> Any:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype) * weight
