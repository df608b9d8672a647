"""Targets of `--emit`: each has a template that writes the files which launch groups of replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.decide.launch.cloud_cli import DISK_GB, TOOLS, Machines, check_provider, create_line, port_note
from whichgpu.decide.launch.clusters import (
    POD_NETWORK,
    SKY_NETWORK,
    dstack_service,
    karpenter_pool,
    network_note,
    node_class_note,
    placement_note,
)
from whichgpu.decide.launch.containers import controller_note, docker_line, kubernetes_manifests, slurm_script, volume_note
from whichgpu.decide.launch.disk import weights_disk_gb
from whichgpu.decide.launch.engine_lines.ollama import ollama_code, ollama_notes
from whichgpu.decide.launch.engine_lines.quantised_checkpoint import ENGINES as QUANTISED_ENGINES
from whichgpu.decide.launch.images import check_image, image_of, install_notes
from whichgpu.decide.launch.names import region_notes
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.picture_targets import PICTURE_TARGETS
from whichgpu.decide.launch.serve_command import node_notes, serve_line, serve_notes, serving_engines
from whichgpu.decide.launch.skypilot import PORT, release_note, service
from whichgpu.decide.launch.text import SECRET_COMMAND, comments, token_note, yaml
from whichgpu.decide.launch.train.targets import TRAIN_TARGETS


class LaunchPlan(msgspec.Struct, frozen=True):
    """Groups of replicas to launch, the engine they were estimated with, and lines on the estimate for the head of each file."""

    groups: tuple[LaunchOptions, ...]
    engine: str
    header: tuple[str, ...] = ()


Files = dict[str, str]
Template = Callable[[LaunchPlan], Files]
EXPORT = "export HF_TOKEN=…"
Notes = Callable[[LaunchOptions], list[str]]


@cache
def targets() -> Mapping[str, Template]:
    """Return the targets by name, each with the template that writes its files."""
    engines: dict[str, Template] = {engine: partial(_engine_script, engine) for engine in serving_engines()}
    return engines | {
        "ollama": _ollama_script,
        "docker": _docker_script,
        "slurm": _slurm_scripts,
        "skypilot": _skypilot_services,
        "kubernetes": _kubernetes_manifests,
        "karpenter": _karpenter_manifests,
        "dstack": _dstack_services,
        "cloud-cli": _cloud_lines,
    }


def target_names() -> tuple[str, ...]:
    """Return the names of all targets: those that serve, then those that only train or make pictures."""
    return tuple(dict.fromkeys((*targets(), *TRAIN_TARGETS, *PICTURE_TARGETS)))


def launch_files(target: str, plan: LaunchPlan) -> Files:
    """Return the files that a target launches the groups with, by name."""
    return targets()[target](plan)


def _engine_script(engine: str, plan: LaunchPlan) -> Files:
    if engine != plan.engine:  # Tokens of a step and memory share are those of the engine that was estimated.
        changes = {} if engine in QUANTISED_ENGINES else {"checkpoint": None}
        groups = tuple(replace(one, max_num_batched_tokens=None, memory_share=None, **changes) for one in plan.groups)
        plan = replace(plan, groups=groups)
    if engine_record(engine).serve.reads_gguf:
        _check_one_node(plan, engine)
    notes = partial(_script_notes, engine=engine)
    return {f"{engine}.sh": _script(plan, engine, lambda options: serve_line(options, engine), notes=notes)}


def _docker_script(plan: LaunchPlan) -> Files:
    engine = _containers(plan, "docker")
    notes = partial(_docker_notes, engine=engine)
    return {"docker.sh": _script(plan, engine, lambda options: docker_line(options, engine), notes=notes)}


def _ollama_script(plan: LaunchPlan) -> Files:
    _check_one_node(plan, "ollama")
    return {"ollama.sh": _script(plan, "llama.cpp", ollama_code, "Ollama", notes=ollama_notes)}


def _slurm_scripts(plan: LaunchPlan) -> Files:
    engine = _server(plan)
    files = {}
    for one in plan.groups:
        notes = [
            *_head(plan, engine),
            *install_notes(one, engine),
            *serve_notes(one, engine),
            *_token_notes(engine, f"{EXPORT} before sbatch"),
        ]
        notes += [f"Ports: {PORT} + the index of each job of the array."] if one.copies > 1 else []
        files[f"{one.group}.sbatch"] = slurm_script(one, engine, comments(notes))
    return files


def _skypilot_services(plan: LaunchPlan) -> Files:
    engine = _server(plan)
    return {
        f"{one.group}.yaml": comments(
            [
                *release_note(one, engine),
                *_head(plan, engine),
                *serve_notes(replace(one, earlier={}), engine),
                *_token_notes(engine, "--env HF_TOKEN"),
                *region_notes("skypilot", one.placement),
                *network_note(one.placement, SKY_NETWORK),
            ]
        )
        + yaml(service(one, engine))
        for one in plan.groups
    }


def _kubernetes_manifests(plan: LaunchPlan, karpenter: bool = False) -> Files:
    engine = _containers(plan, "kubernetes")
    files = {}
    for one in plan.groups:
        notes = [
            *serve_notes(one, engine),
            *volume_note(one, engine),
            *_token_notes(engine, SECRET_COMMAND),
            *controller_note(one),
            *placement_note(one.placement),
            *network_note(one.placement, POD_NETWORK),
        ]
        documents = kubernetes_manifests(one, engine, karpenter)
        files[f"{one.group}.yaml"] = comments([*_head(plan, engine), *notes]) + "---\n".join(map(yaml, documents))
    return files


def _karpenter_manifests(plan: LaunchPlan) -> Files:
    """Return the manifests of Kubernetes, and a node pool for each group whose machine Karpenter can start."""
    pools = {
        f"{one.group}-nodes.yaml": comments(plan.header)
        + comments(node_class_note(one.placement, weights_disk_gb(one.download_bytes)))
        + yaml(karpenter_pool(one.group, one.placement, one.copies * one.gpus_per_copy))
        for one in plan.groups
    }
    return pools | _kubernetes_manifests(plan, karpenter=True)


def _dstack_services(plan: LaunchPlan) -> Files:
    engine = _containers(plan, "dstack")
    if any(one.nodes > 1 for one in plan.groups):  # A service of dstack is of single machines.
        raise UsageError("emit-nodes", msg("error.emit-nodes", target="dstack"), msg("hint.emit-nodes"))
    return {
        f"{one.group}.dstack.yml": comments(
            [
                *_head(plan, engine),
                *serve_notes(one, engine),
                *volume_note(one, engine),
                *_token_notes(engine, "-e HF_TOKEN=…"),
                *region_notes("dstack", one.placement),
            ]
        )
        + yaml(dstack_service(one, engine, image_of(one, engine)))
        for one in plan.groups
    }


def _cloud_lines(plan: LaunchPlan) -> Files:
    """Return a script that creates the machines of every group, and what the machines of each group start."""
    engine, files = _containers(plan, "cloud-cli"), dict[str, str]()
    script = "#!/bin/sh\n" + comments(_head(plan, engine))
    for one in plan.groups:
        check_provider(one.provider, one.instance)
        count = one.machines or one.copies * one.nodes
        start = f"{one.group}-start.sh" if one.nodes == 1 else ""  # Nodes of one replica must know each other first.
        if start:
            replicas = [docker_line(one, engine, replica) for replica in range(-(-one.copies // count))]
            files[start] = (
                "#!/bin/sh\n"
                + comments(
                    [*plan.header, *serve_notes(one, engine), *_token_notes(engine, "write export HF_TOKEN=… above docker")]
                )
                + "\n".join(replicas)
                + "\n"
            )
        disk = max(DISK_GB, weights_disk_gb(one.download_bytes))
        machines = Machines(one.group, one.provider, one.instance, one.region, one.gpu, count, one.spot, start, disk)
        notes = [
            f"Tool: as documented for {TOOLS[one.provider]}.",
            port_note(one.provider, PORT),
            *([f"Copy {one.model} to that path of the machines first."] if one.model.startswith("/") else []),
            *([] if start else [*serve_notes(one, engine), *node_notes(one, engine)]),
        ]
        script += comments(notes) + create_line(machines) + "\n"
    return {"cloud.sh": script} | files


def _script_notes(options: LaunchOptions, engine: str) -> list[str]:
    """Return what a person does before the command of a replica runs on their own machine."""
    token = _token_notes(engine, f"{EXPORT} before the command")
    return [*install_notes(options, engine), *token, *serve_notes(options, engine), *node_notes(options, engine)]


def _docker_notes(options: LaunchOptions, engine: str) -> list[str]:
    return [*_token_notes(engine, f"{EXPORT} before the command"), *serve_notes(options, engine), *node_notes(options, engine)]


def _token_notes(engine: str, how: str) -> list[str]:
    """Return how an engine that downloads weights gets the user's token."""
    return [] if engine_record(engine).serve.reads_gguf else token_note(how)


