"""Reader of config files: finds out what a file is, and returns its workload."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from math import inf
from typing import Any

from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.workload.config_files.config import ConfigWorkload, ImpossibleNumber, unreadable
from whichgpu.workload.config_files.serve_line import command_lines, image_engine, program_of, serve_workload_of
from whichgpu.workload.config_files.training import training_tool, training_workload
from whichgpu.workload.config_files.training_line import training_workload_of

MAX_FILE_BYTES = 1 << 20  # Larger files are no configs (assumed).
_YAML_ALIAS = re.compile(r"(?:^|[\s\[{,:-])\*[\w-]")
MAX_EXPANDED = 4 << 20  # Characters of a file with its aliases written out (assumed).
MAX_WORKLOADS = 20  # Most servers and training runs of one file (assumed).
MAX_TEXT = 20_000  # Characters of a text that is sent instead of a file (assumed).
YAML_SUFFIXES = (".yaml", ".yml")
COMPOSE, KUBERNETES = "docker-compose", "kubernetes"
SEVERAL_MACHINES = "--distributed-executor-backend"  # of vLLM: with Ray, ranks may be in other containers
SHELLS = ("sh", "bash")


def config_workload(content: bytes, name: str) -> ConfigWorkload:
    """Return the workload that a file describes: a serve or training command, a compose file or manifest, a training config."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise unreadable(name, "it is not text") from problem
    if name.lower().endswith((*YAML_SUFFIXES, ".json")):
        configs = (config for document in _documents(text, name) for config in _of_document(document))
        if (joined := _joined(configs, name)) is not None:
            return joined
        raise unreadable(name, "no known keys")
    if (joined := _joined(_of_commands(text), name)) is not None:
        return joined
    raise unreadable(name, "no command that starts a known server or a training script")


def text_workload(text: str, name: str) -> ConfigWorkload:
    """Return the workload of a text without a file's name: commands for a shell, or else YAML or JSON."""
    if len(text) > MAX_TEXT:
        raise unreadable(name, f"longer than {MAX_TEXT} characters")
    if (joined := _joined(_of_commands(text), name)) is not None:
        return joined
    if _YAML_ALIAS.search(text):
        raise unreadable(name, "it has YAML aliases")  # A few lines of them may stand for gigabytes.
    return config_workload(text.encode("utf-8", "replace"), f"{name}{YAML_SUFFIXES[0]}")


def _joined(configs: Iterable[ConfigWorkload], name: str) -> ConfigWorkload | None:
    """Return the first of a file's workloads with the others that differ from it; None if there is none."""
    distinct: list[ConfigWorkload] = []
    for config in configs:
        if config not in distinct:
            distinct.append(config)
        if len(distinct) > MAX_WORKLOADS:
            raise unreadable(name, f"more than {MAX_WORKLOADS} servers or training runs")
    return replace(distinct[0], others=tuple(distinct[1:])) if distinct else None


def _of_commands(text: str) -> Iterator[ConfigWorkload]:
    """Yield the workloads of the commands in a shell script that start a known server or a training script."""
    for words in command_lines(text):
        if (config := serve_workload_of(words) or training_workload_of(words)) is not None:
            yield config


