"""Records of measure: their form, what physics allows, who goes first, and what the fit makes of them."""

from __future__ import annotations

import json
from datetime import date
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.api.workloads.estimate import estimate
from whichgpu.base.errors import DataError, NoAnswer, UsageError
from whichgpu.base.messages import english, msg
from whichgpu.base.units import significant
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.estimate.time.own_corrections import (
    MAX_LOG_WIDTH,
    MIN_LOG_HALF_WIDTH,
    OwnCalibration,
    OwnCorrections,
    with_own_corrections,
)
from whichgpu.measure import records
from whichgpu.measure.bench.case import Conditions
from whichgpu.measure.bench.step_cases import step_cases
from whichgpu.measure.physics import find_problems, peak_share
from whichgpu.measure.record import MeasuredMachine, MicroResult, Record, StepResult, from_json, redacted, to_json, with_digest

GPU = "h200-sxm"
TODAY = date(2026, 11, 20)
SLOWER = {"pytorch": 1.25, "cuda-graphs": 0.9, "pytorch-compile": 1.1}


def request(**fields: Any) -> dict[str, Any]:
    return {"task": "train", "model": "resnet34", "engine": "pytorch", "batch": 64, "precision": "amp-bf16", **fields}


def step(seconds: float, name: str = "one", **fields: Any) -> StepResult:
    return StepResult(name, request(**fields), seconds, seconds * 0.99, seconds * 1.01, 8)


def gemm(tflops: float = 700.0, **changes: Any) -> MicroResult:
    flops = 2.0 * 8192**3
    seconds = flops / (tflops * 1e12)
    sizes = {"m": 8192, "n": 8192, "k": 8192}
    result = MicroResult("gemm", "gemm", "bf16", sizes, seconds, seconds, seconds, 9, flops / seconds, "FLOP/s")
    return replace(result, **changes)


def record(*timed: StepResult, micro: tuple[MicroResult, ...] = (), day: str = "2026-11-19T10:11:12Z", gpu: str = GPU) -> Record:
    where = MeasuredMachine(gpu, 1, "580.1", "Intel(R) Xeon(R)", {"torch": "2.11.0", "cuda": "13.0"})
    return with_digest(Record(day, where, micro, timed))


@pytest.fixture(scope="module")
def measured(catalog: Catalog) -> Record:
    """A machine on which each engine is off by its own factor from what is shipped."""
    steps = []
    for case in step_cases(catalog.gpu_by_id[GPU]):
        figure = estimate(catalog=catalog, own=False, **case.request).time
        assert figure is not None
        seconds = figure.value * SLOWER[case.request["engine"]]
        steps.append(StepResult(case.id, case.request, seconds, seconds * 0.99, seconds * 1.01, 8))
    return record(*steps)


def test_a_record_reads_back_as_it_was_written() -> None:
    result = record(step(0.05), micro=(gemm(conditions=Conditions(1980 * 10**6, 60, 650.0, ("power",))),))
    assert from_json(to_json(result).encode(), "x") == result
    assert result.source.startswith(f"measured-{GPU}-2026-11-19-")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace('"runs": 8', '"runs": 9'),
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text.replace('"runs": 8', '"runs": "many"'),
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: text.replace("0.05,", "NaN,"),
    ],
)
def test_invalid_record_is_refused(spoil: Any) -> None:
    text = spoil(to_json(record(step(0.05))))
    with pytest.raises(UsageError) as refused:
        from_json(text.encode(), "theirs.json")
    assert refused.value.kind == "bad-record"


def problem_ids(record: Record, catalog: Catalog) -> set[str]:
    return {problem.id for problem in find_problems(record, catalog, TODAY)}


