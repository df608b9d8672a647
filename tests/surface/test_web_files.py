"""The web server opens no file, runs no code and fetches nothing for a client, however a model is spelled, on every route."""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog

pytest.importorskip("starlette", reason="the page needs the web extra")
pytest.importorskip("uvicorn", reason="the page needs the web extra")
pytest.importorskip("httpx", reason="Starlette's test client needs httpx")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette warns that a later test client will need another package.
    from starlette.testclient import TestClient

from whichgpu.surface.web.app import application
from whichgpu.surface.web.model_guard import permitted_model
from whichgpu.surface.web.rest.endpoints import BY_PATH, ENDPOINTS, fields
from whichgpu.surface.web.server.gate import AccessRules
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.service import Service

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "vocab_size": 100,
}  # fmt: skip
MARKS = ("/", "~/", "./", "../", "..\\", "\\", "file:", "file:///", "%2f", "%2F", "%5c", "／", "＼", "∕", "⁄", "⧸", "∖", "～/")
CODE = ("python:", "torchvision:", "timm:", "hf:", "HF:", "Python:")
FILES = (".json", ".gguf", ".safetensors", ".toml", "/config.json")
SPELLINGS: tuple[Callable[[str], str], ...] = (
    *(lambda name, mark=mark: mark + name for mark in (*MARKS, *CODE)),
    *(lambda name, mark=mark: name + mark for mark in (*MARKS, *FILES)),
    lambda name: f"~/../{name}",
    lambda name: f"{name}/../{name}",
    lambda name: f" ~/{name}",
    lambda name: f"{{/../{name}.json",
)
LOADING = {"fit": "model", "estimate": "model", "recommend": "model", "plan": "what"}  # Fields whose model is loaded.
REST: dict[str, dict[str, Any]] = {
    "fit": {},
    "estimate": {"task": "decode", "gpu": "T4"},
    "recommend": {"task": "serve", "rate": "1/s"},
    "plan": {"rate": "1/s"},
}
PAGES = ("recommend", "recommend.json", "fit", "fit.csv", "plan", "plan.json", "fit.md")
REFUSED = ("model-not-allowed", "unknown-model", "bad-field", "ambiguous-model")
MARK = {"X-Whichgpu": "1"}


