"""A model's name leads to its shape; unknown names are refused with suggestions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError

import pytest

from tests.model_files import gguf_bytes, safetensors_bytes, write
from whichgpu.base.errors import AmbiguousName, UnknownName, UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.workload import models
from whichgpu.workload.model_files import hub
from whichgpu.workload.models import find_model, parse_mlp, trace_command
from whichgpu.workload.shapes import Mlp, TracedShape, Transformer, WeightsOnly

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 100,
}  # fmt: skip


@dataclass(frozen=True)
class BuiltIn:
    id: str
    names: tuple[str, ...]
    config: dict[str, Any]
    kind: str = "transformer"
    released: str = "2022-05-03"


class Shelf:
    repositories = ()
    models = (
        BuiltIn("opt-1.3b", ("opt-1.3b", "OPT 1.3B", "facebook/opt-1.3b", "opt"), TINY),
        BuiltIn("opt-13b", ("opt-13b", "OPT 13B", "facebook/opt-13b", "opt"), TINY | {"hidden_size": 128}),
        BuiltIn("resnet50", ("resnet50", "ResNet-50"), {"model_type": "traced", "table": "resnet50", "image": 224}),
    )


SHELF = cast("Catalog", Shelf())


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache and no network but what a test sets up."""

    def unreachable(url: str, token: str | None) -> bytes:
        raise OSError("no route to host")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hub, "fetch", unreachable)


@pytest.mark.parametrize("name", ["opt-1.3b", "OPT 1.3B", "Opt-1.3B", "facebook/opt-1.3b", " opt-1.3b "])
def test_built_in_names_are_read_loosely_but_dots_count(name: str) -> None:
    shape = find_model(name, SHELF)
    assert isinstance(shape, Transformer)
    assert (shape.name, shape.hidden) == ("opt-1.3b", 64)


def test_ambiguous_name_lists_the_candidates() -> None:
    with pytest.raises(AmbiguousName) as caught:
        find_model("opt", SHELF)
    assert caught.value.choices == ("opt-1.3b", "opt-13b")


def test_unknown_model_lists_nearest_names() -> None:
    with pytest.raises(UnknownName) as caught:
        find_model("resnet5", SHELF)
    assert caught.value.choices[0] == "resnet50"


def test_repository_like_name_suggests_the_prefix() -> None:
    with pytest.raises(UnknownName) as caught:
        find_model("zzzz-qq/yyyy-ww", SHELF)
    assert caught.value.hint is not None
    assert caught.value.hint.id == "hint.repository"


def test_an_object_is_a_config() -> None:
    shape = find_model(TINY | {"_name_or_path": "mine"}, SHELF)
    assert isinstance(shape, Transformer)
    assert shape.name == "mine"
    with pytest.raises(UsageError) as caught:
        find_model({}, SHELF)
    assert caught.value.message.values["field"] == "model_type"


def test_perceptrons_by_their_sizes() -> None:
    assert find_model("mlp:9000x4000x4000x32", SHELF) == Mlp("mlp:9000x4000x4000x32", (9000, 4000, 4000, 32))
    assert parse_mlp("mlp:9000X4000×32").units == (9000, 4000, 32)


@pytest.mark.parametrize(
    "text",
    ["mlp:", "mlp:5", "mlp:0x5", "mlp:5x-1", "mlp:5x5x", "mlp:10000001x2", "mlp:axb", "mlp:" + "x".join(["2"] * 65), "mlp:²x3"],
)
def test_perceptrons_of_no_or_absurd_size_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_model(text, SHELF)
    assert caught.value.kind == "bad-mlp"


def test_files_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    config = write(folder / "config.json", json.dumps(TINY).encode())
    weights = write(folder / "model.safetensors", safetensors_bytes())
    for name in (config, folder, weights):
        shape = find_model(str(name), SHELF)
        assert isinstance(shape, Transformer)
        assert shape.name == "my-model"
    config.unlink()
    assert find_model(str(folder), SHELF) == find_model(str(weights), SHELF) == WeightsOnly("model.safetensors", 41, 79)
    weights.unlink()
    with pytest.raises(UsageError) as caught:
        find_model(str(folder), SHELF)
    assert caught.value.kind == "no-config"
    gguf = write(folder / "m.gguf", gguf_bytes())
    assert find_model(str(folder), SHELF) == find_model(str(gguf), SHELF)


