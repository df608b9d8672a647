"""`watch --prometheus FILE` writes cost, idle seconds and GPU readings in Prometheus' text format."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from whichgpu.base.errors import UsageError
from whichgpu.base.money import Money
from whichgpu.measure.drivers.card import Sample
from whichgpu.measure.endpoint.token_meter import EngineTokens
from whichgpu.measure.meter import Bill
from whichgpu.measure.watcher import WatchReading
from whichgpu.surface.cli.prometheus_file import check_metrics_file, metrics_text, write_metrics

BILL = Bill(120.0, Money(Decimal("0.1"), "USD"), Money(Decimal("0.05"), "USD"), 60.0, 2.0, 50.0, 1 << 30)
SAMPLES = (Sample(0, utilisation_percent=50, memory_used_bytes=1 << 30, power_watts=60.5), Sample(1, lost=True))
READING = WatchReading("2026-11-17T10:00:00+00:00", SAMPLES, True, BILL, 30.0, None, (), ())
LINE = re.compile(r'[a-z_]+(\{[a-z]+="([^"\\\n]|\\.)*"(,[a-z]+="([^"\\\n]|\\.)*")*\})? [0-9.e+-]+')


def test_every_line_is_of_the_text_format() -> None:
    text = metrics_text(READING, ['a "card"\n', "b"])
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in lines)
    assert 'whichgpu_cost_total{currency="USD"} 0.1' in lines
    assert "whichgpu_idle_seconds_total 60" in lines
    assert "whichgpu_energy_joules_total 7200" in lines
    assert 'whichgpu_gpu_utilisation_ratio{index="0",name="a \\"card\\"\\n"} 0.5' in lines
    assert not any("temperature" in line or 'index="1"' in line for line in lines)
    assert len(re.findall(r"^# TYPE", text, re.MULTILINE)) == len({line.partition("{")[0].partition(" ")[0] for line in lines})


def test_tokens_are_those_of_the_engine() -> None:
    lines = metrics_text(READING, ["a", "b"], EngineTokens("vllm", 1200.0, 340.0, False)).splitlines()
    assert all(LINE.fullmatch(line) for line in lines if not line.startswith("#"))
    assert 'whichgpu_input_tokens_total{engine="vllm"} 1200' in lines
    assert 'whichgpu_output_tokens_total{engine="vllm"} 340' in lines
    assert 'whichgpu_engine_up{engine="vllm"} 0' in lines
    assert "tokens" not in metrics_text(READING, ["a", "b"])


def test_only_files_that_the_collector_reads_are_written(tmp_path: Path) -> None:
    write_metrics(READING, (), str(tmp_path / "gpu.prom"))
    assert [file.name for file in tmp_path.iterdir()] == ["gpu.prom"]
    check_metrics_file(str(tmp_path / "gpu.prom"))
    for name in ("gpu.txt", "no-folder/gpu.prom"):
        with pytest.raises(UsageError, match="cannot write metrics"):
            check_metrics_file(str(tmp_path / name))
