"""How engines differ in the kernels they run for the same layer."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Traits:
    """An engine's habits in inference, where kernels are fused."""

    name: str
    captured: bool  # the host starts a whole step; no call a kernel
    decoding: str  # attention of one token: split over many blocks of one sequence's cache; whole; or gguf
    rotary: int  # kernels for rotary positions and writing the cache
    quantises_inside: bool  # inputs of narrow products are quantised by the kernel that makes them, where it is no attention
    unpack: str  # whose kernel multiplies weights stored narrow
    routing: int  # kernels that find a mixture's experts and sort tokens to them, beyond the products
    fused_experts: bool  # a kernel made for mixtures, not the framework's grouped product
    apart: bool = False  # each block is compiled alone: its residual sum is a kernel of its own
    epilogue: bool = False  # an activation rides in its product's kernel
    sampling: int = 3  # kernels on the logits
    host_calls: float = 1.0  # framework calls a kernel, where the host makes them
    written_out: bool = False  # llama.cpp's graph of old: nothing fused, a prompt's attention scores in memory


# PyTorch with compiled blocks: what TorchInductor fuses; its attention is SDPA, its quantised products torch's own.
PLAIN = Traits(
    name="plain",
    captured=False,
    decoding="whole",
    rotary=3,
    quantises_inside=True,
    unpack="tinygemm",
    routing=18,
    fused_experts=False,
    apart=True,
    sampling=1,
)
SERVING = Traits(
    name="serving",
    captured=True,
    decoding="split",
    rotary=2,
    quantises_inside=False,
    unpack="marlin",
    routing=5,
    fused_experts=True,
)
TENSORRT = replace(SERVING, name="tensorrt", rotary=1, quantises_inside=True, epilogue=True, sampling=2)
# Its graph has a kernel for nearly every operator; inputs are quantised to 8 bits before each product.
LLAMA_CPP = replace(SERVING, name="llama.cpp", rotary=4, unpack="gguf", routing=8, sampling=1)
FUSES_SINCE = 2025  # the year in which llama.cpp began to, and to use flash attention unless told otherwise

CAPTURED = frozenset({"cuda-graphs", "vllm", "sglang", "tensorrt-llm", "tensorrt", "llama.cpp"})
TRAITS = {
    "vllm": SERVING,
    "sglang": SERVING,
    "tensorrt-llm": TENSORRT,
    "tensorrt": TENSORRT,
    "llama.cpp": LLAMA_CPP,
}


def traits(engine: str, year: int | None = None) -> Traits:
    """An engine's habits in a year, today's where none is given; those not named run PyTorch-like compiled blocks."""
    found = TRAITS.get(engine, PLAIN)
    if found is LLAMA_CPP and year is not None and year < FUSES_SINCE:
        return replace(found, written_out=True, decoding="gguf")
    return found
