"""AMD GPUs through the amdgpu driver's files under /sys, with names from there or from amd-smi and rocm-smi."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from whichgpu.base.messages import msg
from whichgpu.measure.drivers.card import Card, PcieLink, Sample
from whichgpu.measure.drivers.plausibility import PlausibilityFilter
from whichgpu.measure.drivers.probe import VendorUnavailable
from whichgpu.measure.files import Run, named_numbers, read_number, read_text, run_tool

VENDOR = "0x1002"
GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # PCIe generation by GT/s per lane.
NAME_FILES = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids")
TOOLS = (("amd-smi", "static", "--asic", "--json"), ("rocm-smi", "--showproductname", "--json"))
NAME_KEYS = ("market_name", "card series", "card_series")
_CLOCK = re.compile(r"(\d+)\s*mhz", re.IGNORECASE)
_SPEED = re.compile(r"(\d+(?:\.\d+)?)")


def open_amd(root: Path = Path("/"), run: Run = run_tool) -> AmdProbe:
    """Open a probe of the AMD GPUs; raise VendorUnavailable if there are none."""
    folders = [path / "device" for path in sorted((root / "sys/class/drm").glob("card*")) if path.name[4:].isdigit()]
    amd_folders = [folder for folder in folders if read_text(folder / "vendor") == VENDOR]
    if not amd_folders:
        raise VendorUnavailable("amd", "no-device", msg("absent.no-device"))
    return AmdProbe([_Device(folder, min(folder.glob("hwmon/hwmon*"), default=None)) for folder in amd_folders], root, run)


class _Device(msgspec.Struct, frozen=True):
    folder: Path
    monitor: Path | None

    def number(self, name: str) -> int | None:
        """Return the integer in a file of the GPU's folder under /sys; None if it is missing."""
        return read_number(self.folder / name)

    def sensor(self, name: str) -> int | None:
        """Return the integer in a file of the GPU's sensors (power, temperature) under /sys; None if it is missing."""
        return None if self.monitor is None else read_number(self.monitor / name)


