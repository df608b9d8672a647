"""Find the shape of a model from a built-in name, a file, a Hugging Face repository, or the layer sizes of an MLP."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from whichgpu.base.errors import AmbiguousName, UnknownName, UsageError
from whichgpu.base.messages import msg
from whichgpu.base.names import nearest
from whichgpu.catalog.model import model_key
from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.hf.fields import printable
from whichgpu.workload.model_files.bounded_read import read_config
from whichgpu.workload.model_files.repository_names import repository_model
from whichgpu.workload.shapes import Mlp, Shape

if TYPE_CHECKING:
    from whichgpu.catalog.model import Model
    from whichgpu.catalog.store import Catalog

SUFFIXES = (".json", ".gguf", ".safetensors")
INDEX = "model.safetensors.index.json"
TRACED = ("python:", "torchvision:", "timm:")
LIBRARIES = ("timm", "torchvision")  # Libraries of vision models whose operators are in the shipped tables.
MAX_UNITS, MAX_LAYERS = 10**7, 64
MAX_NAME_CHARACTERS = 4096  # Longest name or path accepted (PATH_MAX on Linux).

FAMILY_KINDS = ("transformer", "diffusion")  # Kinds of models that people name by family or size.
_SIZE_WORD = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:x[0-9]+)?[bm]")
_SIZES = re.compile(r"\d{1,9}(?:[x×]\d{1,9})*")

Tracer = Callable[[str], Shape | None]
"""Traces what `python:…`, `torchvision:…`, `timm:…` or a plain name mean where torch is installed; None where it knows none."""


def find_model(model: str | Mapping[str, Any], catalog: Catalog, trace: Tracer | None = None) -> Shape:
    """Return the sizes (shape) of a model from its name, file or config; errors list what would be valid."""
    if isinstance(model, Mapping):
        return shape_from_config(model, own_name(model))
    name = model.strip()
    if not name or len(name) > MAX_NAME_CHARACTERS or "\0" in name:
        raise UsageError("bad-model", msg("error.bad-model", name=name[:80]), msg("hint.model"))
    if name.startswith("hf:"):
        repository = name.removeprefix("hf:")
        from whichgpu.workload.model_files.hub import hub_config

        return shape_from_config(hub_config(repository), repository.rpartition("/")[2])
    if name.startswith("mlp:"):
        return parse_mlp(name)
    if name.startswith(TRACED):
        return _traced(name, catalog, trace)
    if (file := _absent_gguf(name, catalog)) is not None:
        return shape_from_config(file.config, file.id)
    if name.lower().endswith(SUFFIXES):
        return _from_file(Path(os.path.expanduser(name)))
    if name.startswith((".", "/", "~")) or "\\" in name:
        return _from_folder(Path(os.path.expanduser(name)))
    if bundled := built_in(name, catalog):
        return shape_from_config(bundled.config, bundled.id)
    if os.path.isdir(name):
        return _from_folder(Path(name))
    if trace is not None and (shape := trace(name)) is not None:
        return shape
    if member := family_member(name, catalog):
        return shape_from_config(member.config, member.id)
    if trace is not None and (shape := _on_this_disk(name)) is not None:
        return shape
    raise unknown_model(name, catalog)


def _absent_gguf(name: str, catalog: Catalog) -> Model | None:
    """Return the built-in model, quantised as the name of a GGUF file says that is not in this folder; None for other names."""
    bare, dot, suffix = name.rpartition(".")
    if f"{dot}{suffix}".lower() != ".gguf" or "/" in bare or "\\" in bare or os.path.lexists(name):
        return None
    return repository_model(bare, catalog)


def _on_this_disk(name: str) -> Shape | None:
    """Return the shape of a model in the caches of Hugging Face's tools, Ollama or LM Studio; None if none has that name."""
    from whichgpu.workload.model_files.local import find_local

    path = find_local(name)
    return None if path is None else shape_at(path)


