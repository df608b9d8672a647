"""Message ids: every one used exists, every one that exists is used, and values go in as they are."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

import whichgpu
from whichgpu.api.facts.engines import EngineRow
from whichgpu.api.facts.models import ModelRow
from whichgpu.api.prices.store import SnapshotRow
from whichgpu.api.workloads.fit import FitRow
from whichgpu.base.codec import columns
from whichgpu.base.errors import UnknownName
from whichgpu.base.messages import COUNTS, LOCALE_DIR, Fact, Language, Message, code_of, english, language, languages, msg
from whichgpu.base.numerals import Numeral
from whichgpu.base.po import PoCatalog
from whichgpu.base.units import format_memory, with_unit
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Cpu, Instance, Region
from whichgpu.catalog.live.queries import SeriesStatus
from whichgpu.catalog.schema import schema
from whichgpu.catalog.status import TableStatus
from whichgpu.catalog.store import Catalog
from whichgpu.surface.cli.click_parts import HelpGroup
from whichgpu.surface.cli.main import root

SOURCE = Path(whichgpu.__file__).parent
CONTEXT = click.Context(root)
USED = re.compile(r"""\b(?:msg|text)\(\s*f?["']([a-z0-9.{}_()' -]+?)["'][,)]""")


def texts_with_ids() -> list[str]:
    """Everything that names ids: the code and the templates of pages."""
    return [path.read_text(encoding="utf-8") for ending in ("py", "html") for path in SOURCE.rglob(f"*.{ending}")]


def ids_in_code() -> set[str]:
    """Ids as written in the code; an f-string's fields become `*`."""
    ids = {id for text in texts_with_ids() for id in USED.findall(text)}
    return {re.sub(r"\{[^}]*\}", "*", id) for id in ids}


def test_every_id_in_the_code_has_a_sentence() -> None:
    plain = {id for id in ids_in_code() if "*" not in id}
    assert len(plain) > 60
    assert sorted(id for id in plain if id not in english()) == []


def test_every_sentence_is_reached_from_the_code() -> None:
    code = "\n".join(texts_with_ids()).replace("'", '"')
    holes = ids_in_code() - {"field.*", "option.*"}  # would let every id of their kind pass
    patterns = [re.compile(re.escape(id).replace(r"\*", "[a-z0-9_.-]+")) for id in holes]
    built = ids_of_commands() | {f"field.{name}" for name in fields_shown()}
    unused = [
        id
        for id in english().ids()
        if id not in built and f'"{id}"' not in code and not any(pattern.fullmatch(id) for pattern in patterns)
    ]
    assert sorted(unused) == []


def test_every_command_and_option_has_help() -> None:
    assert sorted(id for id in ids_of_commands() if id not in english()) == []


def ids_of_commands() -> set[str]:
    """Ids of help texts, which are built from the names of commands and options."""
    ids = {param.help for param in root.params if isinstance(param, click.Option) and param.help}
    waiting: list[tuple[click.Group, str]] = [(root, name) for name in root.list_commands(CONTEXT)]
    while waiting:
        group, name = waiting.pop()
        command = group.get_command(CONTEXT, name)
        assert command is not None
        assert isinstance(group, HelpGroup)
        ids |= {group.short(name), *filter(None, (command.help, command.epilog))}
        ids |= {param.help for param in command.params if isinstance(param, click.Option) and param.help}
        if isinstance(command, click.Group):
            waiting += [(command, under) for under in command.list_commands(CONTEXT)]
    return ids | {"option.help"}


def fields_shown() -> set[str]:
    """Names of fields that may head a column: those of rows, of tables of the surface's own, and of indices."""
    rows = (Gpu, Instance, Cpu, Region, EngineRow, ModelRow, SeriesStatus, TableStatus, FitRow, SnapshotRow)
    own = {word for path in (SOURCE / "surface").rglob("*.py") for word in re.findall(r"[a-z0-9_.]+", path.read_text("utf-8"))}
    return (
        own | {name for kind in rows for name in columns(kind)} | {f"relative.{item.index}" for item in Catalog().reference_mix}
    )


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
def test_every_column_has_a_description(table: str) -> None:
    for field in schema()[table].values():
        assert field.meaning
        assert re.fullmatch(r"id|text|integers?|number|date|list|capability|choice:.+|refs?:[a-z_]+", field.type)


def test_message_ids_are_unique() -> None:
    """The later sentence would silently take the place of the earlier one."""
    for file in LOCALE_DIR.glob("*.po"):
        ids = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("msgid ") and line != 'msgid ""']
        assert len(ids) == len(set(ids)), {one for one in ids if ids.count(one) > 1}


def test_only_numbers_are_localised() -> None:
    texts = {"a": ("{rate} of {name} at {version} ({size})",), "number.marks": (",.",), "unit.requests-rate": ("yêu cầu/s",)}
    other = Language("xx", texts, "0", english())
    text = other.text("a", rate="2.5", name="2.5", version="1.5 GB", size=format_memory(4718592))
    assert text == "2,5 of 2.5 at 1.5 GB (4,5 MiB)"
    assert other.localize("1,234.5 requests/s") == "1.234,5 yêu cầu/s"
    assert other.localize("llama-3.1-8b") == "llama-3.1-8b"
    assert english().localize("1,234.5 requests/s") == "1,234.5 requests/s"


def test_message_is_rendered_in_a_language_that_has_it() -> None:
    fact = "It has no NVLink: several of them talk over PCIe."
    assert language("ko").fact(fact) != fact
    assert language("ko").fact("No table has this.") == "No table has this."
    assert language("ko").render(msg("recommend.quirk", gpu="T4", text=Fact(fact))).endswith(language("ko").fact(fact))
    assert english().fact(fact) == fact


@pytest.mark.parametrize("plain", ["no-such", "", "xx", "C.UTF-8", "POSIX", "../en", "en/../ko"])
def test_invalid_language_names_are_none(plain: str) -> None:
    assert code_of(plain) is None


@pytest.mark.parametrize(
    ("id", "values", "one", "several"),
    [
        ("plan.traffic", {"model": "m"}, "1 request/s of m", "1.5 requests/s of m"),
        (
            "serving.sustains",
            {"low": "0.9", "high": "1.1"},
            "Saturation: 1 request/s (0.9 to 1.1).",
            "Saturation: 1.5 requests/s (0.9 to 1.1).",
        ),
    ],
)
def test_a_rate_of_one_is_one(id: str, values: dict[str, str], one: str, several: str) -> None:
    assert english().text(id, rate=Numeral("1"), **values) == one
    assert english().text(id, rate=Numeral("1.5"), **values) == several
    assert english().text(id, rate=Numeral("0"), **values).startswith(several.split("1.5")[0] + "0 requests")


def test_word_units_are_translated_also_in_the_singular() -> None:
    assert english().localize(with_unit(1.0, "requests/s")) == "1 request/s"
    assert language("vi").localize(with_unit(1.0, "requests/s")) == "1 yêu cầu/s"
    assert language("vi").localize(with_unit(1.5, "output tokens/s")) == "1,5 token đầu ra/s"


def test_plural_message_has_its_count() -> None:
    texts = PoCatalog((LOCALE_DIR / "en.po").read_text(encoding="utf-8"))
    several = {id: forms[-1] for id, forms in texts.items() if len(forms) > 1}
    assert len(several) > 80
    unseen = {"web.unknown-parameters"}  # counts names that it lists
    unseen |= {id for id in several if id.startswith("rejected.") and id != "rejected.counted"}  # the number precedes them
    assert {id for id, text in several.items() if not any(f"{{{name}}}" in text for name in COUNTS)} == unseen


@pytest.mark.parametrize(
    ("id", "hole", "one", "many"),
    [
        ("rejected.memory", "n", "does not fit", "do not fit"),
        ("because.bound", "months", "1 month of", "2 months of"),
        ("error.nodes", "gpus", "1 GPU cannot", "2 GPUs cannot"),
        ("warning.rate", "batch", "1 sequence;", "2 concurrent sequences;"),
        ("trace.cells", "found", "1 cell where", "2 cells where"),
    ],
)
def test_one_is_one_in_verbs_and_nouns(id: str, hole: str, one: str, many: str) -> None:
    others = {"cost": "9 USD", "nodes": 4, "wanted": 3}
    assert one in english().text(id, **{**others, hole: "1"})
    assert many in english().text(id, **{**others, hole: "2"})
