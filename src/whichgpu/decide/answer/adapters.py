"""What QLoRA would need: the smallest card on which adapters can be trained over 4-bit weights."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import GIB, format_memory
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.estimate.fit import required_memory
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.workload.workload import Parallel

CARD_SIZES = (8, 12, 16, 24, 32, 48, 80)  # Memory of common cards in GB, which drivers report as about as many GiB.
USABLE_SHARE = 0.93  # Share of a card's memory that a framework can use, the rest being driver and context (assumed).


def qlora_note(request: WorkloadRequest) -> tuple[Message, ...]:
    """Return the memory of QLoRA with one sequence a pass and the smallest card for it, if LoRA without it was asked for."""
    workload = request.workload
    if not (workload.training and workload.lora_rank) or workload.qlora:
        return ()
    single = replace(
        workload, qlora=True, gpus=1, nodes=1, parallel=Parallel(), batch=1, micro_batch=None, accumulation=1,
        checkpointing="full",
    )  # fmt: skip
    need = required_memory(estimate_memory(single, request.shape), single).high
    card = next((size for size in CARD_SIZES if need <= size * GIB * USABLE_SHARE), None)
    return () if card is None else (msg("recommend.qlora", need=format_memory(int(need)), card=card),)
