"""The pages of fit, recommend, plan and estimate have the files that start what they advise, as `--emit` prints them."""

from __future__ import annotations

import html
import re

import pytest

from whichgpu.base.messages import english
from whichgpu.surface.web.rendering import render_page


@pytest.mark.parametrize(
    ("page", "query", "tools"),
    [
        ("fit", "gpu=H100+SXM", {"vllm", "kubernetes"}),
        ("recommend", "rate=2/s&provider=aws&as_of=2026-10-01", {"vllm", "sglang", "slurm", "karpenter", "cloud-cli"}),
        ("recommend", "task=train&model=resnet50&samples=10000&as_of=2026-10-01", {"torchrun", "accelerate"}),
        ("plan", "what=server", {"vllm", "docker"}),
    ],
)
def test_a_page_has_the_files_of_each_tool(page: str, query: str, tools: set[str]) -> None:
    reply = render_page(page, "html", f"{query}&emit={min(tools)}", english())
    text = reply.body.decode()
    summaries = re.findall(r'<details name="use-it"( open)?><summary>(.*?)</summary>', text)
    assert tools <= {tool for _, tool in summaries}
    assert [tool for is_open, tool in summaries if is_open] == [min(tools)]
    ids = re.findall(r'data-copy="#(use-[\d-]+)"', text)
    assert len(ids) == len(set(ids)) == text.count('<code id="use-')
    assert all(f'<code id="{id}">' in text for id in ids)
    scripts = [html.unescape(one) for one in re.findall(r'<code id="use-[\d-]+">(.*?)</code>', text, re.DOTALL)]
    assert any(one.startswith("#!/bin/sh\n# whichgpu") for one in scripts)


def test_a_page_without_an_answer_has_no_files() -> None:
    assert "use-it" not in render_page("fit", "html", "model=resnet50&task=serve&seq_in=x", english()).body.decode()
