"""Every language says what English says: nothing missing, stale or left over, every hole, command and blank in its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from translating import command
from translating.catalog import (
    Entry,
    block,
    books,
    called_by_english,
    digest,
    english,
    of_book,
    quoted,
    read,
    read_language,
    written,
    written_book,
)
from translating.checks import Problem, of_entry, problems

from whichgpu.base.messages import LOCALE_DIR, SOURCE_LANGUAGE, languages
from whichgpu.base.po import PoCatalog

OTHERS = [code for code in languages() if code != SOURCE_LANGUAGE]


@pytest.mark.parametrize("code", OTHERS)
def test_a_language_says_all_that_english_says_now(code: str) -> None:
    mistakes = problems(read_language(code), {**english(), **called_by_english()})
    summary = "\n".join(f"{one.kind}: {one.id} {one.detail}" for one in mistakes[:20])
    assert not mistakes, f"{len(mistakes)} in {code} (tools/translations missing {code}):\n{summary}"


@pytest.mark.parametrize("code", OTHERS)
def test_file_is_formatted_as_the_tool_writes_it(code: str) -> None:
    text = (LOCALE_DIR / f"{code}.po").read_text(encoding="utf-8")
    assert text == written(code, read(text), english())
    for book in books():
        text = (book.folder / f"{code}.po").read_text(encoding="utf-8")
        assert text == written_book(book, code, of_book(text))


ENGLISH = {
    "a": ("{n} GPU.", "{n} GPUs in {where}."),
    "b": ("Try:\n  whichgpu gpus T4\nor `fit` with --gpu.",),
    "c": ("Usage: ",),
}
FACT = 'A "fact" of 5 GB; no more.'
MEANING = "what `--gpu` means"
GOOD = {
    "a": "{where} GPU {n}개.",
    "b": "다음:\n  whichgpu gpus T4\n또는 --gpu와 `fit`.",
    "c": "사용법: ",
}


def entries(**changed: str) -> dict[str, Entry]:
    return {id: Entry((text,), digest(ENGLISH[id])) for id, text in {**GOOD, **changed}.items()}


def test_a_good_translation_has_no_problems() -> None:
    assert problems(entries(), ENGLISH) == []
    assert problems(entries(c="用法："), ENGLISH) == []  # a wide mark has its blank in itself


@pytest.mark.parametrize(
    ("id", "text", "kind"),
    [
        ("a", "GPU {n}개.", "holes"),
        ("a", "{where} GPU {n}개 {more}.", "holes"),
        ("a", "{where!r} GPU {n}개.", "holes"),
        ("b", "다음: whichgpu gpus T4\n또는 --gpu와 `fit`.", "lines"),
        ("b", "다음:\n  whichgpu gpus T5\n또는 --gpu와 `fit`.", "typed"),
        ("b", "다음:\n  whichgpu gpus T4\n또는 --지피유와 `fit`.", "typed"),
        ("b", "다음:\n  whichgpu gpus T4\n또는 --gpu와 `맞춤`.", "typed"),
        ("c", "사용법:", "blanks"),
    ],
)
def test_mechanical_translation_mistakes_are_reported(id: str, text: str, kind: str) -> None:
    assert kind in {one.kind for one in problems(entries(**{id: text}), ENGLISH) if one.id == id}


def test_missing_superfluous_stale_and_plural_forms_are_reported() -> None:
    translated = entries()
    del translated["c"]
    translated["d"] = Entry(("x",), "00000000")
    translated["b"] = Entry(translated["b"].forms, "00000000")
    translated["a"] = Entry(("{n} {where}", "{n} {where}"), digest(ENGLISH["a"]))
    kinds = {(one.kind, one.id) for one in problems(translated, ENGLISH)}
    assert kinds == {("missing", "c"), ("superfluous", "d"), ("stale", "b"), ("forms", "a")}


def test_a_changed_sentence_makes_its_translation_stale() -> None:
    entry = entries()["c"]
    assert list(of_entry("c", entry, ("Usage: ",))) == []
    assert list(of_entry("c", entry, ("How to use: ",))) == [Problem("stale", "c")]


@pytest.mark.parametrize("text", ['say "yes"', "a\\nb", "one\ntwo\n", "\n", "tab\there", "  x ", "{a} 显卡"])
def test_texts_survive_a_file_round_trip(text: str) -> None:
    assert PoCatalog(block("x", (text,), False))["x"] == (text,)
    assert PoCatalog(block("x", (text,), True))["x"] == (text,)
    assert quoted(text).startswith('"')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of catalogs of its own."""
    source = "\n".join(block(id, forms, len(forms) > 1) for id, forms in ENGLISH.items())
    (tmp_path / "en.po").write_text('msgid ""\nmsgstr ""\n\n' + source)
    for module in ("translating.catalog", "translating.command"):
        monkeypatch.setattr(f"{module}.LOCALE_DIR", tmp_path)
    monkeypatch.setattr("translating.catalog.FACTS_DIR", tmp_path / "facts")
    monkeypatch.setattr("translating.catalog.WORDS_DIR", tmp_path / "words")
    monkeypatch.setattr("translating.catalog.reference", lambda: {MEANING: (MEANING,)})
    (tmp_path / "quirks.csv").write_text('id,text\nq,"A ""fact"" of 5 GB; no more."\n')
    monkeypatch.setattr("translating.catalog.DATA", tmp_path)
    monkeypatch.setattr("translating.catalog.TABLES", {"quirks": ("text",)})
    monkeypatch.setattr("translating.catalog.ENGLISH", tmp_path / "en.po")
    return tmp_path


