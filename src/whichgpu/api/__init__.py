"""The public verbs. Wiring only; the same functions serve the command line, the web page and Python.

Field names are the same everywhere. Each verb's module is loaded when the verb is first used, so that a question
about a GPU does not wait for what only questions about models need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichgpu.api.builtin import ModelRow as ModelRow
    from whichgpu.api.builtin import ModelsAnswer as ModelsAnswer
    from whichgpu.api.builtin import models as models
    from whichgpu.api.buying import BuyAnswer as BuyAnswer
    from whichgpu.api.buying import BuyInputs as BuyInputs
    from whichgpu.api.buying import buy as buy
    from whichgpu.api.changes import ChangeRow as ChangeRow
    from whichgpu.api.changes import DiffAnswer as DiffAnswer
    from whichgpu.api.changes import WatchAnswer as WatchAnswer
    from whichgpu.api.changes import catalog_diff as catalog_diff
    from whichgpu.api.changes import catalog_watch as catalog_watch
    from whichgpu.api.engine_facts import EngineEvidence as EngineEvidence
    from whichgpu.api.engine_facts import EngineRow as EngineRow
    from whichgpu.api.engine_facts import EnginesAnswer as EnginesAnswer
    from whichgpu.api.engine_facts import engines as engines
    from whichgpu.api.estimates import (
        EstimateAnswer as EstimateAnswer,
    )
    from whichgpu.api.estimates import (
        estimate as estimate,
    )
    from whichgpu.api.estimates import (
        estimate_spelled as estimate_spelled,
    )
    from whichgpu.api.evidence import AccuracyAnswer as AccuracyAnswer
    from whichgpu.api.evidence import accuracy as accuracy
    from whichgpu.api.facts import (
        Compared as Compared,
    )
    from whichgpu.api.facts import (
        Comparison as Comparison,
    )
    from whichgpu.api.facts import (
        CpusAnswer as CpusAnswer,
    )
    from whichgpu.api.facts import (
        FactReport as FactReport,
    )
    from whichgpu.api.facts import (
        GpusAnswer as GpusAnswer,
    )
    from whichgpu.api.facts import (
        InstancesAnswer as InstancesAnswer,
    )
    from whichgpu.api.facts import (
        RegionsAnswer as RegionsAnswer,
    )
    from whichgpu.api.facts import (
        Row as Row,
    )
    from whichgpu.api.facts import (
        catalog_check as catalog_check,
    )
    from whichgpu.api.facts import (
        compare as compare,
    )
    from whichgpu.api.facts import (
        cpus as cpus,
    )
    from whichgpu.api.facts import (
        gpus as gpus,
    )
    from whichgpu.api.facts import (
        instances as instances,
    )
    from whichgpu.api.facts import (
        regions as regions,
    )
    from whichgpu.api.facts import (
        report_error as report_error,
    )
    from whichgpu.api.facts import (
        row_id as row_id,
    )
    from whichgpu.api.group_layouts import LayoutRow as LayoutRow
    from whichgpu.api.group_layouts import layouts as layouts
    from whichgpu.api.history import HistoryAnswer as HistoryAnswer
    from whichgpu.api.history import Trend as Trend
    from whichgpu.api.history import catalog_history as catalog_history
    from whichgpu.api.live import LiveStatus as LiveStatus
    from whichgpu.api.live import SnapshotRow as SnapshotRow
    from whichgpu.api.live import StatusAnswer as StatusAnswer
    from whichgpu.api.live import TakingAnswer as TakingAnswer
    from whichgpu.api.live import catalog_export as catalog_export
    from whichgpu.api.live import catalog_forget as catalog_forget
    from whichgpu.api.live import catalog_import as catalog_import
    from whichgpu.api.live import catalog_quarantine as catalog_quarantine
    from whichgpu.api.live import catalog_refresh as catalog_refresh
    from whichgpu.api.live import catalog_status as catalog_status
    from whichgpu.api.live import live_status as live_status
    from whichgpu.api.loads import Asked as Asked
    from whichgpu.api.machine import Watching as Watching
    from whichgpu.api.machine import doctor as doctor
    from whichgpu.api.machine import no_gpu as no_gpu
    from whichgpu.api.machine import watch as watch
    from whichgpu.api.measuring import MeasureAnswer as MeasureAnswer
    from whichgpu.api.measuring import VerifyAnswer as VerifyAnswer
    from whichgpu.api.measuring import import_record as import_record
    from whichgpu.api.measuring import measure as measure
    from whichgpu.api.measuring import share_record as share_record
    from whichgpu.api.measuring import verify as verify
    from whichgpu.api.memory import (
        FitAnswer as FitAnswer,
    )
    from whichgpu.api.memory import (
        FitRow as FitRow,
    )
    from whichgpu.api.memory import (
        fit as fit,
    )
    from whichgpu.api.memory import (
        fit_spelled as fit_spelled,
    )
    from whichgpu.api.memory import (
        needs as needs,
    )
    from whichgpu.api.planfile import read_plan as read_plan
    from whichgpu.api.planning import PlanAnswer as PlanAnswer
    from whichgpu.api.planning import plan as plan
    from whichgpu.api.planrequest import PlanRequest as PlanRequest
    from whichgpu.api.prices import OffersAnswer as OffersAnswer
    from whichgpu.api.prices import OffersQuery as OffersQuery
    from whichgpu.api.prices import offers as offers
    from whichgpu.api.provenance import SourcesAnswer as SourcesAnswer
    from whichgpu.api.provenance import sources as sources
    from whichgpu.api.recommending import RecommendAnswer as RecommendAnswer
    from whichgpu.api.recommending import recommend as recommend
    from whichgpu.api.recommending import recommend_spelled as recommend_spelled
    from whichgpu.api.relative_speed import RelativeAnswer as RelativeAnswer
    from whichgpu.api.relative_speed import RelativeRow as RelativeRow
    from whichgpu.api.relative_speed import relative as relative
    from whichgpu.api.serving import serve as serve
    from whichgpu.api.serving import serve_spelled as serve_spelled
    from whichgpu.api.shopping import Query as Query
    from whichgpu.api.side_by_side import ComparedSpeed as ComparedSpeed
    from whichgpu.api.side_by_side import compare_speed as compare_speed
    from whichgpu.api.stream import Reply as Reply
    from whichgpu.api.stream import estimate_requests as estimate_requests

_MODULES = {
    "facts": "Compared Comparison CpusAnswer FactReport GpusAnswer InstancesAnswer RegionsAnswer Row catalog_check "
    "compare cpus gpus instances regions report_error row_id",
    "estimates": "EstimateAnswer estimate estimate_spelled",
    "stream": "Reply estimate_requests",
    "machine": "Watching doctor no_gpu watch",
    "measuring": "MeasureAnswer VerifyAnswer import_record measure share_record verify",
    "group_layouts": "LayoutRow layouts",
    "memory": "FitAnswer FitRow fit fit_spelled needs",
    "builtin": "ModelRow ModelsAnswer models",
    "engine_facts": "EngineEvidence EngineRow EnginesAnswer engines",
    "recommending": "RecommendAnswer recommend recommend_spelled",
    "buying": "BuyAnswer BuyInputs buy",
    "shopping": "Query",
    "planrequest": "PlanRequest",
    "planfile": "read_plan",
    "planning": "PlanAnswer plan",
    "relative_speed": "RelativeAnswer RelativeRow relative",
    "loads": "Asked",
    "serving": "serve serve_spelled",
    "side_by_side": "ComparedSpeed compare_speed",
    "prices": "OffersAnswer OffersQuery offers",
    "live": "LiveStatus SnapshotRow StatusAnswer TakingAnswer catalog_export catalog_forget catalog_import "
    "catalog_quarantine catalog_refresh catalog_status live_status",
    "changes": "ChangeRow DiffAnswer WatchAnswer catalog_diff catalog_watch",
    "history": "HistoryAnswer Trend catalog_history",
    "evidence": "AccuracyAnswer accuracy",
    "provenance": "SourcesAnswer sources",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
