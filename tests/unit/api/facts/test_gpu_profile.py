"""A GPU's neighbours, the models that fit it, and what stands out about it."""

from __future__ import annotations

from whichgpu.api.facts.fit_grid import context_lines, fit_line
from whichgpu.api.facts.gpu_profile import gpu_profile, speed_scores
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.catalog.find import find_gpu
from whichgpu.catalog.store import Catalog

CATALOG = Catalog()
LOOKUPS = lookup_cache(CATALOG)


def test_neighbours_are_faster_above_and_slower_below() -> None:
    profile = gpu_profile("T4", CATALOG, LOOKUPS)
    assert profile.speed is not None
    scores = [speed_scores(CATALOG)[row.gpu] for row in profile.speed.rows]
    assert scores == sorted(scores, reverse=True)
    assert profile.speed.rows[3].gpu == "t4"
    assert profile.speed.rows[3].relative["llm-inference"].value == 1.0


def test_strengths_and_cautions_are_stated() -> None:
    assert gpu_profile("MI300X", CATALOG, LOOKUPS).strengths[0].values["what"].id == "field.memory_bytes"  # type: ignore[attr-defined]
    assert [one.id for one in gpu_profile("L4", CATALOG, LOOKUPS).strengths] == ["gpu.low-power", "gpu.narrow-floats"]
    a100 = gpu_profile("A100 SXM 80GB", CATALOG, LOOKUPS)
    assert {"gpu.strong", "gpu.mig"} == {one.id for one in a100.strengths}
    assert [getattr(one, "id", "") for one in a100.cautions] == ["gpu.no-fp8"]
    assert "gpu.no-bf16" in {getattr(one, "id", "") for one in gpu_profile("T4", CATALOG, LOOKUPS).cautions}


def test_fewer_bits_need_less_memory_and_longer_contexts_more() -> None:
    line = fit_line("llama-3.1-8b", find_gpu(CATALOG, "RTX 4060 Ti 16GB"), LOOKUPS)
    assert [cell.fits for cell in line.cells] == ["no", "fits", "fits"]
    assert line.throughput is not None
    lines = context_lines("llama-3.1-8b", find_gpu(CATALOG, "H100 SXM"), LOOKUPS)
    needed = [[size or 0 for size in one.needed] for one in lines]
    for column in zip(*needed, strict=True):
        assert list(column) == sorted(column, reverse=True)
    for row in needed:
        assert row == sorted(row)
    assert context_lines("gpt2", find_gpu(CATALOG, "T4"), LOOKUPS)[0].needed[0] is None
