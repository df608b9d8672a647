"""Jobs that run on GPUs until they are done: what starts them in a container, on a cluster or on rented machines."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.launch.cloud_cli import DISK_GB, TOOLS, Machines, check_provider, create_line, end_note
from whichgpu.decide.launch.clusters import (
    FOLDER,
    POD_NETWORK,
    SKY_NETWORK,
    dstack_resources,
    dstack_text,
    karpenter_pool,
    literal_words,
    network_note,
    node_class_note,
    node_placement,
    placement_note,
)
from whichgpu.decide.launch.containers import (
    CACHE_MOUNT,
    FOLDER_MOUNT,
    HUB_MOUNT,
    HUB_VARIABLE,
    SHARED_MEMORY,
    SHARED_MEMORY_MOUNT,
    TOKEN_VARIABLE,
    cache_volume,
    container_gpus,
    own_mounts,
    pod_resources,
)
from whichgpu.decide.launch.names import region_notes
from whichgpu.decide.launch.placement import Placement
from whichgpu.decide.launch.skypilot import sky_resources
from whichgpu.decide.launch.text import (
    SECRET_COMMAND,
    SLURM_HEAD_ADDRESS,
    TOKEN,
    comments,
    sbatch_head,
    token_note,
    write_file,
    yaml,
)

Files = dict[str, str]
OUTPUT_GIB = 100  # volume for what a job writes (assumed)
# SkyPilot: minutes without a job after which a cluster ends; clouds whose machines it can stop and start again with their disks
# (https://docs.skypilot.co/en/latest/reference/auto-stop.html, 2026-11-18; others may, these do); variable with a bucket's name.
IDLE_MINUTES, STOPPING_CLOUDS, BUCKET = 10, ("aws", "azure", "gcp"), "BUCKET"


class LaunchJob(msgspec.Struct, frozen=True):
    """A job: the shell line that each node runs, where `$HEAD_ADDRESS` is the first node, and what it needs to run."""

    name: str
    place: Placement
    line: str
    image: str  # container image; empty if none is known
    needs_image: bool = False  # whether it runs only in that image
    setup: str = ""  # shell line that installs packages
    files: Mapping[str, str] = {}  # that the line runs, by name; each launch file contains them
    own_files: tuple[str, ...] = ()  # files that the user has; folders of data end with a slash
    inputs: Mapping[str, str] = {}  # files that the user edits, by name, with an example of what is in them
    output: str = ""  # folder that the job writes to
    output_gib: int = OUTPUT_GIB  # size of what it writes
    disk_gb: int = 0  # disk of a node that holds all that the job reads and writes; 0 for the target's default
    download_bytes: int = 0  # of the weights; 0 if unknown
    is_gated: bool = False  # whether its model may ask for the user's token on the Hugging Face hub
    max_seconds: float | None = None  # upper end of the time it runs
    header: tuple[str, ...] = ()  # lines on the estimate
    notes: tuple[str, ...] = ()  # lines on what the files do not say

    @property
    def command(self) -> str:
        """Return the shell line with the installation before it."""
        return f"{self.setup} && {self.line}" if self.setup else self.line

    @property
    def writing(self) -> str:
        """Return the shell code that writes the job's files."""
        return "".join(write_file(name, text) for name, text in self.files.items())

    @property
    def examples(self) -> str:
        """Return the shell code that writes an example of each file that the user does not have."""
        return "".join(f"[ -e {name} ] || {write_file(name, text)}" for name, text in self.inputs.items())

    @property
    def own_paths(self) -> list[str]:
        """Return the user's files that have absolute paths."""
        return [one for one in self.own_files if one.startswith("/")]

    @property
    def files_of_folder(self) -> list[str]:
        """Return the user's files in the folder from which the job is started."""
        return [one for one in self.own_files if not one.startswith("/")]

    @property
    def has_nodes(self) -> bool:
        """Whether the job runs on several nodes."""
        return self.place.nodes > 1

    def token_notes(self, how: str) -> list[str]:
        """Return how the job gets the user's token, if its model may ask for it."""
        return token_note(how) if self.is_gated else []


def job_files(target: str, job: LaunchJob) -> Files:
    """Return the files that a target starts a job with, by name."""
    return JOB_TARGETS[target](job)


