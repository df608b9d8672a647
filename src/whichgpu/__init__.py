"""whichgpu: which GPU should I use? Facts first, with a source and a date beside every number.

The public verbs live in :mod:`whichgpu.api`; they are loaded on first use so that importing the package stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whichgpu.base.version import __version__

__all__ = [
    "__version__",
    "catalog_check",
    "catalog_status",
    "compare",
    "cpus",
    "engines",
    "estimate_requests",
    "fit",
    "gpus",
    "instances",
    "models",
    "offers",
    "regions",
    "relative",
]

if TYPE_CHECKING:
    from whichgpu.api import (
        catalog_check,
        catalog_status,
        compare,
        cpus,
        engines,
        estimate_requests,
        fit,
        gpus,
        instances,
        models,
        offers,
        regions,
        relative,
    )


def __getattr__(name: str) -> Any:
    if name in __all__:
        from whichgpu import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
