"""`measure` from outside: without a GPU, and with a bench that plays answers on a recorded GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.machines import HOST, probe_of
from tests.recorded_nvml import H200, T4_HOT, Recording
from tests.surface.cli import assert_refused, assert_refused_json, call, process
from whichgpu.api.measure import measure
from whichgpu.api.workloads.estimate import estimate
from whichgpu.measure.bench.case import OperatorCase, PreparedStep, Timing, summarise_runs
from whichgpu.measure.drivers import vendors as probes
from whichgpu.workload.spelling import echo
from whichgpu.workload.workload import FIELDS

Machine = Callable[..., None]
RATES = {"FLOP/s": 4e13, "B/s": 3e12}  # of the pretended GPU


class PlayedBench:
    """Steps take what is shipped as their estimate, times a factor; operators run well under their peak."""

    def __init__(self, name: str, factor: float, free: int) -> None:
        self.name, self.factor, self.free = name, factor, free

    def about(self) -> Mapping[str, str]:
        return {"torch": "2.11.0", "cuda": "13.0"}

    def free_bytes(self) -> int:
        return self.free

    def micro(self, case: OperatorCase, watch: Any) -> Timing:
        watch()
        return summarise_runs([max(case.rate(1.0) / RATES.get(case.unit, 1e12), 1e-5)] * 5)

    def step(self, plan: PreparedStep, watch: Any) -> Timing:
        watch()
        figure = estimate(own=False, **{**echo(plan.workload, FIELDS), "gpu": "h200-sxm"}).time
        assert figure is not None
        return summarise_runs([figure.value * self.factor * share for share in (0.99, 1.0, 1.0, 1.0, 1.01)])


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with this recording for a GPU, and a bench."""

    def install(recording: Recording = H200, factor: float = 1.3, free: int = 130 << 30) -> None:
        monkeypatch.setattr(probes, "usual_openers", lambda: (lambda: probe_of(recording),))
        monkeypatch.setattr(measure, "read_host", lambda: HOST)
        monkeypatch.setattr(measure, "_torch_bench", lambda: PlayedBench("NVIDIA H200", factor, free))

    return install


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "usual_openers", tuple)


CLAIM = "estimate decode llama-3.1-8b --gpu H200 --batch 4 --seq-in 1024"


@pytest.mark.usefixtures("nothing")
@pytest.mark.parametrize("argv", [("measure",), ("measure", "--verify", CLAIM)])
def test_without_a_gpu_one_line_and_exit_1(argv: tuple[str, ...]) -> None:
    reply = call(*argv)
    assert reply.code == 1
    assert reply.out == ""
    assert reply.err.startswith("error: no GPU can be measured here")
    assert reply.err.count("\n") == 1
    assert assert_refused_json(call(*argv, "--json"), 1)["kind"] == "no-gpu-here"


def test_measure_in_a_separate_process_exits_without_a_traceback() -> None:
    reply = process("measure", "--minutes", "0.1")
    assert reply.code in (0, 1)
    assert "Traceback" not in reply.err


