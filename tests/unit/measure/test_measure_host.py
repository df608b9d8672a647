"""The machine around the GPUs, from folders made for the test: limits, containers, frameworks, load, AMD's and Apple's GPUs."""

from __future__ import annotations

import json
import os
import plistlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from whichgpu.measure.drivers.amd import open_amd, product_names
from whichgpu.measure.drivers.apple import open_apple
from whichgpu.measure.drivers.probe import VendorUnavailable
from whichgpu.measure.files import read_number, read_text, run_tool
from whichgpu.measure.host import read_host, usable_cores
from whichgpu.measure.host_load import LoadReader
from whichgpu.measure.software import read_software

GIB = 1 << 30
CPUINFO = "".join(
    f"processor\t: {thread}\nmodel name\t: AMD EPYC 7742 64-Core Processor\nphysical id\t: {thread // 4}\n"
    f"core id\t\t: {thread % 2}\nflags\t\t: fpu hypervisor sse\n\n"
    for thread in range(8)
)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def nothing(_: Sequence[str]) -> str | None:
    return None


def test_processor_memory_and_system(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/cpuinfo": CPUINFO,
            "proc/meminfo": "MemTotal:       1048576 kB\nMemFree: 1 kB\nMemAvailable:    524288 kB\n",
            "proc/sys/kernel/osrelease": "5.15.0-1066-mycompany",
            "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"\n',
        },
    )
    host = read_host(root, {}, nothing)
    assert host.cpu == "AMD EPYC 7742 64-Core Processor"
    assert (host.cores, host.threads) == (4, 8)
    assert (host.ram_bytes, host.ram_free_bytes) == (GIB, GIB // 2)
    assert (host.system, host.kernel) == ("Ubuntu 22.04.4 LTS", "5.15.0")  # what follows the number may name the builder
    assert host.virtual == "vm"
    assert host.container is None


def test_an_empty_machine_has_unknowns(tmp_path: Path) -> None:
    host = read_host(tmp_path, {}, nothing)
    assert (host.ram_bytes, host.cpu_limit, host.ram_limit_bytes, host.container, host.virtual) == (None,) * 5
    assert host.python
    assert host.system


def test_limits_of_control_groups_in_the_newer_layout(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/kubepods/pod1/box\n",
            "proc/meminfo": "MemTotal: 67108864 kB\n",
            "sys/fs/cgroup/kubepods/pod1/cpu.max": "350000 100000\n",
            "sys/fs/cgroup/kubepods/pod1/box/cpu.max": "max 100000\n",
            "sys/fs/cgroup/kubepods/memory.max": str(8 * GIB),
            "sys/fs/cgroup/kubepods/pod1/box/memory.max": "max",
        },
    )
    host = read_host(root, {}, nothing)
    assert host.cpu_limit == 3.5
    assert host.ram_limit_bytes == 8 * GIB
    cores = usable_cores(host)
    assert cores is not None
    assert cores <= 3.5


def test_limits_of_control_groups_in_the_older_layout(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n1:name=systemd:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": str(4 * GIB),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(9223372036854771712),
        },
    )
    host = read_host(root, {}, nothing)
    assert (host.cpu_limit, host.ram_limit_bytes) == (2.0, 4 * GIB)


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {"sys/fs/cgroup/cpu.max": "max 100000", "sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"},
    )
    host = read_host(root, {}, nothing)
    assert (host.cpu_limit, host.ram_limit_bytes) == (None, None)


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"proc/1/cgroup": "0::/system.slice/docker-abc.scope"}, {}, "docker"),
        ({"proc/1/cgroup": "0::/kubepods.slice/x"}, {}, "kubernetes"),
        ({}, {"APPTAINER_CONTAINER": "/home/me/x.sif"}, "apptainer"),
        ({}, {"container": "lxc"}, "lxc"),
        ({}, {"container": "/home/somebody"}, None),
    ],
)
def test_containers(tmp_path: Path, files: dict[str, str], environ: dict[str, str], kind: str | None) -> None:
    assert read_host(write(tmp_path, files), environ, nothing).container == kind


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2"}, "wsl"),
        ({"proc/version": "Linux version 4.4.0 gVisor"}, "gvisor"),
        ({}, None),
    ],
)
def test_virtual_machines(tmp_path: Path, files: dict[str, str], kind: str | None) -> None:
    assert read_host(write(tmp_path, files), {}, nothing).virtual == kind


