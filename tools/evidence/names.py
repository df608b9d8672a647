"""Tables that translate names used by sources into the catalog's."""

from __future__ import annotations

import csv
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from evidence.published import Published
from evidence.reasons import Reason

FOLDER = Path(__file__).parent
_CONFIG = "config:"
_REASONS = {reason.name.lower(): reason for reason in Reason}


@cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of one of the tables in this folder."""
    with (FOLDER / f"{name}.csv").open(newline="") as stream:
        return tuple(csv.DictReader(stream))


def reason_named(text: str) -> Reason:
    """The reason named in a table, `unknown_network` for example."""
    return _REASONS[text]


@cache
def gpu_id(name: str) -> str | Reason:
    """The catalog's id of a published GPU name."""
    for row in table("gpu_names"):
        if row["theirs"] == name:
            return row["ours"] or reason_named(row["left_out"])
    return Reason.UNKNOWN_GPU


@cache
def model_named(source: str, name: str) -> str | Reason:
    """The catalog's name of a model as a source spells it; `=` in the table means that both are the same."""
    for row in table("model_names"):
        if row["source"] == source and row["theirs"] in (name, "*"):
            if row["left_out"]:
                return reason_named(row["left_out"])
            return name if row["ours"] == "=" else row["ours"]
    return Reason.UNKNOWN_NETWORK


@cache
def as_model(name: str) -> str | dict[str, Any]:
    """Value of a request's `model`: a name, or the config.json stored here under that name."""
    if not name.startswith(_CONFIG):
        return name
    config: dict[str, Any] = json.loads((FOLDER / "configs" / f"{name.removeprefix(_CONFIG)}.json").read_text())
    return config


class Software(msgspec.Struct, frozen=True):
    """The engine that ran a row's workload."""

    engine: str
    year: int
    memory_format: str = ""


@cache
def software(source: str, framework: str, gpu: str = "") -> Software | Reason:
    """The engine, its year and its memory format, from the framework's description."""
    for row in table("frameworks"):
        if row["source"] == source and re.search(row["framework"], framework) and re.search(row["gpu"], gpu):
            if row["left_out"]:
                return reason_named(row["left_out"])
            return Software(row["engine"], int(row["year"]), row["memory_format"])
    return Reason.OTHER_ENGINE


@cache
def precision(source: str, text: str, gpu: str, model: str = "", task: str = "") -> str | Reason:
    """The contract's precision for a source's wording; GPU, network and task decide if the wording does not."""
    for row in table("precisions"):
        if (
            row["source"] == source
            and row["theirs"].lower() == text.lower()
            and re.search(row["gpu"], gpu)
            and re.search(row["model"], model)
            and re.search(row["task"], task)
        ):
            return row["ours"] or reason_named(row["left_out"])
    return Reason.NO_PRECISION


class Names(msgspec.Struct, frozen=True):
    """The catalog's names for what a row ran: GPU, model, precision and software."""

    gpu: str
    model: str
    precision: str
    software: Software


def catalog_names(
    row: Published,
    model: str | Reason | None = None,
    dtype: str | Reason | None = None,
    run_by: Software | Reason | None = None,
) -> Names | Reason:
    """The catalog's names for a row, unless a name is given, or the first reason why one is missing."""
    gpu = gpu_id(row.gpu)
    model = model_named(row.source, row.model) if model is None else model
    dtype = precision(row.source, row.precision, row.gpu, row.model, row.task) if dtype is None else dtype
    run_by = software(row.source, row.framework, row.gpu) if run_by is None else run_by
    if isinstance(gpu, Reason):
        return gpu
    if isinstance(model, Reason):
        return model
    if isinstance(dtype, Reason):
        return dtype
    return run_by if isinstance(run_by, Reason) else Names(gpu, model, dtype, run_by)


def family(model: str) -> str:
    """The family of a model: its name up to the first size or variant."""
    name = model.removeprefix(_CONFIG).lower()
    for row in table("families"):
        if re.match(row["pattern"], name):
            return row["family"]
    return re.split(r"[-_.:\d]", name, maxsplit=1)[0]


def doubt(row: Published) -> Reason | None:
    """Reason why a row is not trusted, if its neighbours or its notes give one; else None."""
    for entry in table("doubts"):
        if (
            entry["source"] == row.source
            and all(re.search(entry[name], getattr(row, name)) for name in ("gpu", "model", "framework", "date", "notes", "path"))
            and int(entry["batch_from"] or 0) <= (row.batch or 0) <= int(entry["batch_to"] or 10**9)
            and entry["seq_in"] in ("", str(row.seq_in))
        ):
            return reason_named(entry["left_out"])
    return None
