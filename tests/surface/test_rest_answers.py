"""REST replies equal the command line's: the same fields, the same errors, for every endpoint."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.surface.cli import call
from tests.surface.web import Server
from whichgpu.surface.web.field_names import error_texts, with_field_names
from whichgpu.surface.web.rest.endpoints import ENDPOINTS, Endpoint, fields

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "vocab_size": 32000,
}  # fmt: skip


def argv(endpoint: Endpoint, values: dict[str, Any]) -> list[str]:
    """The command line a person would type for an endpoint's example."""
    words = endpoint.command.split()
    for name, field in fields(endpoint).items():
        if name in values and not field.argument:
            words += [field.flag.replace("--", "--no-")] if values[name] is False else [field.flag, str(values[name])]
    for name in ("task", "model", "name", "what", "words"):
        if name in values and fields(endpoint)[name].argument:
            words += values[name] if isinstance(values[name], list) else [str(values[name])]
    return [*words, "--json"]


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
@pytest.mark.sweep(2)
def test_every_endpoint_answers_its_example_as_the_command_does(server: Server, endpoint: Endpoint) -> None:
    values = {name: value for name, value in endpoint.example.items() if name not in ("limit", "offset")}
    more = ("--limit", "1000") if endpoint.path == "evidence" else ()  # the command lists 20, REST pages of all
    reply = call(*argv(endpoint, values), *more)
    assert reply.code == 0, reply
    response = server.get(f"/api/v1/{endpoint.path}?{urlencode(values, doseq=True)}")
    assert response.status == 200, response.text
    assert response.headers["content-type"] == "application/json"
    document, expected = response.json(), reply.json()
    if endpoint.path == "catalog/status":  # the user's own store lies in another folder
        document["live"], expected["live"] = None, None
        assert document["folder"] == "data"  # a client learns no path of the server
        expected["folder"] = "data"
    if endpoint.page is not None:  # what a page adds
        assert document.pop("total") == len(expected[endpoint.rows or ""])
        assert [document.pop(name) for name in ("limit", "offset", "next")] == [endpoint.page, 0, None]
    if endpoint.path == "plan":  # how long it took
        assert document.pop("seconds") > 0
        assert expected.pop("seconds") > 0
    assert document == expected
    posted = server.post(f"/api/v1/{endpoint.path}", values)
    assert posted.status == 200, posted.text
    if endpoint.path == "plan":
        assert {**posted.json(), "seconds": 0} == {**document, "seconds": 0}
        return
    assert posted.body == response.body


@pytest.mark.parametrize(
    ("path", "words", "status"),
    [
        ("gpus?name=H101", ["gpus", "H101"], 400),
        ("gpus?sort=nothing", ["gpus", "--sort", "nothing"], 400),
        ("gpus?min_memory=lots", ["gpus", "--min-memory", "lots"], 400),
        ("estimate?task=decode&model=llama-3.1-8b&gpu=A100", ["estimate", "decode", "llama-3.1-8b", "--gpu", "A100"], 400),
        ("fit?model=llama-3.1-8b&precision=fp7", ["fit", "llama-3.1-8b", "--precision", "fp7"], 400),
        ("recommend?task=train&model=resnet50&budget=0.01usd", ["recommend", "train", "resnet50", "--budget", "0.01usd"], 422),
        ("buy?name=H100+SXM", ["buy", "H100 SXM"], 422),
        ("models?name=lama-3.1-8b", ["models", "lama-3.1-8b"], 400),
    ],
)  # fmt: skip
def test_errors_are_those_of_the_command_line(server: Server, path: str, words: list[str], status: int) -> None:
    reply = server.get(f"/api/v1/{path}")
    assert reply.status == status, reply.text
    typed = json.loads(call(*words, "--json").out)
    typed["error"] = error_texts(typed["error"], with_field_names)  # a client knows fields, not flags
    assert reply.json() == typed


def test_no_fit_reply_includes_its_rows(server: Server) -> None:
    reply = server.get("/api/v1/fit?model=llama-3.1-405b&gpu=T4")
    assert reply.status == 422
    assert reply.json()["error"]["kind"] == "nothing-fits"
    assert reply.json()["gpus"][0]["fits"] == "no"


