"""Measure a running OpenAI-compatible server beside what was estimated for it, and keep its decode steps as a record."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.measure.machine import card_and_gpu_here
from whichgpu.api.workloads.estimate import estimate_workload
from whichgpu.base.display import Displayable
from whichgpu.base.errors import AmbiguousName, UsageError, WhichGpuError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.measure import records
from whichgpu.measure.clock import SystemClock
from whichgpu.measure.endpoint.address import Address, parse_address
from whichgpu.measure.endpoint.client import (
    FORMS,
    CompletionForm,
    EndpointClient,
    LateAnswer,
    ListedModel,
    RefusedForm,
    StreamedAnswer,
    failure,
)
from whichgpu.measure.endpoint.ramp import Ask, Budget, Level, budget, run_level
from whichgpu.measure.record import MeasuredMachine, PredictedTime, Record, StepResult, stamp, with_digest
from whichgpu.workload.spelling import ParsedWorkload, echo, fill_defaults, from_object
from whichgpu.workload.workload import FIELDS, Workload

KEY_VARIABLE = "WHICHGPU_ENDPOINT_KEY"  # Environment variable of the server's key; it is sent, never stored.
LEVELS = (1, 4, 16)  # Concurrency of each level if none is given.
GRACE_SECONDS = 10.0  # Answers under way at the time limit are waited for so long (assumed).
MAX_LEVELS, MAX_CONCURRENCY = 8, 1024  # Most levels of a ramp, and most requests at once (assumed).
TOKENS_IN, TOKENS_OUT = 512, 128  # Lengths of a request in tokens if no estimate gives them (assumed).
ENGINE_OF_OWNER = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama.cpp",
    "tensorrt_llm": "tensorrt-llm",
    "library": "ollama",
}
STEP_FIELDS = ("model", "engine", "precision", "kv_precision", "attention", "year")  # Fields that a decode step takes over.


class LevelAnswer(msgspec.Struct, frozen=True):
    """Measurements at one concurrency, and the estimates of the same quantities if there are any."""

    measured: Level
    ttft: Figure | None = None
    tpot: Figure | None = None
    throughput: Figure | None = None


class EndpointAnswer(Displayable, msgspec.Struct, frozen=True):
    """Time to first token, time per output token and throughput of a server, beside their estimates, by concurrency."""

    url: str
    served: ListedModel
    request: dict[str, Any] | None  # the workload estimated, without its concurrency
    budget: Budget
    levels: tuple[LevelAnswer, ...]
    record: str | None  # source name of the record that was kept
    path: str | None
    notes: tuple[Message, ...] = ()


class EndpointQuestion(msgspec.Struct, frozen=True):
    """A server to measure: its address, the levels of concurrency, the seconds allowed, and the estimate to compare with."""

    url: str
    levels: tuple[int, ...] = LEVELS
    seconds: float = 180.0
    claim: ParsedWorkload | None = None
    is_confirmed: bool = False  # whether the user permits to load a server on another machine
    keep: bool = True
    own: bool = True  # whether estimates use the user's own measurements


def parse_levels(text: str) -> tuple[int, ...]:
    """Return the levels of concurrency in a text, in rising order.

    >>> parse_levels("16, 1")
    (1, 16)
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 5 and 1 <= int(word) <= MAX_CONCURRENCY for word in words):
        raise UsageError("bad-concurrency", msg("error.bad-concurrency", text=text[:80]), msg("hint.bad-concurrency"))
    levels = tuple(sorted({int(word) for word in words}))
    if len(levels) > MAX_LEVELS:
        raise UsageError("bad-concurrency", msg("error.bad-concurrency", text=text[:80]), msg("hint.bad-concurrency"))
    return levels


