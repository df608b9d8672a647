"""Decoder models as serving code runs them, in plain torch: fused GEMMs, one function per block, a preallocated KV cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whichgpu.workload.shapes import Transformer

EPSILON = 1e-6  # Added to the variance; the default of Llama and Qwen configs.
Block = Callable[..., Any]


class Decoder:
    """A decoder with random weights and a KV cache for `batch` sequences of up to `context` tokens."""

    def __init__(self, torch: Any, shape: Transformer, batch: int, context: int, dtype: Any, device: str = "cuda") -> None:
        self._torch, self._shape = torch, shape
        make = _Maker(torch, dtype, device)
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        ups = 2 if shape.gated else 1
        self.embedding = make.random(shape.vocab, shape.hidden)
        self.head = self.embedding if shape.tied else make.random(shape.vocab, shape.hidden)
        self.positions = make.random(shape.positions, shape.hidden) if shape.positions else None
        self.last = make.norm(shape)
        self.blocks = [
            (
                make.norm(shape),
                make.random(queries + 2 * keys, shape.hidden),
                make.bias(queries + 2 * keys, shape.qkv_bias),
                make.random(shape.hidden, queries),
                make.bias(shape.hidden, shape.out_bias),
                make.norm(shape),
                make.random(ups * shape.ffn, shape.hidden),
                make.bias(ups * shape.ffn, shape.mlp_bias),
                make.random(shape.hidden, shape.ffn),
                make.bias(shape.hidden, shape.mlp_bias),
                make.ones(2, shape.head_dim) if shape.qk_norm else None,
            )
            for _ in range(shape.layers)
        ]
        cache = (batch, shape.kv_heads, context, shape.head_dim)
        self.caches = [(make.random(*cache), make.random(*cache)) for _ in range(shape.layers)]
        steps = torch.arange(0, shape.head_dim, 2, device=device).float() / shape.head_dim
        angles = torch.arange(context, device=device).float()[:, None] * (10000.0**-steps)[None]
        self.cos, self.sin = angles.cos()[None, :, None], angles.sin()[None, :, None]
        self.block: Block = block_of(torch, shape)

    def compiled(self) -> None:
        """Compile the block with TorchInductor for one shape."""
        self.block = self._torch.compile(self.block, dynamic=False, fullgraph=True)

    def prefill(self, ids: Any) -> Any:
        """Return the next token of each sequence after a prompt."""
        return self._tokens(self._through(ids, 0, ids.shape[1]))

    def decode(self, ids: Any) -> Any:
        """Return the next token after the last one in the cache."""
        context = self.caches[0][0].shape[2]
        return self._tokens(self._through(ids, context - 1, context))

    def _through(self, ids: Any, first: int, last: int) -> Any:
        functional = self._torch.nn.functional
        x = functional.embedding(ids, self.embedding)
        if self.positions is not None:
            x = x + self.positions[first:last]
        cos, sin = self.cos[:, first:last], self.sin[:, first:last]
        for weights, cache in zip(self.blocks, self.caches, strict=True):
            x = self.block(x, weights, cache, cos, sin)
        return _normed(self._torch, self._shape, x[:, -1:], self.last)

    def _tokens(self, x: Any) -> Any:
        return self._torch.nn.functional.linear(x, self.head).argmax(-1)


class _Maker:
    def __init__(self, torch: Any, dtype: Any, device: str) -> None:
        self._torch, self._settings = torch, {"dtype": dtype, "device": device}

    def random(self, *sizes: int) -> Any:
        return self._torch.empty(*sizes, **self._settings).normal_(0.0, 0.02)

    def ones(self, *sizes: int) -> Any:
        return self._torch.ones(*sizes, **self._settings)

    def bias(self, size: int, has_bias: bool) -> Any:
        return self._torch.zeros(size, **self._settings) if has_bias else None

    def norm(self, shape: Transformer) -> Any:
        """A weight and its bias."""
        return self.ones(2, shape.hidden)


def block_of(torch: Any, shape: Transformer) -> Block:
    """Return one layer as a function, for decode of one token with the cache or for prefill."""
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
        whole = tokens > 1
        out = functional.scaled_dot_product_attention(
            q, k if whole else keys, v if whole else values, is_causal=whole, **grouped
        )  # fmt: skip
        x = x + functional.linear(out.transpose(1, 2).reshape(batch, tokens, heads * dim), o, o_bias)
        wide = functional.linear(_normed(torch, shape, x, second), up, up_bias)
        return x + functional.linear(_activated(torch, shape, wide), down, down_bias)

    return block


def _activated(torch: Any, shape: Transformer, wide: Any) -> Any:
    functional = torch.nn.functional
    if shape.gated:
        gate, up = wide.chunk(2, dim=-1)
        return _activation(functional, shape.activation, gate) * up
    return _activation(functional, shape.activation, wide)


def _activation(functional: Any, name: str, x: Any) -> Any:
    return functional.gelu(x, approximate="tanh") if name == "gelu_tanh" else getattr(functional, name)(x)


def _normed(torch: Any, shape: Transformer, x: Any, weights: Any) -> Any:
    if shape.norm == "rms":
        return _rms(torch, x, weights[0])
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weights[0], weights[1])


def _rms(torch: Any, x: Any, weight: Any) -> Any:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype) * weight
