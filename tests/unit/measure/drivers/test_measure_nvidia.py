"""NVML's answers, recorded: decoded where they make sense, left out where they do not, and outlived where they stop."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.recorded_nvml import (
    A100_MIG,
    BARE,
    DRIVER_NOT_LOADED,
    H200,
    LIBRARY_NOT_FOUND,
    LOST,
    MISMATCH,
    NO_PERMISSION,
    NONSENSE,
    RTX_3060_X4,
    T4_HOT,
    UNINITIALISED,
    UNKNOWN,
    Error,
    Recorded,
    with_changes,
)
from whichgpu.base.codec import to_json
from whichgpu.measure.drivers.card import Card
from whichgpu.measure.drivers.nvidia import NvidiaProbe, open_nvidia
from whichgpu.measure.drivers.nvml import Nvml
from whichgpu.measure.drivers.probe import CombinedProbe, DriverUnavailable, VendorUnavailable
from whichgpu.measure.drivers.vendors import open_probes


def probe_of(library: Recorded) -> NvidiaProbe:
    nvml = Nvml(library)
    nvml.start()
    return open_nvidia(nvml)


def card_of(recording: Any) -> Card:
    return probe_of(Recorded(recording)).cards()[0]


def test_an_h200_is_read_in_base_units() -> None:
    card = card_of(H200)
    assert (card.name, card.driver, card.api_version) == ("NVIDIA H200", "580.159.03", "13.0")
    assert (card.compute_capability, card.target, card.cores) == ("9.0", "sm_90", 16896)
    assert card.now.memory_bytes == 143771 << 20
    assert card.now.memory_used_bytes == 615 << 20
    assert (card.now.power_watts, card.now.power_limit_watts, card.power_default_watts) == (76.543, 700.0, 700.0)
    assert (card.now.sm_clock_hz, card.now.sm_clock_max_hz) == (345_000_000, 1_980_000_000)
    assert (card.now.temperature_celsius, card.slowdown_celsius) == (31, 90)
    assert card.now.throttle == ("idle",)
    assert (card.now.pcie_rx_bandwidth, card.now.pcie_tx_bandwidth) == (1_025_000, 488_000)
    assert (card.ecc, card.ecc_errors, card.mig, card.persistence, card.compute_mode) == (True, 0, False, True, "shared")
    assert (card.nvlinks, card.nvlinks_active) == (18, 18)
    assert card.pcie is not None
    assert (card.pcie.generation, card.pcie.width, card.pcie.width_max) == (5, 16, 16)
    assert card.odd == ()


def test_an_older_drivers_throttle_reasons_are_read_too() -> None:
    assert card_of(T4_HOT).now.throttle == ("power-cap", "hardware-slowdown", "hardware-thermal")


def test_mig_slices_have_profile_memory_and_size() -> None:
    card = card_of(A100_MIG)
    assert card.mig is True
    assert [(part.profile, part.sms) for part in card.slices] == [("3g.20gb", 42), ("1g.5gb", 14)]
    assert [part.memory_bytes for part in card.slices] == [19968 << 20, 4864 << 20]
    assert [part.memory_used_bytes for part in card.slices] == [38 << 20, None]
    assert card.now.utilisation_percent is None


def test_gpu_with_only_a_name_has_unknown_fields() -> None:
    card = card_of(BARE)
    assert card.name == "NVIDIA H200"
    assert not card.now.lost
    assert card.now.memory_bytes is None
    assert card.now.throttle is None
    assert card.pcie is None
    assert card.odd == ()


def test_answers_that_cannot_be_true_are_dropped_and_named() -> None:
    card = card_of(NONSENSE)
    assert "\x1b" not in card.name
    assert "\x00" not in card.name
    assert len(card.name) <= 96
    document = json.loads(to_json(card.now))
    present = {name for name, value in document.items() if value not in (None, [])}
    assert present == {"index", "throttle", "lost", "odd"}
    assert {"memory_bytes", "utilisation_percent", "power_watts", "temperature_celsius", "sm_clock_hz", "name"} <= set(card.odd)
    assert (card.ecc, card.mig, card.persistence, card.compute_mode, card.compute_capability) == (None,) * 5


@pytest.mark.parametrize(("total", "free"), [(8 << 30, 9 << 30), (4096, 0), (-1, 0), (1 << 60, 1 << 20)])
def test_memory_that_contradicts_itself_is_unknown(total: int, free: int) -> None:
    sample = card_of(with_changes(H200, nvmlDeviceGetMemoryInfo={"total": total, "free": free})).now
    assert (sample.memory_bytes, sample.memory_used_bytes, sample.odd) == (None, None, ("memory_bytes",))


@pytest.mark.parametrize("function", [name for name in H200 if name.startswith("nvml") and name != "nvmlDeviceGetUUID"])
@pytest.mark.parametrize("code", [3, NO_PERMISSION, UNKNOWN, 13, 21])
def test_any_one_question_may_fail(function: str, code: int) -> None:
    card = card_of(with_changes(H200, **{function: Error(code)}))
    assert not card.now.lost
    assert card.driver == "580.159.03"


def test_report_has_no_serial_number_or_uuid() -> None:
    text = to_json(card_of(H200))
    assert "1111" not in text
    assert "1654321000111" not in text


def test_watching_creates_no_context_and_allocates_no_memory() -> None:
    library = Recorded(H200)
    probe = probe_of(library)
    probe.cards()
    library.calls.clear()
    probe.samples()
    assert len(library.calls) <= 8
    assert all(call.startswith("nvmlDeviceGet") for call in library.calls)
    assert "nvmlDeviceGetPcieThroughput" not in library.calls  # each takes 20 ms


def test_peers_have_their_link_kind() -> None:
    def path(one: int, other: int) -> dict[str, int]:
        if {one, other} == {0, 1}:
            return {"nvmlDeviceGetP2PStatus": 0, "nvmlDeviceGetTopologyCommonAncestor": 50}
        return {"nvmlDeviceGetP2PStatus": 5, "nvmlDeviceGetTopologyCommonAncestor": 40 if 0 in (one, other) else 50}

    cards = probe_of(Recorded(H200, with_changes(H200, nvmlDeviceGetUUID="b"), RTX_3060_X4, peers=path)).cards()
    assert [(peer.index, peer.path) for peer in cards[0].peers] == [(1, "nvlink"), (2, "node")]
    assert [(peer.index, peer.path) for peer in cards[2].peers] == [(0, "node"), (1, "system")]


# What goes away


def test_a_card_that_vanishes_is_lost_and_the_others_are_still_read() -> None:
    library = Recorded(H200, T4_HOT)
    probe = probe_of(library)
    assert [sample.lost for sample in probe.samples()] == [False, False]
    library.gpus[0] = Error(LOST)
    assert [sample.lost for sample in probe.samples()] == [True, False]
    assert [card.now.lost for card in probe.cards()] == [True, False]
    library.gpus[0] = H200
    assert [sample.lost for sample in probe.samples()] == [False, False]


def test_a_card_that_only_fails_without_a_reason_is_lost() -> None:
    silent = {name: Error(UNKNOWN) for name in H200 if name not in ("nvmlDeviceGetUUID", "nvmlDeviceGetName")}
    assert [sample.lost for sample in probe_of(Recorded({**H200, **silent})).samples()] == [True]


def test_a_card_lost_from_the_start_has_a_row_of_its_own() -> None:
    library = Recorded(T4_HOT)
    library.gpus.append(Error(LOST))
    cards = probe_of(library).cards()
    assert [(card.index, card.now.lost) for card in cards] == [(0, False), (1, True)]


def test_vanished_driver_is_reinitialised() -> None:
    library = Recorded(H200)
    probe = probe_of(library)
    probe.samples()
    library.gone = Error(UNINITIALISED)
    for _ in range(3):
        with pytest.raises(DriverUnavailable):
            probe.samples()
    library.gone = None
    started = library.started
    assert [sample.lost for sample in probe.samples()] == [False]
    assert library.started == started + 0  # shut down and started again
    assert probe.processes() == ((),)


def test_gpu_indices_survive_a_driver_restart() -> None:
    library = Recorded(H200, T4_HOT)
    probe = probe_of(library)
    probe.samples()
    library.gone = Error(DRIVER_NOT_LOADED)
    with pytest.raises(DriverUnavailable):
        probe.samples()
    library.gone = None
    library.gpus = [T4_HOT]  # the first did not come back
    first, second = probe.samples()
    assert first.lost
    assert (second.index, second.memory_bytes) == (1, 15360 << 20)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (LIBRARY_NOT_FOUND, "no-library"),
        (DRIVER_NOT_LOADED, "no-driver"),
        (MISMATCH, "driver-mismatch"),
        (NO_PERMISSION, "no-permission"),
        (UNKNOWN, "no-answer"),
    ],
)
def test_unusable_driver_reports_its_reason(code: int, kind: str) -> None:
    with pytest.raises(VendorUnavailable) as error:
        Nvml(Recorded(init=Error(code))).start()
    assert error.value.missing.kind == kind


def test_a_driver_without_a_gpu_is_absent() -> None:
    with pytest.raises(VendorUnavailable) as error:
        probe_of(Recorded())
    assert error.value.missing.kind == "no-device"


def test_process_ids_are_those_that_are_numbers() -> None:
    odd = with_changes(T4_HOT, nvmlDeviceGetComputeRunningProcesses=[{"pid": 12}, {"pid": None}, {"pid": -1}, {}])
    assert probe_of(Recorded(odd)).processes() == ((12,),)


# Several probes as one


def test_probes_are_numbered_through_and_one_may_fail() -> None:
    first, second = Recorded(H200), Recorded(T4_HOT, RTX_3060_X4)
    together = CombinedProbe([probe_of(first), probe_of(second)])
    assert [card.index for card in together.cards()] == [0, 1, 2]
    assert [card.now.index for card in together.cards()] == [0, 1, 2]
    assert len(together.processes()) == 3
    second.gone = Error(UNINITIALISED)
    assert [(sample.index, sample.lost) for sample in together.samples()] == [(0, False), (1, True), (2, True)]
    first.gone = Error(UNINITIALISED)
    with pytest.raises(DriverUnavailable):
        together.samples()
    together.close()


def test_opening_drivers_collects_gpus_and_reasons_for_missing_ones() -> None:
    def broken() -> NvidiaProbe:
        raise OSError("odd driver")

    def absent() -> NvidiaProbe:
        return probe_of(Recorded())

    probe, missing = open_probes([absent, broken, lambda: probe_of(Recorded(H200)), lambda: probe_of(Recorded(T4_HOT))])
    assert probe is not None
    assert len(probe.cards()) == 2
    assert [one.kind for one in missing] == ["no-device", "no-answer"]
    assert open_probes([absent])[0] is None
