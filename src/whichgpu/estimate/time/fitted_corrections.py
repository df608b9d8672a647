"""Fitted corrections of step times: log multipliers by level (engine, chip, …), and evidence by engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from whichgpu.base.bundled_data import read_data
from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg


class CorrectionTables(msgspec.Struct, frozen=True):
    """Fitted log multipliers: level (engine) -> group (vllm) -> time term (gemm) -> number."""

    multipliers: Mapping[str, Mapping[str, Mapping[str, float]]]
    evidence: Mapping[str, Any]
    provenance: Mapping[str, Any]

    def engine_evidence(self, engine: str) -> Mapping[str, Any]:
        """Return what was measured under an engine: its `rows`, `gpus`, `tasks`, `years` and `sources`."""
        measured: Mapping[str, Any] = self.evidence.get("engines", {}).get(engine, {})
        return measured

    def sources_of(self, engine: str, gpu: str = "") -> tuple[str, ...]:
        """Return the names of the sources whose measurements an engine's fitted multipliers come from."""
        return tuple(self.engine_evidence(engine).get("sources", ()))


Tables = TypeVar("Tables", bound=CorrectionTables)


def read_corrections(folder: Path, kind: type[Tables]) -> Tables:
    """Read `corrections.csv` and `calibration.json` (evidence and provenance) from a data folder."""
    path = folder / "calibration.json"
    try:
        summary = json.loads(read_data(path))
        path = folder / "corrections.csv"
        return kind(_multipliers(read_data(path).decode("utf-8")), summary["evidence"], summary["made"])
    except (OSError, ValueError, KeyError) as problem:
        message = msg("error.malformed-data", path=str(path), why=str(problem))
        raise DataError("malformed-data", message, msg("hint.data")) from problem


def _multipliers(text: str) -> dict[str, dict[str, dict[str, float]]]:
    """Parse the table into log multipliers by level (engine), group (vllm) and time term (gemm); no cell contains a comma."""
    levels: dict[str, dict[str, dict[str, float]]] = {}
    for line in text.splitlines()[1:]:
        level, group, term, log_factor, *_ = line.split(",")
        levels.setdefault(level, {}).setdefault(group, {})[term] = float(log_factor)
    return levels
