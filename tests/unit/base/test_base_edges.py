"""Where the values every room uses come to their edges: files that are none, names of results, texts that cannot be written."""

from __future__ import annotations

import errno
import os
from array import array
from decimal import Decimal
from pathlib import Path

import pytest

from whichgpu.base import bundled_data
from whichgpu.base.codec import flat, to_json, to_json_line
from whichgpu.base.disk_cache import content_hash, sweeps_folder
from whichgpu.base.figure import Figure
from whichgpu.base.files import read_regular_file, user_folder
from whichgpu.base.messages import english
from whichgpu.base.numerals import Numeral, is_quantity, localize_numbers
from whichgpu.base.po import PoCatalog
from whichgpu.base.text_width import cell_width, truncate, wrap


def test_only_regular_files_are_read_and_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular_file(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="larger than") as large:
        read_regular_file(tmp_path / "file", 4)
    assert large.value.errno == errno.EFBIG
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
            read_regular_file(tmp_path / name, 5)


def test_user_folder_is_from_the_environment_the_default_or_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert user_folder("XDG_CACHE_HOME", ".cache") == Path("/elsewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert user_folder("XDG_CACHE_HOME", ".cache") is sweeps_folder() is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_folder("XDG_CACHE_HOME", ".cache") == tmp_path / ".cache"
    assert sweeps_folder() == tmp_path / ".cache/whichgpu/sweeps"

    def homeless(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert user_folder("XDG_CACHE_HOME", ".cache") is None


class Slotted:
    __slots__ = ("first", "second")

    def __init__(self, first: object, second: object) -> None:
        self.first, self.second = first, second


def test_result_keys_depend_on_content_only() -> None:
    long = array("d", range(10_000))
    assert content_hash(long) == content_hash(array("d", range(10_000)))
    assert content_hash(long) != content_hash(array("q", range(10_000)))
    assert content_hash(long) != content_hash(long[:-1])
    assert content_hash(Slotted(1, long)) == content_hash(Slotted(1, long)) != content_hash(Slotted(2, long))
    with pytest.raises(TypeError, match="object cannot name a result"):
        content_hash(object())


def test_bytes_that_are_no_text_are_written_out_in_json() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert to_json_line({name: [name, 1]}) == '{"caf\\\\udce9":["caf\\\\udce9",1]}\n'
    assert to_json({"a": Numeral("1,234 GiB")}) == '{\n  "a": "1,234 GiB"\n}\n'
    with pytest.raises(TypeError, match="object has no form in JSON"):
        to_json(object())


def test_cells_are_numbers_or_exact_texts_by_type() -> None:
    assert flat({"price": Decimal("0.10"), "gpus": (1, 2)}) == {"price": "0.10", "gpus": "1;2"}
    assert flat({"price": Decimal("0.10")}, exact=False) == {"price": 0.1}


@pytest.mark.parametrize(
    ("text", "valid"), [("1,234", True), ("12.5 GiB", True), ("CUDA 12.4", False), ("8.0", False), ("", False)]
)
def test_quantity_has_only_numbers_and_units(text: str, valid: bool) -> None:
    assert is_quantity(text) is valid
    assert (localize_numbers(text, ",.") != text) is valid


def test_a_catalog_of_texts_counts_its_entries_and_reads_them_whole() -> None:
    entries = '\nmsgid ""\nmsgstr ""\n\nmsgid "a"\n"lost"\nmsgstr "one "\n"and \\"more\\"\\n"\n\nmsgid "b"\nmsgstr "two"\n'
    texts = PoCatalog(entries)
    assert (len(texts), list(texts), texts.plural) == (2, ["a", "b"], "0")
    assert texts["a"] == ('one and "more"\n',)
    assert len(english().ids()) > 1000


def test_without_checksums_no_file_counts_as_released(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bundled_data, "SUMS", tmp_path / "none")
    bundled_data.released_digests.cache_clear()
    try:
        assert bundled_data.released_digests() == {}
        assert len(bundled_data.altered_files()) == len(list(bundled_data.data_files()))
    finally:
        bundled_data.released_digests.cache_clear()


def test_words_longer_than_a_line_are_broken_and_none_is_lost() -> None:
    text = "ab " + "x" * 25 + " 显卡显卡显卡显卡"
    lines = wrap(text, 10, "- ", "  ")
    assert all(cell_width(line) <= 10 for line in lines)
    assert "".join(line[2:] for line in lines).replace(" ", "") == text.replace(" ", "")
    assert wrap("", 10) == wrap("   ", 10) == []
    assert truncate("显卡", 1) == ""
    assert wrap("显卡", 1) == ["显", "卡"]  # narrower than a character: one a line


def test_figure_is_within_its_range() -> None:
    with pytest.raises(ValueError, match="must lie in its range"):
        Figure(5.0, 6.0, 7.0, "s", "modelled")
    with pytest.raises(ValueError, match="must lie in its range"):
        Figure(float("nan"), 0.0, 1.0, "s", "modelled")
    assert Figure.exact(2.0, "s").relative_range == (1.0, 1.0)
