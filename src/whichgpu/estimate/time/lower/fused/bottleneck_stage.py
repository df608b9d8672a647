"""TensorRT's int8 kernel for the first stage of ResNets with bottlenecks: ten convolutions whose tensors stay on chip.

NVIDIA's MLPerf engines run the whole stage in one kernel (plugin RnRes2FullFusion_TRT, since TensorRT 7.2).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from whichgpu.estimate.time.operators import Number, Op

NARROW, WIDE = 64.0, 256.0  # channels inside and between the blocks of the stage
STAGE = {(NARROW, NARROW, 9.0), (NARROW, WIDE, 1.0), (WIDE, NARROW, 1.0)}  # input channels, output channels, filter taps
FIRST = (NARROW, NARROW, 1.0)  # the first block reads the narrow output of the pooling before it


def fuse_bottleneck_stage(ops: Sequence[Op]) -> list[Op]:
    """Return the operators with the stage's convolutions reading their weights only, its first its input too.

    The last writes the stage's result; nothing changes unless the network has the stage.
    """
    stage = {op_shape(op): place for place, op in enumerate(ops) if op_shape(op) in STAGE | {FIRST}}
    if not stage.keys() >= STAGE:
        return list(ops)
    fused = list(ops)
    for shape, place in stage.items():
        cin, cout, taps = shape
        op = ops[place]
        pixels = op.sizes["batch"] * op.sizes["height"] * op.sizes["width"]
        read: Number = cin * cout * taps
        if shape == FIRST:
            read = read + pixels * NARROW / op.count
        written: Number = pixels * WIDE / op.count if shape == (NARROW, WIDE, 1.0) else 0.0
        fused[place] = replace(op, read=read, write=written)
    return fused


def op_shape(op: Op) -> tuple[Number, ...]:
    """Return the channels and filter taps of a plain int8 convolution; empty for any other operator."""
    plain = op.kind == "conv" and op.unit == "int8" and op.sizes["stride"] == 1.0 and op.sizes["groups"] == 1.0
    return tuple(op.sizes[name] for name in ("cin", "cout", "kernel")) if plain else ()
