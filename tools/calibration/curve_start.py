"""Where the fit of the curves starts, and what stays as it is: every parameter of the curves by name.

Shares are of a peak or of bandwidth; `start` and `seconds` are seconds; `edge` and `ramp` are elements; `element`, `row`, `tap`,
`key`, `exponent` and `setup` are clocks of one SM; energies are picojoules a FLOP.
"""

from __future__ import annotations

CACHE = {
    "cache.fits": 0.57,  # of the L2: a working set that is found there as a whole
    "cache.full": 0.70,  # and one that drives itself out
}
MEMORY = {
    "memory.cache": 2.2,  # how much faster the L2 is than memory
    "memory.sharpness": 3.4,
    "memory.share": 0.9,
    "memory.share.copy": 0.9,
    "memory.share.transpose": 0.8,
    "memory.share.transpose.matrix": 0.35,
    "memory.share.norm": 0.7,
    "memory.share.norm_backward": 0.46,
    "memory.share.batch_norm": 0.85,
    "memory.share.batch_norm.cudnn": 0.85,
    "memory.share.batch_norm_backward": 0.8,
    "memory.share.softmax": 0.6,
    "memory.share.softmax.short": 0.85,
    "memory.share.softmax_backward": 0.87,
    "memory.share.reduce": 0.84,
    "memory.share.reduce_columns": 0.8,
    "memory.share.pool": 0.6,
    "memory.share.pool._adaptive_avg_pool2d": 0.8,
    "memory.share.embedding": 0.84,
    "memory.share.embedding_backward": 0.5,
    "memory.share.dropout": 0.75,
    "memory.share.optimizer": 0.75,
    "memory.element": 0.05,
    "memory.element.pointwise.gelu": 0.3,
    "memory.element.pointwise.gelu_backward": 0.39,
    "memory.element.pointwise.silu": 0.21,
    "memory.element.pointwise.silu_backward": 0.24,
    "memory.element.pointwise.silu_channels_last": 0.51,
    "memory.element.pointwise.strided": 0.73,
    "memory.element.copy.widen": 0.73,
    "memory.element.transpose.matrix": 1.7,
    "memory.element.norm": 0.3,
    "memory.element.norm_backward": 0.5,
    "memory.element.batch_norm": 1.1,
    "memory.element.batch_norm.cudnn": 0.5,
    "memory.element.batch_norm_backward": 0.9,
    "memory.element.softmax": 0.43,
    "memory.element.dropout": 0.33,
    "memory.element.pool": 0.9,
    "memory.element.pool._adaptive_avg_pool2d": 0.1,
    "memory.element.embedding_backward": 3.0,
    "memory.element.optimizer.adamw": 1.2,
    "memory.row.norm": 220.0,
    "memory.row.norm_backward": 800.0,
    "memory.row.reduce_columns": 180.0,
    "memory.start": 2.0e-6,
    "memory.start.norm": 3.7e-6,
    "memory.start.norm_backward": 4.5e-6,
    "memory.start.batch_norm": 10.0e-6,
    "memory.start.batch_norm_backward": 8.0e-6,
    "memory.start.softmax": 3.7e-6,
    "memory.start.softmax_backward": 3.5e-6,
    "memory.start.reduce": 4.0e-6,
    "memory.start.reduce_columns": 3.2e-6,
    "memory.start.dropout": 4.5e-6,
    "memory.start.pool": 25.0e-6,
    "memory.start.pool._adaptive_avg_pool2d": 7.0e-6,
    "memory.start.embedding_backward": 100.0e-6,
}
GEMM = {
    "gemm.share": 0.87,
    "gemm.share.tf32": 0.83,
    "gemm.share.fp32": 0.95,
    "gemm.share.wide": 0.85,  # of that, where an SM has 128 fp32 lanes
    "gemm.share.fp8": 0.78,
    "gemm.share.fp4": 0.7,
    "gemm.edge": 6.5,
    "gemm.edge.fp32": 45.0,
    "gemm.ramp": 160.0,
    "gemm.ramp.fp32": 5.0,
    "gemm.split": 1.16,
    "gemm.split.fp32": 1.27,
    "gemm.split_seconds": 4.6e-6,
    "gemm.bandwidth": 0.88,
    "gemm.bandwidth.tf32": 0.84,
    "gemm.bandwidth.fp32": 0.84,
    "gemm.bandwidth.fp8": 0.84,
    "gemm.bandwidth.fp4": 0.84,
    "gemm.cache": 1.7,
    "gemm.vector": 0.75,
    "gemm.start": 3.1e-6,
    "gemm.sharpness": 2.9,
    "gemm.odd": 6.3,
    "gemm.odd.tf32": 2.3,
    "gemm.tf32.wgrad": 1.63,
    "gemm.tf32.dgrad": 1.12,
    "memory.element.reduce.quantise_vllm": 0.15,
    "memory.element.reduce.quantise_apart": 2.9,
    "memory.start.reduce.quantise_vllm": 4.0e-6,
    "memory.start.reduce.quantise_apart": 9.0e-6,
    "power.fp32.Pascal": 18.0,
    "power.fp32.Turing": 17.0,
    "power.fp32.Ampere": 15.7,
    "power.fp32.Ada": 8.4,
}
CONV = {
    **{f"conv.share.half.{kind}": value for kind, value in (("conv", 0.75), ("conv_dgrad", 0.72), ("conv_wgrad", 0.64))},
    **{f"conv.share.tf32.{kind}": value for kind, value in (("conv", 0.9), ("conv_dgrad", 0.8), ("conv_wgrad", 0.31))},
    **{f"conv.share.fp32.{kind}": value for kind, value in (("conv", 0.58), ("conv_dgrad", 0.9), ("conv_wgrad", 0.34))},
    **{f"conv.share1.half.{kind}": value for kind, value in (("conv", 0.9), ("conv_dgrad", 0.9), ("conv_wgrad", 0.8))},
    **{f"conv.share1.tf32.{kind}": value for kind, value in (("conv", 0.9), ("conv_dgrad", 0.6), ("conv_wgrad", 0.6))},
    **{f"conv.share1.fp32.{kind}": value for kind, value in (("conv", 0.43), ("conv_dgrad", 0.43), ("conv_wgrad", 0.28))},
    **{f"conv.few.{unit}": value for unit, value in (("half", 0.6), ("tf32", 0.7), ("fp32", 0.4))},
    **{f"conv.few.{unit}.conv_wgrad": value for unit, value in (("half", 0.7), ("tf32", 0.5), ("fp32", 0.33))},
    "conv.edge": 134.0,
    "conv.edge.fp32": 22.0,
    "conv.ramp": 10.0,
    "conv.ramp.fp32": 29.0,
    "conv.split": 1.2,
    "conv.split.wgrad": 1.05,
    "conv.split_seconds": 6.0e-6,
    "conv.block": 32.0,
    "conv.grouped": 1.45,
    "conv.stride": 1.4,
    "conv.winograd": 3.0,
    "conv.winograd_setup": 300.0,
    "conv.few.turned": 1.3,
    "conv.gather_seconds": 1.5e-6,
    "conv.gather_seconds.conv_wgrad": 5.0e-6,
    "conv.start.depthwise": 1.5e-6,
    "conv.start.depthwise.conv_dgrad": 3.0e-6,
    "conv.start.depthwise.conv_wgrad": 5.0e-6,
    "conv.tap_seconds.half": 0.19e-6,
    "conv.tap_seconds.single": 0.08e-6,
    "conv.sharpness": 1.8,
    "conv.cache": 1.5,
    "conv.bandwidth": 0.81,
    "conv.bandwidth.conv_dgrad": 0.68,
    "conv.bandwidth.conv_wgrad": 0.8,
    "conv.start.half": 3.2e-6,
    "conv.start.tf32": 4.4e-6,
    "conv.start.fp32": 3.6e-6,
    "conv.group_seconds": 0.9e-6,
    "conv.group_seconds.conv_dgrad": 2.0e-6,
    "conv.group_seconds.conv_wgrad": 2.0e-6,
    "conv.turn.half": 3.9,
    "conv.turn_seconds.half": 5.3e-6,
    **{f"conv.tap.half.{kind}": value for kind, value in (("conv", 0.036), ("conv_dgrad", 0.05), ("conv_wgrad", 0.06))},
    **{f"conv.tap.single.{kind}": value for kind, value in (("conv", 0.09), ("conv_dgrad", 0.1), ("conv_wgrad", 0.15))},
    "conv.tap.turned": 4.5,
    "conv.tap.besides": 3.0,
    "conv.tap.far": 8.0,
    "conv.tap.far.conv": 1.35,
}
# Of planes of pixels in fp32 and tf32 alone: fitted after the others, on rows of their own.
PLANES = {
    "conv.turn.tf32": 3.9,
    "conv.turn_seconds.tf32": 5.3e-6,
    **{f"conv.plane.{kind}": value for kind, value in (("conv", 0.65), ("conv_dgrad", 0.68), ("conv_wgrad", 0.8))},
    **{f"conv.plane1.{kind}": value for kind, value in (("conv", 0.7), ("conv_dgrad", 0.55), ("conv_wgrad", 0.58))},
    "conv.winograd.plane": 1.2,
    **{f"conv.tap.plane.{kind}": value for kind, value in (("conv", 0.14), ("conv_dgrad", 0.17), ("conv_wgrad", 0.29))},
    **{f"conv.tap.pixel.{kind}": value for kind, value in (("conv", 0.9), ("conv_dgrad", 2.0), ("conv_wgrad", 1.0))},
    "conv.tap.warp": 170.0,
}
# Normalisations of planes of pixels, one block for each channel: clocks of a row, of a byte where the channel is kept, of a
# channel; channels that an SM has at a time; the rest as of other kernels.
NORMED = ("batch_norm", "batch_norm_backward")
NORMS = {
    f"memory.{name}.{kind}.{role}": value
    for role, kind, values in (
        ("cudnn_planes", NORMED[0], (1.1, 0.21, 1900.0, 1.1, 2.0e-6, 0.9)),
        ("cudnn_planes", NORMED[1], (2.7, 0.5, 1600.0, 1.7, 1.8e-6, 0.9)),
        ("channels_first", NORMED[0], (1.6, None, 2100.0, 1.1, 4.0e-6, 0.9)),
        ("channels_first", NORMED[1], (3.3, None, 900.0, 2.1, 1.7e-6, 0.9)),
    )
    for name, value in zip(("serial", "kept", "channel", "abreast", "start", "share"), values, strict=True)
    if value is not None
}
ATTENTION = {
    "attention.share": 0.95,
    "attention.share.attention_backward": 0.75,
    "attention.exponent": 0.07,
    "attention.causal": 600.0,
}
# Not fitted on single operators, of which there are none of these kinds: read off steps in which they show (decode attention from
# how the H200's decode steps grow with context and batch), or from what is published.
FIXED = {
    "memory.resident": 0.5,  # of what a network's kernel touches: just written by the one before
    "memory.row": 0.0,
    "memory.row.reduce.quantise": 0.0,
    "memory.row.reduce.quantise_vllm": 0.0,
    "memory.element.reduce.quantise": 0.15,
    "memory.start.reduce.quantise": 2.0e-6,
    "memory.row.reduce.quantise_apart": 0.0,
    "memory.share.pool_backward": 0.5,
    "memory.element.pool_backward": 2.4,  # this and the next six: from kernels of whole steps, in which nothing else runs so
    "memory.element.copy.strided": 0.73,
    "memory.element.transpose.join": 1.1,
    "memory.element.pointwise.normalise": 0.45,
    "memory.element.pointwise.scatter": 2.1,
    **{f"memory.element.{norm}.{role}": 0.0 for norm in NORMED for role in ("cudnn_planes", "channels_first")},
    "memory.serial": 0.0,
    "memory.older": 0.5,  # of that before Ampere, where memory answers sooner: from published fp32 networks
    "memory.kept": 1.0,
    "memory.channel": 0.0,
    "memory.abreast": 1.0,
    "conv.resident": 0.5,
    "conv.planar": 0.95,  # this and the next four: fp32 in planes of pixels, from published fp32 networks on GPUs before Ampere
    "conv.planar.conv_wgrad": 0.85,
    "conv.winograd.planar": 1.7,
    "conv.few.planar": 0.9,
    "conv.few.planar.conv_wgrad": 0.7,
    # 192 lanes an SM, of which its schedulers fill 128 without pairs of instructions; two chips of a K80 share 300 W, and boost
    # less for it: from its networks. Its 16 bits are computed in fp32.
    **{f"gemm.factor.{unit}.Kepler": 0.67 for unit in ("single", "tensor", "narrow", "integer")},
    **{f"gemm.factor.{unit}.sm_37": 0.82 for unit in ("single", "tensor", "narrow", "integer")},
    "gemm.share.emulated": 0.7,  # of fp32: bf16 where there are no units for it
    "gemm.share.widened": 0.85,  # of 16-bit products: weights stored narrower than the chip's units
    "gemm.share.older": 0.655,  # mma.sync from registers alone on the H200: 648 TFLOP/s of 989
    "gemm.share.int8": 0.75,  # engines' kernels, as in fp8; PyTorch's own on Hopper reaches 0.48
    "gemm.odd.older": 2.2,  # before Hopper
    "gemm.draw": 1.0,
    "gemm.draw.grouped_gemm.framework": 0.6,  # from the mixtures decoded on the H200
    "gemm.draw.grouped_gemm.fused": 0.95,
    "gemm.draw.unpack_gemm": 0.9,
    "gemm.slowdown": 1.0,
    "gemm.slowdown.grouped_gemm.framework": 1.2,  # from their prefill
    "gemm.small": 0.35,  # of bandwidth: many products of 64 rows and columns or fewer
    "gemm.even": 4.3,  # from BERT's training steps, whose vocabulary is even
    "gemm.slowdown.grouped_gemm.fused": 1.2,
    "gemm.slowdown.unpack_gemm": 1.3,
    "gemm.slowdown.unpack_gemm.tinygemm": 28.0,
    "gemm.slowdown.unpack_gemm.gguf": 1.0,  # of a few rows, which wait for memory
    "gemm.slowdown.unpack_gemm.mmq": 2.0,  # not measured
    "gemm.gguf": 6.3,  # bytes a clock and SM: what llama.cpp reads on the A100, in fp16 and in 4 bits alike (XiongjieDai)
    "attention.bandwidth": 0.92,
    "attention.sharpness": 4.2,
    "attention.start": 4.0e-6,
    "attention.start.attention_backward": 8.0e-6,
    "attention.start.decode_attention.split": 6.0e-6,
    "attention.dropout": 2.2,  # how much longer forward takes with dropout: of kernels of whole steps, as is the next
    "attention.dropout.attention_backward": 1.35,
    "attention.key": 21.0,
    "attention.occupancy": 4.0,
    "attention.decode": 0.25,
}
# Kernels of one version of one engine, seen in the measurements and in nothing that is estimated.
NUISANCE = tuple(f"memory.{kind}.reduce.quantise_{how}" for kind in ("element", "start", "row") for how in ("vllm", "apart"))
# Bounds beyond those of every parameter (a tenth to ten times its start): shares of what there is cannot exceed it.
AT_MOST = {
    "conv.share.fp32.conv_dgrad": 1.5,
    "conv.few": 1.5,
    "conv.share": 0.95,
    "conv.bandwidth": 0.92,
    "gemm.share": 1.0,
    "gemm.bandwidth": 0.92,
    "memory.share": 0.93,
    "attention.share": 0.95,
    "conv.split.wgrad": 3.0,
    "conv.winograd_setup": 3000.0,
    "conv.winograd": 4.0,
    "conv.plane": 1.0,
}
AT_LEAST = {
    "conv.split": 1.0,
    "gemm.split": 1.0,
    "memory.cache": 1.0,
    "gemm.cache": 1.0,
    "conv.cache": 1.0,
    "conv.winograd_setup": 30.0,
    "conv.winograd": 1.0,
}
