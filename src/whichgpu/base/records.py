"""Names, types and defaults of a record's fields; records are msgspec structs, whose classes load faster than dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def field_types(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the type of each field of a record by name, as the code spells it."""
    spelled: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        spelled |= getattr(base, "__annotations__", {})
    return {name: spelled[name] for name in kind.__struct_fields__}


def field_defaults(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the default of each field of a record that has one, by name.

    >>> from whichgpu.workload.parallel import Parallel
    >>> field_defaults(Parallel)["tp"]
    1
    """
    with_default = kind.__struct_fields__[-len(kind.__struct_defaults__) :] if kind.__struct_defaults__ else ()
    return dict(zip(with_default, kind.__struct_defaults__, strict=True))
