"""Matrix products: arithmetic in tiles, weights over bandwidth, and what misaligned, narrow and expert-wise products cost."""

from __future__ import annotations

from typing import Final

import numpy as np

from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.power import power_bound
from whichgpu.estimate.time.curves.stack import Array, Mask, OperatorStack, Parameters, soft_max
from whichgpu.estimate.time.curves.tiles import SIMT, TENSOR, Products, Tiling, tiled
from whichgpu.estimate.time.units import UNITS

ALIGNED: Final = 8.0  # elements to which tensor-core kernels want rows of memory aligned
SMALL: Final = 64.0  # rows and columns of products of which there are many
WIDE_TILES: Final = 128.0  # kernels for misaligned rows come with large tiles only
TINY: Final = 1e-300


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Seconds of each product, [gpus, operators, batches]."""
    return parted(stack, gpus, p)[0]


def parted(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> tuple[Array, Array]:
    """The same, and the share of them that is reading: near 1 where arithmetic is nothing beside it."""
    unit = stack.unit
    grouped = stack.kind("grouped_gemm")
    batch = stack.size("batch")
    products = Products(
        batch, np.where(grouped, stack.size("m") / np.maximum(batch, 1.0), stack.size("m")), stack.size("n"), stack.size("k")
    )
    odd = np.zeros_like(products.m, dtype=bool) if UNITS[unit].product_class == "single" else misaligned(stack, products)
    small = (batch > 1) & (products.m <= SMALL) & (products.n <= SMALL)  # their kernels load single numbers, several tiles an SM
    odd = odd & ~small
    compute = tiled(products, tiling(unit, odd, small, p), unit, gpus)
    lacking = np.asarray(UNITS[unit].narrow & (gpus.native.get(unit, np.ones(1)) == 0))  # narrow weights are unpacked there too
    alone = stack.kind("unpack_gemm") | (lacking & ~grouped)
    if alone.any():  # their kernels have tiles of as few rows as there are, and spread the inner sum over all SMs
        compute = np.where(alone, stack.flops / gpus.rates[unit], compute)
    experts = (stack.size("unpacked", 0.0) > 0) | (lacking & grouped)
    if experts.any():
        compute = np.maximum(compute, np.where(experts, stack.flops * unpacking_experts(stack, gpus, p) / gpus.rates[unit], 0.0))
    compute *= slowdown(stack, products, odd, gpus, p) / share(unit, gpus, p)
    np.maximum(compute, power_bound(stack.flops, unit, gpus, p), out=compute)
    memory, again = bandwidth_seconds(stack, products, small, gpus, p)
    np.minimum(compute, again, out=compute)
    took = soft_max(compute, memory, p["gemm.sharpness"]) + p["gemm.start"] * gpus.latency
    return took, _fourth(memory) / (_fourth(memory) + _fourth(compute) + TINY)


def _fourth(times: Array) -> Array:
    squares = times * times
    squares *= squares
    return squares


def tiling(unit: str, odd: Mask, small: Mask, p: Parameters) -> Tiling:
    """How products of a unit are cut."""
    if UNITS[unit].product_class == "single":
        return Tiling(SIMT, p["gemm.edge.fp32"], p["gemm.ramp.fp32"], p["gemm.split.fp32"], p["gemm.split_seconds"])
    smallest, ramp = np.where(odd, WIDE_TILES, 0.0), np.where(small, 0.0, p["gemm.ramp"])
    return Tiling(TENSOR, p["gemm.edge"], ramp, p["gemm.split"], p["gemm.split_seconds"], smallest)


def share(unit: str, gpus: GpuColumns, p: Parameters) -> Array:
    """The share of peak that large products reach: of the unit, by architecture, less where other units stand in for it."""
    known = p.get(f"gemm.share.{unit}", p["gemm.share"])
    reached = gpus.factor(p, f"gemm.factor.{UNITS[unit].product_class}") * known
    if unit == "fp32":
        reached = reached * np.where(gpus.wide > 0, p["gemm.share.wide"], 1.0)
    elif unit == "bf16":
        reached = np.where(gpus.native[unit] > 0, reached, p["gemm.share.emulated"])
    elif UNITS[unit].narrow:
        reached = np.where(gpus.native[unit] > 0, reached, p["gemm.share"] * p["gemm.share.widened"])
    return reached


def misaligned(stack: OperatorStack, products: Products) -> Mask:
    """Whether rows of the operands in memory start where tensor-core kernels cannot load them; batches play no part."""
    sides = np.where(stack.role("wgrad"), products.m, products.k)
    return (np.mod(products.n, ALIGNED) > 0) | (np.mod(sides, ALIGNED) > 0)


def slowdown(stack: OperatorStack, products: Products, odd: Mask, gpus: GpuColumns, p: Parameters) -> Array:
    """What multiplies the arithmetic: misaligned rows, operands that lie the wrong way, weights that must be unpacked."""
    unit = stack.unit
    factor = np.ones((len(gpus), len(stack.ops), 1)) * stack.each(p, "gemm.slowdown")
    bulk = gpus.bulk_copies > 0  # Bulk copies need alignment: falling back costs these chips more.
    if odd.any():
        even = (np.mod(products.n, 2.0) == 0) & (np.mod(products.k, 2.0) == 0)  # pairs of elements can still be loaded at once
        odd_cost = p["gemm.odd.tf32"] if unit == "tf32" else np.where(even, p["gemm.even"], p["gemm.odd"])
        cost = np.where(bulk, odd_cost, p["gemm.odd.older"])
        factor = factor * np.where(odd & (gpus.native[unit] > 0), cost, 1.0)
    if unit == "tf32":
        turned = np.where(stack.role("wgrad"), p["gemm.tf32.wgrad"], np.where(stack.role("dgrad"), p["gemm.tf32.dgrad"], 1.0))
        factor = factor * np.where(bulk, turned, 1.0)
    return factor


def unpacking_experts(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """How much slower at least the arithmetic of a mixture's products is whose weights are unpacked: where no tile is wasted."""
    unpacking = np.where(stack.size("unpacked", 0.0) > 0, p["gemm.slowdown.unpack_gemm"], 1.0)
    # Kernels that dequantise experts have mma.sync alone, which misses the full rate of chips with asynchronous instructions.
    return unpacking / np.where(gpus.async_matrix > 0, p["gemm.share.older"], 1.0)


