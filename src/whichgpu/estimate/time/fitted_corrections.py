"""Fitted corrections of step times: log multipliers by level (engine, chip, …), 90% ranges by tier, evidence by engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from whichgpu.base.bundled_data import read_data
from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg

if TYPE_CHECKING:
    from whichgpu.catalog.gpu import Gpu

Nearness = Literal["same", "kin", "far"]


class CorrectionTables(msgspec.Struct, frozen=True):
    """Fitted log multipliers: level (engine) -> group (vllm) -> time term (gemm) -> number; log ranges by tier and task."""

    multipliers: Mapping[str, Mapping[str, Mapping[str, float]]]
    ranges: Mapping[str, Mapping[str, Sequence[float]]]
    evidence: Mapping[str, Any]
    provenance: Mapping[str, Any]

    def engine_evidence(self, engine: str) -> Mapping[str, Any]:
        """Return what was measured under an engine: its `gpus`, `generations`, `formats`, `tasks` and `sources`."""
        measured: Mapping[str, Any] = self.evidence.get("engines", {}).get(engine, {})
        return measured

    def nearness(self, engine: str, gpu: Gpu) -> Nearness:
        """Return how near measurements are: this GPU and engine (same); its generation or another engine (kin); neither (far)."""
        measured = self.engine_evidence(engine)
        if gpu.id in measured.get("gpus", ()):
            return "same"
        kin = generation(gpu) in measured.get("generations", ()) or gpu.id in self.evidence.get("gpus", {})
        return "kin" if kin else "far"

    def sources_of(self, engine: str, gpu: str = "") -> tuple[str, ...]:
        """Return the names of the sources whose measurements an engine's fitted multipliers come from."""
        return tuple(self.engine_evidence(engine).get("sources", ()))


Tables = TypeVar("Tables", bound=CorrectionTables)


def generation(gpu: Gpu) -> str:
    """Return a GPU's hardware generation, which decides how well kernels run: architecture and compute capability as one name."""
    return f"{gpu.architecture} {gpu.compute_capability or gpu.segment}"


def read_corrections(folder: Path, kind: type[Tables]) -> Tables:
    """Read `corrections.csv` and `calibration.json` (ranges and evidence) from a data folder."""
    path = folder / "calibration.json"
    try:
        summary = json.loads(read_data(path))
        path = folder / "corrections.csv"
        return kind(_multipliers(read_data(path).decode("utf-8")), summary["ranges"], summary["evidence"], summary["made"])
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