def test_plausible_measurements_pass(catalog: Catalog) -> None:
    assert problem_ids(record(step(0.05), micro=(gemm(),)), catalog) == set()


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (record(step(0.05), gpu="h900-sxm"), "record.unknown-gpu"),
        (record(), "record.empty"),
        (record(step(0.05), day="2031-01-01"), "record.date"),
        (record(step(0.05), day="1999-01-01"), "record.date"),
        (record(step(0.05), day="soon"), "record.date"),
        (record(step(0.05), day="2016-01-01"), "record.before-launch"),
        (record(step(-0.05)), "record.time"),
        (record(replace(step(0.05), high=float("inf"))), "record.time"),
        (record(replace(step(0.05), low=0.06)), "record.time"),
        (record(replace(step(0.05), runs=0)), "record.time"),
        (record(step(0.0001)), "record.below-floor"),
        (record(step(0.05), step(20.0)), "record.too-slow"),
        (record(step(3600.0)), "record.too-slow"),
        (record(step(0.0)), "record.time"),
        (record(step(1e300)), "record.time"),
        (record(micro=(gemm(0.7),)), "record.slow-operator"),
        (record(step(0.05, model="no-such-model")), "record.request"),
        (record(step(0.05, batch=-3)), "record.request"),
        (record(micro=(gemm(1100.0),)), "record.above"),
        (record(micro=(gemm(700.0, rate=9e14),)), "record.rate"),
        (record(micro=(gemm(conditions=Conditions(temperature_celsius=900)),)), "record.conditions"),
        (record(*[step(0.05)] * 501), "record.too-many"),
    ],
)
def test_implausible_measurements_are_reported(result: Record, problem: str, catalog: Catalog) -> None:
    assert problem in problem_ids(result, catalog)


def test_a_forged_slow_step_is_refused_with_its_place_and_ratio(measured: Record, catalog: Catalog, tmp_path: Path) -> None:
    first, second, *rest = measured.steps
    forged = replace(second, seconds=second.seconds * 1000, low=second.low * 1000, high=second.high * 1000)
    path = records.write_record(with_digest(replace(measured, steps=(first, forged, *rest))), tmp_path / "theirs.json")
    with pytest.raises(UsageError) as refused:
        records.import_record(path, catalog, load_calibration(), TODAY)
    assert refused.value.kind == "record-impossible"
    text = english().render(refused.value.message)
    assert f"step 2, {second.id}: " in text
    assert f"is {significant(1000 * SLOWER[second.request['engine']])} times the" in text
    assert records.own_calibrations(catalog, load_calibration()) == {}


@pytest.mark.parametrize("times", [1000.0, 9.0, 1e-6, 0.0, -1.0])
def test_no_step_of_an_own_record_blows_up_a_range(times: float, measured: Record, catalog: Catalog) -> None:
    """A machine that was busy with something else for one step, or a clock that jumped."""
    first, *rest = measured.steps
    records.save_record(with_digest(replace(measured, steps=(replace(first, seconds=first.seconds * times), *rest))))
    for request in (first.request, rest[-1].request):
        answer = estimate(catalog=catalog, **request)
        assert answer.time is not None
        low, high = answer.time.relative_range
        assert exp(-MAX_LOG_WIDTH) - 1e-9 <= low <= 1 <= high <= exp(MAX_LOG_WIDTH) + 1e-9
        shipped = estimate(catalog=catalog, own=False, **request).time
        assert shipped is not None
        assert 0.5 < answer.time.value / shipped.value < 2


def test_implausible_record_leaves_estimates_unchanged(measured: Record, catalog: Catalog) -> None:
    records.save_record(
        with_digest(replace(measured, steps=tuple(replace(one, seconds=one.seconds * 1000) for one in measured.steps)))
    )
    request = measured.steps[0].request
    before, after = estimate(catalog=catalog, own=False, **request), estimate(catalog=catalog, **request)
    assert (after.time, after.tier, after.basis) == (before.time, before.tier, before.basis)


@pytest.mark.parametrize("width", [40.0, float("inf"), float("nan"), -1.0])
def test_stored_range_is_bounded_when_used(width: float) -> None:
    own = OwnCorrections(GPU, "x", "calibrated", ("pytorch/train",), {}, {"any": width})
    confidence = with_own_corrections(load_calibration(), {GPU: (own,)}).own_confidence("pytorch", GPU, "train")
    assert confidence is not None
    assert -MAX_LOG_WIDTH <= confidence.low < 0 < confidence.high <= MAX_LOG_WIDTH


def test_bandwidth_above_nominal_is_reported(catalog: Catalog) -> None:
    size = 4 << 30
    seconds = 2 * size / (catalog.gpu_by_id[GPU].memory_bandwidth * 1.01)
    copied = MicroResult("copy", "copy", "fp32", {"bytes": size}, seconds, seconds, seconds, 9, 2 * size / seconds, "B/s")
    assert problem_ids(record(micro=(copied,)), catalog) == {"record.above"}


