"""Report files: one self-contained page as HTML, Markdown or, printed by an installed Chromium, PDF."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import tempfile
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.files import write_atomically
from whichgpu.base.messages import Language, msg
from whichgpu.base.version import __version__
from whichgpu.surface import tables
from whichgpu.surface.report.sections import ReportPage, Section

ENDINGS = (".html", ".md", ".pdf")
END_BYTES = 100  # End of a report that names this program.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
MAX_CHARTS = 2  # Charts on the page.
ZOOMS = (1.0, 0.9, 0.8, 0.7)  # Sizes tried until all fits on one page.
PRINT_SECONDS = 60  # Time in which a browser prints one page (assumed; it takes about one second).
# Two charts side by side are drawn at half their size, so that their text is twice as large.
HALF_SIZE_CONFIG = {
    "font": "sans-serif", "view": {"stroke": None}, "axis": {"labelFontSize": 18, "titleFontSize": 18, "labelLimit": 400},
    "title": {"fontSize": 21}, "legend": {"labelFontSize": 18, "orient": "bottom", "symbolSize": 160}, "text": {"fontSize": 18},
}  # fmt: skip
SIDE_BY_SIDE = {"spacing": 60, "resolve": {"scale": dict.fromkeys(("color", "shape", "size", "strokeDash"), "independent")}}
STYLE = """
@page { size: A4; margin: 10mm }
body { font: 8.5pt/1.3 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 186mm; margin: 0 auto; padding: 2mm }
h1 { font-size: 12pt; line-height: 1.3; margin: 0 0 3mm } h2 { font-size: 9.5pt; margin: 0 0 1mm; color: #24527a }
table { border-collapse: collapse; width: 100%; font-size: 8pt; margin: 1mm 0 3mm }
th, td { text-align: left; padding: .8mm 1.5mm; border-bottom: .2mm solid #ccc; vertical-align: top }
ul { margin: 0 0 2mm; padding-left: 4.5mm } svg { max-width: 100%; height: auto; max-height: 60mm }
figure { margin: 1mm 0; text-align: center }
p.question { color: #555; margin: 0 0 1mm } li { overflow-wrap: anywhere }
.sections { columns: 2; column-gap: 6mm } section { break-inside: avoid-column }
code { font-size: 8.5pt; overflow-wrap: anywhere } footer, p.soft { color: #555; font-size: 8.5pt }
"""


def check_report_file(path: str) -> None:
    """Raise an error, before any work, if a report cannot be written: unknown ending, no plain file, no converter or browser.

    Only an empty file or an earlier report is replaced; a symbolic link is not followed.
    """
    target, ending = Path(path).expanduser(), Path(path).suffix.lower()
    if ending not in ENDINGS or (target.exists() and not target.is_file()):
        message = msg("error.bad-report" if ending not in ENDINGS else "error.no-plain-file", name=path, path=path)
        raise UsageError("bad-report", message, msg("hint.bad-plot", endings=ENDINGS), ENDINGS)
    if target.is_symlink() or (target.exists() and not _is_report(target)):
        raise UsageError("bad-report", msg("error.report-exists", name=path), msg("hint.report-exists"))
    if ending == ".pdf" and _browser() is None:
        raise UsageError("needs-browser", msg("error.report-browser"), msg("hint.report-browser"))


def write_report(report: ReportPage, chart: dict[str, Any] | None, path: str, language: Language) -> None:
    """Write a report with its chart in the format of the file's ending."""
    ending, svg = Path(path).suffix.lower(), _svg_of(chart)
    content = markdown(report, svg, language) if ending == ".md" else html(report, svg, language)
    data = _pdf_of(content) + f"% whichgpu {__version__}\n".encode() if ending == ".pdf" else content.encode()
    try:
        write_atomically(Path(path).expanduser(), data)
    except OSError as problem:
        message = msg("error.cannot-write-file", name=path, why=problem.strerror or str(problem))
        raise UsageError("cannot-write-file", message, msg("hint.cannot-write-file")) from problem


def _is_report(path: Path) -> bool:
    """Whether a file is empty or ends as reports do, with the name and version of this program."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - END_BYTES))
            return size == 0 or re.search(rb"whichgpu \d+\.\d", file.read()) is not None
    except OSError:
        return False


def html(report: ReportPage, svg: str, language: Language) -> str:
    """Return a report as one HTML page without scripts or links to other files; all text is escaped."""
    parts = [f'<p class="question">{escape(report.question)}</p>'] if report.question else []
    parts.append(f"<h1>{escape(report.sentence)}</h1>")
    parts += [f"<figure>{svg}</figure>"] if svg else []
    for table in report.tables:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    parts.append(f'<div class="sections">{"".join(map(_html_section, report.sections))}</div>')
    parts.append(f"<footer><p>whichgpu {__version__}</p></footer>")
    title = escape(report.sentence[:80])
    return (
        f'<!doctype html>\n<html lang="{language.code}"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body>{chr(10).join(parts)}</body></html>\n"
    )


def markdown(report: ReportPage, svg: str, language: Language) -> str:
    """Return a report as Markdown, with its chart inside the file."""
    parts = [f"# {_plain(report.sentence)}", *([_plain(report.question)] if report.question else [])]
    if svg:
        data = base64.b64encode(svg.encode()).decode()
        parts.append(f"![{language.text('report.picture')}](data:image/svg+xml;base64,{data})")
    for table in report.tables:
        header, *rows = ([_plain(cell) for cell in row] for row in (table.header, *table.rows))
        parts.append(tables.text_of(tables.write_markdown, header, rows).strip())
    for section in report.sections:
        lines = [f"    {line}" if section.is_command else f"- {_plain(line)}" for line in section.lines]
        parts.append("\n".join([f"## {section.heading}", "", *lines]))
    return "\n\n".join([*parts, f"whichgpu {__version__}"]) + "\n"


def _html_section(section: Section) -> str:
    tag = "<li><code>{}</code></li>" if section.is_command else "<li>{}</li>"
    lines = "".join(tag.format(escape(line)) for line in section.lines)
    return f"<section><h2>{escape(section.heading)}</h2><ul>{lines}</ul></section>"


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("<", "&lt;").replace("[", "\\[").replace("`", "\\`")


def _svg_of(chart: dict[str, Any] | None) -> str:
    """Return a chart as SVG; empty without a chart or without vl-convert, the extra `plot`."""
    if chart and "vconcat" in chart:  # Side by side, as one picture of the page's width.
        rest = {name: part for name, part in chart.items() if name not in ("vconcat", "config")}
        chart = rest | {"hconcat": chart["vconcat"][:MAX_CHARTS], **SIDE_BY_SIDE, "config": HALF_SIZE_CONFIG}
    try:
        return str(import_module("vl_convert").vegalite_to_svg(chart)) if chart else ""
    except ModuleNotFoundError:
        return ""


def _browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def _pdf_of(page: str) -> bytes:
    """Return a page as PDF on one sheet, printed by the installed browser, smaller if it has more to say."""
    browser = _browser()
    assert browser is not None
    with tempfile.TemporaryDirectory(prefix="whichgpu-") as folder:
        for zoom in ZOOMS:
            printed = _printed(
                page.replace("</head>", f"<style>body {{ zoom: {zoom} }}</style></head>", 1), Path(folder), browser
            )
            if len(re.findall(rb"/Type /Page\b", printed)) == 1:
                break
        return printed


def _printed(page: str, folder: Path, browser: str) -> bytes:
    """Return a page as the browser prints it to PDF, from a file in a folder of its own."""
    source, target = folder / "report.html", folder / "report.pdf"
    source.write_text(page, encoding="utf-8")
    flags = ["--headless", "--disable-gpu", "--no-first-run", "--no-pdf-header-footer", f"--user-data-dir={folder}/profile"]
    flags += ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []  # Chromium has no sandbox for root.
    words = [browser, *flags, f"--print-to-pdf={target}", source.as_uri()]
    try:
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PRINT_SECONDS, check=True)
        return target.read_bytes()
    except (OSError, subprocess.SubprocessError) as problem:
        raise NoAnswer("no-pdf", msg("error.report-print", name=Path(browser).name), msg("hint.report-browser")) from problem