class Guarded(msgspec.Struct):
    """A client of the application, the home folder of its workers, and the file with what they opened."""

    http: Any
    home: Path
    log: Path

    def opened(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def refuses(self, reply: Any, text: str) -> None:
        assert reply.status_code in (400, 404), (text, reply.status_code, reply.text[:300])
        assert str(self.home) not in reply.text, (text, reply.text[:300])


@pytest.fixture(scope="module")
def names() -> list[str]:
    return [name for model in Catalog().models for name in model.names]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The application with one worker, in whose home and working folder each model's name is a model's folder."""
    folder = tmp_path_factory.mktemp("guarded")
    home, log = folder / "operator", folder / "opened"
    for model in Catalog().models:
        place = home / model.id
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps(CONFIG))
        (home / f"{model.id}.json").write_text(json.dumps(CONFIG))
        (home / f"{model.id}.toml").write_text(f'[[model]]\nname = "{model.id}"\nrate = "1/s"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("HOME", str(home))
        patch.setenv("OPENED_LOG", str(log))
        (folder / "tmp").mkdir()
        patch.setenv("TMPDIR", str(folder / "tmp"))
        for kind in ("CACHE", "DATA", "CONFIG"):
            patch.setenv(f"XDG_{kind}_HOME", str(folder / kind.lower()))
        service = Service(Limits(), 1, module="tests.surface.web_audited_worker", warm=(), draws=False)
        with TestClient(application(service, AccessRules()), base_url="http://localhost") as client:
            yield Guarded(client, home, log)


def test_an_opened_file_would_be_noticed(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    code = (
        "import os; from tests.surface.web_audited_worker import OWN_FOLDERS, watch; watch(2, OWN_FOLDERS)\n"
        "for path in (os.environ['TRAP'], os.environ['TRAP'] + '/none'):\n"
        "    try: os.listdir(path); open(path)\n"
        "    except OSError: pass\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    environ = {**os.environ, "TRAP": str(tmp_path), "PYTHONPATH": os.pathsep.join((root, str(Path(root) / "src")))}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert f"open {tmp_path}\n" in done.stderr
    assert f"os.listdir {tmp_path}/none\n" in done.stderr


@pytest.mark.parametrize("count", [2, pytest.param(6, marks=pytest.mark.long)])  # spellings of each name
@pytest.mark.long
def test_every_name_is_refused_if_spelled_like_a_path_and_becomes_an_id_otherwise(names: list[str], count: int) -> None:
    catalog = Catalog()
    spellings = itertools.cycle(SPELLINGS)
    assert count * len(names) > 30 * len(SPELLINGS)
    for name in names:
        for spell in itertools.islice(spellings, count):
            with pytest.raises(UsageError) as refused:
                permitted_model(spell(name), catalog)
            assert refused.value.kind in REFUSED, spell(name)
    for model in catalog.models:
        assert permitted_model(model.id, catalog) == model.id


@pytest.mark.sweep(2)
@pytest.mark.parametrize("path", REST)
@pytest.mark.parametrize("carrier", ["query", "body", pytest.param("list", marks=pytest.mark.long)])
def test_rest_refuses_every_model_and_every_spelling(path: str, carrier: str, guarded: Guarded, names: list[str]) -> None:
    assert LOADING[path] in fields(BY_PATH[path])
    for name, spell in zip(names[::8], itertools.cycle(SPELLINGS), strict=False):
        text = spell(name)
        request: dict[str, Any] = {**REST[path], LOADING[path]: [text] if carrier == "list" else text}
        url = f"/api/v1/{path}"
        reply = guarded.http.get(url, params=request) if carrier == "query" else guarded.http.post(url, json=request)
        guarded.refuses(reply, text)
        assert reply.json()["error"]["kind"] in REFUSED, (text, reply.text)
    assert guarded.opened() == []


def test_a_permitted_model_beside_one_that_is_not(guarded: Guarded) -> None:
    for spell in SPELLINGS:
        text = spell("gpt2")
        for what in (["gpt2", text], f"gpt2,{text}", [{"name": text}]):
            guarded.refuses(guarded.http.post("/api/v1/plan", json={"what": what, "rate": "1/s"}), text)
    assert guarded.opened() == []


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.sweep(2)
def test_pages_refuse_every_spelling(page: str, guarded: Guarded, names: list[str]) -> None:
    for name, spell in zip(names[:: len(names) // len(SPELLINGS)], SPELLINGS, strict=False):
        guarded.refuses(guarded.http.get(f"/{page}", params={"model": spell(name), "what": spell(name)}), spell(name))
    assert guarded.opened() == []


def test_pages_of_one_subject_refuse_every_spelling(guarded: Guarded, names: list[str]) -> None:
    texts = (spell(name) for name, spell in zip(names[:: len(names) // len(SPELLINGS)], SPELLINGS, strict=False))
    for text in (text for text in texts if not text.endswith(".json")):  # That is the page of the name as JSON.
        for page in ("model", "gpu", "instance"):
            guarded.refuses(guarded.http.get(f"/{page}/{quote(text, safe='')}"), text)
    assert guarded.opened() == []


@pytest.mark.parametrize("command", ["estimate", "recommend", "plan"])
def test_jobs_refuse_every_spelling(command: str, guarded: Guarded, names: list[str]) -> None:
    for name, spell in zip(names[:: len(names) // len(SPELLINGS)], SPELLINGS, strict=False):
        job = {"command": command, **REST[command], LOADING[command]: spell(name)}
        guarded.refuses(guarded.http.post("/api/v1/jobs", json=job, headers=MARK), spell(name))
    for text in ("~/gpt2", "/etc/passwd", "../x", "%2fetc", "file:///etc/passwd"):
        job = {"command": command, **REST[command], LOADING[command]: "gpt2", "trace": text}
        guarded.refuses(guarded.http.post("/api/v1/jobs", json=job, headers=MARK), text)
    assert guarded.opened() == []


@pytest.mark.long
def test_a_list_of_requests_refuses_every_model(guarded: Guarded, names: list[str]) -> None:
    texts = [spell(name) for name, spell in zip(names, itertools.cycle(SPELLINGS), strict=False)]
    requests: list[dict[str, Any]] = [{"task": "decode", "gpu": "T4", "model": text} for text in texts]
    requests += [{"task": "decode", "gpu": "T4", "model": [text]} for text in texts[:50]]
    job = guarded.http.post("/api/v1/jobs", json={"command": "estimate", "requests": requests}, headers=MARK).json()
    end = time.monotonic() + 120
    while job["state"] not in ("done", "failed") and time.monotonic() < end:
        time.sleep(0.1)
        job = guarded.http.get(job["url"]).json()
    assert job["state"] == "done"
    result = guarded.http.get(job["result"])
    replies = [json.loads(line) for line in result.text.splitlines()]
    assert len(replies) == len(requests)
    assert {reply["ok"] for reply in replies} == {False}
    assert {reply["error"]["kind"] for reply in replies} <= set(REFUSED)
    assert str(guarded.home) not in result.text
    assert guarded.opened() == []


@pytest.mark.long
@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.long)])  # texts tried in each field
def test_no_field_of_any_endpoint_opens_a_file(guarded: Guarded, count: int) -> None:
    tried, texts = 0, itertools.cycle(("~/gpt2", "./gpt2.toml", "@gpt2.json"))
    for endpoint in ENDPOINTS:
        for name in fields(endpoint):
            for text in itertools.islice(texts, count):
                others = {key: value for key, value in endpoint.example.items() if key != name}
                reply = guarded.http.get(f"/api/v1/{endpoint.path}", params={**others, name: text})
                assert reply.status_code < 500, (endpoint.path, name, text, reply.text[:300])
                assert str(guarded.home) not in reply.text, (endpoint.path, name, text)
                tried += 1
    assert tried > 170 * count
    assert guarded.opened() == []


@pytest.mark.parametrize("text", ["~/gpt2", "/etc/passwd", "../operator/gpt2.json", "%2e%2e%2fgpt2", "..\\gpt2", "／etc"])
def test_paths_in_addresses_open_nothing(text: str, guarded: Guarded) -> None:
    for url in (f"/static/{text}", f"/{text}", f"/fit/{text}.svg", f"/api/v1/{text}", f"/api/v1/jobs/{text}/result"):
        reply = guarded.http.get(url)
        assert reply.status_code in (400, 404), (url, reply.status_code)
        assert str(guarded.home) not in reply.text
    assert guarded.opened() == []