def _server(plan: LaunchPlan) -> str:
    """Return the engine that containers and jobs start: that of the estimate if it serves, else the default one."""
    engine = plan.engine if plan.engine in serving_engines() else default_engine("serve")
    if not engine_record(engine).serve.nodes:
        _check_one_node(plan, engine)
    return engine


def _check_one_node(plan: LaunchPlan, engine: str) -> None:
    """Raise an error if a replica has several nodes, which the engine has no options for."""
    if any(one.nodes > 1 for one in plan.groups):
        raise UsageError("emit-nodes", msg("error.emit-nodes", target=engine), msg("hint.emit-engine-nodes"))


def _containers(plan: LaunchPlan, target: str) -> str:
    """Return the engine that containers start; raise an error if it has no image for the GPUs of a group."""
    engine = _server(plan)
    for one in plan.groups:
        check_image(one, engine, target)
    return engine


def _script(plan: LaunchPlan, engine: str, line: Callable[[LaunchOptions], str], name: str | None = None, *, notes: Notes) -> str:
    """Return a shell script with one command for each group of replicas."""
    text = "#!/bin/sh\n" + comments(_head(plan, engine, name))
    if any(one.copies > 1 for one in plan.groups):
        text += comments(["Each command starts one replica; a load balancer distributes requests to them."])
    for one in plan.groups:
        place = " ".join(filter(None, (one.provider, one.instance)))
        count = f"{one.copies} of these, each on {one.gpus_per_copy}x {one.gpu}" + (f" ({place})" if place else "")
        text += comments([count, *notes(one)]) + line(one) + "\n"
    return text


def _head(plan: LaunchPlan, engine: str, name: str | None = None) -> list[str]:
    """Return the lines about the estimate, and the release whose documented options are used."""
    record = engine_record(engine)
    release = f"{record.name} {record.serve.version}".strip()
    lines = [*plan.header, f"Options: as documented for {name or release}."]
    if plan.header and plan.engine != engine:
        lines.append(f"The estimate is for {plan.engine}; --engine={engine} estimates {name or record.name}.")
    return lines
