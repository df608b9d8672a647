"""GEMMs as GPUs run them, with output tiles distributed over SMs.

A kernel divides the result into tiles and each SM computes one at a time, so the time is the number of waves times that of a
tile. Small tiles fill more SMs but load more per FLOP: their rate is h / (h + edge) of the SM's, where h, the FLOPs per element
loaded, is rows * columns / (rows + columns). Libraries choose among tiles or split the k dimension over SMs ("split-k"); the
fastest choice counts. Each choice is monotone in every size, and so is their minimum.
"""

from __future__ import annotations

import msgspec
import numpy as np

from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array

TENSOR_TILES = ((256, 128), (128, 256), (128, 128), (64, 128), (128, 64), (64, 64))
SIMT_TILES = ((128, 128), (64, 128), (128, 64), (64, 64), (32, 128), (128, 32), (32, 32))
CONV_TILES = (*TENSOR_TILES, (256, 32), (64, 32))  # the last two serve convolutions with few channels
LARGEST_TILE_INTENSITY = 256.0 * 128.0 / (256.0 + 128.0)  # h of the largest tile, at which shares of peak are stated


class GemmShapes(msgspec.Struct, frozen=True):
    """Sizes of `batch` GEMMs [m, k] @ [k, n]; arrays are [operators, batches]."""

    batch: Array
    m: Array
    n: Array
    k: Array


class TileModel(msgspec.Struct, frozen=True):
    """Tiles that a class of GEMM kernels can choose from, and their costs; numbers or arrays [operators, 1]."""

    tiles: tuple[tuple[int, int], ...]
    edge: float | Array  # half-rate intensity: h at which a tile runs at half its SM's rate
    fill: float | Array  # pipeline fill: k steps before a tile's loads and arithmetic overlap
    split: float | Array  # multiplier of the work under split-k
    split_seconds: float
    min_side: float | Array = 0.0  # no tile has a side below this


def tiled_seconds(gemms: GemmShapes, model: TileModel, unit: str, gpus: GpuColumns) -> Array:
    """Return the seconds of the fastest tiling at the full rate of the arithmetic unit, [gpus, operators, batches]."""
    m, n = gemms.m, gemms.n
    edge, fill = model.edge * gpus.sm_rate_vs_reference[unit], model.fill * gpus.sm_rate_vs_reference[unit]
    depth = 2.0 * gemms.batch * (gemms.k + fill)
    least_work: Array | None = None
    shortest: Array | None = None
    rows = {side: np.ceil(m / side) for side in {rows for rows, _ in model.tiles}}
    columns = {side: np.ceil(n / side) for side in {columns for _, columns in model.tiles}}
    for tile_rows, tile_columns in model.tiles:
        intensity = tile_rows * tile_columns / (tile_rows + tile_columns)
        slowdown = (1.0 + edge / intensity) / (1.0 + edge / LARGEST_TILE_INTENSITY)
        slowdown = slowdown + np.where(min(tile_rows, tile_columns) < model.min_side, np.inf, 0.0)
        tile_work = depth * (tile_rows * tile_columns * slowdown)  # FLOPs of one tile per GEMM, summed over the batch
        tiles = rows[tile_rows] * columns[tile_columns]
        work = tile_work * tiles
        least_work = work if least_work is None else np.minimum(least_work, work)
        time = np.ceil((gemms.batch * tiles) / gpus.sms) * (tile_work / gemms.batch)
        shortest = time if shortest is None else np.minimum(shortest, time, out=shortest)
    assert shortest is not None
    assert least_work is not None
    shortest /= gpus.sm_rates[unit]
    balanced = least_work / gpus.sustained_rates[unit]
    np.minimum(shortest, balanced * model.split + model.split_seconds, out=shortest)
    return np.maximum(shortest, balanced, out=shortest)
