"""Corrections of the bundled calibration by the user's own measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from whichgpu.base.files import data_folder

if TYPE_CHECKING:
    from whichgpu.catalog.store import Catalog
    from whichgpu.estimate.time.own_corrections import OwnCorrections


def own_measurements(catalog: Catalog) -> Mapping[str, tuple[OwnCorrections, ...]]:
    """Return the corrections of estimated times by GPU id; empty if the user has no measurement records."""
    folder = data_folder()
    try:
        if folder is None or not (folder / "records").is_dir():
            return {}
    except OSError:
        return {}
    from whichgpu.estimate.time.calibration import load_calibration
    from whichgpu.measure.records import own_calibrations

    return own_calibrations(catalog, load_calibration())