def test_unknown_parameters_and_duplicate_values_are_refused(server: Server) -> None:
    unknown = server.get("/api/v1/recommend?task=serve&modle=llama-3.1-8b")
    assert (unknown.status, unknown.error["kind"]) == (400, "unknown-field")
    assert "model" in unknown.error["choices"]
    twice = server.get("/api/v1/recommend?task=serve&model=bert-large&model=resnet50")
    assert (twice.status, twice.error["kind"]) == (400, "given-twice")
    many = "&".join(f"a{n}=1" for n in range(300))
    assert server.get(f"/api/v1/gpus?{many}").error["kind"] == "bad-query"
    missing = server.get("/api/v1/fit")
    assert (missing.status, missing.error["kind"]) == (400, "missing-field")
    listed = server.get("/api/v1/fit?model=llama-3.1-8b&gpu=T4&gpu=L4").json()
    assert [row["gpu_name"] for row in listed["gpus"]] == ["T4", "L4"]


def test_boolean_parameters_can_be_true_or_false(server: Server) -> None:
    base = "/api/v1/estimate?task=train&model=resnet50&gpu=T4&batch=8"
    on, off = (server.get(f"{base}&optimizer_fused={word}").json()["request"]["optimizer_fused"] for word in ("true", "no"))
    assert (on, off) == (True, False)
    assert server.get(f"{base}&optimizer_fused=perhaps").error["kind"] == "bad-field"


def test_flag_like_values_are_values(server: Server) -> None:
    for query in ("name=--json", "name=--config%3D/etc/passwd", "name=--help", "sort=--csv", "name=--"):
        reply = server.get(f"/api/v1/gpus?{query}")
        assert reply.status == 400, query
        assert reply.error["kind"] in ("unknown-gpu", "unknown-field", "bad-count"), reply.text


def test_a_model_may_be_the_content_of_its_config(server: Server) -> None:
    request = {"task": "decode", "model": LLAMA, "gpu": "H100 SXM", "batch": 4, "parallel": {"tp": 1}, "seq_in": 100}
    by_body = server.post("/api/v1/estimate", request)
    assert by_body.status == 200, by_body.text
    assert by_body.json()["request"]["model"] == LLAMA
    by_query = server.get(f"/api/v1/estimate?{urlencode({**request, 'model': json.dumps(LLAMA), 'parallel': 'tp=1'})}")
    assert by_query.json() == by_body.json()
    typed = server.post("/api/v1/recommend", {"task": "serve", "model": "llama-3.1-8b", "rate": 5, "ttft_max": 0.5})
    assert typed.json()["request"]["ttft_max"] == 0.5


def test_a_plan_may_be_of_configs(server: Server) -> None:
    rest = {"rate": "5/s", "seq_in": 500, "seq_out": 100, "gpu": "L40S", "simulate": False, "curve": False}
    config = {**LLAMA, "_name_or_path": "me/mine"}
    reply = server.post("/api/v1/plan", {"what": [config, "llama-3.1-8b"], **rest})
    assert reply.status == 200, reply.text
    answer = reply.json()
    assert {row["model"] for row in answer["groups"]} == {"me/mine", "llama-3.1-8b"}
    assert answer["request"]["model"][0]["model"] == config
    by_query = server.get(f"/api/v1/plan?{urlencode({'what': json.dumps(config), **rest})}").json()
    alone = server.post("/api/v1/plan", {"what": config, **rest}).json()
    assert {**by_query, "seconds": 0} == {**alone, "seconds": 0}
    assert alone["hints"][0]["model"] == "me/mine"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("estimate", {"task": "decode", "model": "llama-3.1-8b", "gpu": "L4", "batch": [1]}),
        ("estimate", {"task": "decode", "model": ["llama-3.1-8b"], "gpu": "L4"}),
        ("estimate", {"task": "decode", "model": "llama-3.1-8b", "gpu": ["L4"]}),
        ("estimate", {"task": "train", "model": "resnet50", "gpu": "L4", "optimizer_fused": [True]}),
        ("recommend", {"task": "train", "model": []}),
        ("recommend", {"task": "train", "model": "resnet50", "deadline": ["24h"]}),
        ("gpus", {"name": [["T4"]]}),
        ("instances", {"gpus": [1, [2]]}),
        ("estimate", {"task": "decode", "model": "llama-3.1-8b", "gpu": "L4", "parallel": {"tp": [2]}}),
        ("gpus", {"limit": [5]}),
        ("fit", {"model": "llama-3.1-8b", "gpu": {"name": "L4"}}),
    ],
)
def test_list_for_a_single_value_is_refused(server: Server, path: str, body: dict[str, Any]) -> None:
    reply = server.post(f"/api/v1/{path}", body)
    assert (reply.status, reply.error["kind"]) == (400, "bad-field"), reply.text
    assert set(reply.error) == {"kind", "message", "hint", "choices"}