def test_shares_of_peak(catalog: Catalog) -> None:
    gpu = catalog.gpu_by_id[GPU]
    assert peak_share("gemm", "bf16", gpu.peaks["bf16"] / 2, gpu) == 0.5
    assert peak_share("copy", "fp32", gpu.memory_bandwidth, gpu) == 1.0
    assert peak_share("upload", "uint8", 5e10, gpu) is None


def test_own_measurements_correct_estimates_and_narrow_their_range(measured: Record, catalog: Catalog) -> None:
    fit = records.fit_record(measured, catalog, load_calibration())
    records.save_record(with_digest(replace(measured, fitted=fit)))
    for task, model, engine, fields in (
        ("train", "resnet50", "pytorch", {"batch": 64, "precision": "amp-bf16"}),
        ("train", "gpt2", "pytorch", {"batch": 8, "seq_in": 1024, "precision": "amp-bf16"}),
        ("decode", "llama-3.1-8b", "cuda-graphs", {"batch": 8, "seq_in": 2048}),
        ("prefill", "llama-3.1-8b", "pytorch-compile", {"batch": 1, "seq_in": 2048}),
    ):
        request: dict[str, Any] = {"engine": engine, "gpu": GPU, **fields}
        before = estimate(task, model, catalog, own=False, **request)
        after = estimate(task, model, catalog, **request)
        assert before.time is not None
        assert after.time is not None
        truth = log(SLOWER[engine])
        off = log(after.time.value / before.time.value) - truth
        assert abs(off) < abs(truth) / 2, (model, off)
        assert (after.basis, after.tier) == ("measured", "here")
        assert any(source.startswith(f"measured-{GPU}-") for source in after.sources)
        low, high = after.time.relative_range
        assert high >= exp(MIN_LOG_HALF_WIDTH) - 1e-9
        assert high / low < before.time.high / before.time.low


def test_other_gpus_and_other_engines_stay_as_they_were(measured: Record, catalog: Catalog) -> None:
    records.save_record(measured)
    for gpu, engine in (("h100-sxm-80gb", "pytorch"), (GPU, "vllm")):
        request: dict[str, Any] = {"gpu": gpu, "engine": engine, "batch": 8, "seq_in": 512}
        task = "train" if engine == "pytorch" else "decode"
        before = estimate(task, "llama-3.2-1b", catalog, own=False, **request)
        after = estimate(task, "llama-3.2-1b", catalog, **request)
        assert after.tier == before.tier != "here"
        assert after.time is not None
        assert before.time is not None
        assert after.time.value == before.time.value
        assert after.sources == before.sources


def test_kinds_of_steps_that_were_not_measured_keep_their_wider_range(measured: Record, catalog: Catalog) -> None:
    records.save_record(measured)
    request: dict[str, Any] = {"gpu": GPU, "engine": "pytorch-compile", "batch": 8, "precision": "amp-bf16"}
    before = estimate("train", "resnet50", catalog, own=False, **request)
    after = estimate("train", "resnet50", catalog, **request)
    assert before.time is not None
    assert after.time is not None
    assert after.time.value != before.time.value  # what the engine's other steps say of it still counts
    assert (after.basis, after.tier) == (before.basis, before.tier)
    assert after.time.high / after.time.low == pytest.approx(before.time.high / before.time.low, rel=1e-6)


def test_stale_fit_is_recomputed(measured: Record, catalog: Catalog) -> None:
    calibration = load_calibration()
    fit = records.fit_record(measured, catalog, calibration)
    stale = with_digest(replace(measured, fitted=replace(fit, against="another", multipliers={"all": {"gemm": 3.0}})))
    path = records.save_record(stale)
    own = records.own_calibrations(catalog, calibration)[GPU][0]
    assert own.multipliers == fit.multipliers
    assert own.source == measured.source
    assert records.read_record(path).fitted == fit  # and cached, so that it is computed once


