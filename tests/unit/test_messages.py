"""Message ids: every one used exists, every one that exists is used, and values go in as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import whichgpu
from whichgpu.base.errors import UnknownName
from whichgpu.base.messages import LOCALE_DIR, Language, Message, english, language, languages, msg
from whichgpu.catalog.schema import schema

SOURCE = Path(whichgpu.__file__).parent
USED = re.compile(r"""\b(?:msg|text)\(\s*f?["']([a-z0-9.{}_()' -]+?)["'][,)]""")


def texts_with_ids() -> list[str]:
    """Everything that names ids: the code and the templates of pages."""
    return [path.read_text(encoding="utf-8") for ending in ("py", "html") for path in SOURCE.rglob(f"*.{ending}")]


def ids_in_code() -> set[str]:
    """Ids as they stand in the code; an f-string's holes become `*`."""
    found = {id for text in texts_with_ids() for id in USED.findall(text)}
    return {re.sub(r"\{[^}]*\}", "*", id) for id in found}


def test_every_id_in_the_code_has_a_sentence() -> None:
    plain = {id for id in ids_in_code() if "*" not in id}
    assert len(plain) > 60
    assert sorted(id for id in plain if id not in english()) == []


def test_every_sentence_is_reached_from_the_code() -> None:
    code = "\n".join(texts_with_ids()).replace("'", '"')
    patterns = [re.compile(re.escape(id).replace(r"\*", "[a-z0-9_.-]+")) for id in ids_in_code()]
    # help texts are built from the names of commands and options; headings from the names of fields
    built = re.compile(r"(command\.[a-z-]+\.(help|short|examples)|option\.[a-z-]+|field\..+)")
    unused = [
        id
        for id in english().ids()
        if f'"{id}"' not in code and not any(pattern.fullmatch(id) for pattern in patterns) and not built.fullmatch(id)
    ]
    assert sorted(unused) == []


def test_no_other_language_has_ids_english_lacks() -> None:
    for code in languages():
        assert language(code).ids() <= english().ids()


def test_values_are_never_read_as_templates() -> None:
    assert english().render(msg("error.unknown-gpu", name="{0.__class__} %s")) == "there is no GPU named '{0.__class__} %s'"


def test_plural_follows_the_count() -> None:
    assert english().text("gpus.count", n=1) == "1 GPU."
    assert english().text("gpus.count", n=0) == "0 GPUs."


def test_lists_and_messages_nest() -> None:
    inner = msg("finding.no-source")
    assert english().render(msg("error.bad-data", path="t", key="k", column="c", detail=inner)).endswith("the row has no source")
    assert english().render(msg("hint.nearest", choices=("A", "B"))) == "did you mean: A, B?"
    assert len({msg("a", x=1), msg("a", x=1), msg("a", x=2)}) == 2


def test_a_language_falls_back_to_english_and_english_to_the_id() -> None:
    partial = Language("xx", {"word.yes": ("oui",)}, "0", english())
    assert partial.text("word.yes") == "oui"
    assert partial.text("word.no") == "no"
    assert english().text("no.such.id") == "no.such.id"
    assert language("tlh") is english()
    assert language("en_GB.UTF-8").code == "en"


def test_errors_read_as_english_for_python_users() -> None:
    error = UnknownName("unknown-gpu", Message("error.unknown-gpu", {"name": "H101"}))
    assert str(error) == "there is no GPU named 'H101'"
    assert error.exit_code == 2


@pytest.mark.parametrize("table", sorted(schema()))
def test_every_column_says_what_it_means(table: str) -> None:
    for field in schema()[table].values():
        assert field.meaning
        assert re.fullmatch(r"id|text|integers?|number|date|list|capability|choice:.+|refs?:[a-z_]+", field.type)


def test_no_id_is_given_twice() -> None:
    """The later sentence would silently take the place of the earlier one."""
    for file in LOCALE_DIR.glob("*.po"):
        ids = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("msgid ") and line != 'msgid ""']
        assert len(ids) == len(set(ids)), {one for one in ids if ids.count(one) > 1}
