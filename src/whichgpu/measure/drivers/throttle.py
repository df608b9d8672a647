"""Reasons for reduced clocks, from NVML's bit mask (nvmlClocksEventReasons)."""

from __future__ import annotations

REASONS = {
    0x001: "idle",
    0x002: "application-clocks",
    0x004: "power-cap",
    0x008: "hardware-slowdown",
    0x010: "sync-boost",
    0x020: "software-thermal",
    0x040: "hardware-thermal",
    0x080: "power-brake",
    0x100: "display-clocks",
    0x200: "board-limit",
    0x400: "reliability",
}
THERMAL = frozenset({"software-thermal", "hardware-thermal"})
SUPPLY = frozenset({"power-brake"})


def reasons(bits: object) -> tuple[str, ...] | None:
    """Return the reasons for reduced clocks in NVML's bit mask; None if there is no mask.

    >>> reasons(0x24), reasons(0), reasons(None), reasons(0x8000)
    (('power-cap', 'software-thermal'), (), None, ('bit-15',))
    """
    if not isinstance(bits, int) or isinstance(bits, bool) or not 0 <= bits < 1 << 64:
        return None
    names = [word for bit, word in REASONS.items() if bits & bit]
    unknown = bits & ~sum(REASONS)
    return (*names, *(f"bit-{place}" for place in range(64) if unknown >> place & 1))
