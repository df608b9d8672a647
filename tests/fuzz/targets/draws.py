"""Random inputs shared by targets: JSON and TOML documents with a parser's keys, texts near valid ones."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

ODD_NUMBERS = (0, 1, -1, 2, 8, 128, 4096, 2**31, 2**63, 10**18, 10**30, -(10**30), 0.5, 1e-9, 1e308)
NAMES = (
    "H100 SXM",
    "A100",
    "L4",
    "llama-3.1-8b",
    "mlp:8x8",
    "resnet50",
    "aws",
    "on-demand",
    "USD",
    "bf16",
    "vllm",
    "serve",
    "train",
)
TEXTS = (
    "5/s",
    "50ms",
    "24h",
    "80GiB",
    "2usd/h",
    "12%",
    "2026-01-01",
    "2026",
    "8xA100",
    "rate=1/s",
    "dp=2,tp=4",
    "1:2,3:4",
    "nan",
    "inf",
)

scalars: SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5000),
    st.sampled_from(ODD_NUMBERS),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(NAMES + TEXTS),
)


def documents(keys: Sequence[str], leaves: int = 14) -> SearchStrategy[Any]:
    """Nested values under these keys."""
    strategy = st.sampled_from(list(keys)) | st.text(max_size=6)
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strategy, inner, max_size=6), max_leaves=leaves
    )


def objects(keys: Sequence[str], usual: dict[str, Any] | None = None) -> SearchStrategy[dict[str, Any]]:
    """Objects of these keys, some of them as usual."""
    wild = st.dictionaries(st.sampled_from(list(keys)), scalars | documents(keys, 5), max_size=6)
    return st.builds(lambda base, more: {**(usual or {}), **more} if base else more, st.booleans(), wild)


def as_json(drawn: SearchStrategy[Any]) -> SearchStrategy[bytes]:
    """Written as JSON, NaN and all."""
    return drawn.map(lambda value: json.dumps(value).encode())


def as_toml(drawn: SearchStrategy[Any]) -> SearchStrategy[bytes]:
    """Written as TOML: one key a line, tables inline."""

    def whole(value: Any) -> bytes:
        pairs = value.items() if isinstance(value, dict) else [("model", value)]
        return "".join(f"{_key(key)} = {_toml(item)}\n" for key, item in pairs if item is not None).encode("utf-8", "replace")

    return drawn.map(whole)


def texts(*alphabet: str) -> SearchStrategy[bytes]:
    """Any text, the known ones, and pieces of them."""
    near = st.sampled_from(alphabet + TEXTS)
    joined = st.lists(near | st.text(max_size=4) | st.sampled_from((",", "=", " ", "/", ":", "x", "..", "-", "@")), max_size=5)
    return (st.text(max_size=60) | joined.map("".join)).map(lambda text: text.encode("utf-8", "replace"))


def from_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], Hashable]:
    """A feed that writes the input to a file of that name and has it read."""

    def feed(data: bytes) -> Hashable:
        path = room() / name
        path.write_bytes(data)
        content = read(path)
        return type(content).__name__

    return feed


@cache
def room() -> Path:
    """A folder of this process for such files."""
    return Path(tempfile.mkdtemp(prefix="inputs-"))


def _key(key: object) -> str:
    return json.dumps(str(key), ensure_ascii=True)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if value is None:
        return '""'
    return str(value) if isinstance(value, float) else json.dumps(value)
