"""Properties of the host: processor, memory, container limits and system, without anything that identifies it."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from whichgpu.measure.files import Run, named_numbers, read_number, read_text, run_tool

KIB = 1024  # bytes
UNLIMITED = 1 << 60  # Limits above this count as none: cgroup v1 writes "no limit" as a number near 2^63.
_CONTAINER = re.compile(r"docker|kubepods|containerd|libpod|lxc|/ecs/|garden|buildkit")
_KERNEL = re.compile(r"[0-9]+(?:\.[0-9]+)*")


class Host(msgspec.Struct, frozen=True):
    """Properties of a machine besides its GPUs: system, processor, memory, container; None if unknown."""

    system: str
    kernel: str | None
    python: str
    cpu: str | None
    cores: int | None  # physical cores
    threads: int | None
    threads_allowed: int | None  # hardware threads that this process may use
    cpu_limit: float | None  # limit in cores set by a control group
    ram_bytes: int | None
    ram_free_bytes: int | None
    ram_limit_bytes: int | None  # limit set by a control group
    shared_memory_bytes: int | None  # of /dev/shm, which data loaders pass batches through
    container: str | None  # docker, podman, kubernetes, …; None outside a container
    virtual: str | None  # kind of virtual system: wsl, gvisor, vm
    nvidia_devices: bool  # whether NVIDIA device files exist
    amd_devices: bool


def read_host(root: Path = Path("/"), environ: Mapping[str, str] | None = None, run: Run = run_tool) -> Host:
    """Return the host's processor, memory, container limits and system, read from system files under `root`."""
    environ = os.environ if environ is None else environ
    cpu, cores, threads = _processor(root, run)
    memory = named_numbers(read_text(root / "proc/meminfo") or "")
    total = memory["MemTotal"] * KIB if "MemTotal" in memory else _darwin_number(run, "hw.memsize")
    release = read_text(root / "proc/sys/kernel/osrelease") or platform.release()
    kernel = _KERNEL.match(release)
    return Host(
        system=_system(root),
        kernel=kernel[0] if kernel else None,
        python=platform.python_version(),
        cpu=cpu,
        cores=cores,
        threads=threads or os.cpu_count(),
        threads_allowed=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        cpu_limit=_cpu_limit(root),
        ram_bytes=total,
        ram_free_bytes=memory["MemAvailable"] * KIB if "MemAvailable" in memory else None,
        ram_limit_bytes=_ram_limit(root, total),
        shared_memory_bytes=_size(root / "dev/shm"),
        container=_container(root, environ),
        virtual=_virtual(root, release),
        nvidia_devices=(root / "dev/nvidiactl").exists() or (root / "dev/dxg").exists(),
        amd_devices=(root / "dev/kfd").exists(),
    )


def usable_cores(host: Host) -> float | None:
    """Return how many hardware threads this process can use at a time, by affinity and container limit; None if unknown."""
    limits = [number for number in (host.threads_allowed, host.cpu_limit, host.threads) if number]
    return min(limits, default=None)


def _processor(root: Path, run: Run) -> tuple[str | None, int | None, int | None]:
    """Return the processor's name, its cores and its threads."""
    text = read_text(root / "proc/cpuinfo", max_bytes=1 << 22)
    if text is None:
        name = run(("sysctl", "-n", "machdep.cpu.brand_string")) if sys.platform == "darwin" else None
        return (name or "").strip() or None, _darwin_number(run, "hw.physicalcpu"), _darwin_number(run, "hw.logicalcpu")
    model = re.search(r"^(?:model name|Model|cpu model|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    threads = len(re.findall(r"^processor\s*:", text, re.MULTILINE))
    sockets = re.findall(r"^physical id\s*:\s*(\d+)$", text, re.MULTILINE)
    ids = re.findall(r"^core id\s*:\s*(\d+)$", text, re.MULTILINE)
    cores = len(set(zip(sockets, ids, strict=True))) if len(sockets) == len(ids) else 0
    return (" ".join(model[1].split()) if model else platform.machine() or None), cores or None, threads or None


def _darwin_number(run: Run, name: str) -> int | None:
    if sys.platform != "darwin":
        return None
    text = (run(("sysctl", "-n", name)) or "").strip()
    return int(text) if text.isdigit() else None


def _system(root: Path) -> str:
    pretty_name = re.search(r'^PRETTY_NAME="?([^"\n]+)"?$', read_text(root / "etc/os-release") or "", re.MULTILINE)
    if pretty_name:
        return pretty_name[1]
    return f"macOS {platform.mac_ver()[0]}" if sys.platform == "darwin" else platform.system()


def _groups(root: Path, controller: str) -> list[Path]:
    """Return the folders of this process's control groups (v1 or v2), innermost first."""
    folders: list[Path] = []
    for line in (read_text(root / "proc/self/cgroup") or "0::/").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / controller if controllers else root / "sys/fs/cgroup"
        parts = [part for part in path.split("/") if part not in ("", ".", "..")]
        folders += [base.joinpath(*parts[:length]) for length in range(len(parts), -1, -1)]
    return folders


def _cpu_limit(root: Path) -> float | None:
    limits = []
    for folder in _groups(root, "cpu"):
        quota, _, period = (read_text(folder / "cpu.max") or "").partition(" ")
        if not quota:
            quota, period = (str(read_number(folder / f"cpu.cfs_{name}_us") or "") for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def _ram_limit(root: Path, total: int | None) -> int | None:
    limits = []
    for folder in _groups(root, "memory"):
        limit = read_number(folder / "memory.max") or read_number(folder / "memory.limit_in_bytes")
        if limit is not None and 0 < limit < min(UNLIMITED, total or UNLIMITED):
            limits.append(limit)
    return min(limits, default=None)


def _size(path: Path) -> int | None:
    try:
        status = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return status.f_frsize * status.f_blocks or None


def _container(root: Path, environ: Mapping[str, str]) -> str | None:
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if "APPTAINER_CONTAINER" in environ or "SINGULARITY_CONTAINER" in environ:
        return "apptainer"
    runtime = (environ.get("container") or "").lower()
    if runtime in ("docker", "podman", "lxc", "systemd-nspawn", "oci"):
        return runtime
    mark = _CONTAINER.search(read_text(root / "proc/1/cgroup") or "")
    return {"libpod": "podman", "kubepods": "kubernetes"}.get(mark[0], mark[0].strip("/")) if mark else None


def _virtual(root: Path, release: str) -> str | None:
    if "microsoft" in release.lower():
        return "wsl"
    if "gvisor" in (read_text(root / "proc/version") or "").lower():
        return "gvisor"
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", read_text(root / "proc/cpuinfo", max_bytes=1 << 16) or "", re.MULTILINE)
    return "vm" if flags else None