def _documents(text: str, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings in a JSON or YAML file."""
    if name.lower().endswith(".json"):
        try:
            documents = [json.loads(text)]
        except (ValueError, RecursionError) as problem:
            raise unreadable(name, str(problem)) from problem
    else:
        documents = _yaml(text, name)
    yield from (document for document in documents if isinstance(document, dict))


def _yaml(text: str, name: str) -> list[Any]:
    if find_spec("yaml") is None:
        raise UsageError("needs-extra", msg("error.needs-yaml"), msg("hint.needs-yaml"))
    import yaml

    try:
        if _YAML_ALIAS.search(text) and _expanded_characters(text) > MAX_EXPANDED:
            raise unreadable(name, f"its YAML aliases stand for more than {MAX_EXPANDED} characters")
        return list(yaml.safe_load_all(text))
    except yaml.constructor.ConstructorError as problem:
        raise unreadable(name, f"{_place(problem)}it has a tag or a key that plain YAML does not have") from problem
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        why = getattr(problem, "problem", None) or "it is not valid YAML"
        raise unreadable(name, _place(problem) + " ".join(str(why).split())) from problem


def _place(problem: Exception) -> str:
    """Return the line and column of an error in YAML, if it has them."""
    mark = getattr(problem, "problem_mark", None)
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _expanded_characters(text: str) -> float:
    """Return the characters of a YAML file with a copy in place of each alias; infinite if a part contains itself."""
    import yaml

    sizes: dict[str, float] = {}
    open_parts: list[tuple[str | None, float]] = [(None, 0.0)]
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        anchor, size = None, 0.0
        if isinstance(event, yaml.CollectionStartEvent):
            open_parts.append((event.anchor, 1.0))
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_parts.pop()
        elif isinstance(event, yaml.AliasEvent):
            size = sizes.get(event.anchor, inf)
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size = event.anchor, 1.0 + len(event.value)
        if anchor is not None:
            sizes[anchor] = size
        outer, total = open_parts[-1]
        open_parts[-1] = outer, total + size
    return open_parts[0][1]


def _of_document(document: Mapping[str, Any]) -> Iterator[ConfigWorkload]:
    if tool := training_tool(document):
        yield training_workload(document, tool)
    elif isinstance(document.get("services"), dict):
        yield from _servers(_compose_commands(document["services"]), COMPOSE)
    elif "kind" in document and "spec" in document:
        yield from _servers(_container_commands(document), KUBERNETES)
    elif isinstance(document.get("run"), str):  # A task of SkyPilot.
        yield from _servers(((words, None) for words in command_lines(document["run"])), None)


def _servers(commands: Iterator[tuple[list[str], int | None]], tool: str | None) -> Iterator[ConfigWorkload]:
    """Yield the workloads of the commands that start a server, on the GPUs that its container gets."""
    for words, gpus in commands:
        if (config := serve_workload_of(words)) is not None:
            # Ranks beyond the layout are data parallel only if the command says so: a container may have GPUs to spare.
            unread = (*config.unread, f"{gpus} GPUs") if gpus and gpus != config.fields["gpus"] else config.unread
            invalid = (*config.invalid, *_too_few_gpus(config, gpus))
            yield replace(config, tool=tool or config.tool, unread=unread, invalid=invalid)


def _too_few_gpus(config: ConfigWorkload, gpus: int | None) -> Iterator[ImpossibleNumber]:
    """Yield the GPUs of a container if they are fewer than its tensor parallel ranks on a node; other ranks may be elsewhere."""
    tp = (config.fields.get("parallel") or {}).get("tp", 1)
    ranks = -(-tp // config.fields.get("nodes", 1))
    if gpus is not None and gpus < ranks and SEVERAL_MACHINES not in config.unread:
        yield ImpossibleNumber("GPUs of the container", str(gpus), f">= {ranks}: tensor parallel {tp}")


def _compose_commands(services: Mapping[str, Any]) -> Iterator[tuple[list[str], int | None]]:
    for service in services.values():
        if isinstance(service, dict):
            commands = _commands(service.get("entrypoint"), service.get("command"), str(service.get("image") or ""))
            yield from ((words, _reserved_gpus(service)) for words in commands)


def _container_commands(document: Any, visited: set[int] | None = None) -> Iterator[tuple[list[str], int | None]]:
    """Yield the commands of all containers in a manifest, however deep they are, with the GPUs each of them gets.

    `visited` are ids of parts already read: YAML's aliases may refer to one part exponentially often.
    """
    visited = set() if visited is None else visited
    if not isinstance(document, dict) or id(document) in visited:
        return
    visited.add(id(document))
    containers = document.get("containers")
    for container in containers if isinstance(containers, list) else ():
        if isinstance(container, dict):
            gpus = _nested(container, "resources", "limits", "nvidia.com/gpu")
            count = int(gpus) if str(gpus).isdigit() else None
            commands = _commands(container.get("command"), container.get("args"), str(container.get("image") or ""))
            yield from ((words, count) for words in commands)
    for value in document.values():
        yield from _container_commands(value, visited)


def _nested(value: Any, *keys: str) -> Any:
    """Return the value under nested keys; None if one of them is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _commands(entry_point: Any, arguments: Any, image: str) -> Iterator[list[str]]:
    """Yield the commands of a container: those of a shell's script, or one, with its image's program if it has none."""
    program, words = _words(entry_point), [*_words(entry_point), *_words(arguments)]
    if len(words) > 2 and words[0].rpartition("/")[2] in SHELLS and words[1].endswith("c"):  # -c, -lc, -ec
        yield from command_lines(words[2])
        return
    engine = image_engine(image)
    has_program = (program and not program[0].startswith("-")) or serve_workload_of(words) is not None
    yield words if engine is None or has_program else [*program_of(engine), *words]


def _words(command: Any) -> list[str]:
    if isinstance(command, list):
        return [word if isinstance(word, str) else json.dumps(word, default=str) for word in command]
    try:
        return shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return []


def _reserved_gpus(service: Mapping[str, Any]) -> int | None:
    """Return the GPUs that a compose service reserves; None if it takes all or says nothing."""
    devices = _nested(service, "deploy", "resources", "reservations", "devices")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict):
            ids = device.get("device_ids")
            count = len(ids) if isinstance(ids, list) else device.get("count")
            return int(str(count)) if str(count).isdigit() else None
    return None