def test_a_folder_that_cannot_be_written_only_costs_the_fit_again(
    measured: Record, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.save_record(measured)

    def refuse(*_: object) -> Path:
        raise UsageError("cannot-write", msg("error.cannot-write-file", name="x", why="read-only"))

    monkeypatch.setattr(records, "save_record", refuse)
    assert records.own_calibrations(catalog, load_calibration())[GPU][0].source == measured.source


def test_a_shared_record_keeps_no_time_of_day_and_can_be_imported(measured: Record, catalog: Catalog, tmp_path: Path) -> None:
    records.save_record(measured)
    path = tmp_path / "shared.json"
    records.export_record(path)
    document = json.loads(path.read_text())
    assert document["made"] == "2026-11-19"
    assert document["fitted"] is None
    folder = tmp_path / "other-user"
    record = records.import_record(path, catalog, load_calibration(), TODAY, folder)
    assert record.fitted is not None
    own = records.own_calibrations(catalog, load_calibration(), folder)
    assert own[GPU][0].basis == "calibrated"


def test_imported_records_never_override_own_ones(measured: Record, catalog: Catalog, tmp_path: Path) -> None:
    theirs = redacted(replace(measured, made="2026-11-20", steps=tuple(replace(one, seconds=one.high) for one in measured.steps)))
    path = records.write_record(theirs, tmp_path / "theirs.json")
    records.import_record(path, catalog, load_calibration(), TODAY)
    before = records.own_calibrations(catalog, load_calibration())
    records.save_record(measured)
    after = records.own_calibrations(catalog, load_calibration())
    assert before[GPU][0].basis == "calibrated"
    assert after[GPU][0].basis == "measured"
    assert after[GPU][0].source == measured.source


def test_each_kind_of_step_uses_the_newest_record_that_measured_it(measured: Record, catalog: Catalog) -> None:
    """A record of a served model leaves the corrections of training steps to the record of `measure`."""
    training = tuple(one for one in measured.steps if one.request["task"] == "train")
    decoding = tuple(one for one in measured.steps if one.request["task"] == "decode")
    older = with_digest(replace(measured, made="2026-11-18T00:00:00Z", steps=training))
    newer = with_digest(replace(measured, made="2026-11-19T00:00:00Z", steps=decoding))
    for one in (older, newer):
        records.save_record(one)
    own = with_own_corrections(load_calibration(), records.own_calibrations(catalog, load_calibration()))
    assert isinstance(own, OwnCalibration)
    for steps, expected in ((training, older), (decoding, newer)):
        request = steps[0].request
        chosen = own.record_for(GPU, request["engine"], request["task"])
        assert chosen is not None
        assert chosen.source == expected.source
        assert expected.source in own.sources_of(request["engine"], GPU)
        assert expected.source in (estimate(catalog=catalog, **request).sources)


def test_an_impossible_record_is_not_imported(catalog: Catalog, tmp_path: Path) -> None:
    path = records.write_record(record(step(1e-5)), tmp_path / "theirs.json")
    with pytest.raises(UsageError) as refused:
        records.import_record(path, catalog, load_calibration(), TODAY)
    assert refused.value.kind == "record-impossible"
    assert records.own_calibrations(catalog, load_calibration()) == {}


def test_broken_files_in_the_folder_are_passed_over(measured: Record, catalog: Catalog) -> None:
    path = records.save_record(measured)
    (path.parent / "broken.json").write_text("{")
    (path.parent / "folder.json").mkdir()
    assert list(records.own_calibrations(catalog, load_calibration())) == [GPU]


def test_record_that_cannot_be_saved_is_reported_with_its_path(measured: Record, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as refused:
        records.save_record(measured, folder=tmp_path / "file" / "below")
    assert "below" in english().render(refused.value.message)


def test_without_a_home_folder_no_record_is_saved(measured: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "data_folder", lambda: None)
    with pytest.raises(DataError) as refused:
        records.save_record(measured)
    assert english().render(refused.value.message) == "there is no home folder to keep the record in"
    assert records.own_calibrations(Catalog(), load_calibration()) == {}


def test_own_records_of_removed_steps_are_ignored(catalog: Catalog) -> None:
    records.save_record(record(step(0.05, model="a-model-of-old")))
    assert records.own_calibrations(catalog, load_calibration()) == {}


def test_without_a_record_there_is_nothing_to_share(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer):
        records.export_record(tmp_path / "x.json")