def test_this_machine_can_be_read() -> None:
    host = read_host()
    assert host.threads
    assert host.python.count(".") == 2


# Software


def installed(versions: dict[str, str]) -> object:
    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    return version


def test_frameworks_by_metadata_and_pytorch_build_architectures(tmp_path: Path) -> None:
    torch_file = tmp_path / "version.py"
    torch_file.write_text("__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n")
    versions = {"torch": "2.11.0+cu130", "vllm": "0.20.1", "transformers": "broken\nversion of /home/me"}
    software = read_software(tmp_path, {}, installed(versions), torch_file)  # type: ignore[arg-type]
    assert dict(software.packages) == {"torch": "2.11.0+cu130", "vllm": "0.20.1"}
    assert (software.torch_cuda, software.torch_rocm) == ("13.0", None)
    torch_file.write_text("cuda = None\nhip: Optional[str] = '6.4.43482-0f2d60242'\n")
    software = read_software(tmp_path, {}, installed({}), torch_file)  # type: ignore[arg-type]
    assert (software.torch_cuda, software.torch_rocm) == (None, "6.4.43482")


def test_the_toolkit_by_its_own_file_or_a_variable(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "version.json").write_text(
        json.dumps({"cuda_cccl": {"version": "9.9.9"}, "cuda": {"version": "12.8.1"}})
    )
    none = tmp_path / "no.py"
    version = installed({})
    assert read_software(tmp_path, {"CUDA_HOME": str(tmp_path / "cuda")}, version, none).cuda_toolkit == "12.8.1"  # type: ignore[arg-type]
    assert read_software(tmp_path, {"CUDA_VERSION": "12.4.1"}, version, none).cuda_toolkit == "12.4.1"  # type: ignore[arg-type]
    assert read_software(tmp_path, {}, version, none).cuda_toolkit is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environ", "names", "all_hidden"),
    [
        ({}, (), False),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, ("CUDA_VISIBLE_DEVICES",), False),
        ({"CUDA_VISIBLE_DEVICES": ""}, ("CUDA_VISIBLE_DEVICES",), True),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ("CUDA_VISIBLE_DEVICES",), True),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, (), False),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, ("NVIDIA_VISIBLE_DEVICES",), True),
    ],
)
def test_variables_that_hide_gpus(tmp_path: Path, environ: dict[str, str], names: tuple[str, ...], all_hidden: bool) -> None:
    software = read_software(tmp_path, environ, installed({}), tmp_path / "no.py")  # type: ignore[arg-type]
    assert (software.hidden_by, software.hides_all) == (names, all_hidden)


# The host's load


def stat(id: int, parent: int, ticks: int, name: str = "python3 (x) y") -> str:
    return f"{id} ({name}) S {parent} 1 1 0 -1 4194304 1 0 0 0 {ticks} 0 0 0 20 0 1 0 1"


def processes(root: Path, user: int, waiting: int, main: int, thread: int, worker: int) -> None:
    write(
        root,
        {
            "proc/stat": f"cpu  {user} 0 0 100000 {waiting} 0 0 0 0 0\ncpu0 1 1 1 1\n",
            "proc/500/stat": stat(500, 1, main + thread),
            "proc/500/task/500/stat": stat(500, 1, main),
            "proc/500/task/501/stat": stat(501, 1, thread),
            "proc/600/stat": stat(600, 500, worker),
            "proc/601/stat": stat(601, 600, worker),
            "proc/700/stat": stat(700, 1, 12345),
        },
    )