def shape_at(path: Path) -> Shape:
    """Return the shape of a model from its config.json, or from a GGUF file of any name."""
    if path.suffix.lower() == ".json":
        return _from_file(path)
    from whichgpu.workload.model_files.gguf import read_gguf

    return read_gguf(path)[0]


def parse_mlp(text: str) -> Mlp:
    """Return an MLP's shape from the number of units of each layer, inputs first.

    >>> parse_mlp("mlp:784x2048x10").units
    (784, 2048, 10)
    """
    sizes = text.removeprefix("mlp:").strip().lower()
    units = tuple(int(size) for size in re.split("[x×]", sizes)) if _SIZES.fullmatch(sizes) else ()
    if not 2 <= len(units) <= MAX_LAYERS or not all(1 <= size <= MAX_UNITS for size in units):
        hint = msg("hint.bad-mlp", layers=MAX_LAYERS, most=MAX_UNITS)
        raise UsageError("bad-mlp", msg("error.bad-mlp", text=text[:80]), hint)
    return Mlp("mlp:" + "x".join(map(str, units)), units)


def own_name(config: Mapping[str, Any]) -> str:
    """Return the name of a model given as a config.json: the one it states, else its model type."""
    for key in ("_name_or_path", "name", "model_type"):
        if isinstance(config.get(key), str) and config[key]:
            return printable(config[key])
    return "config"


