"""Reader of a GGUF file's header (github.com/ggml-org/ggml, docs/gguf.md), versions 2 and 3: metadata and tensor descriptions.

Safe for untrusted files: every count is compared with the size of the file before memory is allocated, long texts and arrays are
skipped, and tensor data is never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from struct import Struct
from typing import BinaryIO

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.workload.hf.fields import printable
from whichgpu.workload.model_files.bounded_read import unreadable
from whichgpu.workload.precisions import TensorType, tensor_types

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_KEYS = 100_000  # Largest number of metadata entries (set by judgement).
MAX_TENSORS = 100_000  # Largest number of tensors in one file (set by judgement); experts of a layer are one tensor.
MAX_ITEMS = 1_000_000  # Largest number of items in an array; vocabularies have up to 300,000.
MAX_TEXTS = 2_000_000  # Largest number of texts in all arrays of a file; tokens and merges are up to 800,000.
MAX_NAME_BYTES = 65_535  # Limit of a name in bytes, set by the format.
MAX_TEXT_BYTES = 4096  # Limit of a text in bytes; longer ones (chat templates) are skipped.
MAX_ARRAY_ITEMS = 10_000  # Longer numeric arrays are skipped: those with an item per layer are needed, those per token are not.
MAX_NESTING = 4  # Largest number of nested array levels (set by judgement).
CHUNK = 1 << 20  # Bytes of the file that are read at a time (set by judgement).

# Size in bytes and struct format of each value type by its number; type 8 is a text, 9 an array.
SCALARS: Mapping[int, Struct] = {number: Struct("<" + code) for number, code in enumerate("BbHhIif?")} | {
    10: Struct("<Q"),
    11: Struct("<q"),
    12: Struct("<d"),
}
TEXT, ARRAY = 8, 9

TYPES: Mapping[int, TensorType] = {one.number: one for one in tensor_types().values()}

_COUNT, _NUMBER = Struct("<Q"), Struct("<I")

Value = str | int | float | bool | tuple[int | float | bool, ...]


class GgufTensor(msgspec.Struct, frozen=True):
    """Name, type and dimensions of one tensor in a GGUF file."""

    name: str
    type: str
    sizes: tuple[int, ...]  # dimensions, the one that is contiguous in memory first
    bytes: int

    @property
    def weights(self) -> int:
        """Return the number of the tensor's elements."""
        return prod(self.sizes)


class Header(msgspec.Struct, frozen=True):
    """Metadata and tensor descriptions of a GGUF file; `lengths` has the number of items of arrays that were skipped."""

    metadata: Mapping[str, Value]
    lengths: Mapping[str, int] = msgspec.field(default_factory=dict)
    tensors: tuple[GgufTensor, ...] = ()


def read_header(path: Path) -> Header:
    """Return the header of a GGUF file; raise an error with the position if it is truncated, damaged or malicious."""
    try:
        with path.open("rb") as file:
            return _HeaderReader(file, path, path.stat().st_size).header()
    except (OSError, ValueError) as problem:
        raise unreadable(path, problem) from problem


