"""Reader of safetensors headers (github.com/huggingface/safetensors): tensors, number of weights, and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.workload.hf.fields import printable
from whichgpu.workload.model_files.bounded_read import unreadable
from whichgpu.workload.shapes import WeightsOnly

MAX_HEADER_BYTES = 100_000_000  # Largest header in bytes, set by the format.
MAX_TENSORS = 200_000  # Largest number of tensors in one file; the largest models have 140,000 in all.
MAX_INDEX_TENSORS = 500_000  # Largest number of tensors of one model (set by judgement).
MAX_SHARDS = 10_000  # Largest number of files of one model (set by judgement).

# Bits of one element by dtype.
DTYPES: Mapping[str, int] = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}


def read_safetensors(path: Path) -> WeightsOnly:
    """Return number and bytes of weights in a safetensors file, or in all files that its index names."""
    shards = _shards(path) if path.suffix == ".json" else (path,)
    counted = [_count(shard) for shard in shards]
    weights = sum(weights for weights, _ in counted)
    if not weights:
        raise _error(path, msg("safetensors.no-weights"))
    return WeightsOnly(path.name, weights, sum(size for _, size in counted))


def _shards(path: Path) -> tuple[Path, ...]:
    if (size := _size(path)) > MAX_HEADER_BYTES:
        raise _error(path, msg("safetensors.bad-length", length=size, most=MAX_HEADER_BYTES))
    content = _read(path, 0, size)
    if (count := content.count(b".safetensors")) > MAX_INDEX_TENSORS:
        raise _error(path, msg("safetensors.bad-count", count=count, most=MAX_INDEX_TENSORS))
    index = _object(path, content)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _error(path, msg("safetensors.no-map"))
    for file in weight_map.values():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise _error(path, msg("safetensors.bad-shard", name=printable(str(file))))
    files = dict.fromkeys(weight_map.values())
    if len(files) > MAX_SHARDS:
        raise _error(path, msg("safetensors.bad-count", count=len(files), most=MAX_SHARDS))
    return tuple(path.with_name(file) for file in files)


def _count(path: Path) -> tuple[int, int]:
    """Return the number of weights and of their bytes in one safetensors file."""
    head = _read(path, 0, 8)
    if len(head) < 8:
        raise _error(path, msg("safetensors.cut", what=msg("safetensors.length"), size=len(head), wanted=8))
    length, size = int.from_bytes(head, "little"), _size(path)
    if length > MAX_HEADER_BYTES:
        raise _error(path, msg("safetensors.bad-length", length=length, most=MAX_HEADER_BYTES))
    if 8 + length > size:
        raise _error(path, msg("safetensors.cut", what=msg("safetensors.header"), size=size, wanted=8 + length))
    header = _read(path, 8, length)
    if (count := header.count(b'"data_offsets"')) > MAX_TENSORS:  # Counted before decoding, which takes far more memory.
        raise _error(path, msg("safetensors.bad-count", count=count, most=MAX_TENSORS))
    entries = _object(path, header)
    entries.pop("__metadata__", None)
    weights, end = 0, 0
    for name, entry in entries.items():
        elements, last = _tensor(path, name, entry)
        weights, end = weights + elements, max(end, last)
    if 8 + length + end > size:
        raise _error(path, msg("safetensors.cut", what=msg("safetensors.data"), size=size, wanted=8 + length + end))
    return weights, end


def _tensor(path: Path, name: str, entry: Any) -> tuple[int, int]:
    """Return the number of elements of a tensor in a safetensors header, and the offset in bytes at which its data ends."""
    if not isinstance(entry, dict):
        raise _bad(path, name, "entry")
    bits, shape, offsets = entry.get("dtype"), _whole(entry.get("shape")), _whole(entry.get("data_offsets"))
    if not isinstance(bits, str) or bits not in DTYPES:
        raise _bad(path, name, "dtype")
    if shape is None or len(shape) > 16 or max(shape, default=0) > 1 << 56:
        raise _bad(path, name, "shape")
    if offsets is None or len(offsets) != 2:
        raise _bad(path, name, "data_offsets")
    elements = prod(shape)
    if (elements * DTYPES[bits] + 7) // 8 != offsets[1] - offsets[0]:
        raise _bad(path, name, "data_offsets")
    return elements, offsets[1]


def _whole(values: object) -> list[int] | None:
    """Return the values as non-negative whole numbers; None if any is not one."""
    if not isinstance(values, list):
        return None
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool) and value >= 0]
    return numbers if len(numbers) == len(values) else None


def _read(path: Path, start: int, length: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(length)
    except (OSError, ValueError) as problem:
        raise unreadable(path, problem) from problem


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as problem:
        raise unreadable(path, problem) from problem


def _object(path: Path, data: bytes) -> dict[str, Any]:
    import msgspec

    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise _error(path, msg("safetensors.not-json", why=str(problem)[:120])) from problem
    if not isinstance(document, dict):
        raise _error(path, msg("safetensors.not-object"))
    return document


def _bad(path: Path, name: str, key: str) -> UsageError:
    return _error(path, msg("safetensors.bad-tensor", name=printable(name), key=key))


def _error(path: Path, why: Message) -> UsageError:
    message = msg("error.bad-safetensors", path=str(path), why=why)
    return UsageError("bad-safetensors", message, msg("hint.bad-safetensors"))
