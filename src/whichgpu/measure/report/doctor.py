"""The report of `doctor`: machine, software, GPUs with their catalog variants, and findings."""

from __future__ import annotations

import msgspec

from whichgpu.base.display import Displayable
from whichgpu.base.version import __version__
from whichgpu.catalog.gpu import Software as Known
from whichgpu.catalog.store import Catalog
from whichgpu.measure.drivers.card import Card
from whichgpu.measure.drivers.probe import DriverUnavailable, MissingVendor, Probe
from whichgpu.measure.host import Host
from whichgpu.measure.match import VariantMatch, match_card, matched_gpu
from whichgpu.measure.report.diagnose import Bottleneck
from whichgpu.measure.report.finding import DoctorFinding, by_severity
from whichgpu.measure.report.gpu_rules import card_findings
from whichgpu.measure.report.host_rules import host_findings
from whichgpu.measure.software import InstalledSoftware


class DetectedGpu(msgspec.Struct, frozen=True):
    """A GPU of this machine as its driver describes it, and the catalog's variant of it."""

    card: Card
    match: VariantMatch


class Report(Displayable, msgspec.Struct, frozen=True):
    """Report of `doctor` on a machine: host, software, GPUs and problems found, without private data."""

    whichgpu: str
    host: Host
    software: InstalledSoftware
    gpus: tuple[DetectedGpu, ...]
    absent: tuple[MissingVendor, ...]
    findings: tuple[DoctorFinding, ...]
    running: tuple[Bottleneck, ...] | None = None  # bottlenecks of running jobs; None if not requested


def build_report(
    probe: Probe | None, absences: tuple[MissingVendor, ...], host: Host, software: InstalledSoftware, catalog: Catalog
) -> Report:
    """Return the report of `doctor` on a machine; `absences` are the vendors whose GPUs could not be read."""
    try:
        cards = probe.cards() if probe else ()
    except DriverUnavailable:  # The driver stopped answering after it was opened.
        cards = ()
    gpus = tuple(DetectedGpu(card, match_card(card, catalog)) for card in cards)
    software_by_gpu = [_software(one, catalog) for one in gpus]
    findings = [*host_findings(host, software, list(zip(cards, software_by_gpu, strict=True)), absences)]
    for one, runs in zip(gpus, software_by_gpu, strict=True):
        findings += card_findings(one.card, one.match, matched_gpu(one.match, catalog), runs, host, several=len(gpus) > 1)
    return Report(__version__, host, software, gpus, absences, by_severity(findings))


def _software(one: DetectedGpu, catalog: Catalog) -> Known | None:
    """Return the software releases that support a detected GPU, or its instruction set if it is not in the catalog."""
    variant = matched_gpu(one.match, catalog) or next((gpu for gpu in catalog.gpus if gpu.target == one.card.target), None)
    return variant.software if variant and one.card.target in (None, variant.target) else None
