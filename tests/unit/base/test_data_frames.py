"""Every answer gives its rows as a pandas or polars frame where that package is installed, and says what to install elsewhere."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import whichgpu


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_frame_has_the_rows_of_the_answer(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = whichgpu.gpus("T4", "L4")

    def frame(rows: list[dict[str, Any]], **_: Any) -> list[dict[str, Any]]:
        return rows

    monkeypatch.setitem(sys.modules, package, SimpleNamespace(DataFrame=frame))
    assert getattr(answer, f"to_{package}")() == answer.to_records()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(whichgpu.UsageError, match=f"needs the Python package {package}"):
        getattr(answer, f"to_{package}")()
