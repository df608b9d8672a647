"""`--report` writes one self-contained page: answer, picture, table, reasons, risks, assumptions, sources, and the command."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import whichgpu
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import english
from whichgpu.surface.commands.render.recording_session import RecordedTable
from whichgpu.surface.report import report_file
from whichgpu.surface.report.sections import ReportPage, Section

pytest.importorskip("vl_convert", reason="the picture of a report is drawn by vl-convert, the extra plot")
HOSTILE = "<script>alert(1)</script> [a](javascript:x) `b`"


def test_a_fit_as_html_needs_no_other_file(tmp_path: Path) -> None:
    file = tmp_path / "fit.html"
    answer = whichgpu.fit("llama-3.1-8b", gpu=["T4", "L4"], report=str(file))
    page = file.read_text(encoding="utf-8")
    assert answer.headline() in page
    assert page.count("<svg") == 1
    assert not re.search(r"<script|<link|<img|src=|url\((?!#)", page)
    for heading in ("Watch out for", "Assumptions", "Sources", "The same on the command line"):
        assert f"<h2>{heading}</h2>" in page
    assert re.search(r"<code>whichgpu fit --gpu=T4,L4 --as-of=[\d-]+ -- llama-3.1-8b</code>", page)
    assert "Question: fit llama-3.1-8b, gpu T4,L4 (" in page
    assert not re.search(
        r"--(?!gpu=|as-of=| )[a-z]", page.partition("<body>")[2].replace("<!--", "")
    )  # No flags but the command's.


def test_an_estimate_as_markdown_has_evidence_alternatives_and_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "estimate.md"
    whichgpu.estimate("train", "resnet50", gpu="T4", report=str(file), emit="torchrun", no_own_measurements=True)
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# On T4 a training step takes")
    assert "## Evidence" in text
    assert "| part | value | low | high |" in text
    assert text.count("![Chart of the answer](data:image/svg+xml;base64,") == 1
    assert "| GPU | time | throughput | verdict | cheapest, an hour | offer |" in text
    assert re.search(r"\| L40S \| [\d.]+ ms \| [\d,]+ samples/s \| fits \| [\d.]+ USD \(\d{4}-\d\d-\d\d\) \| ", text)
    assert "-- train resnet50" in text
    assert "Question: estimate train resnet50, gpu T4, no own measurements (" in text
    assert "--emit" not in text


@pytest.mark.parametrize("write", [report_file.html, report_file.markdown])
def test_no_name_becomes_markup(write: object) -> None:
    table = RecordedTable((HOSTILE,), ((HOSTILE,),))
    text = write(ReportPage(HOSTILE, (table,), (Section("head", (HOSTILE,)),)), "", english())  # type: ignore[operator]
    assert "<script>" not in text
    if write is report_file.markdown:
        assert "# &lt;script>" in text
        assert "- &lt;script>alert(1)&lt;/script> \\[a](javascript:x) \\`b\\`" in text


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot write a report"):
        whichgpu.fit("no-such-model", report=str(tmp_path / "fit.doc"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match="PDF is printed by Chromium") as refused:
        whichgpu.fit("no-such-model", report=str(tmp_path / "fit.pdf"))
    assert "apt-get install chromium" in english().render(refused.value.hint)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_only_an_empty_file_or_an_earlier_report_is_replaced(tmp_path: Path) -> None:
    thesis, link, empty = tmp_path / "thesis.md", tmp_path / "link.md", tmp_path / "empty.md"
    thesis.write_text("# Years of work\n")
    link.symlink_to(thesis)
    empty.touch()
    for path in (thesis, link):
        with pytest.raises(UsageError, match="no report of whichgpu"):
            report_file.check_report_file(str(path))
    with pytest.raises(UsageError, match="cannot write a report"):
        whichgpu.fit("no-such-model", report="")
    report_file.check_report_file(str(empty))
    for ending in (".md", ".html"):
        path = tmp_path / f"again{ending}"
        report_file.write_report(ReportPage("sentence", (), ()), None, str(path), english())
        report_file.check_report_file(str(path))


@pytest.mark.long
@pytest.mark.skipif(not any(map(shutil.which, report_file.BROWSERS)), reason="there is no Chromium to print a PDF")
@pytest.mark.parametrize("verb", ["recommend", "plan"])
def test_a_pdf_is_one_page(tmp_path: Path, verb: str) -> None:
    file = tmp_path / f"{verb}.pdf"
    if verb == "recommend":
        whichgpu.recommend("serve", "llama-3.1-8b", rate="2/s", as_of="2026-10-01", report=str(file))
    else:
        whichgpu.plan("llama-3.1-8b", rate="9/s", as_of="2026-10-01", simulate=False, curve=False, report=str(file))
    content = file.read_bytes()
    assert content.startswith(b"%PDF")
    assert len(re.findall(rb"/Type /Page\b", content)) == 1