def node_notes(job: LaunchJob) -> list[str]:
    """Return how a job of several nodes is started where no scheduler does it."""
    return [f"{job.place.nodes} nodes: run this on each, HEAD_ADDRESS of the first."] if job.has_nodes else []


def _head(job: LaunchJob, *notes: str) -> str:
    return comments([*job.header, *job.notes, *notes])


def _slurm(job: LaunchJob) -> Files:
    limit = [f"--time={_hours(job.max_seconds)}"] if job.max_seconds else []
    start = [*([SLURM_HEAD_ADDRESS] if job.has_nodes else []), f"srun {job.line}"]
    notes = [f"Before the first run: {job.setup}"] if job.setup else []
    notes += [f"It runs in {job.image} or in an environment with the same packages."] if job.needs_image else []
    notes += job.token_notes(f"export {TOKEN}=… before sbatch")
    directives = sbatch_head(job.name, job.place.nodes, job.place.gpus_per_node, limit)
    return {f"{job.name}.sbatch": directives + _head(job, *notes) + job.writing + job.examples + "\n".join(start) + "\n"}


def _skypilot(job: LaunchJob) -> Files:
    """Return a task whose cluster ends by itself; what it writes stays on the cluster's stopped disk, or in a bucket."""
    address = 'HEAD_ADDRESS=$(echo "$SKYPILOT_NODE_IPS" | head -n 1); ' if job.has_nodes else ""
    task = {
        "name": job.name,
        "resources": sky_resources(job.place, job.disk_gb) | _sky_image(job) | {"autostop": _sky_end(job)},
        **({"num_nodes": job.place.nodes} if job.has_nodes else {}),
        **({"envs": envs} if (envs := _sky_envs(job)) else {}),
        **({"workdir": "."} if job.files_of_folder else {}),
        **({"file_mounts": mounts} if (mounts := _sky_mounts(job)) else {}),
        **({"setup": f"{job.setup}\n{job.writing}"} if job.setup else {}),
        "run": address + job.line,
    }
    notes = [*_own_inputs(job), *job.token_notes(f"--env {TOKEN}"), *_results(job), *region_notes("skypilot", job.place)]
    notes += network_note(job.place, SKY_NETWORK)
    if job.place.is_spot:
        notes.append("Spot: sky jobs launch in place of sky launch starts it again when it is interrupted.")
    return {f"{job.name}.yaml": _head(job, *notes) + yaml(task)}


def _own_inputs(job: LaunchJob) -> list[str]:
    """Return that files which the user edits must be in the folder from which the job is started."""
    return [f"Write {', '.join(job.inputs)} in the folder where you start it."] if job.inputs else []


def _needs_bucket(job: LaunchJob) -> bool:
    """Whether results must be in a bucket: several nodes each have a part of them, and some machines cannot be stopped."""
    return bool(job.output) and (job.has_nodes or job.place.is_spot or job.place.provider not in STOPPING_CLOUDS)


def _sky_envs(job: LaunchJob) -> dict[str, str]:
    return ({TOKEN: ""} if job.is_gated else {}) | ({BUCKET: ""} if _needs_bucket(job) else {})


def _sky_mounts(job: LaunchJob) -> dict[str, Any]:
    """Return the files of the user, and the bucket in which all nodes write."""
    mounts: dict[str, Any] = {f"~/sky_workdir/{name}": f"./{name}" for name in job.inputs}
    mounts |= {path: path for path in job.own_paths}
    bucket = {"name": f"${{{BUCKET}}}", "mode": "MOUNT_CACHED"}
    return mounts | ({f"~/sky_workdir/{job.output}": bucket} if _needs_bucket(job) else {})


def _sky_end(job: LaunchJob) -> dict[str, Any]:
    """Return when an idle cluster ends: it is stopped with its disks if these have results, else deleted."""
    return {"idle_minutes": IDLE_MINUTES} | ({} if job.output and not _needs_bucket(job) else {"down": True})


