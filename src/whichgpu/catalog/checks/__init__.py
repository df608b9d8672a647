"""Integrity checks of the catalog's data; odd but correct values are explained in `explained.csv`."""

from whichgpu.catalog.checks.run import CheckReport, check_catalog

__all__ = ["CheckReport", "check_catalog"]
