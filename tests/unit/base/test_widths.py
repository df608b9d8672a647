"""Texts of wide characters: measured, padded, cut and wrapped by the cells they take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichgpu.base.text_width import cell_width, pad, truncate, wrap

TEXTS = st.text(alphabet="ab -,显卡内存，。（）그래픽ạế", max_size=80)


def test_the_same_widths_as_the_terminal_library_has() -> None:
    cell_len = pytest.importorskip("rich.cells").cell_len
    for text in ("GPU", "그래픽 카드", "显卡：T4（16 GB）", "bộ nhớ", "–…°Cµ±×", "█"):
        assert cell_width(text) == cell_len(text)


@given(TEXTS, st.integers(4, 40))
def test_wrapped_lines_respect_the_width_and_lose_no_text(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(cell_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(TEXTS, st.integers(0, 40))
def test_cutting_and_padding_meet(text: str, width: int) -> None:
    short = truncate(text, width)
    assert text.startswith(short)
    assert cell_width(short) <= width
    assert cell_width(pad(short, width)) == width


def test_wrapping_preserves_indents_and_words() -> None:
    assert wrap("one two three", 8, "- ", "  ") == ["- one", "  two", "  three"]
    assert wrap("그래픽 카드 메모리", 12) == ["그래픽 카드", "메모리"]
    assert wrap("显存，容量", 6) == ["显存，", "容量"]  # no line begins with a mark that closes
