"""MLX, never measured: its record as its documents state it, where it runs, and estimates that say they are modelled."""

from __future__ import annotations

import pytest

from whichgpu.catalog.engines.engine import engine_support, may_run_on
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.engine_memory import chunk_tokens
from whichgpu.estimate.memory.inference import inference_memory
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.workload.models import find_model
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import KINDS

MLX = engine_record("mlx")


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("apple-m2", "yes"),
        ("rtx-4090", "yes"),
        ("t4", "yes"),
        ("v100-sxm-16gb", "earlier"),
        ("gtx-1080-ti", "no"),
        ("mi300x", "no"),
    ],
)
def test_gpus_supported_by_mlx(gpu: str, expected: str, catalog: Catalog) -> None:
    """Apple silicon, and NVIDIA from compute capability 7.5 on (7.0 at first)."""
    engine = next(engine for engine in catalog.engines if engine.id == "mlx")
    assert engine_support(engine, catalog.gpu_by_id[gpu]) == expected
    assert may_run_on(engine, catalog.gpu_by_id[gpu]) is (expected != "no")


def test_its_cache_grows_by_256_tokens_and_prompts_run_by_2048() -> None:
    assert (MLX.memory.block_tokens, MLX.memory.windowed_cache, MLX.memory.reservation) == (256, True, "none")
    assert chunk_tokens(MLX.memory, None, "serve", 30000) == 2048


def test_its_server_ran_requests_one_by_one_and_batches_them_since() -> None:
    assert [engine_record("mlx", year).limits.max_sequences for year in (2024, 2025, 2026)] == [1, 1, 32]
    assert not MLX.limits.mixed_steps


def test_its_memory_and_time_are_modelled(catalog: Catalog) -> None:
    shape, gpu = find_model("llama-3.1-8b", catalog), catalog.gpu_by_id["rtx-4090"]
    fields = {"task": "decode", "model": "llama-3.1-8b", "precision": "int4", "engine": "mlx", "batch": 1, "seq_in": 1000}
    estimate = inference_memory(fill_defaults(from_object(fields).workload, shape), shape, gpu)
    assert estimate.device.basis == "modelled"
    assert estimate.parts["kv_cache"].value == 1024 * 128 * 1024  # 1000 tokens in blocks of 256, 128 KiB a token
    calibration = load_calibration()
    assert calibration.tier("mlx", gpu, "decode", "int4") == "other"
    assert calibration.tier("mlx", catalog.gpu_by_id["apple-m2"], "decode", "int4") == "other"


def test_other_names_of_it() -> None:
    assert [KINDS["engine"].read_text(name) for name in ("mlx", "MLX", "mlx-lm")] == ["mlx"] * 3
