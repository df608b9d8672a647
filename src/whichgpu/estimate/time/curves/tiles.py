"""Products as GPUs make them: tiles over SMs.

A kernel cuts the result into tiles; each SM makes one at a time, so the time is the number of waves times that of a tile. Small
tiles fill more SMs but load more for each FLOP: their rate is h / (h + edge) of the SM's, where h, the FLOPs per number loaded,
is rows * columns / (rows + columns). Libraries choose among tiles, or split the inner sum over SMs ("split-k"): the best counts.
Each choice is monotone in every size, and so is their minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array

TENSOR_TILES = ((256, 128), (128, 256), (128, 128), (64, 128), (128, 64), (64, 64))
SIMT_TILES = ((128, 128), (64, 128), (128, 64), (64, 64), (32, 128), (128, 32), (32, 32))
CONV_TILES = (*TENSOR_TILES, (256, 32), (64, 32))  # convolutions with few channels
LARGEST_TILE_INTENSITY = (
    256.0 * 128.0 / (256.0 + 128.0)
)  # FLOPs per number loaded by the largest tile, at which shares of peak are stated


@dataclass(frozen=True, slots=True)
class GemmShapes:
    """`batch` products [m, k] @ [k, n]; arrays are [operators, batches]."""

    batch: Array
    m: Array
    n: Array
    k: Array


@dataclass(frozen=True, slots=True)
class TileModel:
    """How kernels of a kind cut a product; numbers or arrays [operators, 1]."""

    tiles: tuple[tuple[int, int], ...]
    edge: float | Array  # h at which a tile runs at half its SM's rate
    ramp: float | Array  # steps of the inner sum that pass before a tile's loads and arithmetic overlap
    split: float | Array  # what splitting the inner sum costs beyond the work itself
    split_seconds: float
    smallest: float | Array = 0.0  # no tile with a side below this


def tiled_seconds(products: GemmShapes, tiling: TileModel, unit: str, gpus: GpuColumns) -> Array:
    """Seconds at the full rate of the unit, [gpus, operators, batches]."""
    m, n = products.m, products.n
    edge, ramp = tiling.edge * gpus.sm_rate_vs_reference[unit], tiling.ramp * gpus.sm_rate_vs_reference[unit]
    depth = 2.0 * products.batch * (products.k + ramp)
    least_work: Array | None = None
    least: Array | None = None
    rows = {side: np.ceil(m / side) for side in {rows for rows, _ in tiling.tiles}}
    columns = {side: np.ceil(n / side) for side in {columns for _, columns in tiling.tiles}}
    for tile_rows, tile_columns in tiling.tiles:
        loaded = tile_rows * tile_columns / (tile_rows + tile_columns)
        slower = (1.0 + edge / loaded) / (1.0 + edge / LARGEST_TILE_INTENSITY)
        slower = slower + np.where(min(tile_rows, tile_columns) < tiling.smallest, np.inf, 0.0)
        one = depth * (tile_rows * tile_columns * slower)  # of one tile of each product of the batch
        each = rows[tile_rows] * columns[tile_columns]
        work = one * each
        least_work = work if least_work is None else np.minimum(least_work, work)
        time = np.ceil((products.batch * each) / gpus.sms) * (one / products.batch)
        least = time if least is None else np.minimum(least, time, out=least)
    assert least is not None
    assert least_work is not None
    least /= gpus.sm_rates[unit]
    spread = least_work / gpus.sustained_rates[unit]
    np.minimum(least, spread * tiling.split + tiling.split_seconds, out=least)
    return np.maximum(least, spread, out=least)
