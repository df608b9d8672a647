"""Precisions: how each stores weights, which type it computes in and its names (`data/precisions.csv`); GGUF's tensor types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from whichgpu.base.bundled_data import data_rows, parse_record

FOLDER = Path(__file__).parent / "data"


class WeightBlock(msgspec.Struct, frozen=True):
    """A block of quantised weights: how many weights it has, and its bytes, scales included.

    >>> WeightBlock(256, 144).size(4096)
    2304
    """

    weights: int
    bytes: int

    def size(self, weights: int) -> int:
        """Return the bytes of that many quantised weights, in whole blocks."""
        return -(-weights // self.weights) * self.bytes

    @property
    def bits(self) -> float:
        """Return the average bits of one weight, scales included."""
        return 8 * self.bytes / self.weights


class Precision(msgspec.Struct, frozen=True):
    """How a precision such as fp8 is stored and computed; sizes in bytes per element unless stated otherwise."""

    name: str
    unit: str  # execution units of dense GEMMs: fp32, tf32, bf16, fp16
    parameter_bytes: int  # a parameter in training, and in inference without quantisation
    stream_bytes: int  # an element of the residual stream
    compute_bytes: int  # an operand of a GEMM
    block: WeightBlock | None  # storage of linear layers' weights; None if GGUF's rules decide
    row_bytes: int  # bytes of the scales per row of weights
    matrix_bytes: int  # bytes of the scales per matrix
    other_bytes: int  # a parameter of embedding, head, norms and biases; 0 if GGUF's rules decide
    experts_only: bool  # whether only experts' matrices of an MoE model are quantised, and others take `other_bytes`
    traced_bytes: float  # a weight of a model known only by its operator table
    kv_block: WeightBlock | None  # storage of the KV cache; None if a KV cache cannot have this precision
    kv_default: str  # precision of the KV cache if the user gives none
    trace: str  # traced precision with the same allocations; empty if models are not trained in this one
    # bytes of the fp32 master weight that training with quantised GEMM operands keeps per parameter; 0: no such training
    master_bytes: int
    operand_unit: str  # execution units of GEMMs with quantised weights and inputs; empty if only weights are
    evidence_format: str  # number format by which measurements are grouped; int4 is also that of narrow GGUF types
    tensor_type: str  # GGUF tensor type of most matrices
    file_type: str  # number of the GGUF file type in general.file_type (llama.h: llama_ftype); empty if there is none
    alias_of: str  # precision for which llama-quantize has this as another name (GGUF)

    @property
    def is_gguf(self) -> bool:
        """Whether the precision is a GGUF file type of llama.cpp."""
        return bool(self.tensor_type or self.alias_of)

    @property
    def is_trained(self) -> bool:
        """Whether models are trained in this precision."""
        return bool(self.trace)

    @property
    def quantises_training(self) -> bool:
        """Whether models are trained with GEMM operands quantised to this precision and weights kept in 16 bits."""
        return self.master_bytes > 0

    @property
    def operand_bytes(self) -> float:
        """Return the bytes per element of a GEMM's quantised input."""
        return self.block.bytes / self.block.weights if self.block and self.operand_unit else 1.0

    @property
    def wanted_peak(self) -> str | None:
        """Return the dtype for which a GPU needs a peak rate to benefit from this precision; None if any GPU does."""
        own = self.unit if self.is_trained and self.unit != "fp32" else None
        return self.operand_unit or own


def _block(row: Mapping[str, str], column: str) -> WeightBlock | None:
    return WeightBlock(int(row[f"{column}_weights"]), int(row[f"{column}_bytes"])) if row[f"{column}_weights"] else None


_ROWS = data_rows(FOLDER / "precisions.csv")
PRECISION_BY_NAME: Mapping[str, Precision] = {
    row["name"]: parse_record(Precision, row, block=_block(row, "block"), kv_block=_block(row, "kv")) for row in _ROWS
}
PRECISIONS = tuple(name for name, one in PRECISION_BY_NAME.items() if not one.is_gguf)
TRAINED_PRECISIONS = tuple(name for name, one in PRECISION_BY_NAME.items() if one.is_trained)
# Also those in which only operands of GEMMs are quantised; `TRAINED_PRECISIONS` store weights and activations in the precision.
TRAINING_PRECISIONS = (*TRAINED_PRECISIONS, *(name for name, one in PRECISION_BY_NAME.items() if one.quantises_training))
GGUF_PRECISIONS = tuple(row["name"] for row in _ROWS if row["choice"] == "yes" and row["name"] not in PRECISIONS)
KV_PRECISIONS = tuple(row["name"] for row in _ROWS if row["kv_choice"] == "yes")
PRECISION_SYNONYMS = {word: row["name"] for row in _ROWS if row["synonyms"] for word in row["synonyms"].split(";")}


def trace_of(precision: str | None) -> str:
    """Return the traced precision (fp32, amp or bf16) whose allocations are the same as this one's; fp32 for None."""
    return PRECISION_BY_NAME[precision or "fp32"].trace or "bf16"


class TensorType(msgspec.Struct, frozen=True):
    """A storage type of tensors in GGUF files, such as q4_k: its block of weights, and the type used if rows do not fit it."""

    number: int
    name: str
    block: WeightBlock
    fallback: str  # type used instead if rows are not a multiple of the block; empty for f16


@cache
def tensor_types() -> Mapping[str, TensorType]:
    """Return the storage types of tensors in GGUF files, by name such as q4_k."""
    rows = data_rows(FOLDER / "tensor_types.csv")
    return {row["name"]: parse_record(TensorType, row, block=_block(row, "block")) for row in rows}
