"""Every flag, field, error kind, config key, plan key and environment variable has words in the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from reference import commands, errors, fields, formulas, gpus, pages, records, rest, settings

from tests.surface.cli import call
from whichgpu.catalog.store import Catalog
from whichgpu.surface.web.endpoints import ENDPOINTS
from whichgpu.surface.web.endpoints import fields as endpoint_fields

# mappings whose keys are names of things: of data types, parts, models, GPUs …
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


def test_every_flag_has_words() -> None:
    found = [flag for name, command in commands.commands() for flag in commands.flags(name, command)]
    assert len(found) > 300
    assert [f"{flag.command} {flag.spelled}" for flag in found if not flag.meaning] == []
    page = commands.page()
    assert [flag.spelled for flag in found if flag.spelled not in page] == []


def test_every_field_of_every_answer_has_words() -> None:
    found = [field for record in records.all_records().values() for field in record.fields]
    assert len(found) > 500
    assert [f"{field.record}.{field.name}" for field in found if not field.meaning] == []
    page = fields.page()
    assert [field.name for field in found if f"`{field.name}`" not in page] == []


def test_words_for_fields_that_are_gone_are_gone_too() -> None:
    told = {(field.record, field.name): field.meaning for one in records.all_records().values() for field in one.fields}
    used = {(record, name) for (record, name), words in told.items() if records.meanings().get((record, name)) == words}
    used |= {("", name) for (_, name), words in told.items() if records.meanings().get(("", name)) == words}
    assert set(records.meanings()) - used == set()


def test_every_field_of_a_request_has_words() -> None:
    assert [name for name, words in settings.request_fields().items() if not words] == []


QUICK = [
    ("gpus", "T4"), ("instances", "p3dn.24xlarge"), ("cpus", "epyc"), ("regions", "Seoul"), ("models", "qwen2.5-7b"),
    ("engines", "vllm"), ("compare", "T4", "L4"), ("offers", "--gpu", "H100", "--currency", "KRW", "--limit", "3"),
    ("fit", "llama-3.1-8b", "--gpu", "T4"),
    ("estimate", "train", "resnet50", "--gpu", "T4", "--batch", "8"), ("buy", "RTX 4090"), ("doctor",), ("catalog", "status"),
    ("catalog", "history", "--gpu", "T4"), ("report-error", "t4"), ("recommend", "train", "--buy", "--budget", "1000usd"),
]  # fmt: skip


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_real_answers_hold_no_field_without_words(words: tuple[str, ...]) -> None:
    known = (
        {field.name for record in records.all_records().values() for field in record.fields}
        | ADDED
        | set(settings.request_fields())
    )
    reply = call(*words, "--json")
    assert sorted({name for name in _names(reply.json()) if name not in known}) == []


def test_every_error_kind_has_a_sentence() -> None:
    assert len(errors.kinds()) > 150
    assert [kind.name for kind in errors.kinds() if not errors.sentences(kind)] == []


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


def test_every_key_of_files_has_words() -> None:
    assert [key for key in settings.plan_keys() if not key.meaning] == []
    page = settings.page()
    assert [key for _, key in settings.config_keys() if f"`{key}`" not in page] == []


def test_every_environment_variable_has_words() -> None:
    assert settings.variables_read() - set(settings.variables()) == set()


def test_every_gpu_is_in_the_table() -> None:
    page = gpus.page()
    assert [gpu.id for gpu in Catalog().gpus if f"`{gpu.id}`" not in page] == []


def test_every_formula_has_symbols_a_source_and_code() -> None:
    for one in formulas.formulas():
        assert one.formula, one.name
        assert one.symbols, one.name
        assert one.source, one.name
        assert one.docstring(), one.name


def test_every_endpoint_and_parameter_is_told() -> None:
    page = rest.page()
    for endpoint in ENDPOINTS:
        assert f"/api/v1/{endpoint.path}`" in page
        assert [name for name in endpoint_fields(endpoint) if f"`{name}`" not in page] == []


def test_no_message_id_is_left_where_words_belong() -> None:
    for path, content in pages().items():
        assert re.findall(r"\| (?:option|command|error|web)\.[a-z-]+ \|", content) == [], path


def _names(value: Any, inside: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if inside not in BY_NAME:
                yield name
            yield from _names(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)
