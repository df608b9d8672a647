"""NVIDIA's management library (NVML), with its errors classified: value unavailable, GPU lost, driver gone."""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any

from whichgpu.base.messages import msg
from whichgpu.measure.drivers.probe import DriverUnavailable, VendorUnavailable

# Return codes of nvml.h that are handled.
UNINITIALISED, NO_PERMISSION, DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND = 1, 4, 9, 10, 12
GPU_IS_LOST, RESET_REQUIRED, OPERATING_SYSTEM, VERSION_MISMATCH, GPU_NOT_FOUND, UNKNOWN = 15, 16, 17, 18, 28, 999
LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
GONE = frozenset({UNINITIALISED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH})
TRANSIENT = frozenset({TIMEOUT, OPERATING_SYSTEM, UNKNOWN})
ABSENT = {
    LIBRARY_NOT_FOUND: "no-library",
    DRIVER_NOT_LOADED: "no-driver",
    VERSION_MISMATCH: "driver-mismatch",
    NO_PERMISSION: "no-permission",
}


class GpuLost(Exception):
    """Raised if a GPU does not answer its driver: it fell off the bus or needs a reset."""


class Nvml:
    """Calls NVIDIA's management library; `library` is the module pynvml or a replacement with its functions."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.failures = 0  # Number of calls so far that failed with a time-out or an unknown error.

    def start(self) -> None:
        """Initialise NVML; raise VendorUnavailable if that fails."""
        try:
            self._library.nvmlInit()
        except Exception as problem:
            kind = ABSENT.get(_code(problem), "no-answer")
            why = str(problem) or type(problem).__name__
            raise VendorUnavailable("nvidia", kind, msg(f"absent.{kind}", why=why)) from problem

    def restart(self) -> None:
        """Initialise NVML again after the driver stopped and came back; raise if that fails."""
        self.stop()
        try:
            self.start()
        except VendorUnavailable as why:
            raise DriverUnavailable from why

    def stop(self) -> None:
        """Shut NVML down; errors are ignored."""
        with contextlib.suppress(Exception):
            self._library.nvmlShutdown()

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call an NVML function and return its value; None if this driver or GPU does not support it."""
        try:
            return getattr(self._library, function)(*arguments)
        except AttributeError:  # An older nvidia-ml-py lacks this function.
            return None
        except Exception as problem:
            code = _code(problem)
            if code in LOST:
                raise GpuLost from problem
            if code in GONE:
                raise DriverUnavailable from problem
            self.failures += code in TRANSIENT
            return None


def open_nvml() -> Nvml:
    """Load and initialise NVML; raise VendorUnavailable if it is missing or fails."""
    try:
        library = import_module("pynvml")
    except ImportError as problem:
        raise VendorUnavailable("nvidia", "no-package", msg("absent.no-package", name="nvidia-ml-py")) from problem
    nvml = Nvml(library)
    nvml.start()
    return nvml


def _code(problem: Exception) -> int:
    value = getattr(problem, "value", None)
    return value if isinstance(value, int) else -1
