"""Text of a report on this machine: labelled facts of host and GPUs, findings and verdicts as sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whichgpu.base.messages import Language
from whichgpu.base.numerals import Numeral
from whichgpu.base.units import format_bandwidth, format_memory, significant
from whichgpu.measure.drivers.card import Card, PcieLink, Sample
from whichgpu.measure.host import Host
from whichgpu.measure.report.diagnose import Bottleneck
from whichgpu.measure.report.doctor import DetectedGpu, Report
from whichgpu.measure.report.finding import DoctorFinding

Fact = tuple[str, str]
SHOWN_FEATURES = frozenset(  # GPU features that the report lists, since they affect how a GPU is used.
    "fp64 tf32 fp16 bf16 fp8 fp6 fp4 int8 int4 tensor-cores flash-attention flash-attention-3 flash-attention-4 sparsity "
    "nvlink mig ecc pytorch".split()
)


def host_facts(report: Report, language: Language) -> list[Fact]:
    """Return facts of the host and its software as pairs of label and text."""
    host, software, text = report.host, report.software, language.text
    around = [text("doctor.container", name=host.container)] if host.container else []
    around += [text(f"doctor.virtual.{host.virtual}")] if host.virtual else []
    packages = [f"{name} {version}" for name, version in software.packages.items()]
    built = [f"{name} {version}" for name, version in (("CUDA", software.torch_cuda), ("ROCm", software.torch_rocm)) if version]
    facts = {
        "system": " ".join(filter(None, (host.system, host.kernel and text("doctor.kernel", version=host.kernel)))),
        "around": language.listed(around),
        "cpu": host.cpu,
        "cores": _cores(host, language),
        "ram": _ram(host, language),
        "shared": _memory(host.shared_memory_bytes),
        "python": host.python,
        "packages": language.listed(packages),
        "torch-for": language.listed(built),
        "toolkit": software.cuda_toolkit,
        "absent": text("list.clauses").join(text("doctor.absent", vendor=one.vendor, why=one.message) for one in report.absent),
    }
    return [(text(f"doctor.label.{name}"), value) for name, value in facts.items() if value]


def card_facts(detected: DetectedGpu, language: Language) -> list[Fact]:
    """Return facts of one detected GPU as pairs of label and text."""
    card, match, now, text = detected.card, detected.match, detected.card.now, language.text
    api = "ROCm" if card.vendor == "amd" else "CUDA"
    facts = {
        "name": card.name,
        "variant": f"{match.name} ({match.gpu})" if match.gpu else language.listed(match.candidates),
        "driver": language.listed(filter(None, (card.driver, card.api_version and f"{api} {card.api_version}"))),
        "capability": card.compute_capability or card.target,
        "supports": language.listed(word for word in match.supports if word in SHOWN_FEATURES),
        "memory": _pair(now.memory_used_bytes, now.memory_bytes, _memory),
        "load": _load(now, language),
        "clock": _pair(now.sm_clock_hz, now.sm_clock_max_hz, _clock),
        "memory-clock": _pair(card.memory_clock_hz, card.memory_clock_max_hz, _clock),
        "power": _pair(now.power_watts, now.power_limit_watts, lambda watts: f"{significant(watts, 4)} W"),
        "temperature": _pair(now.temperature_celsius, card.slowdown_celsius, lambda degrees: f"{degrees:.0f} °C"),
        "slowed": None if now.throttle is None else language.listed(now.throttle) or text("word.no"),
        "pcie": pcie_words(card.pcie),
        "traffic": _traffic(now, language),
        "nvlink": None if card.nvlinks is None else text("doctor.links", active=card.nvlinks_active, count=card.nvlinks),
        "peers": language.listed(f"{peer.index}: {text(f'doctor.path.{peer.path}')}" for peer in card.peers),
        "ecc": _switch(card.ecc, language),
        "mig": _mig(card, language),
        "partition": card.partition,
        "persistence": _switch(card.persistence, language),
        "processes": None if now.processes is None else str(now.processes),
    }
    return [(text(f"doctor.label.{name}"), value) for name, value in facts.items() if value]


def finding_rows(findings: Sequence[DoctorFinding], language: Language) -> list[tuple[str, str, str]]:
    """Return problems found by `doctor` as rows: where, severity, sentence with advice; one about several GPUs appears once."""
    grouped: dict[tuple[str, str], list[int]] = {}
    for one in findings:
        key = (one.level, f"{language.render(one.what)} {language.render(one.advice)}")
        grouped.setdefault(key, []).extend([] if one.gpu is None else [one.gpu])
    return [
        (gpu_label(gpus, language), language.text(f"doctor.level.{level}"), words) for (level, words), gpus in grouped.items()
    ]


def verdict_words(verdict: Bottleneck, language: Language) -> str:
    """Return the bottleneck of a running job and its evidence as text."""
    what = language.render(verdict.what)
    if not verdict.sure:
        what = language.text("diagnose.likely", what=what)
    return language.text("diagnose.signs", what=what, signs=verdict.because) if verdict.because else what


def gpu_label(gpus: Sequence[int], language: Language) -> str:
    """Return a label of GPUs by index (`GPU 0`, `GPU 0, 2`, `GPU 0–7`), or of the machine if there are none."""
    if not gpus:
        return language.text("doctor.machine")
    first, last = min(gpus), max(gpus)
    run = len(gpus) > 2 and sorted(gpus) == list(range(first, last + 1))
    return "GPU " + (f"{first}–{last}" if run else language.listed(gpus))


def pcie_words(link: PcieLink | None) -> str | None:
    """Return the current and the highest PCIe link as text: `4.0 x16 / 5.0 x16`."""
    if link is None:
        return None
    now, best = _link_text(link.generation, link.width), _link_text(link.generation_max, link.width_max)
    return f"{now} / {best}" if now and best else now or best


def _link_text(generation: int | None, width: int | None) -> str | None:
    parts = [f"{generation}.0" if generation else None, f"x{width}" if width else None]
    return " ".join(part for part in parts if part) or None


def _cores(host: Host, language: Language) -> str:
    counts = {
        "physical": host.cores,
        "threads": host.threads,
        "allowed": host.threads_allowed if host.threads_allowed != host.threads else None,
        "limit": None if host.cpu_limit is None else max(1, round(host.cpu_limit)),
    }
    return language.listed(language.text(f"doctor.cores.{name}", n=count) for name, count in counts.items() if count is not None)


def _ram(host: Host, language: Language) -> str:
    sizes = {"total": host.ram_bytes, "free": host.ram_free_bytes, "limit": host.ram_limit_bytes}
    parts = [language.cell(f"doctor.ram.{name}", size=_memory(size)) for name, size in sizes.items() if size]
    return Numeral(language.text("list.separator").join(parts))


def _load(now: Sample, language: Language) -> str | None:
    if now.utilisation_percent is None:
        return None
    memory = now.memory_utilisation_percent
    if memory is None:
        return f"{now.utilisation_percent}%"
    return language.text("doctor.load", load=f"{now.utilisation_percent}%", memory=f"{memory}%")


def _traffic(now: Sample, language: Language) -> str | None:
    if now.pcie_rx_bandwidth is None or now.pcie_tx_bandwidth is None:
        return None
    rates = {"rx": format_bandwidth(now.pcie_rx_bandwidth), "tx": format_bandwidth(now.pcie_tx_bandwidth)}
    return language.cell("doctor.traffic", **rates)


def _mig(card: Card, language: Language) -> str | None:
    if not card.mig:
        return _switch(card.mig, language)
    slices = [" ".join(filter(None, (part.profile, _memory(part.memory_bytes)))) for part in card.slices]
    return language.listed([language.text("word.yes"), *slices])


def _switch(value: bool | None, language: Language) -> str | None:
    return None if value is None else language.text("word.yes" if value else "word.no")


def _pair(now: float | None, limit: float | None, write: Callable[[float], str | None]) -> str | None:
    texts = [write(value) if value is not None else None for value in (now, limit)]
    return " / ".join(text or "?" for text in texts) if any(texts) else None


def _memory(size: float | None) -> str | None:
    return None if size is None else format_memory(int(size))


def _clock(value: float) -> str:
    return f"{value / 10**6:,.0f} MHz"
