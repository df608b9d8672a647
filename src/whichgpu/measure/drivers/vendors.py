"""Opening of probes for this machine's GPUs of all vendors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whichgpu.base.messages import msg
from whichgpu.measure.drivers.amd import open_amd
from whichgpu.measure.drivers.apple import open_apple
from whichgpu.measure.drivers.nvidia import open_nvidia
from whichgpu.measure.drivers.probe import CombinedProbe, DriverUnavailable, MissingVendor, Probe, VendorUnavailable


def open_probes(openers: Sequence[Callable[[], Probe]] | None = None) -> tuple[Probe | None, tuple[MissingVendor, ...]]:
    """Return one probe that reads all GPUs of this machine, or None, and the vendors whose GPUs cannot be read, with reasons."""
    probes: list[Probe] = []
    missing: list[MissingVendor] = []
    for opener in usual_openers() if openers is None else openers:
        try:
            probes.append(opener())
        except VendorUnavailable as why:
            missing.append(why.missing)
        except (DriverUnavailable, OSError, ValueError, TypeError) as why:  # Then the vendor counts as missing.
            missing.append(MissingVendor("?", "no-answer", msg("absent.no-answer", why=type(why).__name__)))
    if not probes:
        return None, tuple(missing)
    return (probes[0] if len(probes) == 1 else CombinedProbe(probes)), tuple(missing)


def usual_openers() -> tuple[Callable[[], Probe], ...]:
    """Return the functions that open the supported vendors' probes."""
    return (open_nvidia, open_amd, open_apple)
