"""`doctor` and `watch` from outside: with recorded GPUs and without any, in every form, with settings good and bad."""

from __future__ import annotations

import csv
import getpass
import io
import json
import re
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.machines import HOST, SOFTWARE, JumpingClock, Played, probe_of
from tests.recorded_nvml import A100_MIG, BARE, H200, NONSENSE, RTX_3060_X4, T4_HOT, Recording, with_changes
from tests.surface.cli import ROOT, assert_refused, assert_refused_json, call, process
from tests.surface.metered import run
from whichgpu.api.measure import machine
from whichgpu.measure.drivers import vendors as probes
from whichgpu.measure.drivers.card import Card, Sample
from whichgpu.surface.cli import watch as watch_command

Machine = Callable[..., None]
GIB = 1 << 30


@pytest.fixture
def recorded_machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with these recordings for GPUs."""

    def install(*recordings: Recording, played: Played | None = None) -> None:
        opener = (lambda: played) if played else (lambda: probe_of(*recordings))
        monkeypatch.setattr(probes, "usual_openers", lambda: (opener,) if recordings or played else ())

    monkeypatch.setattr(machine, "read_host", lambda: HOST)
    monkeypatch.setattr(machine, "read_software", lambda: SOFTWARE)
    return install


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> Callable[..., JumpingClock]:
    """A clock that jumps, for the command itself."""

    def install(**settings: Any) -> JumpingClock:
        clock = JumpingClock(**settings)
        monkeypatch.setattr(watch_command, "SystemClock", lambda listening=False: clock)
        return clock

    return install


# doctor


def test_doctor_without_a_gpu_reports_the_host(recorded_machine: Machine) -> None:
    recorded_machine()
    reply = call("doctor")
    assert reply.code == 0
    assert reply.err == "No GPU found.\n"
    rows = reply.tsv()
    assert {len(row) for row in rows} == {3}
    assert ["machine", "processor", HOST.cpu] in rows


def test_doctor_as_a_process_on_this_very_machine() -> None:
    for form in ("--json", "--markdown", "--csv", "--tsv"):
        reply = process("doctor", form)
        assert reply.code == 0, reply.err
        assert reply.out
    document = json.loads(process("doctor", "--json").out)
    assert {"whichgpu", "host", "software", "gpus", "absent", "findings"} <= set(document)


def test_doctor_names_the_variant_and_its_features(recorded_machine: Machine) -> None:
    recorded_machine(H200)
    reply = call("doctor")
    assert reply.err == "1 x H200 SXM. 0 things to look at.\n"
    facts = {row[1]: row[2] for row in reply.tsv() if row[0] == "GPU 0"}
    assert facts["in the catalog"] == "H200 SXM (h200-sxm)"
    assert "fp8" in facts["supports"]
    assert facts["memory used"] == "615 MiB / 140.4 GiB"
    assert facts["driver"] == "580.159.03, CUDA 13.0"
    assert facts["PCIe now / at most"] == "5.0 x16 / 5.0 x16"
    assert facts["NVLink"] == "18 of 18 links up"


def test_doctor_in_json_has_cards_matches_and_findings(recorded_machine: Machine) -> None:
    recorded_machine(T4_HOT)
    document = call("doctor", "--json").json()
    gpu = document["gpus"][0]
    assert (gpu["name"], gpu["match"]["gpu"], gpu["now"]["throttle"][0]) == ("Tesla T4", "t4", "power-cap")
    thermal = next(one for one in document["findings"] if one["id"] == "thermal")
    assert (thermal["level"], thermal["gpu"], thermal["what"]) == ("warning", 0, "Thermal throttling (94 °C).")
    assert thermal["advice"]
    assert "running" not in document


def test_doctor_in_markdown_is_ready_to_paste(recorded_machine: Machine) -> None:
    recorded_machine(T4_HOT, A100_MIG)
    text = call("doctor", "--markdown").out
    assert text.startswith("### whichgpu ")
    assert "#### GPU 1" in text
    assert re.search(r"^- \*\*warning\*\* \(GPU 0\): Thermal throttling", text, re.MULTILINE)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert {line.count(" | ") for line in table.splitlines() if "---" not in line} == {1}


def test_facts_shared_by_several_gpus_are_listed_once(recorded_machine: Machine) -> None:
    recorded_machine(*(with_changes(H200, nvmlDeviceGetUUID=f"u{n}", nvmlDeviceGetEccMode=[0, 0]) for n in range(4)))
    rows = [row for row in call("doctor").tsv() if row[1] == "note" and "ECC" in row[2]]
    assert [row[0] for row in rows] == ["GPU 0–3"]


@pytest.mark.parametrize("recording", [NONSENSE, BARE], ids=["nonsense", "bare"])
@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"], ["--csv"]])
def test_doctor_survives_any_answers(recorded_machine: Machine, recording: Recording, form: list[str]) -> None:
    recorded_machine(recording, H200)
    reply = call("doctor", *form)
    assert reply.code == 0
    assert "\x1b" not in reply.out
    assert "Traceback" not in reply.err


@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"], ["--csv"]])
def test_report_has_no_private_data(form: list[str], tmp_path: Path) -> None:
    secret = "GPU-5ecret-value"
    reply = run("H200,T4_HOT", "doctor", *form, CUDA_VISIBLE_DEVICES=secret, CUDA_HOME=str(tmp_path), USER="someuser9")
    assert reply.code == 0
    private = [secret, str(tmp_path), str(ROOT), str(Path.home()), "someuser9", "4242", "11111111-2222", "1654321000111"]
    host = socket.gethostname()
    private += [host] if len(host) > 4 else []
    user = getpass.getuser()
    private += [user] if len(user) > 4 else []
    text = reply.out + reply.err
    assert [word for word in private if re.search(rf"(?<!\d){re.escape(word)}(?!\d)", text) and word != "/"] == []
    assert not re.search(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", text)
    assert "CUDA_VISIBLE_DEVICES" in text


def test_doctor_names_the_bottleneck_of_a_running_job(recorded_machine: Machine) -> None:
    recorded_machine(T4_HOT)
    document = call("doctor", "--running", "--for", "1s", "--json").json()
    verdict = document["running"][0]
    assert verdict["id"] == "thermal"
    assert verdict["advice"]
    reply = call("doctor", "--for", "1s")
    assert any(row[1] == "running job" for row in reply.tsv())


def test_doctor_running_without_a_gpu_is_still_a_report(recorded_machine: Machine) -> None:
    recorded_machine()
    assert call("doctor", "--running").code == 0


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("doctor", ["--running", "--for", "--json", "--markdown"]),
        ("watch", ["--price", "--every", "--idle", "--then", "--countdown", "--for", "--once", "--line", "--explain", "--json"]),
    ],
)
def test_help_names_every_flag(command: str, flags: list[str]) -> None:
    text = call(command, "--help").out
    assert [flag for flag in flags if not re.search(rf"^\s+{flag}\b", text, re.MULTILINE)] == []
    assert re.search(rf"^\s+{command}\s", call("--help").out, re.MULTILINE)


# watch without a GPU


def test_watch_without_a_gpu_prints_one_line_and_exits_1() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    reply = process("watch")
    assert reply.code == 1
    assert reply.out == ""
    assert reply.err.startswith("error: no GPU can be watched here")
    assert reply.err.count("\n") == 1


def test_watch_without_a_gpu_in_json(recorded_machine: Machine) -> None:
    recorded_machine()
    assert assert_refused_json(call("watch", "--json"), 1)["kind"] == "no-gpu-here"


# watch, read


def test_watch_once_is_one_row_a_gpu(recorded_machine: Machine) -> None:
    recorded_machine(H200, T4_HOT)
    reply = call("watch", "--once")
    assert reply.code == 0
    header, *rows = reply.tsv()
    assert [row[header.index("name")] for row in rows] == ["H200 SXM", "T4"]
    assert [row[header.index("load %")] for row in rows] == ["0", "98"]
    assert reply.err == ""


def test_watch_writes_cost_idle_seconds_and_an_engine_s_tokens_for_prometheus(
    recorded_machine: Machine, jumping: Callable[..., JumpingClock], tmp_path: Path
) -> None:
    class Engine(BaseHTTPRequestHandler):
        tokens = 100

        def do_GET(self) -> None:
            Engine.tokens += 50
            self.send_response(200)
            self.end_headers()
            counters = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
            self.wfile.write("".join(f"{name} {Engine.tokens}\n" for name in counters).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    recorded_machine(H200)
    jumping()
    path = tmp_path / "gpu.prom"
    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        options = ("--prometheus", str(path), "--endpoint", f"http://127.0.0.1:{server.server_address[1]}")
        reply = call("watch", "--price", "2usd/h", "--every", "60s", "--for", "2min", *options)
        server.shutdown()
    assert reply.code == 0, reply.err
    text = path.read_text(encoding="utf-8")
    assert 'whichgpu_output_tokens_total{engine="vllm"} 150\n' in text  # three readings of 50 after the first
    assert "whichgpu_idle_seconds_total" in text
    assert "whichgpu_cost_total" in text
    assert_refused(call("watch", "--once", "--endpoint", "http://127.0.0.1:1"), 2)
    assert_refused(call("watch", "--once", "--prometheus", str(path), "--endpoint", "http://127.0.0.1:1"), 1)


def test_watch_in_csv_has_base_units_and_money(recorded_machine: Machine, jumping: Callable[..., JumpingClock]) -> None:
    recorded_machine(H200)
    jumping()
    reply = call("watch", "--csv", "--price", "2usd/h", "--every", "1800s", "--for", "1h")
    rows = list(csv.DictReader(io.StringIO(reply.out)))
    assert [row["money.amount"] for row in rows] == ["0.0000", "1.0000", "2.0000"]
    assert [row["idle_money.amount"] for row in rows] == ["0.0000", "1.0000", "2.0000"]
    assert rows[0]["memory_used_bytes"] == str(615 << 20)
    assert "1 h 00 min: 2.00 USD, of it 2.00 USD idle" in reply.err


def test_watch_in_json_has_one_line_per_reading_and_a_summary(
    recorded_machine: Machine, jumping: Callable[..., JumpingClock]
) -> None:
    recorded_machine(H200)
    jumping()
    reply = call("watch", "--json", "--price", "3eur/h", "--every", "10min", "--for", "20min", "--idle", "15min")
    *lines, last = [json.loads(line) for line in reply.out.splitlines()]
    assert reply.err == ""
    assert [line["money"] for line in lines] == [{"amount": f"{n / 2:.4f}", "currency": "EUR"} for n in range(3)]
    assert [line["seconds"] for line in lines] == [0, 600, 1200]
    assert [event["kind"] for line in lines for event in line["events"]] == ["idle"]
    assert lines[0]["gpus"][0]["gpu"] == "h200-sxm"
    assert last["summary"]["money"]["amount"] == "1.0000"


def test_watch_in_markdown_grows_one_table(recorded_machine: Machine, jumping: Callable[..., JumpingClock]) -> None:
    recorded_machine(H200)
    jumping()
    header, rule, *rows = call("watch", "--markdown", "--for", "4s").markdown()
    assert set(rule) == {"---"}
    assert {len(row) for row in rows} == {len(header)}
    assert len(rows) == 3


def test_columns_are_chosen_as_everywhere(recorded_machine: Machine) -> None:
    recorded_machine(H200)
    assert call("watch", "--once", "--csv", "--columns", "index,power_watts").csv() == [["index", "power_watts"], ["0", "76.543"]]
    assert_refused(call("watch", "--once", "--columns", "nonsense"), 2)


def test_one_line_for_a_status_bar(recorded_machine: Machine, jumping: Callable[..., JumpingClock]) -> None:
    recorded_machine(H200, T4_HOT)
    jumping()
    reply = call("watch", "--line", "--once", "--price", "2usd/h")
    assert reply.out.count("\n") == 1
    assert re.fullmatch(r"2 GPUs 49% 13\.5/155 GiB 146 W \| 0\.0000 USD spent, 0\.0000 USD of it while idle\n", reply.out)
    recorded_machine(H200)
    reply = call("watch", "--line", "--every", "60s", "--for", "5min", "--price", "2usd/h")
    assert len(reply.out.splitlines()) == 6
    assert reply.out.splitlines()[-1].endswith("| idle for 5 min")


def test_explaining_a_running_job(recorded_machine: Machine, jumping: Callable[..., JumpingClock]) -> None:
    recorded_machine(RTX_3060_X4)
    jumping()
    reply = call("watch", "--explain", "--for", "20s")
    assert "GPU 0: the PCIe link is full (" in reply.err
    assert reply.err.count("GPU 0:") == 1
    assert call("watch", "--explain", "--line", "--for", "20s").out.splitlines()[-1].endswith("| the PCIe link is full")


# watch, warning and running


def test_idle_minutes_are_warned_of(recorded_machine: Machine, jumping: Callable[..., JumpingClock]) -> None:
    recorded_machine(H200)
    jumping()
    reply = call("watch", "--every", "30s", "--idle", "10min", "--for", "11min", "--price", "6usd/h")
    assert "warning: all GPUs have been idle for 10 min; 1.00 USD were spent on waiting so far." in reply.err
    assert reply.err.count("warning") == 1


def test_the_command_runs_only_after_idle_time_and_countdown(
    recorded_machine: Machine, jumping: Callable[..., JumpingClock], tmp_path: Path
) -> None:
    recorded_machine(H200)
    clock = jumping()
    path = tmp_path / "ran"
    reply = call("watch", "--every", "60s", "--idle", "10min", "--countdown", "20s", "--then", f"echo done > '{path}'")
    assert reply.code == 0
    assert path.read_text() == "done\n"
    assert clock.seconds == 1000 + 600 + 20
    seconds = re.findall(r"runs in (\d+) s", reply.err)
    assert seconds == ["20", "10", "5", "4", "3", "2", "1"]
    assert "Running: echo done" in reply.err


def test_a_gpu_at_work_keeps_the_command_from_running(
    recorded_machine: Machine, jumping: Callable[..., JumpingClock], tmp_path: Path
) -> None:
    cards = [Card(0, "nvidia", "NVIDIA H200", Sample(0, utilisation_percent=0, memory_bytes=140 * GIB))]
    recorded_machine(played=Played(cards, lambda tick: [Sample(0, utilisation_percent=0 if tick < 15 else 90)]))
    jumping()
    path = tmp_path / "ran"
    reply = call("watch", "--every", "60s", "--idle", "10min", "--then", f"touch '{path}'", "--for", "30min")
    assert reply.code == 0
    assert not path.exists()
    assert "A GPU is at work again: the command is not run." in reply.err


def test_enter_keeps_the_command_from_running(
    recorded_machine: Machine, jumping: Callable[..., JumpingClock], tmp_path: Path
) -> None:
    recorded_machine(H200)
    jumping(pressed=[12])
    path = tmp_path / "ran"
    reply = call("watch", "--every", "60s", "--idle", "10min", "--then", f"touch '{path}'", "--for", "15min")
    assert not path.exists()
    assert "Stopped: the command is not run" in reply.err


def test_failed_command_is_reported(recorded_machine: Machine, jumping: Callable[..., JumpingClock]) -> None:
    recorded_machine(H200)
    jumping()
    reply = call("watch", "--idle", "2s", "--countdown", "5s", "--then", "exit 7")
    assert reply.code == 1
    assert "ended with 7" in reply.err


@pytest.mark.parametrize(
    "argv",
    [
        ["--price", "2usd"],
        ["--price", "free"],
        ["--every", "0s"],
        ["--every", "10"],
        ["--idle", "0s"],
        ["--then", " "],
        ["--countdown", "1s", "--then", "true"],
    ],
    ids=" ".join,
)
def test_invalid_settings_are_refused_before_watching(recorded_machine: Machine, argv: list[str]) -> None:
    recorded_machine(H200)
    assert_refused(call("watch", "--once", *argv), 2)


def test_a_command_from_a_variable_or_a_config_file_is_refused(
    recorded_machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorded_machine(H200)
    path = tmp_path / "mine.toml"
    path.write_text('[watch]\nthen = "shutdown"\n')
    assert_refused(call("watch", "--once", "--config", str(path)), 2)
    monkeypatch.setenv("WHICHGPU_WATCH_THEN", "shutdown")
    assert_refused(call("watch", "--once"), 2)


def test_a_price_may_come_from_a_config_file(recorded_machine: Machine, tmp_path: Path) -> None:
    recorded_machine(H200)
    path = tmp_path / "mine.toml"
    path.write_text('[watch]\nprice = "2usd/h"\n')
    assert "USD" in call("watch", "--once", "--line", "--config", str(path)).out
