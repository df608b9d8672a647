"""Models a web client names: paths are refused before any name is looked up, and the resolved id is what a command is given."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette", reason="the page needs the web extra")

from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.messages import english, msg
from whichgpu.catalog.store import Catalog
from whichgpu.surface.web import command_replies as asking
from whichgpu.surface.web import model_guard as guard
from whichgpu.surface.web.hide_paths import without_paths
from whichgpu.surface.web.page import read_state, view_named
from whichgpu.surface.web.rendering import render_page
from whichgpu.surface.web.rest import parameters
from whichgpu.surface.web.rest.endpoints import BY_PATH
from whichgpu.surface.web.worker_answers import requests, rest

# Punctuation is ignored when names are matched, so each of these spells a built-in model.
PATHS = (
    "~/gpt2", "~gpt2", "/gpt2", "gpt2/", "g/p/t2", "//gpt2", "gpt2\\", "\\\\gpt2", "gpt2\0", "~root/gpt2", " ~/gpt2 ", "g:pt2",
    "openai-community/gpt2", "GPT2/", "t:5-base",
)  # fmt: skip
OTHERS = ("./gpt2", "../gpt2", ".gpt2", "..", "gpt2/.", "file:gpt2", "FILE:///gpt2", "gpt2.json", "x.GGUF", "c:\\gpt2",
          "python:os:getcwd", "hf:openai-community/gpt2", "timm:vit", "x.toml", "{x.toml", "mlp:1.toml")  # fmt: skip
TINY = {"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 1, "vocab_size": 10, "n_positions": 8}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working directory with a folder of its own for what names are spelled like."""
    for folder in ("gpt2", "llama-3.1-8b", "openai-community/gpt2"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").write_text(json.dumps(TINY))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask_rest(path: str, **values: Any) -> tuple[int, str]:
    by_query = rest({"endpoint": path, "query": urlencode(values)}, english(), None)
    by_body = rest({"endpoint": path, "body": json.dumps(values).encode()}, english(), None)
    assert by_query.status == by_body.status
    return by_body.status, by_query.body.decode() + by_body.body.decode()


@pytest.mark.parametrize("name", [*PATHS, *OTHERS])
def test_paths_are_refused_before_names_are_looked_up(name: str, catalog: Catalog) -> None:
    with pytest.raises(UsageError) as refused:
        guard.permitted_model(name, catalog)
    assert refused.value.kind == "model-not-allowed"


@pytest.mark.parametrize("name", PATHS)
def test_no_endpoint_reads_a_file_or_shows_the_home_folder(name: str, home: Path) -> None:
    for path, more in (
        ("fit", {"gpu": "T4"}),
        ("estimate", {"task": "decode", "gpu": "T4"}),
        ("recommend", {"task": "serve"}),
        ("compare", {"name": "T4", "task": "decode"}),
    ):
        status, text = ask_rest(path, model=name, **more)
        assert status == 400, (path, text)
        assert '"kind":"model-not-allowed"' in text
        assert str(home) not in text
    status, text = ask_rest("plan", what=name)
    assert (status, str(home) in text) == (400, False)
    for page in ("fit", "recommend", "plan"):
        for ending in ("html", "json", "part"):
            reply = render_page(page, ending, urlencode({"model": name}), english())
            assert reply.status == 400
            assert str(home) not in reply.body.decode()


def test_requests_of_a_job_are_checked_one_by_one(home: Path) -> None:
    names: list[Any] = ["~/gpt2", "gpt2/", "GPT-2", TINY, "openai-community/gpt2"]
    lines = [{"id": str(place), "task": "decode", "model": name, "gpu": "T4"} for place, name in enumerate(names)]
    replies = [json.loads(line) for line in requests({"requests": lines}, english(), None).body.splitlines()]
    assert [reply["ok"] for reply in replies] == [False, False, True, True, False]
    assert replies[2]["request"]["model"] == "gpt2"
    assert replies[3]["request"]["model"] == TINY
    assert str(home) not in json.dumps(replies)


@pytest.mark.parametrize("name", ["GPT-2", "gpt2", " GPT2 "])
def test_the_id_is_handed_on(name: str, home: Path) -> None:
    assert home.is_dir()
    assert parameters.request_of(BY_PATH["fit"], {"model": [name]})["model"] == "gpt2"
    assert parameters.request_of(BY_PATH["plan"], {"what": [f"{name},Llama 3.1 8B"]})["what"] == ["gpt2", "llama-3.1-8b"]
    compared = parameters.request_of(BY_PATH["compare"], {"name": ["T4"], "task": ["decode"], "model": [name]})
    assert compared == {"names": ["T4"], "task": "decode", "model": "gpt2"}
    assert read_state(view_named("fit"), urlencode({"model": name}))["model"] == "gpt2"
    assert '"model": "gpt2"' in ask_rest("fit", model=name, gpu="T4")[1]


def test_a_repository_of_a_built_in_model_is_refused_with_the_name_that_works(catalog: Catalog) -> None:
    with pytest.raises(UsageError) as refused:
        guard.permitted_model("openai-community/gpt2", catalog)
    assert refused.value.choices == ("gpt2",)


def test_models_are_checked_in_the_catalog_the_command_uses(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that was not known then would be looked for in the working directory."""
    assert home.is_dir()
    day = date(2020, 1, 1)
    assert not asking.catalog(day).models
    with pytest.raises(UsageError) as refused:
        parameters.request_of(BY_PATH["fit"], {"model": ["gpt2"], "catalog_as_known": [day.isoformat()]})
    assert refused.value.kind == "unknown-model"
    monkeypatch.setattr(asking, "_folder", [])
    assert parameters.request_of(BY_PATH["fit"], {"model": ["gpt2"]})["model"] == "gpt2"


def test_repositories_the_owner_allows_are_named_by_their_grammar_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch, catalog: Catalog
) -> None:
    monkeypatch.setattr(guard, "_allowed", {"hf"})
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    assert guard.permitted_model("hf:org/name", catalog) == "hf:org/name"
    for name in ("hf:../gpt2", "hf:/gpt2", "hf:~/gpt2", "hf:org/../gpt2"):
        assert '"kind":"bad-repository"' in ask_rest("fit", model=name)[1]
    status, text = ask_rest("fit", model="hf:org/name")
    assert (status, '"kind":"model-not-cached"' in text) == (400, True)
    assert str(home) not in text


def test_errors_for_clients_name_files_without_their_folders() -> None:
    inner = msg("error.in-file", path="/home/me/prices.toml", what=msg("error.no-file", path="/home/me/x.json"))
    error = UsageError("in-file", inner, msg("hint.model-not-cached", path="/home/me/.cache/x", name="org/name"), ("a",))
    raised = without_paths(error)
    assert english().render(raised.message) == "prices.toml: there is no file or folder x.json"
    assert (raised.hint, raised.choices, type(raised)) == (None, ("a",), UsageError)
    several = WhichGpuError("x", msg("error.several", n=2, what=(msg("error.no-file", path="/a/b"), "/c")))
    assert without_paths(several).message.values["what"] == (msg("error.no-file", path="b"), "/c")


@pytest.mark.parametrize(
    "draft", ["/etc/passwd", "~/d", "hf:evil/net", "./config.json", "file:///etc/passwd", "python:os:system"]
)
def test_a_draft_model_is_guarded_like_a_model(draft: str, catalog: Catalog) -> None:
    for value in (f"draft={draft},tokens=3", {"method": "draft", "draft": draft}):
        with pytest.raises(UsageError) as refused:
            guard.permitted_draft(value, catalog)
        assert refused.value.kind == "model-not-allowed"
        with pytest.raises(WhichGpuError, match="not allowed here"):
            parameters.request_of(BY_PATH["fit"], {"model": ["llama-3.1-8b"], "speculative": [value]})
    assert guard.permitted_draft("draft=llama-3.2-1b", catalog)["draft"] == "llama-3.2-1b"
    assert guard.permitted_draft("mtp", catalog) == "mtp"
