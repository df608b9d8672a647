"""Launch files beyond plain manifests: node selectors of EKS, GKE and AKS, Karpenter node pools, dstack services."""

from __future__ import annotations

from typing import Any

from whichgpu.decide.launch.options import LaunchOptions
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


def gpu_resource(options: LaunchOptions) -> str:
    """Return the resource by which Kubernetes counts the GPUs, named by the device plugin of their vendor."""
    return f"{options.vendor}.com/gpu"


def node_placement(options: LaunchOptions) -> dict[str, Any]:
    """Return the part of a pod's spec that places it on the machines of an offer; empty if the offer is of no known service."""
    if options.provider not in SPOT_LABELS or not options.instance:
        return {}
    labels = {} if "+" in options.instance else {INSTANCE_LABEL: options.instance}  # N1 machines have GPUs attached to them.
    if options.provider == "gcp" and options.gpu in GKE_ACCELERATORS:
        is_mega = options.gpu == "h100-sxm" and options.instance.startswith(MEGA_MACHINE)
        labels["cloud.google.com/gke-accelerator"] = "nvidia-h100-mega-80gb" if is_mega else GKE_ACCELERATORS[options.gpu]
    if options.spot:
        labels |= SPOT_LABELS[options.provider]
    taints = [
        gpu_resource(options),
        *(["kubernetes.azure.com/scalesetpriority"] if options.spot and options.provider == "azure" else []),
    ]
    return {"nodeSelector": labels, "tolerations": [{"key": key, "operator": "Exists"} for key in taints]}


def karpenter_pool(options: LaunchOptions) -> dict[str, Any]:
    """Return a Karpenter NodePool of the offer's machines, limited to the GPUs of all replicas."""
    requirements = [
        _is_one_of(INSTANCE_LABEL, options.instance),
        _is_one_of("karpenter.sh/capacity-type", "spot" if options.spot else "on-demand"),
    ]
    if options.region:
        requirements.append(_is_one_of("topology.kubernetes.io/region", options.region))
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    if options.provider == "azure":
        reference = {"group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default"}
    taint = {"key": gpu_resource(options), "value": "true", "effect": "NoSchedule"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": options.group},
        "spec": {
            "template": {"spec": {"nodeClassRef": reference, "requirements": requirements, "taints": [taint]}},
            "limits": {gpu_resource(options): options.copies * options.gpus_per_copy},
        },
    }


def dstack_service(options: LaunchOptions, engine: str, image: str) -> dict[str, Any]:
    """Return a dstack service of the group's replicas."""
    memory = ":80GB" if gpu_name(options.gpu) == "A100-80GB" else ":40GB" if gpu_name(options.gpu) == "A100" else ""
    name = gpu_name(options.gpu).partition("-")[0] + memory
    service: dict[str, Any] = {
        "type": "service",
        "name": options.group,
        "image": image,
        "commands": [serve_line(options, engine, PORT)],
        "port": PORT,
        "model": options.model,
        "replicas": options.copies,
        "resources": {"gpu": f"{name}:{options.gpus_per_node}"},
        "spot_policy": "spot" if options.spot else "on-demand",
    }
    if options.provider in DSTACK_BACKENDS:
        service |= {"backends": [options.provider]} | ({"regions": [options.region]} if options.region else {})
    return service


def _is_one_of(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}
