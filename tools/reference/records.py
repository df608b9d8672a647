"""The records that answers consist of, found by walking the types of the public verbs' answers."""

from __future__ import annotations

import ast
import csv
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from whichgpu.api.facts.accuracy import AccuracyAnswer
from whichgpu.api.facts.catalog import CpusAnswer, FactReport, GpusAnswer, InstancesAnswer, RegionsAnswer
from whichgpu.api.facts.engines import EnginesAnswer
from whichgpu.api.facts.evidence import EvidenceAnswer
from whichgpu.api.facts.models import ModelsAnswer
from whichgpu.api.facts.relative_speed import RelativeAnswer
from whichgpu.api.measure.measure import MeasureAnswer, VerifyAnswer
from whichgpu.api.prices.buy import BuyAnswer
from whichgpu.api.prices.changes import DiffAnswer, WatchAnswer
from whichgpu.api.prices.history import HistoryAnswer
from whichgpu.api.prices.offers import OffersAnswer
from whichgpu.api.prices.store import LiveStatus, PriceImportAnswer
from whichgpu.api.workloads.compare import ComparedSpeed, Comparison
from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.api.workloads.fit import FitAnswer
from whichgpu.base.codec import is_record
from whichgpu.base.messages import Message
from whichgpu.base.records import field_types
from whichgpu.catalog.checks.run import CheckReport
from whichgpu.catalog.status import CatalogStatus
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.interrupted import PoliciesAnswer
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.plan.plan_answer import PlanAnswer
from whichgpu.decide.roles.roles_answer import DesignsAnswer, RolesAnswer
from whichgpu.measure.report.doctor import Report
from whichgpu.measure.watcher import WatchReading

HERE = Path(__file__).parent
CATALOG_FIELDS = Path(inspect.getfile(Message)).parents[1] / "catalog" / "data" / "fields.csv"

# Records of each command's --json document, the outermost first.
ANSWERS: dict[str, tuple[type, ...]] = {
    "gpus": (GpusAnswer, RelativeAnswer),
    "instances": (InstancesAnswer,),
    "cpus": (CpusAnswer,),
    "regions": (RegionsAnswer,),
    "offers": (OffersAnswer,),
    "compare": (Comparison, ComparedSpeed),
    "models": (ModelsAnswer,),
    "engines": (EnginesAnswer,),
    "fit": (FitAnswer,),
    "estimate": (EstimateAnswer,),
    "recommend": (RecommendAnswer,),
    "plan": (
        PlanAnswer,
        LaunchOptions,
        RolesAnswer,
        DesignsAnswer,
        PoliciesAnswer,
    ),
    "buy": (BuyAnswer,),
    "evidence": (EvidenceAnswer,),
    "accuracy": (AccuracyAnswer,),
    "doctor": (Report,),
    "measure": (MeasureAnswer, VerifyAnswer),
    "watch": (WatchReading,),
    "catalog status": (CatalogStatus, LiveStatus),
    "catalog check": (CheckReport,),
    "catalog refresh": (PriceImportAnswer,),
    "catalog diff": (DiffAnswer,),
    "catalog watch": (WatchAnswer,),
    "catalog history": (HistoryAnswer,),
    "report-error": (FactReport,),
}
# Records with rows of a table of the catalog, whose columns have descriptions.
TABLES = {
    "Gpu": "gpus", "Software": "targets", "Instance": "instances", "Cpu": "cpus", "Region": "regions", "Source": "sources",
    "ModelRow": "models", "EngineRow": "engines", "MixItem": "reference_mix", "NamePart": "name_parts", "SourceRow": "sources",
}  # fmt: skip


class Field(msgspec.Struct, frozen=True):
    """A field of a record with its type and meaning; an empty meaning is a gap."""

    record: str
    name: str
    type: str
    meaning: str


class Record(msgspec.Struct, frozen=True):
    """A record: its name, module, docstring and fields."""

    name: str
    module: str
    about: str
    fields: tuple[Field, ...]


@cache
def records(command: str) -> tuple[Record, ...]:
    """The records of a command's answer, each once, the outermost first."""
    types: dict[type, None] = {}
    for kind in ANSWERS[command]:
        _walk(kind, types)
    return tuple(_record(kind) for kind in types)


def all_records() -> dict[str, Record]:
    """Every record of every command by module and name."""
    return {f"{one.module}.{one.name}": one for command in ANSWERS for one in records(command)}


def _walk(kind: Any, types: dict[type, None]) -> None:
    for inner in typing.get_args(kind):
        _walk(inner, types)
    if is_record(kind) and kind not in types and kind is not Message:
        types[kind] = None
        for hint in _hints(kind).values():
            _walk(hint, types)


def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        name: hint
        for name, hint in typing.get_type_hints(kind, localns=_for_types_only(kind.__module__)).items()
        if name in kind.__struct_fields__
    }


@cache
def _for_types_only(name: str) -> dict[str, Any]:
    """Names that a module imports only for its annotations."""
    names: dict[str, Any] = {}
    for node in ast.parse(inspect.getsource(sys.modules[name])).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    module = importlib.import_module(line.module)
                    names |= {alias.asname or alias.name: getattr(module, alias.name) for alias in line.names}
    return names


def _record(kind: Any) -> Record:
    name, remarks = kind.__name__, dict(_remarks(kind))
    about = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    fields = tuple(Field(name, field, type_, _meaning(name, field, remarks)) for field, type_ in field_types(kind).items())
    return Record(name, kind.__module__.removeprefix("whichgpu."), about, fields)


def _remarks(kind: type) -> Iterator[tuple[str, str]]:
    """Comments next to fields in the code."""
    for line in inspect.getsource(kind).splitlines():
        if (match := re.match(r"    (\w+):[^#]*#\s*(.+)$", line)) and not match[2].startswith("noqa"):
            yield match[1], match[2]


def _meaning(record: str, field: str, remarks: dict[str, str]) -> str:
    """Meaning of a field: its own entry, else the comment in the code, the catalog's column, or the entry of its name."""
    ours, table = meanings(), TABLES.get(record, "")
    return (
        ours.get((record, field)) or remarks.get(field) or catalog_meanings().get((table, field)) or ours.get(("", field)) or ""
    )


@cache
def meanings() -> dict[tuple[str, str], str]:
    """Descriptions of fields: by record and field, or by field alone."""
    with (HERE / "meanings.csv").open(encoding="utf-8", newline="") as lines:
        return {(row["record"], row["field"]): row["meaning"] for row in csv.DictReader(lines)}


@cache
def catalog_meanings() -> dict[tuple[str, str], str]:
    """Descriptions of the columns of the catalog's tables."""
    with CATALOG_FIELDS.open(encoding="utf-8", newline="") as lines:
        return {(row["table"], row["column"]): row["meaning"] for row in csv.DictReader(lines)}
