"""Import of load tests that were already run: each becomes a measured step beside its estimate, all together a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.measure.machine import card_and_gpu_here
from whichgpu.api.measure.measure import MeasureAnswer
from whichgpu.api.workloads.estimate import estimate_workload
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.files import read_regular_file
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.find import find_gpu, gpus_named
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.model import model_key
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.measure import records
from whichgpu.measure.bench.runner import LeftOut
from whichgpu.measure.load_tests.formats import is_load_test, read_load_tests
from whichgpu.measure.load_tests.load_test import LoadTest, UnusableFile
from whichgpu.measure.physics import MAX_CASES, find_problems
from whichgpu.measure.record import MeasuredMachine, PredictedTime, Record, StepResult, with_digest
from whichgpu.workload.config_files.model_names import base_and_precision, model_of
from whichgpu.workload.models import own_name
from whichgpu.workload.spelling import ParsedWorkload, fill_defaults, from_object

# Fields of the user's estimate that describe how the load test was run.
CLAIM_FIELDS = ("model", "engine", "precision", "kv_precision", "attention", "image", "memory_format", "year", "batch")


def is_load_test_file(path: Path, is_described: bool) -> bool:
    """Whether a file is to be read as the result of a load-testing tool, described by the user or not, and not as a record."""
    try:
        return is_load_test(read_regular_file(path, records.MAX_RECORD_BYTES), is_described)
    except OSError:
        return is_described


def import_load_tests(
    path: Path, claim: ParsedWorkload | None, catalog: Catalog, today: date, keep: bool = True
) -> MeasureAnswer:
    """Check the load tests in a file, store them as a record, and return them beside their estimates.

    `claim` says what the file does not: model, GPU, engine, precision. Tests that are not of a single step, or not plausible
    on the GPU, are left out with the reason.
    """
    try:
        tests = read_load_tests(read_regular_file(path, records.MAX_RECORD_BYTES))
    except UnusableFile as problem:
        raise _unusable(path, str(problem)) from problem
    except OSError as problem:
        message = msg("error.record-unreadable", path=str(path), why=problem.strerror or str(problem))
        raise UsageError("record-unreadable", message, msg("hint.bad-record")) from problem
    if len(tests) > MAX_CASES:
        raise UsageError(
            "load-test-unusable",
            msg("error.load-test-unusable", name=path.name, why=msg("record.too-many", most=MAX_CASES)),
            msg("hint.load-test"),
        )
    gpu = _gpu(tests, claim, catalog)
    lookups = lookup_cache(catalog, own=False)
    steps: list[StepResult] = []
    left_out: list[LeftOut] = []
    plausible = (test.day for test in tests if test.day and test.day <= today.isoformat())
    day = max(plausible, default=today.isoformat())
    for place, test in enumerate(tests, start=1):
        name = f"{test.tool} {place}"
        try:
            step = _step(test, claim, gpu, lookups, name)
        except WhichGpuError as problem:
            left_out.append(LeftOut(name, problem.message))
            continue
        record = Record(test.day or day, MeasuredMachine(gpu.id), (), (step,))
        problems = find_problems(record, catalog, today)
        if problems:
            left_out.append(LeftOut(name, problems[0]))
        else:
            steps.append(step)
    if not steps:
        raise UsageError("load-test-unusable", _why(path, left_out), msg("hint.load-test"))
    record = Record(day, MeasuredMachine(gpu.id, software={"tool": tests[0].tool}), (), tuple(steps))
    record = with_digest(replace(record, fitted=records.fit_record(record, catalog, load_calibration())))
    stored = str(records.save_record(record, records.IMPORTED)) if keep else None
    return MeasureAnswer(record, gpu.name, stored, tuple(left_out))


def _unusable(path: Path, why: str) -> UsageError:
    return UsageError("load-test-unusable", msg("error.load-test-unusable", name=path.name, why=why), msg("hint.load-test"))


def _why(path: Path, left_out: Iterable[LeftOut]) -> Any:
    return msg("error.load-test-unusable", name=path.name, why=next(iter(left_out)).why)


def _gpu(tests: Iterable[LoadTest], claim: ParsedWorkload | None, catalog: Catalog) -> Gpu:
    """Return the GPU of a load test: the user's, the file's, or this machine's."""
    name = claim.workload.gpu if claim else None
    file_gpu = next((test.gpu for test in tests if test.gpu), None)
    gpu_name, here = name or file_gpu, card_and_gpu_here(catalog)
    variants = gpus_named(catalog, file_gpu) if name and file_gpu else ()
    if name and file_gpu and variants and find_gpu(catalog, name) not in variants:
        raise UsageError("load-test-gpu", _is_of_another(file_gpu, name), msg("hint.load-test"))
    if gpu_name is None and here is None:
        name = next((test.model for test in tests if test.model), "")
        model = model_of(name, catalog)
        hint = msg("hint.load-test-gpu", model=model.id if model else name[:80] or "MODEL")
        raise UsageError("load-test-gpu", msg("error.load-test-gpu"), hint)
    if gpu_name is None or (here is not None and here[0].name == gpu_name):
        assert here is not None
        return here[1]
    return find_gpu(catalog, gpu_name)