def measure_endpoint(
    question: EndpointQuestion,
    key: str | None = None,
    catalog: Catalog | None = None,
    announce: Callable[[Message], None] = lambda _: None,
) -> EndpointAnswer:
    """Load a server step by step, and return its latencies and throughput beside the estimates; `announce` gets the budget."""
    catalog = catalog or Catalog()
    address = parse_address(question.url)
    tokens_in, tokens_out = _lengths(question.claim)
    limits = budget(question.levels, tokens_in, tokens_out)
    _check_permission(address, question, limits, key)
    announce(msg("endpoint.budget", url=address.url, **_values(limits)))
    deadline = time.perf_counter() + question.seconds
    last_moment = deadline + GRACE_SECONDS
    with closing(EndpointClient(address, key, last_moment)) as client:
        try:
            served = client.served_model()
            form = _accepted_form(client, address, served, tokens_in)
        except LateAnswer as late:
            raise failure(address, f"no answer within {question.seconds:g} s") from late

    salt = random.getrandbits(48)  # Prompts of an earlier run would be in the server's prefix cache.

    @contextmanager
    def open_worker() -> Iterator[Ask]:
        def ask(length: int, seed: int) -> StreamedAnswer:
            try:
                return worker.complete(form, served.id, tokens_in, length, seed ^ salt)
            except RefusedForm as refused:
                raise failure(address, str(refused)) from refused

        with closing(EndpointClient(address, key, last_moment)) as worker:
            yield ask

    levels: list[Level] = []
    notes: list[Message] = []
    for concurrency in question.levels:
        level = run_level(concurrency, tokens_out, open_worker, deadline) if time.perf_counter() < deadline else None
        if level is None:
            notes.append(msg("endpoint.no-time", n=concurrency))
            break
        levels.append(level)
    if not levels:
        raise failure(address, "no level of the ramp was complete within the time limit")
    if not form.has_ids:
        notes.append(msg("endpoint.text-prompts", n=levels[0].tokens_in))
    if abs(levels[0].tokens_out - tokens_out) > 0.05 * tokens_out:
        notes.append(msg("endpoint.other-length", n=levels[0].tokens_out, wanted=tokens_out))
    workload = _workload(question, served, address, levels[0], catalog, notes)
    return _compared(question, address, served, limits, levels, workload, catalog, notes)


def _lengths(claim: ParsedWorkload | None) -> tuple[int, int]:
    if claim is None:
        return TOKENS_IN, TOKENS_OUT
    if not claim.workload.serving:
        raise UsageError("bad-claim", msg("error.endpoint-claim"), msg("hint.endpoint-claim"))
    return claim.workload.seq_in or TOKENS_IN, max(2, claim.workload.seq_out or TOKENS_OUT)


def _values(limits: Budget) -> dict[str, str]:
    return {"requests": f"{limits.requests:,}", "tokens_in": f"{limits.tokens_in:,}", "tokens_out": f"{limits.tokens_out:,}"}


def _check_permission(address: Address, question: EndpointQuestion, limits: Budget, key: str | None) -> None:
    """Raise unless the server is on this machine or the user confirmed; a key is never sent to another machine in the clear."""
    if address.is_loopback:
        return
    if not question.is_confirmed:
        message = msg("error.endpoint-not-here", url=address.url, **_values(limits))
        raise UsageError("not-confirmed", message, msg("hint.endpoint-yes"))
    if key and address.scheme != "https":
        raise UsageError("key-in-clear", msg("error.endpoint-key-in-clear"), msg("hint.endpoint-key-in-clear"))


def _accepted_form(client: EndpointClient, address: Address, served: ListedModel, tokens_in: int) -> CompletionForm:
    """Return the first form of request that the server accepts."""
    why = ""
    for form in FORMS:
        try:
            client.complete(form, served.id, tokens_in, 2, 0)
        except RefusedForm as refused:
            why = why or str(refused)
            client.close()
            continue
        return form
    raise failure(address, why)


def _workload(
    question: EndpointQuestion, served: ListedModel, address: Address, level: Level, catalog: Catalog, notes: list[Message]
) -> Workload | None:
    """Return the workload that is measured: the claim's, else the served model on this machine's GPU; None if it is unknown."""
    claim = question.claim
    spelled = claim.workload if claim else None
    engine = ENGINE_OF_OWNER.get((served.owner or "").lower())
    fields: dict[str, Any] = {name: getattr(spelled, name) for name in FIELDS if claim and name in claim.user_fields}
    fields |= {"task": "serve", "seq_in": level.tokens_in, "seq_out": level.tokens_out}
    fields.setdefault("model", served.id.rpartition("/")[2])
    if engine:
        fields.setdefault("engine", engine)
    if "gpu" not in fields and address.is_loopback and (here := card_and_gpu_here(catalog)):
        fields["gpu"] = here[1].id
    try:
        workload = from_object({name: value for name, value in fields.items() if name not in ("batch", "rate")}).workload
        lookups = lookup_cache(catalog, own=False)
        if workload.gpu:
            workload = replace(workload, gpu=_gpu_name(workload.gpu, address, lookups))
        lookups.shape_for(workload)
    except WhichGpuError as problem:
        if claim is not None:
            raise
        notes.append(msg("endpoint.no-estimate", why=problem.message))
        return None
    if not workload.gpu:
        notes.append(msg("endpoint.no-estimate", why=msg("endpoint.no-gpu")))
        return None
    return workload