def _results(job: LaunchJob) -> list[str]:
    """Return how to start a job with SkyPilot, and where what it writes is afterwards."""
    end = f"{IDLE_MINUTES} minutes after the job the cluster"
    if not job.output:
        return [f"End: {end} is deleted."]
    start = f"sky launch -c {job.name} {job.name}.yaml"
    if not _needs_bucket(job):
        return [
            f"Start and fetch: {start} && rsync -a {job.name}:sky_workdir/{job.output} .",
            f"End: {end} is stopped; sky start {job.name} gives its disk back, sky down {job.name} deletes it.",
        ]
    return [
        f"Start: {start} --env {BUCKET}=… with the name of a bucket, which is made if you have none of that name.",
        f"End: {end} is deleted; what every node wrote to {job.output}/ is in the bucket.",
    ]


def _sky_image(job: LaunchJob) -> dict[str, str]:
    """Return the image of a job that runs only in it, or on GPUs of AMD, for which the packages of its setup are not."""
    if job.needs_image:
        _check_image(job, "skypilot")
    is_needed = job.needs_image or job.place.vendor == "amd"
    return {"image_id": f"docker:{job.image}"} if is_needed and job.image else {}


def _docker(job: LaunchJob) -> Files:
    notes = [*node_notes(job), *job.token_notes(f"export {TOKEN}=…")]
    return {"docker.sh": "#!/bin/sh\n" + _head(job, *notes) + _docker_code(job, "docker")}


def _docker_code(job: LaunchJob, target: str) -> str:
    """Return the shell code that writes the job's files and runs it in a container, in the present folder."""
    _check_image(job, target)
    network = "--network=host --env=HEAD_ADDRESS " if job.has_nodes else ""
    mounts = " ".join([HUB_MOUNT, FOLDER_MOUNT, *own_mounts(job.own_paths)])
    words = f"docker run --rm {' '.join(container_gpus(job.place.vendor))} --ipc=host {mounts} {network}{job.image}"
    return f"{job.writing}{job.examples}{words} bash -c {shlex.quote(job.command)}\n"


def _dstack(job: LaunchJob) -> Files:
    _check_image(job, "dstack")
    folders = [one for one in job.own_files if one.endswith("/")]  # Too large for the few megabytes that dstack uploads.
    address = ["export HEAD_ADDRESS=$DSTACK_MASTER_NODE_IP"] if job.has_nodes else []
    task = {
        "type": "task",
        "name": job.name,
        **({"nodes": job.place.nodes} if job.has_nodes else {}),
        "image": job.image,
        **({"env": [f"{TOKEN}="]} if job.is_gated else {}),
        **({"files": files} if (files := [*(one for one in job.own_files if one not in folders), *job.inputs]) else {}),
        "commands": [*address, *map(dstack_text, filter(None, (job.setup, job.writing, job.line)))],
        **dstack_resources(job.place, job.disk_gb),
    }
    notes = [*_own_inputs(job), *job.token_notes(f"-e {TOKEN}=…"), *region_notes("dstack", job.place)]
    notes += [f"Volume: add one at {job.output}, which is lost with the machine otherwise."] if job.output else []
    notes += [f"Volumes: add them with your {' and '.join(folders)} too."] if folders else []
    return {f"{job.name}.dstack.yml": _head(job, *notes) + yaml(task)}


def _kubernetes(job: LaunchJob, karpenter: bool = False) -> Files:
    """Return a Job, indexed and with a service for its pods' names if it has several nodes, and volumes for its files."""
    _check_image(job, "kubernetes")
    own = [f"Volume: add one with {', '.join(files)} at {FOLDER}." for files in [job.files_of_folder] if files]
    own += [f"Volume: add one with your files of {path} at that path, read-only." for path in job.own_paths]
    documents = [*_volumes(job), *([_pod_names(job)] if job.has_nodes else []), _manifest(job, karpenter)]
    own += [f"Edit {', '.join(job.inputs)} in the ConfigMap."] if job.inputs else []
    head = _head(job, *own, *job.token_notes(SECRET_COMMAND), *placement_note(job.place), *network_note(job.place, POD_NETWORK))
    return {f"{job.name}.yaml": head + "---\n".join(yaml(one) for one in documents)}


def _karpenter(job: LaunchJob) -> Files:
    pool = karpenter_pool(job.name, job.place, job.place.nodes * job.place.gpus_per_node)
    head = comments([*job.header, *node_class_note(job.place, job.disk_gb)])
    return {f"{job.name}-nodes.yaml": head + yaml(pool)} | _kubernetes(job, karpenter=True)


