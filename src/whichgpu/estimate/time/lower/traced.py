"""Lowering of models known from an operator table or traced on demand to the operators that run on one GPU."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.record import Fusion
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.lower.eager.aten import aten_kernels
from whichgpu.estimate.time.lower.eager.call import IMAGE_AXES, LoweringOptions
from whichgpu.estimate.time.lower.eager.optimizer import accumulation_op, optimizer_ops
from whichgpu.estimate.time.lower.fused.fusion_rules import fuse
from whichgpu.estimate.time.lower.host_calls import charge_host_cost, view_overhead
from whichgpu.estimate.time.lower.traced_model import TracedModel, traced_model
from whichgpu.estimate.time.operators import LoweredStep, Number, Op
from whichgpu.workload.denoisers import latent_frames_ratio
from whichgpu.workload.precisions import PRECISION_BY_NAME, trace_of
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.workload import Workload

# Bytes read and written to dequantise a weight of Q4_K in diffusers (quantizers/gguf/utils.py), which does it in PyTorch: a copy
# of the packed weights (1), shift (1.5), mask (2), times the scale (3), minus the minimum (4), cast to the inputs' type (4).
DEQUANTISED_BYTES = 15.5
# Host time of a framework call in diffusers' UNets, whose many small modules are Python, relative to other networks'. Measured
# beside an H200 with diffusers 0.42: Stable Diffusion 1.5 2.0, SDXL 1.7; Stable Diffusion 2.1 as published by OneDiff in 2024
# with an RTX 4090 and an A800: 1.2 and 1.3. The geometric mean.
UNET_CALL_COST = 1.5
DEQUANTISING_KERNELS = 7000.0  # kernel launches of a pass: these and a dozen for the scales, for each of some 400 matrices


def lower_traced(workload: Workload, shape: TracedShape, batch: Number | None = None) -> LoweredStep:
    """Lower one step or forward pass of a traced model to operators; if `batch` is an array, so are the operators' numbers."""
    model, engine = traced_model(workload, shape), engine_record(workload.engine)
    lowered = lower_model(workload, model, batch, latent_frames_ratio(workload, shape))
    unet = shape.pipeline is not None and any("group_norm" in operator.name for operator in model.operators)
    if not unet or engine.fusion != "none" or engine.captures_graphs:
        return lowered
    return replace(lowered, ops=tuple(op.with_calls(op.calls * UNET_CALL_COST) for op in lowered.ops))


def lower_model(workload: Workload, model: TracedModel, batch: Number | None = None, frames: float = 1.0) -> LoweredStep:
    """Lower one step or forward pass of a traced model to operators; `frames` is the ratio of its frames to those traced."""
    area = ((workload.image or model.image) / model.image) ** 2 * frames if model.image else 1.0
    samples = float(workload.local_batch) if batch is None else batch
    options = lowering_options(workload)
    if _converts_to_nhwc(model):
        options = replace(options, nhwc=True)
    engine = engine_record(workload.engine)
    ops = _pass_ops(model, options, engine.fusion, area, samples)
    if PRECISION_BY_NAME[workload.precision or "fp32"].is_gguf:
        ops = [*ops, _dequantisation(model)]
    if workload.training:
        ops = _with_optimizer(ops, workload, model)
    if engine.captures_graphs:
        ops = [op.with_calls(0.0) for op in ops]
    return LoweredStep(tuple(ops), _notes(workload, model))


def _dequantisation(model: TracedModel) -> Op:
    """Return the conversion of GGUF weights to 16 bits before each layer, several elementwise kernels in PyTorch."""
    moved = DEQUANTISED_BYTES * model.parameters / 2.0
    return Op("elementwise", "fp16", 0.0, moved, moved, {"elements": model.parameters}, calls=DEQUANTISING_KERNELS)


def _pass_ops(model: TracedModel, options: LoweringOptions, fusion: Fusion, area: float, batch: Number) -> list[Op]:
    """Return the operators of forward and, in training, backward, for images of `area` times the traced ones' pixels."""
    calls = [operator.call(batch, area) for operator in model.operators]
    shares = view_overhead(calls)
    lowered = [(call, charge_host_cost(call, aten_kernels(call, options), shares)) for call in calls]
    return fuse(lowered, fusion, options)


def _with_optimizer(ops: list[Op], workload: Workload, model: TracedModel) -> list[Op]:
    """Return the operators of all micro-batches of a step plus the optimizer, which under ZeRO updates this GPU's shard."""
    width = 2.0 if trace_of(workload.precision) == "bf16" else 4.0
    times = float(workload.accumulation)
    if times > 1:
        ops = [op.times(times) for op in ops] + [accumulation_op(model.parameters, model.tensors, width).times(times - 1)]
    sharded = workload.parallel.dp if workload.parallel.zero else 1
    return ops + optimizer_ops(workload, model.parameters / sharded, model.tensors, width)


def lowering_options(workload: Workload) -> LoweringOptions:
    """Return the arithmetic units and memory format that a request implies."""
    precision = workload.precision or "fp32"
    single = "tf32" if precision == "tf32" else "fp32"
    default = precision == "fp32-default"
    matmul = "tf32" if default and engine_record(workload.engine, workload.year).tf32_matmul else single
    record = PRECISION_BY_NAME[precision]
    return LoweringOptions(
        half=engine_record(workload.engine).half_dtype
        or ("fp16" if record.operand_unit or record.wanted_peak == "fp16" else "bf16"),
        gemm32=matmul,
        conv32="tf32" if default else single,
        nhwc=_channels_last(workload),
        amp=precision.startswith("amp"),
        training=workload.training,
        quantised_unit=record.operand_unit,
        quantised_width=record.operand_bytes,
    )


def _channels_last(workload: Workload) -> bool:
    """Whether images are NHWC: as requested, unless the engine chooses the format itself."""
    layout = engine_record(workload.engine, workload.year).image_layout
    if layout == "as-given":
        return workload.memory_format != "contiguous"
    half = trace_of(workload.precision) != "fp32"
    return layout == "channels-last" or (layout == "channels-last-in-16-bits" and half)


def _converts_to_nhwc(model: TracedModel) -> bool:
    """Whether a network applies layer norm over image channels (ConvNeXt), for which it converts images to NHWC for good."""
    image_operators = {one.name for one in model.operators if one.inputs and len(one.inputs[0]) == IMAGE_AXES}
    return "native_layer_norm" in image_operators and "native_batch_norm" not in image_operators


def _notes(workload: Workload, model: TracedModel) -> tuple[Message, ...]:
    image = workload.image or model.image
    if not model.image or image == model.image:
        return ()
    return (msg("warning.image-scaled", model=str(workload.model)[:80], image=image, traced=model.image),)
