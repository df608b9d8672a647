"""`%whichgpu`: a command line in a notebook gives the answer that Python and the command line give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import whichgpu as wg


class Shell:
    """As much of IPython's shell as an extension uses."""

    def __init__(self) -> None:
        self.magics: dict[tuple[str, str], Callable[[str], Any]] = {}

    def register_magic_function(self, function: Callable[[str], Any], kind: str, name: str) -> None:
        self.magics[kind, name] = function


@pytest.fixture
def magic() -> Callable[[str], Any]:
    shell = Shell()
    wg.load_ipython_extension(shell)
    return shell.magics["line", "whichgpu"]


def test_answers_are_those_of_the_functions(magic: Callable[[str], Any]) -> None:
    assert magic("gpus 'H100 SXM'") == wg.gpus("H100 SXM")
    assert magic("fit llama-3.1-8b --gpu L4 --in 4096") == wg.fit("llama-3.1-8b", gpu="L4", seq_in=4096)
    assert magic("offers --gpu T4 --limit 2 --as-of 2025-06-01") == wg.offers(gpu="T4", limit=2, as_of="2025-06-01")
    assert "<table" in magic("gpus T4")._repr_html_()
    assert magic("catalog status") == wg.catalog_status()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "'",
        "dance",
        "web",
        "watch",
        "fit",
        "fit --gpu",
        "fit llama-3.1-8b --gpuz L4",
        "fit no-such-model",
        "gpus T4 --limit many",
    ],
)
def test_a_wrong_line_is_an_error_of_this_package(magic: Callable[[str], Any], line: str) -> None:
    with pytest.raises(wg.WhichGpuError):
        magic(line)


def test_help_is_printed(magic: Callable[[str], Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert magic("fit --help") is None
    assert "--gpu" in capsys.readouterr().out
