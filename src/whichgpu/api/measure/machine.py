"""Verbs `doctor` and `watch`: the GPUs of this machine and what limits the jobs on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.measure.clock import SystemClock
from whichgpu.measure.drivers.card import Card
from whichgpu.measure.drivers.probe import DriverUnavailable, MissingVendor, Probe
from whichgpu.measure.drivers.vendors import open_probes
from whichgpu.measure.host import read_host, usable_cores
from whichgpu.measure.host_load import LoadReader
from whichgpu.measure.match import match_card, matched_gpu
from whichgpu.measure.report.diagnose import Bottleneck
from whichgpu.measure.report.doctor import DetectedGpu, Report, build_report
from whichgpu.measure.software import read_software
from whichgpu.measure.watcher import Clock, WatchReading, WatchSettings, watch_gpus


class Watching(msgspec.Struct, frozen=True):
    """The GPUs that are watched, and an iterator over their readings."""

    gpus: tuple[DetectedGpu, ...]
    readings: Iterator[WatchReading]


def doctor(catalog: Catalog | None = None, running: float | None = None, clock: Clock | None = None) -> Report:
    """Return GPUs, driver and software of this machine; `running` is the seconds to watch running jobs for their bottleneck."""
    catalog = catalog or Catalog()
    probe, absences = open_probes()
    try:
        report = build_report(probe, absences, read_host(), read_software(), catalog)
        if running is None or probe is None or not report.gpus:
            return report
        return replace(report, running=_watched(probe, report, running, clock or SystemClock()))
    finally:
        if probe:
            probe.close()


def watch(settings: WatchSettings = WatchSettings(), catalog: Catalog | None = None, clock: Clock | None = None) -> Watching:  # noqa: B008 - frozen
    """Return the GPUs of this machine and an iterator that samples their utilisation, cost and idle time."""
    catalog, clock = catalog or Catalog(), clock or SystemClock()
    probe, absences = open_probes()
    cards: tuple[Card, ...] = ()
    if probe is not None:
        try:
            cards = probe.cards()
        except DriverUnavailable:
            probe.close()
    if probe is None or not cards:
        raise no_gpu(absences)
    gpus = tuple(DetectedGpu(card, match_card(card, catalog)) for card in cards)
    return Watching(gpus, _until_closed(probe, gpus, clock, settings))


def card_and_gpu_here(catalog: Catalog) -> tuple[Card, Gpu] | None:
    """Return the first GPU of this machine, as its driver and as the catalog describe it; None if either does not know one."""
    probe, _ = open_probes()
    if probe is None:
        return None
    try:
        card = next(iter(probe.cards()), None)
        gpu = matched_gpu(match_card(card, catalog), catalog) if card else None
    except DriverUnavailable:
        return None
    finally:
        probe.close()
    return (card, gpu) if card and gpu else None


def no_gpu(absences: Sequence[MissingVendor], message: str = "error.no-gpu-here") -> NoAnswer:
    """Return the error for a machine without a usable GPU, with the likeliest reason."""
    likeliest = next((absence for absence in absences if absence.kind not in ("other-system", "no-device")), None)
    why = likeliest.message if likeliest else msg("absent.no-device")
    return NoAnswer("no-gpu-here", msg(message, why=why), msg("hint.doctor"))


def _until_closed(probe: Probe, gpus: Sequence[DetectedGpu], clock: Clock, settings: WatchSettings) -> Iterator[WatchReading]:
    load = _load_reader(probe, clock) if settings.explain else None
    try:
        yield from watch_gpus(probe, [one.card for one in gpus], clock, settings, load)
    finally:
        probe.close()


def _watched(probe: Probe, report: Report, seconds: float, clock: Clock) -> tuple[Bottleneck, ...]:
    settings = WatchSettings(every=min(1.0, seconds / 4), lasting=seconds, explain=True)
    verdicts: tuple[Bottleneck, ...] = ()
    for reading in watch_gpus(probe, [one.card for one in report.gpus], clock, settings, _load_reader(probe, clock)):
        verdicts = reading.verdicts or verdicts
    return verdicts


def _load_reader(probe: Probe, clock: Clock) -> LoadReader:
    cores = usable_cores(read_host()) or 1.0
    return LoadReader(cores, lambda: {id for ids in probe.processes() for id in ids}, clock.now)