def test_values_are_spelled_as_in_python(server: Server) -> None:
    """Numbers in the base unit, pairs as ranges, objects as names with values."""
    for path, typed, texts in (
        ("instances", {"provider": "aws", "gpus": [4, 8]}, {"provider": "aws", "gpus": "4..8"}),
        ("gpus", {"min_memory": 80 * 2**30}, {"min_memory": "80GiB"}),
        ("offers", {"gpu": "T4", "currency": "KRW", "exchange_rate": {"KRW": 1190}, "limit": 2},
         {"gpu": "T4", "currency": "KRW", "exchange_rate": "KRW=1190", "limit": 2}),
        ("recommend", {"task": "train", "model": "resnet50", "samples": 10**6, "deadline": 86400, "needs": ["bf16", "tf32"]},
         {"task": "train", "model": "resnet50", "samples": 10**6, "deadline": "86400s", "needs": "bf16,tf32"}),
    ):  # fmt: skip
        reply = server.post(f"/api/v1/{path}", typed)
        assert reply.status == 200, reply.text
        assert {**reply.json(), "next": None} == {**server.get(f"/api/v1/{path}?{urlencode(texts)}").json(), "next": None}


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "config.json", "./config.json", "~/config.json", "folder", "hf:org/name", "python:os:system",
     "torchvision:resnet50", "timm:vit", "file:///etc/passwd", "a\\b", "x.gguf", "x.SAFETENSORS", " /etc/passwd", "..", ".",
     "~/gpt2", "/gpt2", "gpt2/", "gpt2\\", "openai-community/gpt2"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["fit", "estimate", "recommend", "compare"])
def test_requests_open_no_file_run_no_code_and_fetch_no_url(server: Server, name: str, path: str) -> None:
    more = (
        {"task": "decode" if path == "estimate" else "serve", "gpu": "T4"}
        if path != "compare"
        else {"task": "serve", "name": "T4"}
    )
    for reply in (
        server.get(f"/api/v1/{path}?{urlencode({**more, 'model': name})}"),
        server.post(f"/api/v1/{path}", {**more, "model": name}),
    ):
        assert reply.status == 400, (name, reply.text)
        assert reply.error["kind"] in ("model-not-allowed", "unknown-model"), reply.text


def test_flags_that_name_files_are_no_parameters(server: Server) -> None:
    for path, name in (
        ("offers", "overlay"), ("recommend", "overlay"), ("recommend", "plot"), ("estimate", "trace"), ("estimate", "requests"),
        ("gpus", "catalog"), ("gpus", "config"), ("gpus", "format"), ("gpus", "json"), ("buy", "prices"),
    ):  # fmt: skip
        assert server.get(f"/api/v1/{path}?{name}=/etc/passwd").error["kind"] == "unknown-field", (path, name)


def test_pages_of_rows_follow_each_other(server: Server) -> None:
    whole = [row["id"] for row in server.get("/api/v1/gpus").json()["gpus"]]
    rows, path, pages = [], "/api/v1/gpus?limit=50&vendor=nvidia", 0
    while path:
        reply = server.get(path)
        page = reply.json()
        rows += [row["id"] for row in page["gpus"]]
        assert len(page["gpus"]) <= 50
        assert ("next" in reply.headers.get("link", "")) == (page["next"] is not None)
        path, pages = page["next"], pages + 1
    assert len(rows) == len(set(rows)) == page["total"]
    assert pages > 2
    assert set(rows) < set(whole)
    first = server.get("/api/v1/offers?gpu=H100&limit=3").json()
    second = server.get(first["next"]).json()
    both = server.get("/api/v1/offers?gpu=H100&limit=6").json()["offers"]
    assert first["offers"] + second["offers"] == both
    assert server.get("/api/v1/offers?gpu=H100&offset=999999").json()["offers"] == []
    for bad in ("limit=0", "limit=-1", "limit=x", "limit=99999", "offset=-1", "limit=1.5"):
        assert server.get(f"/api/v1/gpus?{bad}").error["kind"] == "bad-field", bad