def bandwidth_seconds(
    stack: OperatorStack, products: Products, small: Mask, gpus: GpuColumns, p: Parameters
) -> tuple[Array, Array]:
    """Seconds of reading and writing everything once; and of making rows one by one, each reading the weights again."""
    moved = stack.read + stack.write
    known = p.get(f"gemm.bandwidth.{stack.unit}", p["gemm.bandwidth"]) * stack.each(p, "gemm.draw")
    if small.any():  # up to four times that size the share grows to the usual one
        grown = np.clip((np.maximum(products.m, products.n) / SMALL - 1.0) / 3.0, 0.0, 1.0)
        known = np.where(products.batch > 1, p["gemm.small"] + (known - p["gemm.small"]) * grown, known)
    rate = gpus.bandwidth * gpus.factor(p, "gemm.factor.bandwidth") * known
    vectors = stack.role("gguf", "mmq")
    if vectors.any():  # kernels that keep few loads in flight: an SM reads so many bytes a clock, whatever the memory could give
        rate = np.where(vectors, np.minimum(rate, p["gemm.gguf"] * gpus.sms * gpus.clock), rate)
    held = resident_share(moved, stack.size("resident", 0.0), gpus, p)
    memory = moved * (1.0 - held * (1.0 - 1.0 / p["gemm.cache"])) / rate
    weights = products.batch * np.maximum(products.m, products.n) * products.k
    repeats = np.maximum(np.minimum(products.m, products.n) - 1.0, 0.0)  # an expert may have less than a row on average
    again = repeats * weights * p["gemm.vector"] * UNITS[stack.unit].bytes
    return memory, again / gpus.bandwidth


def resident_share(moved: Array, fresh: Array, gpus: GpuColumns, p: Parameters) -> Array:
    """The share of bytes that come from the L2: what was touched just before (`fresh`), where everything fits."""
    fits = moved / gpus.l2
    np.subtract(p["cache.full"], fits, out=fits)
    fits /= p["cache.full"] - p["cache.fits"]
    return fresh * np.clip(fits, 0.0, 1.0, out=fits)
