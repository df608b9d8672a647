"""Operator tables: traced operators and allocations of vision and other models, stored so that estimates do not need torch.

`catalog/data/operator_tables.bin` is one file, written by `tools/trace_vision.py`:

    8 bytes   magic, b"WGPUTAB2"
    4 bytes   length of the index, big-endian
    index     JSON: {"written": date, "versions": {package: version}, "models": {NAME: [offset, length, {IMAGE: size}]}}
    models    the blocks of a model, one for each image size (of `size` bytes, in this order), compressed together by LZMA since
              they differ in little but numbers; offsets count from the end of the index

A block is a JSON document: {"parameters": n, "kinds": […], "passes": {"train/fp32": …}}.

- A pass is what ran ("train": forward and backward; "infer": forward without gradients) and its precision ("fp32", "amp",
  "bf16").
- `kinds` are the allocations met: [label, bytes, operands]. The label says for what. `operands` is 0, or the bytes of input,
  output and filter if a dense convolution wider than 1x1 made the allocation: there the library has a workspace.
- A pass is {"before": n, "moves": […], "operators": "…"}. A move 2 * kind allocates; 2 * age + 1 frees what was allocated `age`
  allocations ago (0: the latest). The first `before` moves are weights, buffers and inputs; gradients are still there at the end.
- `operators` is again JSON, in a string, so that questions about memory need not read it. An operator is [phase, name, dtype,
  count, inputs, outputs, attributes] as torch names it, once, in order of first call; views have no shapes. A convolution's
  attributes are its stride, padding, dilation, groups, whether it is transposed, and backward its mask: which of the gradients
  of input, weight and bias it makes, in this order, the outputs being those.

Every size and dimension is affine in the batch: n is constant, [a, b] means a + b * batch. The tool traces two batch sizes and
checks the result on a third.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from whichgpu.base.bundled_data import check_data
from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word

TABLES_FILE = Path(__file__).parent.parent / "catalog" / "data" / "operator_tables.bin"
MAGIC = b"WGPUTAB2"
MAX_CACHED_TABLES = 128  # Tables cached in memory, each of a few hundred kB (set by judgement).
# Raw LZMA has the shortest header; its 4 MiB dictionary spans two image sizes of any model, which differ little.
FILTERS = [{"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 22}]

Affine = tuple[int, int]  # (a, b) means a + b * batch.
Dims = tuple[Affine, ...]


def at(size: Affine, batch: int) -> int:
    """Return the number a + b * batch for a size stated as the pair (a, b).

    >>> at((100, 8), 4)
    132
    """
    return size[0] + size[1] * batch


class Allocation(msgspec.Struct, frozen=True):
    """A kind of memory allocation of a traced run: purpose, bytes, and operand bytes if a convolution made it, else 0."""

    label: str  # weights, input, activations, cast_weights, gradients, temporary
    size: Affine
    convolution: Affine = (0, 0)


class TableOperator(msgspec.Struct, frozen=True):
    """An operator of a traced run and how many times it is called; its dimensions depend on the batch."""

    phase: str  # forward, backward
    name: str  # aten.convolution.default, …
    dtype: str
    count: int
    inputs: tuple[Dims, ...] = ()
    outputs: tuple[Dims, ...] = ()
    attributes: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Pass(msgspec.Struct, frozen=True):
    """One recorded run of a model; `moves` has its allocations and frees in order, of which the first `before` precede it."""

    before: int
    moves: tuple[int, ...]
    encoded_operators: str

    @property
    def operators(self) -> tuple[TableOperator, ...]:
        """Return the distinct operators that the recorded run calls."""
        return tuple(_operator(raw) for raw in json.loads(self.encoded_operators))


class OperatorTable(msgspec.Struct, frozen=True):
    """Recorded allocations and operators of a model at one image size, by run and precision (such as "train/fp32")."""

    name: str
    image: int
    parameters: int
    kinds: tuple[Allocation, ...]
    passes: Mapping[str, Pass]

    def run(self, training: bool, precision: str) -> Pass:
        """Return the recorded training or inference run for a precision (see `precisions.trace_of`)."""
        return self.passes[f"{'train' if training else 'infer'}/{precision}"]


@cache
def table_names() -> tuple[str, ...]:
    """Return the names of all models that have an operator table."""
    return tuple(sorted(_index()[0]))


def table_images(name: str) -> tuple[int, ...]:
    """Return the image sizes in pixels that a model was traced at, its default size first."""
    places, _ = _index()
    return tuple(map(int, places[name][2])) if name in places else ()


def load_table(name: str, image: int | None = None) -> OperatorTable:
    """Return a model's operator table at the traced image size nearest to `image`; at its default size if that is None."""
    sizes = table_images(name)
    if not sizes:
        raise unknown_word("model", name, table_names())
    return _loaded(name, min(sizes, key=lambda size: abs(size - image)) if image else sizes[0])


