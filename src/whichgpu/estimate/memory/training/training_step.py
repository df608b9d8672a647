"""Peak memory of a training step in PyTorch eager."""

from __future__ import annotations

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.overhead import LOADED_KERNELS, context_bytes, device_range, kernel_bytes, workspace_bytes
from whichgpu.estimate.memory.parts import PARTS, MemoryEstimate, build_estimate
from whichgpu.estimate.memory.training.allocator_replay import BlockRun, TrainingRun, replay_training
from whichgpu.estimate.memory.training.operators import WIDTHS, OperatorWriter
from whichgpu.estimate.memory.training.optimizer import state_sizes, step_temporary
from whichgpu.estimate.memory.training.tape import Tape, TapeBlock
from whichgpu.estimate.memory.training.transformer import allocated_parts, transformer_parts
from whichgpu.workload.shapes import Mlp, Shape, Transformer
from whichgpu.workload.workload import Parallel, Workload

# 90% ranges as factors. The narrow one is for what was measured on one H200: these families with these optimizers. The wide one,
# set on 30 more measured steps, is for everything else (docs/evidence/memory-accuracy.md).
MEASURED_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gpt2", "bert", "roberta", "opt")
MEASURED_OPTIMIZERS = ("adamw", "sgd-momentum")
ALLOCATED_RANGE, DEVICE_RANGE = (0.9925, 1.0075), (0.965, 1.035)
ALLOCATED_RANGE_OTHER, DEVICE_RANGE_OTHER = (0.94, 1.13), (0.92, 1.14)
# Bytes on the device are 1.004 to 1.30 times the peak of the tensors' own bytes in 1,026 requests; the bound leaves 5% more.
MIN_RESERVED_PER_ALLOCATED = 0.95


def training_memory(workload: Workload, shape: Shape, gpu: Gpu | None) -> MemoryEstimate:
    """Return the peak memory of a training step (forward, backward, optimizer)."""
    if isinstance(shape, Mlp):
        parts, reserved = mlp_parts(workload, shape)
    elif isinstance(shape, Transformer):
        parts, reserved = transformer_parts(workload, shape)
    else:
        raise TypeError(f"no training memory for {type(shape).__name__}")
    allocated = sum(parts.values())
    kernels = kernel_bytes(engine_record(workload.engine, workload.year).memory, gpu)
    context = context_bytes(gpu, kernels)
    parts |= {"workspace": workspace_bytes(gpu), "context": context, "slack": int((reserved - 1) * allocated)}
    measured = (isinstance(shape, Mlp) or shape.model_type in MEASURED_FAMILIES) and _as_measured(workload)
    spreads = (ALLOCATED_RANGE, DEVICE_RANGE) if measured else (ALLOCATED_RANGE_OTHER, DEVICE_RANGE_OTHER)
    on_device = device_range(spreads[1], parts, kernels, LOADED_KERNELS)
    return build_estimate(parts, spreads[0], on_device, sources=("h200-training",))


def least_memory(workload: Workload, shape: Transformer) -> float:
    """Return bytes below the range of what training needs, from the tensors' sizes without the allocator's segments."""
    return sum(allocated_parts(workload, shape).values()) * MIN_RESERVED_PER_ALLOCATED * DEVICE_RANGE_OTHER[0]


def _as_measured(workload: Workload) -> bool:
    """Whether steps with these settings were measured; sharded, quantised and unfused steps were not."""
    return (
        workload.parallel == Parallel()
        and not workload.qlora
        and workload.accumulation == 1
        and workload.checkpointing in ("none", "full")
        and workload.attention != "eager"
        and workload.optimizer in MEASURED_OPTIMIZERS
        and workload.optimizer_fused
    )


def mlp_parts(workload: Workload, shape: Mlp) -> tuple[dict[str, int], float]:
    """Return a perceptron's bytes by part (linear layers, ReLU, cross-entropy), and bytes reserved per byte allocated."""
    widths = WIDTHS[workload.precision or "fp32"]
    tape = Tape()
    write = OperatorWriter(tape, workload.local_batch, widths)
    entry = x = tape.value(workload.local_batch * shape.units[0], widths.stream)
    for index, units in enumerate(shape.units[1:], start=1):
        x = write.linear(x, units, bias=True)
        if index < len(shape.units) - 1:
            x = write.keeps_output(x)
    shares = tape.op((write.cast(x, 4),), x.count, 4, save_output=True)
    loss = tape.op((shares,), 1, 4)
    block = TapeBlock(tuple(tape.nodes), entry, loss)
    weights = block.weights
    casts = tuple(int(size * widths.compute / widths.parameter) for size in weights) if widths.mixed else ()
    replay = replay_training(
        TrainingRun(
            [BlockRun(block, casts)],
            weights,
            states=[size for one in weights for size in state_sizes(workload, one, widths.parameter)],
            accumulated=weights if workload.accumulation > 1 else (),
            step_temporary=step_temporary(workload, sum(weights), max(weights)),
            fixed={"activations": entry.size},
        )
    )
    return {name: replay.breakdown.get(name, 0) for name in PARTS}, replay.peak_reserved / replay.peak_allocated
