"""whichgpu: which GPU should I use? Facts first, with a source and a date beside every number.

>>> import whichgpu as wg
>>> print(wg.gpus("T4").headline())
T4: ...

The verbs are those of the command line, with its options as keywords; names here are stable (docs/python.md). Each is loaded
on first use, so that importing the package stays quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from whichgpu.base.display import set_renderer
from whichgpu.base.version import __version__

TYPE_CHECKING = False  # Type checkers take this as True; importing typing would double the load time.
if TYPE_CHECKING:
    from typing import Any

    from whichgpu.api.facts.accuracy import AccuracyAnswer
    from whichgpu.api.facts.catalog import CpusAnswer, GpusAnswer, InstancesAnswer, RegionsAnswer
    from whichgpu.api.facts.engines import EnginesAnswer
    from whichgpu.api.facts.evidence import EvidenceAnswer
    from whichgpu.api.facts.models import ModelsAnswer
    from whichgpu.api.measure.measure import MeasureAnswer, VerifyAnswer
    from whichgpu.api.prices.buy import BuyAnswer
    from whichgpu.api.prices.changes import DiffAnswer
    from whichgpu.api.prices.history import HistoryAnswer
    from whichgpu.api.prices.offers import OffersAnswer
    from whichgpu.api.prices.store import StatusAnswer
    from whichgpu.api.workloads.check import CheckAnswer
    from whichgpu.api.workloads.compare import Comparison
    from whichgpu.api.workloads.estimate import EstimateAnswer
    from whichgpu.api.workloads.explain import ExplainAnswer
    from whichgpu.api.workloads.fit import FitAnswer
    from whichgpu.api.workloads.stream import Reply
    from whichgpu.base.display import AnswerRenderer, Chart
    from whichgpu.base.errors import AmbiguousName, DataError, NoAnswer, UnknownName, UsageError, WhichGpuError
    from whichgpu.base.figure import Figure
    from whichgpu.base.money import Money
    from whichgpu.catalog.checks import CheckReport
    from whichgpu.decide.answer.recommend_answer import RecommendAnswer
    from whichgpu.decide.plan.plan_answer import PlanAnswer
    from whichgpu.measure.report.doctor import Report
    from whichgpu.surface.python.verbs import (
        accuracy,
        buy,
        catalog_check,
        catalog_diff,
        catalog_history,
        catalog_status,
        check,
        compare,
        cpus,
        doctor,
        engines,
        estimate,
        estimate_requests,
        evidence,
        explain,
        fit,
        gpus,
        instances,
        measure,
        models,
        offers,
        plan,
        recommend,
        regions,
        verify,
    )

_MODULES = {
    "surface.python.verbs": "accuracy buy catalog_check catalog_diff catalog_history catalog_status check compare cpus doctor "
    "engines estimate estimate_requests evidence explain fit gpus instances measure models offers plan recommend regions verify",
    "base.errors": "AmbiguousName DataError NoAnswer UnknownName UsageError WhichGpuError",
    "api.facts.accuracy": "AccuracyAnswer",
    "api.facts.catalog": "CpusAnswer GpusAnswer InstancesAnswer RegionsAnswer",
    "api.facts.engines": "EnginesAnswer",
    "api.facts.evidence": "EvidenceAnswer",
    "api.facts.models": "ModelsAnswer",
    "api.measure.measure": "MeasureAnswer VerifyAnswer",
    "decide.plan.plan_answer": "PlanAnswer",
    "api.prices.buy": "BuyAnswer",
    "api.prices.changes": "DiffAnswer",
    "api.prices.history": "HistoryAnswer",
    "api.prices.offers": "OffersAnswer",
    "api.prices.store": "StatusAnswer",
    "decide.answer.recommend_answer": "RecommendAnswer",
    "api.workloads.check": "CheckAnswer",
    "api.workloads.compare": "Comparison",
    "api.workloads.estimate": "EstimateAnswer",
    "api.workloads.explain": "ExplainAnswer",
    "api.workloads.fit": "FitAnswer",
    "api.workloads.stream": "Reply",
    "base.figure": "Figure",
    "base.money": "Money",
    "catalog.checks": "CheckReport",
    "measure.report.doctor": "Report",
    "base.display": "Chart",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "AccuracyAnswer",
    "AmbiguousName",
    "BuyAnswer",
    "Chart",
    "CheckAnswer",
    "CheckReport",
    "Comparison",
    "CpusAnswer",
    "DataError",
    "DiffAnswer",
    "EnginesAnswer",
    "EstimateAnswer",
    "EvidenceAnswer",
    "ExplainAnswer",
    "Figure",
    "FitAnswer",
    "GpusAnswer",
    "HistoryAnswer",
    "InstancesAnswer",
    "MeasureAnswer",
    "ModelsAnswer",
    "Money",
    "NoAnswer",
    "OffersAnswer",
    "PlanAnswer",
    "RecommendAnswer",
    "RegionsAnswer",
    "Reply",
    "Report",
    "StatusAnswer",
    "UnknownName",
    "UsageError",
    "VerifyAnswer",
    "WhichGpuError",
    "__version__",
    "accuracy",
    "buy",
    "catalog_check",
    "catalog_diff",
    "catalog_history",
    "catalog_status",
    "check",
    "compare",
    "cpus",
    "doctor",
    "engines",
    "estimate",
    "estimate_requests",
    "evidence",
    "explain",
    "fit",
    "gpus",
    "instances",
    "measure",
    "models",
    "offers",
    "plan",
    "recommend",
    "regions",
    "set_language",
    "verify",
]


class _Package(ModuleType):
    """The package, where `estimate` and `measure` are verbs although subpackages have these names."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in _HOME):
            super().__setattr__(name, value)


def set_language(code: str) -> None:
    """Set the language of messages and errors: en, ko, vi or zh; locales such as `ko_KR.UTF-8` are accepted.

    >>> set_language("en")
    """
    from whichgpu.base.messages import set_current_language
    from whichgpu.surface.commands.session import language_code

    set_current_language(language_code(str(code)))


def load_ipython_extension(shell: Any) -> None:
    """Add the magic `%whichgpu` to a notebook: `%load_ext whichgpu`, then `%whichgpu fit llama-3.1-8b --gpu L4`."""
    from whichgpu.surface.python.magic import register

    register(shell)


if not TYPE_CHECKING:  # Checkers know the names from above.

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_HOME))


def _renderer() -> AnswerRenderer:
    from whichgpu.surface.python import answer_display

    return answer_display


set_renderer(_renderer)
sys.modules[__name__].__class__ = _Package
