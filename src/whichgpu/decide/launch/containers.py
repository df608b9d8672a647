"""Containers and batch jobs that serve replicas: docker, Kubernetes and Slurm."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.decide.launch.clusters import FOLDER, gpu_resource, literal_words, node_placement
from whichgpu.decide.launch.disk import cache_gib
from whichgpu.decide.launch.images import image_of
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.placement import Placement
from whichgpu.decide.launch.serve_command import container_words, model_argument, node_setup, serve_line, shell_line
from whichgpu.decide.launch.skypilot import HEALTH, PORT
from whichgpu.decide.launch.text import SLURM_HEAD_ADDRESS, TOKEN, NodeWord, sbatch_head

# Folder of the container where models of the Hugging Face hub are cached.
HUB_FOLDER = "/models"
HUB_MOUNT = f'--env=HF_HOME={HUB_FOLDER} --env={TOKEN} --volume="$HOME/.cache/huggingface:{HUB_FOLDER}"'
HUB_VARIABLE = {"name": "HF_HOME", "value": HUB_FOLDER}
# What containers that use GPUs of AMD get (https://docs.vllm.ai/en/latest/getting_started/installation/gpu.html, 2026-11-18);
# they run as root, which needs no group for the devices.
AMD_OPTIONS = ["--device=/dev/kfd", "--device=/dev/dri", "--cap-add=SYS_PTRACE", "--security-opt=seccomp=unconfined"]
# The user's token, in a container of Kubernetes; the secret may be missing.
TOKEN_VARIABLE = {"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": TOKEN, "optional": True}}}
FILES_MOUNT = f'--volume="$PWD:{FOLDER}"'
FOLDER_MOUNT = f"{FILES_MOUNT} --workdir={FOLDER}"

# Controller of LeaderWorkerSets (https://lws.sigs.k8s.io/docs/installation, 2026-11-18).
CONTROLLER = "https://github.com/kubernetes-sigs/lws/releases/download/v0.9.0/manifests.yaml"
# Ranks of a node exchange data in shared memory.
SHARED_MEMORY = {"name": "shm", "emptyDir": {"medium": "Memory"}}
SHARED_MEMORY_MOUNT = {"name": "shm", "mountPath": "/dev/shm"}


# Models of the hub, on the node's disk as long as the pod exists.
CACHE_MOUNT = {"name": "models", "mountPath": HUB_FOLDER}


def docker_line(options: LaunchOptions, engine: str, replica: int | None = None) -> str:
    """Return the `docker run` line of one replica, or of one of its nodes.

    `replica` is the index of one of several on the same machine: it runs in the background, on its own GPUs and port.
    """
    program, *arguments = container_words(options, engine, PORT, FOLDER)
    network = ["--network=host"] if options.nodes > 1 else [f"--publish={PORT + (replica or 0)}:{PORT}"]
    words = [
        "docker",
        "run",
        "--rm" if replica is None else "--detach",
        *container_gpus(options.vendor, _replica_devices(options, replica)),
        "--ipc=host",
    ]
    mounts = FILES_MOUNT if engine_record(engine).serve.reads_gguf else HUB_MOUNT
    mounts = " ".join([mounts, *own_mounts([options.model])])
    return " ".join(
        [shell_line(words), mounts, shell_line([*network, f"--entrypoint={program}", image_of(options, engine), *arguments])]
    )


def container_gpus(vendor: str, devices: str = "") -> list[str]:
    """Return docker's options that give a container all GPUs of the machine, or those of these indices."""
    if vendor == "amd":
        return AMD_OPTIONS + ([f"--env=HIP_VISIBLE_DEVICES={devices}"] if devices else [])
    return [f'--gpus="device={devices}"' if devices else "--gpus=all"]


def own_mounts(paths: Iterable[str]) -> list[str]:
    """Return docker's options that give a container the user's files of absolute paths, read-only and at the same paths."""
    return [shlex.quote(f"--volume={path}:{path}:ro") for path in paths if path.startswith("/")]


def _replica_devices(options: LaunchOptions, replica: int | None) -> str:
    """Return the indices of the GPUs of one of several replicas on a machine; empty for all GPUs."""
    first = (replica or 0) * options.gpus_per_copy
    return ",".join(map(str, range(first, first + options.gpus_per_copy))) if replica is not None else ""