def test_a_shard_without_a_config_counts_with_its_siblings(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.safetensors", safetensors_bytes())
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    write(tmp_path / "model.safetensors.index.json", json.dumps(index).encode())
    shape = find_model(str(tmp_path / "a.safetensors"), SHELF)
    assert isinstance(shape, WeightsOnly)
    assert shape.parameters == 82


def test_a_folder_of_a_built_in_models_name_does_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("resnet50", "other"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "config.json", json.dumps(TINY).encode())
    assert isinstance(find_model("resnet50", SHELF), TracedShape)
    assert isinstance(find_model("./resnet50", SHELF), Transformer)
    assert isinstance(find_model("other", SHELF), Transformer)


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff\xff", b"[" * 100_000, b"{" + b" " * 2_000_001 + b"}"])
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        find_model(str(write(tmp_path / "config.json", data)), SHELF)
    assert caught.value.kind == "bad-config"


@pytest.mark.parametrize(
    "name",
    ["", "  ", "x" * 5000, "a\0b", "/nowhere/config.json", "./nowhere", "~nobody/m", "y" * 300, "z" * 300 + ".gguf"],
)
def test_unknown_names_are_refused_with_a_hint(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_model(name, SHELF)
    assert caught.value.hint is not None


def test_a_network_without_a_table_gets_the_command_of_this_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WHICHGPU_VENV", raising=False)
    with pytest.raises(UnknownName) as caught:
        find_model("timm/novel_network", SHELF)
    assert "write timm:novel_network to trace it, which needs torch: .venv/bin/pip install torch timm" in str(caught.value.hint)
    monkeypatch.setenv("WHICHGPU_VENV", str(tmp_path))
    assert trace_command("torchvision:novel") == '"$WHICHGPU_VENV"/bin/pip install torch torchvision'
    monkeypatch.setattr(models, "__file__", str(tmp_path / "site-packages" / "whichgpu" / "workload" / "models.py"))
    assert trace_command("timm:novel") == "pip install 'whichgpu[trace]' timm"


def test_traced_models_need_a_tracer() -> None:
    for name in ("python:mine:build", "torchvision:mine", "timm:vit_tiny"):
        with pytest.raises(UsageError) as caught:
            find_model(name, SHELF)
        assert caught.value.kind == "needs-torch"
        assert find_model(name, SHELF, lambda name: TracedShape(name, name, 0)) == TracedShape(name, name, 0)
    assert find_model("novel", SHELF, lambda name: TracedShape(name, name, 0)) == TracedShape("novel", "novel", 0)
    with pytest.raises(UnknownName):
        find_model("timm:novel", SHELF, lambda name: None)


def test_a_repository_in_our_cache_or_theirs_needs_no_network(tmp_path: Path) -> None:
    ours = tmp_path / "cache" / "whichgpu" / "hf" / "org" / "a"
    theirs = tmp_path / "hf" / "hub" / "models--org--b" / "snapshots"
    for folder, width in ((ours, 64), (theirs / "0123456789abcdef", 128), (theirs / "fedcba9876543210", 256)):
        folder.mkdir(parents=True)
        write(folder / "config.json", json.dumps(TINY | {"hidden_size": width}).encode())
    references = theirs.parent / "refs"
    references.mkdir()
    (references / "main").write_text("0123456789abcdef")
    for name, width in (("hf:org/a", 64), ("hf:org/b", 128)):
        shape = find_model(name, SHELF)
        assert isinstance(shape, Transformer)
        assert shape.hidden == width


def test_a_repository_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, str | None]] = []

    def answer(url: str, token: str | None) -> bytes:
        requests.append((url, token))
        return json.dumps(TINY).encode()

    monkeypatch.setattr(hub, "fetch", answer)
    monkeypatch.setenv("HF_TOKEN", "secret")
    first, second = find_model("hf:org/name-1.5", SHELF), find_model("hf:org/name-1.5", SHELF)
    assert first == second
    assert requests == [("https://huggingface.co/org/name-1.5/resolve/main/config.json", "secret")]


def test_reply_that_is_no_config_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "fetch", lambda url, token: b"<html>")
    with pytest.raises(UsageError) as caught:
        find_model("hf:org/name", SHELF)
    assert caught.value.kind == "bad-config"
    assert not (tmp_path / "cache" / "whichgpu" / "hf").exists()


