"""Integrity of the catalog: every check runs on the data itself; what is odd but right is explained in `explained.csv`."""

from whichgpu.catalog.checks.run import CheckReport, check_catalog

__all__ = ["CheckReport", "check_catalog"]
