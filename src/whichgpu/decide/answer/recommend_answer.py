"""The records of the answer of `recommend`, with the fields of its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from whichgpu.base.display import Displayable
from whichgpu.base.messages import Message
from whichgpu.catalog.host import Source
from whichgpu.decide.answer.other_engines import EngineLine
from whichgpu.decide.answer.precision_steps import PrecisionStep
from whichgpu.decide.answer.spot_shares import SpotShare
from whichgpu.decide.candidate import Candidate, TermLine
from whichgpu.decide.constraints import Rank, Risk
from whichgpu.decide.reproduce import Reproduce
from whichgpu.estimate.nearest_evidence import NearMeasurement


class Rejected(msgspec.Struct, frozen=True):
    """How many candidates each reason removed, in the order of the tests, and changes to the question that let more pass."""

    reasons: Mapping[str, int]
    relaxations: tuple[Message, ...]


class RecommendAnswer(Displayable, msgspec.Struct, frozen=True):
    """The answer of `recommend`: the best candidate, the next best, the cheapest, the fastest, and the cost-time Pareto front."""

    request: dict[str, Any]
    as_of: str
    rank: Rank
    risk: Risk  # even as well if no candidate keeps the limits at low risk
    kind: str  # run, service, or mix if no model is named
    answer: Candidate
    sentence: Message
    runner_up: Candidate | None
    cheapest: Candidate
    fastest: Candidate
    safest: Candidate  # the one most likely to keep its limits
    measured: Candidate | None  # the best whose step times were measured, if those of the answer were not
    candidates: tuple[Candidate, ...]
    pareto: tuple[Candidate, ...]
    fallback: Candidate | None  # the best that is not spot, if the answer is
    with_cuda: Candidate | None  # the best that runs CUDA, if the answer does not
    other_purchases: tuple[Candidate, ...]  # other cards or a whole computer to buy, if cards are bought
    left_out: tuple[Message, ...]  # why GPUs with less memory or poor software support are not the answer
    any_seller: Candidate | None  # the best on any card from any seller, if it costs less than the answer
    shares: tuple[SpotShare, ...]  # mixes of spot and on demand on the answer's machine
    engines: tuple[EngineLine, ...]  # other engines on the answer's GPUs
    precisions: tuple[PrecisionStep, ...]  # the best candidate at each level of quality, and what each saves
    considered: int
    rejected: Rejected
    why_not: Mapping[str, tuple[Message, ...]]
    host: tuple[Message, ...]
    lacks: tuple[Message, ...]
    assumptions: tuple[Message, ...]
    warnings: tuple[Message, ...]
    evidence: tuple[NearMeasurement, ...]  # measurements nearest to the answer; none without a model
    evidence_error: float | None  # median error of the model on those around them
    sources: tuple[Source, ...]
    verify: str
    verify_note: Message  # what that command covers
    narrow: Message | None  # the measurement that narrows the range most, with its command; None if measured here
    reproduce: Reproduce
    terms: tuple[TermLine, ...]  # of the answer's machine
    curve: tuple[tuple[int, float, float], ...]  # batch, seconds between tokens, tokens a second of the answer
    context: int | None = None  # longest context of a service in tokens: the model's own, or what one replica's KV cache holds
    serve: str | None = None  # command that serves one replica, of a service whose engine has one
    emitted: Mapping[str, str] = msgspec.field(default_factory=dict)  # files that launch it, by name
