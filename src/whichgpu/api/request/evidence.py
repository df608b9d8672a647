"""Requests about the measurements that estimates rest on."""

from typing import Annotated

from whichgpu.api.request.catalog import SPAN, DataRequest, Sorted
from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import Names, Parsed, Words
from whichgpu.api.request.limits import parse_row_limit
from whichgpu.api.request.types import CountSpan, NameList
from whichgpu.base.kinds import Whole

# Tasks of measured runs, and single operators.
MEASURED_TASKS = ("train", "finetune", "forward", "prefill", "decode", "batch", "serve", "operator")


def _precisions() -> tuple[str, ...]:
    from whichgpu.catalog.evidence_search.search import distinct
    from whichgpu.workload.precisions import PRECISION_BY_NAME

    return tuple(dict.fromkeys((*PRECISION_BY_NAME, *distinct("precision"))))


def _sources() -> tuple[str, ...]:
    from whichgpu.catalog.evidence import evidence_sources

    return tuple(evidence_sources())


def _groups() -> tuple[str, ...]:
    from whichgpu.estimate.time.accuracy_pairs import KEYS

    return KEYS


class EvidenceRequest(Sorted, total=False):
    """Request for measurements: words that all occur in a row, and filters."""

    words: Annotated[NameList, Field(Names(), "[WORD…]", "option.evidence-words", "H100 llama", argument=True)]
    gpu: Annotated[NameList | None, Field(Names("gpus"), "NAMES", "option.gpu-names", "H100")]
    engine: Annotated[NameList | None, Field(Names("engines"), "NAMES", "option.evidence-engine", "vllm")]
    model: Annotated[NameList | None, Field(Names("models"), "NAMES", "option.evidence-model", "llama-3.1-8b")]
    task: Annotated[NameList | None, Field(Words("task", MEASURED_TASKS, many=True), "TASKS", "option.evidence-task", "decode")]
    precision: Annotated[
        NameList | None, Field(Words("precision", _precisions, many=True), "NAMES", "option.evidence-precision", "fp8")
    ]
    source: Annotated[
        NameList | None, Field(Words("evidence-source", _sources, many=True), "IDS", "option.evidence-source", "argonne")
    ]
    limit: Annotated[int | str | None, Field(Parsed(parse_row_limit), "N", "option.evidence-limit", "20")]


class AccuracyRequest(DataRequest, total=False):
    """Request for left-out errors and coverage of ranges, of a corner of the measurements."""

    gpu: Annotated[NameList | None, Field(Names("gpus"), "NAMES", "option.gpu-names", "H100")]
    engine: Annotated[NameList | None, Field(Names("engines"), "NAMES", "option.evidence-engine", "vllm")]
    model: Annotated[NameList | None, Field(Names("models"), "NAMES", "option.evidence-model", "llama")]
    task: Annotated[NameList | None, Field(Names(), "TASKS", "option.accuracy-task", "decode")]
    source: Annotated[NameList | None, Field(Names(), "IDS", "option.evidence-source")]
    gpus: Annotated[CountSpan | None, Field(SPAN, "N[..M]", example="2..8")]
    left_out: Annotated[
        str | None, Field(Words("left-out", ("gpu", "model", "source")), "NAME", "option.accuracy-left-out", "source")
    ]
    by: Annotated[str | None, Field(Words("group", _groups), "NAME", "option.accuracy-by", "engine")]
    worst: Annotated[int | str | None, Field(Whole(0, 500), "N", "option.accuracy-worst", "15")]