class _HeaderReader:
    """Parser of a GGUF file's header, which reads the file sequentially through one buffer."""

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self._file = file
        self._path = path
        self._size = size
        self._buffer = b""
        self._at = 0  # Read position in the buffer.
        self._start = 0  # Position of the buffer's first byte in the file.
        self._texts = 0  # Texts of all arrays so far.

    @property
    def _position(self) -> int:
        return self._start + self._at

    @property
    def _left(self) -> int:
        return self._size - self._position

    def header(self) -> Header:
        if self._take(4, msg("gguf.magic")) != MAGIC:
            raise self._error(msg("gguf.not-gguf"))
        version = self._unpack(_NUMBER, msg("gguf.version"))
        if version not in VERSIONS:
            raise self._error(msg("gguf.bad-version", version=version, versions=VERSIONS))
        tensors = self._count(msg("gguf.tensor-count"), MAX_TENSORS, 24)
        keys = self._count(msg("gguf.key-count"), MAX_KEYS, 13)
        metadata: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        for _ in range(keys):
            key = self._name(msg("gguf.key"))
            value = self._value(key, lengths)
            if value is not None:
                metadata[key] = value
        infos = [self._tensor() for _ in range(tensors)]
        self._check_data(metadata, infos)
        return Header(metadata, lengths, tuple(tensor for tensor, _ in infos))

    def _value(self, key: str, lengths: dict[str, int]) -> Value | None:
        what = msg("gguf.value", key=printable(key))
        kind = int(self._unpack(_NUMBER, what))
        if kind == TEXT:
            length = self._count(what, self._size, 1)
            if length > MAX_TEXT_BYTES:
                self._skip(length, what)
                return None
            return self._take(length, what).decode("utf-8", "replace")
        if kind == ARRAY:
            return self._array(key, what, lengths)
        return self._scalar(kind, what)

    def _array(self, key: str, what: Message, lengths: dict[str, int]) -> Value | None:
        kind, count = self._array_head(what)
        lengths[key] = count
        if kind in SCALARS and count <= MAX_ARRAY_ITEMS:
            return tuple(self._scalar(kind, what) for _ in range(count))
        self._skip_items(kind, count, what, 1)
        return None

    def _array_head(self, what: Message) -> tuple[int, int]:
        kind = int(self._unpack(_NUMBER, what))
        min_bytes = SCALARS[kind].size if kind in SCALARS else 8
        return kind, self._count(what, MAX_ITEMS, min_bytes)

    def _skip_items(self, kind: int, count: int, what: Message, depth: int) -> None:
        if kind in SCALARS:
            self._skip(count * SCALARS[kind].size, what)
        elif kind == TEXT:
            self._texts += count
            if self._texts > MAX_TEXTS:
                raise self._error(msg("gguf.bad-count", what=what, count=self._texts, most=MAX_TEXTS))
            self._skip_texts(count, what)
        elif kind == ARRAY and depth < MAX_NESTING:
            for _ in range(count):
                self._skip_items(*self._array_head(what), what, depth + 1)
        else:
            raise self._error(msg("gguf.bad-type", what=what, type=kind))

    def _skip_texts(self, count: int, what: Message) -> None:
        """Skip an array of texts without making objects: half a million tokens and merges take a tenth of a second."""
        unpack, size = _COUNT.unpack_from, _COUNT.size
        for _ in range(count):
            if self._at + size > len(self._buffer):
                self._fill(size, what)
            length = unpack(self._buffer, self._at)[0]
            self._at += size
            if self._at + length <= len(self._buffer):
                self._at += length
            else:
                self._skip(length, what)

    def _scalar(self, kind: int, what: Message) -> int | float | bool:
        if kind not in SCALARS:
            raise self._error(msg("gguf.bad-type", what=what, type=kind))
        return self._unpack(SCALARS[kind], what)

    def _tensor(self) -> tuple[GgufTensor, int]:
        """Read one tensor's description, and the offset of its data from the end of the GGUF header."""
        name = self._name(msg("gguf.tensor-name"))
        what = msg("gguf.tensor", name=printable(name))
        dimensions = self._unpack(_NUMBER, what)
        if not 0 <= dimensions <= 8:
            raise self._error(msg("gguf.bad-count", what=what, count=dimensions, most=8))
        sizes = tuple(int(self._unpack(_COUNT, what)) for _ in range(int(dimensions)))
        number = int(self._unpack(_NUMBER, what))
        offset = int(self._unpack(_COUNT, what))
        if number not in TYPES:
            raise self._error(msg("gguf.bad-type", what=what, type=number))
        kind, block = TYPES[number].name.upper(), TYPES[number].block
        elements = 1
        for size in sizes:
            elements *= size
            if elements > 1 << 56:
                raise self._error(msg("gguf.bad-count", what=what, count=size, most=1 << 56))
        if sizes and sizes[0] % block.weights:
            raise self._error(msg("gguf.bad-row", what=what, count=sizes[0], block=block.weights))
        return GgufTensor(name, kind, sizes, elements // block.weights * block.bytes), offset

    def _check_data(self, metadata: Mapping[str, Value], infos: list[tuple[GgufTensor, int]]) -> None:
        """Raise if the GGUF file is shorter than the data of its tensors."""
        if not infos:
            return
        stated = metadata.get("general.alignment", 32)
        alignment = stated if isinstance(stated, int) and 0 < stated <= 1 << 20 else 32
        start = -(-self._position // alignment) * alignment
        last, end = max(((tensor, start + offset + tensor.bytes) for tensor, offset in infos), key=lambda pair: pair[1])
        if end > self._size:
            raise self._error(msg("gguf.cut", what=msg("gguf.data", name=printable(last.name)), size=self._size, wanted=end))

    def _name(self, what: Message) -> str:
        return self._take(self._count(what, MAX_NAME_BYTES, 1), what).decode("utf-8", "replace")

    def _count(self, what: Message, max_count: int, least_bytes: int) -> int:
        """Read a count of items of at least `least_bytes` each; raise if the rest of the file is too short for them."""
        count = int(self._unpack(_COUNT, what))
        if count > max_count:
            raise self._error(msg("gguf.bad-count", what=what, count=count, most=max_count))
        if count * least_bytes > self._left:
            raise self._error(msg("gguf.cut", what=what, size=self._size, wanted=self._position + count * least_bytes))
        return count

    def _unpack(self, form: Struct, what: Message) -> int | float | bool:
        if self._at + form.size > len(self._buffer):
            self._fill(form.size, what)
        (value,) = form.unpack_from(self._buffer, self._at)
        self._at += form.size
        return value  # type: ignore[no-any-return]

    def _take(self, length: int, what: Message) -> bytes:
        if self._at + length > len(self._buffer):
            self._fill(length, what)
        chunk = self._buffer[self._at : self._at + length]
        self._at += length
        return chunk

    def _skip(self, length: int, what: Message) -> None:
        if length > self._left:
            raise self._error(msg("gguf.cut", what=what, size=self._size, wanted=self._position + length))
        if self._at + length <= len(self._buffer):
            self._at += length
            return
        self._start = self._position + length
        self._file.seek(self._start)
        self._buffer, self._at = b"", 0

    def _fill(self, length: int, what: Message) -> None:
        """Read from the file until the buffer holds `length` more bytes, which callers keep small."""
        if length > self._left:
            raise self._error(msg("gguf.cut", what=what, size=self._size, wanted=self._position + length))
        rest = self._buffer[self._at :]
        self._start, self._at = self._position, 0
        self._buffer = rest + self._file.read(max(CHUNK, length) - len(rest))
        if len(self._buffer) < length:  # The file became shorter while it was read.
            raise self._error(msg("gguf.cut", what=what, size=self._start + len(self._buffer), wanted=self._start + length))

    def _error(self, why: Message) -> UsageError:
        return UsageError("bad-gguf", msg("error.bad-gguf", path=str(self._path), why=why), msg("hint.bad-gguf"))
