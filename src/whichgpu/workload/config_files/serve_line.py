"""The workload of a command line that starts a server: the inverse of the lines that `--emit` writes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whichgpu.catalog.engines.record import ServeCommand
from whichgpu.catalog.engines.registry import engine_ids, engine_record
from whichgpu.workload.config_files.checkpoint_names import placeholder_parts
from whichgpu.workload.config_files.config import (
    COUNTS_ALLOWED,
    MAX_COUNT,
    SHARES_ALLOWED,
    ConfigWorkload,
    ImpossibleNumber,
    is_number,
)
from whichgpu.workload.config_files.model_names import gguf_parts, hub_parts
from whichgpu.workload.config_files.ollama_line import ollama_workload_of
from whichgpu.workload.config_files.speculative_options import flattened, speculative_of
from whichgpu.workload.precisions import PRECISION_BY_NAME, PRECISION_SYNONYMS

PLACEHOLDER = "{model}"
MODEL_OPTIONS = ("--model", "--model-path", "-m")
HUB_OPTION = "--hf-repo"  # of llama.cpp: a repository of the hub with GGUF files
# Options without a value; others take the next word as theirs.
_SWITCH = re.compile(r"--(enable|disable|no|trust|enforce|skip|use|headless|allow|return|async)\b.*")
_HALF = {"half": "fp16", "float": "fp32"}
IGNORED_VALUES = ("auto", "")
EXPERTS_ON_HOST, EXPERT_LAYERS_ON_HOST, LAYERS_ON_GPUS = "--cpu-moe", "--n-cpu-moe", "--n-gpu-layers"  # of llama.cpp
AUTOMATIC = ("-1",)  # vLLM and SGLang choose a length or a number of sequences themselves.


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a shell script; comments and lines that a shell could not read are left out."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        if words:
            yield words


def serve_workload_of(words: Sequence[str]) -> ConfigWorkload | None:
    """Return the workload of a command that starts a known server, also inside `docker run` or `srun`; None for any other."""
    for engine in engine_ids():
        serve = engine_record(engine).serve
        if serve.command and (arguments := _arguments(words, serve)) is not None:
            return _workload(engine, serve, arguments)
    return ollama_workload_of(words)


def image_engine(image: str) -> str | None:
    """Return the engine of a container image whose entry point is its server; None if it is not known."""
    return next((id for id in engine_ids() if _image_name(image) == _image_name(engine_record(id).serve.image) != ""), None)


def _image_name(image: str) -> str:
    """Return an image's name without registry, tag and digest.

    >>> _image_name("docker.io/vllm/vllm-openai:v0.11.0")
    'vllm-openai'
    """
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def program_of(engine: str) -> list[str]:
    """Return the words that start an engine's server, without the model."""
    return _program(engine_record(engine).serve.command)


def _program(command: str) -> list[str]:
    words = command.split()
    return words[: next(place for place, word in enumerate(words) if PLACEHOLDER in word or word.startswith("--"))]


def _arguments(words: Sequence[str], serve: ServeCommand) -> list[str] | None:
    """Return the words after an engine's program; None if it is not started here."""
    for program in (_program(serve.command), *(one.split() for one in serve.programs)):
        names = [name.rpartition("/")[2] for name in program]
        for start in range(len(words) - len(names) + 1):
            here = [_bare(word) for word in words[start : start + len(names)]]
            if here == [_bare(name) for name in names]:
                return list(words[start + len(names) :])
    for place, word in enumerate(words):
        if serve.image and _image_name(word) == _image_name(serve.image) and "docker" in words[:place]:
            entry = next((one.partition("=")[2] for one in words[:place] if one.startswith("--entrypoint=")), None)
            return _arguments([entry, *words[place + 1 :]], serve) if entry else list(words[place + 1 :])
    return None


def _bare(word: str) -> str:
    """Return a program's name without its folder, and `python` for all its versions."""
    return re.sub(r"^python[\d.]*$", "python", word.rpartition("/")[2])


