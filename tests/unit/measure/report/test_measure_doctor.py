"""What doctor reports on recorded machines, and what it never reveals."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines import GIB, host, probe_of, software
from tests.recorded_nvml import (
    A100_MIG,
    BARE,
    H200,
    LOST,
    NONSENSE,
    RTX_3060_X4,
    SYSTEM,
    T4_HOT,
    UNINITIALISED,
    Error,
    Recorded,
    Recording,
    with_changes,
)
from whichgpu.base.messages import english, msg
from whichgpu.catalog.store import Catalog
from whichgpu.measure.drivers.card import Card, Sample
from whichgpu.measure.drivers.probe import MissingVendor
from whichgpu.measure.host import Host
from whichgpu.measure.report.doctor import Report, build_report
from whichgpu.measure.report.finding import DoctorFinding
from whichgpu.measure.software import InstalledSoftware

V100 = with_changes(
    H200,
    nvmlDeviceGetName="Tesla V100-SXM2-16GB",
    nvmlDeviceGetMemoryInfo={"total": 16160 << 20, "free": 16000 << 20},
    nvmlDeviceGetCudaComputeCapability=(7, 0),
)


def report(
    *recordings: Recording, at: Host | None = None, runs: InstalledSoftware | None = None, library: Recorded | None = None
) -> Report:
    probe = probe_of(library=library or Recorded(*recordings))
    return build_report(probe, (), at or host(), runs or software(), Catalog())


def findings_by_id(report: Report) -> dict[str, DoctorFinding]:
    return {one.id: one for one in report.findings}


def test_healthy_h200_has_no_findings() -> None:
    result = report(H200)
    assert result.gpus[0].match.gpu == "h200-sxm"
    assert {"bf16", "fp8", "flash-attention"} <= set(result.gpus[0].match.supports)
    assert result.findings == ()


def test_a_hot_t4_with_a_lowered_limit_and_memory_errors() -> None:
    result = report(T4_HOT)
    levels = {one.id: one.level for one in result.findings}
    assert levels["thermal"] == "warning"
    assert levels["power-limit"] == "warning"
    assert levels["ecc-errors"] == "problem"
    assert {"power-cap", "ecc-pending", "persistence", "compute-exclusive", "memory-little"} <= set(levels)
    assert "power-brake" not in levels  # the hardware's slowdown is the heat's
    assert result.findings[0].level == "problem"


def test_mig_with_slices_is_a_note_and_without_them_a_problem() -> None:
    assert findings_by_id(report(A100_MIG))["mig-on"].level == "note"
    assert findings_by_id(report(with_changes(A100_MIG, mig=[])))["mig-empty"].level == "problem"


def test_four_lanes_and_an_old_generation_under_load() -> None:
    findings = findings_by_id(report(RTX_3060_X4))
    assert findings["pcie-width"].what == msg("doctor.found.pcie-width", width=4, best=16)
    assert findings["pcie-width"].level == "warning"
    assert "pcie-speed" in findings
    assert findings_by_id(report(RTX_3060_X4, at=host(virtual="vm")))["pcie-width"].level == "note"


def test_idle_link_speed_is_no_problem() -> None:
    resting = with_changes(H200, nvmlDeviceGetCurrPcieLinkGeneration=1)
    assert "pcie-speed" not in findings_by_id(report(resting))
    assert "pcie-speed" in findings_by_id(report(with_changes(resting, nvmlDeviceGetUtilizationRates={"gpu": 90, "memory": 1})))


def test_a_slot_older_than_the_card() -> None:
    slot = with_changes(H200, nvmlDeviceGetMaxPcieLinkGeneration=4, nvmlDeviceGetCurrPcieLinkGeneration=4)
    assert set(findings_by_id(report(slot))) == {"pcie-slot"}


def test_the_catalog_knows_lanes_the_driver_hides() -> None:
    narrow = with_changes(H200, nvmlDeviceGetCurrPcieLinkWidth=8, nvmlDeviceGetMaxPcieLinkWidth=8)
    assert set(findings_by_id(report(narrow))) == {"pcie-width"}


def test_lost_gpu_is_exactly_one_problem() -> None:
    library = Recorded(H200)
    library.gpus.append(Error(LOST))
    result = report(library=library)
    assert [(one.id, one.gpu) for one in result.findings if one.gpu == 1] == [("lost", 1)]


def test_driver_vanishing_during_a_query_leaves_the_rest_of_the_report() -> None:
    library = Recorded(H200)
    probe = probe_of(library=library)
    library.gone = Error(UNINITIALISED)
    report = build_report(probe, (), host(), software(), Catalog())
    assert report.gpus == ()
    assert report.host.cores == 16


def test_implausible_values_are_listed_and_missing_fields_are_not() -> None:
    assert "odd" in findings_by_id(report(NONSENSE))
    assert "odd" not in findings_by_id(report(BARE))


def test_memory_without_a_visible_process_is_reported() -> None:
    occupied = with_changes(H200, nvmlDeviceGetMemoryInfo={"total": 143771 << 20, "free": 20000 << 20})
    assert "memory-held" in findings_by_id(report(occupied))
    own = with_changes(occupied, nvmlDeviceGetComputeRunningProcesses=[{"pid": 1}])
    assert set(findings_by_id(report(own))) == {"memory-little"}


def test_ecc_off_on_a_datacenter_card() -> None:
    assert set(findings_by_id(report(with_changes(H200, nvmlDeviceGetEccMode=[0, 0])))) == {"ecc-off"}


def test_near_the_slowdown_temperature() -> None:
    assert set(findings_by_id(report(with_changes(H200, nvmlDeviceGetTemperature={(0,): 88})))) == {"hot"}


@pytest.mark.parametrize(("mask", "id"), [(0x80, "power-brake"), (0x8, "power-brake"), (0x2, "application-clocks")])
def test_other_reasons_for_slow_clocks(mask: int, id: str) -> None:
    assert set(findings_by_id(report(with_changes(H200, nvmlDeviceGetCurrentClocksEventReasons=mask)))) == {id}


def test_a_forbidden_card() -> None:
    assert findings_by_id(report(with_changes(H200, nvmlDeviceGetComputeMode=2)))["compute-prohibited"].level == "problem"


def test_persistence_mode_is_not_reported_in_a_container() -> None:
    off = with_changes(H200, nvmlDeviceGetPersistenceMode=0)
    assert set(findings_by_id(report(off))) == {"persistence"}
    assert findings_by_id(report(off, at=host(container="docker"))) == {}


# Drivers and frameworks


def with_cuda(version: int) -> Recording:
    return {**SYSTEM, "nvmlSystemGetCudaDriverVersion": version}


def test_a_driver_too_old_for_the_card() -> None:
    findings = findings_by_id(report(library=Recorded(H200, system=with_cuda(11040)), runs=software({})))
    assert findings["driver-old"].level == "problem"
    assert "driver-old" not in findings_by_id(report(library=Recorded(H200, system=with_cuda(12020)), runs=software({})))


def test_gpu_whose_driver_support_ended() -> None:
    assert findings_by_id(report(V100, runs=software({})))["driver-last"].what.values["last"] == "580"


def test_a_pytorch_newer_than_the_driver() -> None:
    result = report(library=Recorded(H200, system=with_cuda(12040)))
    assert findings_by_id(result)["torch-driver"].level == "problem"
    same_major = report(library=Recorded(H200, system=with_cuda(12040)), runs=software(torch_cuda="12.8"))
    assert "torch-driver" not in findings_by_id(same_major)


def test_a_pytorch_without_code_for_the_card() -> None:
    assert findings_by_id(report(V100))["torch-architecture"].level == "problem"  # CUDA 13 has no Volta
    assert "torch-architecture" not in findings_by_id(report(V100, runs=software(torch_cuda="12.6")))
    old = software({"torch": "1.12.1"}, torch_cuda="11.6")
    assert "torch-architecture" in findings_by_id(report(H200, runs=old))  # Hopper came with 11.8


def test_a_pytorch_after_the_last_that_runs() -> None:
    findings = findings_by_id(report(V100, runs=software({"torch": "2.15.0"}, torch_cuda="12.6")))
    assert findings["torch-last"].level == "warning"


def test_a_pytorch_without_gpus_or_for_anothers() -> None:
    assert findings_by_id(report(H200, runs=software(torch_cuda=None)))["torch-cpu"].level == "problem"
    assert "torch-other-vendor" in findings_by_id(report(H200, runs=software(torch_cuda=None, torch_rocm="6.4")))
    assert findings_by_id(report(H200, runs=software({}, torch_cuda=None))) == {}


def test_a_jax_without_its_plug_in() -> None:
    assert "jax-cpu" in findings_by_id(report(H200, runs=software({"jax": "0.11.2"})))
    assert "jax-cpu" not in findings_by_id(report(H200, runs=software({"jax": "0.11.2", "jax-cuda13-plugin": "0.11.2"})))


def test_a_card_of_an_unknown_variant_is_judged_by_its_instruction_set() -> None:
    unknown = with_changes(V100, nvmlDeviceGetName="NVIDIA Weird 100")
    assert {"match", "torch-architecture", "driver-last"} <= set(findings_by_id(report(unknown)))


def test_a_variable_that_hides_gpus_is_named_without_its_value() -> None:
    assert findings_by_id(report(H200, runs=software(hidden_by=("CUDA_VISIBLE_DEVICES",))))["hidden-some"].level == "note"
    findings = findings_by_id(report(H200, runs=software(hidden_by=("CUDA_VISIBLE_DEVICES",), hides_all=True)))
    assert findings["hidden-all"].level == "problem"


# The machine


def test_container_limits_that_are_too_small() -> None:
    findings = findings_by_id(
        report(H200, at=host(cpu_limit=2.0, ram_limit_bytes=32 * GIB, shared_memory_bytes=64 << 20, container="docker"))
    )
    assert {"few-cores", "little-ram", "little-shared"} <= set(findings)


def test_links_between_gpus() -> None:
    def unlinked(_: int, __: int) -> Recording:
        return {"nvmlDeviceGetP2PStatus": 5, "nvmlDeviceGetTopologyCommonAncestor": 40}

    def linked(_: int, __: int) -> Recording:
        return {"nvmlDeviceGetP2PStatus": 0}

    second = with_changes(H200, nvmlDeviceGetUUID="b")
    some = {(link,): int(link < 12) for link in range(18)}
    assert set(findings_by_id(report(library=Recorded(H200, second, peers=unlinked)))) == {"nvlink-down"}
    assert findings_by_id(report(library=Recorded(H200, second, peers=linked))) == {}
    partly = [with_changes(gpu, nvmlDeviceGetNvLinkState=some) for gpu in (H200, second)]
    assert set(findings_by_id(report(library=Recorded(*partly, peers=linked)))) == {"nvlink-some"}


@pytest.mark.parametrize(
    ("at", "kind", "id"),
    [
        ({"nvidia_devices": False}, "no-library", "no-gpu"),
        ({"nvidia_devices": False, "container": "docker"}, "no-library", "no-gpu-container"),
        ({"container": "docker"}, "no-library", "no-gpu-library"),
        ({}, "no-library", "no-gpu-library"),
        ({}, "no-driver", "no-gpu-no-driver"),
        ({}, "driver-mismatch", "no-gpu-driver-mismatch"),
        ({}, "no-permission", "no-gpu-no-permission"),
        ({}, "no-answer", "no-gpu-no-answer"),
        ({}, "no-package", "no-gpu-no-package"),
    ],
)
def test_without_a_gpu_the_likeliest_reason_is_reported(at: dict[str, Any], kind: str, id: str) -> None:
    absences = (MissingVendor("nvidia", kind, msg(f"absent.{kind}", why="", name="")),)
    report = build_report(None, absences, host(**at), software(), Catalog())
    assert [one.id for one in report.findings] == [id]


def test_every_finding_has_a_sentence_and_advice() -> None:
    library = Recorded(H200, T4_HOT, A100_MIG, RTX_3060_X4, NONSENSE, BARE, V100)
    library.gpus.append(Error(LOST))
    result = report(library=library, at=host(cpu_limit=2.0), runs=software({"jax": "1", "torch": "3.0"}))
    assert len(result.findings) > 15
    for one in result.findings:
        for message in (one.what, one.advice):
            assert message.id in english()
            assert "{" not in english().render(message)


def test_nvidia_rules_are_not_applied_to_apple_and_amd_gpus() -> None:
    class One:
        def cards(self) -> tuple[Card, ...]:
            return (Card(0, "amd", "AMD Instinct MI300X", Sample(0, memory_bytes=192 * GIB), target="gfx942"),)

        def samples(self, traffic: bool = False) -> tuple[Sample, ...]:
            return ()

        def processes(self) -> tuple[tuple[int, ...], ...]:
            return ()

        def close(self) -> None:
            pass

    report = build_report(One(), (), host(), software(torch_cuda=None, torch_rocm="6.4"), Catalog())
    assert report.gpus[0].match.gpu == "mi300x"
    assert report.findings == ()
