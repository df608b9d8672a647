"""Within a family the order is right: no later or larger sibling is weaker where the line says it is stronger."""

from __future__ import annotations

from itertools import pairwise

import pytest

from whichgpu.catalog.store import Catalog

RISING: list[tuple[str, str]] = [
    ("memory_bandwidth", "k80 p100-pcie-16gb v100-sxm-16gb a100-sxm-40gb a100-sxm-80gb h100-sxm h200-sxm b200"),
    ("fp16", "t4 l4"),
    ("fp16", "t4 a10 l40 l40s"),
    ("fp16", "v100-pcie-16gb v100-sxm-16gb a100-sxm-40gb h100-pcie h100-sxm b200"),
    ("fp32", "k40 m40-12gb p40 v100-sxm-16gb a100-sxm-40gb a40 l40 l40s"),
    ("fp16", "rtx-2060-6gb rtx-2070 rtx-2080 rtx-2080-ti titan-rtx"),
    ("fp16", "rtx-3060-12gb rtx-3060-ti rtx-3070 rtx-3080-10gb rtx-3090 rtx-3090-ti"),
    ("fp16", "rtx-4060 rtx-4060-ti-8gb rtx-4070 rtx-4070-ti rtx-4080 rtx-4090"),
    ("fp16", "rtx-5060 rtx-5070 rtx-5070-ti rtx-5080 rtx-5090"),
    ("fp32", "gtx-960-4gb gtx-970 gtx-980 gtx-980-ti"),
    ("fp32", "gtx-1060-6gb gtx-1070 gtx-1080 gtx-1080-ti titan-xp"),
    ("fp16", "rtx-a4000 rtx-a5000 rtx-a6000 rtx-6000-ada"),
    ("memory_bandwidth", "rtx-3060-12gb rtx-3080-10gb rtx-3080-12gb rtx-3090 rtx-3090-ti rtx-5090"),
    ("fp16", "mi50-16gb mi60 mi100 mi300x mi350x mi355x"),
    ("memory_bandwidth", "mi100 mi300x mi325x mi355x"),
    ("bf16", "tpu-v2 tpu-v3 tpu-v4 tpu-v5p tpu-v6e"),
    ("memory_bandwidth", "apple-m1 apple-m1-pro apple-m1-max apple-m1-ultra"),
    ("memory_bytes", "k20 k40 p40 v100-sxm-32gb a100-sxm-40gb a100-sxm-80gb h200-sxm b200"),
    ("fp16", "rx-6800 rx-6800-xt rx-7900-xt rx-7900-xtx"),
]


@pytest.mark.parametrize(("field", "line"), RISING)
def test_the_line_rises(catalog: Catalog, field: str, line: str) -> None:
    ids = line.split()
    values = {id: _value(catalog, id, field) for id in ids}
    for lower, higher in pairwise(ids):
        assert values[lower] < values[higher], f"{field}: {lower} {values[lower]} is not below {higher} {values[higher]}"


def _value(catalog: Catalog, id: str, field: str) -> int:
    gpu = catalog.gpu_by_id[id]
    return gpu.peaks[field] if field not in ("memory_bandwidth", "memory_bytes") else int(getattr(gpu, field))


def test_ada_pro_and_data_centre_cards_keep_the_full_tensor_rate_geforce_loses(catalog: Catalog) -> None:
    geforce, pro = catalog.gpu_by_id["rtx-4090"], catalog.gpu_by_id["rtx-6000-ada"]
    assert geforce.peaks["fp16"] * 2 == pytest.approx(geforce.peaks["fp16_fp16acc"], rel=0.01)
    assert "fp16_fp16acc" not in pro.peaks
    assert pro.peaks["fp16"] > 2 * geforce.peaks["fp16"]