def test_apply_keeps_the_order_of_english_and_says_of_which_english_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = folder / "older.po"
    older.write_text((folder / "en.po").read_text().replace("Usage", "How to use"))
    (folder / "1.po").write_text("\n".join(block(id, (GOOD[id],), id == "a") for id in ("c", "b")) + '\nmsgid "no"\nmsgstr "x"\n')
    (folder / "2.po").write_text(
        block("a", (GOOD["a"],), True)
        + "\n"
        + block(FACT, ("5 GB라는 사실.",), False)
        + "\n"
        + block(MEANING, ("`--gpu`의 의미",), False)
    )
    files = [str(folder / "1.po"), str(folder / "2.po")]
    assert command.main(["apply", "ko", *files, "--from", str(older)]) == 0
    assert "5 put in place, 1 unknown" in capsys.readouterr().out
    assert list(read_language("ko")) == ["a", "b", "c", FACT, MEANING]
    assert list(of_book((folder / "words" / "ko.po").read_text())) == [MEANING]
    assert command.main(["status", "ko"]) == 1
    assert "1 stale" in capsys.readouterr().out
    command.main(["missing", "ko"])
    output = capsys.readouterr().out
    assert '# en: "Usage: "\n# now: "사용법: "\nmsgid "c"\nmsgstr ""\n' in output
    assert command.main(["apply", "ko", *files]) == 0
    assert command.main(["status", "ko"]) == 0
    assert (
        command.main(["apply", "ko", str(folder / "1.po"), "--from", str(older)]) == 0
    )  # today's is not replaced by an older one
    assert command.main(["check", "ko"]) == 0


def test_prune_removes_messages_missing_in_english(folder: Path) -> None:
    (folder / "ko.po").write_text(written("ko", {**entries(), "d": Entry(("x",), "00000000")}, ENGLISH))
    (folder / "1.po").write_text(block(FACT, ("사실",), False) + "\n" + block(MEANING, ("`--gpu`의 의미",), False))
    command.main(["apply", "ko", str(folder / "1.po")])
    assert command.main(["status", "ko"]) == 1
    assert command.main(["prune", "ko"]) == 0
    assert command.main(["status", "ko"]) == 0


def test_a_sentence_no_book_has_any_more_does_not_get_among_the_messages(folder: Path) -> None:
    (folder / "words").mkdir()
    (folder / "words" / "ko.po").write_text(block("what it meant", ("옛 의미",), False))
    (folder / "1.po").write_text(block(MEANING, ("`--gpu`의 의미",), False))
    assert command.main(["apply", "ko", str(folder / "1.po")]) == 1  # it is reported
    assert list(read_language("ko")) == [MEANING]


def test_unknown_english_message_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "1.po").write_text(block("c", (GOOD["c"],), False))
    assert command.main(["apply", "ko", str(folder / "1.po"), "--from", "no-such-commit"]) == 2
    assert "no en.po" in capsys.readouterr().err
