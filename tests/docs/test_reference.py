"""Every flag, field, error kind, config key, plan key and environment variable has words in the reference, in every language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from reference import PAGES, commands, errors, formulas, glossary, pages, records, settings
from reference.translator import Translator

from tests.surface.cli import call
from whichgpu.base.messages import languages
from whichgpu.catalog.store import Catalog
from whichgpu.surface.web.rest.endpoints import ENDPOINTS
from whichgpu.surface.web.rest.endpoints import fields as endpoint_fields

# Mappings keyed by names: data types, parts, models, GPUs …
BY_NAME = {
    "peaks", "memory_parts", "cost_lines", "reasons", "relative", "rates", "gpus", "tasks", "why_not",
    "hour_lines", "sensitivity", "inputs", "rows", "packages", "countries", "without_rate", "ttft", "tpot", "latency",
    "changes", "request", "wishes", "earlier",
}  # fmt: skip
# what a surface adds around or in place of a record
ADDED = {
    "ok",
    "error",
    "choices",
    "hint",
    "speed",
    "live",
    "p50",
    "p90",
    "p95",
    "p99",
    "mean",
    "gives",
    "needs_key",
    "only_when_named",
    "source",
}


@cache
def reference_pages(code: str) -> tuple[Translator, dict[str, str]]:
    """The pages of a language by their names, and the translator that wrote them."""
    translator = Translator(code)
    return translator, {path.split("/")[-1].removesuffix(".md"): content for path, content in pages(translator).items()}


def rows(code: str, page: str) -> set[tuple[str, ...]]:
    """The rows of a page's tables: cells as they are written."""
    lines = reference_pages(code)[1][page].splitlines()
    return {tuple(line.removeprefix("| ").removesuffix(" |").split(" | ")) for line in lines if line.startswith("| ")}


in_every_language = pytest.mark.parametrize("code", languages())


def test_there_are_four_languages() -> None:
    assert languages() == ("en", "ko", "vi", "zh")


@in_every_language
def test_every_sentence_is_translated(code: str) -> None:
    translator, written = reference_pages(code)
    assert tuple(written) == PAGES
    assert len(translator.used) > 1000
    assert list(translator.lacking) == [], f"tools/translations missing {code}"


@in_every_language
def test_every_flag_has_words(code: str) -> None:
    flags = [flag for name, command in commands.commands() for flag in commands.flags(name, command)]
    assert len(flags) > 300
    assert [f"{flag.command} {flag.spelled}" for flag in flags if not flag.meaning(reference_pages(code)[0])] == []
    arguments = {(flag.command, flag.name) for flag in flags if flag.is_argument}
    assert {one for one in commands.arguments() if one[0]} == arguments
    meanings = {row[0]: row[2] for row in rows(code, "commands") if len(row) == 4}
    assert [flag.spelled for flag in flags if not meanings.get(flag.spelled)] == []


@in_every_language
def test_every_field_of_every_answer_has_words(code: str) -> None:
    fields = [field for record in records.all_records().values() for field in record.fields]
    assert len(fields) > 500
    translator = reference_pages(code)[0]
    assert [f"{field.record}.{field.name}" for field in fields if not translator.say(field.meaning)] == []
    meanings = {row[0]: row[2] for row in rows(code, "fields") if len(row) == 3}
    assert [field.name for field in fields if not meanings.get(f"`{field.name}`")] == []


def test_removed_fields_have_no_descriptions() -> None:
    meanings = {(field.record, field.name): field.meaning for one in records.all_records().values() for field in one.fields}
    used = {(record, name) for (record, name), words in meanings.items() if records.meanings().get((record, name)) == words}
    used |= {("", name) for (_, name), words in meanings.items() if records.meanings().get(("", name)) == words}
    assert set(records.meanings()) - used == set()


@in_every_language
def test_every_field_of_a_request_has_words(code: str) -> None:
    fields = settings.request_fields(reference_pages(code)[0])
    assert len(fields) > 30
    assert [name for name, words in fields.items() if not words] == []


QUICK = [
    ("gpus", "T4"), ("instances", "p3dn.24xlarge"), ("cpus", "epyc"), ("regions", "Seoul"), ("models", "qwen2.5-7b"),
    ("engines", "vllm"), ("evidence", "H100", "--limit", "3"), ("accuracy", "--gpu", "T4"),
    ("compare", "T4", "L4"), ("offers", "--gpu", "H100", "--currency", "KRW", "--limit", "3"),
    ("fit", "llama-3.1-8b", "--gpu", "T4"),
    ("estimate", "train", "resnet50", "--gpu", "T4", "--batch", "8"), ("buy", "RTX 4090"), ("doctor",), ("catalog", "status"),
    ("catalog", "history", "--gpu", "T4"), ("report-error", "t4"), ("recommend", "train", "--buy", "--budget", "1000usd"),
]  # fmt: skip


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_real_answers_hold_no_field_without_words(words: tuple[str, ...]) -> None:
    names = (
        {field.name for record in records.all_records().values() for field in record.fields}
        | ADDED
        | set(settings.request_fields(Translator()))
    )
    reply = call(*words, "--json")
    assert sorted({name for name in _names(reply.json()) if name not in names}) == []


