"""Operator tables: traced operators and allocations of vision and other models, stored so that estimates do not need torch.

`catalog/data/operator_tables.bin` is one file, written by `tools/trace_vision.py`:

    8 bytes   magic, b"WGPUTAB3"
    4 bytes   length of the index, big-endian
    index     JSON: {"written": date, "versions": {package: version}, "groups": [[offset, length], …],
              "models": {NAME: [group, start, parameters, {IMAGE: size}]}, "same": {NAME: NAME}}
    groups    the blocks of some models with similar names, one for each image size, compressed together by LZMA since they
              differ in little but numbers; offsets count from the end of the index. A model's blocks begin at byte `start` of its
              decompressed group and have `size` bytes each. `same` names a model whose operators are those of another.

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
MAGIC = b"WGPUTAB3"
MAX_CACHED_TABLES = 128  # Tables cached in memory, each of a few hundred kB (set by judgement).
# Raw LZMA has the shortest header; its 4 MiB dictionary spans a group of models, which differ little.
FILTERS = [{"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 22}]
MAX_GROUP_BYTES = 1 << 20  # Decompressed bytes of a group, unless one model has more: 10 ms to read (set by judgement).

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


class _TablesIndex(msgspec.Struct, frozen=True):
    """Index of the operator-tables file: where each model's blocks are."""

    written: str
    versions: dict[str, str]
    groups: tuple[tuple[int, int], ...]
    models: dict[str, tuple[int, int, int, dict[str, int]]]
    same: dict[str, str]

    def entry(self, name: str) -> tuple[int, int, int, dict[str, int]] | None:
        """Return group, start, parameters and block sizes of a model, or of the one that has the same operators."""
        return self.models.get(self.same.get(name, name))


@cache
def table_names() -> tuple[str, ...]:
    """Return the names of all models that have an operator table."""
    index = _index()[0]
    return tuple(sorted((*index.models, *index.same)))


def table_images(name: str) -> tuple[int, ...]:
    """Return the image sizes in pixels that a model was traced at, its default size first."""
    entry = _index()[0].entry(name)
    return tuple(map(int, entry[3])) if entry else ()


def table_parameters(name: str) -> int:
    """Return the number of parameters of a model that has an operator table; 0 if it has none."""
    entry = _index()[0].entry(name)
    return entry[2] if entry else 0


def tables_written() -> str:
    """Return the date on which the operator tables were written."""
    return _index()[0].written


def load_table(name: str, image: int | None = None) -> OperatorTable:
    """Return a model's operator table at the traced image size nearest to `image`; at its default size if that is None."""
    sizes = table_images(name)
    if not sizes:
        raise unknown_word("model", name, table_names())
    return _loaded(name, min(sizes, key=lambda size: abs(size - image)) if image else sizes[0])


@lru_cache(maxsize=MAX_CACHED_TABLES)
def _loaded(name: str, size: int) -> OperatorTable:
    index, first = _index()
    try:
        group, start, _, blocks = index.models[index.same.get(name, name)]
        offset, length = index.groups[group]
        with TABLES_FILE.open("rb") as file:
            file.seek(first + offset)
            content = _sliced(_unpacked(file.read(length)), start, blocks)[str(size)]
        return _table(name, size, json.loads(content))
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError, IndexError) as problem:
        raise _broken(problem) from problem


@cache
def _index() -> tuple[_TablesIndex, int]:
    """Return the index of the operator-tables file and the position of the first group."""
    try:
        content = TABLES_FILE.read_bytes()
        check_data(TABLES_FILE, content)
        return _parsed_index(content)
    except (OSError, ValueError, KeyError) as problem:
        raise _broken(problem) from problem


def _parsed_index(content: bytes) -> tuple[_TablesIndex, int]:
    if not content.startswith(MAGIC):
        raise ValueError("no operator tables")
    start = len(MAGIC) + 4
    end = start + int.from_bytes(content[len(MAGIC) : start], "big")
    return msgspec.json.decode(content[start:end], type=_TablesIndex), end


def encode_tables(blocks: Mapping[str, Any], same: Mapping[str, str], written: str, versions: Mapping[str, str]) -> bytes:
    """Return the bytes of the operator-tables file from blocks named "NAME@IMAGE"; a model's first size is its default."""
    return _with_groups(_TablesIndex(written, dict(versions), (), {}, dict(same)), b"", blocks)


def extend_tables(
    content: bytes, blocks: Mapping[str, Any], same: Mapping[str, str], written: str, versions: Mapping[str, str]
) -> bytes:
    """Return the bytes of the operator-tables file with the blocks of further models, in groups of their own."""
    index, first = _parsed_index(content)
    new = _TablesIndex(written, dict(versions), index.groups, index.models, {**index.same, **same})
    return _with_groups(new, content[first:], blocks)


def _with_groups(index: _TablesIndex, packed: bytes, blocks: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file with these packed groups and further ones for blocks named "NAME@IMAGE"."""
    models: dict[str, dict[str, bytes]] = {}
    parameters: dict[str, int] = {}
    for key, block in blocks.items():
        name, _, image = key.partition("@")
        models.setdefault(name, {})[image] = _json(block)
        parameters[name] = block["parameters"]
    groups: list[bytes] = [b""]
    entries: dict[str, Any] = dict(index.models)
    for name, raw in models.items():
        content = b"".join(raw.values())
        if groups[-1] and len(groups[-1]) + len(content) > MAX_GROUP_BYTES:
            groups.append(b"")
        sizes = {image: len(block) for image, block in raw.items()}
        entries[name] = len(index.groups) + len(groups) - 1, len(groups[-1]), parameters[name], sizes
        groups[-1] += content
    places = list(index.groups)
    for group in groups:
        compressed = lzma.compress(group, lzma.FORMAT_RAW, filters=FILTERS)
        places.append((len(packed), len(compressed)))
        packed += compressed
    fields = {"written": index.written, "versions": index.versions, "groups": places, "models": entries, "same": index.same}
    encoded = _json(fields)
    return b"".join((MAGIC, len(encoded).to_bytes(4, "big"), encoded, packed))


def decode_blocks(content: bytes) -> dict[str, Any]:
    """Return the blocks (one model at one image size) of the operator-tables file, by "NAME@IMAGE"."""
    index, first = _parsed_index(content)
    groups = [_unpacked(content[first + offset : first + offset + length]) for offset, length in index.groups]
    return {
        f"{name}@{image}": json.loads(block)
        for name, (group, start, _, sizes) in index.models.items()
        for image, block in _sliced(groups[group], start, sizes).items()
    }


def decode_same(content: bytes) -> dict[str, str]:
    """Return the models of the operator-tables file whose operators are those of another model, with that model's name."""
    return _parsed_index(content)[0].same


def decode_versions(content: bytes) -> dict[str, str]:
    """Return the versions of the packages with which the operator tables were recorded."""
    return _parsed_index(content)[0].versions


@lru_cache(maxsize=2)
def _unpacked(content: bytes) -> bytes:
    """Return a decompressed group of the operator-tables file."""
    return lzma.decompress(content, lzma.FORMAT_RAW, filters=FILTERS)


def _sliced(group: bytes, start: int, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """Return the blocks of one model in its decompressed group, by image size."""
    blocks = {}
    for image, size in sizes.items():
        blocks[image], start = group[start : start + size], start + size
    if start > len(group):
        raise ValueError("blocks of other sizes than the index says")
    return blocks


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