@pytest.mark.parametrize(
    ("code", "why"), [(401, "hub.gated"), (404, "hub.unknown"), (500, "hub.unreachable"), (None, "hub.unreachable")]
)
def test_offline_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, code: int | None, why: str) -> None:
    def refuse(url: str, token: str | None) -> bytes:
        raise HTTPError(url, code, "no", {}, None) if code else OSError("no route to host")  # type: ignore[arg-type]

    monkeypatch.setattr(hub, "fetch", refuse)
    with pytest.raises(UsageError) as caught:
        find_model("hf:org/name", SHELF)
    assert caught.value.kind == "model-not-cached"
    assert getattr(caught.value.message.values["why"], "id", "") == why
    assert caught.value.hint is not None
    assert str(caught.value.hint.values["path"]).endswith("whichgpu/hf/org/name/config.json")


def test_offline_mode_sends_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(url: str, token: str | None) -> bytes:
        raise AssertionError(url)

    monkeypatch.setattr(hub, "fetch", forbidden)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UsageError) as caught:
        find_model("hf:org/name", SHELF)
    assert getattr(caught.value.message.values["why"], "id", "") == "hub.offline"


@pytest.mark.parametrize(
    "name",
    ["", "name", "../x", "org/..", "org/a/b", "org/a..b", "/etc/passwd", "o/a?b", "o/a%2e", "o /a", "-o/a", "o/" + "a" * 200],
)
def test_repositories_that_are_paths_in_disguise_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_model("hf:" + name, SHELF)
    assert caught.value.kind == "bad-repository"


@pytest.mark.parametrize(
    "name",
    ["convnextv2_small", "timm/convnextv2_small", "timm/convnextv2_small.fcmae", "ConvNeXtV2-small", "timm:convnextv2_small"],
)
def test_models_of_timm_are_found_without_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichgpu.workload.models.find_spec", lambda name: None)
    shape = find_model(name, Catalog())
    assert shape == TracedShape("convnextv2_small", "convnextv2_small", 224)


def test_a_network_of_two_libraries_has_the_image_size_of_the_one_named() -> None:
    """torchvision made EfficientNet B4 for images of 380 pixels, timm for 320."""
    shapes = {
        name: find_model(name, Catalog()) for name in ("efficientnet_b4", "timm/efficientnet_b4", "torchvision/efficientnet_b4")
    }
    assert shapes["timm/efficientnet_b4"] == TracedShape("efficientnet_b4", "efficientnet_b4", 320)
    assert (
        shapes["efficientnet_b4"]
        == shapes["torchvision/efficientnet_b4"]
        == TracedShape("efficientnet_b4", "efficientnet_b4", 380)
    )


def test_a_model_of_the_catalog_and_of_timm_is_that_of_the_catalog() -> None:
    for name in ("timm/resnet50.a1_in1k", "resnet50.a1_in1k"):
        assert find_model(name, Catalog()) == find_model("resnet50", Catalog())


@pytest.mark.parametrize("name", ["kl_vae_decoder", "other/convnextv2_small", "sd15_unet"])
def test_parts_of_pipelines_and_other_owners_are_no_models_of_a_library(name: str) -> None:
    with pytest.raises(UnknownName):
        find_model(name, Catalog())
