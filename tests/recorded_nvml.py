"""NVML's answers as data, and a library that plays them back the way pynvml gives them.

A recording is a mapping of function names to answers. An answer that depends on arguments is a mapping by them; an error
is an `Error` of NVML's code; a mapping of field names (`{"total": …}`) is a struct. What is not in it is not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pynvml  # type: ignore[import-untyped]

MIB = 1 << 20
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, LOST, UNKNOWN = 3, 4, 6, 15, 999
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, MISMATCH, UNINITIALISED = 9, 12, 18, 1

Recording = Mapping[str, Any]


@dataclass(frozen=True)
class Error:
    code: int


def memory(total_mib: int, free_mib: int) -> dict[str, int]:
    return {"total": total_mib * MIB, "free": free_mib * MIB, "used": (total_mib - free_mib) * MIB}


H200: Recording = {
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetUUID": "GPU-11111111-2222-3333-4444-555555555555",
    "nvmlDeviceGetSerial": "1654321000111",
    "nvmlDeviceGetMemoryInfo": memory(143771, 143156),
    "nvmlDeviceGetUtilizationRates": {"gpu": 0, "memory": 0},
    "nvmlDeviceGetPowerUsage": 76_543,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
    "nvmlDeviceGetTemperature": {(0,): 31},
    "nvmlDeviceGetTemperatureThreshold": {(1,): 90},
    "nvmlDeviceGetClockInfo": {(1,): 345, (2,): 3201},
    "nvmlDeviceGetMaxClockInfo": {(1,): 1980, (2,): 3201},
    "nvmlDeviceGetCurrentClocksEventReasons": 0x1,
    "nvmlDeviceGetComputeRunningProcesses": [],
    "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetNumGpuCores": 16896,
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetComputeMode": 0,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetPcieThroughput": {(0,): 488, (1,): 1025},
    "nvmlDeviceGetNvLinkState": {(link,): 1 for link in range(18)},
}

# A passive GPU under load in a server with too little airflow; its driver is older than the newer name of the clock reasons.
T4_HOT: Recording = {
    "nvmlDeviceGetName": "Tesla T4",
    "nvmlDeviceGetUUID": "GPU-t4",
    "nvmlDeviceGetMemoryInfo": memory(15360, 2100),
    "nvmlDeviceGetUtilizationRates": {"gpu": 98, "memory": 61},
    "nvmlDeviceGetPowerUsage": 69_800,
    "nvmlDeviceGetEnforcedPowerLimit": 60_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 70_000,
    "nvmlDeviceGetTemperature": {(0,): 94},
    "nvmlDeviceGetTemperatureThreshold": {(1,): 93},
    "nvmlDeviceGetClockInfo": {(1,): 585, (2,): 5000},
    "nvmlDeviceGetMaxClockInfo": {(1,): 1590, (2,): 5001},
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4 | 0x8 | 0x40,
    "nvmlDeviceGetComputeRunningProcesses": [{"pid": 4242, "usedGpuMemory": 13 * 1024 * MIB}],
    "nvmlDeviceGetCudaComputeCapability": (7, 5),
    "nvmlDeviceGetEccMode": [1, 0],
    "nvmlDeviceGetTotalEccErrors": 3,
    "nvmlDeviceGetPersistenceMode": 0,
    "nvmlDeviceGetComputeMode": 3,
    "nvmlDeviceGetCurrPcieLinkGeneration": 3,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": 3,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
}

# In MIG mode the GPU itself reports no utilisation; its slices report names, memory and size.
A100_MIG: Recording = {
    "nvmlDeviceGetName": "NVIDIA A100-SXM4-40GB",
    "nvmlDeviceGetUUID": "GPU-a100",
    "nvmlDeviceGetMemoryInfo": memory(40960, 40400),
    "nvmlDeviceGetPowerUsage": 92_000,
    "nvmlDeviceGetEnforcedPowerLimit": 400_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 400_000,
    "nvmlDeviceGetTemperature": {(0,): 35},
    "nvmlDeviceGetClockInfo": {(1,): 1410, (2,): 1215},
    "nvmlDeviceGetMaxClockInfo": {(1,): 1410, (2,): 1215},
    "nvmlDeviceGetCurrentClocksEventReasons": 0,
    "nvmlDeviceGetCudaComputeCapability": (8, 0),
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetMigMode": [1, 1],
    "nvmlDeviceGetMaxMigDeviceCount": 7,
    "nvmlDeviceGetPersistenceMode": 1,
    "mig": [
        {
            "nvmlDeviceGetName": "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
            "nvmlDeviceGetMemoryInfo": memory(19968, 19930),
            "nvmlDeviceGetAttributes": {"multiprocessorCount": 42, "memorySizeMB": 19968},
        },
        {
            "nvmlDeviceGetName": "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            "nvmlDeviceGetMemoryInfo": Error(NO_PERMISSION),
            "nvmlDeviceGetAttributes": {"multiprocessorCount": 14, "memorySizeMB": 4864},
        },
    ],
}

# A consumer card on a riser, training; the PCIe link has four lanes and is in use.
RTX_3060_X4: Recording = {
    "nvmlDeviceGetName": "NVIDIA GeForce RTX 3060",
    "nvmlDeviceGetUUID": "GPU-3060",
    "nvmlDeviceGetMemoryInfo": memory(12288, 1900),
    "nvmlDeviceGetUtilizationRates": {"gpu": 55, "memory": 20},
    "nvmlDeviceGetPowerUsage": 88_000,
    "nvmlDeviceGetEnforcedPowerLimit": 170_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 170_000,
    "nvmlDeviceGetTemperature": {(0,): 57},
    "nvmlDeviceGetClockInfo": {(1,): 1890, (2,): 7300},
    "nvmlDeviceGetMaxClockInfo": {(1,): 2100, (2,): 7501},
    "nvmlDeviceGetCurrentClocksEventReasons": 0,
    "nvmlDeviceGetComputeRunningProcesses": [{"pid": 7001, "usedGpuMemory": None}],
    "nvmlDeviceGetCudaComputeCapability": (8, 6),
    "nvmlDeviceGetPersistenceMode": 0,
    "nvmlDeviceGetComputeMode": 0,
    "nvmlDeviceGetCurrPcieLinkGeneration": 3,
    "nvmlDeviceGetCurrPcieLinkWidth": 4,
    "nvmlDeviceGetMaxPcieLinkGeneration": 4,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": 4,
    "nvmlDeviceGetPcieThroughput": {(0,): 12_000, (1,): 5_500_000},
}

# Everything answers, and nothing of it can be true.
NONSENSE: Recording = {
    "nvmlDeviceGetName": "NVIDIA \x1b[2JH\x00200" + "?" * 200,
    "nvmlDeviceGetMemoryInfo": {"total": 1 << 62, "free": 1 << 63, "used": 0},
    "nvmlDeviceGetUtilizationRates": {"gpu": 4_294_967_295, "memory": 250},
    "nvmlDeviceGetPowerUsage": 9_000_000_000,
    "nvmlDeviceGetEnforcedPowerLimit": -1,
    "nvmlDeviceGetPowerManagementDefaultLimit": "many",
    "nvmlDeviceGetTemperature": {(0,): 65_535},
    "nvmlDeviceGetClockInfo": {(1,): 1_000_000, (2,): -5},
    "nvmlDeviceGetMaxClockInfo": {(1,): 0, (2,): None},
    "nvmlDeviceGetCurrentClocksEventReasons": 1 << 40,
    "nvmlDeviceGetComputeRunningProcesses": 7,
    "nvmlDeviceGetCudaComputeCapability": (-1, 99999999),
    "nvmlDeviceGetEccMode": 3,
    "nvmlDeviceGetMigMode": [1],
    "nvmlDeviceGetPersistenceMode": 17,
    "nvmlDeviceGetComputeMode": 99,
    "nvmlDeviceGetCurrPcieLinkGeneration": 99,
    "nvmlDeviceGetCurrPcieLinkWidth": 0,
    "nvmlDeviceGetTotalEccErrors": 1 << 63,
}

BARE: Recording = {"nvmlDeviceGetName": "NVIDIA H200"}  # all else is not supported

SYSTEM: Recording = {"nvmlSystemGetDriverVersion": "580.159.03", "nvmlSystemGetCudaDriverVersion": 13000}


class Recorded:
    """Plays recordings as the module pynvml would; `gpus` may be changed between calls to let one vanish."""

    def __init__(
        self,
        *gpus: Recording,
        system: Recording = SYSTEM,
        init: Error | None = None,
        peers: Callable[[int, int], Recording] | None = None,
    ) -> None:
        self.gpus: list[Recording | Error] = list(gpus)
        self.system, self.init, self.peers = dict(system), init, peers
        self.gone: Error | None = None  # a driver that fails every call
        self.started = 0
        self.calls: list[str] = []

    def nvmlInit(self) -> None:
        self.started += 1
        if self.init:
            raise _problem(self.init)
        if self.gone:
            raise _problem(self.gone)

    def nvmlShutdown(self) -> None:
        self.started -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> tuple[int]:
        self._alive()
        gpu = self.gpus[index]
        if isinstance(gpu, Error):
            raise _problem(gpu)
        return (index,)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> tuple[int]:
        self._alive()
        for index, gpu in enumerate(self.gpus):
            if isinstance(gpu, Mapping) and gpu.get("nvmlDeviceGetUUID") == uuid:
                return (index,)
        raise _problem(Error(NOT_FOUND))

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: tuple[int], place: int) -> tuple[int, int]:
        if place >= len(self._of(handle).get("mig", ())):
            raise _problem(Error(NOT_FOUND))
        return (*handle, place)

    def __getattr__(self, function: str) -> Callable[..., Any]:
        if not function.startswith("nvml") or function == "nvmlDeviceGetAttributes_v2":
            raise AttributeError(function)
        return lambda *arguments: self._answer(function, *arguments)

    def _answer(self, function: str, *arguments: Any) -> Any:
        self.calls.append(function)
        self._alive()
        if function in ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor"):
            value = self.peers(arguments[0][0], arguments[1][0]).get(function) if self.peers else None
        elif arguments:
            value = self._of(arguments[0]).get(function)
        else:
            value = self.system.get(function)
        if isinstance(value, Mapping) and all(isinstance(key, tuple) for key in value):
            value = value.get(arguments[1:])
        if value is None:
            raise _problem(Error(NOT_SUPPORTED))
        if isinstance(value, Error):
            raise _problem(value)
        return _struct(value)

    def _of(self, handle: Sequence[int]) -> Recording:
        gpu = self.gpus[handle[0]] if handle[0] < len(self.gpus) else Error(LOST)
        if isinstance(gpu, Error):
            raise _problem(gpu)
        slice: Recording = gpu["mig"][handle[1]] if len(handle) > 1 else gpu
        return slice

    def _alive(self) -> None:
        if self.gone:
            raise _problem(self.gone)


def _struct(value: Any) -> Any:
    if isinstance(value, Mapping):
        return SimpleNamespace(**value)
    return [_struct(one) for one in value] if isinstance(value, list) else value


def _problem(error: Error) -> Exception:
    problem = pynvml.NVMLError(error.code)
    assert isinstance(problem, Exception)
    return problem


def with_changes(recording: Recording, **changes: Any) -> Recording:
    return {**recording, **changes}