def test_without_torch_one_line_and_exit_1(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from whichgpu.measure.bench import torch_bench

    machine()

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(torch_bench, "import_module", missing)
    monkeypatch.setattr(measure, "_torch_bench", torch_bench.open_bench)
    reply = call("measure")
    assert reply.code == 1
    assert reply.err == "error: measuring needs PyTorch, which is not installed here\n"


@pytest.mark.long
def test_measure_shows_predicted_and_measured_and_saves_a_record(machine: Machine, tmp_path: Path) -> None:
    machine()
    reply = call("measure", "--minutes", "3")
    assert reply.code == 0, reply.err
    assert reply.err.startswith("H200 SXM: ")
    rows = reply.tsv()
    assert rows[0][0] == "case"
    assert sum(row[4] in ("inside", "OUTSIDE") for row in rows) >= 20
    assert any("°C" in row[5] for row in rows[1:])
    paths = list((tmp_path / "data" / "whichgpu" / "records" / "own").glob("*.json"))
    assert len(paths) == 1
    document = json.loads(paths[0].read_text())
    assert document["where"]["gpu"] == "h200-sxm"
    assert document["where"]["cpu"] == HOST.cpu
    assert {kind.partition("/")[0] for kind in document["fitted"]["kinds"]} == {"cuda-graphs", "pytorch", "pytorch-compile"}


@pytest.mark.long
def test_estimates_use_own_measurements_unless_disabled(machine: Machine) -> None:
    machine(factor=1.3)
    argv = ("estimate", "train", "resnet50", "--gpu", "h200-sxm", "--batch", "64", "--json")
    before = call(*argv).json()
    assert call("measure", "--json").code == 0
    after, without = call(*argv).json(), call(*argv, "--no-own-measurements").json()
    assert without["time"] == before["time"]
    assert after["basis"] == "measured"
    assert after["time"]["value"] / before["time"]["value"] == pytest.approx(1.3, rel=0.1)
    assert any(source.startswith("measured-h200-sxm-") for source in after["sources"])
    spoken = call(*argv[:-1])
    assert "measured on this machine's GPU" in spoken.err


@pytest.mark.long
def test_groups_of_the_measured_gpu_use_it_too(machine: Machine) -> None:
    machine(factor=1.3)
    argv = ("estimate", "train", "resnet50", "--gpu", "h200-sxm", "--gpus", "4", "--batch", "256", "--json")
    before = call(*argv).json()
    assert call("measure", "--json").code == 0
    after, without = call(*argv).json(), call(*argv, "--no-own-measurements").json()
    assert without["time"] == before["time"]
    assert after["time"]["value"] / before["time"]["value"] == pytest.approx(1.3, rel=0.1)
    assert any(source.startswith("measured-h200-sxm-") for source in after["sources"])


@pytest.mark.long
def test_no_keep_saves_no_record(machine: Machine, tmp_path: Path) -> None:
    machine()
    reply = call("measure", "--no-keep", "--json").json()
    assert reply["path"] is None
    assert not (tmp_path / "data").exists()
    assert {"record", "left_out", "gpu_name", "ok"} <= set(reply)
    assert all("inside" in step for step in reply["record"]["steps"])


@pytest.mark.long
def test_small_gpu_skips_steps_that_do_not_fit(machine: Machine) -> None:
    machine(free=6 << 30)
    reply = call("measure", "--no-keep")
    assert reply.code == 0
    assert "left out: decode-cuda-graphs-yi-6b" in reply.err
    assert "are free" in reply.err


@pytest.mark.parametrize(("factor", "word"), [(1.0, "Inside: "), (3.0, "OUTSIDE: ")])
def test_verify_says_inside_or_outside(machine: Machine, factor: float, word: str) -> None:
    machine(factor=factor)
    for claim in (CLAIM, f"whichgpu {CLAIM}", CLAIM.replace(" --gpu H200", "")):
        reply = call("measure", "--verify", claim)
        assert reply.code == 0, reply.err
        assert reply.err.startswith(word)
        assert [row[0] for row in reply.tsv()] == ["part", "predicted", "measured"]
    document = call("measure", "--verify", CLAIM, "--json").json()
    assert document["inside"] is (factor == 1.0)
    assert document["claim"]["request"]["gpu"] == "h200-sxm"


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("estimate decode llama-3.1-8b --gpu A100-SXM-80GB", "this machine has H200 SXM"),
        ("estimate decode llama-3.1-8b --gpu h200-sxm --engine vllm", "measure does not run vllm"),
        ("estimate serve llama-3.1-8b --gpu h200-sxm", "), not serve"),
        ("estimate train llama-3.1-70b --gpu h200-sxm --batch 1", "are free"),
        ("estimate decode mixtral-8x7b --gpu h200-sxm", "measure does not run the layers of mixtral-8x7b"),
        ("estimate finetune llama-3.1-8b --gpu h200-sxm --lora-rank 8", "adapters"),
    ],
)
def test_verify_refuses_unrunnable_workloads(machine: Machine, claim: str, words: str) -> None:
    machine()
    reply = call("measure", "--verify", claim)
    assert_refused(reply, 1)
    assert words in reply.err


@pytest.mark.parametrize(
    "claim", ["gpus H200", "estimate", "estimate decode", "estimate --requests x.jsonl", "estimate 'decode", "", "rm -rf /"]
)
def test_verify_takes_only_an_estimate(machine: Machine, claim: str) -> None:
    machine()
    assert_refused(call("measure", "--verify", claim), 2)


def test_verify_passes_the_parsers_errors_on(machine: Machine) -> None:
    machine()
    assert_refused(call("measure", "--verify", f"{CLAIM} --no-such-flag 1"), 2)
    assert_refused(call("measure", "--verify", "estimate decode no-such-model --gpu H200"), 2)


@pytest.mark.long
def test_share_and_import(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    assert_refused(call("measure", "--share", str(tmp_path / "x.json")), 1)
    assert call("measure").code == 0
    shared = tmp_path / "shared.json"
    assert call("measure", "--share", str(shared)).code == 0
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "someone-else"))
    reply = call("measure", "--import", str(shared))
    assert reply.code == 0, reply.err
    document = call("estimate", "train", "resnet50", "--gpu", "h200-sxm", "--json").json()
    assert document["basis"] == "calibrated"
    assert document["tier"] == "measured"
    assert call("measure", "--import", str(shared), "--json").json()["ok"] is True


def test_import_refuses_other_files(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"format": 1}')
    assert_refused(call("measure", "--import", str(tmp_path / "x.json")), 2)
    assert_refused(call("measure", "--import", str(tmp_path / "missing.json")), 2)
    assert_refused(call("measure", "--import", str(tmp_path)), 2)


def test_one_thing_at_a_time_and_sensible_minutes(machine: Machine) -> None:
    machine()
    assert_refused(call("measure", "--share", "a", "--import", "b"), 2)
    for minutes in ("0", "soon", "1000", "nan"):
        assert_refused(call("measure", "--minutes", minutes), 2)


def test_gpu_missing_from_the_catalog_is_reported(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    machine(T4_HOT)
    monkeypatch.setattr(measure, "matched_gpu", lambda *_: None)
    assert call("measure").code == 1