def _cloud_cli(job: LaunchJob) -> Files:
    """Return the line that creates the machines, and the script that runs the job on them.

    They start the script themselves if it needs neither a file of the user nor another node; else the user does.
    """
    place, start = job.place, f"{job.name}-start.sh"
    check_provider(place.provider, place.instance)
    is_alone = not (job.own_files or job.has_nodes)
    machines = Machines(
        job.name, place.provider, place.instance, place.region, place.gpu, place.nodes, place.is_spot, start if is_alone else "",
        max(DISK_GB, job.disk_gb), needs_login=True,
    )  # fmt: skip
    files = " and ".join((*job.own_files, start))
    notes = [f"Options: as documented for {TOOLS[place.provider]}.", *node_notes(job)]
    notes += [] if is_alone else [f"Copy {files} there, then run: sh {start}"]
    notes.append(end_note(place.provider))
    script = {"cloud.sh": "#!/bin/sh\n" + _head(job, *notes) + create_line(machines) + "\n"}
    tokens = job.token_notes(f"export {TOKEN}=…")
    return script | {start: "#!/bin/sh\n" + _head(job, *tokens) + _docker_code(job, "cloud-cli")}


JOB_TARGETS: Mapping[str, Callable[[LaunchJob], Files]] = {
    "docker": _docker,
    "slurm": _slurm,
    "skypilot": _skypilot,
    "kubernetes": _kubernetes,
    "karpenter": _karpenter,
    "dstack": _dstack,
    "cloud-cli": _cloud_cli,
}


def _manifest(job: LaunchJob, karpenter: bool) -> dict[str, Any]:
    """Return the Job of Kubernetes: one pod per node, which knows the address of the first by its name."""
    nodes = job.place.nodes
    address = f"export HEAD_ADDRESS={job.name}-0.{job.name}; " if job.has_nodes else ""
    mounts = [SHARED_MEMORY_MOUNT, CACHE_MOUNT]
    mounts += [{"name": "files", "mountPath": f"{FOLDER}/{name}", "subPath": name} for name in (*job.files, *job.inputs)]
    mounts += [{"name": "output", "mountPath": f"{FOLDER}/{job.output}"}] if job.output else []
    container = {
        "name": "job",
        "image": job.image,
        "workingDir": FOLDER,
        "command": literal_words(["bash", "-c", address + job.command]),
        "env": [TOKEN_VARIABLE, HUB_VARIABLE],
        "resources": pod_resources(job.place, job.download_bytes),
        "volumeMounts": mounts,
    }
    volumes: list[dict[str, Any]] = [SHARED_MEMORY, cache_volume(job.download_bytes)]
    volumes += [{"name": "files", "configMap": {"name": job.name}}] if job.files else []
    volumes += [{"name": "output", "persistentVolumeClaim": {"claimName": job.name}}] if job.output else []
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": volumes, **node_placement(job.place, karpenter)}
    several = {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes} if job.has_nodes else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job.name},
        "spec": {
            **several,
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": {"app": job.name}},
                "spec": pod | ({"subdomain": job.name} if job.has_nodes else {}),
            },
        },
    }


def _pod_names(job: LaunchJob) -> dict[str, Any]:
    """Return the headless service by which the pods of a job find each other before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job.name},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": job.name}},
    }


def _volumes(job: LaunchJob) -> list[dict[str, Any]]:
    """Return the ConfigMap of a job's files and the claim of a volume for what it writes."""
    documents: list[dict[str, Any]] = []
    if job.files:
        documents.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": job.name}, "data": {**job.files, **job.inputs}}
        )
    if job.output:
        spec = {
            "accessModes": ["ReadWriteMany" if job.has_nodes else "ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{job.output_gib}Gi"}},
        }
        documents.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": job.name}, "spec": spec})
    return documents


def _check_image(job: LaunchJob, target: str) -> None:
    """Raise an error if no container image is known that runs on the GPUs."""
    if not job.image:
        message = msg("error.emit-image", target=target, engine="PyTorch", gpu=job.place.gpu)
        raise UsageError("emit-image", message, msg("hint.emit-job-image"))


def _hours(seconds: float) -> str:
    """Return a time limit for Slurm, in whole minutes.

    >>> _hours(5000)
    '01:24:00'
    """
    minutes = max(1, ceil(seconds / 60))
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"
