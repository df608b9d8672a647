"""Run all checks over all tables, and separate findings that are explained from open ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path

import msgspec
from msgspec.structs import replace

from whichgpu.base.bundled_data import altered_files, running_from_checkout
from whichgpu.base.display import Displayable
from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.catalog.checks import architectures, engines, gpus, hosts, models, prices, structure
from whichgpu.catalog.schema import DATA_DIR, schema
from whichgpu.catalog.tables import Finding, Row, Table, Tables, read_table

CHECKS: tuple[Callable[[Tables], list[Finding]], ...] = (
    structure.keys,
    structure.references,
    structure.filled,
    structure.addresses,
    architectures.architectures,
    gpus.memory,
    gpus.bandwidth,
    gpus.rates,
    gpus.order_of_precisions,
    gpus.plausible,
    gpus.names,
    hosts.instances,
    hosts.cpus,
    hosts.regions,
    models.models,
    models.names,
    engines.engines,
    engines.records,
    engines.accuracy,
    engines.mix,
    prices.plain,
    prices.bounds,
    prices.jumps,
    prices.places,
    prices.spots,
    prices.shares,
    prices.rules,
)


class CheckReport(Displayable, msgspec.Struct, frozen=True):
    """Result of all data checks: rows checked by table, open findings, and findings with their explanation."""

    rows: Mapping[str, int]
    findings: tuple[Finding, ...]
    explained: tuple[tuple[Finding, str], ...]
    altered: tuple[str, ...] = ()  # bundled files that differ from the release; in a checkout that may be intended

    @property
    def ok(self) -> bool:
        """Whether all findings of the data checks are explained."""
        return not self.findings


def check_catalog(folder: Path, today: date) -> CheckReport:
    """Run all data checks on the tables in a folder; unreadable files are findings too.

    For the bundled folder, every bundled file is compared with its digest.
    """
    changed = altered_files() if folder == DATA_DIR else ()
    if changed and not running_from_checkout():
        findings = tuple(Finding("files", name, "altered", "", msg("finding.altered")) for name in changed)
        return CheckReport({}, findings, (), changed)
    return replace(_checked(folder, today), altered=changed)


def _checked(folder: Path, today: date) -> CheckReport:
    tables: dict[str, Table] = {}
    unreadable: list[Finding] = []
    for name in schema():
        try:
            tables[name] = read_table(folder, name)
        except DataError as error:
            unreadable.append(Finding(name, "", "unreadable", "", error.message))
    if unreadable:  # Without all tables the other checks, which compare them, would only repeat that a file is unreadable.
        return CheckReport({name: len(table.rows) for name, table in tables.items()}, tuple(unreadable), ())
    findings = [finding for table in tables.values() for finding in table.findings]
    findings += structure.dates(tables, today)
    for check in CHECKS:
        try:
            findings += check(tables)
        except (ArithmeticError, ValueError, TypeError, AttributeError, KeyError) as problem:
            # Other findings name the values on which arithmetic fails, but a check that fails must never count as passed.
            detail = msg("finding.check-failed", why=f"{type(problem).__name__}: {problem}")
            findings.append(Finding("catalog", "", "check-failed", check.__name__, detail))
    return _report(findings, tables)


def _report(findings: list[Finding], tables: Tables) -> CheckReport:
    reasons = tables["explained"].rows
    used: set[int] = set()
    open_findings: list[Finding] = []
    explained: list[tuple[Finding, str]] = []
    for finding in findings:
        index = next((i for i, reason in enumerate(reasons) if _explains(reason, finding)), None)
        if index is None:
            open_findings.append(finding)
        else:
            used.add(index)
            explained.append((finding, reasons[index]["why"]))
    for index, reason in enumerate(reasons):
        if index not in used:
            detail = msg("finding.stale-explanation", table=reason["table"], key=reason["key"], check=reason["check"])
            open_findings.append(Finding("explained", reason["key"], "stale-explanation", "", detail))
    rows = {name: len(table.rows) for name, table in tables.items()}
    return CheckReport(rows, tuple(open_findings), tuple(explained))


def _explains(reason: Row, finding: Finding) -> bool:
    same = (reason["table"], reason["key"], reason["check"]) == (finding.table, finding.key, finding.check)
    return same and reason["column"] in (None, finding.column)