def slurm_script(options: LaunchOptions, engine: str, comments: str) -> str:
    """Return an sbatch script that serves a group's replicas, one job of an array for each; `comments` follow its directives."""
    array = [f"--array=0-{options.copies - 1}"] if options.copies > 1 else []
    port: int | NodeWord = PORT
    ports = []
    if options.copies > 1:  # Jobs of the array may share a node.
        port, ports = NodeWord("$PORT"), [f"export PORT=$(({PORT} + SLURM_ARRAY_TASK_ID))"]
    start = [*ports, serve_line(options, engine, port, "srun ")]
    if options.nodes > 1:
        setup = node_setup(engine, "$SLURM_NODEID", "$HEAD_ADDRESS")
        start = [*ports, SLURM_HEAD_ADDRESS, f"srun bash -c {shlex.quote(setup + serve_line(options, engine, port))}"]
    return sbatch_head(options.group, options.nodes, options.gpus_per_node, array) + comments + "\n".join(start) + "\n"


def pod_resources(place: Placement, download_bytes: int) -> dict[str, Any]:
    """Return the resources of a node's container: its GPUs, and room on the node's disk for the weights it downloads."""
    disk = {"requests": {"ephemeral-storage": f"{cache_gib(download_bytes)}Gi"}} if download_bytes else {}
    return {**disk, "limits": {gpu_resource(place.vendor): place.gpus_per_node}}


def cache_volume(download_bytes: int) -> dict[str, Any]:
    """Return the volume of a pod for the weights it downloads."""
    return {"name": "models", "emptyDir": {"sizeLimit": f"{cache_gib(download_bytes)}Gi"} if download_bytes else {}}


def volume_note(options: LaunchOptions, engine: str) -> list[str]:
    """Return what to add to a manifest whose weights are files of the user: a GGUF file, or a folder of this disk."""
    serve = engine_record(engine).serve
    if options.model.startswith("/"):
        return [f"Volume: add one with your files of {options.model} at that path, read-only."]
    return [f"Volume: add one with {model_argument(options, serve)} at {FOLDER}."] if serve.reads_gguf else []


def controller_note(options: LaunchOptions) -> list[str]:
    """Return how to install the controller of LeaderWorkerSets, which clusters lack at first; nothing for one node."""
    if options.nodes == 1:
        return []
    return [f"Once a cluster, for the kind LeaderWorkerSet: kubectl apply --server-side -f {CONTROLLER}"]


def kubernetes_manifests(options: LaunchOptions, engine: str, karpenter: bool = False) -> list[dict[str, Any]]:
    """Return the group's replicas, as a Deployment or a LeaderWorkerSet if one has several nodes, and a Service in front."""
    labels = {"app": options.group}
    leader = {"leaderworkerset.sigs.k8s.io/worker-index": "0"} if options.nodes > 1 else {}  # Only leaders answer requests.
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{options.group}-leader" if leader else options.group},  # A set has a service of its own name.
        "spec": {"selector": labels | leader, "ports": [{"port": PORT}]},
    }
    return [_replicas(options, engine, labels, karpenter), service]


def _replicas(options: LaunchOptions, engine: str, labels: dict[str, str], karpenter: bool) -> dict[str, Any]:
    """Return a Deployment of the group's replicas, or a LeaderWorkerSet if a replica has several nodes."""
    reads_gguf = engine_record(engine).serve.reads_gguf
    words = container_words(options, engine, PORT, FOLDER)
    if options.nodes > 1:
        setup = node_setup(engine, "$LWS_WORKER_INDEX", "$LWS_LEADER_ADDRESS")
        words = ["sh", "-c", setup + serve_line(options, engine, PORT)]
    container = {
        "name": "engine",
        "image": image_of(options, engine),
        "command": literal_words(words),
        "env": [TOKEN_VARIABLE] if reads_gguf else [TOKEN_VARIABLE, HUB_VARIABLE],
        "ports": [{"containerPort": PORT}],
        **({"readinessProbe": {"httpGet": {"path": HEALTH, "port": PORT}}} if options.nodes == 1 else {}),
        "resources": pod_resources(options.placement, 0 if reads_gguf else options.download_bytes),
        "volumeMounts": [SHARED_MEMORY_MOUNT] if reads_gguf else [SHARED_MEMORY_MOUNT, CACHE_MOUNT],
    }
    volumes = [SHARED_MEMORY] if reads_gguf else [SHARED_MEMORY, cache_volume(options.download_bytes)]
    pod = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "volumes": volumes, **node_placement(options.placement, karpenter)},
    }
    if options.nodes > 1:
        return {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": options.group},
            "spec": {"replicas": options.copies, "leaderWorkerTemplate": {"size": options.nodes, "workerTemplate": pod}},
        }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": options.group},
        "spec": {"replicas": options.copies, "selector": {"matchLabels": labels}, "template": pod},
    }