def test_bodies_that_are_no_json_objects_are_refused(server: Server) -> None:
    for body in (b"", b"[]", b"nonsense", b'{"a":1,"a":2}', b'{"batch": NaN}', b"\xff\xfe", b"[" * 100_000, b'"' + b"x" * 1000):
        reply = server.get("/api/v1/fit", "POST", body, content_type="application/json")
        assert reply.status == 400, body[:20]
        assert reply.error["kind"] in ("bad-json", "missing-field")
    assert server.get("/api/v1/fit", "POST", b"{}", content_type="text/plain").error["kind"] == "not-json"
    assert server.get("/api/v1/fit", "POST", b"model=bert-large", content_type="application/x-www-form-urlencoded").status == 415


def test_empty_lists_and_nulls_are_distinguished_from_values(server: Server) -> None:
    nothing = {"name": ["T4"], "supports": [], "sort": None}
    assert server.post("/api/v1/gpus", nothing).json() == server.get("/api/v1/gpus?name=T4").json()
    odds: list[dict[str, Any]] = [
        {"limit": [None]},
        {"sort": [[]]},
        {"name": [{}]},
        {"relative_to": [True]},
        {"sort": []},
        {"limit": []},
    ]
    for odd in odds:
        reply = server.post("/api/v1/gpus", odd)
        assert reply.status == 400, (odd, reply.text)
        assert reply.error


def test_the_schema_names_every_flag_of_every_command(server: Server) -> None:
    schema = server.get("/api/v1/openapi.json").json()
    assert schema["openapi"].startswith("3.1")
    for endpoint in ENDPOINTS:
        path = schema["paths"][f"/api/v1/{endpoint.path}"]
        assert {one["name"] for one in path["get"]["parameters"]} == set(fields(endpoint))
        assert all(one["description"] for one in path["get"]["parameters"])
        assert path["post"]["requestBody"]["content"]["application/json"]["example"] == endpoint.example
    ids = [operation["operationId"] for path in schema["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", ["plan.toml", "{x.toml", "mlp:1-1.TOML", "hf:me/x.toml", "../fleet.toml", "/etc/hosts", "~/x"])
def test_a_plan_opens_no_file_of_the_server(server: Server, name: str) -> None:
    reply = server.get(f"/api/v1/plan?{urlencode({'what': name})}")
    assert reply.status == 400, reply.text
    assert reply.error["kind"] == "model-not-allowed"
    job = server.post("/api/v1/jobs", {"command": "plan", "what": ["llama-3.1-8b", name]}, x_whichgpu="1")
    assert job.status == 400, job.text


@pytest.mark.parametrize("field", ["profiles", "export", "plot", "ray", "workers", "trace", "overlay"])
def test_a_plan_takes_neither_files_nor_clusters(server: Server, field: str) -> None:
    reply = server.get(f"/api/v1/plan?{urlencode({'what': 'llama-3.1-8b', field: 'x'})}")
    assert reply.status == 400, reply.text
    assert reply.error["kind"] == "unknown-field"


def test_schema_describes_every_body_field(server: Server) -> None:
    paths = server.get("/api/v1/openapi.json").json()["paths"]

    def kinds(path: str, name: str) -> set[str]:
        body = paths[f"/api/v1/{path}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        schema = body["properties"][name]
        return {one.get("type", "any of") for one in schema.get("anyOf", [schema])}

    assert "object" in kinds("estimate", "model")
    assert kinds("estimate", "batch") == {"integer"}
    assert "array" in kinds("instances", "gpus")
    assert "array" in kinds("plan", "what")
    assert "array" in kinds("plan", "owned")
