"""Launch files beyond plain manifests: node selectors of EKS, GKE and AKS, Karpenter node pools, dstack's resources."""

from __future__ import annotations

import re
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.decide.launch.disk import extra_disk, weights_disk_gb
from whichgpu.decide.launch.names import gpu_name, known_gpu_name, provider_name, region_of
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.placement import Placement
from whichgpu.decide.launch.serve_command import container_words, model_argument, shell_line
from whichgpu.decide.launch.skypilot import PORT
from whichgpu.decide.launch.text import TOKEN

INSTANCE_LABEL = "node.kubernetes.io/instance-type"  # Well-known label, set on EKS, GKE and AKS.
# Labels of interruptible nodes by provider; AKS also taints them.
SPOT_LABELS = {
    "gcp": {"cloud.google.com/gke-spot": "true"},
    "aws": {"eks.amazonaws.com/capacityType": "SPOT"},
    "azure": {"kubernetes.azure.com/scalesetpriority": "spot"},
}
FOLDER = "/workspace"  # folder of a container that has files of the user
KARPENTER_CAPACITY = "karpenter.sh/capacity-type"  # Label of the nodes that Karpenter starts, of all providers.
# Node classes that a NodePool refers to, which the user has.
NODE_CLASSES = {
    "aws": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    "azure": {"group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default"},
}
# How nodes get RDMA.
POD_NETWORK = "add your cluster's resource for it to the pods (rdma/… or vpc.amazonaws.com/efa)"
SKY_NETWORK = "network_tier: best sets it up where SkyPilot can, else choose machines and an image that have it"
SHARED_MEMORY_SIZE = "16GB"  # of processes of a node, which exchange data in it (assumed; docker's default is 64 MB)


def gpu_resource(vendor: str) -> str:
    """Return the resource by which Kubernetes counts the GPUs of a vendor, named by its device plugin."""
    return f"{vendor}.com/gpu"


def literal_words(words: list[str]) -> list[str]:
    """Return the words of a container's command with `$(NAME)` escaped, which Kubernetes would replace by a variable."""
    return [re.sub(r"\$(?=[$(])", "$$", word) for word in words]


def dstack_text(text: str) -> str:
    """Return a text with `${{` escaped, which dstack would replace by a variable or a secret.

    >>> dstack_text("echo $HOME '${{ secrets.key }}'")
    "echo $HOME '$${{ secrets.key }}'"
    """
    return text.replace("${{", "$${{")


def node_placement(place: Placement, karpenter: bool = False) -> dict[str, Any]:
    """Return the part of a pod's spec that places it on the machines of an offer; empty if the offer is of no known service.

    With `karpenter` these are nodes that Karpenter starts, which lack the spot labels of managed node groups.
    """
    if place.provider not in SPOT_LABELS or not place.instance:
        return {}
    labels = {} if "+" in place.instance else {INSTANCE_LABEL: place.instance}  # N1 machines have GPUs attached to them.
    accelerator = known_gpu_name("gke", place) if place.provider == "gcp" else None
    labels |= {"cloud.google.com/gke-accelerator": accelerator} if accelerator else {}
    if place.is_spot:
        labels |= {KARPENTER_CAPACITY: "spot"} if karpenter else SPOT_LABELS[place.provider]
    taints = [
        gpu_resource(place.vendor),
        *(["kubernetes.azure.com/scalesetpriority"] if place.is_spot and place.provider == "azure" else []),
    ]
    return {"nodeSelector": labels, "tolerations": [{"key": key, "operator": "Exists"} for key in taints]}


def placement_note(place: Placement) -> list[str]:
    """Return what to add to a manifest whose machines have no known labels."""
    return [] if node_placement(place) else [f"Nodes: with {place.gpu}; add your cluster's node selector for it."]


def network_note(place: Placement, how: str) -> list[str]:
    """Return that several nodes need RDMA, and how they get it; nothing for one node."""
    if place.nodes == 1:
        return []
    return [f"Network: {place.nodes} nodes need RDMA (InfiniBand, RoCE or EFA) to be as fast as estimated; {how}."]


def karpenter_pool(name: str, place: Placement, gpus: int) -> dict[str, Any]:
    """Return a Karpenter NodePool of the offer's machines, limited to a number of GPUs; raise an error for other clouds."""
    reference = _node_class(place)
    requirements = [
        _is_one_of(INSTANCE_LABEL, place.instance),
        _is_one_of(KARPENTER_CAPACITY, "spot" if place.is_spot else "on-demand"),
    ]
    if place.region:
        requirements.append(_is_one_of("topology.kubernetes.io/region", place.region))
    taint = {"key": gpu_resource(place.vendor), "value": "true", "effect": "NoSchedule"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": {"nodeClassRef": reference, "requirements": requirements, "taints": [taint]}},
            "limits": {gpu_resource(place.vendor): gpus},
        },
    }


def node_class_note(place: Placement, disk_gb: int) -> list[str]:
    """Return which node class a NodePool expects, and the disk that it must give a node."""
    kind = _node_class(place)
    disk = f" and a root volume of {disk_gb} GB" if disk_gb else ""
    return [f"It expects your {kind['kind']} {kind['name']!r}, with subnets, an image that has the GPU driver{disk}."]


def _node_class(place: Placement) -> dict[str, str]:
    """Return the node class of the offer's cloud; raise an error for clouds whose machines Karpenter does not start."""
    if place.provider not in NODE_CLASSES or not place.instance:
        raise UsageError("emit-provider", msg("error.emit-provider", target="karpenter"), msg("hint.emit-provider"))
    return NODE_CLASSES[place.provider]


def dstack_resources(place: Placement, disk_gb: int) -> dict[str, Any]:
    """Return dstack's keys for the GPUs of a node, its disk and shared memory, and the offer they are rented by."""
    disk = extra_disk("dstack", disk_gb)
    keys: dict[str, Any] = {
        "resources": {
            "gpu": f"{gpu_name('dstack', place)}:{place.gpus_per_node}",
            "shm_size": SHARED_MEMORY_SIZE,
            **({"disk": f"{disk}GB.."} if disk else {}),
        },
        "spot_policy": "spot" if place.is_spot else "on-demand",
    }
    backend, region = provider_name("dstack", place), region_of("dstack", place)
    return keys | ({"backends": [backend.name]} if backend else {}) | ({"regions": [region]} if region else {})


def dstack_service(options: LaunchOptions, engine: str, image: str) -> dict[str, Any]:
    """Return a dstack service of the group's replicas."""
    return {
        "type": "service",
        "name": options.group,
        "image": image,
        "env": [f"{TOKEN}="],
        "commands": [dstack_text(shell_line(container_words(options, engine, PORT, FOLDER)))],
        "port": PORT,
        "model": dstack_text(model_argument(options, engine_record(engine).serve)),
        "replicas": options.copies,
        **dstack_resources(options.placement, weights_disk_gb(options.download_bytes)),
    }


def _is_one_of(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}