class AmdProbe:
    """Reads the AMD GPUs of this machine from small files of the driver; nothing runs on a GPU."""

    def __init__(self, devices: Sequence[_Device], root: Path, run: Run) -> None:
        self._devices, self._root, self._run = devices, root, run

    def close(self) -> None: ...

    def processes(self) -> tuple[tuple[int, ...], ...]:
        """Return no process ids, since the driver does not report them."""
        return tuple(() for _ in self._devices)

    def samples(self, traffic: bool = False) -> tuple[Sample, ...]:
        return tuple(_sample(index, device) for index, device in enumerate(self._devices))

    def cards(self) -> tuple[Card, ...]:
        by_tool = self._names_by_tool() if any(not self._own_name(device) for device in self._devices) else ()
        return tuple(self._card(index, device, by_tool) for index, device in enumerate(self._devices))

    def _card(self, index: int, device: _Device, by_tool: Sequence[str]) -> Card:
        sample, plausible = _sample(index, device), PlausibilityFilter()
        target = self._target(device)
        tool = by_tool[index] if len(by_tool) == len(self._devices) else None
        name = plausible.words("name", self._own_name(device) or tool) or f"AMD GPU {target or ''}".strip()
        parts = [read_text(device.folder / f"current_{kind}_partition") for kind in ("compute", "memory")]
        return Card(
            index=index,
            vendor="amd",
            name=name,
            now=sample,
            driver=plausible.words("driver", read_text(self._root / "sys/module/amdgpu/version")),
            api_version=_rocm_version(self._root),
            target=target,
            memory_clock_hz=_clocks(device.folder / "pp_dpm_mclk")[0],
            memory_clock_max_hz=_clocks(device.folder / "pp_dpm_mclk")[1],
            power_default_watts=_watts(plausible, "power_default_watts", device.sensor("power1_cap_default")),
            power_max_watts=_watts(plausible, "power_max_watts", device.sensor("power1_cap_max")),
            slowdown_celsius=_degrees(plausible, "slowdown_celsius", device.sensor("temp1_crit")),
            partition="/".join(part for part in parts if part) or None,
            pcie=_pcie(device, plausible),
            odd=tuple(dict.fromkeys((*plausible.odd, *sample.odd))),
        )

    def _own_name(self, device: _Device) -> str | None:
        """Return a GPU's product name from its board, else from libdrm's list of device ids; None if neither has it."""
        if name := read_text(device.folder / "product_name"):
            return name
        id, revision = (read_text(device.folder / name) or "" for name in ("device", "revision"))
        pci_ids = (id.removeprefix("0x").upper(), revision.removeprefix("0x").upper())
        for file in NAME_FILES:
            for line in (read_text(self._root / file, max_bytes=1 << 20) or "").splitlines():
                cells = [cell.strip() for cell in line.split(",")]
                if len(cells) == 3 and (cells[0].upper(), cells[1].upper()) == pci_ids:
                    return cells[2]
        return None

    def _names_by_tool(self) -> tuple[str, ...]:
        for command in TOOLS:
            if (text := self._run(command)) and (names := product_names(text)):
                return names
        return ()

    def _target(self, device: _Device) -> str | None:
        """Return a GPU's instruction set, such as gfx942, from the compute driver's number (90402); None if unknown."""
        minors = {path.name.removeprefix("renderD") for path in device.folder.glob("drm/renderD*")}
        for node in sorted((self._root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
            properties = named_numbers(read_text(node, max_bytes=1 << 16) or "")
            if str(properties.get("drm_render_minor")) in minors and (version := properties.get("gfx_target_version")):
                return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        return None


def product_names(text: str) -> tuple[str, ...]:
    """Return product names by GPU from the JSON of amd-smi or rocm-smi, whose layouts differ between releases."""
    try:
        document = json.loads(text)
    except ValueError:
        return ()
    if isinstance(document, dict):
        document = document.get("gpu_data") or [value for name, value in document.items() if str(name).startswith("card")]
    if not isinstance(document, list):
        return ()
    names = [_product_name(entry) for entry in document]
    return tuple(name for name in names if name)


def _product_name(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    for key, value in entry.items():
        if isinstance(value, str) and str(key).lower() in NAME_KEYS:
            return value
    return next((name for value in entry.values() if (name := _product_name(value))), None)


def _sample(index: int, device: _Device) -> Sample:
    total = device.number("mem_info_vram_total")
    if total is None and not device.folder.exists():
        return Sample(index, lost=True)
    plausible = PlausibilityFilter()
    used = device.number("mem_info_vram_used")
    size, used_bytes = plausible.memory("memory_bytes", total, None if total is None or used is None else total - used)
    power = device.sensor("power1_average") or device.sensor("power1_input")
    clock, highest = _clocks(device.folder / "pp_dpm_sclk")
    return Sample(
        index=index,
        utilisation_percent=plausible.number("utilisation_percent", device.number("gpu_busy_percent"), "percent"),
        memory_utilisation_percent=plausible.number("memory_utilisation_percent", device.number("mem_busy_percent"), "percent"),
        memory_used_bytes=used_bytes,
        memory_bytes=size,
        power_watts=_watts(plausible, "power_watts", power),
        power_limit_watts=_watts(plausible, "power_limit_watts", device.sensor("power1_cap")),
        temperature_celsius=_degrees(plausible, "temperature_celsius", device.sensor("temp1_input")),
        sm_clock_hz=clock,
        sm_clock_max_hz=highest,
        odd=plausible.odd,
    )


def _watts(plausible: PlausibilityFilter, name: str, microwatts: int | None) -> float | None:
    return plausible.watts(name, None if microwatts is None else microwatts / 1000)


def _degrees(plausible: PlausibilityFilter, name: str, thousandths: int | None) -> int | None:
    return plausible.number(name, None if thousandths is None else thousandths / 1000, "celsius")


def _clocks(path: Path) -> tuple[int | None, int | None]:
    """Return the current and the highest clock in hertz, from a driver file that marks the current one with a star."""
    lines = [line for line in (read_text(path) or "").splitlines() if _CLOCK.search(line)]
    rates = [int(_CLOCK.findall(line)[0]) * 10**6 for line in lines]
    now = next((rate for rate, line in zip(rates, lines, strict=True) if "*" in line), None)
    return now, max(rates, default=None)


def _pcie(device: _Device, plausible: PlausibilityFilter) -> PcieLink | None:
    states = ("current", "max")
    speeds = [_generation(read_text(device.folder / f"{state}_link_speed")) for state in states]
    widths = [plausible.number("pcie.width", device.number(f"{state}_link_width") or None, "width") for state in states]
    if not any([*speeds, *widths]):
        return None
    return PcieLink(speeds[0], widths[0], speeds[1], widths[1])


def _generation(text: str | None) -> int | None:
    speed = _SPEED.match(text or "")
    return GENERATIONS.get(f"{float(speed[1]):.1f}") if speed else None


def _rocm_version(root: Path) -> str | None:
    version = re.match(r"\d+(?:\.\d+)+", read_text(root / "opt/rocm/.info/version") or "")
    return version[0] if version else None
