"""Small GGUF and safetensors files, written for tests."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.block_count": 2,
    "llama.embedding_length": 256,
    "llama.feed_forward_length": 512,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 4,
    "llama.context_length": 2048,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.tokens": ["a", "b", "c"] * 10,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.scores": [0.0] * 30,
}
# name: (type number, sizes); 0 F32, 12 Q4_K, 14 Q6_K
TENSORS: dict[str, tuple[int, tuple[int, ...]]] = {
    "token_embd.weight": (14, (256, 32)),
    "blk.0.attn_norm.weight": (0, (256,)),
    "blk.0.attn_q.weight": (12, (256, 256)),
    "blk.0.attn_k.weight": (12, (256, 128)),
    "output_norm.weight": (0, (256,)),
}
BYTES = {0: (1, 4), 1: (1, 2), 8: (32, 34), 10: (256, 84), 12: (256, 144), 14: (256, 210), 30: (1, 2), 39: (32, 17), 40: (64, 36)}


def gguf_bytes(
    metadata: dict[str, Any] | None = None, tensors: dict[str, tuple[int, tuple[int, ...]]] | None = None, version: int = 3
) -> bytes:
    """A GGUF file; its data is zeros."""
    metadata, tensors = LLAMA if metadata is None else metadata, TENSORS if tensors is None else tensors
    parts = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(metadata))]
    parts += [_text(key) + _value(value) for key, value in metadata.items()]
    offset = 0
    for name, (kind, sizes) in tensors.items():
        parts.append(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset))
        elements = 1
        for size in sizes:
            elements *= size
        block, size = BYTES[kind]
        offset += -(-(elements // block * size) // 32) * 32
    head = b"".join(parts)
    return head + bytes(-len(head) % 32) + bytes(offset)


def safetensors_bytes(tensors: dict[str, tuple[str, list[int], int]] | None = None) -> bytes:
    """A safetensors file: name to dtype, shape and bytes."""
    tensors = {"a": ("BF16", [4, 8], 64), "b": ("F32", [3], 12), "c": ("F4", [6], 3)} if tensors is None else tensors
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


def write(path: Path, data: bytes) -> Path:
    """The path, with that in it."""
    path.write_bytes(data)
    return path


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        items = [_value(item) for item in value]
        kind = items[0][:4] if items else struct.pack("<I", 4)
        return struct.pack("<I", 9) + kind + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<IQ", 10, value) if value >= 1 << 32 else struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<I", 8) + _text(str(value))
