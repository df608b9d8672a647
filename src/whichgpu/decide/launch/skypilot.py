"""SkyServe services that keep the replicas of a plan running with SkyPilot."""

from __future__ import annotations

from typing import Any

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.serve_command import node_setup, serve_line

CLOUDS = ("aws", "azure", "gcp", "lambda", "runpod", "oci", "ibm", "vast", "nebius", "fluidstack", "paperspace", "cudo", "do")
PORT = 8000  # The engine listens on this port.
GPU_NAMES = {"a100-sxm-80gb": "A100-80GB", "a100-pcie-80gb": "A100-80GB", "a100-sxm-40gb": "A100", "a100-pcie-40gb": "A100"}


def service(options: LaunchOptions, engine: str) -> dict[str, Any]:
    """Return the specification of a SkyServe service that keeps the group's replicas running."""
    resources: dict[str, Any] = {"accelerators": f"{gpu_name(options.gpu)}:{options.gpus_per_node}", "ports": PORT}
    if options.provider in CLOUDS:
        resources["cloud"] = options.provider
        if options.region:
            resources["region"] = options.region
    if options.spot:
        resources["use_spot"] = True
    return {
        "name": options.group,
        "service": {
            "readiness_probe": "/health",
            "replica_policy": {"min_replicas": options.copies, "max_replicas": options.copies},
        },
        "resources": resources,
        **({"num_nodes": options.nodes} if options.nodes > 1 else {}),
        **({"envs": {_version(engine): options.releases.get(engine, "")}} if engine in options.earlier else {}),
        "setup": _setup(options, engine),
        "run": _run(options, engine),
    }


def release_note(options: LaunchOptions, engine: str) -> list[str]:
    """Return how to choose the engine's release, if only an earlier one runs on the GPU."""
    if engine not in options.earlier:
        return []
    release = options.releases.get(engine)
    how = f"Release {release} is installed." if release else f"Start it with --env {_version(engine)}=…"
    return [f"{engine_record(engine).name}: {options.earlier[engine]} {how}"]


def gpu_name(gpu: str) -> str:
    """Return SkyPilot's name for a GPU: its family, with the memory size for the A100 only."""
    if gpu in GPU_NAMES:
        return GPU_NAMES[gpu]
    return gpu.replace("-", "").upper() if gpu.startswith("rtx-") else gpu.partition("-")[0].upper()


def _run(options: LaunchOptions, engine: str) -> str:
    line = serve_line(options, engine, PORT)
    if options.nodes == 1:
        return line
    return node_setup(engine, "$SKYPILOT_NODE_RANK", '$(echo "$SKYPILOT_NODE_IPS" | head -n 1)') + line


def _setup(options: LaunchOptions, engine: str) -> str:
    """Return shell commands that install an engine: its present release, or one set by an environment variable."""
    package = engine_record(engine).serve.package
    if not package:
        return ""
    if engine not in options.earlier:
        return f"pip install {package}"
    reason = f"the present release does not run on {options.gpu}: name an earlier one"
    return f'pip install "{package}==${{{_version(engine)}:?{reason}}}"'


def _version(engine: str) -> str:
    """Return the name of the environment variable that selects an engine's release."""
    return f"{engine_record(engine).serve.package.upper().replace('-', '_')}_VERSION"