def test_load_of_the_host_of_the_busiest_thread_and_of_the_workers(tmp_path: Path) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    moments = iter([10.0, 12.0])
    processes(tmp_path, user=0, waiting=0, main=0, thread=0, worker=0)
    folder = tmp_path / "proc/500/fd"
    folder.mkdir()
    (folder / "7").symlink_to("/dev/nvidia-uvm")
    reader = LoadReader(4.0, lambda: [500], lambda: next(moments), tmp_path)
    assert reader.read() is None
    processes(tmp_path, user=6 * tick, waiting=2 * tick, main=2 * tick, thread=tick // 2, worker=tick)
    load = reader.read()
    assert load is not None
    assert load.busy_cores == pytest.approx(3.0)
    assert load.waiting_share == pytest.approx(0.25)
    assert load.busiest_thread == pytest.approx(1.0)
    assert load.worker_cores == pytest.approx(1.0)


def test_in_a_container_the_programs_are_found_by_the_files_they_hold(tmp_path: Path) -> None:
    processes(tmp_path, 0, 0, 0, 0, 0)
    for id in ("500", "600", "700"):
        folder = tmp_path / "proc" / id / "fd"
        folder.mkdir()
        (folder / "3").symlink_to("/dev/nvidia-uvm" if id != "700" else "/dev/nvidiactl")  # 700 is a meter, 600 a forked loader
    reader = LoadReader(4.0, lambda: [99999], lambda: 0.0, tmp_path)
    assert list(reader._find_programs()) == ["500"]


def test_a_machine_without_proc_has_no_load(tmp_path: Path) -> None:
    reader = LoadReader(4.0, list, iter([1.0, 2.0, 3.0]).__next__, tmp_path)
    assert reader.read() is None
    assert reader.read() is None


# AMD


def amd_machine(root: Path, **files: str) -> Path:
    device = "sys/class/drm/card1/device/"
    usual = {
        "vendor": "0x1002",
        "device": "0x74a1",
        "revision": "0x00",
        "mem_info_vram_total": str(196592 << 20),
        "mem_info_vram_used": str(1 << 30),
        "gpu_busy_percent": "37",
        "mem_busy_percent": "12",
        "pp_dpm_sclk": "0: 132Mhz *\n1: 2100Mhz\n",
        "pp_dpm_mclk": "0: 900Mhz\n1: 1300Mhz *\n",
        "current_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": "16",
        "current_compute_partition": "SPX",
        "current_memory_partition": "NPS1",
        "hwmon/hwmon4/power1_average": "141000000",
        "hwmon/hwmon4/power1_cap": "750000000",
        "hwmon/hwmon4/power1_cap_default": "750000000",
        "hwmon/hwmon4/temp1_input": "41000",
        "hwmon/hwmon4/temp1_crit": "100000",
        "drm/renderD129": "",
    } | {name.replace("__", "/"): text for name, text in files.items()}
    write(root, {device + name: text for name, text in usual.items()})
    return write(
        root,
        {
            "sys/class/drm/card0/device/vendor": "0x1a03",  # the board's own display chip
            "sys/class/drm/card1-DP-1/status": "connected",
            "sys/module/amdgpu/version": "6.12.12",
            "opt/rocm/.info/version": "6.4.1-83",
            "sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 64\ngfx_target_version 0\ndrm_render_minor 0\n",
            "sys/class/kfd/kfd/topology/nodes/1/properties": "gfx_target_version 90402\ndrm_render_minor 129\nunique_id 77\n",
        },
    )


def test_an_amd_gpu_from_its_drivers_files(tmp_path: Path) -> None:
    probe = open_amd(amd_machine(tmp_path, product_name="AMD Instinct MI300X OAM", serial_number="SECRET"), nothing)
    (card,) = probe.cards()
    assert (card.vendor, card.name, card.target) == ("amd", "AMD Instinct MI300X OAM", "gfx942")
    assert (card.driver, card.api_version, card.partition) == ("6.12.12", "6.4.1", "SPX/NPS1")
    assert (card.now.memory_bytes, card.now.memory_used_bytes) == (196592 << 20, 1 << 30)
    assert (card.now.utilisation_percent, card.now.memory_utilisation_percent) == (37, 12)
    assert (card.now.power_watts, card.now.power_limit_watts, card.power_default_watts) == (141.0, 750.0, 750.0)
    assert (card.now.temperature_celsius, card.slowdown_celsius) == (41, 100)
    assert (card.now.sm_clock_hz, card.now.sm_clock_max_hz) == (132_000_000, 2_100_000_000)
    assert card.pcie is not None
    assert (card.pcie.generation, card.pcie.width, card.pcie.generation_max) == (5, 16, 5)
    assert probe.samples()[0].utilisation_percent == 37
    assert probe.processes() == ((),)


def test_an_amd_gpus_name_from_libdrms_list_from_a_tool_or_from_its_instruction_set(tmp_path: Path) -> None:
    root = amd_machine(tmp_path)
    assert open_amd(root, nothing).cards()[0].name == "AMD GPU gfx942"

    def tool(command: Sequence[str]) -> str | None:
        return json.dumps({"card0": {"Card Series": "AMD Instinct MI300X VF"}}) if command[0] == "rocm-smi" else None

    assert open_amd(root, tool).cards()[0].name == "AMD Instinct MI300X VF"
    write(root, {"usr/share/libdrm/amdgpu.ids": "# list\n74A1,\t00,\tAMD Instinct MI300X\n"})
    assert open_amd(root, tool).cards()[0].name == "AMD Instinct MI300X"


def test_names_in_the_tools_layouts() -> None:
    assert product_names(json.dumps([{"gpu": 0, "asic": {"market_name": "AMD Instinct MI210"}}])) == ("AMD Instinct MI210",)
    assert product_names(json.dumps({"gpu_data": [{"gpu": 0, "asic": {"market_name": "X"}}]})) == ("X",)
    assert product_names("not json") == ()
    assert product_names("3") == ()


def test_amd_gpu_with_implausible_values_or_missing(tmp_path: Path) -> None:
    root = amd_machine(tmp_path, gpu_busy_percent="65535", mem_info_vram_used=str(1 << 60), current_link_width="0")
    probe = open_amd(root, nothing)
    (sample,) = probe.samples()
    assert (sample.utilisation_percent, sample.memory_bytes, sample.memory_used_bytes) == (None, 196592 << 20, None)
    assert set(sample.odd) == {"utilisation_percent", "memory_bytes"}
    for path in sorted((root / "sys/class/drm/card1").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (root / "sys/class/drm/card1").rmdir()
    assert probe.samples()[0].lost


def test_missing_amd_gpu_is_reported(tmp_path: Path) -> None:
    with pytest.raises(VendorUnavailable) as error:
        open_amd(tmp_path, nothing)
    assert error.value.missing.kind == "no-device"


# Apple


def mac(command: Sequence[str]) -> str | None:
    if command[0] == "system_profiler":
        return json.dumps({"SPDisplaysDataType": [{"sppci_model": "Apple M2 Max", "sppci_cores": "38", "_name": "Apple M2 Max"}]})
    if command[0] == "sysctl":
        return f"{64 * GIB}\n"
    statistics = {"Device Utilization %": 12, "In use system memory": 3 * GIB}
    return plistlib.dumps([{"IOClass": "AGXAcceleratorG14X", "PerformanceStatistics": statistics}]).decode()


def test_a_mac() -> None:
    probe = open_apple("darwin", mac)
    (card,) = probe.cards()
    assert (card.name, card.cores, card.now.memory_bytes) == ("Apple M2 Max", 38, 64 * GIB)
    assert (card.now.utilisation_percent, card.now.memory_used_bytes) == (12, 3 * GIB)


def test_mac_without_tool_output_and_other_machines() -> None:
    with pytest.raises(VendorUnavailable) as error:
        open_apple("darwin", nothing)
    assert error.value.missing.kind == "no-device"
    with pytest.raises(VendorUnavailable) as error:
        open_apple("linux", mac)
    assert error.value.missing.kind == "other-system"

    def mute(command: Sequence[str]) -> str | None:
        return mac(command) if command[0] == "system_profiler" else "rubbish"

    (sample,) = open_apple("darwin", mute).samples()
    assert (sample.utilisation_percent, sample.memory_bytes) == (None, None)


# Files and tools


def test_files_and_tools_that_are_not_there(tmp_path: Path) -> None:
    assert read_text(tmp_path / "none") is None
    assert read_text(tmp_path) is None
    (tmp_path / "word").write_text("twelve")
    assert read_number(tmp_path / "word") is None
    assert run_tool(["/no/such/program"]) is None
    assert run_tool(["false"]) is None
    assert run_tool(["echo", "hello"]) == "hello\n"