@in_every_language
def test_every_error_kind_has_a_sentence(code: str) -> None:
    assert len(errors.kinds()) > 150
    assert [kind.name for kind in errors.kinds() if not errors.sentences(kind, reference_pages(code)[0])] == []
    sentences = {row[0]: row[2] for row in rows(code, "errors") if len(row) == 3}
    assert [kind.name for kind in errors.kinds() if not sentences.get(f"`{kind.name}`")] == []


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("gpus", "H101"), "unknown-gpu"),
        (("gpus", "--min-memory", "lots"), "bad-size"),
        (("offers", "--term", "forever"), "unknown-term"),
        (("gpus", "--sort", "beauty"), "unknown-field"),
        (("fit", "no-such-model"), "unknown-model"),
        (("gpus", "--min-memory", "900TB"), "no-gpu"),
        (("gpus", "--as-of", "soon"), "bad-date"),
        (("estimate", "train", "resnet50", "--gpu", "A100"), "ambiguous-gpu"),
        (("offers", "--gpu", "T4", "--currency", "XYZ"), "unknown-currency"),
        (("catalog", "diff", "@1", "@2"), "no-store"),
    ],
)
def test_errors_met_are_in_the_list(words: tuple[str, ...], kind: str) -> None:
    reply = call(*words, "--json")
    assert reply.json()["error"]["kind"] == kind
    assert (kind, reply.code) in {(one.name, one.exit_code) for one in errors.kinds()}


@in_every_language
def test_every_key_of_files_has_words(code: str) -> None:
    translator, written = reference_pages(code)
    assert [key for key in settings.plan_keys() if not key.meaning(translator)] == []
    assert [key for _, key in settings.config_keys() if f"`{key}`" not in written["settings"]] == []


@in_every_language
def test_every_key_of_config_files_is_a_flag_with_words(code: str) -> None:
    translator, commands_by_name = reference_pages(code)[0], dict(commands.commands())
    meanings = {
        name: {flag.name: flag.meaning(translator) for flag in commands.flags(name, commands_by_name[name])}
        for name in commands_by_name
    }
    shared = meanings["gpus"]
    assert [(table, key) for table, key in settings.config_keys() if not (meanings[table] if table else shared).get(key)] == []


@in_every_language
def test_every_environment_variable_has_words(code: str) -> None:
    assert settings.variables_read() - set(settings.variables()) == set()
    meanings = {row[0]: row[1] for row in rows(code, "settings") if len(row) == 2}
    assert [name for name in settings.variables() if not meanings.get(f"`{name}`")] == []


@in_every_language
def test_every_gpu_is_in_the_table(code: str) -> None:
    page = reference_pages(code)[1]["gpus"]
    assert [gpu.id for gpu in Catalog().gpus if f"`{gpu.id}`" not in page] == []


def test_every_formula_has_symbols_a_source_and_code() -> None:
    for one in formulas.formulas():
        assert one.formula, one.name
        assert one.symbols, one.name
        assert one.source, one.name
        assert one.docstring(), one.name


@in_every_language
def test_every_endpoint_and_parameter_is_documented(code: str) -> None:
    page = reference_pages(code)[1]["rest"]
    for endpoint in ENDPOINTS:
        assert f"/api/v1/{endpoint.path}`" in page
        assert [name for name in endpoint_fields(endpoint) if f"`{name}`" not in page] == []
    assert [row for row in rows(code, "rest") if len(row) == 3 and not row[2].strip()] == []


@in_every_language
def test_no_message_id_appears_in_texts(code: str) -> None:
    for path, content in reference_pages(code)[1].items():
        assert re.findall(r"\| (?:option|command|error|web)\.[a-z-]+ \|", content) == [], path


@in_every_language
def test_a_page_leads_to_the_same_page_in_other_languages(code: str) -> None:
    translator = reference_pages(code)[0]
    for name, content in reference_pages(code)[1].items():
        links = re.findall(r"\]\((\S+)\)", content.split("\n\n")[1])
        assert links == [f"{translator.up}{Translator(other).folder}/{name}.md" for other in languages() if other != code]


def test_missing_translations_are_listed_and_shown_in_english() -> None:
    translator = Translator("ko")
    assert translator.say("a sentence nobody translated: {n}", n=3) == "a sentence nobody translated: 3"
    assert translator.text("no.such-id") == "no.such-id"
    assert list(translator.lacking) == ["a sentence nobody translated: {n}", "no.such-id"]


def _names(value: Any, inside: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if inside not in BY_NAME:
                yield name
            yield from _names(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)


def test_the_glossary_page_is_made_from_its_table() -> None:
    assert glossary.PAGE.read_text(encoding="utf-8") == glossary.page()
