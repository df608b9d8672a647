"""Sections of docs/evidence/measured-h200.md from the files a run on the GPU left; a missing file leaves its section out.

- `record.json`: the record that `whichgpu measure` wrote
- `plain.json`: [{"id", "kind", "dtype", "median", "best", "unit"}, …], rates of plain PyTorch loops in the same session
- `verify.jsonl`: {"claim", "code", "reply", "without"} a line: `measure --verify … --json`, and the estimate without own records
- `watch.json`: what `whichgpu watch` cost, beside a load
- `diagnosis.json`: {load: {"expected": […], "running": […]}}: diagnosis of `doctor --running` for loads whose bottleneck is known
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from whichgpu.base.units import GIB, MIB, significant
from whichgpu.measure.record import MicroResult, Record

GOAL = 0.95  # share of the rate that PyTorch itself reaches
UNITS = {"FLOP/s": (1e12, "TFLOP/s"), "B/s": (1e9, "GB/s")}


def where_lines(record: Record, folder: Path) -> Iterator[str]:
    """Lines on the GPU and host that were measured."""
    where, software = record.where, ", ".join(f"{name} {version}" for name, version in record.where.software.items())
    yield f"Made by `python -m benchmarks.accuracy_own` from the record `{record.source}` of `whichgpu measure`:"
    yield f"{where.gpu}, driver {where.driver or '?'}, {where.cpu or 'a CPU that does not name itself'}, {software}."
    doctor = _json(folder / "doctor.json")
    if doctor:
        findings = [f"{one['level']}: {one['what']}" for one in doctor.get("findings", ())]
        yield f"`doctor` there: {len(doctor['gpus'])} GPU, {len(findings)} findings. {' '.join(findings)}".rstrip()
    yield ""


def reach_lines(record: Record, folder: Path) -> Iterator[str]:
    """Lines on bandwidth and GEMM rates next to those of plain PyTorch loops on the same GPU."""
    plain = _json(folder / "plain.json")
    if not plain:
        return
    yield "## Peaks, beside what PyTorch itself reaches"
    yield ""
    yield "The best over sizes, of loops of a few milliseconds written for this page and of `measure`, which goes on longer:"
    yield "the peak is its fastest tenth, what is held its median, after the power limit has lowered the clock."
    yield ""
    yield "| operator | PyTorch's peak | `measure`: peak | share | PyTorch's median | `measure`: held | held of the stated peak |"
    yield "|---|---|---|---|---|---|---|"
    shares = []
    for kind, dtype in dict.fromkeys((one["kind"], one["dtype"]) for one in plain):
        theirs, usual = (
            max(one[how] for one in plain if (one["kind"], one["dtype"]) == (kind, dtype)) for how in ("best", "median")
        )
        same = [one for one in record.micro if (one.kind, one.dtype) == (kind, dtype)]
        ours = max(same, key=lambda one: one.rate, default=None)
        name = f"{kind} {dtype}"
        if ours is None:
            yield f"| {name} | {_rate(theirs, plain, kind, dtype)} | not run | | | | |"
            continue
        peak = max(one.rate * one.seconds / one.low for one in same)
        shares.append(peak / theirs)
        reached = f"{_rate(theirs, plain, kind, dtype)} | {_rate(peak, plain, kind, dtype)} | {shares[-1]:.1%}"
        yield f"| {name} | {reached} | {_rate(usual, plain, kind, dtype)} | {_own_rate(ours)} | {_peak(ours)} |"
    yield ""
    met = sum(share >= GOAL for share in shares)
    yield f"{met} of {len(shares)} are at {GOAL:.0%} or more of what PyTorch reaches; the least is {min(shares, default=0):.1%}."
    yield ""


def step_lines(record: Record, never_seen: Sequence[float]) -> Iterator[str]:
    """Lines on predicted and measured times of every step of the record."""
    yield "## Steps: predicted and measured"
    yield ""
    yield "Predicted as shipped, before anything was measured there; and by a fit that never saw this GPU. Milliseconds, medians."
    yield ""
    yield "| step | measured | runs | predicted | 90% range | | off | never seen | off |"
    yield "|---|---|---|---|---|---|---|---|---|"
    judged, offs, blind = [], [], []
    for step, unseen in zip(record.steps, never_seen, strict=True):
        own = step.predicted
        if own is None:
            continue
        judged.append(bool(step.inside))
        offs.append(abs(own.value / step.seconds - 1))
        blind.append(abs(unseen / step.seconds - 1))
        cells = f"{_ms(own.value)} | {_ms(own.low)} – {_ms(own.high)} | {'inside' if step.inside else '**outside**'}"
        off, unseen_off = (f"{value / step.seconds - 1:+.0%}" for value in (own.value, unseen))
        yield f"| {step.id} | {_ms(step.seconds)} | {step.runs} | {cells} | {off} | {_ms(unseen)} | {unseen_off} |"
    yield ""
    if judged:
        yield f"{len(judged)} steps, {sum(judged)} inside the range."
        yield f"Mean error {np.mean(offs):.1%} (median {np.median(offs):.1%}),"
        yield f"of the fit that never saw the GPU {np.mean(blind):.1%} (median {np.median(blind):.1%})."
        yield ""


def verify_lines(folder: Path) -> Iterator[str]:
    """Lines on estimates checked by `measure --verify`."""
    file = folder / "verify.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()] if file.exists() else []
    if not rows:
        return
    yield "## Claims checked with `measure --verify`"
    yield ""
    yield "After `measure`, so with this GPU's own corrections; in the last column without them. Milliseconds."
    yield ""
    yield "| claim | measured | predicted | range | | off | off without |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        yield f"| `{row['claim']}` | {_verified(row)} |"
    yield ""


def watch_lines(folder: Path) -> Iterator[str]:
    """Lines on the cost of `whichgpu watch`."""
    read = _json(folder / "watch.json")
    if not read:
        return
    yield "## What `watch` costs"
    yield ""
    each, pace = read["cpu_per_reading"], read["usual_every"]
    before, during = (read[name] / GIB for name in ("gpu_before", "gpu_during"))
    yield f"{read['readings']} readings, one every {read['every']:g} s, beside a load: {each * 1e3:.2f} ms of processor each."
    yield f"At the usual pace of one every {pace:g} s that is {each / pace:.3%} of one core; it takes {read['rss'] / MIB:.0f} MiB"
    yield "of the host's memory."
    yield f"Without a load the GPU's memory in use is {before:.2f} GiB before and {during:.2f} GiB while `watch` runs, with"
    yield f"{read['gpu_processes']} processes on the GPU."
    yield ""


def diagnosis_lines(folder: Path) -> Iterator[str]:
    """Lines on the diagnosis of `doctor --running` for loads whose bottleneck is known."""
    loads = _json(folder / "diagnosis.json")
    if not loads:
        return
    yield "## What holds a job back, on loads whose answer is known"
    yield ""
    yield "| load | expected | diagnosis | because |"
    yield "|---|---|---|---|"
    for name, one in loads.items():
        first = one["running"][0] if one["running"] else {"id": "nothing", "because": []}
        right = first["id"] if first["id"] in one["expected"] else f"**{first['id']}**"
        yield f"| {name} | {' or '.join(one['expected'])} | {right} | {'; '.join(first['because'])} |"
    yield ""


def _verified(row: dict[str, Any]) -> str:
    reply = row.get("reply") or {}
    if not reply.get("ok"):
        return f"refused: {reply.get('error', {}).get('message', 'no answer')} | | | | |"
    claim, measured, without = reply["claim"]["time"], reply["measured"]["seconds"], (row.get("without") or {}).get("time")
    verdict = "inside" if reply["inside"] else "**outside**"
    off = f"{claim['value'] / measured - 1:+.1%}"
    bare = f"{without['value'] / measured - 1:+.1%}" if without else ""
    return f"{_ms(measured)} | {_ms(claim['value'])} | {_ms(claim['low'])} – {_ms(claim['high'])} | {verdict} | {off} | {bare}"


def _rate(rate: float, plain: Sequence[dict[str, Any]], kind: str, dtype: str) -> str:
    unit = next(one["unit"] for one in plain if (one["kind"], one["dtype"]) == (kind, dtype))
    scale, name = UNITS[unit]
    return f"{rate / scale:,.0f} {name}"


def _own_rate(micro: MicroResult) -> str:
    scale, name = UNITS[micro.unit]
    return f"{micro.rate / scale:,.0f} {name}"


def _peak(micro: MicroResult) -> str:
    return "" if micro.share is None else f"{micro.share:.0%}"


def _ms(seconds: float) -> str:
    return significant(seconds * 1e3)


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