def stated_config(model: str | Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the config.json that a request names by its content, path, folder or repository; None for other models."""
    if isinstance(model, Mapping):
        return model
    name = model.strip()
    if name.startswith("hf:"):
        from whichgpu.workload.model_files.hub import hub_config

        return hub_config(name.removeprefix("hf:"))
    path = Path(os.path.expanduser(name))
    path = path if path.name == "config.json" else path / "config.json"
    return read_config(path) if os.path.isfile(path) else None


def local_folder(name: str) -> str:
    """Return the absolute path of the folder on this disk that has a model's files; empty if the name means none."""
    path = os.path.expanduser(name)
    folder = os.path.dirname(path) or "." if path.endswith((".json", ".safetensors")) else path
    return os.path.abspath(folder) if os.path.isdir(folder) else ""


def built_in(name: str, catalog: Catalog) -> Model | None:
    """Return the built-in model of a name, None if there is none; raise if the name means several."""
    by_name, by_key = _models_by_name(catalog)
    matches = by_name.get(name) or by_key.get(model_key(name))
    if not matches:
        return library_model(name, catalog) or repository_model(name, catalog)
    if len(matches) > 1:
        choices = tuple(model.id for model in matches)
        message = msg("error.ambiguous-model", name=name)
        raise AmbiguousName("ambiguous-model", message, msg("hint.choices", choices=choices), choices)
    return matches[0]


@lru_cache(maxsize=4)
def _models_by_name(catalog: Catalog) -> tuple[dict[str, list[Model]], dict[str, list[Model]]]:
    """Return the models by each of their names, and by the normalised form of each."""
    by_name: defaultdict[str, list[Model]] = defaultdict(list)
    by_key: defaultdict[str, list[Model]] = defaultdict(list)
    for model in catalog.models:
        for name in model.names:
            by_name[name].append(model)
        for key in {model_key(name) for name in model.names} - {""}:
            by_key[key].append(model)
    return dict(by_name), dict(by_key)


# Pixels of images for which timm made networks that torchvision made for other sizes (pretrained_cfg of timm 1.0.31, 2026-11-18).
TIMM_IMAGES = {"efficientnet_b2": 256, "efficientnet_b3": 288, "efficientnet_b4": 320, "efficientnet_b5": 448}


def library_model(name: str, catalog: Catalog) -> Model | None:
    """Return a vision model by its name in timm or torchvision (`NAME`, `NAME.WEIGHTS`, `timm/NAME.WEIGHTS`); None if unknown."""
    owner, slash, rest = name.partition("/")
    if slash and owner not in LIBRARIES:
        return None
    bare, weights, _ = (rest or name).partition(".")
    vision = (model for model in catalog.models if bare == model.id and model.kind not in FAMILY_KINDS)
    if (slash or weights) and (listed := next(vision, None)):
        size = TIMM_IMAGES.get(bare) if owner == "timm" else None
        return replace(listed, config={**listed.config, "image": size}) if size else listed
    keys = library_names(catalog)
    return library_record(keys[key]) if (key := model_key(bare)) in keys else None


def library_names(catalog: Catalog) -> dict[str, str]:
    """Return the names of the vision models of libraries that are not in the catalog's list of models, by their keys."""
    from whichgpu.workload.tables import table_names  # Imported here, since most requests need no tables.

    listed = {part for model in catalog.models for part in (model.id, model.config.get("table"), *_pipeline_tables(model))}
    return {model_key(name): name for name in table_names() if name not in listed}


def library_record(name: str) -> Model:
    """Return the record of a vision model of a library, made from its operator table."""
    from whichgpu.catalog.model import Model
    from whichgpu.workload.tables import table_images, table_parameters, tables_written

    config = {"model_type": "traced", "table": name, "image": table_images(name)[0]}
    recorded, source = tables_written(), "timm-1.0.30"
    return Model(
        name, name, (f"timm/{name}",), "vision", "timm", "apache-2.0", "", table_parameters(name), config, (source,), recorded,
        recorded,
    )  # fmt: skip


def _pipeline_tables(model: Model) -> tuple[str, ...]:
    """Return the names of the tables of the other parts of a diffusion model."""
    pipeline = model.config.get("pipeline")
    return (str(pipeline.get("vae_decoder")),) if isinstance(pipeline, Mapping) else ()


def family_member(name: str, catalog: Catalog) -> Model | None:
    """Return the newest built-in model whose name has every typed word, such as 70b; None if there is none.

    With a size, names with further words such as vl or coder are meant only if there are no others; a size alone means one of the
    family that most repositories are based on. It is None if the models with these words differ in size. `built_in` finds the
    names that a model has as its own.
    """
    typed = _name_words(name)
    families = [model for model in catalog.models if model.kind in FAMILY_KINDS and typed and typed <= _name_words(model.id)]
    if sizes := _sizes(typed):
        families = [model for model in families if _sizes(_name_words(model.id)) == sizes]
    if len({_sizes(_name_words(model.id)) for model in families}) != 1:
        return None
    if sizes:
        fewest = min(_further_words(model, typed) for model in families)
        families = [model for model in families if _further_words(model, typed) == fewest]
    if typed == sizes:
        based = {row.model: len(row.repositories) for row in catalog.repositories}
        counts = Counter[str]()
        for model in families:
            counts[_family(model)] += based.get(model.id, 0)
        families = [model for model in families if _family(model) == counts.most_common(1)[0][0]]
    newest = max(model.released for model in families)
    members = [model for model in families if model.released == newest]
    return members[0] if len(members) == 1 else None


def built_in_member(name: str, catalog: Catalog) -> str | None:
    """Return the id of the model meant by a family name or a size; None for a name that a model has as its own."""
    if name.lower().endswith(SUFFIXES) or ":" in name or (member := family_member(name, catalog)) is None:
        return None
    return None if built_in(name, catalog) else member.id


def _name_words(name: str) -> frozenset[str]:
    """Return the words of a model's name, its family apart from a version after it: qwen, 2.5 and 7b of qwen2.5-7b."""
    words = set[str]()
    for word in re.split(r"[^a-z0-9.]+", name.lower()):
        versioned = re.fullmatch(r"([a-z]{2,})([0-9].*)", word)
        words |= set(versioned.groups()) if versioned else {word}
    return frozenset(words - {""})


def _family(model: Model) -> str:
    """Return the letters that a model's id begins with: qwen of qwen2.5-7b."""
    return re.split(r"[^a-z]", model.id, maxsplit=1)[0]


def _further_words(model: Model, typed: frozenset[str]) -> int:
    """Return the number of words of letters in a model's id beside the typed ones, its family not counted."""
    words = {word for word in _name_words(model.id) - typed - {_family(model)} if word.isalpha()}
    return len(words)


def _sizes(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in words if _SIZE_WORD.fullmatch(word))


def unknown_model(name: str, catalog: Catalog) -> UnknownName:
    """Return the error for an unknown model name, with the nearest known names."""
    owners = {alias: model.id for model in catalog.models for alias in model.names}
    owners = {name: name for name in library_names(catalog).values()} | owners
    near = tuple(dict.fromkeys(owners[alias] for alias in nearest(name, owners, max_count=8)))[:5]
    if near:
        hint = msg("hint.nearest", choices=near)
    elif name.startswith(tuple(f"{library}/" for library in LIBRARIES)):
        hint = msg("hint.trace-library", name=name.replace("/", ":", 1), command=trace_command(name))
    else:
        hint = msg("hint.repository", name=name) if re.fullmatch(r"[\w.-]+/[\w.-]+", name) else msg("hint.model")
    return UnknownName("unknown-model", msg("error.unknown-model", name=name[:80]), hint, near)


def trace_command(name: str) -> str:
    """Return the shell command that installs what tracing a model needs, in the environment of `./whichgpu` or with pip.

    >>> trace_command("timm:volo_d1_224").endswith(" timm")
    True
    """
    libraries = [library for library in LIBRARIES if name.startswith((f"{library}:", f"{library}/"))]
    if not (Path(__file__).parents[3] / "tools" / "environment").is_file():  # installed as a package, not run from a checkout
        return " ".join(("pip install 'whichgpu[trace]'", *libraries))
    environment = '"$WHICHGPU_VENV"' if os.environ.get("WHICHGPU_VENV") else ".venv"
    return " ".join((f"{environment}/bin/pip install torch", *libraries))


def _traced(name: str, catalog: Catalog, trace: Tracer | None) -> Shape:
    """Return the shape of a module traced for this request; without torch, that of a library's model from the shipped tables."""
    if find_spec("torch") is None and (library := library_model(name.replace(":", "/", 1), catalog)):
        return shape_from_config(library.config, library.id)
    if trace is None:
        raise UsageError(
            "needs-torch", msg("error.needs-torch", name=name[:80]), msg("hint.needs-torch", command=trace_command(name))
        )
    shape = trace(name)
    if shape is None:
        raise UnknownName("unknown-model", msg("error.unknown-model", name=name[:80]), msg("hint.model"))
    return shape


def _from_file(path: Path) -> Shape:
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):  # Reading a pipe could block forever.
        raise UsageError("file-unreadable", msg("error.no-plain-file", path=str(path)), msg("hint.model"))
    suffix = path.suffix.lower()
    if suffix == ".gguf":
        from whichgpu.workload.model_files.gguf import read_gguf  # The file readers are imported only if a file is named.

        return read_gguf(path)[0]
    if suffix == ".json" and not path.name.endswith(".safetensors.index.json"):
        return shape_from_config(read_config(path), _name_of(path))
    config = path.with_name("config.json")
    if os.path.isfile(config):
        return shape_from_config(read_config(config), _name_of(config))
    index = path.with_name(INDEX)
    from whichgpu.workload.model_files.safetensors import read_safetensors

    return read_safetensors(index if os.path.isfile(index) else path)


def _from_folder(path: Path) -> Shape:
    for name in ("config.json", INDEX, "model.safetensors"):
        if os.path.isfile(path / name):
            return _from_file(path / name)
    files = sorted(path.glob("*.gguf"))
    if files:
        return _from_file(files[0])
    if os.path.isdir(path):
        raise UsageError("no-config", msg("error.no-config", path=str(path)), msg("hint.model"))
    if os.path.exists(path):
        raise UsageError("file-unreadable", msg("error.no-model-file", path=str(path)), msg("hint.model"))
    raise UsageError("file-unreadable", msg("error.no-file", path=str(path)), msg("hint.model"))


def _name_of(path: Path) -> str:
    """Return the name of a model read from a file: its folder's if the file is config.json, else the file's own."""
    return path.absolute().parent.name or path.stem if path.name == "config.json" else path.stem