@lru_cache(maxsize=MAX_CACHED_TABLES)
def _loaded(name: str, size: int) -> OperatorTable:
    places, start = _index()
    offset, length, blocks = places[name]
    try:
        with TABLES_FILE.open("rb") as file:
            file.seek(start + offset)
            content = _unpacked(file.read(length), blocks)[str(size)]
        return _table(name, size, json.loads(content))
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError, IndexError) as problem:
        raise _broken(problem) from problem


@cache
def _index() -> tuple[Mapping[str, tuple[int, int, Mapping[str, int]]], int]:
    """Return each model's offset, length and block sizes in the operator-tables file, and the position of the first model."""
    try:
        check_data(TABLES_FILE, TABLES_FILE.read_bytes())
        with TABLES_FILE.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ValueError("no operator tables")
            length = int.from_bytes(file.read(4), "big")
            return json.loads(file.read(length))["models"], len(MAGIC) + 4 + length
    except (OSError, ValueError, KeyError) as problem:
        raise _broken(problem) from problem


def encode_tables(blocks: Mapping[str, Any], written: str, versions: Mapping[str, str]) -> bytes:
    """Return the bytes of the operator-tables file from blocks named "NAME@IMAGE"; a model's first size is its default."""
    models: dict[str, dict[str, bytes]] = {}
    for key, block in blocks.items():
        name, _, image = key.partition("@")
        models.setdefault(name, {})[image] = _json(block)
    packed = {name: lzma.compress(b"".join(raw.values()), lzma.FORMAT_RAW, filters=FILTERS) for name, raw in models.items()}
    places, offset = {}, 0
    for name, content in packed.items():
        places[name] = offset, len(content), {image: len(block) for image, block in models[name].items()}
        offset += len(content)
    index = _json({"written": written, "versions": versions, "models": places})
    return b"".join((MAGIC, len(index).to_bytes(4, "big"), index, *packed.values()))


def decode_blocks(content: bytes) -> dict[str, Any]:
    """Return the blocks (one model at one image size) of the operator-tables file, by "NAME@IMAGE"."""
    length = int.from_bytes(content[len(MAGIC) : len(MAGIC) + 4], "big")
    start = len(MAGIC) + 4 + length
    places = json.loads(content[len(MAGIC) + 4 : start])["models"]
    return {
        f"{name}@{image}": json.loads(block)
        for name, (offset, size, blocks) in places.items()
        for image, block in _unpacked(content[start + offset : start + offset + size], blocks).items()
    }


def decode_versions(content: bytes) -> dict[str, str]:
    """Return the versions of the packages with which the operator tables were recorded."""
    length = int.from_bytes(content[len(MAGIC) : len(MAGIC) + 4], "big")
    versions: dict[str, str] = json.loads(content[len(MAGIC) + 4 : len(MAGIC) + 4 + length])["versions"]
    return versions


def _unpacked(content: bytes, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """Return the decompressed blocks of one model in the operator-tables file, by image size."""
    rest = lzma.decompress(content, lzma.FORMAT_RAW, filters=FILTERS)
    arrays = {}
    for image, size in sizes.items():
        arrays[image], rest = rest[:size], rest[size:]
    if rest or any(len(arrays[image]) != size for image, size in sizes.items()):
        raise ValueError("blocks of other sizes than the index says")
    return arrays


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _affine(value: Any) -> Affine:
    return (value, 0) if isinstance(value, int) else (value[0], value[1])


def _table(name: str, image: int, block: Mapping[str, Any]) -> OperatorTable:
    kinds = tuple(Allocation(label, _affine(size), _affine(operands)) for label, size, operands in block["kinds"])
    passes = {key: Pass(one["before"], tuple(one["moves"]), one["operators"]) for key, one in block["passes"].items()}
    return OperatorTable(name, image, block["parameters"], kinds, passes)


def _operator(raw: Sequence[Any]) -> TableOperator:
    phase, name, dtype, count, inputs, outputs, attributes = raw
    read = [tuple(tuple(_affine(dim) for dim in shape) for shape in shapes) for shapes in (inputs, outputs)]
    return TableOperator(phase, name, dtype, count, read[0], read[1], attributes)


def _broken(problem: Exception) -> DataError:
    return DataError("malformed-data", msg("error.malformed-data", path=str(TABLES_FILE), why=str(problem)), msg("hint.data"))
