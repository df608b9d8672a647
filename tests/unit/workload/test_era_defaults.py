"""Defaults by the year of the software, and the note that names them."""

from __future__ import annotations

from typing import Any

import pytest

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.store import Catalog
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.era_defaults import era_note
from whichgpu.workload.models import find_model
from whichgpu.workload.workload import Workload


def filled(model: str, catalog: Catalog, user_fields: tuple[str, ...] = (), task: Any = "train", **fields: Any) -> Workload:
    return fill_defaults(Workload(task, model, **fields), find_model(model, catalog), user_fields)


@pytest.mark.parametrize(
    ("engine", "year", "precision", "memory_format", "fused"),
    [
        ("pytorch", 2017, "fp32", "contiguous", False), ("pytorch", 2019, "fp32", "contiguous", False),
        ("pytorch", 2021, "amp-fp16", "channels_last", False), ("pytorch", 2023, "amp-bf16", "channels_last", True),
        ("pytorch", None, "amp-bf16", "channels_last", True), ("mxnet", 2018, "fp32", "contiguous", True),
        ("mxnet", None, "amp-fp16", "contiguous", True), ("tensorflow", 2016, "fp32", "contiguous", True),
        ("ngc", 2018, "amp-fp16", "contiguous", True), ("ngc", 2024, "amp-bf16", "channels_last", True),
    ],
)  # fmt: skip
def test_image_models(engine: str, year: int | None, precision: str, memory_format: str, fused: bool, catalog: Catalog) -> None:
    one = filled("resnet50", catalog, engine=engine, year=year)
    assert (one.precision, one.memory_format, one.optimizer_fused) == (precision, memory_format, fused)


@pytest.mark.parametrize(
    ("engine", "year", "precision", "attention"),
    [
        ("pytorch", 2019, "fp32", "eager"), ("pytorch", 2021, "amp-fp16", "eager"), ("pytorch", 2024, "amp-bf16", "sdpa"),
        ("pytorch", None, "amp-bf16", "sdpa"), ("ngc", 2022, "amp-bf16", "eager"), ("tensorflow", None, "amp-bf16", "eager"),
    ],
)  # fmt: skip
def test_language_models(engine: str, year: int | None, precision: str, attention: str, catalog: Catalog) -> None:
    one = filled("gpt2", catalog, engine=engine, year=year)
    assert (one.precision, one.attention) == (precision, attention)


def test_what_the_user_says_is_kept(catalog: Catalog) -> None:
    fields = {"precision": "amp-fp16", "memory_format": "channels_last", "optimizer_fused": True}
    one = filled("resnet50", catalog, tuple(fields), year=2017, **fields)
    assert {name: getattr(one, name) for name in fields} == fields


def test_tf32_gemms_by_engine_and_year() -> None:
    years = {engine: [engine_record(engine, year).tf32_matmul for year in (2019, 2020, 2021, 2022, None)]
             for engine in ("pytorch", "ngc", "tensorflow", "mxnet")}  # fmt: skip
    assert years == {
        "pytorch": [False, True, True, False, False],
        "ngc": [False, True, True, True, True],
        "tensorflow": [False, True, True, True, True],
        "mxnet": [False] * 5,
    }


def test_the_note_names_what_differs_from_today(catalog: Catalog) -> None:
    (note,) = era_note(filled("resnet50", catalog, year=2018, engine="pytorch"), ("year",))
    assert note.id == "note.era-defaults"
    expected = ("precision fp32", "memory_format contiguous", "optimizer_fused false", "CUDA_MODULE_LOADING EAGER")
    assert note.values == {"engine": "pytorch", "year": "2018", "what": expected}
    (note,) = era_note(
        filled("gpt2", catalog, task="forward", year=2021, engine="pytorch", precision="fp32-default"), ("precision",)
    )
    assert note.values["what"] == ("attention eager", "GEMM tf32", "CUDA_MODULE_LOADING EAGER")
    assert era_note(filled("resnet50", catalog, year=2024), ()) == era_note(filled("resnet50", catalog), ()) == ()
