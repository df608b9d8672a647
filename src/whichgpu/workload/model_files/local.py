"""Language models on this disk: in the caches of Hugging Face's tools, Ollama and LM Studio."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

MAX_MODELS = 1000  # models listed per place at most (assumed)
MAX_MANIFEST_BYTES = 1 << 20  # bytes of an Ollama manifest at most (assumed)
OLLAMA_MODEL_LAYER = "application/vnd.ollama.image.model"


class LocalModel(msgspec.Struct, frozen=True):
    """A model on this disk: the name to type, where it was found (huggingface, ollama or lm-studio), and its file or folder."""

    name: str
    place: str
    path: Path


def local_models() -> list[LocalModel]:
    """Return the models found on this disk, by place and name; folders that cannot be read are skipped."""
    places = (_hugging_face(), _ollama(), _lm_studio())
    return [model for place in places for _, model in zip(range(MAX_MODELS), place, strict=False)]


def find_local(name: str) -> Path | None:
    """Return the file or folder of a model on this disk by name (`org/name`, an Ollama tag, a GGUF file); None if absent."""
    typed = name.lower()
    for model in local_models():
        spellings = {model.name.lower(), model.name.lower().removeprefix("hf:"), model.path.stem.lower()}
        spellings.add(model.name.lower().removesuffix(":latest"))
        if typed in spellings:
            return model.path
    return None


def hub_root() -> Path:
    """Return the cache folder of Hugging Face's own tools."""
    hub = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    home = os.environ.get("HF_HOME")
    return Path(hub) if hub else (Path(home) if home else Path("~/.cache/huggingface").expanduser()) / "hub"


def _hugging_face() -> Iterator[LocalModel]:
    for folder in _sorted(hub_root(), "models--*--*"):
        configs = _sorted(folder / "snapshots", "*/config.json")
        if configs:
            repository = folder.name.removeprefix("models--").replace("--", "/", 1)
            yield LocalModel(f"hf:{repository}", "huggingface", configs[-1])


def _ollama() -> Iterator[LocalModel]:
    root = Path(os.environ.get("OLLAMA_MODELS") or Path("~/.ollama/models").expanduser())
    for manifest in _sorted(root / "manifests", "*/*/*/*"):
        try:
            with manifest.open("rb") as stream:
                layers = json.loads(stream.read(MAX_MANIFEST_BYTES))["layers"]
            digest = next(str(layer["digest"]) for layer in layers if layer.get("mediaType") == OLLAMA_MODEL_LAYER)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, StopIteration):
            continue
        blob = root / "blobs" / Path(digest.replace(":", "-")).name
        owner, model = manifest.parts[-3:-1]
        if blob.is_file():
            yield LocalModel(f"{model if owner == 'library' else f'{owner}/{model}'}:{manifest.name}", "ollama", blob)


def _lm_studio() -> Iterator[LocalModel]:
    for root in ("~/.lmstudio/models", "~/.cache/lm-studio/models"):
        for file in _sorted(Path(root).expanduser(), "*/*/*.gguf"):
            yield LocalModel(str(file), "lm-studio", file)


def _sorted(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []
