"""Launch files beyond plain manifests: node selectors of EKS, GKE and AKS, Karpenter node pools, dstack's resources."""

from __future__ import annotations

import re
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.placement import Placement
from whichgpu.decide.launch.serve_command import serve_line
from whichgpu.decide.launch.skypilot import PORT, gpu_name

INSTANCE_LABEL = "node.kubernetes.io/instance-type"  # Well-known label, set on EKS, GKE and AKS.
# Accelerators of GKE by GPU (https://cloud.google.com/kubernetes-engine/docs/concepts/gpus).
GKE_ACCELERATORS = {
    "t4": "nvidia-tesla-t4", "l4": "nvidia-l4", "p4": "nvidia-tesla-p4", "p100-pcie-16gb": "nvidia-tesla-p100",
    "v100-sxm-16gb": "nvidia-tesla-v100", "a100-sxm-40gb": "nvidia-tesla-a100", "a100-sxm-80gb": "nvidia-a100-80gb",
    "h100-sxm": "nvidia-h100-80gb", "h200-sxm": "nvidia-h200-141gb", "b200": "nvidia-b200",
}  # fmt: skip
MEGA_MACHINE = "a3-megagpu"  # Its H100 have an accelerator name of their own.
# Labels of interruptible nodes by provider; AKS also taints them.
SPOT_LABELS = {
    "gcp": {"cloud.google.com/gke-spot": "true"},
    "aws": {"eks.amazonaws.com/capacityType": "SPOT"},
    "azure": {"kubernetes.azure.com/scalesetpriority": "spot"},
}
DSTACK_BACKENDS = ("aws", "azure", "gcp", "lambda", "runpod", "oci", "vastai", "nebius", "datacrunch", "cudo")


KARPENTER_PROVIDERS = ("aws", "azure")


def gpu_resource(vendor: str) -> str:
    """Return the resource by which Kubernetes counts the GPUs of a vendor, named by its device plugin."""
    return f"{vendor}.com/gpu"


def literal_words(words: list[str]) -> list[str]:
    """Return the words of a container's command with `$(NAME)` escaped, which Kubernetes would replace by a variable."""
    return [re.sub(r"\$(?=[$(])", "$$", word) for word in words]


def node_placement(place: Placement) -> dict[str, Any]:
    """Return the part of a pod's spec that places it on the machines of an offer; empty if the offer is of no known service."""
    if place.provider not in SPOT_LABELS or not place.instance:
        return {}
    labels = {} if "+" in place.instance else {INSTANCE_LABEL: place.instance}  # N1 machines have GPUs attached to them.
    if place.provider == "gcp" and place.gpu in GKE_ACCELERATORS:
        is_mega = place.gpu == "h100-sxm" and place.instance.startswith(MEGA_MACHINE)
        labels["cloud.google.com/gke-accelerator"] = "nvidia-h100-mega-80gb" if is_mega else GKE_ACCELERATORS[place.gpu]
    if place.is_spot:
        labels |= SPOT_LABELS[place.provider]
    taints = [
        gpu_resource(place.vendor),
        *(["kubernetes.azure.com/scalesetpriority"] if place.is_spot and place.provider == "azure" else []),
    ]
    return {"nodeSelector": labels, "tolerations": [{"key": key, "operator": "Exists"} for key in taints]}


def placement_note(place: Placement) -> list[str]:
    """Return what to add to a manifest whose machines have no known labels."""
    return [] if node_placement(place) else [f"Nodes: with {place.gpu}; add your cluster's node selector for it."]


def karpenter_pool(name: str, place: Placement, gpus: int) -> dict[str, Any]:
    """Return a Karpenter NodePool of the offer's machines, limited to a number of GPUs; raise an error for other clouds."""
    if place.provider not in KARPENTER_PROVIDERS or not place.instance:
        raise UsageError("emit-provider", msg("error.emit-provider", target="karpenter"), msg("hint.emit-provider"))
    requirements = [
        _is_one_of(INSTANCE_LABEL, place.instance),
        _is_one_of("karpenter.sh/capacity-type", "spot" if place.is_spot else "on-demand"),
    ]
    if place.region:
        requirements.append(_is_one_of("topology.kubernetes.io/region", place.region))
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    if place.provider == "azure":
        reference = {"group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default"}
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


def dstack_resources(place: Placement) -> dict[str, Any]:
    """Return dstack's keys for the GPUs of a node and the offer they are rented by."""
    memory = ":80GB" if gpu_name(place.gpu) == "A100-80GB" else ":40GB" if gpu_name(place.gpu) == "A100" else ""
    name = gpu_name(place.gpu).partition("-")[0] + memory
    keys: dict[str, Any] = {
        "resources": {"gpu": f"{name}:{place.gpus_per_node}"},
        "spot_policy": "spot" if place.is_spot else "on-demand",
    }
    if place.provider in DSTACK_BACKENDS:
        keys |= {"backends": [place.provider]} | ({"regions": [place.region]} if place.region else {})
    return keys


def dstack_service(options: LaunchOptions, engine: str, image: str) -> dict[str, Any]:
    """Return a dstack service of the group's replicas."""
    return {
        "type": "service",
        "name": options.group,
        "image": image,
        "commands": [serve_line(options, engine, PORT)],
        "port": PORT,
        "model": options.model,
        "replicas": options.copies,
        **dstack_resources(options.placement),
    }


def _is_one_of(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}
