"""Python users ask with the command line's words and get its answers: as documents, rows, tables and charts."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whichgpu as wg
from tests.surface.cli import call
from whichgpu.api.request.field import fields_of
from whichgpu.api.request.load import EstimateRequest
from whichgpu.api.request.plan import PlanRequest
from whichgpu.api.request.read import read_field
from whichgpu.api.request.recommend import RecommendRequest
from whichgpu.surface.cli.click_parts import SHARED_OPTIONS, click_command
from whichgpu.surface.commands.command import DATA, command_named
from whichgpu.surface.commands.render.recording_session import RecordedTable
from whichgpu.surface.python import answer_display as showing

DAY = "2025-06-01"
ROOM: dict[str, Any] = {"seq_in": 500, "seq_out": 100}
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 8192, "vocab_size": 128256,
}  # fmt: skip
CASES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "gpus": (lambda: wg.gpus("H100", sort="-memory_bandwidth"), ("gpus", "H100", "--sort", "-memory_bandwidth")),
    "gpus filtered": (
        lambda: wg.gpus(min_memory=80 * 2**30, supports=["bf16", "fp8"]),
        ("gpus", "--min-memory", "80GiB", "--supports", "bf16,fp8"),
    ),
    "gpus relative": (lambda: wg.gpus(["T4", "L4"], relative_to="T4"), ("gpus", "T4", "L4", "--relative-to", "T4")),
    "instances": (lambda: wg.instances("p3.2xlarge"), ("instances", "p3.2xlarge")),
    "instances by count": (
        lambda: wg.instances(provider="aws", gpus=(4, 8)),
        ("instances", "--provider", "aws", "--gpus", "4..8"),
    ),
    "cpus": (lambda: wg.cpus(sort="cores"), ("cpus", "--sort", "cores")),
    "regions": (lambda: wg.regions("Germany"), ("regions", "Germany")),
    "models": (lambda: wg.models("llama-3.1-8b"), ("models", "llama-3.1-8b")),
    "engines": (lambda: wg.engines(), ("engines",)),
    "evidence": (
        lambda: wg.evidence("H100", "llama", engine=["vllm"], limit=3),
        ("evidence", "H100", "llama", "--engine", "vllm", "--limit", "3"),
    ),
    "accuracy": (lambda: wg.accuracy(gpu="T4", by="task", worst=3), ("accuracy", "--gpu", "T4", "--by", "task", "--worst", "3")),
    "offers": (
        lambda: wg.offers(gpu=["L4", "T4"], near="Seoul", max_latency=0.1, as_of=date(2025, 6, 1), limit=5),
        ("offers", "--gpu", "L4,T4", "--near", "Seoul", "--max-latency", "100ms", "--as-of", DAY, "--limit", "5"),
    ),
    "offers converted": (
        lambda: wg.offers(gpu="T4", currency="KRW", exchange_rate={"KRW": 1190}, as_of=DAY, limit=2),
        ("offers", "--gpu", "T4", "--currency", "KRW", "--exchange-rate", "KRW=1190", "--as-of", DAY, "--limit", "2"),
    ),
    "compare": (
        lambda: wg.compare("T4", "L4", task="prefill", model="llama-3.1-8b", seq_in=512),
        ("compare", "T4", "L4", "--task", "prefill", "--model", "llama-3.1-8b", "--in", "512"),
    ),
    "fit": (
        lambda: wg.fit("llama-3.1-8b", gpu=["L4", "T4"], precision="int4", seq_in=2048),
        ("fit", "llama-3.1-8b", "--gpu", "L4", "--gpu", "T4", "--precision", "int4", "--in", "2048"),
    ),
    "fit where nothing does": (lambda: wg.fit("llama-3.1-405b", gpu="T4"), ("fit", "llama-3.1-405b", "--gpu", "T4")),
    "estimate": (
        lambda: wg.estimate("decode", "llama-3.1-8b", gpu="H100 SXM", gpus=2, tp=2, batch=8),
        ("estimate", "decode", "llama-3.1-8b", "--gpu", "H100 SXM", "--gpus", "2", "--tp", "2", "--batch", "8"),
    ),
    "estimate of a config": (
        lambda: wg.estimate("prefill", LLAMA, parallel={"tp": 2}, gpu="L40S", gpus=2),
        ("estimate", "prefill", json.dumps(LLAMA), "--parallel", "tp=2", "--gpu", "L40S", "--gpus", "2"),
    ),
    "estimate under load": (
        lambda: wg.estimate("serve", "llama-3.1-8b", gpu="L40S", rate=1.5, tpot=0.05, count=50, seq_in=100, seq_out=20),
        ("estimate", "serve", "llama-3.1-8b", "--gpu", "L40S", "--rate", "1.5/s", "--tpot", "50ms", "--count", "50",
         "--in", "100", "--out", "20"),
    ),
    "recommend": (
        lambda: wg.recommend("batch", "llama-3.1-8b", samples=100_000, deadline="24h", provider="aws", as_of=DAY, **ROOM),
        ("recommend", "batch", "llama-3.1-8b", "--samples", "100k", "--deadline", "24h", "--provider", "aws", "--as-of", DAY,
         "--in", "500", "--out", "100"),
    ),
    "plan": (
        lambda: wg.plan("llama-3.1-8b", rate="5/s", tpot="50ms", gpu="L40S", simulate=False, curve=False, as_of=DAY, **ROOM),
        ("plan", "llama-3.1-8b", "--rate", "5/s", "--tpot", "50ms", "--gpu", "L40S", "--no-simulate", "--no-curve", "--as-of",
         DAY, "--in", "500", "--out", "100"),
    ),
    "plan of a config": (
        lambda: wg.plan(LLAMA, rate="5/s", gpu="L40S", simulate=False, curve=False, as_of=DAY, **ROOM),
        ("plan", json.dumps(LLAMA), "--rate", "5/s", "--gpu", "L40S", "--no-simulate", "--no-curve", "--as-of", DAY,
         "--in", "500", "--out", "100"),
    ),
    "buy": (
        lambda: wg.buy("RTX 4090", price={"RTX 4090": "1800usd"}, host_price=wg.Money(Decimal(900), "USD"), as_of=DAY),
        ("buy", "RTX 4090", "--price", "RTX 4090=1800usd", "--host-price", "900usd", "--as-of", DAY),
    ),
    "catalog status": (lambda: wg.catalog_status(), ("catalog", "status")),
    "catalog history": (
        lambda: wg.catalog_history("A100 SXM 80GB", provider="aws"),
        ("catalog", "history", "--gpu", "A100 SXM 80GB", "--provider", "aws"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """Each called once."""
    return {}


def answer_of(name: str, answers: dict[str, Any]) -> Any:
    if name not in answers:
        answers[name] = CASES[name][0]()
    return answers[name]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sweep(2)
def test_an_answer_is_the_document_the_command_prints(name: str, answers: dict[str, Any]) -> None:
    printed = call(*CASES[name][1], "--json")
    answer = answer_of(name, answers)
    if name.startswith("plan"):  # how long it took to solve is never the same
        assert answer.to_dict() | {"seconds": 0} == printed.json() | {"seconds": 0}
        return
    assert answer.to_dict() == printed.json()
    assert answer.to_json() == printed.out


@pytest.mark.parametrize("name", CASES)
def test_an_answer_shows_its_sentence_and_its_table(name: str, answers: dict[str, Any]) -> None:
    answer = answer_of(name, answers)
    headline = answer.headline()
    assert headline
    assert repr(answer).startswith(headline)
    page = answer._repr_html_()
    assert page.count("<table>") >= 1
    assert page.index("<strong>") < page.index("<table>")
    assert page.count("<tr>") == page.count("</tr>") > 1


@pytest.mark.parametrize("name", CASES)
def test_records_are_flat_and_have_one_set_of_keys(name: str, answers: dict[str, Any]) -> None:
    rows = answer_of(name, answers).to_records()
    assert rows
    assert len({tuple(row) for row in rows}) == 1
    kinds = {type(value) for row in rows for value in row.values()}
    assert kinds <= {str, int, float, bool, type(None)}


def test_money_in_records_is_a_number(answers: dict[str, Any]) -> None:
    row = answer_of("offers", answers).to_records()[0]
    assert isinstance(row["price.amount"], float)
    assert row["price.amount"] == float(answer_of("offers", answers).offers[0].price.amount)


@pytest.mark.parametrize("name", ["fit", "estimate under load", "recommend", "plan", "catalog history"])
def test_charts_are_specs_that_draw(name: str, answers: dict[str, Any]) -> None:
    chart = answer_of(name, answers).chart()
    assert isinstance(chart, wg.Chart)
    assert json.loads(json.dumps(chart)) == chart
    bundle = chart._repr_mimebundle_()
    assert bundle["application/vnd.vegalite.v5+json"]["$schema"].endswith("vega-lite/v5.json")
    assert bundle["image/svg+xml"].startswith("<svg")
    assert bundle["text/plain"].startswith("<Chart: ")
    assert len(bundle["text/plain"]) > 12


def test_a_chart_without_a_converter_is_still_a_spec(answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert set(answer_of("fit", answers).chart()._repr_mimebundle_()) == {"application/vnd.vegalite.v5+json", "text/plain"}


def test_a_chart_is_saved_as_its_ending_says(answers: dict[str, Any], tmp_path: Path) -> None:
    answer_of("fit", answers).chart().save(str(tmp_path / "fit.svg"))
    assert (tmp_path / "fit.svg").read_text().startswith("<svg")


def test_answer_without_a_chart_lists_those_with_one(answers: dict[str, Any]) -> None:
    with pytest.raises(wg.NoAnswer, match="GpusAnswer"):
        answer_of("gpus", answers).chart()


DECLARED = sorted({*showing.COMMANDS.values(), "catalog sources"})


@pytest.mark.parametrize("name", DECLARED)
def test_flags_are_the_fields_of_the_request(name: str) -> None:
    """One declaration: every field is a flag or argument of the command line, and nothing else is."""
    declared = fields_of(command_named(name).request)
    flags = {param.name for param in click_command(name).params} - set(SHARED_OPTIONS)
    assert flags == set(declared) - set(DATA)


def test_every_field_with_a_unit_takes_a_bare_number() -> None:
    """A bare number is in the base unit wherever the command wants a duration, a size or a rate."""
    units = {"TIME", "DURATION", "SIZE", "RATE", "N/s"}
    for name in DECLARED:
        for field in command_named(name).fields.values():
            if field.metavar in units:
                assert getattr(field.kind, "unit", ""), (name, field.name)


def test_every_kind_of_answer_is_shown_by_a_command() -> None:
    for kind, name in showing.COMMANDS.items():
        assert command_named(name).show.__name__ != "_shown_nowhere", kind


def test_numbers_and_texts_with_units_mean_the_same() -> None:
    assert wg.gpus(min_bandwidth=3 * 10**12).gpus == wg.gpus(min_bandwidth="3TB/s").gpus
    fitted = [wg.fit("llama-3.1-8b", gpu="L4", batch=batch).needed for batch in (4, "4")]
    assert fitted[0] == fitted[1]


@pytest.mark.parametrize(
    ("request_type", "name", "value", "text"),
    [
        (RecommendRequest, "deadline", 86400, "86400s"),
        (RecommendRequest, "max_latency", 0.1, "0.1s"),
        (RecommendRequest, "tpot_max", 0.05, "0.05s"),
        (RecommendRequest, "min_memory", 85899345920, "85899345920B"),
        (RecommendRequest, "rate", 2, "2.0/s"),
        (RecommendRequest, "gpus", (1, 8), "1..8"),
        (RecommendRequest, "term", ["spot", "on-demand"], "spot,on-demand"),
        (RecommendRequest, "budget", wg.Money(Decimal("2.50"), "USD"), "2.50usd"),
        (RecommendRequest, "exchange_rate", {"KRW": 1190}, "KRW=1190"),
        (EstimateRequest, "in_histogram", {512: 0.3, 1024: 0.7}, "512:0.3,1024:0.7"),
        (RecommendRequest, "plot", Path("a.svg"), "a.svg"),
        (RecommendRequest, "checkpointing", True, "true"),
        (PlanRequest, "time_limit", Decimal("1.50"), "1.5s"),
    ],
)
def test_value_and_its_text_are_equivalent(request_type: type, name: str, value: object, text: str) -> None:
    field = fields_of(request_type)[name]
    assert read_field(field, value) == read_field(field, text)


def test_words_of_a_page_are_escaped() -> None:
    config = {**LLAMA, "model_type": "llama", "_name_or_path": "<script>alert(1)</script>"}
    answer = wg.fit(config, gpu="L4")
    table = RecordedTable(("<b>",), (("<i>&",),))
    assert "<script>" not in answer._repr_html_()
    drawn = showing._table(table, showing._language("en"))
    assert "&lt;b&gt;" in drawn
    assert "&lt;i&gt;&amp;" in drawn


def test_long_tables_count_omitted_rows() -> None:
    answer = wg.gpus()
    left = len(answer.gpus) - showing.MAX_ROWS
    assert f"{left} more rows" in answer._repr_html_()
    assert f"{left} more rows" in repr(answer)
    assert len(answer.to_records()) == len(answer.gpus)


@pytest.mark.parametrize(
    ("ask", "kind", "error"),
    [
        (lambda: wg.gpus("H101"), "unknown-gpu", wg.UnknownName),
        (lambda: wg.estimate("decode", "llama-3.1-8b", gpu="A100"), "ambiguous-gpu", wg.AmbiguousName),
        (lambda: wg.fit("llama-3.1-8b", gpuu="T4"), "unknown-field", wg.UnknownName),  # type: ignore[call-arg]
        (lambda: wg.recommend("serve", "llama-3.1-8b", tpot="soon"), "bad-field", wg.UsageError),
        (lambda: wg.estimate("serve", "llama-3.1-8b", gpu="L4", prefix_caching="yes"), "bad-field", wg.UsageError),  # type: ignore[arg-type]
        (lambda: wg.plan("llama-3.1-8b", tpot="50ms", tpot_max="50ms"), "given-twice", wg.UsageError),
        (lambda: wg.gpus(min_memory="9999TB"), "no-gpu", wg.NoAnswer),
        (lambda: wg.offers(gpu="T4", limit="none"), "bad-row-limit", wg.UsageError),
        (lambda: wg.recommend("serve", "llama-3.1-8b", interruptions=0.1), "bad-rate", wg.UsageError),  # type: ignore[arg-type]
        (lambda: wg.recommend("train", []), "bad-field", wg.UsageError),  # type: ignore[arg-type]
        (lambda: wg.compare("T4", task="decode", model=[]), "bad-field", wg.UsageError),  # type: ignore[arg-type]
        (lambda: wg.estimate("decode", "llama-3.1-8b", gpu="L4", batch=[1]), "bad-field", wg.UsageError),  # type: ignore[arg-type]
        (lambda: wg.estimate("decode", "llama-3.1-8b", gpu="L4", gpus=1.5), "bad-field", wg.UsageError),  # type: ignore[arg-type]
        (lambda: wg.recommend("train", "resnet50", gpus=1.5), "bad-span", wg.UsageError),  # type: ignore[arg-type]
        (lambda: wg.offers(gpus=(1, 2.5)), "bad-span", wg.UsageError),  # type: ignore[arg-type]
    ],
)
def test_errors_are_python_exceptions_with_their_hint(ask: Callable[[], Any], kind: str, error: type[wg.WhichGpuError]) -> None:
    with pytest.raises(error) as caught:
        ask()
    assert caught.value.kind == kind
    assert str(caught.value)
    if caught.value.hint:
        assert any(note.startswith("hint: ") for note in caught.value.__notes__)


def test_list_of_none_is_no_constraint() -> None:
    assert wg.gpus([], supports=[]).gpus == wg.gpus().gpus


@pytest.mark.parametrize("lang", [5, [], "tlh", ""])
def test_unknown_language_is_refused_with_the_available_ones(lang: Any) -> None:
    answer = wg.gpus("T4")
    for ask in (answer.headline, answer.to_json, answer.to_dict, wg.set_language):
        with pytest.raises(wg.UnknownName) as caught:
            ask(lang)
        assert (caught.value.kind, "ko" in caught.value.choices) == ("unknown-language", True)


def test_refusal_has_a_hint() -> None:
    with pytest.raises(wg.UnknownName) as caught:
        wg.gpus("H10 SXM")
    assert "H100 SXM" in caught.value.choices


def test_functions_named_like_subpackages_are_callable() -> None:
    """`whichgpu.estimate` and `whichgpu.measure` are packages too; loading them must not hide the verbs."""
    import whichgpu.estimate.fit
    import whichgpu.measure.report.doctor  # noqa: F401

    assert inspect.isfunction(wg.estimate)
    assert inspect.isfunction(wg.measure)


def test_importing_the_package_loads_neither_the_parser_nor_numpy() -> None:
    code = "import sys, whichgpu; print(sorted({'click', 'numpy', 'typing', 'msgspec', 'rich'} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"], capture_output=True
    )
    assert result.stdout.decode().strip() == "[]", result.stderr.decode()


def test_requests_are_dicts_or_lines() -> None:
    request = {"id": 7, "task": "decode", "model": "llama-3.1-8b", "gpu": "L4"}
    replies = list(wg.estimate_requests([request, json.dumps(request), json.dumps(request).encode()], together=3))
    assert [reply.id for reply in replies] == [7, 7, 7]
    assert len({reply.answer.time.value for reply in replies if reply.answer and reply.answer.time}) == 1
    assert isinstance(replies[0].answer, wg.EstimateAnswer)


def test_a_config_file_changes_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whichgpu").mkdir()
    (tmp_path / "whichgpu" / "config.toml").write_text('[gpus]\nvendor = "amd"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert wg.gpus("T4").gpus


def test_language_is_an_argument_and_english_by_default(answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    answer = answer_of("fit", answers)
    assert answer.headline("en") == answer.headline()
    with pytest.raises(wg.UnknownName):
        answer.headline("tlh")


@pytest.mark.parametrize("five", [np.int64(5), np.float32(5), np.array(5), Decimal(5), Fraction(5), 5.0])
def test_numbers_of_every_kind_are_numbers(five: Any) -> None:
    more: dict[str, Any] = {
        "gpu": "L40S",
        "as_of": DAY,
        "tpot": Decimal("0.08"),
        "limit": np.int64(2),
        "max_age": np.float64(400 * 86400),
    }
    answer = wg.recommend("serve", "llama-3.1-8b", rate=five, **more)
    assert (answer.request["rate"], answer.request["tpot_max"]) == (5.0, 0.08)


def test_a_config_of_numbers_of_every_kind_is_one_and_other_things_are_an_error_of_ours() -> None:
    assert wg.fit({**LLAMA, "hidden_size": np.int64(2048), "vocab_size": Decimal(128256)}).to_dict() == wg.fit(LLAMA).to_dict()
    wrong: tuple[Any, ...] = ({"model_type": {1, 2}}, {"model_type": object()}, {(1, 2): 3})
    for bad in wrong:
        with pytest.raises(wg.UsageError):
            wg.fit(bad)
    replies = list(
        wg.estimate_requests([{"task": {1}}, {"task": "forward", "model": "resnet50", "gpu": "T4", "batch": np.int64(8)}])
    )
    assert [reply.error is None for reply in replies] == [False, True]