def _gpu_name(name: str, address: Address, lookups: LookupCache) -> str:
    """Return a GPU's name that means one variant: if it means several, the one of this machine."""
    try:
        lookups.device(name)
    except AmbiguousName as several:
        here = card_and_gpu_here(lookups.catalog) if address.is_loopback else None
        if here is None or not {here[1].id, here[1].name} & set(several.choices):
            raise
        return here[1].id
    return name


def _compared(
    question: EndpointQuestion,
    address: Address,
    served: ListedModel,
    limits: Budget,
    levels: Sequence[Level],
    workload: Workload | None,
    catalog: Catalog,
    notes: list[Message],
) -> EndpointAnswer:
    """Return the measured levels beside their estimates, and keep the decode steps as a record."""
    answers = tuple(_level(level, workload, lookup_cache(catalog, own=question.own)) for level in levels)
    record = path = None
    if workload is not None and question.keep:
        try:
            stored = _record(levels, workload, served, catalog)
        except WhichGpuError as problem:
            stored = None
            notes.append(msg("endpoint.not-kept", why=problem.message))
        if stored is not None:
            record, path = stored.source, str(records.save_record(stored))
    request = echo(workload, FIELDS) if workload else None
    return EndpointAnswer(address.url, served, request, limits, answers, record, path, tuple(notes))


def _level(level: Level, workload: Workload | None, lookups: LookupCache) -> LevelAnswer:
    if workload is None:
        return LevelAnswer(level)
    spelled = from_object(
        {**_set_fields(workload), "batch": level.concurrency, "seq_in": level.tokens_in, "seq_out": level.tokens_out}
    )
    estimate = estimate_workload(spelled, lookups)
    return LevelAnswer(level, estimate.ttft, estimate.tpot, estimate.throughput)


def _set_fields(workload: Workload) -> dict[str, Any]:
    return {name: value for name, value in echo(workload, FIELDS).items() if name != "defaults" and value is not None}


def _record(levels: Sequence[Level], workload: Workload, served: ListedModel, catalog: Catalog) -> Record | None:
    """Return a record of the decode steps of one GPU; None if none was measured or the model is on several GPUs."""
    lookups = lookup_cache(catalog, own=False)
    device = lookups.device(str(workload.gpu))
    filled = fill_defaults(workload, lookups.shape_for(workload))
    if (device.count or 1) * workload.gpus > 1 or not isinstance(workload.model, str):
        return None
    common = {name: getattr(filled, name) for name in STEP_FIELDS if getattr(filled, name) is not None}
    steps = []
    for level in levels:
        if (timing := level.decode_step) is None:
            continue
        context = level.tokens_in + level.tokens_out // 2
        request = {"task": "decode", **common, "batch": level.concurrency, "seq_in": context}
        estimate = estimate_workload(from_object({**request, "gpu": device.gpu.id}), lookups).time
        predicted = PredictedTime(estimate.value, estimate.low, estimate.high, estimate.basis) if estimate else None
        name = f"decode {workload.model} x{level.concurrency} at {context}"
        steps.append(StepResult(name, request, timing.seconds, timing.low, timing.high, timing.runs, predicted))
    if not steps:
        return None
    software = {"server": served.owner or "", "version": served.version or ""}
    where = MeasuredMachine(device.gpu.id, 1, software={name: value for name, value in software.items() if value})
    record = Record(stamp(SystemClock().date()), where, (), tuple(steps))
    return with_digest(replace(record, fitted=records.fit_record(record, catalog, load_calibration())))