def _options(arguments: Sequence[str], serve: ServeCommand) -> tuple[list[str], dict[str, str]]:
    """Return the words without an option, and the options by their main name with their values."""
    plain: list[str] = []
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or re.fullmatch(r"-[\d.]+", word):
            plain.append(word)
            continue
        name, equals, value = word.partition("=")
        name = _dashed(name, serve)
        name = serve.aliases.get(name, name)
        if (
            not equals
            and rest
            and (not rest[0].startswith("-") or is_number(rest[0]))
            and not _SWITCH.fullmatch(name)
            and name not in _switches(serve)
        ):
            value = rest.pop(0)
        options[name] = value
    return plain, options


def _dashed(name: str, serve: ServeCommand) -> str:
    """Return an option with dashes in place of underscores, which vLLM and llama.cpp read alike, if its own have none."""
    if not name.startswith("--") or "_" in serve.context + serve.max_sequences:
        return name
    first, dot, rest = name.partition(".")
    return first.replace("_", "-") + dot + rest


def _switches(serve: ServeCommand) -> tuple[str, ...]:
    experts = serve.expert_parallel if "{ep}" not in serve.expert_parallel else ""
    return experts, serve.attention_data_parallel, serve.embedding, EXPERTS_ON_HOST


def _workload(engine: str, serve: ServeCommand, arguments: Sequence[str]) -> ConfigWorkload:
    plain, options = _options(arguments, serve)
    read = _ReadOptions(flattened(options))
    hub = read.text(HUB_OPTION) if serve.reads_gguf else None
    model = next((value for name in MODEL_OPTIONS if (value := read.text(name))), None) or hub or next(iter(plain), None)
    fields: dict[str, Any] = {"task": "embed" if read.switch(serve.embedding) else "serve", "engine": engine}
    if model:
        parts = gguf_parts if model.endswith(".gguf") else hub_parts if model == hub else placeholder_parts
        name, precision = parts(model)
        fields |= {"model": name} | ({"precision": precision} if precision else {})
    fields |= _precision("precision", serve.precision, read) | _precision("kv_precision", serve.kv_precision, read)
    is_default_zero = serve.context_of_all  # llama.cpp takes the model's own context then.
    ranks = _attention_ranks(serve, read) if serve.limits_of_all_ranks else 1
    sequences = _of_each(read.whole(serve.max_sequences, AUTOMATIC), ranks)
    context = read.whole(serve.context, (*AUTOMATIC, "0") if is_default_zero else AUTOMATIC)
    if context and serve.context_of_all:
        context //= sequences or 1
    fields |= _layout(serve, read) | speculative_of(serve, read.text, read.leave)
    fields |= _experts_on_host(serve, read)
    return ConfigWorkload(
        engine,
        fields,
        context,
        sequences,
        _of_each(read.whole(serve.chunk, AUTOMATIC), ranks),
        read.share(serve.memory_share),
        _gpu_layers(serve, read),
        tuple(read.unread(serve)),
        tuple(read.invalid.values()),
    )


def _experts_on_host(serve: ServeCommand, read: _ReadOptions) -> dict[str, Any]:
    """Return the experts in host memory, of an engine that places those of all layers or of the first ones there."""
    if "some_experts" not in serve.offload:
        return {}
    if read.switch(EXPERTS_ON_HOST):
        return {"offload": {"experts": "host"}}
    layers = read.whole(EXPERT_LAYERS_ON_HOST, ("0",))
    return {"offload": {"experts": layers}} if layers else {}


