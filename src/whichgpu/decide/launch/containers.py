"""Containers and batch jobs that serve replicas: docker, Kubernetes and Slurm."""

from __future__ import annotations

import shlex
from typing import Any

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.decide.launch.clusters import node_placement
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.serve_command import node_setup, serve_words, shell_line
from whichgpu.decide.launch.skypilot import PORT

MODELS_MOUNT = "/models"  # folder of the container where models of the Hugging Face hub are cached (HF_HOME)


def docker_line(options: LaunchOptions, engine: str) -> str:
    """Return the `docker run` line of one replica, or of one of its nodes."""
    program, *arguments = serve_words(options, engine, PORT)
    network = ["--network=host"] if options.nodes > 1 else [f"--publish={PORT}:{PORT}"]
    words = [
        "docker",
        "run",
        "--rm",
        "--gpus=all",
        "--ipc=host",
        *network,
        f"--entrypoint={program}",
        engine_record(engine).serve.image,
    ]
    mount = f'--env=HF_HOME={MODELS_MOUNT} --volume="$HOME/.cache/huggingface:{MODELS_MOUNT}"'
    return " ".join([shell_line(words[:5]), mount, shell_line([*words[5:], *arguments])])


def slurm_script(options: LaunchOptions, engine: str, comments: str) -> str:
    """Return an sbatch script that serves a group's replicas, one job of an array for each; `comments` follow its directives."""
    array = [f"#SBATCH --array=0-{options.copies - 1}"] if options.copies > 1 else []
    line = shell_line(serve_words(options, engine, PORT))
    start = [f"srun {line}"]
    if options.nodes > 1:
        start = [
            'export HEAD_ADDRESS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            f"srun bash -c {shlex.quote(node_setup(engine, '$SLURM_NODEID', '$HEAD_ADDRESS') + line)}",
        ]
    directives = [
        "#!/bin/bash",
        f"#SBATCH --job-name={options.group}",
        f"#SBATCH --nodes={options.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={options.gpus_per_node}",
        *array,
    ]
    return "\n".join(directives) + "\n" + comments + "\n".join(start) + "\n"


def kubernetes_manifest(options: LaunchOptions, engine: str) -> dict[str, Any]:
    """Return a Deployment of the group's replicas, or a LeaderWorkerSet if a replica has several nodes."""
    words, labels = serve_words(options, engine, PORT), {"app": options.group}
    container = {
        "name": "engine",
        "image": engine_record(engine).serve.image,
        "command": words
        if options.nodes == 1
        else ["sh", "-c", node_setup(engine, "$LWS_WORKER_INDEX", "$LWS_LEADER_ADDRESS") + shell_line(words)],
        "ports": [{"containerPort": PORT}],
        "resources": {"limits": {"nvidia.com/gpu": options.gpus_per_node}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    memory = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]  # Ranks of a replica exchange data in shared memory.
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": memory, **node_placement(options)}}
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
