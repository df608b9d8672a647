"""SkyServe services that keep the replicas of a plan running with SkyPilot."""

from __future__ import annotations

from typing import Any

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.decide.launch.disk import extra_disk, weights_disk_gb
from whichgpu.decide.launch.images import check_image, image_of, needs_image
from whichgpu.decide.launch.names import gpu_name, provider_name, region_of
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.placement import Placement
from whichgpu.decide.launch.serve_command import container_words, node_setup, serve_line, shell_line
from whichgpu.decide.launch.text import TOKEN

PORT = 8000  # The engine listens on this port.
HEALTH = "/health"  # All engines answer here once the model is loaded.
TARGET = "skypilot"
# Time until a replica answers: download of the weights, then installation and loading; both are assumed.
DOWNLOAD_SPEED, STARTUP_SECONDS = 0.2e9, 1200  # bytes a second, and seconds
# Clouds and GPUs for which `network_tier: best` sets up RDMA on machines of eight (assumed to be all); SkyPilot refuses it on
# many others, such as RunPod.
FAST_CLOUDS, FAST_GPUS, FAST_COUNT = ("gcp", "nebius"), ("h100-sxm", "h200-sxm"), 8


def service(options: LaunchOptions, engine: str) -> dict[str, Any]:
    """Return the specification of a SkyServe service that keeps the group's replicas running."""
    with_image = needs_image(options, engine)
    if with_image:
        check_image(options, engine, TARGET)
    return {
        "name": options.group,
        "service": {
            "readiness_probe": {"path": HEALTH, "initial_delay_seconds": start_seconds(options.download_bytes)},
            "replica_policy": {"min_replicas": options.copies, "max_replicas": options.copies},
        },
        "resources": {
            **sky_resources(options.placement, weights_disk_gb(options.download_bytes)),
            **({"image_id": f"docker:{image_of(options, engine)}"} if with_image else {}),
            "ports": PORT,
        },
        **({"num_nodes": options.nodes} if options.nodes > 1 else {}),
        "envs": {TOKEN: ""}
        | ({_version(engine): options.releases.get(engine, "")} if engine in options.earlier and not with_image else {}),
        **({"workdir": "."} if engine_record(engine).serve.reads_gguf else {}),
        **({"file_mounts": {options.model: options.model}} if options.model.startswith("/") else {}),
        **({} if with_image else {"setup": _setup(options, engine)}),
        "run": _run(options, engine),
    }


def start_seconds(download_bytes: int) -> int:
    """Return the seconds after which a replica that does not answer has failed.

    >>> start_seconds(0), start_seconds(140 * 10**9)
    (1200, 1900)
    """
    return STARTUP_SECONDS + round(download_bytes / DOWNLOAD_SPEED)


def sky_resources(place: Placement, disk_gb: int) -> dict[str, Any]:
    """Return SkyPilot's keys for the GPUs of a node, the offer they are rented by, and a disk larger than its default."""
    resources: dict[str, Any] = {"accelerators": f"{gpu_name(TARGET, place)}:{place.gpus_per_node}"}
    cloud, region = provider_name(TARGET, place), region_of(TARGET, place)
    resources |= ({"cloud": cloud.name} if cloud else {}) | ({"region": region} if region else {})
    resources |= {"disk_size": disk} if (disk := extra_disk(TARGET, disk_gb)) else {}
    has_fast_network = place.provider in FAST_CLOUDS and place.gpu in FAST_GPUS and place.gpus_per_node == FAST_COUNT
    resources |= {"network_tier": "best"} if place.nodes > 1 and has_fast_network else {}
    return resources | ({"use_spot": True} if place.is_spot else {})


def release_note(options: LaunchOptions, engine: str) -> list[str]:
    """Return how to choose the engine's release, if only an earlier one runs on the GPU."""
    if engine not in options.earlier or needs_image(options, engine):
        return []
    release = options.releases.get(engine)
    how = f"Release {release} is installed." if release else f"Start it with --env {_version(engine)}=…"
    return [f"{engine_record(engine).name}: {options.earlier[engine]} {how}"]


def _run(options: LaunchOptions, engine: str) -> str:
    if options.nodes == 1 and needs_image(options, engine):
        return shell_line(container_words(options, engine, PORT))
    line = serve_line(options, engine, PORT)
    if options.nodes == 1:
        return line
    return node_setup(engine, "$SKYPILOT_NODE_RANK", '$(echo "$SKYPILOT_NODE_IPS" | head -n 1)') + line


def _setup(options: LaunchOptions, engine: str) -> str:
    """Return shell commands that install an engine: its present release, or one set by an environment variable."""
    package = engine_record(engine).serve.package
    if engine not in options.earlier:
        return f"pip install {package}"
    reason = f"the present release does not run on {options.gpu}: name an earlier one"
    return f'pip install "{package}==${{{_version(engine)}:?{reason}}}"'


def _version(engine: str) -> str:
    """Return the name of the environment variable that selects an engine's release."""
    return f"{engine_record(engine).serve.package.upper().replace('-', '_')}_VERSION"