def _of_each(total: int | None, ranks: int) -> int | None:
    """Return one rank's part of a limit that is stated for all ranks."""
    return total and max(1, total // ranks)


def _gpu_layers(serve: ServeCommand, read: _ReadOptions) -> int | None:
    """Return the layers on GPUs, of an engine that places them by number; None if all are or the engine chooses."""
    text = read.text(LAYERS_ON_GPUS) if "none" in serve.offload else None
    return int(text) if text and re.fullmatch(r"\d{1,5}", text) else None


def _attention_ranks(serve: ServeCommand, read: _ReadOptions) -> int:
    """Return the attention data parallel ranks, by the option of later releases or a switch beside the data parallel size."""
    if size := read.whole(serve.attention_data_parallel_size):
        return size
    return (read.whole(serve.data_parallel) or 1) if read.switch(serve.attention_data_parallel) else 1


def _layout(serve: ServeCommand, read: _ReadOptions) -> dict[str, Any]:
    """Return parallel degrees, GPUs and nodes."""
    tp = (read.whole(serve.tensor_parallel) if " " not in serve.tensor_parallel else None) or 1
    pp = (read.whole(serve.pipeline_parallel) if " " not in serve.pipeline_parallel else None) or 1
    attention = _attention_ranks(serve, read)
    dp = max(attention, read.whole(serve.data_parallel) or 1)
    tp = max(1, tp // attention)
    option, _, size = serve.expert_parallel.partition("=")
    ep = (read.whole(option) or 1) if size else tp * dp if read.switch(option) else 1
    if attention > 1:  # The experts stay sharded over all ranks, whole or in parts.
        ep = tp * dp
    nodes = read.whole(serve.nodes.partition("=")[0]) or 1
    parallel = {name: value for name, value in {"tp": tp, "pp": pp, "dp": dp, "ep": ep}.items() if value > 1}
    gpus = tp * pp * dp
    return {"gpus": gpus, **({"parallel": parallel} if parallel else {}), **({"nodes": nodes} if nodes > 1 else {})}


def _precision(field: str, spelled: Mapping[str, str], read: _ReadOptions) -> dict[str, str]:
    """Return the precision that options set: a quantisation before a type of the activations."""
    spellings = {text.partition("=")[::2]: name for name, text in spelled.items() if "=" in text and " " not in text}
    chosen: dict[str, str] = {}
    for option in sorted({option for option, _ in spellings}, key=lambda option: "quant" not in option):
        value = read.text(option)
        if value is None or value in IGNORED_VALUES:
            continue
        candidates = (spellings.get((option, value)), _HALF.get(value), value, value.partition("_")[0])
        words = (PRECISION_SYNONYMS.get(one, one) for one in candidates if one)
        name = next((one for one in words if one in PRECISION_BY_NAME), None)
        if name:
            chosen.setdefault(field, name)
        else:
            read.leave(option)
    return chosen


class _ReadOptions:
    """The options of a command line, and which of them were read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options, self._read = options, set[str]()
        self.invalid: dict[str, ImpossibleNumber] = {}

    def text(self, name: str) -> str | None:
        """Return an option's value; None if it is not there."""
        if not name or name not in self._options:
            return None
        self._read.add(name)
        return self._options[name]

    def leave(self, name: str) -> None:
        """Count an option as not read."""
        self._read.discard(name)

    def switch(self, name: str) -> bool:
        """Return whether a switch is there."""
        return self.text(name) is not None

    def whole(self, name: str, automatic: Sequence[str] = ()) -> int | None:
        """Return an option's positive whole value, with k and m for thousands and millions as vLLM writes them; else None.

        `automatic` are numbers by which the engine chooses the value itself.
        """
        text = self.text(name) or ""
        match = re.fullmatch(r"(\d{1,9})([kKmM]?)", text)
        scale = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 1 << 20}[match[2]] if match else 1
        if match and 0 < int(match[1]) * scale <= MAX_COUNT:
            return int(match[1]) * scale
        self._refuse(name, text, COUNTS_ALLOWED, automatic)
        return None

    def _refuse(self, name: str, text: str, allowed: str, automatic: Sequence[str] = ()) -> None:
        """Count an option as not read, and as invalid if it is a number that is not allowed."""
        self.leave(name)
        if is_number(text) and text not in automatic:
            self.invalid[name] = ImpossibleNumber(name, text, allowed)

    def share(self, name: str) -> float | None:
        """Return an option's value between 0 and 1; else None."""
        text = self.text(name) or ""
        value = float(text) if re.fullmatch(r"[01]?\.?\d{1,9}", text) else 0.0
        if not 0 < value <= 1:
            self._refuse(name, text, SHARES_ALLOWED)
            return None
        return value

    def unread(self, serve: ServeCommand) -> Iterator[str]:
        """Yield the options that no field has, except those of every server."""
        fixed = {serve.port, "--host", "--served-model-name", *(word for word in serve.fixed.split() if word.startswith("-"))}
        yield from (name for name in self._options if name not in self._read | fixed)