def _step(test: LoadTest, claim: ParsedWorkload | None, gpu: Gpu, lookups: LookupCache, name: str) -> StepResult:
    """Return a load test as a step of a record, with its estimate; raise if it cannot be a single GPU's step."""
    request = _request(test, claim, lookups.catalog)
    spelled = from_object({**request, "gpu": gpu.id})
    batch = spelled.workload.batch or 1
    scale = batch if test.batch is None else 1  # Without a batch the file has the seconds of one sample.
    if test.prefill_rate:
        _check_prefill_share(test, request, gpu, lookups)
    estimate = estimate_workload(spelled, lookups).time
    predicted = PredictedTime(estimate.value, estimate.low, estimate.high, estimate.basis) if estimate else None
    filled = fill_defaults(spelled.workload, lookups.shape_for(spelled.workload))
    common = {field: getattr(filled, field) for field in ("engine", "precision", "kv_precision") if getattr(filled, field)}
    label = f"{name}: {test.task} {request['model']} x{batch}"
    low, seconds, high = test.low * scale, test.seconds * scale, test.high * scale
    return StepResult(label, {**common, **request}, seconds, low, high, test.runs, predicted)


def _request(test: LoadTest, claim: ParsedWorkload | None, catalog: Catalog) -> dict[str, Any]:
    """Return the request of a load test's step: what the file says, unless the user says otherwise."""
    stated = {name: getattr(claim.workload, name) for name in CLAIM_FIELDS if name in claim.user_fields} if claim else {}
    if claim is not None and (claim.workload.gpus or 1) > 1:
        raise UsageError("load-test-gpus", msg("error.load-test-gpus"), msg("hint.load-test"))
    model = stated.pop("model", None) or _model(test.model, catalog)
    stored = _stored_precision(test.model, catalog)
    if test.model and not _is_same_model(test.model, model, stated.get("precision") or stored, catalog):
        name = model if isinstance(model, str) else own_name(model)
        raise UsageError("load-test-model", _is_of_another(test.model, name[:80]), msg("hint.load-test-model"))
    fields = {"engine": test.engine, "precision": test.precision or stored, "batch": test.batch, "seq_in": test.seq_in}
    for name in test.certain:
        if fields[name] and stated.get(name, fields[name]) != fields[name]:
            raise UsageError("load-test-model", _is_of_another(str(fields[name]), stated[name]), msg("hint.load-test"))
    own = {name: value for name, value in fields.items() if value is not None and (name not in stated or name == "batch")}
    return {"task": test.task, "model": model, **stated, **own}


def _stored_precision(name: str | None, catalog: Catalog) -> str | None:
    """Return the precision of the weights that a file's name for its model means; None for those of the model itself."""
    model = model_of(name or "", catalog)
    return (base_and_precision(model, catalog)[1] or None) if model else None


def _is_same_model(measured: str, claimed: str | Mapping[str, Any], precision: str | None, catalog: Catalog) -> bool:
    """Whether a file's name for its model may be that of the user's model: both built in, or of the same last part.

    A quantised version is the user's model in `precision`.
    """
    name = (claimed if isinstance(claimed, str) else own_name(claimed)).removeprefix("hf:").removesuffix("/config.json")
    built_in, user_model = model_of(measured, catalog), model_of(name, catalog)
    if built_in and user_model:
        return built_in.id in (user_model.id, f"{user_model.id}-{precision}")
    return model_key(measured.rpartition("/")[2]) == model_key(name.rpartition("/")[2])


def _is_of_another(measured_name: str, claimed_name: str) -> Message:
    """Return that a file measured something else than the user says."""
    return msg("error.load-test-other-model", name=measured_name[:80], model=claimed_name)


def _model(name: str | None, catalog: Catalog) -> str:
    """Return the id of the built-in model of a file's name for it, such as `meta-llama/Llama-3.1-8B-Instruct`."""
    model = model_of(name or "", catalog)
    if model is None:
        raise UsageError("load-test-model", msg("error.load-test-model", name=(name or "?")[:80]), msg("hint.load-test"))
    return model.id


def _check_prefill_share(test: LoadTest, request: dict[str, Any], gpu: Gpu, lookups: LookupCache) -> None:
    """Raise if prefills took so much of the GPU's time that the time per token is not that of a decode step."""
    prefill = {**request, "task": "prefill", "batch": 1, "seq_in": max(1, test.prompt_tokens), "gpu": gpu.id}
    time = estimate_workload(from_object(prefill), lookups).time
    share = test.prefill_rate * time.value if time else 0.0
    if share > test.max_prefill_share:
        message = msg("error.load-test-prefill", share=f"{share:.0%}", most=f"{test.max_prefill_share:.0%}")
        raise UsageError("load-test-prefill", message, msg("hint.load-test"))
